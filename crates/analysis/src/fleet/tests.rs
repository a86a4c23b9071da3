use iotax_model::record::{Environment, FleetMember, FleetStart, Outcome, RunSource, Tallies, Tally};
use iotax_model::{Plan, Warning};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;

const INTERVAL: u64 = 100_000_000;

fn run(member: &str, mode: FleetMode, measurements: Vec<Measurement>) -> Run {
    let plan = "repeat = 4\n[[target]]\nname = \"host\"\npath = \"/a\"\n[[workload]]\nname = \"w\"\nrw = \"randread\"\n";
    Run {
        id: 1,
        state: RunState::Complete,
        seed: 1,
        started_at_ms: 0,
        plan: Plan::from_toml(plan).expect("a plan"),
        environment: Environment::default(),
        targets: Vec::new(),
        measurements,
        warnings: Vec::new(),
        phases: Vec::new(),
        source: RunSource::Measured,
        fleet: Some(FleetMember { fleet: "f".into(), member: member.into(), mode, link: String::new() }),
        store: None,
    }
}

fn tallies(values: &[u64]) -> Tallies {
    let mut latency = Histogram::new();
    values.iter().for_each(|value| latency.add(*value));
    let ios = values.len() as u64;
    let read = Tally { ios, bytes: 4096 * ios, latency, response: None };
    Tallies { read: Some(read), ..Tallies::default() }
}

/// Returns a measurement whose intervals have I/Os of these latencies, in nanoseconds.
fn measurement(round: u32, late_ns: i64, intervals: &[Vec<u64>]) -> Measurement {
    let samples = (1..).zip(intervals).map(|(number, values)| Sample {
        at_ns: number * INTERVAL,
        duration_ns: INTERVAL,
        tallies: tallies(values),
        oldest_ns: None,
        failed: 0,
        directions: Vec::new(),
    });
    Measurement {
        target: "host".into(),
        workload: "w".into(),
        round,
        order: round,
        outcome: Outcome {
            duration_ns: INTERVAL * intervals.len() as u64,
            tallies: tallies(&intervals.concat()),
            ..Outcome::default()
        },
        samples: samples.collect(),
        fleet: Some(FleetStart { late_ns, uncertainty_ns: 10_000 }),
        ..Measurement::default()
    }
}

#[test]
fn a_slow_host_is_an_outlier_and_a_noisy_one_is_none() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut host = |name: &str, mean: f64, noise: f64| {
        let rounds = (1..=6).map(|round| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a latency")]
            let value = (mean * (1.0 + noise * (random.random::<f64>() - 0.5))) as u64;
            measurement(round, 0, &[vec![value; 50]])
        });
        run(name, FleetMode::Each, rounds.collect())
    };
    let mut runs: Vec<Run> =
        (0..7).map(|n| host(&format!("h{n}"), 100_000.0 + 500.0 * f64::from(n), 0.02)).collect();
    runs.push(host("slow", 160_000.0, 0.02));
    runs.push(host("noisy", 130_000.0, 1.5));
    let fleet = fleet(&runs).expect("a fleet");
    let outliers: Vec<&str> =
        fleet.hosts[0].hosts.iter().filter(|host| host.is_outlier).map(|host| host.member.as_str()).collect();
    assert_eq!(outliers, ["slow"]);
    assert!(fleet.hosts[0].is_judged && fleet.shared.is_empty());
}

#[test]
fn few_hosts_have_no_outlier() {
    let host = |name: &str, value: u64| {
        run(
            name,
            FleetMode::Each,
            (1..=4).map(|n| measurement(n, 0, &[vec![value + u64::from(n); 20]])).collect(),
        )
    };
    let fleet = fleet(&[host("a", 100), host("b", 101), host("c", 900)]).expect("a fleet");
    assert!(!fleet.hosts[0].is_judged && fleet.hosts[0].hosts.iter().all(|host| !host.is_outlier));
}

#[test]
fn percentiles_are_those_of_all_ios_together() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    let (mut all, mut runs) = (Vec::new(), Vec::new());
    // One member of eight is ten times slower: averaged percentiles would hide it.
    for member in 0..8 {
        let slow = if member == 7 { 10 } else { 1 };
        let rounds = (1..=4).map(|round| {
            let intervals: Vec<Vec<u64>> = (0..5)
                .map(|_| (0..200).map(|_| slow * random.random_range(50_000..150_000_u64)).collect())
                .collect();
            all.extend(intervals.concat());
            measurement(round, 0, &intervals)
        });
        let rounds: Vec<Measurement> = rounds.collect();
        runs.push(run(&format!("m{member}"), FleetMode::Shared, rounds));
    }
    all.sort_unstable();
    let fleet = fleet(&runs).expect("a fleet");
    let group = &fleet.shared[0].groups[0];
    assert_eq!((group.rounds, group.ios), (4, all.len() as u64));
    for percent in [50, 99] {
        let truth = all[(all.len() * percent).div_ceil(100) - 1] as f64;
        let found = group.percentile(percent as f64 / 100.0).expect("enough");
        assert!((found / truth - 1.0).abs() <= 0.004, "p{percent}: {found} and {truth}");
    }
    assert!((group.iops - 16_000.0).abs() < 1.0, "{}", group.iops);
    assert!(group.fairness.is_some_and(|fairness| fairness.mean > 0.999));
}

#[test]
fn only_the_common_window_counts_and_the_skew_is_told() {
    let full = vec![vec![1_000; 10]; 10];
    // The second one begins 0.25 s later: the first three intervals of one and the last of the other are alone.
    let mut second = measurement(1, 250_000_000, &full);
    // Its window begins then, its first I/O 1 ms later.
    second.outcome.first_io_ns = Some(1_000_000);
    let runs = [
        run("a", FleetMode::Shared, vec![measurement(1, 0, &full)]),
        run("b", FleetMode::Shared, vec![second]),
    ];
    let fleet = fleet(&runs).expect("a fleet");
    let group = &fleet.shared[0].groups[0];
    assert_eq!(group.ios, 10 * (7 + 7));
    assert!((group.iops - 200.0).abs() < 1e-6, "{}", group.iops);
    assert_eq!((group.skew.longest_ns, group.skew.uncertainty_ns), (251_000_000, 20_000));
}

#[test]
fn a_round_that_a_member_was_lost_in_is_withheld_and_later_ones_are_those_of_the_rest() {
    let full = vec![vec![1_000; 10]; 5];
    let rounds = |last: u32| (1..=last).map(|round| measurement(round, 0, &full)).collect::<Vec<_>>();
    let mut lost = run("b", FleetMode::Shared, rounds(2));
    lost.state = RunState::Failed;
    lost.warnings.push(Warning {
        kind: WarningKind::Incomplete,
        target: None,
        workload: None,
        round: None,
        evidence: "the member was lost: cut".into(),
        remedy: String::new(),
    });
    let runs = [run("a", FleetMode::Shared, rounds(5)), lost, run("c", FleetMode::Shared, rounds(5))];
    let fleet = fleet(&runs).expect("a fleet");
    let cell = &fleet.shared[0];
    let groups: Vec<(usize, usize)> =
        cell.groups.iter().map(|group| (group.shares.len(), group.rounds)).collect();
    assert_eq!(groups, [(3, 2), (2, 2)]);
    assert_eq!(cell.withheld, [WithheldRound { round: 3, reason: "b did not measure it".into() }]);
    assert_eq!(fleet.members[1].reason.as_deref(), Some("the member was lost: cut"));
}
