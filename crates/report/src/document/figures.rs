//! Shows all known figures: one row per figure, with the targets side by side.

use iotax_model::{CellKey, Workload};

use super::{Grid, Page, Part, figure, words};
use crate::figure::{or_unknown, title_in};
use iotax_analysis::metric::Unit;
use iotax_analysis::{CellJudgement, Judgement, Metric};
use iotax_model::Run;

/// Builds a page with a table per workload; the figures cover all rounds.
#[must_use]
pub fn figures(run: &Run, judgement: &Judgement) -> Page {
    let mut page = Page::default();
    // The rates that a search tried have a separate table.
    for workload in run.plan.asked() {
        let Some(grid) = table(run, judgement, workload) else { continue };
        let title = title_in(run.source.imported(), workload);
        page.add(Part::Head(format!("All figures: {title} ({})", workload.name)));
        page.add(Part::Table(grid));
    }
    page
}

/// Builds the table of a workload, with a column per measured target; `None` if none was measured.
fn table(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Grid> {
    let cells = cells(run, judgement, workload);
    let mut head = vec![words("")];
    head.extend(cells.iter().map(|cell| figure(&cell.target)));
    let rows = rows(judgement, workload, &cells).into_iter().map(|(name, values)| {
        let mut row = vec![words(name)];
        row.extend(values.into_iter().map(figure));
        row
    });
    Grid { head, rows: rows.collect() }.filled()
}

/// Returns the measured cells of a workload, in the plan's order of targets.
pub(crate) fn cells<'a>(run: &Run, judgement: &'a Judgement, workload: &Workload) -> Vec<&'a CellJudgement> {
    run.plan
        .targets
        .iter()
        .filter_map(|target| judgement.cell(CellKey { workload: &workload.name, target: &target.name }))
        .collect()
}

/// Returns a row per figure that is known for at least one of the cells: the figure's name and its value in each cell.
pub(crate) fn rows(
    judgement: &Judgement,
    workload: &Workload,
    cells: &[&CellJudgement],
) -> Vec<(&'static str, Vec<String>)> {
    let known = |metric: &&Metric| {
        cells.iter().any(|cell| cell.summary.of(**metric).is_some_and(|value| says(**metric, value)))
    };
    let row = |metric: &Metric| {
        let value = |cell: &&CellJudgement| {
            or_unknown(cell.summary.of(*metric), |value| metric.figure_on(workload, value))
        };
        (metric.name_on(workload), cells.iter().map(value).collect())
    };
    judgement.figures.iter().filter(known).map(row).collect()
}

/// Returns whether a value gets a row. Counts of 0, such as no failed I/Os, get none.
fn says(metric: Metric, value: f64) -> bool {
    metric.definition().unit != Unit::Count || value > 0.0
}
