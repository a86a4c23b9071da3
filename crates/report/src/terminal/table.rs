//! Tables of a terminal.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Color, Table, presets};

use crate::document::{Field, Grid};
use iotax_analysis::stats::verdict::Verdict;

/// The narrowest width at which names are broken.
const NARROWEST: usize = 10;

/// The steps that make a table narrower, tried one after another.
#[derive(Clone, Copy, Default)]
struct Setting {
    /// One blank between columns instead of two.
    tight: bool,
    /// Shorter texts, where fields have one.
    short: bool,
    /// Breaks the last column after each comma.
    stacked: bool,
    /// Breaks names at this width.
    names: Option<usize>,
    /// Puts intervals below their estimates.
    intervals: bool,
}

/// Adds a table that is at most `width` wide, if that is possible without leaving anything out.
pub(super) fn add(text: &mut String, grid: &Grid, width: usize, colour: bool) {
    let mut table = fitting(grid, width);
    if colour {
        table.enforce_styling();
    }
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

fn fitting(grid: &Grid, width: usize) -> Table {
    let mut setting = Setting::default();
    let mut table = set(grid, setting);
    let steps: [fn(&mut Setting); 3] = [|s| s.tight = true, |s| s.short = true, |s| s.stacked = true];
    for step in steps {
        if columns(&table) <= width {
            return table;
        }
        step(&mut setting);
        table = set(grid, setting);
    }
    for intervals in [false, true] {
        setting = Setting { intervals, names: None, ..setting };
        table = set(grid, setting);
        let over = columns(&table).saturating_sub(width);
        if over == 0 {
            return table;
        }
        let names = grid.rows.iter().filter_map(|row| row.first());
        let longest = names.map(|field| field.said(setting).chars().count()).max().unwrap_or_default();
        setting.names = Some(longest.saturating_sub(over).max(NARROWEST));
        table = set(grid, setting);
        if columns(&table) <= width {
            return table;
        }
    }
    table
}

/// The width of the longest line.
fn columns(table: &Table) -> usize {
    table.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or_default()
}

fn set(grid: &Grid, setting: Setting) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.force_no_tty();
    let head = |field: &Field| {
        let lines = field.stacked.join("\n");
        cell(field, if lines.is_empty() { field.text.clone() } else { lines })
    };
    table.set_header(grid.head.iter().map(head).collect::<Vec<_>>());
    for row in &grid.rows {
        let last = row.len().saturating_sub(1);
        let cells = row.iter().enumerate().map(|(i, field)| {
            let mut text = field.said(setting).to_owned();
            if i == 0
                && let Some(width) = setting.names
            {
                text = broken(&text, width);
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
        column.set_padding((if setting.tight { 1 } else { 2 }, 0));
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

/// Breaks a text into lines of at most `width`: between words, after a separator within a name, else anywhere.
fn broken(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = text.chars().collect();
    while rest.len() > width {
        // A blank may stand just beyond the line.
        let at = (1..=width).rev().find(|at| rest[*at] == ' ' || "-_./ ".contains(rest[at - 1]));
        let tail = rest.split_off(at.unwrap_or(width));
        lines.push(rest.iter().collect::<String>().trim_end().to_owned());
        rest = tail.into_iter().skip_while(|c| *c == ' ').collect();
    }
    lines.push(rest.iter().collect());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_broken_where_their_parts_meet_and_lose_nothing() {
        assert_eq!(broken("vm-qcow2-snapshot", 12), "vm-qcow2-\nsnapshot");
        assert_eq!(broken("virtio-blk + guest (vm-raw)", 18), "virtio-blk + guest\n(vm-raw)");
        assert_eq!(broken("host-file", 10), "host-file");
        assert_eq!(broken("anameofonewordonly", 10), "anameofone\nwordonly");
        for width in 1..30 {
            let name = "a-very.long_name/of something";
            let lines = broken(name, width);
            assert!(lines.lines().all(|line| line.chars().count() <= width), "{width}: {lines}");
            assert_eq!(lines.replace(['\n', ' '], ""), name.replace(' ', ""));
        }
    }
}
