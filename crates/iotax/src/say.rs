//! The one place where anything is written to stdout and stderr.
//!
//! Whatever is said passes [`visible`], so that no name, path, error or word of another machine reaches the terminal as something
//! that it obeys. Only what styles itself is written as it is: pages ([`Styled`]) and clap's help.
//!
//! A reader of stdout that went away is no reason to stop measuring or undoing. Every other error of stdout is kept for
//! [`finish`]: what was lost must not look like success. Errors of stderr can be told nowhere.

use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use iotax_model::visible;
use iotax_results::report::terminal::Styled;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// A line on stderr.
macro_rules! say {
    ($($argument:tt)*) => { $crate::say::words(format_args!($($argument)*)) };
}

/// A line on stdout.
macro_rules! print_line {
    ($($argument:tt)*) => { $crate::say::line(format_args!($($argument)*)) };
}

pub(crate) use {print_line, say};

/// Columns when there is no terminal to ask.
const DEFAULT_WIDTH: usize = 80;

/// What ended the writing to stdout.
static BROKEN: Mutex<Option<Errno>> = Mutex::new(None);

/// Where words for people go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    /// Whether it shows colours, and the user wants them.
    pub(crate) fn has_colour(self) -> bool {
        self.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// Its columns.
    pub(crate) fn width(self) -> usize {
        let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        if self.is_terminal() && columns > 0 { columns } else { DEFAULT_WIDTH }
    }

    fn put(self, bytes: &[u8]) {
        match self {
            Self::Stdout => put_on_stdout(bytes),
            Self::Stderr => drop(io::stderr().write_all(bytes)),
        }
    }

    /// Words with their line ends.
    pub(crate) fn text(self, text: &str) {
        self.put(visible::text(text).as_bytes());
    }

    /// A page in its style.
    pub(crate) fn page(self, page: &Styled) {
        self.put(page.as_bytes());
    }

    /// Help and complaints of clap, in its style unless they could quote something that is hidden.
    pub(crate) fn help(self, help: &clap::builder::StyledStr) {
        let hidden = |argument: std::ffi::OsString| argument.to_string_lossy().contains(visible::is_hidden);
        if self.has_colour() && !std::env::args_os().any(hidden) {
            self.put(help.ansi().to_string().as_bytes());
        } else {
            self.text(&help.to_string());
        }
    }
}

/// A line on stderr; see [`say!`].
pub(crate) fn words(words: Arguments<'_>) {
    Stream::Stderr.text(&format!("{words}\n"));
}

/// A line on stdout; see [`print_line!`].
pub(crate) fn line(line: Arguments<'_>) {
    Stream::Stdout.text(&format!("{line}\n"));
}

/// A question on stderr, whose answer is typed behind it.
pub(crate) fn question(question: &str) {
    Stream::Stderr.text(question);
}

/// A document on stdout: for a program as it is, for a person at a terminal as everything else.
pub(crate) fn document(document: &str) {
    if Stream::Stdout.is_terminal() {
        Stream::Stdout.text(document);
    } else {
        put_on_stdout(document.as_bytes());
    }
}

/// JSON on stdout.
pub(crate) fn print_json(document: &serde_json::Value) {
    put_on_stdout(json(document).as_bytes());
}

/// JSON as iotax writes it, to stdout and to files.
pub(crate) fn json(document: &serde_json::Value) -> String {
    visible::json(&format!("{document:#}\n")).into_owned()
}

fn put_on_stdout(bytes: &[u8]) {
    let mut broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if broken.is_none() {
        *broken = write_all(io::stdout().as_fd(), bytes).err();
    }
}

/// Not by Rust's own stdout, which keeps lines back and takes a descriptor that cannot be written for a closed one.
fn write_all(stdout: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(stdout, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            // Whoever shares a terminal or a pipe may have made it so.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&stdout, PollFlags::OUT)], None)),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether everything that was said on stdout is where it was to go, a file's contents on its disk.
pub(crate) fn finish() -> io::Result<()> {
    let broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    match broken.map(io::Error::from) {
        Some(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Some(error) => Err(error),
        None => {
            let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            if stdout.metadata()?.is_file() { stdout.sync_data() } else { Ok(()) }
        }
    }
}
