//! Shows reads against writes: the load at which each response time is reached, by share of reads.

use super::{Field, Grid, Page, Part, figure, words};
use crate::figure::{UNKNOWN, or_unknown};
use crate::grid::{LEGEND, apart, heading, sentence, shares};
use iotax_analysis::curve;
use iotax_model::units::human;

pub(super) fn add(page: &mut Page, grid: &curve::Grid<'_>) {
    page.add(Part::Head(heading(grid)));
    page.add(Part::Lines(sentence(grid).into_iter().collect()));
    page.add(Part::Table(table(grid)));
    page.add(Part::Lines(vec![LEGEND.into()]));
}

/// Builds a table with one row per share of reads and one column per response time.
fn table(grid: &curve::Grid<'_>) -> Grid {
    let levels = grid.levels.iter().map(|ns| figure(human::time(*ns)));
    let head = [words("read/write, %"), figure("IOPS at most")].into_iter().chain(levels);
    let row = |ray: &curve::Ray<'_>| -> Vec<Field> {
        let loads =
            ray.loads.iter().map(|load| figure(load.map_or(UNKNOWN.into(), |load| apart(ray, &load))));
        let most = or_unknown(ray.capacity.map(|most| most.at), human::count);
        [words(shares(ray)), figure(most)].into_iter().chain(loads).collect()
    };
    Grid { head: head.collect(), rows: grid.rays.iter().map(row).collect() }
}
