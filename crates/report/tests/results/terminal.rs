//! Tests of the output for people in a terminal.

use iotax_analysis::judge;
use iotax_model::Run;
use iotax_report::terminal::set;
use iotax_report::{document, markdown};

use iotax_testkit::runs::observed::{both_ladders, crowd};
use iotax_testkit::runs::{HOST, Truth, bench, ladder, run};

fn rendered(run: &Run, width: usize) -> String {
    set(&document::run(run, &judge(run)), width, false).to_string()
}

fn shown(run: &Run) -> String {
    let text = rendered(run, 80);
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80, "{widest} columns:\n{text}");
    assert!(!text.contains('\u{1b}'), "no colour was asked for");
    text
}

fn two(slowdown: f64, noise: f64, rounds: u32) -> Run {
    let truths = [("host-file", HOST), ("vm-raw", Truth { slowdown, noise, cpu_ns: 9_800.0 })];
    run(&truths, &["randread-4k-qd1", "seqwrite-1m"], rounds, false)
}

#[test]
fn a_clear_win() {
    insta::assert_snapshot!(shown(&two(1.42, 0.005, 5)));
}

#[test]
fn a_dead_heat() {
    insta::assert_snapshot!(shown(&two(1.001, 0.003, 5)));
}

#[test]
fn an_undecided_run() {
    insta::assert_snapshot!(shown(&two(1.05, 0.06, 3)));
}

#[test]
fn one_round_alone() {
    insta::assert_snapshot!(shown(&two(1.3, 0.01, 1)));
}

#[test]
fn emulated_guests() {
    insta::assert_snapshot!(shown(&ladder(true)));
}

#[test]
fn a_missing_round_and_unsteady_measurements() {
    let mut run = ladder(false);
    run.measurements.retain(|m| !(m.target == "vm-qcow2" && m.round >= 4));
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw" && m.round < 3) {
        let third = &mut m.samples[2];
        let tallies = &mut third.tallies;
        for tally in tallies.read.iter_mut().chain(&mut tallies.write) {
            tally.ios *= 2;
        }
    }
    run.measurements[0].outcome.notes.push("io_uring without registered buffers: memory lock limit".into());
    insta::assert_snapshot!(shown(&run));
}

#[test]
fn a_single_bench() {
    insta::assert_snapshot!(shown(&bench()));
}

#[test]
fn a_single_bench_of_reads_and_writes() {
    let mut run = bench();
    run.plan.workloads[0].rw = iotax_model::Rw::RandRw;
    run.plan.workloads[0].rwmixread = 70;
    let workload = run.plan.workloads[0].clone();
    run.measurements = vec![iotax_testkit::runs::measurement(&workload, "disk.img", HOST, 1, 0)];
    insta::assert_snapshot!(shown(&run));
}

/// Tests that values without room in a table are listed below it.
#[test]
fn percentiles_of_too_few_ios_are_named() {
    let mut run = bench();
    let workload = run.plan.workloads[0].clone();
    run.measurements[0].outcome.tallies = iotax_testkit::runs::tallies(&workload, 500, 150_000.0);
    let text = shown(&run);
    let wanted =
        "Not given: p99 of 500 read I/Os (1,000 are needed) and p99.9 of 500 read I/Os (10,000 are needed).";
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(wanted), "{text}");
    assert!(!shown(&bench()).contains("Not given"));
}

#[test]
fn the_widest_table_of_a_ladder_still_fits() {
    let vm = Truth { slowdown: 1.05, noise: 0.06, cpu_ns: 9_800.0 };
    let truths = [("host-file", HOST), ("vm-raw", vm), ("vm-qcow2", vm), ("vm-qcow2-snapshot", vm)];
    let text = shown(&run(&truths, &["randread-4k-qd1", "seqwrite-1m"], 3, true));
    assert!(text.contains(" undecided, emulated\n") && text.contains("\n vm-qcow2-snapshot "), "{text}");
}

#[test]
fn nine_rungs_watched_from_within() {
    insta::assert_snapshot!(shown(&both_ladders()));
}

#[test]
fn several_guests_and_a_neighbour() {
    insta::assert_snapshot!(shown(&crowd()));
}

fn timing(run: &Run) -> String {
    set(&document::timing(judge(run).timing.as_ref()), 80, false).to_string()
}

#[test]
fn where_the_time_went() {
    insta::assert_snapshot!(timing(&both_ladders()));
    assert_eq!(timing(&crowd()), "This run recorded no timing.\n");
}

#[test]
fn a_long_name_of_a_layer_leaves_out_what_it_is_held_against() {
    let mut run = ladder(false);
    let name = "vm-with-a-name-that-nobody-can-abbreviate";
    run.plan.targets[3].name = name.into();
    run.targets[3].name = name.into();
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-qcow2-snapshot") {
        m.target = name.into();
    }
    let text = rendered(&run, 100);
    assert!(text.contains(&format!("external snapshot ({name}) ")), "{text}");
    let narrow = shown(&run);
    assert!(narrow.contains(&format!("\n ({name}) ")), "{narrow}");
}

#[test]
fn from_60_columns_on_everything_fits_and_names_are_broken_in_heads_alone() {
    for run in [both_ladders(), crowd(), ladder(true)] {
        let in_head = |word: &str| {
            ["IOPS", "MB/s"].contains(&word) || run.plan.workloads.iter().any(|w| w.name.contains(word))
        };
        for width in (60..=120).step_by(5) {
            let answer = set(&document::answer(&run, &judge(&run)), width, false).to_string();
            for text in [answer, rendered(&run, width)] {
                let is_whole = |line: &str| {
                    line.chars().count() <= width
                        && (line.split_whitespace().all(|word| word == "-" || !word.ends_with('-'))
                            || line.split_whitespace().all(in_head))
                };
                let wrong: Vec<&str> = text.lines().filter(|line| !is_whole(line)).collect();
                assert!(wrong.is_empty(), "{width}: {wrong:#?}\n{text}");
            }
        }
    }
}

#[test]
fn nothing_measured() {
    let mut run = two(1.0, 0.0, 2);
    run.measurements.clear();
    insta::assert_snapshot!(shown(&run));
}

#[test]
fn colour_is_on_verdicts_alone() {
    let run = two(1.42, 0.005, 5);
    let text = set(&document::run(&run, &judge(&run)), 80, true);
    let coloured: Vec<&str> = text.lines().filter(|line| line.contains('\u{1b}')).collect();
    assert!(coloured.iter().all(|line| line.contains("slower")) && coloured.len() == 4, "{text}");
}

#[test]
fn a_ticket_of_a_run() {
    insta::assert_snapshot!(markdown::set(&document::run(&ladder(true), &judge(&ladder(true)))));
}
