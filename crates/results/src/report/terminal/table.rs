//! Tables and lines of a terminal.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Color, Table, presets};

use crate::stats::verdict::Verdict;

/// A table without lines.
pub(super) fn plain(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head.iter().map(|name| right((*name).to_owned())).collect::<Vec<_>>());
    spaced(&mut table, 2);
    table
}

/// Blanks before each column.
pub(super) fn spaced(table: &mut Table, blanks: u16) {
    for column in table.column_iter_mut() {
        column.set_padding((blanks, 0));
    }
}

pub(super) fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

pub(super) fn coloured(cell: Cell, verdict: Option<Verdict>) -> Cell {
    match verdict {
        Some(Verdict::Slower) => cell.fg(Color::Red),
        Some(Verdict::Faster) => cell.fg(Color::Green),
        Some(Verdict::Undecided) => cell.fg(Color::Yellow),
        Some(Verdict::Same) | None => cell,
    }
}

/// Adds a table, set tighter if it would be wider than `width`, with ANSI colours if asked for.
pub(super) fn add_table(text: &mut String, mut table: Table, width: usize, colour: bool) {
    table.force_no_tty();
    if too_wide(&table, width) {
        spaced(&mut table, 1);
    }
    if colour {
        table.enforce_styling();
    }
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Whether a line of a table is wider, as it is set now.
pub(super) fn too_wide(table: &Table, width: usize) -> bool {
    table.lines().any(|line| line.chars().count() > width)
}

/// Broken between words; a word longer than the width stays whole.
pub(super) fn wrapped(sentence: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
