//! Draws a surface over file and record sizes as SVG, because the bundled plotting library cannot draw surfaces.
//!
//! The view is isometric: record sizes run to the lower right, file sizes to the lower left, bandwidth up. Facets are drawn back to front
//! (painter's algorithm). Colours come from the style sheet, so that the surface follows light and dark mode.

use std::fmt::Write as _;

use iotax_model::units::human;
use maud::{Markup, PreEscaped, html};

use crate::sweep::Map;

/// Width of the picture in SVG units; `HEIGHT` is its height.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 400.0;
/// Position of the floor's rear corner in SVG units.
const REAR: (f64, f64) = (280.0, 170.0);
/// Half the width and half the height of the floor in SVG units.
const FLOOR: (f64, f64) = (220.0, 92.0);
/// Height of the largest value above the floor in SVG units.
const TOP: f64 = 145.0;
/// Number of labelled levels above the floor.
const LEVELS: u32 = 4;

/// Projects a point into the picture: its position on the floor and its height, each from 0 to 1.
fn project(record: f64, file: f64, height: f64) -> (f64, f64) {
    (REAR.0 + (record - file) * FLOOR.0, REAR.1 + (record + file) * FLOOR.1 - height * TOP)
}

/// Draws the surface; empty with fewer than two file sizes or record sizes, or if all values are 0.
pub(super) fn figure(map: &Map, name: &str) -> Markup {
    let most = map.bytes_per_s.iter().flatten().flatten().copied().fold(0.0, f64::max);
    if map.files.len() < 2 || map.records.len() < 2 || most <= 0.0 {
        return html! {};
    }
    let mut svg = String::new();
    walls(&mut svg, most);
    edges(&mut svg, map);
    fields(&mut svg, map, most);
    let label = format!("{name}: a surface of the figures in the map beside it, up to {}", human::rate(most));
    html! {
        figure {
            figcaption { b { "The same as a surface" } ", " (name) }
            svg.surface viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(label) { (PreEscaped(svg)) }
        }
    }
}

/// Returns the position (0 to 1) along an edge of point `index` among `count` points.
fn along(index: usize, count: usize) -> f64 {
    index as f64 / (count - 1) as f64
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64)) {
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

/// Adds a label. The text is not escaped, because labels are only sizes and rates.
fn text(svg: &mut String, at: (f64, f64), anchor: &str, words: &str) {
    let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{words}</text>", at.0, at.1);
}

/// Draws the two rear walls, with a line and a label at each level.
fn walls(svg: &mut String, most: f64) {
    for level in 0..=LEVELS {
        let height = f64::from(level) / f64::from(LEVELS);
        let [left, rear, right] =
            [project(0.0, 1.0, height), project(0.0, 0.0, height), project(1.0, 0.0, height)];
        line(svg, left, rear);
        line(svg, rear, right);
        text(svg, (left.0 - 6.0, left.1 + 4.0), "end", &human::rate(most * height));
    }
    for (record, file) in [(0.0, 1.0), (0.0, 0.0), (1.0, 0.0)] {
        line(svg, project(record, file, 0.0), project(record, file, 1.0));
    }
}

/// Draws the grid on the floor, with the sizes along its front edges.
fn edges(svg: &mut String, map: &Map) {
    // The most labels that fit along an edge.
    const WORDS: usize = 7;
    let every = |count: usize| count.div_ceil(WORDS).max(1);
    for (index, record) in map.records.iter().enumerate() {
        let at = along(index, map.records.len());
        line(svg, project(at, 0.0, 0.0), project(at, 1.0, 0.0));
        if index % every(map.records.len()) == 0 {
            let label_at = project(at, 1.0, 0.0);
            text(svg, (label_at.0 - 4.0, label_at.1 + 15.0), "end", &record.to_string());
        }
    }
    for (index, file) in map.files.iter().enumerate() {
        let at = along(index, map.files.len());
        line(svg, project(0.0, at, 0.0), project(1.0, at, 0.0));
        if index % every(map.files.len()) == 0 {
            let label_at = project(1.0, at, 0.0);
            text(svg, (label_at.0 + 4.0, label_at.1 + 15.0), "start", &file.to_string());
        }
    }
    let (records, files) = (project(0.5, 1.0, 0.0), project(1.0, 0.5, 0.0));
    text(svg, (records.0 - 40.0, records.1 + 36.0), "end", "record size");
    text(svg, (files.0 + 40.0, files.1 + 36.0), "start", "file size");
}

/// Draws the facets of the surface: each joins four adjacent points, or three if the fourth was not measured.
fn fields(svg: &mut String, map: &Map, most: f64) {
    let corner = |file: usize, record: usize| {
        let value = map.bytes_per_s[file][record]? / most;
        Some((project(along(record, map.records.len()), along(file, map.files.len()), value), value))
    };
    let mut cells: Vec<(usize, usize)> =
        (0..map.files.len() - 1).flat_map(|f| (0..map.records.len() - 1).map(move |r| (f, r))).collect();
    // Back to front.
    let depth =
        |(file, record): &(usize, usize)| along(*file, map.files.len()) + along(*record, map.records.len());
    cells.sort_by(|a, b| depth(a).total_cmp(&depth(b)));
    for (f, r) in cells {
        let around = [corner(f, r), corner(f, r + 1), corner(f + 1, r + 1), corner(f + 1, r)];
        let known: Vec<((f64, f64), f64)> = around.into_iter().flatten().collect();
        if known.len() < 3 {
            continue;
        }
        let height = known.iter().map(|(_, value)| value).sum::<f64>() / known.len() as f64;
        let points: Vec<String> = known.iter().map(|((x, y), _)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(svg, "<polygon points=\"{}\" style=\"fill:{}\"/>", points.join(" "), shade(height));
    }
}

/// Returns the colour of a height from 0 to 1, on the colour scale of the heat maps.
fn shade(height: f64) -> String {
    let (from, to, share) =
        if height < 0.5 { ("h0", "h1", height * 2.0) } else { ("h1", "h2", height * 2.0 - 1.0) };
    format!("color-mix(in srgb,var(--{to}) {:.0}%,var(--{from}))", share.clamp(0.0, 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use iotax_model::Bytes;

    use super::*;

    fn map(values: Vec<Vec<Option<f64>>>) -> Map {
        let sizes = |count: usize, unit: u64| (0..count).map(|i| Bytes(unit << i)).collect();
        Map { records: sizes(values[0].len(), 4096), files: sizes(values.len(), 65_536), bytes_per_s: values }
    }

    #[test]
    fn a_field_stands_between_each_four_and_three_suffice() {
        let all = figure(&map(vec![vec![Some(1e6), Some(2e6), Some(3e6)]; 3]), "reread").into_string();
        assert_eq!(all.matches("<polygon").count(), 4);
        let rows = vec![vec![Some(1e6), None, None], vec![Some(1e6), Some(2e6), None], vec![Some(1e6); 3]];
        let some = figure(&map(rows), "reread").into_string();
        assert_eq!(some.matches("<polygon").count(), 3, "of the fourth only one corner is known");
        assert!(some.contains("65536") || some.contains(">64k<"), "{some}");
    }

    #[test]
    fn what_is_in_front_is_drawn_later() {
        let text = figure(&map(vec![vec![Some(1e6); 3]; 3]), "x").into_string();
        let lowest = |polygon: &str| -> f64 {
            let points = polygon.split('"').nth(1).unwrap_or_default();
            let ys = points.split(' ').filter_map(|pair| pair.split(',').nth(1)?.parse::<f64>().ok());
            ys.fold(0.0, f64::max)
        };
        let order: Vec<f64> = text.split("<polygon ").skip(1).map(lowest).collect();
        assert!(order.len() == 4 && order.windows(2).all(|two| two[0] <= two[1] + 0.01), "{order:?}");
    }

    #[test]
    fn one_row_is_no_surface() {
        assert_eq!(figure(&map(vec![vec![Some(1e6); 3]]), "x").into_string(), "");
        assert_eq!(figure(&map(vec![vec![None; 3]; 3]), "x").into_string(), "");
    }
}
