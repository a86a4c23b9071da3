//! Tables of measurements, of cells over all rounds, and of comparisons between cells.

use iotax_analysis::compare::account::Kinds;
use iotax_analysis::figures::{began, lasted};
use iotax_analysis::metric::Unit;
use iotax_analysis::{CellJudgement, Comparison, Judgement, Metric};
use iotax_model::{IoEngine, Run};

use super::{MeasurementRow, cell_columns, directions, emulated, figures, high, low};
use crate::columns;
use crate::table::{Column, DataTable, UnixMs, column, run_number, seconds};

struct Judged {
    grade: Option<&'static str>,
    warnings: String,
}

/// Builds a table with one row per measurement.
#[must_use]
pub fn measurements(runs: &[(Run, Judgement)]) -> DataTable {
    type Row<'a> = MeasurementRow<'a, Judged>;
    let times = columns!(Row<'_>, |row|
        "order" => row.m.order,
        "started_at" => began(row.m).map(UnixMs),
        "duration_s" => lasted(row.m).map(seconds),
    );
    let metrics = figures(runs).iter().map(|metric| metric_column(*metric));
    let about = columns!(Row<'_>, |row|
        "ioengine" => row.m.outcome.ioengine.map(IoEngine::word),
        "emulated" => emulated(row.run, &row.m.target),
        "grade" => row.datum.grade,
        "warnings" => row.datum.warnings.clone(),
        "source" => source(row.run),
    );
    let directions = directions(|row: &Row<'_>| &row.m.outcome.tallies);
    let columns = cell_columns().into_iter().chain(times).chain(metrics).chain(directions).chain(about);
    let rows = runs.iter().flat_map(|(run, judgement)| {
        let kinds = Kinds::of(judgement);
        run.measurements.iter().enumerate().map(move |(i, m)| {
            let grade = judgement.grades.get(i).map(|grade| grade.word());
            MeasurementRow { run, m, datum: Judged { grade, warnings: kinds.about(m).join(" ") } }
        })
    });
    DataTable::new(columns, rows)
}

fn metric_column<'a, T>(metric: Metric) -> Column<MeasurementRow<'a, T>> {
    let name = metric.id_with_unit();
    if metric.definition().unit == Unit::Count {
        column(name, move |row: &MeasurementRow<'a, T>| metric.value(row.m).map(whole))
    } else {
        column(name, move |row: &MeasurementRow<'a, T>| metric.value(row.m))
    }
}

/// Converts a count that was stored as a floating-point number, without loss below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
const fn whole(count: f64) -> u64 {
    count as u64
}

fn source(run: &Run) -> Option<String> {
    run.source.imported().map(ToString::to_string)
}

struct CellRow<'a> {
    run: &'a Run,
    cell: &'a CellJudgement,
}

/// Builds a table with one row per target and workload, over all rounds.
#[must_use]
pub fn cells(runs: &[(Run, Judgement)]) -> DataTable {
    let about = columns!(CellRow<'_>, |row|
        "run" => run_number(row.run),
        "target" => row.cell.target.as_str(),
        "workload" => row.cell.workload.as_str(),
        "rounds" => row.cell.summary.rounds,
        "latency_max_ns" => row.cell.summary.latency.max(),
        "emulated" => emulated(row.run, &row.cell.target),
        "source" => source(row.run),
    );
    let metric = |metric: &Metric| {
        let metric = *metric;
        column(metric.id_with_unit(), move |row: &CellRow<'_>| row.cell.summary.of(metric))
    };
    let columns = about.into_iter().chain(figures(runs).iter().map(metric));
    let rows = runs
        .iter()
        .flat_map(|(run, judgement)| judgement.cells.iter().map(move |cell| CellRow { run, cell }));
    DataTable::new(columns, rows)
}

struct ComparisonRow<'a> {
    run: &'a Run,
    /// Name of the ladder step; `None` for a comparison with the baseline.
    step: Option<&'a str>,
    c: &'a Comparison,
}

/// Builds a table with one row per comparison with the baseline and per step of the ladder; only the latter have a step name.
#[must_use]
pub fn comparisons(runs: &[(Run, Judgement)]) -> DataTable {
    let columns = columns!(ComparisonRow<'_>, |row|
        "run" => run_number(row.run),
        "step" => row.step,
        "workload" => row.c.workload.as_str(),
        "metric" => row.c.metric.word(),
        "target" => row.c.target.as_str(),
        "baseline" => row.c.baseline.as_str(),
        "ratio" => row.c.ratio.mean,
        "low" => low(row.c.ratio.interval),
        "high" => high(row.c.ratio.interval),
        "confidence" => row.c.ratio.confidence,
        "low_95" => low(row.c.ratio.interval_95),
        "high_95" => high(row.c.ratio.interval_95),
        "sign_flip_p" => row.c.ratio.sign_flip_p,
        "tax_ns" => row.c.ratio.tax.map(|tax| tax.ns),
        "tax_low_ns" => low(row.c.ratio.tax.and_then(|tax| tax.interval)),
        "tax_high_ns" => high(row.c.ratio.tax.and_then(|tax| tax.interval)),
        "verdict" => row.c.ratio.verdict.word(),
        "rounds" => row.c.rounds,
        "needed_rounds" => row.c.ratio.needed_rounds,
        "withheld" => row.c.ratio.withheld.as_deref(),
        "emulated" => emulated(row.run, &row.c.target),
    );
    let rows = runs.iter().flat_map(|(run, judgement)| {
        let steps = judgement.steps.iter().map(move |c| {
            let step = judgement.edge(c).map(|edge| edge.name.as_str());
            ComparisonRow { run, step, c }
        });
        judgement.comparisons.iter().map(move |c| ComparisonRow { run, step: None, c }).chain(steps)
    });
    DataTable::new(columns, rows)
}
