//! Tests of several guests at the same time, neighbours, and a window recorded on host and guests.

use iotax_model::Run;
use iotax_model::record::{BlockTally, Measurement, Share};
use iotax_store::Store;
use iotax_testkit::require;

use crate::lab::{Lab, spawn_until, text};

/// Loads the newest run.
fn run(lab: &Lab) -> Run {
    let store = Store::open(&lab.path("runs.db")).expect("a store");
    store.load(store.latest().expect("read").expect("a run")).expect("loaded")
}

fn of<'a>(run: &'a Run, target: &str) -> &'a Measurement {
    run.measurements
        .iter()
        .find(|m| m.target == target)
        .unwrap_or_else(|| panic!("{target} was not measured"))
}

fn sorted(tally: &BlockTally) -> u64 {
    tally.latency.iter().map(|(_, count)| count).sum()
}

const PLAN: &str = r#"
name = "two guests"
seed = 3
repeat = 1
[defaults]
size = "32m"
runtime = "3s"
ramp_time = "300ms"
iodepth = 4
[[target]]
name = "one"
file = { dir = "WORK" }
guest = { memory = "384m" }
[[target]]
name = "pair"
file = { dir = "WORK", format = "qcow2", snapshot = "external" }
guest = { memory = "384m", count = 2 }
[[target]]
name = "host"
file = { dir = "WORK" }
neighbour = "noise"
[[workload]]
rw = "randread"
[[neighbour]]
[neighbour.target]
name = "noise"
file = { dir = "WORK" }
[neighbour.workload]
rw = "randwrite"
"#;

/// Returns the process of the guest whose name has this ending.
fn guest_of(lab: &Lab, end: &str) -> rustix::process::Pid {
    let dir = lab.work().display().to_string();
    let found = std::fs::read_dir("/proc").expect("Linux").flatten().find_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<String> =
            line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let named = words.windows(2).any(|pair| pair[0] == "-name" && pair[1].ends_with(end));
        (named && words.iter().any(|word| word.contains(&dir)))
            .then(|| entry.file_name().to_str()?.parse().ok())?
    });
    found.and_then(rustix::process::Pid::from_raw).expect("the guest runs")
}

#[test]
fn a_guest_that_is_killed_costs_one_measurement() {
    require!(guests);
    let lab = Lab::new();
    let plan = lab.plan(
        r#"
        repeat = 2
        [defaults]
        size = "16m"
        runtime = "4s"
        ramp_time = "100ms"
        [[target]]
        name = "pair"
        file = { dir = "WORK" }
        guest = { memory = "384m", count = 2 }
        [[workload]]
        rw = "randread"
        "#,
    );
    let run_it = ["run", plan.to_str().expect("utf-8"), "--yes", "--db", "runs.db"];
    let began = |said: &str| said.lines().any(|line| line.starts_with("round 1/2"));
    let (mut child, _, mut lines) = spawn_until(lab.iotax().args(run_it), began);
    // In the middle of the window, or on a slow machine a little before it.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let first = guest_of(&lab, "-pair");
    rustix::process::kill_process(guest_of(&lab, "-pair+2"), rustix::process::Signal::KILL).expect("killed");
    let went_on = lines.by_ref().map_while(Result::ok).any(|line| line.starts_with("round 2/2"));
    assert!(went_on, "the second round never began");
    // The one that lived was not booted again.
    rustix::process::test_kill_process(first).expect("it still runs");
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    let status = child.wait().expect("it ended");
    assert_eq!(status.code(), Some(3), "{rest:?}");

    let run = run(&lab);
    let [second] = run.measurements.as_slice() else { panic!("{} measured", run.measurements.len()) };
    assert_eq!((second.round, second.shares.len()), (2, 2));
    let [lost] = run.warnings.as_slice() else { panic!("{:?}", run.warnings) };
    assert!(lost.round == Some(1) && lost.evidence.contains("pair+2"), "{lost:?}");
    lab.assert_nothing_left();
}

#[test]
fn a_ladder_takes_several_guests_on_each_rung_that_has_one() {
    require!(guests);
    let lab = Lab::new();
    let work = lab.work();
    let ladder = |guests: &str| {
        lab.run(&["ladder", work.to_str().expect("utf-8"), "--guests", guests, "--yes", "--print-plan"])
    };
    let plan = text(&ladder("3").stdout);
    let plan = iotax_model::Plan::from_toml(&plan).expect("a plan");
    let counts: Vec<Option<u32>> =
        plan.targets.iter().map(|target| target.guest().map(|guest| guest.count)).collect();
    assert_eq!(counts, [None, None, None, None, Some(3), Some(3), Some(3)]);
    let plan = text(&ladder("1,4").stdout);
    let plan = iotax_model::Plan::from_toml(&plan).expect("a plan");
    let names: Vec<&str> = plan.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names[4..7], ["vm-raw-1", "vm-raw-4", "vm-qcow2-1"]);
    assert_eq!(plan.targets[5].guest().map(|guest| guest.count), Some(4));
    let none = ladder("0");
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("count = 0: accepted: 1 to 64"), "{}", text(&none.stderr));
}

/// Tests that run while no other test does.
mod alone {
    use super::*;

    #[test]
    fn guests_share_a_window_that_is_seen_from_every_side() {
        require!(guests);
        let lab = Lab::alone();
        let plan = lab.plan(PLAN);
        let output = lab.run(&["run", plan.to_str().expect("utf-8"), "--yes", "--db", "runs.db"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let run = run(&lab);

        let pair = of(&run, "pair");
        let names: Vec<&str> = pair.shares.iter().map(|share| share.name.as_str()).collect();
        assert_eq!(names, ["1", "2"]);
        let ios = |share: &Share| share.tallies.ios();
        assert!(pair.shares.iter().all(|share| ios(share) > 0));
        assert_eq!(pair.shares.iter().map(ios).sum::<u64>(), pair.outcome.tallies.ios());
        assert_eq!(
            pair.samples.iter().map(|sample| sample.tallies.ios()).sum::<u64>(),
            pair.outcome.tallies.ios()
        );
        // They began within a few hundred ms of one another, even emulated on a busy machine.
        let common = pair.outcome.duration_ns;
        assert!((2_000_000_000..=3_000_000_000).contains(&common), "{common}");
        assert!(pair.shares.iter().all(|share| share.duration_ns == common));
        let threads = &pair.host.as_ref().expect("watched").guest_threads;
        assert!(threads["vcpu"].total_ns() > 0 && threads["iothread"].total_ns() > 0, "{threads:?}");

        for measured in [of(&run, "one"), pair] {
            // The disk is opened past the guest's page cache, so that each I/O of the program is one of each layer.
            let program = measured.outcome.tallies.ios() as f64;
            let counted = measured.outcome.duration_ns as f64;
            let inside = measured.outcome.inside.as_ref().expect("the guest watched itself");
            assert!(inside.cpu.expect("CPUs").busy_ns() > 0);
            assert!(inside.kernel_threads.contains_key("kworker"), "{:?}", inside.kernel_threads);
            let kernel = inside.disks["vda"].reads as f64;
            let qemu = &measured.qemu.as_ref().expect("QEMU was asked").read;
            assert_eq!(sorted(qemu), qemu.ios);
            assert!(qemu.total_ns > 0 && measured.qemu.as_ref().is_some_and(|all| all.write.ios == 0));
            // The guest's own window is its runtime, QEMU's the common one, of which whole intervals count.
            for (layer, ios, window) in
                [("the guest's kernel", kernel, 3e9), ("QEMU", qemu.ios as f64, counted)]
            {
                let ratio = ios / window / (program / counted);
                assert!(
                    (0.7..1.3).contains(&ratio),
                    "{layer} did {ios} in {window} ns, the program {program}"
                );
            }
            assert!(measured.neighbour.is_none());
        }

        let host = of(&run, "host");
        let noise = host.neighbour.as_ref().expect("a neighbour");
        assert!(noise.name == "noise" && noise.tallies.write.as_ref().is_some_and(|write| write.ios > 0));
        assert!((2_000_000_000..=3_000_000_000).contains(&noise.duration_ns), "{}", noise.duration_ns);
        assert!(
            host.outcome.notes.iter().any(|note| note.contains("neighbour noise")),
            "{:?}",
            host.outcome.notes
        );
        assert!(host.outcome.inside.is_none() && host.qemu.is_none() && host.shares.is_empty());
        assert_eq!(run.measurements.len(), 3, "a neighbour is not measured for itself");

        let phases: Vec<&str> = run.phases.iter().map(|phase| phase.name.as_str()).collect();
        assert_eq!(phases, ["check", "provision", "boot", "fill", "prepare", "measure", "finish", "undo"]);
        // Three warm-ups and windows, and the second by which the neighbour outlasts one.
        assert!(run.phases[5].duration_ns >= 3 * 3_300_000_000, "{:?}", run.phases);
        lab.assert_nothing_left();
    }
}
