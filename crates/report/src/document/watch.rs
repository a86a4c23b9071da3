//! What events cost: a sentence, a table of the events, and what was required.

use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::{UNKNOWN, counted, or_unknown};
use crate::watch::{LEGEND, heading, recovery, sentences, verdict, way};
use iotax_analysis::store::Run;
use iotax_analysis::watch::{Effect, Episode, Sighting, episodes};
use iotax_model::units::human;

/// Adds the measurements of a watch, on request with what was seen. Returns whether it is one.
pub(super) fn add(page: &mut Page, run: &Run, in_full: bool) -> bool {
    let Some(watch) = &run.plan.watch else { return false };
    for episode in &episodes(run) {
        page.add(Part::Head(heading(run, episode)));
        page.add(Part::Lines(sentences(watch, episode)));
        if !episode.effects.is_empty() {
            page.add(Part::Table(events(episode)));
            page.add(Part::Lines(vec![LEGEND.into()]));
        }
        let failures = episode.effects.iter().filter_map(|effect| {
            Some(format!("event {}: its command failed: {}", effect.name, effect.failure?))
        });
        page.add_lines(failures.chain(episode.verdicts.iter().map(verdict)).collect());
        add_seen(page, run, episode, in_full);
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
        let took = if effect.is_mark { "mark".into() } else { time(effect.duration_ns) };
        let texts = [time(Some(effect.at_ns)), took, gap, recovery(effect)];
        [words(effect.name)].into_iter().chain(texts.map(figure)).collect()
    };
    grid.rows = episode.effects.iter().map(row).collect();
    grid
}

/// What was seen, or how much of it there is and where.
fn add_seen(page: &mut Page, run: &Run, episode: &Episode<'_>, in_full: bool) {
    if in_full {
        let line = |one: Sighting<'_>| {
            let Sighting { at_ns, source, text, .. } = one;
            format!("{}, {source}: {text}", human::time(at_ns as f64))
        };
        let lines: Vec<String> = episode.seen().map(line).collect();
        if !lines.is_empty() {
            page.add(Part::Head("What was seen".into()));
            page.add(Part::Lines(lines));
        }
        return;
    }
    let of_kernel = episode.seen().filter(Sighting::is_of_kernel).count();
    let others = episode.seen().filter(|one| !one.is_of_kernel() && !one.is_mark()).count();
    let parts = [(of_kernel, "line", " of the kernel's log"), (others, "other change", "")];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(count, noun, of)| format!("{}{of}", counted(count as u64, noun))).collect();
    if !parts.is_empty() {
        page.add_lines(vec![format!("{}: iotax report {} --detail", parts.join(" and "), run.id)]);
    }
}
