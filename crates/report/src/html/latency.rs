//! Shows the latencies of a workload over all rounds: a few percentiles, and the whole distribution.

use iotax_model::units::human;
use iotax_model::units::human::listed;
use iotax_model::{Histogram, Workload};

use super::chart::{Across, Axis, Chart, Panel, Plot, Unit};
use super::colours;
use crate::figure::grouped;
use iotax_analysis::percentile::{PercentileValue, name, needed};
use iotax_analysis::{CellJudgement, Summary};
use iotax_model::Run;

/// A further point of the distribution is drawn once it covers at least this share of all I/Os more than the last point.
const STEP: f64 = 0.02;

/// In the tail, a further point is drawn once the share of slower I/Os is lower than at the last point by at least this factor.
const TAIL: f64 = 1.6;

/// Returns a logarithmic axis for latencies.
pub(super) fn logarithmic(label: &str) -> Axis {
    Axis { label: label.into(), unit: Unit::Time, log: true, at_least: 0.0 }
}

/// Builds the chart of latency percentiles; without rows if none is known.
pub(super) fn percentiles(run: &Run, cells: &[&CellJudgement]) -> Chart {
    let known = |s: &Summary| -> Vec<(String, PercentileValue)> {
        let values = s.percentiles.iter().filter_map(|p| Some((name(p.q), p.value.filter(|v| v.ns > 0.0)?)));
        values.collect()
    };
    let all: Vec<(&str, Vec<(String, PercentileValue)>)> =
        cells.iter().map(|cell| (cell.target.as_str(), known(&cell.summary))).collect();
    let words = |(target, found): &(&str, Vec<(String, PercentileValue)>)| {
        let found: Vec<String> = found
            .iter()
            .map(|(name, value)| format!("{name} {}", human::time(value.mean_of_rounds.unwrap_or(value.ns))))
            .collect();
        format!("{target}: {}", found.join(", "))
    };
    let row = |target: &str, name: &str, value: &PercentileValue| {
        let rounds = value.over_rounds;
        vec![
            target.into(),
            name.into(),
            (value.mean_of_rounds.unwrap_or(value.ns) / 1e3).into(),
            rounds.map(|ends| ends.low / 1e3).into(),
            rounds.map(|ends| ends.high / 1e3).into(),
            (value.of_ios.low / 1e3).into(),
            (value.of_ios.high / 1e3).into(),
        ]
    };
    let rows: Vec<_> = all
        .iter()
        .flat_map(|(target, found)| found.iter().map(|(name, value)| row(target, name, value)))
        .collect();
    let columns = [
        "target",
        "percentile",
        "latency_us",
        "rounds_low_us",
        "rounds_high_us",
        "ios_low_us",
        "ios_high_us",
    ];
    Chart {
        key: "percentiles".into(),
        title: "Latency by percentile".into(),
        note: "mean of the rounds with its 95% interval; of all I/Os where a round has too few; logarithmic"
            .into(),
        message: all.iter().map(words).collect::<Vec<_>>().join("; "),
        columns: columns.map(Into::into).into(),
        colours: colours(run, &rows),
        rows,
        plot: Plot::Lines {
            series: 0,
            across: Across::Words { column: 1, label: String::new() },
            panels: vec![Panel { column: 2, axis: logarithmic(""), height: 230, ends: Some((3, 4)) }],
            marks: true,
        },
    }
}

/// Names the percentiles left out for lack of I/Os; `None` if all were given.
pub(super) fn not_given(cells: &[&CellJudgement]) -> Option<String> {
    let missing: Vec<String> = cells
        .iter()
        .flat_map(|cell| cell.summary.percentiles.iter().map(move |p| (cell, p)))
        .filter(|(_, p)| p.value.is_none() && p.ios > 0)
        .map(|(cell, p)| {
            let (ios, needed) = (grouped(p.ios), grouped(needed(p.q)));
            format!("{} of {} ({ios} I/Os, {needed} are needed)", name(p.q), cell.target)
        })
        .collect();
    (!missing.is_empty()).then(|| format!("Not given: {}.", listed(&missing)))
}

/// Builds the chart of the cumulative latency distribution; without rows if nothing was measured.
pub(super) fn distribution(run: &Run, workload: &Workload, cells: &[&CellJudgement]) -> Chart {
    let what = if workload.kind.is_network() { "Round trips" } else { "I/Os" };
    let rows: Vec<_> = cells
        .iter()
        .flat_map(|cell| {
            let points = cumulated(&cell.summary.latency).into_iter();
            points.map(|(ns, share)| {
                vec![cell.target.as_str().into(), (ns / 1e3).into(), (share * 100.0).into()]
            })
        })
        .collect();
    let words = |cell: &&CellJudgement| {
        let (min, max) = (cell.summary.latency.min()?, cell.summary.latency.max()?);
        Some(format!("{}: from {} to {}", cell.target, human::time(min as f64), human::time(max as f64)))
    };
    let shares = Axis { label: String::new(), unit: Unit::Percent, log: false, at_least: 100.0 };
    Chart {
        key: "distribution".into(),
        title: format!("{what} that took no longer"),
        note: format!("share of all rounds' {} by latency, logarithmic", what.replace('R', "r")),
        message: cells.iter().filter_map(words).collect::<Vec<_>>().join("; "),
        columns: ["target", "latency_us", "no_longer_percent"].map(Into::into).into(),
        colours: colours(run, &rows),
        rows,
        plot: Plot::Lines {
            series: 0,
            across: Across::Figures { column: 1, axis: logarithmic("") },
            panels: vec![Panel { column: 2, axis: shares, height: 230, ends: None }],
            marks: false,
        },
    }
}

/// Returns points of the cumulative distribution, as nanoseconds and the share of I/Os that took no longer: the first, the last, and enough in
/// between to draw the curve. Each point is exact up to the histogram's error.
fn cumulated(latency: &Histogram) -> Vec<(f64, f64)> {
    let all = latency.count() as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut below = 0_u64;
    for (edge, width, count) in latency.bars() {
        below += count;
        let share = below as f64 / all;
        let beyond = |share: f64| 1.0 - share;
        let tells = points.last().is_none_or(|(_, last)| {
            share - last >= STEP || below == latency.count() || beyond(share) * TAIL <= beyond(*last)
        });
        if tells {
            let end = (edge + width - 1).min(latency.max().unwrap_or(edge)).max(1);
            points.push((end as f64, share));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_its_ends_and_its_tail() {
        let mut latency = Histogram::new();
        for us in 1..=1_000_u64 {
            latency.add_many(us * 1_000, 1_000 / us);
        }
        latency.add(50_000_000);
        let points = cumulated(&latency);
        assert!((points[0].0 / 1_000.0 - 1.0).abs() < 0.01);
        assert_eq!(points.last(), Some(&(50_000_000.0, 1.0)));
        assert!(points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1));
        assert!((40..120).contains(&points.len()), "{}", points.len());
        assert!(points.iter().filter(|(_, share)| *share > 0.98).count() > 4, "{points:?}");
        assert_eq!(cumulated(&Histogram::new()), []);
    }
}
