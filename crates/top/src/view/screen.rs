//! Draws the screen. All text comes from [`crate::table`], which makes it safe for a terminal.

use iotax_model::visible;
use ratatui::Frame as Terminal;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::app::{App, Page, Place};
use crate::diagnosis;
use crate::figure;
use crate::rates::Frame;
use crate::table::{self, Order, Table};

/// Rows of each table that stay on the page of all, if the screen is small.
const FEW: usize = 3;

const KEYS: &str = "q quit  ? help  a all  d devices  p processes  c cgroups  g guests  n network  s sort";

const HELP: &str = "\
q, Ctrl-C     quit
a, Esc        all: devices, guests, processes, network
d p c g n     devices, processes, control groups, guests, network
up, down      mark a row: the line at the bottom explains it
PgUp, PgDn    a page up or down; Home, End the first and the last row
s, S          sort devices by the next or the previous column
space         pause and go on; readings continue
+, -          longer or shorter interval
t, right      the next reading of a recording; T, left the previous one
], [          ten readings forward or back; b, e the first and the last
";

/// Draws the page.
pub(super) fn draw(terminal: &mut Terminal<'_>, app: &mut App) {
    let area = terminal.area();
    let mut lines = Lines { terminal, area, next: 0 };
    lines.put(&head(app), Modifier::REVERSED);
    if app.page == Page::Help {
        return help(&mut lines);
    }
    let Some(frame) = app.frame.take() else {
        let waiting = "the first interval is being measured";
        return lines
            .put(app.failure.as_deref().map_or(waiting.into(), visible::line).as_ref(), Modifier::empty());
    };
    lines.put(&visible::line(&second(app, &frame)), Modifier::empty());
    lines.put(&visible::line(&third(&frame)), Modifier::empty());
    let width = usize::from(area.width);
    let tables = tables(app, &frame, width);
    let first = tables.first().map_or(0, |table| table.rows.len());
    app.selected = app.selected.min(first.saturating_sub(1));
    // One line is the footer's.
    let heights = heights(&tables, lines.left().saturating_sub(1));
    for (index, (table, height)) in tables.iter().zip(&heights).enumerate() {
        let selected = (index == 0).then_some(app.selected);
        let fitting = lines.table(table, *height, selected);
        if index == 0 {
            app.fitting = fitting.max(1);
        }
    }
    let footer = footer(app, &frame);
    lines.next = area.height.saturating_sub(1);
    lines.put(&visible::line(&footer), Modifier::DIM);
    app.frame = Some(frame);
}

fn head(app: &App) -> String {
    let moment = app.frame.as_ref().map_or_else(String::new, table::moment);
    let place = match app.place {
        Place::Live if app.is_paused => "paused".to_owned(),
        Place::Live => format!("every {} s", app.interval.as_secs_f32()),
        Place::Recorded { at, count } => format!("reading {} of {count}", at + 1),
    };
    format!("iotax top  {}  {moment}  {place}", visible::line(&app.host))
}

/// A failure, else the source of latencies.
fn second(app: &App, frame: &Frame) -> String {
    app.failure.clone().unwrap_or_else(|| table::source(frame))
}

/// Stall times and the first remark.
fn third(frame: &Frame) -> String {
    let parts = table::pressure(frame).into_iter().chain(frame.remarks.first().cloned());
    parts.collect::<Vec<_>>().join("  ")
}

/// The tables of a page, the most important first.
fn tables(app: &App, frame: &Frame, width: usize) -> Vec<Table> {
    match app.page {
        Page::All => {
            let all = [
                table::layers(frame, app.order, width),
                table::guests(frame, width),
                table::processes(frame, width),
                table::interfaces(frame, width),
            ];
            all.into_iter().filter(|table| !table.rows.is_empty()).collect()
        }
        Page::Devices => vec![table::layers(frame, app.order, width)],
        Page::Processes => vec![table::processes(frame, width)],
        Page::Cgroups => vec![table::cgroups(frame, width)],
        Page::Guests => vec![table::guests(frame, width)],
        Page::Network => vec![table::interfaces(frame, width)],
        Page::Help => Vec::new(),
    }
}

/// The lines of each table, its head included: a few rows for each, and the rest to the first ones that have more.
fn heights(tables: &[Table], room: usize) -> Vec<usize> {
    let mut left = room;
    let mut heights: Vec<usize> = Vec::new();
    for table in tables {
        let few = (1 + table.rows.len().min(FEW)).min(left);
        left -= few;
        heights.push(few);
    }
    for (height, table) in heights.iter_mut().zip(tables) {
        let more = (1 + table.rows.len()).saturating_sub(*height).min(left);
        left -= more;
        *height += more;
    }
    heights
}

/// The marked row in words, else the keys.
fn footer(app: &App, frame: &Frame) -> String {
    let explained = match app.page {
        Page::All | Page::Devices => {
            let order = match app.order {
                Order::Stack => "stack".to_owned(),
                Order::By(index) => {
                    figure::LAYERS.get(index).map_or_else(String::new, |f| f.title.to_owned())
                }
            };
            let sorted = table::sorted(frame, app.order);
            let row = sorted.get(app.selected).map(|row| diagnosis::layer(row));
            row.map(|row| format!("[{order}] {row}"))
        }
        Page::Guests => frame.guests.get(app.selected).and_then(diagnosis::guest),
        _ => None,
    };
    explained.unwrap_or_else(|| KEYS.to_owned())
}

fn help(lines: &mut Lines<'_, '_>) {
    for line in HELP.lines() {
        lines.put(line, Modifier::empty());
    }
    lines.put("", Modifier::empty());
    let width = figure::LAYERS.iter().map(|figure| figure.title.len()).max().unwrap_or_default();
    for figure in figure::LAYERS {
        lines.put(&format!("{:<width$}  {}", figure.title, figure.help), Modifier::empty());
    }
}

/// Lines from the top of the screen down.
struct Lines<'a, 'b> {
    terminal: &'a mut Terminal<'b>,
    area: Rect,
    next: u16,
}

impl Lines<'_, '_> {
    fn left(&self) -> usize {
        usize::from(self.area.height.saturating_sub(self.next))
    }

    fn put(&mut self, text: &str, how: Modifier) {
        if self.next >= self.area.height {
            return;
        }
        let place = Rect { y: self.area.y + self.next, height: 1, ..self.area };
        // To the end of the line, so that what is reversed is a bar.
        let padded = format!("{text:<0$}", usize::from(self.area.width));
        self.terminal.render_widget(Line::styled(padded, Style::new().add_modifier(how)), place);
        self.next += 1;
    }

    /// A table in so many lines, scrolled to its marked row. Returns the number of rows that fit.
    fn table(&mut self, table: &Table, height: usize, selected: Option<usize>) -> usize {
        let Some(fitting) = height.checked_sub(1) else { return 0 };
        self.put(&table.head, Modifier::BOLD);
        let begin = selected.map_or(0, |selected| (selected + 1).saturating_sub(fitting));
        for (index, row) in table.rows.iter().enumerate().skip(begin).take(fitting) {
            let how = if selected == Some(index) { Modifier::REVERSED } else { Modifier::empty() };
            self.put(row, how);
        }
        fitting
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::rates::{GuestRates, InterfaceRates, LayerRates, ProcessRates};

    fn frame() -> Frame {
        let layer = |name: &str, depth| LayerRates {
            name: name.to_owned(),
            title: name.to_owned(),
            depth,
            read_iops: Some(1200.0),
            read_latency_ns: Some(85_000.0),
            busy: Some(0.42),
            ..LayerRates::default()
        };
        let disk = GuestRates {
            guest: "web".to_owned(),
            disk: Some("/srv/web.qcow2".to_owned()),
            device: Some("sda".to_owned()),
            guest_latency_ns: Some(2e6),
            host_latency_ns: Some(1.5e6),
            above_latency_ns: Some(5e5),
            ..GuestRates::default()
        };
        let process = |pid| ProcessRates { pid, name: "fio\u{1b}[31m".to_owned(), ..ProcessRates::default() };
        Frame {
            at_ms: Some(1_795_557_725_000),
            interval_ns: Some(1_000_000_000),
            layers: vec![layer("sda", 0), layer("sda1", 1), layer("a-very-long-name-of-a-volume", 2)],
            guests: vec![GuestRates { guest: "web".to_owned(), ..GuestRates::default() }, disk],
            processes: (1..=40).map(process).collect(),
            interfaces: vec![InterfaceRates { name: "eth0".to_owned(), ..InterfaceRates::default() }],
            ..Frame::default()
        }
    }

    fn drawn(app: &mut App, size: (u16, u16)) -> String {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("in memory");
        terminal.draw(|terminal| draw(terminal, app)).expect("in memory");
        terminal.backend().to_string()
    }

    #[test]
    fn all_fits_every_screen() {
        let mut app = App::live("box", Duration::from_secs(1));
        assert!(drawn(&mut app, (80, 24)).contains("the first interval is being measured"));
        app.show(Some(frame()));
        insta::assert_snapshot!("all_80x24", drawn(&mut app, (80, 24)));
        let wide = drawn(&mut app, (200, 60));
        assert!(wide.contains("40 fio") && !wide.contains('\u{1b}'), "{wide}");
        for size in [(10, 3), (1, 1), (300, 2)] {
            drawn(&mut app, size);
        }
    }

    #[test]
    fn the_marked_row_is_on_the_screen_and_explained() {
        let mut app = App::live("box", Duration::from_secs(1));
        app.show(Some(frame()));
        (app.page, app.selected) = (Page::Guests, 1);
        assert!(drawn(&mut app, (120, 24)).contains("1.50 ms (75%) at the host's sda"));
        (app.page, app.selected) = (Page::Processes, 39);
        let last = drawn(&mut app, (80, 24));
        assert!(last.contains("40 fio") && !last.contains("\"1 fio"), "{last}");
        app.fail("the disk is full".to_owned());
        assert!(drawn(&mut app, (80, 24)).contains("the disk is full"));
    }
}
