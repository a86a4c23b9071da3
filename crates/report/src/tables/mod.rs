//! The tables exported from runs: their columns and rows.

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

/// The metrics in tables of these runs: those they were judged by.
#[must_use]
pub fn figures(runs: &[(Run, Judgement)]) -> &[Metric] {
    runs.first().map_or(Metric::ALL, |(_, judgement)| &judgement.figures)
}

/// True if the target's CPU was emulated, so that its figures say nothing about real hardware. `None` if it was never built.
#[must_use]
pub fn emulated(run: &Run, target: &str) -> Option<bool> {
    run.targets.iter().find(|record| record.name == target).map(|record| record.emulated)
}

/// A row about part of a measurement, such as an interval or a stream.
#[derive(Debug, Clone, Copy)]
pub struct MeasurementRow<'a, T> {
    /// The run of the measurement.
    pub run: &'a Run,
    /// The measurement.
    pub m: &'a Measurement,
    /// The part of the measurement that the row is about.
    pub datum: T,
}

/// The columns that identify a measurement.
#[must_use]
pub fn place<'a, T>() -> [Column<MeasurementRow<'a, T>>; 4] {
    columns!(MeasurementRow<'a, T>, |row|
        "run" => run_number(row.run),
        "target" => row.m.target.as_str(),
        "workload" => row.m.workload.as_str(),
        "round" => row.m.round,
    )
}

/// One row per item that `T` stands for, in each measurement.
pub fn rows_of<'a, T>(
    runs: &'a [(Run, Judgement)],
    data: impl Fn(&'a Measurement) -> Vec<T> + Copy,
) -> impl Iterator<Item = MeasurementRow<'a, T>> {
    let of = move |run: &'a Run, m| data(m).into_iter().map(move |datum| MeasurementRow { run, m, datum });
    runs.iter().flat_map(move |(run, _)| run.measurements.iter().flat_map(move |m| of(run, m)))
}

/// Columns with the I/Os of each direction.
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
