//! Keys during a run: `q` works like Ctrl-C, as in top, and `m` adds a mark to a watch.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use iotax_testbed::interrupt::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};

use crate::runner::marks;
use iotax_model::threads;

/// Text of a mark that the key `m` makes.
const MARK: &str = "key pressed";
const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Reader of keys from the terminal. Dropping it ends the reading and restores the terminal's mode.
pub(super) struct QuitKey {
    before: Termios,
    over: Arc<AtomicBool>,
    waiting: Option<JoinHandle<()>>,
}

impl QuitKey {
    /// Starts to read keys. `None` if stdin is not a terminal, if this job is in the background, or if the terminal's mode cannot be set.
    /// `socket` is the path of the socket that accepts marks.
    pub(super) fn watch(stop: &Interrupt, socket: PathBuf) -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || !is_ours() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut by_key = before.clone();
        // Keys arrive without Enter. Echo stays on, so that a killed iotax leaves the terminal usable.
        by_key.local_modes.remove(LocalModes::ICANON);
        tcsetattr(&stdin, OptionalActions::Now, &by_key).ok()?;
        let over = Arc::new(AtomicBool::new(false));
        let (stop, heard) = (Arc::clone(stop), Arc::clone(&over));
        let waiting = threads::spawn("quit key", move || wait(&stop, &heard, &socket)).ok();
        Some(Self { before, over, waiting })
    }
}

impl Drop for QuitKey {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(waiting) = self.waiting.take() {
            // A panic of the thread has been printed.
            let _ = waiting.join();
        }
        if is_ours() {
            // The terminal may be gone, which is no error.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        }
    }
}

fn wait(stop: &Interrupt, over: &AtomicBool, socket: &Path) {
    let stdin = io::stdin();
    while !over.load(Ordering::Relaxed) && !stop.load(Ordering::Relaxed) {
        let ready = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&POLL));
        if !matches!(ready, Ok(1..)) || !is_ours() {
            continue;
        }
        let mut key = [0];
        match rustix::io::read(&stdin, &mut key) {
            Ok(1) if key == *b"q" => stop.store(true, Ordering::Relaxed),
            // Only watches take marks.
            Ok(1) if key == *b"m" => drop(marks::send(socket, MARK)),
            Ok(1) => {}
            _ => return,
        }
    }
}

/// Returns whether this job is in the foreground: a background job is stopped if it reads from the terminal or sets its mode.
fn is_ours() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}
