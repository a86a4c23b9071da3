//! Shows several runs: a chart for each workload, with a line for each target.

use iotax_analysis::Metric;
use iotax_analysis::compare::{Account, History, Track};
use maud::{Markup, html};

use super::chart::{Across, Axis, Cell, Chart, ChartId, Panel, Plot, Unit, legend};
use super::{COLOURS, shown};

/// Height of a chart's plot area in pixels.
const HEIGHT: u32 = 220;

/// Builds a chart for each workload by one metric, with the 95% intervals over the rounds, for a page that includes [`super::STYLE`] and
/// [`super::SCRIPTS`]; empty if no run has the metric.
#[must_use]
pub fn history(accounts: &[Account], history: &History, metric: Metric) -> Markup {
    let tracks: Vec<&Track> = history.tracks.iter().filter(|track| track.metric == metric).collect();
    let mut workloads: Vec<&str> = Vec::new();
    for track in &tracks {
        if !workloads.contains(&track.workload.as_str()) {
            workloads.push(&track.workload);
        }
    }
    // A target has the same colour in all charts of the page, even if some charts lack it.
    let mut colours: Vec<(String, String)> = Vec::new();
    for track in &tracks {
        if !colours.iter().any(|(target, _)| *target == track.target) {
            colours.push((track.target.clone(), format!("t{}", colours.len() % COLOURS)));
        }
    }
    let last = accounts.last().map_or(0, |account| account.id);
    shown(&html! {
        @if colours.len() > 1 { (legend(&colours)) }
        @for (number, workload) in (1..).zip(workloads) {
            @let of: Vec<&Track> = tracks.iter().filter(|track| track.workload == workload).copied().collect();
            (chart(accounts, &of, &colours, metric).figure_below_legend(ChartId { run: last, workload, number }))
        }
    })
}

fn chart(accounts: &[Account], tracks: &[&Track], colours: &[(String, String)], metric: Metric) -> Chart {
    // The page's charts show microseconds; metrics are in nanoseconds.
    let scaled = |value: f64| if metric.is_time() { value / 1e3 } else { value };
    let unit = if metric.is_time() {
        Unit::Time
    } else if metric == Metric::BYTES_PER_S {
        Unit::Rate
    } else {
        Unit::Count
    };
    let name = if metric.is_time() { format!("{}_us", metric.word()) } else { metric.word().to_owned() };
    let mut rows = Vec::new();
    // By run, so that runs stay in order even if a target is missing in some of them.
    for (run, account) in accounts.iter().enumerate() {
        for track in tracks {
            let Some(point) = track.points.iter().find(|point| point.run == run) else { continue };
            rows.push(vec![
                Cell::from(track.target.as_str()),
                Cell::from(account.label.as_str()),
                Cell::Figure(scaled(point.mean)),
                point.band.map(|band| scaled(band.low)).into(),
                point.band.map(|band| scaled(band.high)).into(),
            ]);
        }
    }
    let label = if metric.is_time() { format!("{}, us", metric.name()) } else { metric.name().to_owned() };
    let axis = Axis { label, unit, log: false, at_least: 0.0 };
    let is_here = |(target, _): &&(String, String)| tracks.iter().any(|track| track.target == *target);
    Chart {
        key: format!("history-{}", metric.word()),
        title: tracks.first().map_or_else(String::new, |track| track.workload.clone()),
        note: format!("{} over {} runs, with 95% intervals", metric.name(), accounts.len()),
        message: format!("{} by run", metric.name()),
        columns: vec![
            "target".into(),
            "run".into(),
            name.clone(),
            format!("low_95_{name}"),
            format!("high_95_{name}"),
        ],
        rows,
        colours: colours.iter().filter(is_here).cloned().collect(),
        plot: Plot::Lines {
            series: 0,
            across: Across::Words { column: 1, label: String::new() },
            panels: vec![Panel { column: 2, axis, height: HEIGHT, ends: Some((3, 4)) }],
            marks: true,
        },
    }
}
