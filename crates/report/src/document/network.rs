//! Shows the figures of network workloads as tables.

use iotax_model::{CellKey, Workload};

use super::targets::lost_row;
use super::{Grid, figure, verdict, words};
use crate::figure::UNKNOWN;
use crate::marks::marks;
use crate::network::{self, Table};
use iotax_analysis::Judgement;
use iotax_model::Run;

/// Builds the table of throughput or round-trip times, with one row per target; `None` if none was measured.
pub(super) fn figures(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Grid> {
    let table = network::figures(run, judgement, workload, false)?;
    let compares = run.plan.targets.len() > 1;
    let mut grid = set(&table, compares);
    for (fields, row) in grid.rows.iter_mut().zip(&table.rows).filter(|_| compares) {
        let word = row.comparison.map(|c| c.ratio.word());
        let marks =
            if row.name == row.target { marks(run, judgement, &workload.name, row.target) } else { vec![] };
        let said: Vec<&str> = word.into_iter().chain(marks).collect();
        fields.push(verdict(said.join(", "), row.comparison.map(|c| c.ratio.verdict)));
    }
    let columns = grid.head.len();
    let missing = run.plan.targets.iter().filter(|target| {
        judgement.summary(CellKey { workload: &workload.name, target: &target.name }).is_none()
    });
    grid.rows.extend(missing.filter_map(|target| lost_row(run, judgement, &target.name, columns)));
    grid.filled()
}

/// Builds the table of uploads and downloads, with one row per target and direction; `None` for other workloads, without streams, or if it
/// would only repeat the totals.
pub(super) fn directions(run: &Run, judgement: &Judgement, workload: &Workload) -> Option<Grid> {
    set(&network::directions(run, judgement, workload)?, false).filled()
}

/// Converts a network table to a table of a page. With `verdicts` the head has one more column, whose fields the caller adds to the rows.
fn set(table: &Table<'_>, verdicts: bool) -> Grid {
    let mut head = vec![words("")];
    head.extend(table.head.iter().map(figure));
    head.extend(verdicts.then(|| words("")));
    let row = |row: &network::Row<'_>| {
        let unknown = if row.name == row.target { UNKNOWN } else { "" };
        let figures = row.figures.iter().map(|text| figure(text.as_deref().unwrap_or(unknown)));
        std::iter::once(words(&row.name)).chain(figures).collect()
    };
    Grid { head, rows: table.rows.iter().map(row).collect() }
}
