//! The targets of a workload side by side.

use iotax_model::Workload;
use iotax_model::units::human;

use super::{Field, Grid, figure, verdict, words};
use crate::figure::{UNKNOWN, megabytes, or_unknown, tax};
use crate::marks;
use iotax_analysis::store::Run;
use iotax_analysis::{Comparison, Judgement, Metric};

/// One row per target; absent if none was measured.
pub(super) fn comparison_table(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Grid> {
    let mut grid = Grid::new(&["", "IOPS", "MB/s", "p50", "p99", "tax on mean latency", "CPU/IO", ""]);
    for target in &run.plan.targets {
        let Some(summary) = judgement.summary(&workload.name, &target.name) else {
            grid.rows.extend(lost_row(run, judgement, &target.name, grid.head.len()));
            continue;
        };
        let latency = judgement.comparison(&workload.name, &target.name, Metric::LATENCY_MEAN);
        let cost = match latency {
            _ if target.name == run.plan.baseline => "baseline".into(),
            Some(comparison) => comparison.tax.as_ref().map_or_else(|| UNKNOWN.into(), tax),
            None => UNKNOWN.into(),
        };
        let marks = marks::marks(run, judgement, &workload.name, &target.name);
        let said: Vec<&str> = latency.map(Comparison::word).into_iter().chain(marks).collect();
        let mut row = vec![words(&target.name)];
        row.extend(
            [
                or_unknown(summary.of(Metric::IOPS), human::count),
                or_unknown(summary.of(Metric::BYTES_PER_S), megabytes),
                or_unknown(summary.of(Metric::LATENCY_P50), human::time),
                or_unknown(summary.of(Metric::LATENCY_P99), human::time),
                cost,
                or_unknown(summary.of(Metric::CPU_PER_IO), human::time),
            ]
            .map(figure),
        );
        row.push(verdict(said.join(", "), latency.map(|c| c.verdict)));
        grid.rows.push(row);
    }
    grid.filled()
}

/// The row of a target that the run went on without, in a table of so many columns; absent for any other, and where nothing at all was measured.
pub(super) fn lost_row(run: &Run, judgement: &Judgement, target: &str, columns: usize) -> Option<Vec<Field>> {
    (marks::is_lost(run, target) && !judgement.summaries.is_empty()).then(|| {
        let mut row = vec![words(target)];
        row.extend((2..columns).map(|_| figure(UNKNOWN)));
        row.push(words(marks::LOST));
        row
    })
}
