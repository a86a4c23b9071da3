//! Shows the answer at the top of a report: a line per layer and one table of all cells, coloured by their change.

use iotax_analysis::Judgement;
use iotax_analysis::suite::SuiteTest;
use iotax_model::Run;
use maud::{Markup, html};

use crate::answer::{Answer, Cell, Change, Table};

/// Number of colour shades for changes; the darkest shows a factor of two or more.
const SHADES: f64 = 5.0;

/// Builds the section on layers and cells; empty for a single target, for a suite with tests, for an imported run, and if nothing was
/// measured.
pub(super) fn section(run: &Run, judgement: &Judgement, tests: &[SuiteTest<'_>]) -> Markup {
    let is_ladder = !run.source.is_imported() && run.plan.targets.len() > 1 && tests.is_empty();
    if !is_ladder || judgement.cells.is_empty() {
        return html! {};
    }
    let answer = Answer::of(run, judgement);
    html! {
        section.answer id="answer" {
            @if let Some(emulated) = answer.emulated { p.emulated { (emulated) } }
            @if !answer.layers.is_empty() { ul { @for line in &answer.layers { li { (line) } } } }
            @if let Some(table) = &answer.table { (cells(table)) }
        }
    }
}

fn cells(table: &Table) -> Markup {
    html! {
        div.wide tabindex="0" {
            table.cells {
                thead {
                    tr {
                        td {}
                        @for (name, unit) in &table.workloads { th { (name) br; small { (unit) } } }
                    }
                }
                tbody {
                    @for (target, cells) in &table.targets {
                        tr { td { (target) } @for cell in cells { (one(cell)) } }
                    }
                }
            }
        }
        p.note { (table.legend) "." }
    }
}

fn one(cell: &Cell) -> Markup {
    // The span stays even if empty, so that figures line up.
    let change = cell.change.map(Change::text).unwrap_or_default();
    html! {
        td class=[cell.change.and_then(shade)] { (cell.value) " " span.change { (change) } }
    }
}

/// Returns the CSS class of a cell's colour, from `slow1` or `fast1` to `slow5` or `fast5`; `None` if the change is not decided.
fn shade(change: Change) -> Option<String> {
    let Change::Decided(verdict, ratio) = change else { return None };
    let depth = (ratio.ln().abs() / std::f64::consts::LN_2 * SHADES).ceil().clamp(1.0, SHADES);
    Some(format!("{}{depth}", if verdict.is_worse() { "slow" } else { "fast" }))
}
