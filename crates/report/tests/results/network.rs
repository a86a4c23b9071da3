//! Tests that network paths are compared by their traffic, and that each network check fires only in its own case.

use iotax_analysis::Metric;
use iotax_analysis::compare::{Account, Question, Side, Which, compare, history};
use iotax_analysis::judge;
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::Run;
use iotax_model::net::Direction;
use iotax_model::record::Gap;
use iotax_model::{Warning, WarningKind};
use iotax_report::json;
use iotax_report::terminal::set;
use iotax_report::{document, html, markdown};

use crate::conclusions::sentences;
use iotax_testkit::runs::network::{TestPath, VETH, VIRTIO, alone, ladder, rtt, run, tcp};

pub(crate) fn found(run: &Run) -> Vec<Warning> {
    judge(run).warnings
}

/// The kinds that were found, each once.
pub(crate) fn kinds(run: &Run) -> Vec<WarningKind> {
    let mut kinds: Vec<WarningKind> = found(run).into_iter().map(|warning| warning.kind).collect();
    kinds.dedup();
    kinds
}

pub(crate) fn two(workload: iotax_model::Workload) -> Run {
    run(&[VETH, VIRTIO], &[workload], 3)
}

/// Returns the only finding in a run with one faulty measurement.
pub(crate) fn only(run: &Run, kind: WarningKind) -> Warning {
    let mut all = found(run);
    assert_eq!(all.iter().map(|warning| warning.kind).collect::<Vec<_>>(), [kind], "{all:?}");
    all.remove(0)
}

pub(crate) fn first(run: &mut Run) -> &mut iotax_model::record::Measurement {
    &mut run.measurements[1]
}

#[test]
fn the_ladder_of_a_network_is_told_layer_by_layer() {
    let judgement = judge(&ladder());
    let edges: Vec<String> =
        judgement.edges.iter().map(|e| format!("{} -> {}: {}", e.from, e.to, e.name)).collect();
    assert_eq!(
        edges,
        [
            "loopback -> veth: veth pair",
            "veth -> vm-virtio: virtio-net + guest",
            "vm-virtio -> vm-e1000: e1000 instead of virtio-net",
            "vm-virtio -> vm-slirp: user instead of bridge",
        ]
    );
    let said = sentences(&ladder()).join("\n");
    assert!(
        said.contains("virtio-net + guest (vm-virtio over veth): carries 9.60 of 31.2 Gbit/s on tcp-upload"),
        "{said}"
    );
    assert!(said.contains("more host CPU per GiB on tcp-upload"), "{said}");
    assert!(said.contains("adds 70.4 us to a round trip on tcp-rtt"), "{said}");
    assert!(!said.contains("IOPS") && !said.contains("per I/O"), "{said}");
}

#[test]
fn a_gap_is_told_with_its_time_and_a_short_one_is_not() {
    let gap = |ms: u64| {
        let mut run = two(tcp(Direction::Upload));
        let carried = first(&mut run).outcome.carried.as_mut().expect("a network's");
        carried.gaps =
            vec![Gap { upload: true, at_ns: 2_500_000_000, duration_ns: ms * 1_000_000, lost_bytes: None }];
        run
    };
    assert_eq!(kinds(&gap(150)), []);
    let warning = only(&gap(2010), WarningKind::Gap);
    assert_eq!(warning.evidence, "nothing arrived: upload 2.01 s from 2.50 s into the window on");
    let said = sentences(&gap(2010)).join("\n");
    assert!(
        said.contains(
            "Nothing arrived for more than 200 ms: vm-virtio on tcp-upload 1 time, for 2.01 s in round 1"
        ),
        "{said}"
    );
}

pub(crate) fn shown(run: &Run) -> String {
    set(&document::run(run, &judge(run)), 80, false).to_string()
}

#[test]
fn a_ladder_in_a_terminal() {
    let text = shown(&ladder());
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80, "{widest} columns:\n{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn one_way_in_a_terminal() {
    insta::assert_snapshot!(shown(&alone()));
}

#[test]
fn two_runs_of_a_network_are_held_against_one_another_by_throughput() {
    let before = run(&[VETH, VIRTIO], &[tcp(Direction::Upload), rtt()], 5);
    let slower = TestPath { rate: 0.8 * VIRTIO.rate, ..VIRTIO };
    let mut after = run(&[VETH, slower], &[tcp(Direction::Upload), rtt()], 5);
    (after.id, after.seed) = (22, 9);
    let (one, other) = (Account::of(&before, &judge(&before)), Account::of(&after, &judge(&after)));
    let question =
        Question { baseline: Which::A, metrics: document::SHOWN.to_vec(), margin: 0.02, gates: vec![] };
    let (a, b) = (Side { account: &one, target: None }, Side { account: &other, target: None });
    let compared = compare(&a, &b, &question).expect("they have all in common");
    assert_eq!(compared.missing, []);
    let up = compared.cell(1, 0, Metric::BYTES_PER_S).expect("compared");
    assert_eq!(
        (up.ratio.verdict, compared.cell(0, 0, Metric::BYTES_PER_S).map(|c| c.ratio.verdict)),
        (Verdict::Slower, Some(Verdict::Same))
    );
    let text = set(&document::compared(&a, &b, &compared, &document::SHOWN), 80, false);
    for words in ["Gbit/s", "mean round trip", "host CPU/GiB", "slower on tcp-upload (-20%)"] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    assert!(!text.contains("IOPS"), "{text}");
    let history = history(&[one.clone(), other.clone()], 0.02);
    let text = set(&document::history(&[one, other], &history), 80, false);
    assert!(text.contains("throughput") && text.contains("Gbit/s ["), "{text}");
}

#[test]
fn a_document_tells_as_much_as_the_store() {
    let run = ladder();
    let judgement = judge(&run);
    let text = json::document(&run, &judgement).to_string();
    let (read_back, ours) =
        (json::read::account(&text, "file").expect("read"), Account::of(&run, &judgement));
    assert_eq!(read_back.workloads, ours.workloads);
    assert_eq!(read_back.figures.len(), ours.figures.len());
    for (one, other) in read_back.figures.iter().zip(&ours.figures) {
        assert_eq!(one.of(Metric::CPU_PER_GIB), other.of(Metric::CPU_PER_GIB));
    }
    assert!(ours.figures[0].of(Metric::CPU_PER_GIB).is_some());
}

#[test]
fn a_page_shows_what_was_carried_and_where_nothing_was() {
    let mut run = ladder();
    let carried = run.measurements[8].outcome.carried.as_mut().expect("a network's");
    carried.gaps =
        vec![Gap { upload: true, at_ns: 2_400_000_000, duration_ns: 2_050_000_000, lost_bytes: None }];
    for second in [2, 3] {
        run.measurements[8].samples[second].tallies.write.as_mut().expect("up").bytes = 0;
    }
    let page = html::render(&run, &judge(&run));
    let page = page.split_once("<script>").expect("programs").0;
    for part in [
        "In all, against loopback: vm-virtio carries",
        "vs baseline",
        "Throughput by target",
        "Throughput over time",
        "Host CPU time per GiB, layer by layer",
        "Host CPU time per GiB by role",
        "server",
        "nothing arrived in the upload for 2.05 s, from 2.40 s into the window on",
        "The way of the packets",
        "Round trips that took no longer",
        "MTU 1500",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for wrong in ["IOPS", "I/Os per second", "per I/O"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
}

#[test]
fn a_ladder_in_a_ticket() {
    let run = run(&[VETH, VIRTIO], &[tcp(Direction::Upload), rtt()], 3);
    insta::assert_snapshot!(markdown::set(&document::run(&run, &judge(&run))));
}
