//! Tests that the statements about a run are true.

use iotax_analysis::Metric;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Judgement, judge};
use iotax_model::Run;
use iotax_model::verify_errors::Findings;
use iotax_model::{CellKey, Warning, WarningKind};

use crate::conclusions::sentences;
use iotax_testkit::runs::{HOST, Truth, bench, ladder, run};

const QD1: &str = "randread-4k-qd1";

fn two(slowdown: f64, noise: f64, rounds: u32) -> Run {
    run(&[("host-file", HOST), ("vm-raw", Truth { slowdown, noise, ..HOST })], &[QD1], rounds, false)
}

fn verdict(judgement: &Judgement, metric: Metric) -> Verdict {
    judgement.comparison(CellKey { workload: QD1, target: "vm-raw" }, metric).expect("compared").ratio.verdict
}

fn of_kind(judgement: &Judgement, kind: WarningKind) -> Vec<&Warning> {
    judgement.warnings.iter().filter(|w| w.kind == kind).collect()
}

#[test]
fn faster_same_and_undecided_are_told_apart() {
    assert_eq!(verdict(&judge(&two(0.7, 0.004, 5)), Metric::LATENCY_MEAN), Verdict::Faster);
    assert_eq!(verdict(&judge(&two(1.0, 0.002, 5)), Metric::LATENCY_MEAN), Verdict::Same);
    let undecided = judge(&two(1.05, 0.06, 3));
    assert_eq!(verdict(&undecided, Metric::LATENCY_MEAN), Verdict::Undecided);
    let latency = undecided
        .comparison(CellKey { workload: QD1, target: "vm-raw" }, Metric::LATENCY_MEAN)
        .expect("compared");
    let needed = latency.ratio.needed_rounds.expect("it has a variance");
    assert!(needed > 3);
    let said = sentences(&two(1.05, 0.06, 3)).join("\n");
    assert!(said.contains(" would decide it: iotax resume 17 --time "), "{said}");
}

#[test]
fn nothing_measured_is_no_answer() {
    let mut run = two(1.0, 0.0, 2);
    run.measurements.clear();
    let judgement = judge(&run);
    assert_eq!((judgement.comparisons.len(), judgement.cells.len(), sentences(&run).len()), (0, 0, 0));
}

#[test]
fn steps_follow_the_edges() {
    let judgement = judge(&ladder(false));
    let pairs: Vec<_> = judgement
        .steps
        .iter()
        .filter(|c| c.metric == Metric::IOPS && c.workload == QD1)
        .map(|c| (c.target.as_str(), c.baseline.as_str()))
        .collect();
    let edges = [("vm-raw", "host-file"), ("vm-qcow2", "vm-raw"), ("vm-qcow2-snapshot", "vm-qcow2")];
    assert_eq!(pairs, edges);
    let first = judgement.step(QD1, &judgement.edges[0], Metric::LATENCY_MEAN);
    assert_eq!(
        first,
        judgement.comparison(CellKey { workload: QD1, target: "vm-raw" }, Metric::LATENCY_MEAN),
        "one pair, one verdict"
    );
    let sentences = sentences(&ladder(false));
    let said = sentences.join("\n");
    let qcow2 =
        "qcow2 adds nothing measurable to the latency (within 2%) on every workload: vm-qcow2 over vm-raw";
    assert!(said.contains(qcow2), "{said}");
    assert!(sentences[0].starts_with("virtio-blk + guest (vm-raw over host-file): slower on"), "{said}");
    // The total of several layers is stated too; that of a single layer only once.
    let total = sentences.last().expect("sentences");
    assert!(total.starts_with("In all, against host-file: vm-qcow2 slower on"), "{said}");
    assert!(total.contains("vm-qcow2-snapshot slower on") && !total.contains("vm-raw"), "{said}");
}

#[test]
fn emulation_is_named_once_for_each_target() {
    let judgement = judge(&ladder(true));
    let targets: Vec<_> =
        of_kind(&judgement, WarningKind::Emulated).iter().filter_map(|w| w.target.clone()).collect();
    assert_eq!(targets, ["vm-raw", "vm-qcow2", "vm-qcow2-snapshot"]);
    let said = &sentences(&ladder(true))[0];
    assert!(said.starts_with("virtio-blk + guest (vm-raw, emulated, over host-file)"), "{said}");
}

#[test]
fn blocks_that_are_not_what_was_written_are_said_with_their_offsets() {
    let mut run = bench();
    run.measurements[0].outcome.verify = Some(iotax_testkit::runs::damaged());
    let judgement = judge(&run);
    let [warning] = of_kind(&judgement, WarningKind::Corrupt)[..] else { panic!("{:?}", judgement.warnings) };
    assert_eq!(
        warning.evidence,
        "6 of 1006 checks found a block that does not hold what was written there: 5 x lost_write, at bytes 0, 4096, \
         8192, 40960 ... 1048576; 1 x torn, at byte 12288"
    );
    assert!(!sentences(&run).iter().any(|said| said.contains("held what was written")));

    let fine = Findings { checked: 64, ..Findings::default() };
    run.measurements[0].outcome.verify = Some(fine.clone());
    let judgement = judge(&run);
    assert_eq!(of_kind(&judgement, WarningKind::Corrupt), Vec::<&Warning>::new());
    assert_eq!(sentences(&run), ["All 64 checked blocks held what was written there."]);

    run.measurements[0].outcome.verify = Some(Findings { uncertain: 1, ..fine });
    let said = sentences(&run).join("");
    assert!(said.contains("1 block may hold anything"), "{said}");
}
