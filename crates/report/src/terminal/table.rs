//! Tables of a terminal.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Color, Table, presets};

use crate::document::{Field, Grid};
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::wrap;

/// The width at which texts of several words in the first column are broken.
const NAME: usize = 24;

/// The steps that make a table narrower, tried one after another.
#[derive(Clone, Copy, Default)]
struct Setting {
    /// One blank between columns instead of two.
    tight: bool,
    /// Shorter texts, where fields have one.
    short: bool,
    /// Breaks the last column after each comma.
    stacked: bool,
    /// Puts intervals below their estimates.
    intervals: bool,
    /// Breaks texts of several words in the first column between words.
    words: bool,
}

impl Setting {
    fn gap(self) -> u16 {
        if self.tight { 1 } else { 2 }
    }
}

/// Adds a table that is at most `width` wide: no name and no figure is broken, so columns that do not fit beside one another
/// follow below, again with the first column.
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

/// The table in as many parts as the width takes, each with its setting.
fn parts(grid: &Grid, width: usize) -> Vec<(Grid, Setting)> {
    let mut setting = Setting::default();
    let steps: [fn(&mut Setting); 6] = [
        |_| (),
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

/// The columns in parts of at most `width`, filled from the last column on: a verdict stays with what it judges.
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

/// The table with its first column and some of the others.
fn only(grid: &Grid, columns: &[usize]) -> Grid {
    let some =
        |row: &Vec<Field>| [&0].into_iter().chain(columns).filter_map(|at| row.get(*at).cloned()).collect();
    Grid { head: some(&grid.head), rows: grid.rows.iter().map(some).collect() }
}

/// The width of the longest line.
fn columns(grid: &Grid, setting: Setting) -> usize {
    let lines = lines(grid, setting, false);
    lines.iter().map(|line| line.trim_end().chars().count()).max().unwrap_or_default()
}

fn lines(grid: &Grid, setting: Setting, colour: bool) -> Vec<String> {
    let mut table = set(grid, setting);
    if colour {
        table.enforce_styling();
    }
    let mut lines = names(&grid.head, &table.column_max_content_widths(), setting);
    lines.extend(table.lines());
    lines
}

/// The lines of names above a head of units: each name ends where its column ends, on the lowest line that has room for it, so
/// that columns may be narrower than their names.
fn names(head: &[Field], widths: &[u16], setting: Setting) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut end = 0;
    for (field, width) in head.iter().zip(widths) {
        end += usize::from(*width) + usize::from(setting.gap());
        if field.unit.is_none() {
            continue;
        }
        let begin = end.saturating_sub(field.text.chars().count());
        let has_room = |line: &String| line.is_empty() || line.chars().count() + 2 <= begin;
        let line = lines.iter().position(has_room).unwrap_or_else(|| {
            lines.push(String::new());
            lines.len() - 1
        });
        let blanks = begin.saturating_sub(lines[line].chars().count());
        let _ = write!(lines[line], "{:blanks$}{}", "", field.text);
    }
    lines.reverse();
    lines
}

fn set(grid: &Grid, setting: Setting) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.force_no_tty();
    let head = |field: &Field| cell(field, field.unit.as_ref().unwrap_or(&field.text).clone());
    table.set_header(grid.head.iter().map(head).collect::<Vec<_>>());
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

    #[test]
    fn names_stand_above_narrower_columns() {
        let mut text = String::new();
        add(&mut text, &ladder(), 80, false);
        let expected = "
                           randread-4k-qd32                         seqwrite-1m
                randread-4k-qd1       randwrite-4k-qd32  seqread-1m
                           IOPS        IOPS        IOPS        IOPS        IOPS
  host-file          04.2k -80%  14.2k -81%  24.2k -82%  34.2k -83%  44.2k -84%
  vm-qcow2-snapshot  04.2k -80%  14.2k -81%  24.2k -82%  34.2k -83%  44.2k -84%
";
        assert_eq!(text, expected.trim_start_matches('\n'));
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
            let fields = grid.head.iter().chain(grid.rows.iter().flatten());
            for field in fields {
                assert!(text.contains(&field.text), "{width}: {}\n{text}", field.text);
            }
        }
    }
}
