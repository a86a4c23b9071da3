//! Shows the targets of a workload side by side.

use iotax_model::units::human;
use iotax_model::{CellKey, Workload};

use super::{Field, Grid, figure, verdict, words};
use crate::figure::{UNKNOWN, megabytes, or_unknown, tax};
use crate::marks;
use iotax_analysis::{Judgement, Metric};
use iotax_model::Run;

/// Builds the table that compares the targets on a workload, one row each; `None` if none was measured.
pub(super) fn comparison_table(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Grid> {
    let rate = Metric::IOPS.column(workload);
    let cpu = Metric::CPU_PER_IO.column(workload);
    let mut grid = Grid::new(&["", rate, "MB/s", "p50", "p99", "tax on mean latency", cpu, ""]);
    for target in &run.plan.targets {
        let Some(summary) = judgement.summary(CellKey { workload: &workload.name, target: &target.name })
        else {
            grid.rows.extend(lost_row(run, judgement, &target.name, grid.head.len()));
            continue;
        };
        let [cost, verdict] = tax_and_verdict(run, judgement, &workload.name, &target.name);
        let mut row = vec![words(&target.name)];
        row.extend(
            [
                or_unknown(summary.of(Metric::IOPS), human::count),
                or_unknown(summary.of(Metric::BYTES_PER_S), megabytes),
                or_unknown(summary.of(Metric::LATENCY_P50), human::time),
                or_unknown(summary.of(Metric::LATENCY_P99), human::time),
            ]
            .map(figure),
        );
        row.extend([cost, figure(or_unknown(summary.of(Metric::CPU_PER_IO), human::time)), verdict]);
        grid.rows.push(row);
    }
    grid.filled()
}

/// Returns the time that a target adds to the baseline's mean latency, and the verdict with the target's marks.
pub(super) fn tax_and_verdict(run: &Run, judgement: &Judgement, workload: &str, target: &str) -> [Field; 2] {
    let latency = judgement.comparison(CellKey { workload, target }, Metric::LATENCY_MEAN);
    let cost = match latency {
        _ if target == run.plan.baseline => "baseline".into(),
        Some(comparison) => comparison.ratio.tax.as_ref().map_or_else(|| UNKNOWN.into(), tax),
        None => UNKNOWN.into(),
    };
    let marks = marks::marks(run, judgement, workload, target);
    let said: Vec<&str> = latency.map(|c| c.ratio.word()).into_iter().chain(marks).collect();
    [figure(cost), verdict(said.join(", "), latency.map(|c| c.ratio.verdict))]
}

/// Returns the row of a lost target in a table of `columns` columns; `None` if the target was not lost, or if the run has no measurements.
pub(super) fn lost_row(run: &Run, judgement: &Judgement, target: &str, columns: usize) -> Option<Vec<Field>> {
    (marks::is_lost(run, target) && !judgement.cells.is_empty()).then(|| {
        let mut row = vec![words(target)];
        row.extend((2..columns).map(|_| figure(UNKNOWN)));
        row.push(words(marks::LOST));
        row
    })
}
