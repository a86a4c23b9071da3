//! Tests of plans: the announcement before a run, and the example plans, run in a short form.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use iotax_model::Plan;
use iotax_model::target::{Bus, GuestSpec, PlannedDevice, RbdSpec};
use iotax_testbed::guest::kernel::Kernel;
use iotax_testbed::guest::modules;
use iotax_testkit::{require, thorough};
use serde_json::Value;

use crate::lab::{Lab, text};

const DOMAIN: &str = include_str!("../../../testbed/tests/system/libvirt/windows.xml");

fn examples() -> Vec<PathBuf> {
    let examples_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(examples_dir).expect("examples").map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.is_file());
    paths.sort();
    paths
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the schema's errors for a plan, as editors show them.
fn schema_errors(lab: &Lab, toml: &str) -> Vec<String> {
    let schema = lab.json(&["plan", "schema"]);
    let validator = jsonschema::validator_for(&schema).expect("the schema is one");
    let plan: toml::Table = toml.parse().expect("TOML");
    let plan = serde_json::to_value(plan).expect("JSON");
    validator.iter_errors(&plan).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// Tests that windows twice as long fit half as often, and that a number of rounds replaces the time.
#[test]
fn the_rounds_of_a_plan_with_a_time_follow_from_what_the_command_line_says() {
    let lab = Lab::new();
    let toml = "time = \"2m\"\n[[target]]\nname = \"a\"\nfile = { dir = \"WORK\" }\n[[target]]\nname = \"b\"\nfile = { dir = \"WORK\" }\n\
                [[workload]]\nrw = \"randread\"\nsize = \"16m\"\nruntime = \"900ms\"\nramp_time = \"0s\"\n";
    let plan = lab.plan(toml).display().to_string();
    let read = |more: &[&str]| {
        let shown = stdout(&lab.run(&[&["plan", "show", &plan, "--toml"], more].concat()));
        Plan::from_toml(&shown).expect("a plan")
    };
    let most = |plan: &Plan| plan.until_decided().map(|until| until.max_rounds);
    let (short, long, fixed) =
        (read(&[]), read(&["--runtime", "1900ms"]), read(&["--repeat", "7", "--runtime", "1900ms"]));
    assert_eq!(most(&short), Some(60));
    assert_eq!(most(&long), Some(30));
    assert_eq!((fixed.repeat, most(&fixed)), (7, None));
    let refused = lab.run(&["plan", "show", &plan, "--runtime", "1m"]);
    assert!(
        text(&refused.stderr).contains("time = 2m: too short; it needs 4 rounds of 2 measurements"),
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn the_schema_knows_every_key_of_the_worked_plans_and_no_other() {
    let lab = Lab::new();
    let examples = examples();
    assert_eq!(examples.len(), 10);
    for path in examples {
        let plan = fs::read_to_string(&path).expect("readable");
        assert!(plan.starts_with("#:schema ../crates/model/schema/plan.schema.json\n"), "{}", path.display());
        assert_eq!(schema_errors(&lab, &plan), Vec::<String>::new(), "{}", path.display());
        // Written out in full, with every key of a guest.
        let full = Plan::from_toml(&plan).expect("a plan").to_toml().expect("written");
        assert_eq!(schema_errors(&lab, &full), Vec::<String>::new(), "{full}");
    }
    let good = fs::read_to_string(examples_path("cache-modes.toml")).expect("readable");
    for (from, to, key) in [
        ("fdatasync", "fdatasink", "/workload/2"),
        ("cache = [\"none\"", "chace = [\"none\"", "/target/1/guest"),
        ("\"writethrough\"", "\"writethru\"", "/target/1/guest/cache"),
        ("runtime = \"6s\"", "runtime = \"6\"", "/defaults/runtime"),
        ("iodepth = 8", "iodepth = \"eight\"", "/workload/0/iodepth"),
        ("baseline", "basline", ""),
        ("aio = [\"native\", \"io_uring\"]", "aio = []", "/target/1/guest/aio"),
        ("[[target]]\nname = \"host\"", "[[target]]", "/target/0"),
    ] {
        assert!(good.contains(from), "{from}");
        let bad = good.replacen(from, to, 1);
        let errors = schema_errors(&lab, &bad);
        assert!(errors.iter().any(|error| error.starts_with(&format!("{key}: "))), "{to}: {errors:?}");
        assert!(Plan::from_toml(&bad).is_err(), "{to}");
    }
}

fn examples_path(name: &str) -> PathBuf {
    examples().into_iter().find(|path| path.ends_with(name)).expect("an example")
}

#[test]
fn a_plan_is_shown_with_its_cells_and_their_price() {
    let lab = Lab::new();
    let path = examples_path("cache-modes.toml");
    let path = path.to_str().expect("utf-8");
    let shown = stdout(&lab.run(&["plan", "show", path, "--size", "64m"]));
    for words in [
        "8 targets x 3 workloads x 5 rounds = 120 measurements, about 14 min",
        "vm                       guest.cache = none, directsync, writeback, writethrough, unsafe",
        "host                     . > raw file; baseline",
        "vm-none-io_uring         . > raw file > virtio-blk cache=none aio=io_uring > guest\n",
        "like vm-none-native, but guest.aio = \"io_uring\"",
        "vm-unsafe-native         aio = \"native\" needs cache",
        "commit                   write 4k, iodepth 1, 6s after 1s",
    ] {
        assert!(shown.contains(words), "{words:?} is not in\n{shown}");
    }
    let json = lab.json(&["plan", "show", path, "--json", "--size", "64m", "--repeat", "2"]);
    assert_eq!((json["measurements"].as_u64(), json["rounds"].as_u64()), (Some(48), Some(2)));
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(3));
    assert_eq!(json["axes"][1]["values"], serde_json::json!(["native", "io_uring"]));
    let space =
        json["space_bytes"].as_object().expect("by directory").values().next().and_then(Value::as_u64);
    assert!(space >= Some(8 * (64 << 20)), "{json}");
    // For another machine.
    let plan = lab.plan("[[target]]\nname = 'a'\nfile = { dir = '/none' }\n[[workload]]\nrw = 'read'");
    let shown = stdout(&lab.run(&["plan", "show", plan.to_str().expect("utf-8")]));
    assert!(shown.contains("Not on this machine: /none: no such directory"), "{shown}");
}

#[test]
fn a_plan_is_checked_without_a_trace() {
    let lab = Lab::new();
    let good = "[[target]]\nname = 'a'\nfile = { dir = 'WORK' }\n[[workload]]\nrw = 'write'\nsize = '16m'\n";
    let guest = "file = { dir = 'WORK' }\nguest = {}";
    for (from, to, code, said) in [
        ("", "", 0, "It can be carried out here"),
        (
            "rw = 'write'",
            "rw = 'wriet'",
            2,
            "plan.toml is not a plan: line 5, column 6: \"wriet\" is not a known rw",
        ),
        ("WORK", "/none", 2, "/none: no such directory"),
        ("file = { dir = 'WORK' }", "path = '/etc/passwd'", 2, "is more than its length"),
        ("size = '16m'", "size = '900TiB'", 4, "are needed"),
        ("file = { dir = 'WORK' }", guest, 4, "was not found"),
    ] {
        let plan = lab.plan(&good.replace(from, to));
        let mut check = lab.iotax();
        if to == guest {
            check.env("PATH", lab.path("nothing"));
        }
        let output = check.args(["plan", "check"]).arg(plan).output().expect("iotax starts");
        let words = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{to}: {words}");
        assert!(words.contains(said), "{to}: {words}");
        lab.assert_nothing_left();
    }
    let plan = lab.plan(good);
    let plan = plan.to_str().expect("utf-8");
    let output = lab.run(&["plan", "check", plan, "--size", "1k"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("size = 1k: at least one block"), "{}", text(&output.stderr));
}

#[test]
fn a_ladder_is_printed_as_the_plan_that_it_is() {
    require!(program "qemu-system-x86_64");
    let lab = Lab::new();
    let work = lab.work();
    let work = work.to_str().expect("utf-8");
    let domain = lab.path("domain.xml");
    fs::write(&domain, DOMAIN).expect("written");
    let domain = domain.to_str().expect("utf-8");
    let exports = ["virtio-raw", "virtio-qcow2", "virtio-qcow2-snapshot"];
    let all: &[&str] = &[&["host-file"], &exports[..], &["vm-raw", "vm-qcow2", "vm-qcow2-snapshot"]].concat();
    let like = [
        "host-file",
        "like-win11",
        "cache-none",
        "aio-io_uring",
        "cache-none-aio-native",
        "bus-virtio-blk",
        "format-luks",
    ];
    for (flags, rungs, rounds, runtime, size, seed) in [
        (&[][..], all, 4, "250ms", "1GiB", None),
        (&["--time", "1m", "--seed", "7"], all, 3, "250ms", "1GiB", Some(7)),
        (&["--time", "2h"], all, 4, "7050ms", "4GiB", None),
        (&["--repeat", "3"], all, 3, "6s", "1GiB", None),
        (&["--repeat", "8", "--size", "2GiB", "--runtime", "90s"], all, 8, "90s", "2GiB", None),
        (
            &["--rungs", "vm-qcow2,host-file", "--workloads", "seqread-1m"],
            &["vm-qcow2", "host-file"],
            4,
            "3s",
            "1GiB",
            None,
        ),
        (&["--like", domain], &like, 4, "250ms", "1GiB", None),
    ] {
        // A guest that was named is printed wherever it may run.
        let emulated: &[&str] = if flags.contains(&"--rungs") { &[] } else { &["--emulated"] };
        let printed = stdout(&lab.run(&[&["ladder", work, "--print-plan"], emulated, flags].concat()));
        let plan = Plan::from_toml(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
        let names: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
        assert_eq!((names.as_slice(), plan.repeat, plan.seed), (rungs, rounds, seed), "{printed}");
        assert_eq!(plan.baseline, rungs[0]);
        for workload in &plan.workloads {
            let found = (workload.runtime.to_string(), workload.size.map(|size| size.to_string()));
            assert_eq!(found, (runtime.to_owned(), Some(size.to_owned())));
        }
        assert_eq!(Plan::from_toml(&plan.to_toml().expect("written")), Ok(plan));
        lab.assert_nothing_left();
    }
    let printed = stdout(&lab.run(&["ladder", work, "--print-plan", "--emulated", "--like", domain]));
    assert!(printed.contains("# <driver copy_on_read=\"on\"> is not reproduced\n"), "{printed}");
    for (arguments, code, said) in [
        (&["--like", "/none.xml"][..], 4, "\"/none.xml\" is no file, and libvirt cannot be asked"),
        (&["--like", domain, "--like-disk", "vdb"], 2, "no disk \"vdb\"; accepted: sda"),
        (&["--like", domain, "--rungs", "vm-raw"], 2, "cannot be used with"),
        (&["--like-disk", "vda"], 2, "--like <DOMAIN>"),
    ] {
        let mut ladder = lab.iotax();
        let output = ladder.args(["ladder", work, "--print-plan"]).args(arguments).output().expect("starts");
        let words = text(&output.stderr);
        assert!(output.status.code() == Some(code) && words.contains(said), "{arguments:?}: {words}");
    }
}

/// Tests that a printed ladder, run as a plan, has the same cells in the same order.
#[test]
fn a_printed_ladder_is_carried_out_as_the_ladder_is() {
    let lab = Lab::new();
    let work = lab.work();
    let ladder =
        ["ladder", work.to_str().expect("utf-8"), "--rungs", "host-file", "--size", "16m", "--repeat", "2"];
    let short = ["--runtime", "100ms", "--ramp-time", "0s", "--seed", "11"];
    let ladder = [&ladder[..], &short].concat();
    let order = |json: &Value| -> Vec<String> {
        let measurements = json["measurements"].as_array().expect("measurements");
        let mut cells: Vec<(u64, String)> = measurements
            .iter()
            .map(|m| (m["order"].as_u64().expect("a place"), format!("{} {}", m["workload"], m["round"])))
            .collect();
        cells.sort();
        cells.into_iter().map(|(_, cell)| cell).collect()
    };
    let plan = lab.path("ladder.toml");
    fs::write(&plan, stdout(&lab.run(&[&ladder[..], &["--print-plan"]].concat()))).expect("written");
    let run = lab.json(&["run", plan.to_str().expect("utf-8"), "--yes", "--json", "-"]);
    let ladder = lab.json(&[&ladder[..], &["--yes", "--json", "-"]].concat());
    assert_eq!(order(&run), order(&ladder));
    assert_eq!(run["workloads"], ladder["workloads"]);
}

/// Returns the targets of an example plan that quick tests build: of guests and clusters only the baseline, the first and the last.
/// `guest::axes` boots every kind of guest, and `rbd` every kind of cluster.
const FEW: usize = 3;

/// Runs a short form of an example plan in the lab's directory.
fn carried_out(name: &str) {
    carried_out_with(name, &[], |text| text);
}

fn carried_out_with(name: &str, flags: &[&str], edit: impl Fn(String) -> String) {
    let lab = Lab::new();
    let mut text_of_plan = edit(fs::read_to_string(examples_path(name)).expect("readable"));
    let mut plan = Plan::from_toml(&text_of_plan).expect("a plan");
    let has_guests = plan.targets.iter().any(|target| target.guest().is_some());
    if has_guests {
        require!(guests);
    } else {
        require!(program "qemu-storage-daemon");
    }
    let takes_long = has_guests || plan.targets.iter().any(|target| target.stack.has::<RbdSpec>());
    if takes_long && !thorough() && plan.targets.len() > FEW {
        let last = plan.targets.len() - 1;
        let baseline = plan.targets.iter().position(|target| target.name == plan.baseline);
        let mut nth = 0..;
        plan.targets.retain(|_| {
            let nth = nth.next();
            [Some(0), baseline, Some(last)].contains(&nth)
        });
        text_of_plan = plan.to_toml().expect("written");
    }
    let path = lab.path(name);
    fs::write(&path, text_of_plan).expect("written");
    let short: &[&str] = if flags.contains(&"--runtime") { &[] } else { &["--runtime", "200ms"] };
    let output = lab
        .iotax()
        .current_dir(lab.work())
        .arg("run")
        .arg(path)
        .args(flags)
        .args(short)
        .args(["--repeat", "1", "--ramp-time", "0s", "--size", "32m"])
        .args(["--yes", "--json", "-"])
        .output()
        .expect("iotax starts");
    assert!(output.status.success(), "{name}: {}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let measurements = json["measurements"].as_array().expect("measurements");
    assert_eq!(measurements.len(), plan.targets.len() * plan.workloads.len());
    for measurement in measurements {
        let done = ["read", "write"]
            .iter()
            .filter_map(|direction| measurement[direction]["ios"].as_u64())
            .sum::<u64>();
        assert!(done > 0, "{measurement}");
        assert_eq!(measurement["errors"].as_array().map_or(0, Vec::len), 0, "{measurement}");
    }
    lab.assert_nothing_left();
}

#[test]
fn operations_by_the_length_of_a_chain() {
    // Of the lengths one, and windows in which all operations come to their ends.
    carried_out_with("operations.toml", &["--runtime", "4s"], |text| {
        let short = text.replace("[1, 2, 4, 8]", "2").replace("chain-{backing_depth}", "chain-2");
        assert!(short.contains("backing_depth = 2"), "{short}");
        short
    });
}

#[test]
fn disk_formats() {
    carried_out("formats.toml");
}

#[test]
fn ceph_images() {
    if crate::rbd::possible() {
        // On a busy disk a write of a cluster's may take longer than the windows of the others.
        carried_out_with("ceph.toml", &["--runtime", "1s"], |text| text);
    }
}

#[test]
fn jobs_beside_one_another_are_told_apart() {
    let lab = Lab::new();
    let plan = lab.plan(
        "[defaults]\nsize = \"8m\"\nruntime = \"300ms\"\nramp_time = \"0s\"\ndirect = false\n\
         [[target]]\nname = \"host\"\nfile = { dir = \"WORK\" }\n\
         [[workload]]\nname = \"db\"\nrw = \"randread\"\nbs = \"8k\"\n\
         [[workload.beside]]\nname = \"log\"\nrw = \"write\"\noffset = \"8m\"\n",
    );
    let json = lab.json(&["run", plan.to_str().expect("utf-8"), "--repeat", "2", "--yes", "--json", "-"]);
    for measurement in json["measurements"].as_array().expect("measurements") {
        let [db, log] = [0, 1].map(|job| &measurement["jobs"][job]);
        assert_eq!((&db["name"], &log["name"]), (&Value::from("db"), &Value::from("log")));
        assert_eq!(db["read"]["ios"], measurement["read"]["ios"]);
        assert_eq!(log["write"]["ios"], measurement["write"]["ios"]);
        assert!(db.get("write").is_none() && log["write"]["ios"].as_u64() > Some(0), "{measurement}");
    }
    let tables = text(&lab.run(&["report", "1", "--detail"]).stdout);
    assert!(tables.contains("8k random read") && tables.contains(" + 4k sequential write"), "{tables}");
    lab.assert_nothing_left();
}

mod guests {
    use super::*;

    #[test]
    fn a_domains_disk_is_measured_beside_what_might_be_done_otherwise() {
        require!(guests);
        let lab = Lab::new();
        let work = lab.work();
        let domain = lab.path("domain.xml");
        fs::write(&domain, include_str!("../../../testbed/tests/system/libvirt/cloud-image.xml"))
            .expect("written");
        let ladder = ["ladder", work.to_str().expect("utf-8"), "--like", domain.to_str().expect("utf-8")];
        let short =
            ["--workloads", "randread-4k-qd1", "--repeat", "1", "--size", "16m", "--runtime", "200ms"];
        let ladder = [&ladder[..], &short, &["--ramp-time", "0s", "--yes", "--json", "-"]].concat();
        let names = |output: &Output| {
            let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            let all = json["measurements"].as_array().expect("measurements").iter();
            let mut all: Vec<String> =
                all.filter_map(|one| Some(one["target"].as_str()?.to_owned())).collect();
            all.sort_unstable();
            all
        };
        let rungs = [
            "aio-io_uring",
            "bus-virtio-blk",
            "cache-none",
            "cache-none-aio-native",
            "format-raw",
            "host-file",
        ];
        let guests = lab.run(&[&ladder[..], &["--emulated"]].concat());
        assert_eq!(
            names(&guests),
            [&rungs[..], &["like-cloud_test__1_"]].concat(),
            "{}",
            text(&guests.stderr)
        );
        // Without native guests the disks are measured without one, and have no bus.
        let without = lab.run(&ladder);
        if text(&without.stderr).contains("Its disk without a guest: ") {
            let rungs = ["aio-io_uring", "cache-none", "cache-none-aio-native", "format-raw", "host-file"];
            assert_eq!(names(&without), [&rungs[..], &["like-cloud_test__1_"]].concat());
        }
        lab.assert_nothing_left();
    }

    #[test]
    fn cache_modes() {
        carried_out("cache-modes.toml");
    }

    #[test]
    fn bus_types() {
        // Debian's kernel for clouds, which guests boot where it is there, has no AHCI.
        require!(kernel "ahci");
        let sata = GuestSpec { bus: Bus::Sata, ..GuestSpec::default() };
        let has_ahci = |image: &PathBuf| {
            Kernel::find(Path::new("/"), "", Some(image), None).is_ok_and(|kernel| {
                modules::check(&kernel.modules, &modules::needed(&sata, PlannedDevice::Disk)).is_ok()
            })
        };
        let images = fs::read_dir("/boot").into_iter().flatten().flatten().map(|entry| entry.path());
        let image = images.into_iter().find(has_ahci).expect("a kernel with AHCI").display().to_string();
        carried_out_with("bus-types.toml", &["--kernel", &image], |text| text);
    }

    #[test]
    fn queue_depth_and_io_threads() {
        carried_out("queue-depth.toml");
    }

    #[test]
    fn filesystems_in_the_guest() {
        carried_out("guest-filesystems.toml");
    }

    #[test]
    fn noisy_neighbours() {
        carried_out("noisy-neighbours.toml");
    }
}
