//! Lays out tables for terminals.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Color, Table, presets};

use crate::document::{Field, Grid};
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::wrap;

/// Width in characters for wrapping texts in the first column.
const NAME: usize = 24;

/// Measures that make a table narrower. Combinations are tried in a fixed order until the table fits.
#[derive(Clone, Copy, Default)]
struct Setting {
    /// Leaves one blank between columns instead of two.
    tight: bool,
    /// Uses the shorter text of fields that have one.
    short: bool,
    /// Puts units below column names instead of next to them.
    units: bool,
    /// Wraps column heads that are wider than their columns.
    heads: bool,
    /// Breaks the last column after each comma.
    stacked: bool,
    /// Puts intervals below their estimates.
    intervals: bool,
    /// Wraps texts of several words in the first column.
    words: bool,
}

impl Setting {
    fn gap(self) -> u16 {
        if self.tight { 1 } else { 2 }
    }
}

/// Adds a table of at most `width` characters. Names and figures are not broken; columns that do not fit continue below, with the first column
/// repeated.
pub(super) fn add(text: &mut String, grid: &Grid, width: usize, colour: bool) {
    for (index, part) in parts(grid, width).iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        for line in lines(&part.0, part.1, colour) {
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
}

/// Splits a table into as many parts as the width requires. Returns each part with the measures that make it narrow enough.
fn parts(grid: &Grid, width: usize) -> Vec<(Grid, Setting)> {
    let mut setting = Setting::default();
    let steps: [fn(&mut Setting); 10] = [
        |_| (),
        |s| s.tight = true,
        |s| s.short = true,
        |s| *s = Setting { units: true, ..Setting::default() },
        |s| *s = Setting { heads: true, ..Setting::default() },
        |s| s.tight = true,
        |s| s.short = true,
        |s| s.stacked = true,
        |s| s.intervals = true,
        |s| s.words = true,
    ];
    for step in steps {
        step(&mut setting);
        if columns(grid, setting) <= width {
            return vec![(grid.clone(), setting)];
        }
    }
    let light = Setting { stacked: false, intervals: false, ..setting };
    let parts = split(grid, light, width);
    if parts.iter().all(|part| columns(part, light) <= width) {
        return parts.into_iter().map(|part| (part, light)).collect();
    }
    split(grid, setting, width).into_iter().map(|part| (part, setting)).collect()
}

/// Splits the columns into parts of at most `width` characters, starting from the last column, to keep a verdict next to its figures.
fn split(grid: &Grid, setting: Setting, width: usize) -> Vec<Grid> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for column in (1..grid.head.len()).rev() {
        if let Some(part) = parts.last_mut() {
            part.insert(0, column);
            if columns(&only(grid, part), setting) <= width {
                continue;
            }
            part.remove(0);
        }
        parts.push(vec![column]);
    }
    parts.iter().rev().map(|part| only(grid, part)).collect()
}

/// Returns a copy of the table with its first column and the columns of the given indices.
fn only(grid: &Grid, columns: &[usize]) -> Grid {
    let some =
        |row: &Vec<Field>| [&0].into_iter().chain(columns).filter_map(|at| row.get(*at).cloned()).collect();
    Grid { head: some(&grid.head), rows: grid.rows.iter().map(some).collect() }
}

/// Returns the width of the longest line of the table, in characters.
fn columns(grid: &Grid, setting: Setting) -> usize {
    let lines = lines(grid, setting, false);
    lines.iter().map(|line| line.trim_end().chars().count()).max().unwrap_or_default()
}

fn lines(grid: &Grid, setting: Setting, colour: bool) -> Vec<String> {
    let mut table = set(grid, setting);
    if colour {
        table.enforce_styling();
    }
    table.lines().collect()
}

/// Lays out the column heads, in as many lines as needed. A unit common to all columns is shown once, in the first column.
fn heads(grid: &Grid, setting: Setting) -> Vec<String> {
    let mut units: Vec<Option<&str>> = grid.head.iter().skip(1).map(|field| field.unit.as_deref()).collect();
    units.dedup();
    let has_corner = grid.head.first().is_some_and(|first| first.text.is_empty());
    let common = if let [Some(unit)] = units[..] { Some(unit).filter(|_| has_corner) } else { None };
    let head = |(column, field): (usize, &Field)| match (common, &field.unit) {
        (Some(unit), None) => vec![unit.to_owned()],
        (None, Some(unit)) if setting.heads => [broken(grid, column, setting), vec![unit.clone()]].concat(),
        (None, Some(unit)) if setting.units => vec![field.text.clone(), unit.clone()],
        (None, Some(unit)) => vec![format!("{}, {unit}", field.text)],
        _ if setting.heads => broken(grid, column, setting),
        _ => vec![field.text.clone()],
    };
    let lines: Vec<Vec<String>> = grid.head.iter().enumerate().map(head).collect();
    // All heads end on the same line.
    let most = lines.iter().map(Vec::len).max().unwrap_or_default();
    lines.iter().map(|lines| format!("{}{}", "\n".repeat(most - lines.len()), lines.join("\n"))).collect()
}

/// Returns the lines of a column head, wrapped after hyphens and between words if it is wider than the column's values.
fn broken(grid: &Grid, column: usize, setting: Setting) -> Vec<String> {
    let below = grid.rows.iter().filter_map(|row| row.get(column));
    let width = below.map(|field| field.said(setting).chars().count()).max().unwrap_or_default();
    let mut lines = vec![String::new()];
    for part in grid.head[column].text.split_inclusive(['-', ' ']) {
        match lines.last_mut() {
            Some(line)
                if line.is_empty() || line.chars().count() + part.trim_end().chars().count() <= width =>
            {
                line.push_str(part);
            }
            _ => lines.push(part.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

fn set(grid: &Grid, setting: Setting) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.force_no_tty();
    table.set_header(
        grid.head.iter().zip(heads(grid, setting)).map(|(field, text)| cell(field, text)).collect::<Vec<_>>(),
    );
    for row in &grid.rows {
        let last = row.len().saturating_sub(1);
        let cells = row.iter().enumerate().map(|(i, field)| {
            let mut text = field.said(setting).to_owned();
            if i == 0 && setting.words {
                text = wrap::lines(&text, NAME).join("\n");
            }
            if i == last && setting.stacked && !field.is_figure {
                text = text.replace(", ", ",\n");
            }
            if setting.intervals && field.is_figure {
                text = text.replace(" [", "\n[");
            }
            cell(field, text)
        });
        table.add_row(cells.collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((setting.gap(), 0));
    }
    table
}

impl Field {
    fn said(&self, setting: Setting) -> &str {
        self.short.as_deref().filter(|_| setting.short).unwrap_or(&self.text)
    }
}

fn cell(field: &Field, text: String) -> Cell {
    let cell = Cell::new(text);
    let cell = if field.is_figure { cell.set_alignment(CellAlignment::Right) } else { cell };
    match field.verdict {
        Some(Verdict::Slower) => cell.fg(Color::Red),
        Some(Verdict::Faster) => cell.fg(Color::Green),
        Some(Verdict::Undecided) => cell.fg(Color::Yellow),
        Some(Verdict::Same) | None => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{figure, words};

    const WORKLOADS: [&str; 5] =
        ["randread-4k-qd1", "randread-4k-qd32", "randwrite-4k-qd32", "seqread-1m", "seqwrite-1m"];

    fn ladder() -> Grid {
        let head = WORKLOADS.map(|name| Field { unit: Some("IOPS".into()), ..figure(name) });
        let rows = ["host-file", "vm-qcow2-snapshot"].map(|target| {
            let cells = (0..WORKLOADS.len()).map(|at| figure(format!("{at}4.2k -8{at}%")));
            [words(target)].into_iter().chain(cells).collect()
        });
        Grid { head: [words("")].into_iter().chain(head).collect(), rows: rows.to_vec() }
    }

    fn set_at(grid: &Grid, width: usize) -> String {
        let mut text = String::from("\n");
        add(&mut text, grid, width, false);
        text
    }

    #[test]
    fn heads_are_one_line_where_there_is_room_and_else_stand_above_their_own_columns() {
        let wide = "
  IOPS               randread-4k-qd1  randread-4k-qd32  randwrite-4k-qd32  seqread-1m  seqwrite-1m
  host-file               04.2k -80%        14.2k -81%         24.2k -82%  34.2k -83%   44.2k -84%
  vm-qcow2-snapshot       04.2k -80%        14.2k -81%         24.2k -82%  34.2k -83%   44.2k -84%
";
        assert_eq!(set_at(&ladder(), 120), wide);
        let narrow = "
                      randread-   randread-  randwrite-               seqwrite-
  IOPS                   4k-qd1     4k-qd32     4k-qd32  seqread-1m          1m
  host-file          04.2k -80%  14.2k -81%  24.2k -82%  34.2k -83%  44.2k -84%
  vm-qcow2-snapshot  04.2k -80%  14.2k -81%  24.2k -82%  34.2k -83%  44.2k -84%
";
        assert_eq!(set_at(&ladder(), 80), narrow);
    }

    #[test]
    fn a_head_without_a_name_adds_no_line() {
        let setting = Setting { heads: true, ..Setting::default() };
        let grid = Grid { head: vec![words(""), figure("a")], rows: vec![vec![words("x"), figure("1")]] };
        assert_eq!(lines(&grid, setting, false).len(), 2);
    }

    #[test]
    fn units_that_differ_stand_with_their_names() {
        let mut grid = ladder();
        grid.head[4].unit = Some("MB/s".into());
        assert!(set_at(&grid, 140).contains(" randread-4k-qd1, IOPS "), "{}", set_at(&grid, 140));
        let two = set_at(&grid, 120);
        assert!(two.contains(" randread-4k-qd1  randread-4k-qd32 ") && two.contains("  MB/s "), "{two}");
        let narrow = set_at(&grid, 80);
        assert!(
            narrow.contains("        IOPS        IOPS        IOPS        MB/s        IOPS\n"),
            "{narrow}"
        );
    }

    #[test]
    fn no_name_and_no_figure_is_broken() {
        let mut grid = ladder();
        let mut long = grid.rows[0].clone();
        long[0] = words("a".repeat(40));
        grid.rows.push(long);
        for width in 60..130 {
            let mut text = String::new();
            add(&mut text, &grid, width, false);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}\n{text}");
            for field in grid.rows.iter().flatten() {
                assert!(text.contains(&field.text), "{width}: {}\n{text}", field.text);
            }
            for part in grid.head.iter().flat_map(|field| field.text.split_inclusive('-')) {
                assert!(text.contains(part), "{width}: {part}\n{text}");
            }
        }
    }
}
