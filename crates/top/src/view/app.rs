//! The state of the screen and its keys.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::figure;
use crate::rates::Frame;
use crate::table::Order;

/// The intervals that + and - go through.
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

/// Frames that `[` and `]` go over.
const LEAP: usize = 10;

/// What the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    All,
    Devices,
    Processes,
    Cgroups,
    Guests,
    Network,
    Help,
}

/// The place of the frame that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Live,
    Recorded { at: usize, count: usize },
}

/// What a key asks of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Nothing,
    Quit,
}

/// The state of the screen.
#[derive(Debug)]
pub(super) struct App {
    pub(super) host: String,
    pub(super) frame: Option<Frame>,
    /// Why there is no frame.
    pub(super) failure: Option<String>,
    pub(super) page: Page,
    pub(super) order: Order,
    pub(super) place: Place,
    pub(super) interval: Duration,
    pub(super) is_paused: bool,
    /// The marked row of the page's first table.
    pub(super) selected: usize,
    /// The rows that fit, for PgUp and PgDn; known after drawing.
    pub(super) fitting: usize,
}

impl App {
    pub(super) fn live(host: &str, interval: Duration) -> Self {
        Self::new(host, Place::Live, interval)
    }

    pub(super) fn replay(host: &str, count: usize) -> Self {
        Self::new(host, Place::Recorded { at: 0, count }, Duration::ZERO)
    }

    fn new(host: &str, place: Place, interval: Duration) -> Self {
        Self {
            host: host.to_owned(),
            frame: None,
            failure: None,
            page: Page::All,
            order: Order::Stack,
            place,
            interval,
            is_paused: false,
            selected: 0,
            fitting: 1,
        }
    }

    /// Shows a frame; `None` keeps the one before.
    pub(super) fn show(&mut self, frame: Option<Frame>) {
        self.failure = None;
        if frame.is_some() {
            self.frame = frame;
        }
    }

    /// Shows why there is no frame.
    pub(super) fn fail(&mut self, reason: String) {
        self.failure = Some(reason);
    }

    /// Obeys a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Change {
        let has_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if has_control => return Change::Quit,
            KeyCode::Esc | KeyCode::Char('q') if self.page == Page::Help => self.turn(Page::All),
            KeyCode::Char('q') => return Change::Quit,
            KeyCode::Char(' ') => self.is_paused = self.place == Place::Live && !self.is_paused,
            KeyCode::Char('?' | 'h') => self.turn(Page::Help),
            KeyCode::Esc | KeyCode::Char('a') => self.turn(Page::All),
            KeyCode::Char('d') => self.turn(Page::Devices),
            KeyCode::Char('p') => self.turn(Page::Processes),
            KeyCode::Char('c') => self.turn(Page::Cgroups),
            KeyCode::Char('g') => self.turn(Page::Guests),
            KeyCode::Char('n') => self.turn(Page::Network),
            KeyCode::Char('s') => self.sort(true),
            KeyCode::Char('S') => self.sort(false),
            KeyCode::Char('+') => self.wait(true),
            KeyCode::Char('-') => self.wait(false),
            KeyCode::Up => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down => self.selected += 1,
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(self.fitting),
            KeyCode::PageDown => self.selected += self.fitting,
            KeyCode::Home => self.selected = 0,
            KeyCode::End => self.selected = usize::MAX / 2,
            KeyCode::Right | KeyCode::Char('t') => self.step(|at| at + 1),
            KeyCode::Left | KeyCode::Char('T') => self.step(|at| at.saturating_sub(1)),
            KeyCode::Char(']') => self.step(|at| at + LEAP),
            KeyCode::Char('[') => self.step(|at| at.saturating_sub(LEAP)),
            KeyCode::Char('b') => self.step(|_| 0),
            KeyCode::Char('e') => self.step(|_| usize::MAX),
            _ => {}
        }
        Change::Nothing
    }

    fn turn(&mut self, page: Page) {
        (self.page, self.selected) = (page, 0);
    }

    /// Goes to another frame of a recording.
    fn step(&mut self, to: impl Fn(usize) -> usize) {
        if let Place::Recorded { at, count } = &mut self.place {
            *at = to(*at).min(count.saturating_sub(1));
        }
    }

    /// Sorts devices by the next or the previous figure; the stack's order is between the last and the first.
    fn sort(&mut self, forwards: bool) {
        let count = figure::LAYERS.len();
        self.order = match (self.order, forwards) {
            (Order::Stack, true) => Order::By(0),
            (Order::Stack, false) => Order::By(count - 1),
            (Order::By(index), true) if index + 1 < count => Order::By(index + 1),
            (Order::By(index), false) if index > 0 => Order::By(index - 1),
            (Order::By(_), _) => Order::Stack,
        };
    }

    /// Takes a longer or a shorter interval.
    fn wait(&mut self, longer: bool) {
        let next = if longer {
            INTERVALS.iter().find(|interval| **interval > self.interval)
        } else {
            INTERVALS.iter().rev().find(|interval| **interval < self.interval)
        };
        if let (Place::Live, Some(next)) = (self.place, next) {
            self.interval = *next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let at = |app: &App| match app.place {
            Place::Recorded { at, .. } => at,
            Place::Live => panic!("a recording"),
        };
        for (keys, place) in
            [("tt", 2), ("T", 1), ("TTT", 0), ("]", 10), ("]", 14), ("[", 4), ("e", 14), ("b", 0)]
        {
            press(&mut app, keys);
            assert_eq!(at(&app), place, "{keys}");
        }
        press(&mut app, " ");
        assert!(!app.is_paused, "a recording has no pause");
    }

    #[test]
    fn pages_orders_and_intervals_follow_keys() {
        let mut app = App::live("box", Duration::from_secs(1));
        press(&mut app, "g");
        assert_eq!(app.page, Page::Guests);
        press(&mut app, "?");
        assert_eq!((press(&mut app, "q"), app.page), (Change::Nothing, Page::All));
        press(&mut app, "s");
        assert_eq!(app.order, Order::By(0));
        press(&mut app, "SS");
        assert_eq!(app.order, Order::By(figure::LAYERS.len() - 1));
        press(&mut app, "s+ ");
        assert_eq!((app.order, app.interval, app.is_paused), (Order::Stack, Duration::from_secs(2), true));
        press(&mut app, "-------");
        assert_eq!(app.interval, INTERVALS[0]);
        assert_eq!(press(&mut app, "q"), Change::Quit);
    }
}
