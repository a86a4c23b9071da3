//! State of the screen, and its changes by keys.

use std::collections::BTreeMap;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::rates::Frame;
use crate::table::TableKind;

/// Intervals that `+` and `-` step through.
const INTERVALS: [Duration; 8] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
];

/// Number of frames that `[` and `]` skip.
const LEAP: usize = 10;

/// Pages of the screen: all tables, or one table each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    All,
    Devices,
    Processes,
    Cgroups,
    Guests,
    Network,
}

impl Page {
    /// Returns the tables of the page; sorting and the marked row belong to the first one.
    pub(super) const fn tables(self) -> &'static [TableKind] {
        match self {
            Self::All => &[TableKind::Layers, TableKind::Guests, TableKind::Processes, TableKind::Interfaces],
            Self::Devices => &[TableKind::Layers],
            Self::Processes => &[TableKind::Processes],
            Self::Cgroups => &[TableKind::Cgroups],
            Self::Guests => &[TableKind::Guests],
            Self::Network => &[TableKind::Interfaces],
        }
    }
}

/// Source of the shown frame: the live machine, or a position in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramePosition {
    Live,
    Recorded { at: usize, count: usize },
}

/// Reaction of the main loop to a key: continue or quit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Quit,
}

/// State of the screen: the shown frame, the page, sorting, filter and marked row.
#[derive(Debug)]
pub(super) struct App {
    pub(super) host: String,
    pub(super) frame: Option<Frame>,
    /// Reason why the last reading failed; `None` if it succeeded.
    pub(super) failure: Option<String>,
    pub(super) page: Page,
    /// Index of the first visible line of the help; `None` if the help is closed.
    pub(super) help: Option<usize>,
    /// Index of the figure by which each table is sorted; a table without an entry is sorted by load.
    pub(super) by: BTreeMap<TableKind, usize>,
    /// True to show devices as one list instead of a tree.
    pub(super) is_flat: bool,
    /// Number of figure columns scrolled past on the left.
    pub(super) skip: usize,
    /// Text that the shown rows must contain.
    pub(super) filter: String,
    /// True while keys edit the filter instead of having their usual effects.
    pub(super) is_typing: bool,
    pub(super) position: FramePosition,
    pub(super) interval: Duration,
    pub(super) is_paused: bool,
    /// Index of the marked row in the page's first table.
    pub(super) selected: usize,
    /// Key of the marked row, so that the mark stays on this row in later frames; `None` to mark the first row.
    pub(super) pinned: Option<String>,
    /// True if the mark was moved since the last drawing.
    pub(super) has_moved: bool,
    /// Number of rows of the first table, or lines of the help, that fit on the screen; PgUp and PgDn move by this number. 1 before drawing.
    pub(super) fitting: usize,
}

impl App {
    pub(super) fn live(host: &str, interval: Duration) -> Self {
        Self::new(host, FramePosition::Live, interval)
    }

    pub(super) fn replay(host: &str, count: usize) -> Self {
        Self::new(host, FramePosition::Recorded { at: 0, count }, Duration::ZERO)
    }

    fn new(host: &str, position: FramePosition, interval: Duration) -> Self {
        Self {
            host: host.to_owned(),
            frame: None,
            failure: None,
            page: Page::All,
            help: None,
            by: BTreeMap::new(),
            is_flat: false,
            skip: 0,
            filter: String::new(),
            is_typing: false,
            position,
            interval,
            is_paused: false,
            selected: 0,
            pinned: None,
            has_moved: false,
            fitting: 1,
        }
    }

    /// Shows a frame; `None` keeps the previous one.
    pub(super) fn show(&mut self, frame: Option<Frame>) {
        self.failure = None;
        if frame.is_some() {
            self.frame = frame;
        }
    }

    /// Stores the reason why a reading failed, to be shown.
    pub(super) fn fail(&mut self, reason: String) {
        self.failure = Some(reason);
    }

    /// Handles a key press: changes page, sorting, filter, marked row, interval or frame, or quits.
    pub(super) fn press(&mut self, key: KeyEvent) -> Change {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Change::Quit;
        }
        if self.is_typing {
            self.type_filter(key.code);
            return Change::Nothing;
        }
        if let Some(first) = self.help {
            self.help = self.read_help(first, key.code);
            return Change::Nothing;
        }
        match key.code {
            KeyCode::Char('q') => return Change::Quit,
            KeyCode::Char(' ') => self.is_paused = self.position == FramePosition::Live && !self.is_paused,
            KeyCode::Char('?' | 'h') => self.help = Some(0),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc | KeyCode::Char('a') => self.turn(Page::All),
            KeyCode::Char('d') => self.turn(Page::Devices),
            KeyCode::Char('p') => self.turn(Page::Processes),
            KeyCode::Char('c') => self.turn(Page::Cgroups),
            KeyCode::Char('g') => self.turn(Page::Guests),
            KeyCode::Char('n') => self.turn(Page::Network),
            KeyCode::Char('l') => self.is_flat = !self.is_flat,
            KeyCode::Char('>') => self.skip += 1,
            KeyCode::Char('<') => self.skip = self.skip.saturating_sub(1),
            KeyCode::Char('s') => self.sort(true),
            KeyCode::Char('S') => self.sort(false),
            KeyCode::Char('+') => self.wait(true),
            KeyCode::Char('-') => self.wait(false),
            KeyCode::Right | KeyCode::Char('t') => self.step(|at| at + 1),
            KeyCode::Left | KeyCode::Char('T') => self.step(|at| at.saturating_sub(1)),
            KeyCode::Char(']') => self.step(|at| at + LEAP),
            KeyCode::Char('[') => self.step(|at| at.saturating_sub(LEAP)),
            KeyCode::Char('b') => self.step(|_| 0),
            KeyCode::Char('e') => self.step(|_| usize::MAX),
            other => self.mark(other),
        }
        Change::Nothing
    }

    /// Moves the mark up or down by a cursor key.
    fn mark(&mut self, key: KeyCode) {
        self.selected = match key {
            KeyCode::Up => self.selected.saturating_sub(1),
            KeyCode::Down => self.selected + 1,
            KeyCode::PageUp => self.selected.saturating_sub(self.fitting),
            KeyCode::PageDown => self.selected + self.fitting,
            KeyCode::Home => 0,
            KeyCode::End => usize::MAX / 2,
            _ => return,
        };
        self.has_moved = true;
    }

    /// Changes the filter; Enter keeps it, Esc removes it.
    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            other => self.mark(other),
        }
    }

    /// Returns the first visible line of the help after a key; `None` if the key closes the help.
    fn read_help(&self, first: usize, key: KeyCode) -> Option<usize> {
        match key {
            KeyCode::Char('?' | 'h' | 'q') | KeyCode::Esc => None,
            KeyCode::Up => Some(first.saturating_sub(1)),
            KeyCode::Down => Some(first + 1),
            KeyCode::PageUp => Some(first.saturating_sub(self.fitting)),
            KeyCode::PageDown => Some(first + self.fitting),
            KeyCode::Home => Some(0),
            KeyCode::End => Some(usize::MAX / 2),
            _ => Some(first),
        }
    }

    fn turn(&mut self, page: Page) {
        (self.page, self.skip, self.selected, self.pinned) = (page, 0, 0, None);
    }

    /// Moves to another frame of a recording; `to` computes its index from the current one.
    fn step(&mut self, to: impl Fn(usize) -> usize) {
        if let FramePosition::Recorded { at, count } = &mut self.position {
            *at = to(*at).min(count.saturating_sub(1));
        }
    }

    /// Sorts the page's first table by the next or previous figure; sorting by load comes between the last figure and the first. Does nothing
    /// before the first frame.
    fn sort(&mut self, forwards: bool) {
        let Some(frame) = &self.frame else { return };
        let kind = self.page.tables()[0];
        let last = kind.columns(&frame.percentiles) - 1;
        let next = match (self.by.remove(&kind), forwards) {
            (None, true) => Some(0),
            (None, false) => Some(last),
            (Some(by), true) => Some(by + 1).filter(|by| *by <= last),
            (Some(by), false) => by.checked_sub(1),
        };
        self.by.extend(next.map(|by| (kind, by)));
    }

    /// Selects the next longer or shorter interval between readings. Does nothing for a recording.
    fn wait(&mut self, longer: bool) {
        let next = if longer {
            INTERVALS.iter().find(|interval| **interval > self.interval)
        } else {
            INTERVALS.iter().rev().find(|interval| **interval < self.interval)
        };
        if let (FramePosition::Live, Some(next)) = (self.position, next) {
            self.interval = *next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure;
    use crate::raw::PercentileSource;

    fn press(app: &mut App, keys: &str) -> Change {
        let mut change = Change::Nothing;
        for key in keys.chars() {
            change = app.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
        }
        change
    }

    #[test]
    fn a_recording_is_walked_in_both_directions_and_never_left() {
        let mut app = App::replay("box", 15);
        let at = |app: &App| match app.position {
            FramePosition::Recorded { at, .. } => at,
            FramePosition::Live => panic!("a recording"),
        };
        for (keys, position) in
            [("tt", 2), ("T", 1), ("TTT", 0), ("]", 10), ("]", 14), ("[", 4), ("e", 14), ("b", 0)]
        {
            press(&mut app, keys);
            assert_eq!(at(&app), position, "{keys}");
        }
        press(&mut app, " ");
        assert!(!app.is_paused, "a recording has no pause");
    }

    #[test]
    fn pages_orders_and_intervals_follow_keys() {
        let mut app = App::live("box", Duration::from_secs(1));
        press(&mut app, "g");
        assert_eq!(app.page, Page::Guests);
        for close in ["?", "q", "h"] {
            press(&mut app, "?");
            assert_eq!(app.help, Some(0));
            assert_eq!(press(&mut app, close), Change::Nothing);
            assert_eq!((app.help, app.page), (None, Page::Guests), "{close}");
        }
        let frame = Frame { percentiles: PercentileSource::Unknown("no BPF".to_owned()), ..Frame::default() };
        app.show(Some(frame));
        press(&mut app, "ds");
        assert_eq!(app.by.get(&TableKind::Layers), Some(&0));
        press(&mut app, "SS");
        // The last column that is shown: without BPF there are three fewer.
        assert_eq!(app.by.get(&TableKind::Layers), Some(&(figure::LAYERS.len() - 4)));
        press(&mut app, "s+ ");
        assert_eq!((app.by.len(), app.interval, app.is_paused), (0, Duration::from_secs(2), true));
        press(&mut app, "-------");
        assert_eq!(app.interval, INTERVALS[0]);
        assert_eq!(press(&mut app, "q"), Change::Quit);
    }

    #[test]
    fn a_filter_takes_all_letters_until_it_ends() {
        let mut app = App::live("box", Duration::from_secs(1));
        let key = |app: &mut App, code| app.press(KeyEvent::new(code, KeyModifiers::NONE));
        assert_eq!(press(&mut app, "/qs?x"), Change::Nothing);
        key(&mut app, KeyCode::Backspace);
        key(&mut app, KeyCode::Enter);
        assert_eq!((app.filter.as_str(), app.is_typing, app.help), ("qs?", false, None));
        press(&mut app, "d");
        assert_eq!(app.page, Page::Devices, "keys are keys again");
        key(&mut app, KeyCode::Esc);
        assert_eq!((app.filter.as_str(), app.page), ("", Page::Devices));
        let quit = app.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert_eq!(quit, Change::Quit);
    }
}
