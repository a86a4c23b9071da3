//! Tests of the answer on the first screen.

use iotax_analysis::judge;
use iotax_model::record::CpuTime;
use iotax_model::{Run, Warning, WarningKind};
use iotax_report::terminal::set;
use iotax_report::{document, markdown};

use iotax_testkit::runs::observed::both_ladders;
use iotax_testkit::runs::{HOST, Truth, ladder, run};

/// Returns the answer in a terminal of 80 columns; asserts the maximum number of lines.
fn shown(run: &Run, lines: usize) -> String {
    let text = set(&document::answer(run, &judge(run)), 80, false).to_string();
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80, "{widest} columns:\n{text}");
    assert!(text.lines().count() <= lines, "more than {lines} lines:\n{text}");
    text
}

const ALL: [&str; 5] =
    ["randread-4k-qd1", "randread-4k-qd32", "randwrite-4k-qd32", "seqread-1m", "seqwrite-1m"];

fn rungs(vm: Truth, qcow2: Truth, snapshot: Truth, rounds: u32, emulated: bool) -> Run {
    let truths = [("host-file", HOST), ("vm-raw", vm), ("vm-qcow2", qcow2), ("vm-qcow2-snapshot", snapshot)];
    run(&truths, &ALL, rounds, emulated)
}

fn guest(slowdown: f64, noise: f64) -> Truth {
    Truth { slowdown, noise, cpu_ns: 9_800.0 }
}

#[test]
fn the_default_ladder_is_one_screen() {
    let run = rungs(guest(1.42, 0.01), guest(1.425, 0.01), guest(1.9, 0.01), 12, true);
    insta::assert_snapshot!(shown(&run, 24));
}

#[test]
fn a_ladder_that_is_mostly_open() {
    let run = rungs(guest(1.05, 0.06), guest(1.06, 0.06), guest(1.9, 0.2), 3, false);
    insta::assert_snapshot!(shown(&run, 24));
}

#[test]
fn nine_rungs() {
    insta::assert_snapshot!(shown(&both_ladders(), 32));
}

#[test]
fn a_given_rate_is_told_by_latency() {
    let mut run = rungs(guest(1.42, 0.01), guest(2.5, 0.01), guest(0.8, 0.01), 6, false);
    run.plan.workloads.iter_mut().for_each(|w| w.rate_iops = Some(1000));
    insta::assert_snapshot!(shown(&run, 24));
}

#[test]
fn a_target_that_was_lost_and_one_that_is_not_there() {
    let mut run = ladder(false);
    run.measurements.retain(|m| m.target != "vm-qcow2");
    run.targets.iter_mut().filter(|t| t.name == "vm-qcow2").for_each(|t| t.lost = Some("QEMU ended".into()));
    insta::assert_snapshot!(shown(&run, 24));
}

#[test]
fn a_single_target_is_two_lines_and_its_figures() {
    let mut run = iotax_testkit::runs::bench();
    insta::assert_snapshot!("a_bench", shown(&run, 10));
    run.plan.workloads[0].direct = false;
    insta::assert_snapshot!("a_bench_through_the_page_cache", shown(&run, 10));
}

#[test]
fn colour_is_on_what_differs() {
    let run = rungs(guest(1.42, 0.01), guest(1.425, 0.01), guest(1.9, 0.01), 12, false);
    let text = set(&document::answer(&run, &judge(&run)), 80, true);
    let plain = |line: &&str| !line.contains('\u{1b}');
    assert!(text.lines().filter(|line| line.trim_start().starts_with("host-file")).all(|line| plain(&line)));
    let vm = text.lines().find(|line| line.trim_start().starts_with("vm-raw")).expect("a row");
    assert_eq!(vm.matches("\u{1b}[38;5;9m").count(), ALL.len(), "{vm:?}");
}

#[test]
fn a_ticket() {
    let run = rungs(guest(1.42, 0.01), guest(1.425, 0.01), guest(1.9, 0.01), 12, true);
    insta::assert_snapshot!(markdown::set(&document::answer(&run, &judge(&run))));
}

#[test]
fn a_block_to_paste_is_thirty_lines_of_eighty_columns() {
    let mut run = rungs(guest(1.05, 0.06), guest(1.06, 0.06), guest(1.9, 0.2), 3, true);
    for m in &mut run.measurements {
        m.outcome.cpu = CpuTime { user_ns: m.outcome.duration_ns, system_ns: 0 };
    }
    let text = set(&document::paste(&run, &judge(&run)), 80, false).to_string();
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80 && text.lines().count() <= 30, "{widest} x {}:\n{text}", text.lines().count());
    for part in
        ["iotax ", "Linux 6.18.5", "vm-qcow2-snapshot: ", "EMULATED", "randread-", "not decided", "saturated"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn remarks_that_a_pasted_block_leaves_out_are_counted() {
    let mut run = ladder(false);
    let kinds = [
        WarningKind::Holes,
        WarningKind::Clock,
        WarningKind::Throttled,
        WarningKind::Gap,
        WarningKind::Offloads,
    ];
    run.warnings = kinds
        .map(|kind| Warning {
            kind,
            target: None,
            workload: None,
            round: None,
            evidence: "seen".into(),
            remedy: "none".into(),
        })
        .into();
    let shown = shown(&run, 40);
    let (before, _) = shown.split_once(" more, where").expect("not all are shown");
    let more = before.rsplit(' ').next().expect("a number");
    let pasted = set(&document::paste(&run, &judge(&run)), 80, false).to_string();
    assert!(pasted.contains(&format!("{more} more in the whole report")), "{pasted}");
    assert!(!pasted.contains("iotax report"), "{pasted}");
}
