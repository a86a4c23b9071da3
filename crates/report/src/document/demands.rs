//! Shows which demands each target meets, with a table of the measured figures.

use iotax_analysis::Judgement;
use iotax_analysis::demands::{DemandOnTarget, Kept, NoFigure, demands};
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::Run;
use iotax_model::units::human;

use super::{Field, Grid, Page, Part, figure, verdict, words};
use crate::demands::{room, sentences, shown, word};
use crate::figure::UNKNOWN;

/// Adds to the page which demands each target meets. Returns whether the run's plan has demands.
pub(super) fn add(page: &mut Page, run: &Run, judgement: &Judgement) -> bool {
    let all = demands(run, judgement);
    if all.is_empty() {
        return false;
    }
    page.add(Part::Head(format!("Are the demands met? ({})", run.plan.name)));
    page.add_lines(sentences(run, judgement));
    let mut head = vec![words("target"), words("demand"), figure("measured"), figure("room"), words("")];
    let several = run.plan.workloads.len() > 1;
    if several {
        head.insert(1, words("workload"));
    }
    let rows = all.iter().map(|demand| row(demand, several)).collect();
    page.add(Part::Table(Grid { head, rows }));
    let mut sources: Vec<String> = Vec::new();
    for demand in &run.plan.require {
        let Some(source) = &demand.source else { continue };
        let line = format!("{}: {source}", demand.keep);
        if !sources.contains(&line) {
            sources.push(line);
        }
    }
    page.add_list("Where the limits come from", sources);
    true
}

/// Returns the page section on demands for HTML; empty for a plan without demands.
pub(crate) fn section(run: &Run, judgement: &Judgement) -> Page {
    let mut page = Page::default();
    add(&mut page, run, judgement);
    page
}

fn row(demand: &DemandOnTarget<'_>, several: bool) -> Vec<Field> {
    let colour = match demand.kept {
        Kept::Yes => Verdict::Faster,
        Kept::No => Verdict::Slower,
        Kept::Undecided => Verdict::Undecided,
    };
    let mut row = vec![words(demand.target)];
    row.extend(several.then(|| words(demand.workload)));
    row.extend([
        words(demand.demand.keep.to_string()),
        figure(shown(demand).unwrap_or_else(|| match demand.missing {
            Some(NoFigure::Beyond { .. }) => format!("> {}", human::time(demand.limit)),
            _ => UNKNOWN.into(),
        })),
        figure(room(demand)),
        verdict(word(demand.kept), Some(colour)),
    ]);
    row
}
