//! Tests that the statements about a run are true.

use iotax_analysis::Metric;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Judgement, judge};
use iotax_model::Run;
use iotax_model::record::{CacheDrop, CpuTime, DiskActivity, ErrorCount, Pacing, Stop};
use iotax_model::units::Nanos;
use iotax_model::{CellKey, IoEngine, Warning, WarningKind};

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
fn a_known_slowdown_is_found_and_its_size_is_right() {
    let judgement = judge(&two(1.25, 0.004, 5));
    for metric in [Metric::IOPS, Metric::LATENCY_MEAN, Metric::LATENCY_P50, Metric::LATENCY_P99] {
        assert_eq!(verdict(&judgement, metric), Verdict::Slower, "{metric:?}");
    }
    assert_eq!(verdict(&judgement, Metric::CPU_PER_IO), Verdict::Same);
    let latency = judgement
        .comparison(CellKey { workload: QD1, target: "vm-raw" }, Metric::LATENCY_MEAN)
        .expect("compared");
    let interval = latency.ratio.interval.expect("five rounds");
    assert!(interval.low < 1.25 && 1.25 < interval.high, "{interval:?}");
    let tax = latency.ratio.tax.expect("a time");
    let host = judgement
        .summary(CellKey { workload: QD1, target: "host-file" })
        .expect("measured")
        .latency
        .mean()
        .expect("I/O");
    let interval = tax.interval.expect("five rounds");
    assert!(interval.low < host * 0.25 && host * 0.25 < interval.high, "{tax:?} for {}", host * 0.25);
    let iops =
        judgement.comparison(CellKey { workload: QD1, target: "vm-raw" }, Metric::IOPS).expect("compared");
    assert!((iops.ratio.mean - 0.8).abs() < 0.01 && iops.ratio.tax.is_none(), "{iops:?}");
}

#[test]
fn only_rounds_that_both_have_are_compared() {
    let mut run = two(1.25, 0.004, 5);
    run.measurements
        .retain(|m| !(m.target == "vm-raw" && m.round == 2 || m.target == "host-file" && m.round == 4));
    let judgement = judge(&run);
    let latency = judgement
        .comparison(CellKey { workload: QD1, target: "vm-raw" }, Metric::LATENCY_MEAN)
        .expect("compared");
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
fn the_steps_add_up_to_the_total() {
    let judgement = judge(&ladder(false));
    for workload in [QD1, "randwrite-4k-qd32"] {
        let steps: f64 = judgement
            .edges
            .iter()
            .map(|edge| judgement.step(workload, edge, Metric::LATENCY_MEAN).expect("compared"))
            .map(|step| step.ratio.tax.expect("a time").ns)
            .sum();
        let total =
            judgement.comparison(CellKey { workload, target: "vm-qcow2-snapshot" }, Metric::LATENCY_MEAN);
        let total = total.expect("compared").ratio.tax.expect("a time").ns;
        assert!((steps / total - 1.0).abs() < 1e-9, "{steps} {total}");
    }
}

#[test]
fn an_honest_run_draws_no_warning() {
    assert_eq!(judge(&ladder(false)).warnings, []);
    assert_eq!(judge(&bench()).warnings, []);
}

/// A change to a correct run, the expected warning, and a word of its evidence.
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
                in_ramp: 0,
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
    run.measurements[0].outcome.pacing = Some(Pacing {
        due: 8000,
        delayed: 1500,
        longest_delay_ns: 1_500_000_000,
        backlog: 1,
        backlog_ns: 9,
        ..Pacing::default()
    });
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

/// Makes the device serve only a share of the bytes read.
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
            // Buffered I/O is expected to be cached.
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
