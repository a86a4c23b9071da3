//! What events cost: a sentence, a table of the events, and what was required.

use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::{UNKNOWN, counted, or_unknown};
use crate::watch::{LEGEND, heading, recovery, sentences, timeouts, verdict, way};
use iotax_analysis::store::Run;
use iotax_analysis::watch::{Effect, Episode, episodes};
use iotax_model::units::human;

/// Adds the measurements of a watch, on request with the kernel's log. Returns whether it is one.
pub(super) fn add(page: &mut Page, run: &Run, in_full: bool) -> bool {
    let Some(watch) = &run.plan.watch else { return false };
    for episode in &episodes(run) {
        page.add(Part::Head(heading(run, episode)));
        page.add(Part::Lines(sentences(watch, episode)));
        if !episode.effects.is_empty() {
            page.add(Part::Table(events(episode)));
            page.add(Part::Lines(vec![LEGEND.into()]));
        }
        page.add_lines(timeouts::line(episode).into_iter().collect());
        let failures = episode.effects.iter().filter_map(|effect| {
            Some(format!("event {}: its command failed: {}", effect.name, effect.failure?))
        });
        page.add_lines(failures.chain(episode.verdicts.iter().map(verdict)).collect());
        if in_full && timeouts::has_hung(episode) {
            page.add(Part::Head("Timeouts".into()));
            page.add(Part::Table(of_timeouts(episode)));
            page.add(Part::Lines(episode.timeouts.iter().map(timeouts::note).collect()));
        }
        add_log(page, run, episode, in_full);
    }
    true
}

fn events(episode: &Episode<'_>) -> Grid {
    let mut grid = Grid::new(&["event", "at", "took", "longest gap", "normal after"]);
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    let row = |effect: &Effect<'_>| -> Vec<Field> {
        let time = |ns: Option<u64>| or_unknown(ns.map(|ns| ns as f64), human::time);
        let gap = match effect.gap {
            Some(gap) => format!("{} ({})", human::time(gap.duration_ns as f64), way(&gap)),
            None if episode.gaps.is_some() => "none".into(),
            None => UNKNOWN.into(),
        };
        let texts = [time(Some(effect.at_ns)), time(effect.duration_ns), gap, recovery(effect)];
        [words(effect.name)].into_iter().chain(texts.map(figure)).collect()
    };
    grid.rows = episode.effects.iter().map(row).collect();
    grid
}

fn of_timeouts(episode: &Episode<'_>) -> Grid {
    let mut grid = Grid::new(&timeouts::COLUMNS);
    let row = |[layer, what, limit, verdict]: [String; 4]| {
        vec![words(layer), words(what), figure(limit), words(verdict)]
    };
    grid.head[1].is_figure = false;
    grid.rows = episode.timeouts.iter().map(timeouts::row).map(row).collect();
    grid
}

/// The kernel's lines, or where they are.
fn add_log(page: &mut Page, run: &Run, episode: &Episode<'_>, in_full: bool) {
    let lines: Vec<String> = episode
        .kernel_lines()
        .map(|(at_ns, _, text)| format!("{:>8}  {text}", human::time(at_ns as f64)))
        .collect();
    if lines.is_empty() {
        return;
    }
    if in_full {
        page.add(Part::Head("The kernel's log".into()));
        page.add(Part::Lines(lines));
    } else {
        let count = counted(lines.len() as u64, "line");
        page.add_lines(vec![format!("{count} in the kernel's log: iotax report {} --detail", run.id)]);
    }
}
