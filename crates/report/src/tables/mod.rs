//! Tables that are exported from runs: their columns and rows.

mod history;
mod intervals;
mod measurements;
mod rates;

use iotax_analysis::stats::paired::Interval;
use iotax_analysis::{Judgement, Metric};
use iotax_model::Run;
use iotax_model::record::{Measurement, Tallies};

pub use history::history;
pub use intervals::{disks, latency, nics, samples, span, streams};
pub use measurements::{cells, comparisons, measurements};
pub use rates::{answers, curves};

use crate::columns;
use crate::table::{Column, column, run_number};

/// Returns the metrics that become columns: the metrics that the first run was judged by.
#[must_use]
pub fn figures(runs: &[(Run, Judgement)]) -> &[Metric] {
    runs.first().map_or(Metric::ALL, |(_, judgement)| &judgement.figures)
}

/// Returns whether the CPU of the target's guest was emulated; its figures then say nothing about real hardware. `None` if the target was never set
/// up.
#[must_use]
pub fn emulated(run: &Run, target: &str) -> Option<bool> {
    run.targets.iter().find(|record| record.name == target).map(|record| record.emulated)
}

/// A row for a part of a measurement, such as an interval or a stream.
#[derive(Debug, Clone, Copy)]
pub struct MeasurementRow<'a, T> {
    /// The run that the measurement belongs to.
    pub run: &'a Run,
    /// The measurement that the interval, stream or other part belongs to.
    pub m: &'a Measurement,
    /// The interval, stream or other part that the row shows.
    pub datum: T,
}

/// Defines the columns that identify a measurement: run, target, workload and round.
#[must_use]
pub fn cell_columns<'a, T>() -> [Column<MeasurementRow<'a, T>>; 4] {
    columns!(MeasurementRow<'a, T>, |row|
        "run" => run_number(row.run),
        "target" => row.m.target.as_str(),
        "workload" => row.m.workload.as_str(),
        "round" => row.m.round,
    )
}

/// Returns a row for each part, such as an interval, that `data` returns for the measurements of the runs.
pub fn rows_of<'a, T>(
    runs: &'a [(Run, Judgement)],
    data: impl Fn(&'a Measurement) -> Vec<T> + Copy,
) -> impl Iterator<Item = MeasurementRow<'a, T>> {
    let of = move |run: &'a Run, m| data(m).into_iter().map(move |datum| MeasurementRow { run, m, datum });
    runs.iter().flat_map(move |(run, _)| run.measurements.iter().flat_map(move |m| of(run, m)))
}

/// Defines a column per direction with its number of I/Os.
fn directions<R>(
    of: impl for<'r> Fn(&'r R) -> &'r Tallies + Copy + 'static,
) -> impl Iterator<Item = Column<R>> {
    Tallies::WORDS.iter().enumerate().map(move |(at, word)| {
        column(format!("{word}_ios"), move |row| of(row).each().nth(at)?.1.map(|tally| tally.ios))
    })
}

fn low(interval: Option<Interval>) -> Option<f64> {
    interval.map(|interval| interval.low)
}

fn high(interval: Option<Interval>) -> Option<f64> {
    interval.map(|interval| interval.high)
}
