//! Shows several runs of the same cells side by side.

use super::{Field, Grid, Page, Part, figure, verdict, words};
use crate::figure::{UNKNOWN, bits_with, change, time_with, title};
use crate::sentences::compared::percent;
use iotax_analysis::compare::{Account, Compared, History, HistoryPoint, Track};
use iotax_analysis::{Metric, Ratio};

/// Builds the page of several runs: the runs and their differences in setup, then a table for each workload and target. The tables show the
/// mean latency (for network streams the throughput) in each run with its 95% interval, the IOPS, and the changes since the first and the
/// previous run that measured the same workload and target.
#[must_use]
pub fn history(accounts: &[Account], history: &History) -> Page {
    let mut page = Page::default();
    page.add(Part::Table(runs(accounts)));
    let differing = history.neighbours.iter().zip(accounts.windows(2));
    page.add_list("What differs", differing.flat_map(|(found, two)| changed(found.as_ref(), two)).collect());
    let of_metric = |metric: Metric| history.tracks.iter().filter(move |track| track.metric == metric);
    let crosses =
        accounts.iter().flat_map(|account| &account.workloads).any(|workload| workload.kind.is_network());
    let workload_of =
        |track: &Track| accounts.iter().flat_map(|a| &a.workloads).find(|w| w.name == track.workload);
    let leading =
        |track: &&Track| track.metric == workload_of(track).map_or(Metric::LATENCY_MEAN, Metric::leading);
    for track in history.tracks.iter().filter(leading) {
        let workload = workload_of(track);
        let does = workload.map(title).unwrap_or_default();
        let column = |metric: Metric| workload.map_or(metric.name(), |workload| metric.column(workload));
        page.add(Part::Head(format!("{}, {does} ({})", track.target, track.workload)));
        let mut grid = Grid::new(&[
            "run",
            "rounds",
            column(track.metric),
            column(Metric::IOPS),
            "vs first",
            "",
            "vs previous",
            "",
        ]);
        grid.head[5].is_figure = false;
        let iops = of_metric(Metric::IOPS)
            .find(|other| (&other.target, &other.workload) == (&track.target, &track.workload));
        for point in &track.points {
            let also = iops.and_then(|track| track.points.iter().find(|other| other.run == point.run));
            grid.rows.push(row(&accounts[point.run], track.metric, point, also));
        }
        page.add(Part::Table(grid));
    }
    page.add(Part::Sentence(format!(
        "In brackets the 95% interval over the rounds. Changes are of the mean latency{}; runs have no rounds in common and are \
         compared as two samples (Welch's t), which knows the noise within each run and not what changes from one run to the next. \
         The same is within {}.",
        if crosses { ", of streams of their throughput" } else { "" },
        percent(history.margin)
    )));
    page
}

fn runs(accounts: &[Account]) -> Grid {
    let mut grid = Grid::new(&["run", "began", "what"]);
    grid.head[1].is_figure = false;
    let row = |a: &Account| vec![words(&a.label), words(&a.started_at), words(&a.name)];
    grid.rows = accounts.iter().map(row).collect();
    grid
}

/// Returns a line per difference in setup between a run and the previous one, or one line if the two cannot be compared.
fn changed(found: Option<&Compared>, two: &[Account]) -> Vec<String> {
    let (before, after) = (&two[0].label, &two[1].label);
    let Some(compared) = found else {
        return vec![format!("{after} has no cell in common with {before}.")];
    };
    let of_cells = compared.targets.iter().flat_map(|t| t.differences.iter().map(|d| (t.name(), d)));
    let of_cells =
        of_cells.chain(compared.workloads.iter().flat_map(|w| w.differences.iter().map(|d| (w.name(), d))));
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| UNKNOWN.into());
    let machines = compared.machines.iter().map(|d| (String::new(), d));
    let mut lines = Vec::new();
    for (subject, d) in machines.chain(of_cells) {
        let subject = if subject.is_empty() { subject } else { format!("{subject}, ") };
        lines.push(format!(
            "{after} against {before}: {subject}{}: {} instead of {}",
            d.what,
            side(&d.b),
            side(&d.a)
        ));
    }
    lines
}

fn row(account: &Account, metric: Metric, point: &HistoryPoint, iops: Option<&HistoryPoint>) -> Vec<Field> {
    let mean =
        if metric.is_time() { time_with(point.mean, point.band) } else { bits_with(point.mean, point.band) };
    let note = if point.emulated { ", emulated" } else { "" };
    let mut fields = vec![
        words(format!("{}{note}", account.label)),
        figure(point.rounds.to_string()),
        figure(mean),
        figure(iops.map_or_else(|| UNKNOWN.into(), |point| Metric::IOPS.figure(point.mean))),
    ];
    for change in [&point.since_first, &point.since_previous] {
        fields.extend(change_fields(change.as_ref()));
    }
    fields
}

fn change_fields(found: Option<&Ratio>) -> [Field; 2] {
    let Some(found) = found else { return [figure(""), words("")] };
    let word = found.word();
    [figure(change(found.mean)), verdict(word, Some(found.verdict))]
}
