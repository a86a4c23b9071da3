//! Tests of verdicts on targets known to be equal, and on targets known to differ.

use std::path::Path;

use iotax_testkit::thorough;
use serde_json::Value;

use crate::disk::Disk;
use crate::lab::{Lab, assert_valid, start_until, text};
use crate::lab_guest::LabGuest;

/// A plan with identical targets under several names, each a separate file.
fn same(targets: usize, head: &str) -> String {
    let targets =
        (1..=targets).map(|n| format!("[[target]]\nname = \"t{n}\"\nfile = {{ dir = \"WORK\" }}\n"));
    let workloads = ["rw = \"randread\"", "rw = \"randread\"\niodepth = 8", "rw = \"read\"\nbs = \"64k\""];
    let workloads = workloads.map(|keys| format!("[[workload]]\n{keys}\n"));
    let defaults = "[defaults]\nsize = \"16m\"\nruntime = \"150ms\"\nramp_time = \"50ms\"\n";
    format!("{head}\n{defaults}{}{}", targets.collect::<String>(), workloads.concat())
}

/// Returns the verdicts on the mean latency.
fn verdicts(json: &Value) -> Vec<&str> {
    let all = json["comparisons"].as_array().expect("compared").iter();
    all.filter(|c| c["metric"] == "latency_mean").map(|c| c["verdict"].as_str().expect("a verdict")).collect()
}

/// Returns the rounds in which a target was measured, over all workloads.
fn measured(json: &Value, target: &str) -> usize {
    json["measurements"].as_array().expect("measured").iter().filter(|m| m["target"] == target).count()
}

#[test]
fn without_a_terminal_a_look_is_a_line_and_the_table_comes_once() {
    let lab = Lab::new();
    let plan = lab.plan(&same(2, "repeat = 3\nmargin = \"40%\"\n[until_decided]\nmax_rounds = 5"));
    let output = lab.run(&["run", "--yes", plan.to_str().expect("text")]);
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(said.contains("look 1 of 3, 3 rounds"), "{said}");
    let is_row =
        |line: &&str| line.starts_with("  t2 ") && !line.contains("raw file") && !line.contains("against");
    let rows = said.lines().filter(is_row);
    assert_eq!(rows.count(), 1, "{said}");
}

#[test]
fn a_run_that_adds_rounds_is_killed_and_goes_on_as_it_was_planned() {
    let lab = Lab::new();
    let plan = lab.plan(&same(2, "repeat = 3\nmargin = \"40%\"\n[until_decided]\nmax_rounds = 8"));
    let mut child = start_until(lab.iotax().args(["run", "--yes"]).arg(&plan), "look 1 of 6");
    child.kill().expect("killed");
    child.wait().expect("it ended");
    assert!(lab.run(&["clean"]).status.success());

    let other = lab.run(&["resume", "1", "--repeat", "9", "--yes"]);
    let said = text(&other.stderr);
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(
        said.contains("--repeat 9: the looks of run 1 were fixed before it began, with 8 rounds at most"),
        "{said}"
    );

    let json = lab.json(&["resume", "1", "--yes", "--json", "-"]);
    assert_valid(&json);
    let design = &json["run"]["design"];
    assert_eq!(
        (&design["looks"], &design["margin"]),
        (&serde_json::json!([3, 4, 5, 6, 7, 8]), &Value::from(0.4))
    );
    let stopped = design["stopped"].as_str().expect("it ended");
    let taken = usize::try_from(design["taken"].as_u64().expect("looks")).expect("a few");
    let rounds = design["looks"][taken - 1].as_u64();
    let last = json["measurements"].as_array().and_then(|all| all.iter().map(|m| m["round"].as_u64()).max());
    assert_eq!(last, Some(rounds), "no round is measured that no look judges");
    assert!(stopped == "decided" || stopped == "max_rounds" && rounds == Some(8), "{design}");
    assert!(!verdicts(&json).iter().any(|verdict| ["slower", "faster"].contains(verdict)), "{json}");
    let warnings = json["warnings"].as_array().expect("warnings");
    assert!(!warnings.iter().any(|warning| warning["kind"] == "incomplete"), "{warnings:?}");
    // The same judgement from the store, and nothing left to do.
    let shown = lab.json(&["show", "1", "--json", "-"]);
    assert_eq!((&shown["comparisons"], &shown["run"]), (&json["comparisons"], &json["run"]));
    let again = lab.run(&["resume", "1", "--yes"]);
    assert!(text(&again.stderr).contains("has taken its last look"), "{}", text(&again.stderr));
}

#[test]
fn time_ends_a_run_at_a_look() {
    let lab = Lab::new();
    // Six seconds would suffice for all rounds without the time between measurements; the margin is never met.
    let plan =
        same(2, "repeat = 3\nmargin = \"0.01%\"\n[until_decided]\nmax_rounds = 1000\nmax_time = \"5s\"");
    let plan = lab.plan(&plan).display().to_string();
    let json = lab.json(&["run", &plan, "--yes", "--json", "-"]);
    assert_valid(&json);
    let design = &json["run"]["design"];
    assert_eq!((&design["stopped"], &design["max_time_s"]), (&Value::from("max_time"), &Value::from(5.0)));
    assert!(design["open"].as_u64() > Some(0), "{design}");
    let said = lab.run(&["report", "1", "--detail"]);
    assert!(text(&said.stdout).contains("Not decided: "), "{}", text(&said.stdout));
}

/// Tests that rounds added after results were visible are reported as a second look, permanently.
#[test]
fn a_second_look_is_said_to_be_one() {
    let lab = Lab::new();
    let plan = lab.plan(&same(2, "repeat = 2")).display().to_string();
    let kinds = |json: &Value| -> Vec<String> {
        let all = json["warnings"].as_array().expect("warnings").iter();
        all.map(|warning| warning["kind"].as_str().expect("a kind").to_owned()).collect()
    };
    let first = lab.json(&["run", &plan, "--yes", "--json", "-"]);
    assert!(!kinds(&first).contains(&"extended".to_owned()), "{first}");
    let more = lab.json(&["resume", "1", "--repeat", "3", "--yes", "--json", "-"]);
    assert_valid(&more);
    assert!(kinds(&more).contains(&"extended".to_owned()), "{more}");
    let said = text(&lab.run(&["report", "1", "--detail"]).stdout);
    let words = "the run had 2 rounds when more were requested, 3 in all";
    assert!(said.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{said}");
    lab.assert_nothing_left();
}

/// Tests that a throttled device, which never changes, is steady in the first window.
#[test]
fn rounds_are_added_until_a_steady_state() {
    iotax_testkit::require!(program "qemu-storage-daemon");
    let lab = Lab::new();
    let directory = lab.work().display().to_string();
    let limited = format!("{directory} > raw file > throttle iops=300 > virtio");
    let work = ["--rw", "randread", "--size", "16m", "--runtime", "700ms", "--ramp_time", "300ms"];
    let bench = [["bench", &limited, "--until-steady", "--yes", "--json", "-"].as_slice(), &work].concat();
    let json = lab.json(&bench);
    assert_valid(&json);
    let steady = &json["steady_state"];
    assert_eq!(
        (&steady["reached"], &steady["first_round"], &steady["last_round"]),
        (&true.into(), &1.into(), &5.into()),
        "{json}"
    );
    let window = &steady["cells"][0]["window"];
    assert!((window["mean"].as_f64().expect("a mean") - 300.0).abs() < 15.0, "{window}");
    let said = text(&lab.run(&["report", "1"]).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("Steady by SNIA's rule after 5 rounds"), "{said}");

    let plan = lab.plan(&format!(
        "repeat = 5\n[until_steady]\nmax_rounds = 4\n[[target]]\nname = 'a'\nstack = '{limited}'\n[[workload]]\nrw = 'read'\n"
    ));
    let refused = text(&lab.run(&["run", &plan.display().to_string(), "--yes"]).stderr);
    assert!(refused.contains("max_rounds = 4: accepted: from repeat = 5 to 1000"), "{refused}");
    let both =
        text(&lab.run(&["run", &plan.display().to_string(), "--until-steady", "--until-decided"]).stderr);
    assert!(both.contains("--until-decided") && both.contains("--until-steady"), "{both}");
    lab.assert_nothing_left();
}

/// Tests that a device is purged first, and that no more is written than the user confirmed.
#[test]
fn wear_has_a_limit_that_is_agreed_to() {
    let Some(disk) = Disk::new(32 << 20) else { return };
    let lab = Lab::new();
    let keys =
        ["--rw", "randwrite", "--bs", "64k", "--io_size", "1m", "--runtime", "5s", "--ramp_time", "0s"];
    let bench = [&["bench", disk.name(), "--overwrite", disk.name(), "--until-steady"][..], &keys].concat();
    let refused = lab.run(&bench);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains(&format!("--yes alone allows the length of {}, 32.0 MiB", disk.name())), "{said}");
    assert!(said.contains("--may-write 128m"), "{said}");
    assert!(disk.content().iter().all(|byte| *byte == 0), "nothing was written");
    let little = text(&lab.run(&[&bench[..], &["--may-write", "64m"]].concat()).stderr);
    assert!(little.contains("may_write = 64m; accepted: more"), "{little}");
    let none = text(&lab.run(&["bench", disk.name(), "--may-write", "1g"]).stderr);
    assert!(none.contains("--may-write 1GiB: bounds what --until-steady writes"), "{none}");

    // 1 MiB a round, and room for three and a half.
    let output = lab.run(&[&bench[..], &["--may-write", "69120k", "--json", "-"]].concat());
    let said = text(&output.stderr);
    assert!(
        said.contains(
            "filled with 64.0 MiB in two passes, and written until a steady state, with 67.5 MiB in all"
        ),
        "{said}"
    );
    assert!(said.contains("another round writes about"), "{said}");
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_valid(&json);
    assert_eq!(json["steady_state"]["last_round"], 3, "{json}");
    assert_eq!(json["steady_state"]["reached"], false, "{json}");
    assert_eq!(json["targets"][0]["purged"], "purged by discard", "{json}");
    let said = text(&lab.run(&["report", "1"]).stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("purged by discard, filled, and then written with"), "{said}");
    assert!(said.contains("another would have written more than may_write = 69120k"), "{said}");
    lab.assert_nothing_left();
}

/// Two targets on one disk share what may be written to it.
#[test]
fn what_is_written_counts_by_disk() {
    let lab = Lab::new();
    let target = |name: &str| format!("[[target]]\nname = '{name}'\nstack = 'WORK > raw file'\n");
    let disks = iotax_testbed::stack::physical_disks(Path::new("/"), &lab.work());
    let [disk] = disks.as_slice() else {
        iotax_testkit::skip!("the disk of the lab is not known: {disks:?}")
    };
    // Each is filled with 2 MiB in two passes, and written with 1 MiB a round.
    let keys = "rw = 'write'\nbs = '64k'\nsize = '1m'\nio_size = '1m'\nruntime = '5s'\nramp_time = '0s'\n";
    let plan = lab.plan(&format!(
        "repeat = 5\n[until_steady]\nmay_write = '11m'\n{}{}[[workload]]\nname = 'w'\n{keys}",
        target("a"),
        target("b")
    ));
    let output = lab.run(&["run", &plan.display().to_string(), "--yes", "--json", "-"]);
    let said = text(&output.stderr);
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("{disk} (a, b): filled with 4.00 MiB in two passes")), "{words}");
    assert!(words.contains("not discarded, because others' data is there"), "{words}");
    let stopped = format!("stopped: {disk} was written with 10.0 MiB, another round writes about 2.00 MiB");
    assert!(words.contains(&stopped), "{words}");
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(json["steady_state"]["last_round"], 3, "{json}");
    lab.assert_nothing_left();
}

/// Tests that run while no other test does.
mod alone {
    use iotax_model::record::Measurement;
    use iotax_store::Store;

    use super::*;
    use crate::flash_drive::FlashDrive;

    /// Tests a drive that slows down as its spare blocks are used up. Its counters give the begin of the steady state and the slowdown.
    #[test]
    fn a_drives_steady_state_is_that_of_its_own_counters() {
        iotax_testkit::require!(program "losetup", "blkdiscard");
        iotax_testkit::require!(root);
        let lab = Lab::alone();
        let drive = FlashDrive::new(&lab, 128, 33);
        let node = drive.disk.node.as_str();
        let plan = lab.plan(&format!(
            "name = 'a drive'\nrepeat = 5\n[until_steady]\nmax_rounds = 5\nmay_write = '1g'\n\
             [[workload]]\nname = 'w'\nrw = 'randwrite'\nnorandommap = true\niodepth = 8\nruntime = '500ms'\nramp_time = '100ms'\n\
             [[target]]\nname = 'drive'\ndevice = '{node}'\n"
        ));
        let db = lab.path("runs.db");
        let db = db.to_str().expect("UTF-8");
        let store = || Store::open(&lab.path("runs.db")).expect("a store");
        let said = |json: &Value| json["steady_state"]["reached"].as_bool().expect("said");
        let run =
            ["run", plan.to_str().expect("UTF-8"), "--yes", "--overwrite", node, "--db", db, "--json", "-"];
        let few = lab.json(&run);
        assert_eq!(drive.discarded(), 32 << 20, "purged, and then filled");
        assert!(!said(&few), "{few}");
        let page = text(&lab.run(&["report", "1", "--db", db]).stdout);
        assert!(page.contains("NOT steady after 5 rounds"), "{page}");

        let json = lab.json(&[&run[..], &["--max-rounds", "25"]].concat());
        assert_valid(&json);
        assert!(said(&json), "{json}");
        let measured = store().load(2).expect("loaded").measurements;
        let iops = |m: &Measurement| m.outcome.tallies.ios() as f64 / (m.outcome.duration_ns as f64 / 1e9);
        let truth: Vec<f64> = measured.iter().map(|m| drive.amplification(m)).collect();
        let program = FlashDrive::PROGRAM.as_secs_f64();
        for (round, (m, amplification)) in measured.iter().zip(&truth).enumerate() {
            let share = iops(m) * program * amplification;
            eprintln!(
                "round {}: {:.0} IOPS, amplification {amplification:.2}, {share:.3}",
                round + 1,
                iops(m)
            );
        }
        // Settled: from here on, the drive's amplification stays within 15% of its final value.
        let last: f64 = truth[truth.len() - 5..].iter().sum::<f64>() / 5.0;
        let unsettled = truth.iter().rposition(|one| (one / last - 1.0).abs() > 0.15);
        let first = json["steady_state"]["last_round"].as_u64().expect("a round") - 4;
        assert!(
            unsettled.is_some_and(|round| round == 0 || round as u64 + 2 <= first),
            "{truth:?}, from {first}"
        );
        let mean = json["steady_state"]["cells"][0]["window"]["mean"].as_f64().expect("a mean");
        let expected = 1.0 / (program * last);
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} IOPS, {expected} by the drive's own counters");
        assert!(truth[0] < 0.7 * last, "the first round is mostly fresh: {truth:?}");
        lab.assert_nothing_left();
    }

    /// Tests that identical files are equal. In each of four runs, the family of six comparisons contains a false "slower" or "faster" with
    /// a probability of 5%; three or more such runs occur by chance once in 2,000 tests.
    #[test]
    fn what_is_the_same_is_not_called_different() {
        let lab = Lab::alone();
        let plan = lab.plan(&same(3, "repeat = 5")).display().to_string();
        let runs = if thorough() { 4 } else { 2 };
        let families: Vec<bool> = (0..runs)
            .map(|_| {
                let json = lab.json(&["run", &plan, "--yes", "--json", "-"]);
                let said = verdicts(&json);
                assert_eq!(said.len(), 6, "{json}");
                eprintln!("{said:?}");
                said.iter().any(|verdict| ["slower", "faster"].contains(verdict))
            })
            .collect();
        assert!(families.iter().filter(|different| **different).count() <= runs / 2, "{families:?}");
    }
}

mod guests {
    use super::*;

    /// Tests two devices of 10 ms and one of 12 ms in a guest: only the latter differs, and its interval contains the true ratio.
    #[test]
    fn a_delay_of_known_size_is_found_and_no_more_is_measured_of_it() {
        let Some(mut guest) = LabGuest::boot_in_exact_time() else { return };
        guest.sh("insmod /lab/null_blk.ko nr_devices=0");
        for (name, ms) in [("ten", 10), ("other", 10), ("twelve", 12)] {
            guest.sh(&format!(
                "cd /sys/kernel/config/nullb && mkdir {name} && cd {name} && echo 64 > size && echo 2 > irqmode && \
                 echo {ms}000000 > completion_nsec && echo 1 > power"
            ));
        }
        let targets = ["ten", "other", "twelve"]
            .map(|name| format!("[[target]]\\nname = '{name}'\\npath = '/dev/{name}'\\n"));
        let plan = format!(
            "repeat = 5\\nmargin = '5%%'\\n[until_decided]\\nmax_rounds = 9\\n[[workload]]\\nrw = 'randread'\\nruntime = '600ms'\\n\
             ramp_time = '100ms'\\nioengine = 'psync'\\n{}",
            targets.concat()
        );
        guest.sh(&format!("printf \"{plan}\" > /tmp/plan.toml"));
        let printed =
            guest.sh("iotax run /tmp/plan.toml --yes --json - 2> /tmp/said || { cat /tmp/said; false; }");
        let json: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        assert_valid(&json);
        let of = |target: &str, metric: &str| {
            let mut all = json["comparisons"].as_array().expect("compared").iter();
            all.find(|c| c["metric"] == metric && c["target"] == target).expect("compared").clone()
        };
        let account = |guest: &mut LabGuest, device: &str| {
            let stat = guest.sh(&format!("cat /sys/block/{device}/stat"));
            let fields: Vec<f64> = stat.split_whitespace().map(|n| n.parse().expect("a number")).collect();
            fields[3] / fields[0]
        };
        let (ten, twelve) = (account(&mut guest, "ten"), account(&mut guest, "twelve"));
        let latency = of("twelve", "latency_mean");
        assert_eq!(latency["verdict"], "slower", "{latency}");
        assert!(
            ["same", "undecided"]
                .contains(&of("other", "latency_mean")["verdict"].as_str().expect("a verdict"))
        );
        // The truth is the kernel's account of the two. At the level of the last look an interval may miss it one time in twenty, but
        // then not by much.
        let (low, high) = (latency["low"].as_f64().expect("low"), latency["high"].as_f64().expect("high"));
        assert!((low * 0.99..=high * 1.01).contains(&(twelve / ten)), "{ten} ms, {twelve} ms: {latency}");
        // It was left out once both its comparisons were decided.
        let decided = ["latency_mean", "iops"].map(|metric| of("twelve", metric)["decided_at"].as_u64());
        assert_eq!(decided.into_iter().max().flatten(), Some(measured(&json, "twelve") as u64), "{json}");
    }
}
