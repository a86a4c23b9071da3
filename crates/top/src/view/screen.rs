//! Draws the screen. All text is safe for a terminal: it comes from [`crate::table`], which escapes it, or passes through [`visible`].

use iotax_model::{visible, wrap};
use ratatui::Frame as Terminal;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::app::{App, FramePosition};
use crate::diagnosis::{self, Heat};
use crate::figure::{self, Figure};
use crate::rates::Frame;
use crate::table::{self, Table, TableKind, TableOptions};

/// Number of rows that each table gets on a small screen before the remaining lines go to the first tables.
const FEW: usize = 3;

/// Screen height in lines below which the sources of the figures are left out and explanations are shortened.
const LOW: usize = 20;

const KEYS: &str = "q quit  ? help  / filter  s sort  < > columns  a all  d p c g n one table";

const HELP: [(&str, &str); 11] = [
    ("q", "quit"),
    ("?", "this help; ? or Esc closes it"),
    ("/", "filter: rows with a text; Esc ends it"),
    ("s S", "sort by another column, marked *"),
    ("< >", "scroll columns: +2> is two more"),
    ("l", "layers in their stack, or a list"),
    ("space", "pause and go on"),
    ("+ -", "longer or shorter interval"),
    ("a d p c g n", "all; devices, processes, cgroups, guests or network alone"),
    ("arrows", "mark a row, also PgUp, PgDn, Home, End: the bottom says why it is slow"),
    ("t T ] [ b e", "a recording's next or previous reading, ten on or back, first, last"),
];

const COLOURS: &str = "Yellow: busy for 60% of the time. Red: for 90%, with two I/Os or more in flight, or packets are lost. Busy is not the \
                       share of what a device can do; `iotax curve` measures that.";

/// Draws the whole screen: the current page with its tables, or the help.
pub(super) fn draw(terminal: &mut Terminal<'_>, app: &mut App) {
    let area = terminal.area();
    let mut lines = Lines { terminal, area, next: 0 };
    lines.put(&head(app), Style::new().add_modifier(Modifier::REVERSED));
    let Some(frame) = app.frame.take() else {
        let waiting = "the first interval is being measured";
        return lines.prose(app.failure.as_deref().unwrap_or(waiting), 4);
    };
    if let Some(first) = app.help {
        app.help = Some(help(&mut lines, app, &frame, first));
    } else {
        page(&mut lines, app, &frame);
    }
    app.frame = Some(frame);
}

fn page(lines: &mut Lines<'_, '_>, app: &mut App, frame: &Frame) {
    let width = usize::from(lines.area.width);
    let is_low = usize::from(lines.area.height) < LOW;
    lines.prose(&stalls(app, frame), 2);
    if !is_low {
        lines.prose(&origin(frame), 2);
    }
    let tables = tables(app, frame, width);
    let first = tables.first().cloned().unwrap_or_default();
    mark(app, &first);
    let footer = wrap::lines(&visible::line(&footer(app, frame, &first)), width);
    let most = if is_low { 2 } else { 4 };
    // One more line below the footer lists the keys.
    let kept = most.min(footer.len()) + 1;
    let heights = heights(&tables, lines.left().saturating_sub(kept));
    for (index, (table, height)) in tables.iter().zip(&heights).enumerate() {
        let selected = (index == 0).then_some(app.selected);
        let fitting = lines.table(table, *height, selected);
        if index == 0 {
            app.fitting = fitting.max(1);
        }
    }
    lines.next = lines.next.max(lines.area.height.saturating_sub(u16::try_from(kept).unwrap_or(u16::MAX)));
    lines.first_of(&footer, most);
    lines.put(&keys(app), Style::new().add_modifier(Modifier::DIM));
}

/// Keeps the mark on the same row after the rows were sorted again.
fn mark(app: &mut App, table: &Table) {
    let rows = &table.rows;
    if !app.has_moved
        && let Some(at) = rows.iter().position(|row| Some(&row.key) == app.pinned.as_ref())
    {
        app.selected = at;
    }
    app.selected = app.selected.min(rows.len().saturating_sub(1));
    if std::mem::take(&mut app.has_moved) {
        app.pinned = rows.get(app.selected).map(|row| row.key.clone());
    }
}

fn head(app: &App) -> String {
    let moment = app.frame.as_ref().map_or_else(String::new, table::moment);
    let frame_position = match app.position {
        FramePosition::Live if app.is_paused => "paused".to_owned(),
        FramePosition::Live => format!("every {} s", app.interval.as_secs_f32()),
        FramePosition::Recorded { at, count } => format!("reading {} of {count}", at + 1),
    };
    format!("iotax top  {frame_position}  {}  {moment}", visible::line(&app.host))
}

/// Returns the error of the last reading, else the shares of time in which tasks waited.
fn stalls(app: &App, frame: &Frame) -> String {
    app.failure.clone().or_else(|| table::pressure(frame)).unwrap_or_default()
}

/// Returns the source of the latencies, and the sources that could not be read.
fn origin(frame: &Frame) -> String {
    [table::source(frame)].into_iter().chain(frame.remarks.iter().cloned()).collect::<Vec<_>>().join("; ")
}

/// Lays out the tables of the page, the most important first; all but the first are left out if empty.
fn tables(app: &App, frame: &Frame, width: usize) -> Vec<Table> {
    let kinds = app.page.tables();
    let laid_out = kinds.iter().map(|kind| {
        let options = TableOptions {
            width,
            by: app.by.get(kind).copied(),
            is_flat: app.is_flat,
            skip: app.skip,
            filter: &app.filter,
        };
        table::table(*kind, frame, &options)
    });
    laid_out
        .enumerate()
        .filter(|(at, table)| *at == 0 || !table.rows.is_empty())
        .map(|(_, table)| table)
        .collect()
}

/// Distributes the lines of the screen among tables, headings included: one row each, then up to [`FEW`], then the rest to the first tables
/// with more rows.
fn heights(tables: &[Table], room: usize) -> Vec<usize> {
    let mut left = room;
    let mut heights = vec![0; tables.len()];
    for most in [1, FEW, usize::MAX - 1] {
        for (height, table) in heights.iter_mut().zip(tables) {
            let more = (1 + table.rows.len().min(most)).saturating_sub(*height).min(left);
            left -= more;
            *height += more;
        }
    }
    heights
}

/// Explains the marked row: a diagnosis of a device or of a guest's disk, for other rows the text without truncation.
fn footer(app: &App, frame: &Frame, table: &Table) -> String {
    let Some(row) = table.rows.get(app.selected) else {
        return if app.filter.is_empty() { String::new() } else { format!("no row has {:?}", app.filter) };
    };
    let explained = match app.page.tables()[0] {
        TableKind::Layers => {
            let found = frame.layers.iter().find(|layer| layer.name == row.key);
            found.map(|layer| diagnosis::layer(frame, layer))
        }
        TableKind::Guests => {
            let is_it = |guest: &&crate::rates::GuestRates| table::guest_key(guest) == row.key;
            frame.guests.iter().find(is_it).and_then(diagnosis::guest)
        }
        TableKind::Processes | TableKind::Cgroups | TableKind::Interfaces => None,
    };
    explained.unwrap_or_else(|| row.whole.clone())
}

/// Formats the filter, if set, and the list of keys.
fn keys(app: &App) -> String {
    let filter = visible::line(&app.filter);
    match (app.is_typing, app.filter.is_empty()) {
        (true, _) => format!("/{filter}_  Enter keeps the filter, Esc ends it"),
        (false, false) => format!("filter /{filter} (Esc ends it)  {KEYS}"),
        (false, true) => KEYS.to_owned(),
    }
}

/// Shows the help from line `first`, or earlier so that it fills the screen. Returns the first line shown.
fn help(lines: &mut Lines<'_, '_>, app: &mut App, frame: &Frame, first: usize) -> usize {
    let width = usize::from(lines.area.width);
    let keys = HELP.map(|(key, text)| (key, text.to_owned()));
    let columns = match app.page.tables()[0] {
        TableKind::Layers => explained(figure::LAYERS),
        TableKind::Guests => explained(figure::GUESTS),
        TableKind::Processes => explained(figure::PROCESSES),
        TableKind::Cgroups => explained(figure::CGROUPS),
        TableKind::Interfaces => explained(figure::INTERFACES),
    };
    let mut text = in_pairs(&keys, width);
    text.extend(in_pairs(&columns, width));
    text.extend(wrap::lines(COLOURS, width));
    if usize::from(lines.area.height) < LOW {
        text.extend(wrap::lines(&visible::line(&origin(frame)), width));
    }
    // A line at the bottom explains how to scroll and how to close the help.
    let fitting = lines.left().saturating_sub(1);
    let first = first.min(text.len().saturating_sub(fitting));
    for line in text.iter().skip(first).take(fitting) {
        lines.put(line, Style::new());
    }
    app.fitting = fitting.max(1);
    let below = text.len().saturating_sub(first + fitting);
    let more = if below > 0 { format!("  down: {below} more lines") } else { String::new() };
    lines.next = lines.area.height.saturating_sub(1);
    lines.put(&format!("? closes{more}"), Style::new().add_modifier(Modifier::DIM));
    first
}

fn explained<R>(figures: &'static [Figure<R>]) -> Vec<(&'static str, String)> {
    figures.iter().map(|figure| (figure.title, figure.help.to_owned())).collect()
}

/// Lays out explanations, two on a line if both fit, and wrapped if one does not.
fn in_pairs(entries: &[(&str, String)], width: usize) -> Vec<String> {
    let half = width / 2;
    let mut lines: Vec<String> = Vec::new();
    let mut has_room = false;
    for (name, text) in entries {
        let whole = format!("{name:<6} {text}");
        let fits = whole.chars().count() < half;
        if fits
            && has_room
            && let Some(line) = lines.last_mut()
        {
            *line = format!("{line:<half$}{whole}");
        } else {
            let wrapped = wrap::lines(text, width.saturating_sub(name.len().max(6) + 1).max(1));
            lines.extend(wrapped.iter().enumerate().map(|(at, line)| {
                format!("{:<6} {line}", if at == 0 { (*name).to_owned() } else { " ".repeat(name.len()) })
            }));
        }
        has_room = fits && !has_room;
    }
    lines
}

/// Draws lines from the top of the screen down; lines that do not fit are dropped.
struct Lines<'a, 'b> {
    terminal: &'a mut Terminal<'b>,
    area: Rect,
    next: u16,
}

impl Lines<'_, '_> {
    fn left(&self) -> usize {
        usize::from(self.area.height.saturating_sub(self.next))
    }

    fn put(&mut self, text: &str, how: Style) {
        if self.next >= self.area.height {
            return;
        }
        let row_area = Rect { y: self.area.y + self.next, height: 1, ..self.area };
        let width = usize::from(self.area.width);
        // Pad to the full width, so that reverse video shows as a bar.
        let padded = format!("{:<width$}", wrap::cut(text, width));
        self.terminal.render_widget(Line::styled(padded, how), row_area);
        self.next += 1;
    }

    /// Draws a text, wrapped to at most `most` lines.
    fn prose(&mut self, text: &str, most: usize) {
        let broken = wrap::lines(&visible::line(text), usize::from(self.area.width));
        self.first_of(&broken, most);
    }

    /// Draws at most `most` of these lines, with a `+` at the end of the last if lines were left out.
    fn first_of(&mut self, broken: &[String], most: usize) {
        for (index, line) in broken.iter().take(most).enumerate() {
            let width = usize::from(self.area.width);
            let is_cut = index + 1 == most && broken.len() > most;
            let line = if is_cut { wrap::cut(&format!("{line:<width$}+"), width) } else { line.clone() };
            self.put(&line, Style::new());
        }
    }

    /// Draws a table in `height` lines, scrolled to its marked row. Returns the number of rows that fit.
    fn table(&mut self, table: &Table, height: usize, selected: Option<usize>) -> usize {
        let Some(fitting) = height.checked_sub(1) else { return 0 };
        let hidden = table.rows.len().saturating_sub(fitting);
        self.put(&table.head(hidden), Style::new().add_modifier(Modifier::BOLD));
        let begin = selected.map_or(0, |selected| (selected + 1).saturating_sub(fitting));
        for (index, row) in table.rows.iter().enumerate().skip(begin).take(fitting) {
            let how = match row.heat {
                Heat::Calm => Style::new(),
                Heat::Warm => Style::new().fg(Color::Yellow),
                Heat::Hot => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            };
            let is_marked = selected == Some(index);
            self.put(&row.text, if is_marked { how.add_modifier(Modifier::REVERSED) } else { how });
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
    use crate::rates::{GuestRates, InterfaceRates, LayerRates, PressureRates, ProcessRates};
    use crate::raw::PercentileSource;
    use crate::view::app::Page;

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
        let full = LayerRates { busy: Some(1.0), queue: Some(31.0), ..layer("nvme0n1", 0) };
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
            layers: vec![layer("sda", 0), layer("sda1", 1), layer("a-very-long-name-of-a-volume", 2), full],
            guests: vec![GuestRates { guest: "web".to_owned(), ..GuestRates::default() }, disk],
            processes: (1..=40).map(process).collect(),
            interfaces: vec![InterfaceRates { name: "eth0".to_owned(), ..InterfaceRates::default() }],
            pressure: Some(PressureRates { io_some: Some(0.25), ..PressureRates::default() }),
            percentiles: PercentileSource::Unknown(
                "the kernel takes no BPF maps from this process (root may)".to_owned(),
            ),
            remarks: vec!["12 of 40 processes hide their I/O".to_owned()],
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
        insta::assert_snapshot!("all_50x15", drawn(&mut app, (50, 15)));
        app.skip = 7;
        let right = drawn(&mut app, (50, 15));
        assert!(right.contains("LAYER<7") && right.contains(" queue "), "{right}");
        let wide = drawn(&mut app, (200, 60));
        assert!(wide.contains("40 fio") && !wide.contains('\u{1b}'), "{wide}");
        for size in [(10, 3), (1, 1), (300, 2)] {
            for help in [None, Some(0)] {
                app.help = help;
                drawn(&mut app, size);
            }
        }
    }

    #[test]
    fn the_help_fits_a_usual_terminal_and_scrolls_on_a_small_one() {
        let mut app = App::live("box", Duration::from_secs(1));
        app.show(Some(frame()));
        app.help = Some(0);
        insta::assert_snapshot!("help_80x24", drawn(&mut app, (80, 24)));
        let top = drawn(&mut app, (50, 15));
        assert!(top.contains("more lines") && !top.contains("discarded"), "{top}");
        app.help = Some(usize::MAX / 2);
        let end = drawn(&mut app, (50, 15));
        assert!(
            end.contains("measures that") && end.contains("(root may)") && !end.contains("more lines"),
            "{end}"
        );
    }

    #[test]
    fn the_busiest_stack_is_first_coloured_by_saturation_and_the_mark_stays_with_its_row() {
        let mut app = App::live("box", Duration::from_secs(1));
        let mut frame = frame();
        app.show(Some(frame.clone()));
        let drawing = |app: &mut App| {
            let mut terminal = Terminal::new(TestBackend::new(100, 30)).expect("in memory");
            terminal.draw(|terminal| draw(terminal, app)).expect("in memory");
            let buffer = terminal.backend().buffer().clone();
            let at = |y: u16| (0..100).map(|x| buffer[(x, y)].symbol()).collect::<String>();
            let found = |name: &str| (0..30).find(|y| at(*y).starts_with(name)).expect("a row");
            (found("nvme0n1"), found("sda"), buffer[(0, found("nvme0n1"))].fg, buffer.clone())
        };
        let (full, calm, colour, _) = drawing(&mut app);
        assert!(full < calm && colour == Color::Red, "{full} {calm} {colour:?}");
        (app.selected, app.has_moved) = (1, true);
        drawing(&mut app);
        frame.layers[0].busy = Some(1.0);
        frame.layers[3].busy = Some(0.1);
        app.show(Some(frame));
        let (idle, busy, colour, buffer) = drawing(&mut app);
        assert!(busy < idle && colour == Color::Reset, "{busy} {idle} {colour:?}");
        assert!(buffer[(0, busy)].modifier.contains(Modifier::REVERSED), "the mark went with sda");
    }

    #[test]
    fn a_filter_leaves_the_rows_that_have_it() {
        let mut app = App::live("box", Duration::from_secs(1));
        app.show(Some(frame()));
        app.filter = "WEB".to_owned();
        let shown = drawn(&mut app, (80, 24));
        assert!(shown.contains("web.qcow2") && !shown.contains("sda1") && !shown.contains("eth0"), "{shown}");
        assert!(shown.contains("filter /WEB (Esc ends it)"), "{shown}");
    }

    #[test]
    fn the_marked_row_is_on_the_screen_and_explained() {
        let mut app = App::live("box", Duration::from_secs(1));
        app.show(Some(frame()));
        (app.page, app.selected) = (Page::Guests, 1);
        assert!(drawn(&mut app, (120, 24)).contains("1.50 ms (75%) at the host's sda"));
        (app.page, app.selected) = (Page::Devices, 3);
        assert!(drawn(&mut app, (80, 24)).contains("a-very-long-name-of-a-volume: 42% busy"));
        (app.page, app.selected) = (Page::Processes, 39);
        let last = drawn(&mut app, (80, 24));
        assert!(last.contains("40 fio") && !last.contains("\"1 fio"), "{last}");
        app.fail("the disk is full".to_owned());
        assert!(drawn(&mut app, (80, 24)).contains("the disk is full"));
    }
}
