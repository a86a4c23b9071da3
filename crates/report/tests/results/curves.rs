//! Tests of latency against load: all figures of a page use the same definition.

use iotax_analysis::curve::curves;
use iotax_analysis::judge;
use iotax_model::record::{Measurement, Outcome, Pacing, Tallies, Tally};
use iotax_model::workload::{RateProcess, WorkloadKeys};
use iotax_model::{Histogram, Run, Workload};
use iotax_report::{document, terminal};

use iotax_testkit::runs::{planned, record, target};

const SECOND: u64 = 1_000_000_000;

/// A window of a second.
fn window(workload: &Workload, round: u32, due: Option<u64>, ios: u64) -> Measurement {
    let mut times = Histogram::new();
    times.add_many(200_000, ios);
    let read = Tally { ios, bytes: 4096 * ios, latency: times.clone(), response: due.map(|_| times) };
    let outcome = Outcome {
        duration_ns: SECOND,
        tallies: Tallies { read: Some(read), ..Tallies::default() },
        pacing: due.map(|due| Pacing { due, ..Pacing::default() }),
        ..Outcome::default()
    };
    Measurement {
        target: "host-file".into(),
        workload: workload.name.clone(),
        round,
        outcome,
        ..Measurement::default()
    }
}

fn closed_loop() -> Workload {
    let keys = WorkloadKeys { name: Some("reads".into()), iodepth: Some(64), ..WorkloadKeys::default() };
    keys.complete(&WorkloadKeys::default())
}

/// Six rounds: the closed loop reaches 62.5k IOPS, and five rates are kept except for I/Os left undone in the last round.
fn run(last_round_of_54_9k: u64) -> Run {
    let closed = closed_loop();
    let rates = [5_000, 20_000, 40_000, 54_900, 72_000];
    let at = |rate: u64| Workload {
        name: format!("reads@{rate}"),
        rate_iops: Some(rate),
        rate_process: RateProcess::Poisson,
        ..closed.clone()
    };
    let workloads: Vec<Workload> = std::iter::once(closed.clone()).chain(rates.map(at)).collect();
    let setup = (vec![target("host-file")], vec![record("host-file", false)]);
    let mut run = planned("curve", setup, workloads.clone(), 6);
    for round in 1..=6 {
        run.measurements.extend(workloads.iter().map(|workload| {
            let due = workload.rate_iops;
            let ios = match due {
                None => 62_500,
                Some(54_900) if round == 6 => last_round_of_54_9k,
                Some(rate) => rate,
            };
            window(workload, round, due, ios)
        }));
    }
    run
}

fn printed(run: &Run) -> String {
    let judgement = judge(run);
    let page = document::run(run, &judgement);
    terminal::set(&page, 120, false).to_string()
}

#[test]
fn no_row_does_more_than_the_capacity() {
    let run = run(54_900);
    let found = curves(&run);
    let curve = &found[0].targets[0];
    let capacity = curve.capacity.expect("measured").at;
    let most = curve.points.iter().filter_map(|point| point.achieved).fold(0.0, f64::max);
    assert!((capacity - most).abs() < 1e-6 * most, "{capacity} and {most}");
    let printed = printed(&run);
    assert!(
        printed.contains("up to 72.0k") && printed.contains("62.5k [62.5k, 62.5k] in the closed loop"),
        "{printed}"
    );
}

#[test]
fn a_rate_is_judged_by_the_share_that_its_row_tells() {
    for (last, share, sustained) in [(53_000, "99.4%", true), (40_000, "94.8%", false)] {
        let run = run(last);
        let found = curves(&run);
        let point = &found[0].targets[0].points[3];
        assert_eq!(point.is_sustained(), sustained, "{point:?}");
        let printed = printed(&run);
        let row = printed.lines().find(|line| line.trim_start().starts_with("54.9k")).expect("a row");
        assert!(row.contains(share), "{row}");
        assert_eq!(row.contains("200 us"), sustained, "{row}");
        // The median of the six rounds is 54.9k, as if every round had kept up.
        assert!(sustained || !row.contains("54.9k  54.9k"), "{row}");
    }
}
