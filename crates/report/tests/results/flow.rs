//! I/O amplification: each layer's I/Os and bytes compared with those of the layer above.

use iotax_analysis::judge;
use iotax_model::Run;
use iotax_report::{document, json, terminal};

use iotax_testkit::runs::observed::both_ladders;
use iotax_testkit::runs::{HOST, Truth, run};

/// A host with a device that merges writes, and a guest with reads served by a cache.
fn merged_and_cached() -> Run {
    let truths = [("host-file", HOST), ("vm-raw", Truth { slowdown: 0.3, noise: 0.004, cpu_ns: 9_800.0 })];
    let mut run = run(&truths, &["randread-4k-qd1", "seqwrite-1m"], 3, false);
    for m in &mut run.measurements {
        let disk = m.host.as_mut().and_then(|host| host.disks.get_mut("vda")).expect("observed");
        if m.target == "host-file" && disk.writes > 0 {
            disk.write_merges = disk.writes - disk.writes / 24;
            disk.writes /= 24;
        }
        if m.target == "vm-raw" && disk.reads > 0 {
            (disk.reads, disk.read_bytes) = (disk.reads / 20, disk.read_bytes / 20);
        }
    }
    run
}

/// Returns the lines about it, without the tables.
fn passed_on(run: &Run) -> Vec<String> {
    let text = terminal::set(&document::run(run, &judge(run)), 200, false);
    text.lines().filter(|line| line.contains("passed on")).map(|line| line.trim().to_owned()).collect()
}

#[test]
fn what_was_not_passed_on_as_it_was_is_told() {
    assert_eq!(
        passed_on(&merged_and_cached()),
        [
            "vm-raw, passed on: reads: vda 5.0% of the bytes, a cache, or holes, answered the rest",
            "host-file, passed on: writes: vda merged 24:1 (24.0 MiB each)",
        ]
    );
}

#[test]
fn what_was_passed_on_as_it_was_is_not() {
    assert_eq!(passed_on(&both_ladders()), [""; 0]);
}

#[test]
fn documents_have_every_layer() {
    let run = both_ladders();
    let document = json::document(&run, &judge(&run));
    let cells = document["cells"].as_array().expect("cells");
    let of = |target: &str| {
        let cell = cells.iter().find(|cell| cell["target"] == target).expect("measured");
        cell["levels"].as_array().expect("levels").clone()
    };
    let names: Vec<_> = of("vm-lvm").iter().map(|level| level["name"].clone()).collect();
    assert_eq!(names, ["program", "vda in the guest", "QEMU", "vdb"]);
    let device = &of("host-device")[1]["read"];
    assert_eq!((&device["ios_ratio"], &device["bytes_ratio"]), (&1.0.into(), &1.0.into()));
    assert!(device["mean_wait_ns"].as_f64().is_some_and(|ns| ns > 0.0));
    assert!(of("host-device")[0]["read"].get("ios_ratio").is_none(), "nothing is above the program");
}
