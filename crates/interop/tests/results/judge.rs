//! The statements about a run are true.

use iotax_analysis::Metric;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Judgement, judge};
use iotax_model::Run;
use iotax_model::record::{CacheDrop, CpuTime, DiskActivity, ErrorCount, Pacing, Stop};
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Findings;
use iotax_model::{IoEngine, Warning, WarningKind};

use crate::conclusions::sentences;
use crate::synthetic::{HOST, Truth, bench, ladder, run};

const QD1: &str = "randread-4k-qd1";

fn two(slowdown: f64, noise: f64, rounds: u32) -> Run {
    run(&[("host-file", HOST), ("vm-raw", Truth { slowdown, noise, ..HOST })], &[QD1], rounds, false)
}

fn verdict(judgement: &Judgement, metric: Metric) -> Verdict {
    judgement.comparison(QD1, "vm-raw", metric).expect("compared").ratio.verdict
}

fn of_kind(judgement: &Judgement, kind: WarningKind) -> Vec<&Warning> {
    judgement.warnings.iter().filter(|w| w.kind == kind).collect()
}

#[test]
fn a_known_slowdown_is_found_and_its_size_is_right() {
    let judgement = judge(&two(1.25, 0.004, 5));
    for metric in [Metric::IOPS, Metric::LATENCY_MEAN, Metric::LATENCY_P50, Metric::LATENCY_P99] {
        assert_eq!(verdict(&judgement, metric), Verdict::Slower, "{metric:?}");
    }
    assert_eq!(verdict(&judgement, Metric::CPU_PER_IO), Verdict::Same);
    let latency = judgement.comparison(QD1, "vm-raw", Metric::LATENCY_MEAN).expect("compared");
    let interval = latency.ratio.interval.expect("five rounds");
    assert!(interval.low < 1.25 && 1.25 < interval.high, "{interval:?}");
    let tax = latency.ratio.tax.expect("a time");
    let host = judgement.summary(QD1, "host-file").expect("measured").latency.mean().expect("I/O");
    let interval = tax.interval.expect("five rounds");
    assert!(interval.low < host * 0.25 && host * 0.25 < interval.high, "{tax:?} for {}", host * 0.25);
    let iops = judgement.comparison(QD1, "vm-raw", Metric::IOPS).expect("compared");
    assert!((iops.ratio.mean - 0.8).abs() < 0.01 && iops.ratio.tax.is_none(), "{iops:?}");
}

#[test]
fn faster_same_and_undecided_are_told_apart() {
    assert_eq!(verdict(&judge(&two(0.7, 0.004, 5)), Metric::LATENCY_MEAN), Verdict::Faster);
    assert_eq!(verdict(&judge(&two(1.0, 0.002, 5)), Metric::LATENCY_MEAN), Verdict::Same);
    let undecided = judge(&two(1.05, 0.06, 3));
    assert_eq!(verdict(&undecided, Metric::LATENCY_MEAN), Verdict::Undecided);
    let latency = undecided.comparison(QD1, "vm-raw", Metric::LATENCY_MEAN).expect("compared");
    let needed = latency.ratio.needed_rounds.expect("it has a variance");
    assert!(needed > 3);
    let said = sentences(&two(1.05, 0.06, 3)).join("\n");
    assert!(said.contains(" would decide it: iotax resume 17 --time "), "{said}");
}

#[test]
fn only_rounds_that_both_have_are_compared() {
    let mut run = two(1.25, 0.004, 5);
    run.measurements
        .retain(|m| !(m.target == "vm-raw" && m.round == 2 || m.target == "host-file" && m.round == 4));
    let judgement = judge(&run);
    let latency = judgement.comparison(QD1, "vm-raw", Metric::LATENCY_MEAN).expect("compared");
    assert_eq!(latency.rounds, 3);
    let warnings = of_kind(&judgement, WarningKind::Incomplete);
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].evidence, "8 of 10 measurements are there");
    assert!(warnings[0].remedy.contains("iotax resume 17"));
}

#[test]
fn a_comparison_without_a_common_round_is_absent_and_named() {
    let mut run = two(1.25, 0.004, 2);
    run.measurements.retain(|m| (m.target == "vm-raw") == (m.round == 1));
    let judgement = judge(&run);
    assert_eq!(judgement.comparisons, []);
    let named = of_kind(&judgement, WarningKind::Incomplete);
    assert!(
        named.iter().any(|w| w.target.as_deref() == Some("vm-raw") && w.workload.as_deref() == Some(QD1))
    );
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
    assert_eq!(first, judgement.comparison(QD1, "vm-raw", Metric::LATENCY_MEAN), "one pair, one verdict");
    let sentences = sentences(&ladder(false));
    let said = sentences.join("\n");
    let qcow2 =
        "qcow2 adds nothing measurable to the latency (within 2%) on every workload: vm-qcow2 over vm-raw";
    assert!(said.contains(qcow2), "{said}");
    assert!(sentences[0].starts_with("virtio-blk + guest (vm-raw over host-file): slower on"), "{said}");
    // The total of several layers is said too, that of one layer once.
    let total = sentences.last().expect("sentences");
    assert!(total.starts_with("In all, against host-file: vm-qcow2 slower on"), "{said}");
    assert!(total.contains("vm-qcow2-snapshot slower on") && !total.contains("vm-raw"), "{said}");
}

#[test]
fn the_steps_add_up_to_the_total() {
    let judgement = judge(&ladder(false));
    for workload in [QD1, "randwrite-4k-qd32"] {
        let steps: f64 = judgement
            .edges
            .iter()
            .map(|edge| judgement.step(workload, edge, Metric::LATENCY_MEAN).expect("compared"))
            .map(|step| step.ratio.tax.expect("a time").ns)
            .sum();
        let total = judgement.comparison(workload, "vm-qcow2-snapshot", Metric::LATENCY_MEAN);
        let total = total.expect("compared").ratio.tax.expect("a time").ns;
        assert!((steps / total - 1.0).abs() < 1e-9, "{steps} {total}");
    }
}

#[test]
fn an_honest_run_draws_no_warning() {
    assert_eq!(judge(&ladder(false)).warnings, []);
    assert_eq!(judge(&bench()).warnings, []);
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

/// A change to an honest run, the warning it must draw, and a word of its evidence.
type Case = (WarningKind, &'static str, fn(&mut Run));

#[test]
fn each_check_sees_its_case_and_only_that() {
    let cases: [Case; 10] = [
        (WarningKind::CacheKept, "on the host: nothing", |r| {
            r.measurements[0].host_cache = Some(CacheDrop::Nothing);
        }),
        (
            WarningKind::CacheKept,
            "in the guest: the target's files and devices were dropped, 512 MiB of their 1.00 GiB stayed",
            |r| {
                r.measurements[0].guest_cache = Some(CacheDrop::Target { of: 1 << 30, left: Some(1 << 29) });
            },
        ),
        (WarningKind::CacheLie, "(40%)", |r| serve(r, 0.4)),
        (WarningKind::CacheLie, "the device served 0 B", |r| {
            let disks = &mut r.measurements[0].host.as_mut().expect("observed").disks;
            // A layer above the bottom does not make up for it.
            let above = disks["vda"].clone();
            disks.insert("dm-0".into(), above);
            serve(r, 0.0);
        }),
        (WarningKind::SaturatedGenerator, "98% of the time of its 1 thread", |r| {
            r.measurements[0].outcome.cpu = CpuTime { user_ns: 2_000_000_000, system_ns: 3_880_000_000 };
        }),
        (WarningKind::Incomplete, "7 x EIO on read, first at byte 4096, last at 8192", |r| {
            r.measurements[0].outcome.errors = vec![ErrorCount {
                error: "EIO".into(),
                direction: "read".into(),
                count: 7,
                first_offset: 4096,
                last_offset: Some(8192),
            }];
        }),
        (WarningKind::Incomplete, "longer than stall_timeout = 2s", |r| {
            r.plan.workloads[0].stall_timeout = Some(Nanos::from_secs(2));
            r.measurements[0].outcome.stop = Some(Stop::Stalled);
        }),
        (WarningKind::CannotSustain, "3000 I/Os that were due had not begun", |r| {
            let pacing = Pacing { due: 8000, delayed: 7000, backlog: 3000, ..Pacing::default() };
            r.measurements[0].outcome.pacing = Some(pacing);
        }),
        (WarningKind::Unsteady, "moved by", |r| {
            for (i, sample) in (0_u64..).zip(&mut r.measurements[0].samples) {
                sample.tallies.read.as_mut().expect("reads").ios = 1000 * (10 - i);
            }
        }),
        (WarningKind::Unsteady, "spread over", |r| {
            r.measurements[0].samples[2].tallies.read.as_mut().expect("reads").ios *= 2;
        }),
    ];
    for (kind, words, change) in cases {
        let mut run = bench();
        change(&mut run);
        let found = judge(&run).warnings;
        assert_eq!(found.len(), 1, "{kind:?}: {found:?}");
        let warning = &found[0];
        assert_eq!((warning.kind, warning.round), (kind, Some(1)));
        assert!(warning.evidence.contains(words), "{}", warning.evidence);
        assert!(!warning.remedy.is_empty());
    }
}

#[test]
fn a_moments_delay_is_no_failure_to_sustain() {
    let mut run = bench();
    run.measurements[0].outcome.pacing =
        Some(Pacing { due: 8000, delayed: 1500, longest_delay_ns: 1_500_000_000, backlog: 1, backlog_ns: 9 });
    assert_eq!(judge(&run).warnings, []);
}

#[test]
fn a_guests_clock_is_held_against_the_hosts() {
    for (target, host_ns, evidence) in [
        ("vm-raw", 6_300_000_000, Some("-4.8%")),
        ("vm-raw", 5_880_000_000, Some("+2.0%")),
        // The messages' own delay is within this tolerance.
        ("vm-raw", 6_080_000_000, None),
        // It has no other clock than the host's: the messages were late.
        ("host-file", 6_300_000_000, None),
    ] {
        let mut run = ladder(false);
        let measurement = run.measurements.iter_mut().find(|m| m.target == target).expect("measured");
        measurement.host_duration_ns = Some(host_ns);
        let found = judge(&run).warnings;
        match evidence {
            Some(words) => {
                assert_eq!(found.len(), 1, "{found:?}");
                assert_eq!(found[0].kind, WarningKind::Clock);
                assert!(found[0].evidence.contains(words), "{}", found[0].evidence);
            }
            None => assert_eq!(found, [], "{target} {host_ns}"),
        }
    }
}

/// Makes the device serve only a share of what was read.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a positive figure")]
fn serve(run: &mut Run, share: f64) {
    let m = &mut run.measurements[0];
    let read = m.outcome.tallies.read.as_ref().expect("reads").bytes as f64;
    let disks = &mut m.host.as_mut().expect("observed").disks;
    disks.insert("vda".into(), DiskActivity { read_bytes: (read * share) as u64, ..DiskActivity::default() });
}

#[test]
fn what_cannot_be_checked_draws_no_warning() {
    let changes: [fn(&mut Run); 6] = [
        |r| {
            // 9 ms of a short window: the messages' share, not the clock's.
            r.measurements[0].outcome.duration_ns = 100_000_000;
            r.measurements[0].outcome.cpu = CpuTime::default();
            r.measurements[0].host_duration_ns = Some(109_000_000);
        },
        |r| r.measurements[0].host_duration_ns = None,
        |r| r.measurements[0].host_cache = None,
        |r| r.measurements[0].host.as_mut().expect("observed").disks.clear(),
        |r| {
            // Through the page cache a cache is what was asked for.
            r.plan.workloads[0].direct = false;
            serve(r, 0.0);
        },
        |r| {
            // The null backend is all generator.
            r.plan.workloads[0].ioengine = IoEngine::Null;
            r.measurements[0].outcome.cpu = CpuTime { user_ns: 6_000_000_000, system_ns: 0 };
        },
    ];
    for change in changes {
        let mut run = bench();
        change(&mut run);
        assert_eq!(judge(&run).warnings, []);
    }
}

#[test]
fn the_runs_own_warnings_come_first_and_once() {
    let mut run = ladder(true);
    run.warnings = vec![judge(&run).warnings.remove(1)];
    let judgement = judge(&run);
    assert_eq!(judgement.warnings.len(), 3);
    assert_eq!(judgement.warnings[0].target.as_deref(), Some("vm-qcow2"));
}

#[test]
fn blocks_that_are_not_what_was_written_are_said_with_their_offsets() {
    let mut run = bench();
    run.measurements[0].outcome.verify = Some(crate::synthetic::damaged());
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
