//! Tests of devices that fail most I/Os: every table says so, without other explanations or verdicts.

use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Failed, Grade, Judgement, Metric, judge};
use iotax_model::record::{ErrorCount, Tally};
use iotax_model::{CellKey, Run, WarningKind};
use iotax_report::{document, html, markdown, terminal};

use crate::conclusions::sentences;
use crate::json::checked;
use iotax_testkit::runs::{HOST, Truth, bench, run};

/// Adds failed I/Os and a drop of the rate to each measurement of a target.
fn fail(run: &mut Run, target: &str, count: u64) {
    for m in run.measurements.iter_mut().filter(|m| m.target == target) {
        m.outcome.errors = vec![ErrorCount {
            error: "EIO".into(),
            direction: "read".into(),
            count,
            in_ramp: 0,
            first_offset: 0,
            last_offset: None,
        }];
        for sample in &mut m.samples[3..] {
            sample.tallies.read.as_mut().expect("reads").ios /= 4;
        }
    }
}

fn two() -> Run {
    let vm = Truth { slowdown: 1.4, ..HOST };
    run(&[("host-file", HOST), ("vm-raw", vm)], &["randread-4k-qd1"], 3, false)
}

fn said(run: &Run) -> String {
    terminal::set(&document::run(run, &judge(run)), 200, false).to_string()
}

/// Returns the cells with failed measurements.
fn failures(judgement: &Judgement) -> usize {
    judgement.cells.iter().filter(|cell| cell.failure.is_some()).count()
}

#[test]
fn a_target_that_fails_is_marked_in_its_row_and_in_no_verdict() {
    let mut run = two();
    fail(&mut run, "vm-raw", 9_000_000);
    let judgement = judge(&run);
    let text = said(&run);
    let row = text.lines().find(|line| line.trim_start().starts_with("vm-raw ")).expect("a row");
    assert!(row.ends_with("withheld, unusable"), "{row}");
    let ios = Failed::of(run.measurements.iter().find(|m| m.target == "vm-raw").expect("measured"));
    assert_eq!(ios.ios, 9_000_000);
    let line = text.lines().find(|line| line.contains("I/Os failed")).expect("a line");
    assert!(
        line.contains("vm-raw: unusable (3 of 3 measurements): 27,000,000 of ") && line.contains("EIO"),
        "{line}"
    );
    assert!(line.ends_with("the figures are of the ones that succeeded."), "{line}");
    assert!(judgement.comparisons.iter().all(|c| c.ratio.withheld.is_some()));
    // Nothing else explains what the errors did.
    let kinds: Vec<WarningKind> = judgement.warnings.iter().map(|warning| warning.kind).collect();
    assert!(kinds.iter().all(|kind| *kind == WarningKind::Incomplete), "{kinds:?}");
    assert_eq!(failures(&judgement), 1);

    for text in [markdown::set(&document::run(&run, &judgement)), html::render(&run, &judgement)] {
        assert!(text.contains("unusable (3 of 3 measurements): 27,000,000 of "), "{text}");
    }
    let document = checked(&run);
    let cells = document["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["failed"].is_null() == (cell["target"] == "host-file")));
    let cell = cells.iter().find(|cell| cell["target"] == "vm-raw").expect("its cell");
    assert_eq!((&cell["failed"]["measurements"], &cell["failed"]["ios"]), (&3.into(), &27_000_000.into()));
}

#[test]
fn a_baseline_that_fails_is_marked_too() {
    let mut run = two();
    fail(&mut run, "host-file", 9_000_000);
    let text = said(&run);
    let row = text.lines().find(|line| line.trim_start().starts_with("host-file ")).expect("a row");
    assert!(row.ends_with("unusable"), "{row}");
}

#[test]
fn a_single_target_that_fails_has_the_mark_behind_its_figures() {
    let mut run = bench();
    let text = said(&run);
    assert!(!text.contains("unusable"), "{text}");
    let name = run.plan.targets[0].name.clone();
    fail(&mut run, &name, 9_000_000);
    let text = said(&run);
    let row = text.lines().find(|line| line.trim_start().starts_with("read ")).expect("a row");
    assert!(row.ends_with("unusable"), "{text}");
    assert!(text.contains("of the ones that succeeded") && !text.contains("burst credits"), "{text}");
}

#[test]
fn what_a_few_errors_cost_is_a_remark_and_no_mark() {
    let mut run = bench();
    let name = run.plan.targets[0].name.clone();
    fail(&mut run, &name, 60);
    let judgement = judge(&run);
    assert_eq!((judgement.grades.as_slice(), failures(&judgement)), (&[Grade::Remarks][..], 0));
    // The I/Os that succeeded are checked as usual.
    assert!(judgement.warnings.iter().any(|warning| warning.kind == WarningKind::Throttled));
    assert!(!said(&run).contains("unusable"));
}

#[test]
fn a_lost_target_has_a_row_and_its_reason() {
    let mut run = two();
    run.measurements.retain(|m| m.target != "vm-raw");
    let record = run.targets.iter_mut().find(|record| record.name == "vm-raw").expect("recorded");
    record.lost = Some("the guest of target \"vm-raw\" did not come up: a reason".into());
    let judgement = judge(&run);
    let text = said(&run);
    let row = text.lines().find(|line| line.trim_start().starts_with("vm-raw ")).expect("a row");
    assert!(row.ends_with(" lost") && row.contains(" - "), "{row}");
    assert!(sentences(&run)[0].starts_with("vm-raw was lost (0 measurements"), "{:?}", sentences(&run));
    assert!(sentences(&run)[0].contains("did not come up: a reason"), "{:?}", sentences(&run));
    assert!(html::render(&run, &judgement).contains("did not come up: a reason"));
    let document = checked(&run);
    assert!(document["targets"][1]["lost"].as_str().is_some_and(|reason| reason.ends_with("a reason")));
    // No other sentence says "could not be compared".
    assert!(judgement.warnings.iter().all(|warning| warning.target.is_none()), "{:?}", judgement.warnings);
}

#[test]
fn without_its_baseline_a_run_shows_figures_and_compares_nothing() {
    let mut run = two();
    run.measurements.retain(|m| m.target != "host-file");
    run.targets[0].lost = Some("its disk was pulled".into());
    let judgement = judge(&run);
    assert_eq!(judgement.comparisons, []);
    let text = said(&run);
    assert!(text.lines().any(|line| line.trim_start().starts_with("vm-raw ")), "{text}");
    assert!(sentences(&run)[0].contains("the baseline: nothing is compared with it"), "{text}");
}

#[test]
fn one_window_in_which_nothing_was_done_is_outweighed_by_ten() {
    let vm = Truth { slowdown: 1.4, ..HOST };
    for (rounds, usable) in [(11, true), (9, false)] {
        let mut run = run(&[("host-file", HOST), ("vm-raw", vm)], &["randread-4k-qd1"], rounds, false);
        let stalled = run.measurements.iter_mut().find(|m| m.target == "vm-raw" && m.round == 3);
        let m = stalled.expect("measured");
        m.outcome.tallies.read = Some(Tally::default());
        m.samples.clear();
        m.host = None;
        let judgement = judge(&run);
        let comparison = judgement
            .comparison(CellKey { workload: "randread-4k-qd1", target: "vm-raw" }, Metric::IOPS)
            .expect("compared");
        assert_eq!(comparison.ratio.withheld.is_none(), usable, "{comparison:?}");
        let why = comparison.ratio.withheld.as_deref().unwrap_or_default();
        assert_eq!(why.contains("(1 without I/O may be left out of 10 rounds and more)"), !usable, "{why}");
        assert_eq!(comparison.ratio.verdict != Verdict::Undecided, usable, "{comparison:?}");
        assert_eq!(comparison.rounds, rounds - 1, "the round is left out on both sides");
        assert_eq!(failures(&judgement) == 0, usable);
        let text = said(&run);
        assert_eq!(!text.contains("unusable"), usable, "{text}");
        assert!(text.contains("no I/O was completed"), "it is said all the same: {text}");
    }
}
