//! Shows reads against writes: lines of equal latency over read rate and write rate.

use iotax_analysis::curve::{Grid, Located, Ray};
use iotax_model::Run;
use iotax_model::units::human;
use maud::{Markup, html};

use super::COLOURS;
use super::chart::{Axis, Cell, Chart, ChartId, Plot, Unit};
use crate::grid::{LEGEND, heading, sentence, shares};

/// Builds a section per grid, which is a target and workload with several shares of reads.
pub(super) fn sections(run: &Run, grids: &[Grid<'_>]) -> Markup {
    html! {
        @for (number, grid) in (1..).zip(grids) {
            section id=(format!("g{number}")) {
                h2 { (heading(grid)) }
                @if let Some(sentence) = sentence(grid) { p { (sentence) } }
                (chart(grid).figure(ChartId { run: run.id, workload: &format!("{}-grid", grid.target), number }))
                p.note { (LEGEND) }
            }
        }
    }
}

/// Name of the line through the target's capacities, one for each share of reads.
const MOST: &str = "at most";

fn chart(grid: &Grid<'_>) -> Chart {
    let row = |name: &str, ray: &Ray<'_>, load: &Located| -> Vec<Cell> {
        vec![
            name.into(),
            (ray.reads() * load.at).into(),
            ((1.0 - ray.reads()) * load.at).into(),
            load.interval.map(|ends| ends.low).into(),
            load.interval.map(|ends| ends.high).into(),
            if name == MOST { shares(ray) } else { String::new() }.as_str().into(),
        ]
    };
    let level = |(at, ns): (usize, &f64)| -> (String, Vec<Vec<Cell>>) {
        let name = human::time(*ns);
        let points = grid.rays.iter().filter_map(|ray| Some(row(&name, ray, ray.loads[at].as_ref()?)));
        (name.clone(), points.collect())
    };
    let most = grid.rays.iter().filter_map(|ray| Some(row(MOST, ray, ray.capacity.as_ref()?)));
    let mut lines: Vec<(String, Vec<Vec<Cell>>)> = grid.levels.iter().enumerate().map(level).collect();
    lines.push((MOST.into(), most.collect()));
    lines.retain(|(_, points)| !points.is_empty());
    let colour = |(at, (name, _)): (usize, &(String, _))| (name.clone(), format!("t{}", at % COLOURS));
    let axis =
        |label: &str, at_least: f64| Axis { label: label.into(), unit: Unit::Count, log: false, at_least };
    // Leaves room for the note at the highest write rate.
    let most_writes = grid.rays.iter().filter_map(|ray| Some((1.0 - ray.reads()) * ray.capacity?.at));
    let top = 1.12 * most_writes.fold(0.0, f64::max);
    Chart {
        key: "grid".into(),
        title: "Reads and writes a second at the same mean response time".into(),
        note: "a line for each time; further from the corner is better".into(),
        message: heading(grid),
        columns: ["response", "reads", "writes", "low_iops", "high_iops", "note"].map(Into::into).into(),
        colours: lines.iter().enumerate().map(colour).collect(),
        rows: lines.into_iter().flat_map(|(_, points)| points).collect(),
        plot: Plot::Curve {
            series: 0,
            x: 1,
            across: axis("reads/s", 0.0),
            y: 2,
            up: axis("writes/s", top),
            note: 5,
        },
    }
}
