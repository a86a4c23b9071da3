//! Shows how the wall time of a run was spent, by phase.

use super::{Grid, Page, Part, figure, words};
use iotax_analysis::Timing;

/// Builds a page with a table of the run's phases, and the share of the time outside the phase `measure` (warm-up counts as part of that
/// phase). If `timing` is `None`, the page says that no timing was recorded.
#[must_use]
pub fn timing(timing: Option<&Timing>) -> Page {
    let mut page = Page::default();
    let Some(timing) = timing else {
        page.add(Part::Sentence("This run recorded no timing.".into()));
        return page;
    };
    let seconds = |ns: u64| format!("{:.1}", ns as f64 / 1e9);
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let mut grid = Grid::new(&["", "seconds", "share"]);
    let phases = timing.phases.iter().map(|(phase, share)| (phase.name.as_str(), phase.duration_ns, *share));
    for (name, ns, share) in phases.chain([("all", timing.total_ns, 1.0)]) {
        grid.rows.push(vec![words(name), figure(seconds(ns)), figure(percent(share))]);
    }
    grid.head[2].is_figure = true;
    page.add(Part::Table(grid));
    page.add(Part::Sentence(format!("Outside the measured windows: {}", percent(timing.outside))));
    page
}
