//! Shows the trend over a history of runs: the changes first, then a row per series.

use super::{Grid, Page, Part, figure, words};
use crate::figure::{UNKNOWN, change, counted, share};
use crate::sentences::compared::percent;
use crate::sentences::trend::{causes, cell, changed, day, direction, pending, run};
use iotax_analysis::stats::MARGIN;
use iotax_analysis::time::utc;
use iotax_analysis::trend::{LEAST_RUNS, LEAST_SIDE, PastRun, Trend, TrendChange, Trends};

/// Builds the page: the changes of all series, other differences between the runs before and after each change (settings, users), possible
/// changes in the newest runs, and a table of the series that changed or may have changed. With `detail`, also changes within the margin of
/// 2%, unchanged series, and every point.
#[must_use]
pub fn trend(runs: &[PastRun], trends: &Trends, detail: bool) -> Page {
    let mut page = Page::default();
    let mut found: Vec<(&Trend, &TrendChange)> = trends
        .trends
        .iter()
        .flat_map(|trend| trend.changes.iter().map(move |change| (trend, change)))
        .collect();
    found.retain(|(_, change)| change.is_new);
    found.sort_by_key(|(trend, change)| std::cmp::Reverse(trend.points[change.at].run));
    let (large, small): (Vec<_>, Vec<_>) = found.iter().partition(|(_, change)| !is_small(change));
    let shown = if detail { &found } else { &large };
    let (machine, of_targets): (Vec<_>, Vec<_>) =
        shown.iter().copied().partition(|(trend, _)| trend.is_control);
    let say = |changes: &[(&Trend, &TrendChange)]| {
        changes.iter().map(|(trend, change)| changed(runs, trend, change)).collect::<Vec<String>>()
    };
    page.add(Part::Sentence(headline(runs, trends, &of_targets)));
    page.add_list("Changes", say(&of_targets));
    page.add_list("What else changed", causes(runs, of_targets.iter().copied(), detail));
    page.add_list("Pending", trends.trends.iter().filter(|t| !t.is_control).filter_map(pending).collect());
    page.add_list("The machine itself", say(&machine));
    let is_listed = |trend: &&Trend| detail || has_moved(trend);
    let series: Vec<&Trend> = trends.trends.iter().filter(is_listed).collect();
    if !series.is_empty() {
        page.add(Part::Table(table(runs, &series)));
    }
    page.add_list("How to read it", notes(trends, series.len(), if detail { 0 } else { small.len() }));
    if detail {
        for trend in &trends.trends {
            page.add(Part::Head(format!("{}, {}", cell(trend), trend.metric.name_on(&trend.workload))));
            page.add(Part::Table(points(runs, trend)));
        }
    }
    page
}

/// Returns whether a change is within the margin of 2%.
fn is_small(change: &TrendChange) -> bool {
    change.ratio.max(change.ratio.recip()) <= 1.0 + MARGIN
}

/// Returns whether a series has a new change of more than 2%, or a possible change in its newest runs.
fn has_moved(trend: &Trend) -> bool {
    trend.pending.is_some() || trend.changes.iter().any(|change| change.is_new && !is_small(change))
}

/// Formats the first line: the newest change, or that there is none or that there are too few runs, and the number of runs examined.
fn headline(runs: &[PastRun], trends: &Trends, changes: &[(&Trend, &TrendChange)]) -> String {
    let span = match (runs.first(), runs.last()) {
        (Some(only), Some(_)) if runs.len() == 1 => format!("1 run, {}", &utc(only.started_at_ms)[..10]),
        (Some(first), Some(last)) => format!(
            "{}, {} to {}",
            counted(runs.len() as u64, "run"),
            &utc(first.started_at_ms)[..10],
            &utc(last.started_at_ms)[..10]
        ),
        _ => "no run".into(),
    };
    let series = trends.trends.len();
    if trends.trends.iter().all(Trend::is_short) {
        let few = if runs.len() == 1 { "One run shows no change" } else { "Too few runs to tell a change" };
        return format!("{few}: {LEAST_RUNS} are needed ({span}).");
    }
    let pending = trends.trends.iter().filter(|trend| !trend.is_control && trend.pending.is_some()).count();
    let pending = if pending > 0 { format!(", {pending} pending") } else { String::new() };
    let Some((trend, newest)) = changes.first() else {
        return format!("No change in {series} series{pending} ({span}).");
    };
    format!(
        "{} since {}: {}, {} {}. {} in {series} series{pending} ({span}).",
        if newest.is_worse { "Slower" } else { "Faster" },
        run(runs, trend, newest.at),
        cell(trend),
        trend.metric.name_on(&trend.workload),
        change(newest.ratio),
        counted(changes.len() as u64, "change"),
    )
}

fn table(runs: &[PastRun], trends: &[&Trend]) -> Grid {
    let mut grid = Grid::new(&["series", "metric", "runs", "now", "run to run", "changes", ""]);
    grid.head[1].is_figure = false;
    for trend in trends {
        let level = trend.changes.last().map_or(0, |change| change.at);
        let means: Vec<f64> = trend.points[level..].iter().map(|point| point.mean).collect();
        let now = iotax_analysis::stats::median(&means);
        let state = match (trend.changes.last(), trend.pending) {
            (_, Some(_)) => "pending".to_owned(),
            (Some(change), None) => format!("{} since {}", direction(change), run(runs, trend, change.at)),
            (None, None) if trend.is_short() => "too few runs".into(),
            (None, None) => "steady".into(),
        };
        let machine = if trend.is_control { " (the machine)" } else { "" };
        grid.rows.push(vec![
            words(format!("{}{machine}", cell(trend))),
            words(trend.metric.name_on(&trend.workload)),
            figure(trend.points.len().to_string()),
            figure(now.map_or_else(|| UNKNOWN.into(), |now| trend.metric.figure_on(&trend.workload, now))),
            figure(trend.noise.map_or_else(|| UNKNOWN.into(), share)),
            figure(trend.changes.len().to_string()),
            words(state),
        ]);
    }
    grid
}

fn notes(trends: &Trends, series: usize, small: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let still = trends.trends.len() - series;
    if still > 0 {
        let are = if trends.trends.iter().all(Trend::is_short) { "" } else { "without a change " };
        notes.push(format!("{still} series {are}not shown; --detail has them."));
    }
    let controls: Vec<&str> = trends.trends.iter().filter_map(|trend| trend.control.as_deref()).collect();
    if let Some(control) = controls.first() {
        notes.push(format!(
            "The trend follows the ratio of each target to {control} in the same rounds: effects of the machine on both cancel out."
        ));
    }
    if trends.trends.iter().any(|trend| trend.control.is_none() && !trend.is_control) {
        notes.push(
            "Without a control the machine's own days are in the series. Remedy: name a target that shows the bare machine with control = \
             in the plan, or with --control."
                .into(),
        );
    }
    if small > 0 {
        notes.push(format!(
            "{} within {} not shown; --detail has them.",
            if small == 1 { "1 change".into() } else { format!("{small} changes") },
            percent(MARGIN)
        ));
    }
    notes.push(format!(
        "A change needs {LEAST_SIDE} runs on each side, and {LEAST_RUNS} in all. \"run to run\" is the standard deviation of the followed ratio."
    ));
    notes
}

fn points(runs: &[PastRun], trend: &Trend) -> Grid {
    let head = trend.control.as_deref().unwrap_or("control");
    let mut grid = Grid::new(&["run", "began", "rounds", &trend.target, head, "against the first", ""]);
    grid.head[1].is_figure = false;
    let first = trend.points.first().map_or(1.0, |point| point.followed);
    for (i, point) in trend.points.iter().enumerate() {
        let shown = |value: f64| trend.metric.figure_on(&trend.workload, value);
        let is_changed = trend.changes.iter().find(|change| change.at == i);
        grid.rows.push(vec![
            words(run(runs, trend, i)),
            words(day(runs, trend, i)),
            figure(point.rounds.to_string()),
            figure(shown(point.mean)),
            figure(point.control.map_or_else(String::new, shown)),
            figure(change(point.followed / first)),
            words(is_changed.map_or("", direction)),
        ]);
    }
    grid
}
