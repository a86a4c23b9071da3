//! Tests of tuning on real devices, with settings restored.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use iotax_testkit::require;
use serde_json::Value;

use crate::disk::Disk;
use crate::lab::{Lab, text};
use crate::lab_guest::Extras;
use crate::watch_lab::boot;

/// Returns the content of every file of a device's queue and of the memory settings.
fn settings(disk: &Disk) -> BTreeMap<PathBuf, Vec<u8>> {
    let queue = Path::new("/sys/class/block").join(disk.name().trim_start_matches("/dev/")).join("queue");
    let files = [queue, "/proc/sys/vm".into()].into_iter().flat_map(|dir| fs::read_dir(dir).expect("listed"));
    let named = files.map(|entry| entry.expect("read").path());
    let is_ours = |path: &PathBuf| !path.starts_with("/proc") || path.to_string_lossy().contains("dirty_");
    named.filter(is_ours).filter_map(|path| Some((path.clone(), fs::read(path).ok()?))).collect()
}

fn is_tunable(disk: &Disk) -> bool {
    let scheduler =
        Path::new("/sys/class/block").join(disk.name().trim_start_matches("/dev/")).join("queue/scheduler");
    fs::read_to_string(scheduler).is_ok_and(|text| text.contains("mq-deadline"))
}

fn assert_valid(document: &Value) {
    let schema = include_str!("../../../report/schema/iotax-tune-1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let errors: Vec<String> = validator.iter_errors(document).map(|error| error.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
}

const TRIED: &str = "scheduler=mq-deadline,nr_requests=16";
const WORK: [&str; 6] = ["--rw", "randread", "--ramp-time", "0s", "--yes", "--json"];

#[test]
fn every_setting_is_put_back_byte_for_byte() {
    require!(root);
    let Some(disk) = Disk::new(32 << 20).filter(is_tunable) else { return };
    let lab = Lab::new();
    let before = settings(&disk);
    let tune = ["tune", disk.name(), "--try", TRIED, "--time", "6s", "--runtime", "100ms"];
    let json = lab.json(&[&tune[..], &WORK].concat());
    assert_eq!(settings(&disk), before);
    lab.assert_nothing_left();
    assert_valid(&json);
    let tried = json["tried"].as_array().expect("tried");
    let names: Vec<&str> = tried.iter().filter_map(|one| one["target"].as_str()).collect();
    assert_eq!(names, ["scheduler-mq-deadline", "nr_requests-16"]);
    assert!(tried.iter().all(|one| one["comparisons"][0]["metric"] == "iops"), "{json}");

    // The run is an ordinary one, with the settings in its plan.
    let run = json["screening"].to_string();
    let plan = lab.json(&["report", &run, "--json"]);
    assert_eq!(plan["plan"]["targets"][2]["settings"]["nr_requests"], 16, "{plan}");

    for (arguments, code, words) in [
        (vec!["--try", "scheduler=fifo"], 2, vec!["scheduler = fifo", "offers none", "mq-deadline"]),
        (vec!["--try", "nr_request"], 2, vec!["did you mean \"nr_requests\""]),
        (vec!["--try", "nr_requests"], 2, vec!["say which values", "nr_requests=64:256"]),
        (vec!["--try", "nomerges"], 2, vec!["say which values", "nomerges=0:2"]),
        (vec!["--try", "scheduler=none"], 2, vec!["scheduler=none: that is the present value"]),
        (vec!["--try", "nr_requests=1"], 2, vec!["nr_requests = 1", "4 to 65536"]),
        (vec!["--try", "cache"], 2, vec!["RUNG:DIR"]),
        (vec!["--try", "cache=none"], 2, vec!["RUNG:DIR"]),
        (vec!["--try", "nr_requests=8,nr_requests=8"], 2, vec!["twice"]),
    ] {
        let output = lab.run(&[&["tune", disk.name()], arguments.as_slice(), &WORK].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{arguments:?}: {said}"));
    }
    assert_eq!(settings(&disk), before);
}

#[test]
fn after_a_kill_clean_puts_settings_back() {
    require!(root);
    let Some(disk) = Disk::new(32 << 20).filter(is_tunable) else { return };
    let lab = Lab::new();
    let before = settings(&disk);
    let mut command = lab.iotax();
    command.args(["tune", disk.name(), "--try", TRIED, "--time", "2m", "--runtime", "2s"]).args(WORK);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    // Each target has its settings once, for a moment, before the first measurement.
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut seen = false;
    while !seen && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(100));
        let now = settings(&disk);
        std::thread::sleep(Duration::from_millis(300));
        seen = now != before && settings(&disk) == now;
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(seen, "no setting was seen");
    assert_ne!(settings(&disk), before);
    let cleaned = lab.run(&["clean"]);
    assert!(cleaned.status.success(), "{}", text(&cleaned.stderr));
    assert!(
        text(&cleaned.stdout).contains("setting") || text(&cleaned.stderr).contains("setting"),
        "{cleaned:?}"
    );
    assert_eq!(settings(&disk), before);
    lab.assert_nothing_left();
}

/// Multipath maps over the same two paths, by name. Each path serves 4 requests of 5 ms at a time.
const MAPS: [(&str, &str); 5] = [
    ("failover", "2 1 round-robin 0 1 1 /dev/sda 1 round-robin 0 1 1 /dev/sdb 1"),
    ("rr-1", "1 1 round-robin 0 2 1 /dev/sda 1 /dev/sdb 1"),
    ("rr-1000", "1 1 round-robin 0 2 1 /dev/sda 1000 /dev/sdb 1000"),
    ("queue-length", "1 1 queue-length 0 2 1 /dev/sda 1 /dev/sdb 1"),
    ("service-time", "1 1 service-time 0 2 2 /dev/sda 1 1 /dev/sdb 1 1"),
];

mod guests {
    use super::*;

    /// Tests that only the effective setting is found: read-ahead determines how often a buffered reader waits for a device with 5 ms per
    /// request; the age of dirty data does not.
    #[test]
    fn a_setting_with_an_effect_is_recommended_and_one_without_is_not() {
        let Some(mut guest) = boot(&Extras { exact_time: true, ..Extras::default() }) else { return };
        guest.sh("insmod /lab/brd.ko rd_nr=1 rd_size=65536");
        guest.map("slow", &["0 131072 delay /dev/ram0 0 5".to_owned()]);
        guest.sh("dd if=/dev/urandom of=/dev/mapper/slow bs=1M count=16; sync");
        let ahead = "/sys/block/dm-0/queue/read_ahead_kb";
        guest.sh(&format!("echo 16 > {ahead}"));
        let all = format!("cat {ahead} /proc/sys/vm/dirty_expire_centisecs /proc/sys/vm/dirty_ratio");
        let before = guest.sh(&all);
        let tried = "read_ahead_kb=4:256,dirty_expire_centisecs=6000";
        let work = "--rw read --bs 4k --direct=0 --size 16m --runtime 150ms --ramp-time 0s";
        let command = format!("iotax tune /dev/mapper/slow --try {tried} {work} --time 10s --yes --json");
        let (code, printed) = guest.try_sh(&format!("{command} 2> /tmp/said"));
        let said = guest.sh("cat /tmp/said");
        let json: Value =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed} {said}"));
        eprintln!("{said}");
        assert_eq!(code, "0", "{said}");
        assert_valid(&json);
        let recommended: Vec<String> = json["recommended"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| format!("{}={}", one["setting"], one["value"]).replace('"', ""))
            .collect();
        assert_eq!(recommended, ["read_ahead_kb=256"], "{said}");
        assert_eq!(json["confirmation"]["outcome"], "pays");
        assert_eq!(guest.sh(&all), before, "put back");
    }

    /// Tests the example of docs/tune.md: maps with different settings on the same paths are targets of one run.
    #[test]
    fn multipath_settings_are_compared_by_maps_over_the_same_paths() {
        let modules = ["dm_multipath", "dm_round_robin", "dm_queue_length", "dm_service_time"];
        let extras =
            Extras { programs: &["wipefs"], modules: &modules, exact_time: true, ..Extras::default() };
        let Some(mut guest) = boot(&extras) else { return };
        guest.sh("insmod /lab/scsi_debug.ko dev_size_mb=64 add_host=2 ndelay=5000000");
        guest.sh("for wait in $(seq 50); do [ -b /dev/sdb ] && break; usleep 100000; done; [ -b /dev/sdb ]");
        guest.sh("for disk in sda sdb; do echo 4 > /sys/block/$disk/device/queue_depth; done");
        guest.sh("dd if=/dev/urandom of=/dev/sda bs=1M count=8; sync");
        let maps = if iotax_testkit::thorough() { &MAPS[..] } else { &MAPS[..3] };
        for (name, paths) in maps {
            guest.map(name, &[format!("0 131072 multipath 1 queue_if_no_path 0 {paths}")]);
        }
        // The kernel replaces any other number of consecutive requests on a path by 1, and logs it.
        let table = guest.sh("dmsetup table rr-1000");
        assert!(!table.contains("1000"), "{table}");

        let target = |(name, _): &(&str, &str)| {
            format!("[[target]]\\nname = \"{name}\"\\npath = \"/dev/mapper/{name}\"\\n")
        };
        let targets = maps.iter().map(target).collect::<String>();
        let work = "[[workload]]\\nrw = \"randread\"\\niodepth = 32\\nsize = \"8m\"\\nruntime = \"150ms\"\\nramp_time = \"50ms\"\\n";
        guest.sh(&format!("printf 'repeat = 3\\n{targets}{work}' > /tmp/plan.toml"));
        let (code, printed) = guest.try_sh("iotax run /tmp/plan.toml --yes --json - 2> /tmp/said");
        let said = guest.sh("cat /tmp/said");
        eprintln!("{said}");
        assert_eq!(code, "0", "{said}");
        let json: Value = serde_json::from_str(&printed).expect("JSON");
        let comparisons = json["comparisons"].as_array().expect("comparisons");
        for (name, _) in &maps[1..] {
            let is_it = |c: &&Value| c["target"] == *name && c["metric"] == "iops";
            let compared = comparisons.iter().find(is_it).expect("compared");
            let ratio = compared["ratio"].as_f64().expect("a ratio");
            assert!((1.8..=2.2).contains(&ratio), "two paths serve twice as much: {name} {ratio}");
            assert_eq!(compared["verdict"], "faster", "{said}");
        }
    }
}
