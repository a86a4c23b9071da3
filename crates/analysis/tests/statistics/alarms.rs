//! The rate of false remarks on runs without faults.
//!
//! A closed loop's intervals scatter by 3% and its rounds by 3% (lognormal); an open loop's I/Os are due at random times (Poisson) and take
//! 200 us +- 50%. Everything else in a measurement is normal.

use iotax_analysis::judge;
use iotax_model::record::{Measurement, Outcome, Pacing, RunSource, Sample, Tallies, Tally, TargetRecord};
use iotax_model::{Histogram, Plan, Run, RunState, WarningKind};
use iotax_testkit::thorough;
use rand::RngExt;

use crate::page;
use crate::simulate::{Random, normal, seeded};

/// Measurements of each case; runs have rounds and targets as below.
const MEASUREMENTS: u32 = 2400;
/// The largest share of clean measurements that may draw a remark of one kind.
const MOST: f64 = 0.02;
/// The checks that depend on the scatter of the measured values.
const JUDGING: [WarningKind; 3] = [WarningKind::Unsteady, WarningKind::Throttled, WarningKind::Outlier];
/// I/Os a second of the closed loop.
const CLOSED: f64 = 20_000.0;

/// A run without faults: its load, targets, rounds, and number of 100 ms intervals per window.
struct Clean {
    rate: Option<u64>,
    targets: u32,
    rounds: u32,
    intervals: u32,
}

impl Clean {
    fn run(&self, random: &mut Random) -> Run {
        let rate = self
            .rate
            .map_or(String::new(), |rate| format!("rate_iops = {rate}\nrate_process = \"poisson\"\n"));
        let target = |t| format!("[[target]]\nname = \"t{t}\"\npath = \"/t{t}\"\n");
        let targets = (0..self.targets).map(target).collect::<Vec<_>>().concat();
        let workload = format!("[[workload]]\nname = \"reads\"\nrw = \"randread\"\niodepth = 8\n{rate}");
        let plan =
            Plan::from_toml(&format!("name = \"clean\"\nrepeat = {}\n{targets}{workload}", self.rounds));
        let plan = plan.expect("a plan");
        let mut measurements = Vec::new();
        for round in 1..=self.rounds {
            let shared = (0.03 * normal(random)).exp();
            for target in &plan.targets {
                let order = u32::try_from(measurements.len() + 1).expect("few");
                let outcome = self.outcome(shared, random);
                measurements.push(Measurement {
                    target: target.name.clone(),
                    workload: "reads".into(),
                    round,
                    order,
                    started_at_ms: u64::from(order) * 8000,
                    samples: outcome.1,
                    outcome: outcome.0,
                    ..Measurement::default()
                });
            }
        }
        let record = |name: &String| TargetRecord { name: name.clone(), ..TargetRecord::default() };
        let targets = plan.targets.iter().map(|target| record(&target.name)).collect();
        Run {
            id: 1,
            state: RunState::Complete,
            seed: 1,
            started_at_ms: 0,
            plan,
            environment: iotax_model::record::Environment::default(),
            targets,
            measurements,
            warnings: vec![],
            phases: vec![],
            source: RunSource::Measured,
            fleet: None,
            store: None,
        }
    }

    /// One window and its intervals.
    fn outcome(&self, shared: f64, random: &mut Random) -> (Outcome, Vec<Sample>) {
        let own = shared * (0.03 * normal(random)).exp();
        let mut all = Histogram::new();
        let mut samples = Vec::new();
        for interval in 1..=self.intervals {
            let ios = match self.rate {
                Some(rate) => poisson(rate as f64 / 10.0, random),
                None => whole(CLOSED / 10.0 * own * (0.03 * normal(random)).exp()),
            };
            all.merge(&latencies(self.rate.map_or(8e9 / CLOSED / own, |_| 200_000.0 * own), ios, random));
            samples.push(Sample {
                at_ns: u64::from(interval) * 100_000_000,
                duration_ns: 100_000_000,
                tallies: Tallies { read: Some(Tally { ios, ..Tally::default() }), ..Tallies::default() },
                oldest_ns: None,
                failed: 0,
                directions: Vec::new(),
            });
        }
        let ios = all.count();
        let read = Tally {
            ios,
            bytes: 4096 * ios,
            response: self.rate.is_some().then(|| all.clone()),
            latency: all,
        };
        let outcome = Outcome {
            duration_ns: u64::from(self.intervals) * 100_000_000,
            tallies: Tallies { read: Some(read), ..Tallies::default() },
            pacing: self.rate.is_some().then(|| Pacing { due: ios, ..Pacing::default() }),
            ..Outcome::default()
        };
        (outcome, samples)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive figures")]
fn whole(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

/// Draws a Poisson-distributed count; above 1,000, by the normal approximation.
fn poisson(mean: f64, random: &mut Random) -> u64 {
    if mean > 1000.0 {
        return whole(mean + mean.sqrt() * normal(random));
    }
    let (mut count, mut time) = (0, -random.random::<f64>().ln());
    while time < mean {
        count += 1;
        time -= random.random::<f64>().ln();
    }
    count
}

/// Draws a hundred service times around a mean, as a sample of all.
fn latencies(mean_ns: f64, ios: u64, random: &mut Random) -> Histogram {
    let mut histogram = Histogram::new();
    let drawn = ios.clamp(1, 100);
    for one in 0..drawn {
        let share = (one + 1) * ios / drawn - one * ios / drawn;
        histogram.add_many(whole(mean_ns * (0.5 * normal(random) - 0.125).exp()).max(1), share);
    }
    histogram
}

#[test]
fn a_clean_measurement_draws_a_remark_in_two_of_a_hundred_at_most() {
    let mut rows = Vec::new();
    let mut random = seeded(3003);
    // A closed loop and the open one that scatters most come first.
    let loads = [None, Some(50), Some(200), Some(2000), Some(20_000)];
    let loads = if thorough() { &loads[..] } else { &loads[..2] };
    let shapes = [(1, 5, 5), (2, 4, 6), (3, 12, 30)];
    for rate in loads.iter().copied() {
        let mut worst = [0.0_f64; JUDGING.len()];
        for (targets, rounds, intervals) in shapes {
            let clean = Clean { rate, targets, rounds, intervals };
            let runs = MEASUREMENTS / (targets * rounds);
            let mut found = [0_u32; JUDGING.len()];
            for _ in 0..runs {
                for warning in judge(&clean.run(&mut random)).warnings {
                    if let Some(kind) = JUDGING.iter().position(|kind| *kind == warning.kind) {
                        found[kind] += 1;
                    }
                }
            }
            let all = f64::from(runs * targets * rounds);
            for (worst, found) in worst.iter_mut().zip(found) {
                *worst = worst.max(f64::from(found) / all);
            }
        }
        let load = rate.map_or("closed loop, 3%".into(), |rate| format!("Poisson, {rate} I/Os a second"));
        rows.push(
            [load].into_iter().chain(worst.map(|share| format!("{:.1}%", 100.0 * share))).collect::<Vec<_>>(),
        );
        assert!(worst.iter().all(|share| *share <= MOST), "{rate:?}: {worst:?}");
    }
    let head: Vec<&str> = ["clean load"].into_iter().chain(JUDGING.map(WarningKind::word)).collect();
    page::holds_rows_in("honesty.md", "false alarms", &page::table(&head, &rows));
}
