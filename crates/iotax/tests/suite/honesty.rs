//! Honesty checks on real storage: each with a case that must draw its warning, and one that must not.
//!
//! Other load on this machine may hide that a cache answered, or empty the caches, so each test looks only at its own kind of
//! warning. An expected warning must appear in one of a few tries, a wrong one in none.

use std::fs;
use std::path::Path;

use iotax_model::units::Bytes;
use iotax_testkit::require;
use serde_json::Value;

use crate::disk::Disk;
use crate::lab::{Lab, assert_valid};
use crate::lab_guest::{Extras, LabGuest};

/// Returns the evidence of every warning of a kind, with its target and workload.
fn warned(json: &Value, kind: &str) -> Vec<(String, String, String)> {
    assert_valid(json);
    let warnings = json["warnings"].as_array().expect("warnings").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    warnings
        .filter(|warning| warning["kind"] == kind)
        .map(|warning| (text(&warning["target"]), text(&warning["workload"]), text(&warning["evidence"])))
        .collect()
}

/// The number of tries.
const TRIES: usize = 4;

fn measurements<'a>(json: &'a Value, target: &str) -> Vec<&'a Value> {
    json["measurements"].as_array().expect("measurements").iter().filter(|m| m["target"] == target).collect()
}

#[test]
fn a_sparse_file_is_told_from_a_full_one() {
    let lab = Lab::new();
    let (sparse, full) = (lab.path("sparse"), lab.path("full"));
    fs::File::create(&sparse).and_then(|file| file.set_len(16 << 20)).expect("made");
    let noise = fs::read("/proc/self/exe").expect("this test");
    fs::write(&full, noise.iter().cycle().take(16 << 20).copied().collect::<Vec<u8>>()).expect("written");
    let short = ["--runtime", "400ms", "--ramp-time", "0s", "--json", "-"];
    let bench = |path: &Path| lab.json(&[&["bench", path.to_str().expect("utf-8")][..], &short].concat());
    let json = bench(&sparse);
    let holes = warned(&json, "holes");
    let [(_, _, evidence)] = holes.as_slice() else { panic!("{holes:?}") };
    assert!(evidence.starts_with("16.0 MiB of 16.0 MiB (100%) have no data behind them"), "{evidence}");
    let zeros = warned(&json, "compressible");
    assert!(zeros.len() == 1 && zeros[0].2.starts_with("100% of the"), "{zeros:?}");
    let lies = (0..TRIES).map(|_| warned(&bench(&sparse), "cache_lie")).find(|lies| !lies.is_empty());
    let lies = lies.expect("no device answers for holes");
    assert!(lies.len() == 1 && lies[0].2.ends_with("this measured holes, or memory"), "{lies:?}");
    let json = bench(&full);
    assert_eq!((warned(&json, "holes"), warned(&json, "cache_lie")), (vec![], vec![]));
    assert!(json["measurements"][0].get("flush").is_none(), "reads flush nothing");
    let watching = json["measurements"][0]["watching_ns"].as_u64().expect("known");
    println!("watching took {watching} ns of 400 ms");
    // A file that iotax creates is always filled.
    let own = bench(&lab.work().join("new"));
    assert_eq!((warned(&own, "holes"), warned(&own, "compressible")), (vec![], vec![]));
}

#[test]
fn writes_are_followed_by_a_flush_and_what_was_to_be_cached_is_no_lie() {
    let lab = Lab::new();
    let path = lab.work().join("new");
    let bench =
        ["bench", path.to_str().expect("utf-8"), "--rw", "randwrite", "--size", "16m", "--direct=false"];
    let short = ["--runtime", "300ms", "--ramp-time", "0s", "--json", "-"];
    let json = lab.json(&[&bench[..], &short].concat());
    assert_eq!(warned(&json, "cache_lie"), []);
    let flush = &json["measurements"][0]["flush"];
    assert!(flush["duration_ns"].as_u64() > Some(0), "{json}");
    assert!(json["measurements"][0].get("page_cache").is_none(), "through the cache is as asked");
    let null = lab.json(&[&bench[..], &["--ioengine", "null"], &short].concat());
    assert!(null["measurements"][0].get("flush").is_none(), "nothing was written");
    lab.assert_nothing_left();
}

/// Returns the number of cached bytes among the first `size` bytes of a file.
fn cached(path: &Path, size: u64) -> u64 {
    use rustix::io::{ReadWriteFlags, preadv2};
    let file = fs::File::open(path).expect("there");
    let is_cached = |offset: &u64| {
        let mut into = [0; 4096];
        preadv2(&file, &mut [std::io::IoSliceMut::new(&mut into)], *offset, ReadWriteFlags::NOWAIT).is_ok()
    };
    (0..size).step_by(4096).filter(is_cached).count() as u64 * 4096
}

#[test]
fn before_a_measurement_the_targets_own_cache_is_dropped_and_nobody_elses() {
    const SIZE: u64 = 16 << 20;
    let lab = Lab::new();
    let (target, others) = (lab.path("target"), lab.path("others"));
    for path in [&target, &others] {
        fs::write(path, vec![1; 16 << 20]).expect("written");
        fs::File::open(path).and_then(|file| file.sync_data()).expect("synced");
    }
    assert_eq!((cached(&target, SIZE), cached(&others, SIZE)), (SIZE, SIZE));
    let short = [
        "--rw",
        "read",
        "--bs",
        "4k",
        "--direct=false",
        "--io_size",
        "64k",
        "--ramp-time",
        "0s",
        "--json",
        "-",
    ];
    lab.json(&[&["bench", target.to_str().expect("utf-8")][..], &short].concat());
    let (of_target, of_others) = (cached(&target, SIZE), cached(&others, SIZE));
    assert!(of_target < SIZE / 2, "{of_target} of {SIZE} were cached still");
    assert_eq!(of_others, SIZE);
}

#[test]
fn that_all_caches_of_a_machine_will_be_dropped_is_said_before() {
    let lab = Lab::new();
    let dir = lab.work();
    let bench = |more: &[&str]| {
        let new = dir.join("new");
        let arguments =
            [&["bench", new.to_str().expect("utf-8"), "--size", "1m", "--runtime", "100ms"][..], more];
        let said = lab.run(&arguments.concat());
        String::from_utf8_lossy(&said.stderr).into_owned()
    };
    let said = "all caches of the machine are dropped (pages, dentries, inodes)";
    assert!(!bench(&[]).contains(said));
    assert!(bench(&["--invalidate-machine"]).contains(said));
}

/// Returns the JSON document of a measurement of the guest's first disk.
fn bench_in(lab: &mut LabGuest) -> Value {
    let run = "iotax bench /dev/vda --runtime 2s --ramp-time 0s --json /tmp/result.json";
    let (_, said) = lab.try_sh(&format!("rm -f /tmp/result.json; {run} 2>&1"));
    serde_json::from_str(&lab.sh("cat /tmp/result.json")).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn a_filesystem_that_journals_data_is_seen_to_buffer_direct_i_o() {
        require!(program "mkfs.ext4", "losetup");
        for (options, buffers) in [("data=journal", true), ("data=ordered", false)] {
            let Some(disk) = Disk::new(64 << 20) else { return };
            let lab = Lab::alone();
            lab.plan(&format!(
            "repeat = 1\n[[workload]]\nrw = 'randread'\nsize = '4m'\nruntime = '300ms'\nramp_time = '0s'\n[[target]]\nname = 't'\n\
             device = '{}'\nfilesystem = {{ type = 'ext4', mount_options = '{options}' }}\nfile = {{}}\n",
            disk.name()
        ));
            let run = || lab.json(&["run", "plan.toml", "--yes", "--overwrite", disk.name(), "--json", "-"]);
            let found = (0..TRIES).map(|_| run()).any(|json| {
                println!("{options}: {}", json["measurements"][0]["page_cache"]);
                !warned(&json, "buffered_direct").is_empty()
            });
            assert_eq!(found, buffers, "{options}");
            lab.assert_nothing_left();
        }
    }
}

mod guests {
    use super::*;

    #[test]
    fn what_another_program_reads_beside_a_measurement_is_seen_at_the_device() {
        let extras = Extras { disks: &[Bytes(256 << 20)], ..Extras::default() };
        let Some(mut lab) = LabGuest::boot_with(&extras) else { return };
        lab.sh("mkdir -p /tmp /etc && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home");
        let at_the_device = |json: &Value| -> Vec<String> {
            let loads = warned(json, "other_load").into_iter().map(|(_, _, evidence)| evidence);
            loads.filter(|evidence| evidence.starts_with("vda ")).collect()
        };
        let alone = bench_in(&mut lab);
        assert_eq!(at_the_device(&alone), Vec::<String>::new());
        lab.sh("touch /tmp/go");
        lab.sh(
            "(while [ -e /tmp/go ]; do dd if=/dev/vda of=/dev/null bs=1M; echo 1 > /proc/sys/vm/drop_caches; done) > /dev/null 2>&1 &",
        );
        let beside = at_the_device(&bench_in(&mut lab));
        println!("{beside:?}");
        assert!(beside.len() == 1 && beside[0].contains("are not its own"), "{beside:?}");
    }

    /// Tests that run while no other test does.
    mod alone {
        use super::*;

        #[test]
        fn a_guest_whose_host_caches_is_caught_and_one_without_a_cache_is_not() {
            require!(guests);
            let lab = Lab::alone();
            // Warm: data written by the fill is still cached if there is a cache. Small: dropped data is soon cached again.
            let plan = lab.plan(
                r#"
            repeat = 1
            [defaults]
            size = "4m"
            bs = "64k"
            runtime = "1s"
            ramp_time = "0s"
            invalidate = false
            [[target]]
            name = "none"
            file = { dir = "WORK" }
            guest = { cache = "none", aio = "threads", memory = "384m" }
            [[target]]
            name = "writeback"
            file = { dir = "WORK" }
            guest = { cache = "writeback", aio = "threads", memory = "384m" }
            [[workload]]
            name = "reads"
            rw = "randread"
            [[workload]]
            name = "writes"
            rw = "randwrite"
            "#,
            );
            let run = || {
                lab.json(&["run", plan.to_str().expect("utf-8"), "--accel", "tcg", "--yes", "--json", "-"])
            };
            let caught = (0..TRIES).map(|_| run()).find(|json| {
                let lies = warned(json, "cache_lie");
                assert!(lies.iter().all(|(target, ..)| target == "writeback"), "{lies:?}");
                println!("{} of 2 lies", lies.len());
                lies.len() == 2
            });
            let json = caught.expect("what comes from a cache is seen to");
            let lies = warned(&json, "cache_lie");
            for (_, workload, evidence) in &lies {
                println!("{workload}: {evidence}");
                assert!(evidence.ends_with("this measured host memory"), "{evidence}");
            }
            let flushed = |target| -> (u64, u64) {
                let writes: Vec<_> =
                    measurements(&json, target).into_iter().filter(|m| m["workload"] == "writes").collect();
                let flush = &writes[0]["flush"];
                (
                    flush["duration_ns"].as_u64().expect("flushed"),
                    flush["device_bytes"].as_u64().expect("watched"),
                )
            };
            let (writeback, none) = (flushed("writeback"), flushed("none"));
            assert!(
                writeback.1 > 1 << 20,
                "the flush brought what was put off to the device: {writeback:?}, {none:?}"
            );
            assert!(measurements(&json, "none").iter().all(|m| m["grade"] != "unusable"), "{json}");
            assert!(measurements(&json, "writeback").iter().all(|m| m["grade"] == "unusable"));
            for comparison in json["comparisons"].as_array().expect("a list") {
                let why = comparison["withheld"].as_str().expect("withheld");
                assert!(why.starts_with("writeback, round 1: "), "{why}");
                assert_eq!(comparison["verdict"], "undecided");
            }
            for target in json["targets"].as_array().expect("targets") {
                assert_eq!(target["allocation"]["written"], 4 << 20, "filled: {target}");
            }
            assert_eq!(warned(&json, "holes"), []);
            lab.assert_nothing_left();
        }
    }
}
