//! Shows the result of a rate search: a sentence per target, and the figures at all rates tried.

use super::{Grid, Page, Part, figure};
use crate::ask::{heading, sentences};
use crate::figure::or_unknown;
use iotax_analysis::ask::{Answer, Step, answers};
use iotax_model::Run;
use iotax_model::plan::{AskSpec, Slo};
use iotax_model::units::human;

/// Adds the results of a rate search to the page; with `in_full` also a table per target with all rates tried. Returns whether the run is a search.
pub(super) fn add(page: &mut Page, run: &Run, in_full: bool) -> bool {
    let Some(ask) = run.plan.ask() else { return false };
    for answers in answers(run) {
        page.add(Part::Head(heading(ask, &answers)));
        page.add(Part::Lines(sentences(run, ask, &answers)));
        for answer in answers.targets.iter().filter(|_| in_full) {
            page.add(Part::Head(answer.target.into()));
            page.add(Part::Table(rates(ask, answer)));
        }
    }
    true
}

/// Builds a table with one row per rate tried, with the latency that each condition limits.
fn rates(ask: &AskSpec, answer: &Answer<'_>) -> Grid {
    let timed: Vec<&Slo> = ask.slo.iter().filter(|slo| **slo != Slo::NoErrors).collect();
    let names: Vec<String> = timed.iter().map(|slo| slo.figure()).collect();
    let head = ["IOPS due", "windows"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .chain(["not begun", "failed"]);
    let row = |step: &Step| {
        let latencies = timed.iter().map(|slo| or_unknown(step.latency(slo), human::time));
        let first = [human::count(step.rate), step.windows.to_string()].into_iter();
        let last = [format!("{:.1}%", 100.0 * step.left), step.failed.to_string()];
        first.chain(latencies).chain(last).map(figure).collect()
    };
    Grid { head: head.map(figure).collect(), rows: answer.steps.iter().map(row).collect() }
}
