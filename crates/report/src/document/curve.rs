//! Shows latency against offered load: sentences, a plot and a table for each workload.

use super::{Field, Grid, Page, Part, figure};
use crate::curve::{heading, legend, sentences};
use crate::figure::{UNKNOWN, or_unknown};
use crate::plot::{Line, plot};
use iotax_analysis::Judgement;
use iotax_analysis::curve::{Curve, Curves, RatePoint};
use iotax_model::Run;
use iotax_model::units::human;

/// Adds to the page a heading, a sentence per target, a plot, and tables of response times by rate.
pub(super) fn add(page: &mut Page, run: &Run, judgement: &Judgement, curves: &Curves<'_>) {
    page.add(Part::Head(heading(curves)));
    page.add(Part::Lines(sentences(judgement, curves, &run.plan.baseline)));
    let alone = curves.targets.len() == 1;
    let drawn = plot(&lines(curves), human::count, human::time);
    if !drawn.is_empty() {
        page.add(Part::Lines(vec![caption(curves)]));
        page.add(Part::Plot(drawn));
    }
    page.add(Part::Table(if alone { in_full(&curves.targets[0].points) } else { side_by_side(curves) }));
    page.add(Part::Lines(vec![legend(alone)]));
}

/// Returns the letter that marks a target in the plot; `None` with a single target.
fn letter(curves: &Curves<'_>, number: usize) -> Option<char> {
    ('A'..='Z').cycle().nth(number).filter(|_| curves.targets.len() > 1)
}

/// Formats the caption of the plot: `Mean response time by IOPS due (A host-file, B vm-raw):`
fn caption(curves: &Curves<'_>) -> String {
    let named =
        |(number, curve): (usize, &Curve<'_>)| Some(format!("{} {}", letter(curves, number)?, curve.target));
    let names: Vec<String> = curves.targets.iter().enumerate().filter_map(named).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    format!("Mean response time by IOPS due{names}:")
}

/// Returns a plot line per target: the mean response time at each rate that the target sustained.
fn lines(curves: &Curves<'_>) -> Vec<Line> {
    let point = |point: &RatePoint<'_>| {
        Some((point.offered, point.response_mean().filter(|_| point.is_sustained())?))
    };
    let line = |(number, curve): (usize, &Curve<'_>)| Line {
        mark: letter(curves, number),
        points: curve.points.iter().filter_map(point).collect(),
    };
    curves.targets.iter().enumerate().map(line).collect()
}

/// Builds the table of a single target: a row per rate, with the share of I/Os completed in time, response times and CPU time.
fn in_full(points: &[RatePoint<'_>]) -> Grid {
    let mut grid = Grid::new(&["IOPS due", "done", "kept", "mean", "p50", "p99", "p99.9", "CPU/IO"]);
    grid.head.iter_mut().for_each(|field| field.is_figure = true);
    let row = |point: &RatePoint<'_>| -> Vec<Field> {
        let times =
            [point.response_mean()].into_iter().chain([0.5, 0.99, 0.999].map(|q| point.response_quantile(q)));
        let times = times.map(|ns| figure(or_unknown(ns.filter(|_| point.is_sustained()), human::time)));
        let rates = [Some(point.offered), point.achieved].map(|rate| figure(or_unknown(rate, human::count)));
        let kept = figure(or_unknown(point.kept(), share));
        rates
            .into_iter()
            .chain([kept])
            .chain(times)
            .chain([figure(or_unknown(point.cpu_per_io, human::time))])
            .collect()
    };
    grid.rows = points.iter().map(row).collect();
    grid
}

/// Formats a share in percent, rounded down: `98.0%`. A share just below a limit is not shown as the limit.
fn share(kept: f64) -> String {
    format!("{:.1}%", (1000.0 * kept).floor() / 10.0)
}

/// Builds a table with a row per rate and a column per target, which holds mean and p99.
fn side_by_side(curves: &Curves<'_>) -> Grid {
    let mut grid = Grid::new(&["IOPS due"]);
    grid.head[0].is_figure = true;
    let head = |target: &str| Field { unit: Some("mean / p99".into()), ..figure(target) };
    grid.head.extend(curves.targets.iter().map(|curve| head(curve.target)));
    let mut rates: Vec<(&str, f64)> = Vec::new();
    for point in curves.targets.iter().flat_map(|curve| &curve.points) {
        if rates.iter().all(|(known, _)| *known != point.workload.name) {
            rates.push((&point.workload.name, point.offered));
        }
    }
    rates.sort_by(|a, b| a.1.total_cmp(&b.1));
    let row = |(name, offered): (&str, f64)| -> Vec<Field> {
        let of_target = curves.targets.iter().map(|curve| {
            let point = curve.points.iter().find(|point| point.workload.name == name);
            figure(point.filter(|point| point.is_sustained()).map_or_else(|| UNKNOWN.into(), mean_and_p99))
        });
        [figure(human::count(offered))].into_iter().chain(of_target).collect()
    };
    grid.rows = rates.into_iter().map(row).collect();
    grid
}

/// Formats the mean and the 99th percentile of response times: `85.2 us / 310 us`.
fn mean_and_p99(point: &RatePoint<'_>) -> String {
    let [mean, p99] =
        [point.response_mean(), point.response_quantile(0.99)].map(|ns| or_unknown(ns, human::time));
    format!("{mean} / {p99}")
}
