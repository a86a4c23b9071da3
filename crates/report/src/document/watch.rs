//! Shows the cost of events: sentences, a table of the events, and the verdicts on requirements.

use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::{UNKNOWN, counted, or_unknown};
use crate::watch::{
    LEGEND, PRICES, SIDE_BY_SIDE, SIGHTS, failures, first_writes, from_to, gap_from_to, heading,
    heading_of_all, is_repeated, is_side_by_side, longest_gap, price_comparison, recovery, recovery_of_price,
    sentences, side_by_side, sights, summary, timeouts, verdict, verdicts_of_all,
};
use iotax_analysis::watch::{
    Episode, EventEffect, Observation, Price, PriceComparison, episodes, price_comparisons, prices,
};
use iotax_model::Run;
use iotax_model::plan::WatchSpec;
use iotax_model::units::human;

/// Adds the results of a watch to the page; with `in_full` also each window with its timeouts and all observations. Returns whether the run
/// is a watch.
pub(super) fn add(page: &mut Page, run: &Run, in_full: bool) -> bool {
    let Some(watch) = run.plan.watch() else { return false };
    let episodes = episodes(run);
    let is_summed_up = is_repeated(run) || is_side_by_side(run);
    if is_repeated(run) {
        add_summary(page, run, watch, &episodes, in_full);
    } else if is_side_by_side(run) && !episodes.is_empty() {
        add_side_by_side(page, run, watch, &episodes, in_full);
    }
    for episode in episodes.iter().filter(|_| in_full || !is_summed_up) {
        page.add(Part::Head(heading(run, episode)));
        page.add(Part::Lines(sentences(run, watch, episode)));
        if !episode.effects.is_empty() {
            page.add(Part::Table(events(episode)));
            page.add(Part::Lines(vec![LEGEND.into()]));
        }
        page.add_lines(timeouts::line(episode).into_iter().collect());
        page.add_lines(failures(episode).chain(episode.verdicts.iter().map(verdict)).collect());
        if in_full {
            add_sights(page, episode);
            add_timeouts(page, episode);
        }
        add_observations(page, run, episode, in_full);
    }
    true
}

/// Adds one table of all targets' gaps and I/Os, and one table with the effect of each event on each target.
fn add_side_by_side(page: &mut Page, run: &Run, watch: &WatchSpec, episodes: &[Episode<'_>], in_full: bool) {
    page.add(Part::Head(heading_of_all(run)));
    let mut grid = Grid::new(&SIDE_BY_SIDE);
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    grid.rows = side_by_side(run, episodes)
        .into_iter()
        .map(|[name, rest @ ..]| [words(name)].into_iter().chain(rest.map(figure)).collect())
        .collect();
    page.add(Part::Table(grid));
    let grid = events_side_by_side(run, episodes);
    if !grid.rows.is_empty() {
        page.add(Part::Table(grid));
        page.add(Part::Lines(vec![LEGEND.into()]));
    }
    // All targets have the same events.
    page.add_lines(
        episodes.first().into_iter().flat_map(failures).chain(verdicts_of_all(watch, episodes)).collect(),
    );
    if let (Some(episode), false) = (episodes.first(), in_full) {
        add_observations(page, run, episode, false);
    }
}

fn events_side_by_side(run: &Run, episodes: &[Episode<'_>]) -> Grid {
    let mut grid = Grid::new(&["event", "at", "took", "target", "failed", "longest gap", "normal after"]);
    for figure_column in [1, 2, 4, 5, 6] {
        grid.head[figure_column].is_figure = true;
    }
    let of = |name: &str| episodes.iter().find(|episode| episode.measurement.target == name);
    let all: Vec<&Episode<'_>> = run.plan.targets.iter().filter_map(|target| of(&target.name)).collect();
    for number in 0..all.first().map_or(0, |episode| episode.effects.len()) {
        let effects = all.iter().filter_map(|episode| Some((*episode, episode.effects.get(number)?)));
        for (index, (episode, effect)) in effects.enumerate() {
            let [name, at, took, failed, gap, recovery] = event(episode, effect);
            let once = |text: String| if index == 0 { text } else { String::new() };
            let target = words(&episode.measurement.target);
            let [name, at, took] = [name, at, took].map(once);
            let figures = [failed, gap, recovery].map(figure);
            let row = [words(name), figure(at), figure(took), target].into_iter().chain(figures);
            grid.rows.push(row.collect());
        }
    }
    grid
}

/// Adds the cost of each event over all rounds, its comparison with the baseline, and a summary of the windows.
fn add_summary(page: &mut Page, run: &Run, watch: &WatchSpec, episodes: &[Episode<'_>], in_full: bool) {
    let prices = prices(run, episodes);
    if !prices.is_empty() {
        page.add(Part::Head(format!(
            "What each event costs, over {}",
            counted(u64::from(run.plan.repeat), "round")
        )));
        page.add(Part::Table(price_table(&prices)));
        page.add(Part::Lines(prices.iter().filter_map(first_writes).chain([PRICES.into()]).collect()));
    }
    let compared = price_comparisons(run, episodes);
    for table in price_comparison::tables(&compared) {
        page.add(Part::Head(price_comparison::heading(run, table)));
        page.add(Part::Table(comparison_table(table, in_full)));
        page.add(Part::Lines(price_comparison::notes(run, table)));
    }
    page.add_lines(summary(run, watch, episodes));
}

fn comparison_table(compared: &[PriceComparison<'_>], with_intervals: bool) -> Grid {
    let figures = price_comparison::figures(compared);
    let columns: Vec<&str> = figures.into_iter().map(price_comparison::column).collect();
    let mut grid = Grid::new(&[&["event", "target"], columns.as_slice()].concat());
    grid.head.iter_mut().skip(2).for_each(|field| field.is_figure = true);
    let row = |row: &price_comparison::Row<'_>| -> Vec<Field> {
        let cells = row.cells.iter().map(|one| figure(price_comparison::cell(*one, with_intervals)));
        [words(&row.event), words(row.target)].into_iter().chain(cells).collect()
    };
    grid.rows = price_comparison::rows(compared).iter().map(row).collect();
    grid
}

fn price_table(prices: &[Price<'_>]) -> Grid {
    let one_target = prices.iter().all(|price| price.target == prices[0].target);
    let names: &[&str] = if one_target { &["event"] } else { &["event", "target"] };
    let mut grid = Grid::new(&[names, &["took", "longest gap", "mean", "p99", "normal after"]].concat());
    grid.head.iter_mut().skip(names.len()).for_each(|field| field.is_figure = true);
    let row = |price: &Price<'_>| -> Vec<Field> {
        let time = |ns: Option<f64>| or_unknown(ns, human::time);
        let gap = price.gap_ns.map(|(without, with)| gap_from_to(without, with));
        let recovery = price.recovery_ns.map(recovery_of_price);
        let texts = [
            time(price.took_ns),
            gap.unwrap_or_else(|| UNKNOWN.into()),
            from_to(price.mean.as_ref(), human::time),
            from_to(price.p99.as_ref(), human::time),
            recovery.unwrap_or_else(|| UNKNOWN.into()),
        ];
        let of = [price.event, price.target].into_iter().take(names.len()).map(words);
        of.chain(texts.map(figure)).collect()
    };
    grid.rows = prices.iter().map(row).collect();
    grid
}

fn events(episode: &Episode<'_>) -> Grid {
    let mut grid = Grid::new(&["event", "at", "took", "failed", "longest gap", "normal after"]);
    grid.head.iter_mut().skip(1).for_each(|field| field.is_figure = true);
    let row = |effect: &EventEffect<'_>| -> Vec<Field> {
        let [name, texts @ ..] = event(episode, effect);
        [words(name)].into_iter().chain(texts.map(figure)).collect()
    };
    grid.rows = episode.effects.iter().map(row).collect();
    grid
}

/// Returns the table row of an event: name, start, duration, failed I/Os, longest gap and time to recovery.
fn event(episode: &Episode<'_>, effect: &EventEffect<'_>) -> [String; 6] {
    let time = |ns: Option<u64>| or_unknown(ns.map(|ns| ns as f64), human::time);
    let is_begun = effect.is_mark || effect.duration_ns.is_some();
    let gap = match longest_gap(effect) {
        Some(gap) => gap,
        None if episode.gaps.is_some() && is_begun => "none".into(),
        None => UNKNOWN.into(),
    };
    let took = if effect.is_mark {
        "mark".into()
    } else if is_begun {
        time(effect.duration_ns)
    } else {
        "not begun".into()
    };
    let failed = if is_begun { effect.failed.to_string() } else { UNKNOWN.into() };
    [effect.name.into(), time(Some(effect.at_ns)), took, failed, gap, recovery(effect)]
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

/// Adds the table of timeouts, compared with the longest time that I/O hung. Adds nothing if no I/O hung.
fn add_timeouts(page: &mut Page, episode: &Episode<'_>) {
    if timeouts::has_hung(episode) {
        page.add(Part::Head("Timeouts".into()));
        page.add(Part::Table(of_timeouts(episode)));
        page.add(Part::Lines(episode.timeouts.iter().map(timeouts::note).collect()));
    }
}

/// Adds a table of the longest gap as observed at each layer: the load and each watched block device.
fn add_sights(page: &mut Page, episode: &Episode<'_>) {
    let rows = sights(episode);
    if !rows.is_empty() {
        let mut grid = Grid::new(&SIGHTS);
        grid.rows = rows.iter().map(|row| row.iter().map(words).collect()).collect();
        page.add(Part::Table(grid));
    }
}

/// Adds the observations, such as kernel messages; without `in_full` only their number and the command that lists them.
fn add_observations(page: &mut Page, run: &Run, episode: &Episode<'_>, in_full: bool) {
    if in_full {
        let line = |one: Observation<'_>| {
            let Observation { at_ns, source, text, .. } = one;
            format!("{}, {source}: {text}", human::time(at_ns as f64))
        };
        let lines: Vec<String> = episode.observations().map(line).collect();
        if !lines.is_empty() {
            page.add(Part::Head("What was seen".into()));
            page.add(Part::Lines(lines));
        }
        return;
    }
    let of_kernel = episode.observations().filter(Observation::is_of_kernel).count();
    let others = episode.observations().filter(|one| !one.is_of_kernel() && !one.is_mark()).count();
    let parts = [(of_kernel, "line", " of the kernel's log"), (others, "other change", "")];
    let parts = parts.into_iter().filter(|(count, ..)| *count > 0);
    let parts: Vec<String> =
        parts.map(|(count, noun, of)| format!("{}{of}", counted(count as u64, noun))).collect();
    if !parts.is_empty() {
        page.add_lines(vec![format!("{}: {}", parts.join(" and "), run.command("report", "--detail"))]);
    }
}
