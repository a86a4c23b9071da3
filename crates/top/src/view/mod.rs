//! The screen: a live view, or a walk through a recording.

mod app;
mod screen;

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iotax_testbed::interrupt::Interrupt;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::rates::Frame;
use app::{App, Change, FramePosition};

/// Maximum time to wait for a key before checking whether the view must end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Reads the next frame; `None` at the first reading, which has no earlier one to compare with. An error is shown on screen.
pub type Live<'a> = dyn FnMut() -> Result<Option<Frame>, String> + 'a;
/// Reads the frame with this index from a recording. An error is shown on screen.
pub type ReadFrame<'a> = dyn FnMut(usize) -> Result<Frame, String> + 'a;

/// Source of the frames that the screen shows.
pub enum Feed<'a> {
    /// This machine, read periodically.
    Live {
        /// Reads the machine and returns the next frame.
        read: &'a mut Live<'a>,
        /// The initial time between readings.
        interval: Duration,
    },
    /// Frames of a recording.
    Replay {
        /// Reads the frame with a given index.
        read: &'a mut ReadFrame<'a>,
        /// Number of frames in the recording.
        count: usize,
    },
}

/// Shows frames until the user quits, `stop` is set or the terminal is gone. Restores the terminal, even after a panic.
pub fn run(feed: Feed<'_>, host: &str, stop: &Interrupt) -> io::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let shown = match feed {
        Feed::Live { read, interval } => live(&mut terminal, read, App::live(host, interval), stop),
        Feed::Replay { read, count } => replay(&mut terminal, read, App::replay(host, count), stop),
    };
    ratatui::try_restore()?;
    shown
}

/// Returns the time of the next reading: `due` plus one interval, so that delays do not add up. If that has passed,
/// one interval from `now`.
#[must_use]
pub fn next_reading(due: Instant, interval: Duration, now: Instant) -> Instant {
    let next = due + interval;
    if next > now { next } else { now + interval }
}

fn live(
    terminal: &mut ratatui::DefaultTerminal,
    read: &mut Live<'_>,
    mut app: App,
    stop: &Interrupt,
) -> io::Result<()> {
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if Instant::now() >= due {
            due = next_reading(due, app.interval, Instant::now());
            let next = read();
            if !app.is_paused {
                match next {
                    Ok(frame) => app.show(frame),
                    Err(reason) => app.fail(reason),
                }
            }
        }
        terminal.draw(|frame| screen::draw(frame, &mut app))?;
        let before = app.interval;
        let patience = due.saturating_duration_since(Instant::now()).min(PATIENCE);
        if next_change(&mut app, patience)? == Change::Quit {
            return Ok(());
        }
        if app.interval != before {
            due = Instant::now() + app.interval;
        }
    }
    Ok(())
}

fn replay(
    terminal: &mut ratatui::DefaultTerminal,
    read: &mut ReadFrame<'_>,
    mut app: App,
    stop: &Interrupt,
) -> io::Result<()> {
    let mut shown = None;
    while !stop.load(Ordering::Relaxed) {
        if let FramePosition::Recorded { at, .. } = app.position
            && shown != Some(at)
        {
            shown = Some(at);
            match read(at) {
                Ok(frame) => app.show(Some(frame)),
                Err(reason) => app.fail(reason),
            }
        }
        terminal.draw(|frame| screen::draw(frame, &mut app))?;
        if next_change(&mut app, PATIENCE)? == Change::Quit {
            return Ok(());
        }
    }
    Ok(())
}

/// Waits for keys and applies them; also returns after a resize, and after `patience` without input. Returns [`Change::Quit`] if the
/// terminal is gone.
fn next_change(app: &mut App, patience: Duration) -> io::Result<Change> {
    if !is_there(patience)? {
        return Ok(Change::Quit);
    }
    while event::poll(Duration::ZERO)? {
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && app.press(key) == Change::Quit
        {
            return Ok(Change::Quit);
        }
    }
    Ok(Change::Nothing)
}

/// Waits for input for at most `patience`. Returns false if the terminal is gone, because crossterm would loop forever on its end of file.
fn is_there(patience: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut terminal, Timespec::try_from(patience).ok().as_ref()) {
        // A signal interrupted the wait, such as SIGWINCH after a resize.
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(!terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
    }
}
