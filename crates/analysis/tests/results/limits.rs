//! Tests that simulated limits are found with their rate and burst, and that none is found without a limit.

use iotax_analysis::limits::{LimitScope, LimitsOnTarget, limits};
use iotax_model::Run;
use iotax_model::plan::RateUnit;
use iotax_model::record::Sample;
use iotax_model::suite::{Suite, SuiteOptions};
use iotax_model::workload::Workload;
use iotax_testkit::runs::{HOST, measurement, planned, record, tallies, target, whole};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const ROUNDS: u32 = 3;
const SECONDS: u64 = 10;
/// The other side of every comparison of rates.
const WITHIN: f64 = 0.03;

/// An audit in which every cell completes the given number of I/Os per second, by workload, round and second (from 0).
fn audit(mut rate: impl FnMut(&Workload, u32, u64) -> f64) -> Run {
    let suite = Suite::named("audit").expect("known");
    let workloads = (suite.workloads)(&SuiteOptions::default());
    let mut run = planned("audit", (vec![target("x")], vec![record("x", false)]), workloads, ROUNDS);
    run.plan.suite = Some("audit".into());
    for round in 1..=ROUNDS {
        for workload in run.plan.workloads.clone() {
            let mut m = measurement(&workload, "x", HOST, round, 0);
            m.samples = (0..SECONDS)
                .map(|second| Sample {
                    at_ns: (second + 1) * 1_000_000_000,
                    duration_ns: 1_000_000_000,
                    tallies: tallies(&workload, whole(rate(&workload, round, second)), 1e6),
                    oldest_ns: None,
                    failed: 0,
                    directions: Vec::new(),
                })
                .collect();
            run.measurements.push(m);
        }
    }
    run
}

/// The rate of a device without a limit: a fixed time per I/O plus a time per byte; writes take a third longer.
fn device(workload: &Workload) -> f64 {
    let direction = if workload.rw.writes() { 1.3 } else { 1.0 };
    1.0 / (direction * (20e-6 + workload.bs.0 as f64 / 1.5e9))
}

fn only(run: &Run) -> LimitsOnTarget<'_> {
    limits(run).pop().expect("an audit")
}

fn is_near(one: f64, other: f64) -> bool {
    (one / other - 1.0).abs() < WITHIN
}

#[test]
fn limits_are_found_with_their_unit_and_scope() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut jitter = |rate: f64, by: f64| rate * (1.0 + by * (random.random::<f64>() - 0.5));
    // As QEMU's iops-total and bps-total together.
    let run = audit(|workload, _, _| {
        let bytes = 125e6 / workload.bs.0 as f64;
        jitter(device(workload).min(3000.0).min(bytes), 0.004)
    });
    let found = only(&run);
    let [ios, bytes] = &found.limits[..] else { panic!("{found:?}") };
    assert_eq!((ios.unit, ios.scope), (RateUnit::Ios, LimitScope::Together), "{ios:?}");
    assert_eq!((bytes.unit, bytes.scope), (RateUnit::Bytes, LimitScope::Together), "{bytes:?}");
    assert!(is_near(ios.rate, 3000.0) && is_near(bytes.rate, 125e6), "{found:?}");
    assert!(ios.burst.is_none() && found.free.is_empty(), "{found:?}");

    // As its iops-rd and iops-wr: mixed I/O gets both.
    let run = audit(|workload, _, _| {
        let both = if workload.rw.reads() && workload.rw.writes() { 2.0 } else { 1.0 };
        device(workload).min(500.0 * both)
    });
    let found = only(&run);
    assert_eq!(found.limits[0].scope, LimitScope::Each, "{found:?}");
    assert!(is_near(found.limits[0].rate, 500.0), "{found:?}");

    // One direction alone may be the device's own.
    let run = audit(|workload, _, _| {
        let free = jitter(device(workload), 0.02);
        if workload.rw.writes() { free.min(800.0) } else { free }
    });
    let found = only(&run);
    assert_eq!(found.limits[0].scope, LimitScope::Writes, "{found:?}");
    assert!(!found.limits[0].scope.is_certain());
}

#[test]
fn a_burst_before_a_limit_is_found_with_its_rate_and_length() {
    // Credits for 6,000 a second over 4 s, in the first measurement of each workload.
    let run = audit(|workload, round, second| {
        let rate = if round == 1 && second < 4 { 6000.0 } else { 3000.0 };
        device(workload).min(rate)
    });
    let found = only(&run);
    let limit = found.limits.iter().find(|limit| limit.unit == RateUnit::Ios).expect("a limit");
    let burst = limit.burst.expect("a burst");
    assert!(is_near(limit.rate, 3000.0) && limit.scope == LimitScope::Together, "{limit:?}");
    assert!(is_near(burst.rate, 6000.0) && is_near(burst.seconds, 4.0), "{burst:?}");
    let course = found.course.as_ref().expect("a picture");
    let seen: Vec<bool> =
        course.rates.iter().map(|(end, rate)| (*end <= 4.0) == is_near(*rate, 6000.0)).collect();
    assert!(course.levels.burst.is_some() && seen == vec![true; 10], "{course:?}");
}

#[test]
fn a_burst_that_ends_within_an_interval_is_found_too() {
    // Seen of QEMU's throttle: 3,000 a second until the bucket is empty, in the sixth interval, then 1,000.
    let seen = [3372.0, 3000.0, 3000.0, 3000.0, 3000.0, 1876.0, 1001.0, 1000.0, 999.0, 1001.0];
    let run = audit(|workload, round, second| {
        let first = round == 1 && workload.name == "randwrite-16k";
        let index = usize::try_from(second).expect("small");
        device(workload).min(if first { seen[index] } else { 1000.0 })
    });
    let found = only(&run);
    let limit = found.limits.iter().find(|limit| limit.unit == RateUnit::Ios).expect("a limit");
    assert!(is_near(limit.rate, 1000.0) && limit.scope == LimitScope::Together, "{found:?}");
    let burst = limit.burst.expect("a burst");
    assert!(is_near(burst.rate, 3074.0) && is_near(burst.seconds, 5.0), "{burst:?}");
}

#[test]
fn none_is_found_in_forty_runs_where_there_is_none() {
    for seed in 0..40 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Cells differ from round to round by up to 4%, seconds within a cell by up to 6%.
        let mut cell = 1.0;
        let run = audit(|workload, _, second| {
            if second == 0 {
                cell = 1.0 + 0.08 * (random.random::<f64>() - 0.5);
            }
            device(workload) * cell * (1.0 + 0.12 * (random.random::<f64>() - 0.5))
        });
        let found = only(&run);
        assert_eq!(found.limits, [], "seed {seed}");
        assert_eq!(found.free.len(), 4, "seed {seed}: two units in two directions");
    }
}

#[test]
fn a_load_whose_own_cpu_is_the_bound_finds_no_limit() {
    let mut run = audit(|_, _, _| 3000.0);
    assert_eq!(only(&run).limits[0].scope, LimitScope::Together);
    for m in &mut run.measurements {
        m.outcome.cpu.user_ns = m.outcome.duration_ns;
    }
    let found = only(&run);
    assert_eq!(found.limits, []);
    assert!(found.free.len() == 4 && found.free.iter().all(|free| free.is_generator_bound), "{found:?}");
    // Where only both at once is bound, it is not known whether they share the limit.
    for m in &mut run.measurements {
        m.outcome.cpu.user_ns = if m.workload.starts_with("randrw") { m.outcome.duration_ns } else { 0 };
    }
    let found = only(&run);
    let scopes: Vec<LimitScope> = found.limits.iter().map(|limit| limit.scope).collect();
    assert_eq!(scopes[..2], [LimitScope::Reads, LimitScope::Writes], "{found:?}");
}

#[test]
fn a_quiet_device_has_no_certain_limit() {
    // Without noise its bandwidth is nearly the same at both large sizes: a limit of each direction, of unknown source.
    let found = audit(|workload, _, _| device(workload));
    let found = only(&found);
    assert!(found.limits.iter().all(|limit| !limit.scope.is_certain()), "{found:?}");
    assert!(found.limits.iter().all(|limit| limit.unit == RateUnit::Bytes), "{found:?}");
}
