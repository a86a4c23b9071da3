//! The one place where anything is written to stdout and stderr.
//!
//! Whatever is said passes [`visible`], so that no name, path, error or word of another machine reaches the terminal as something
//! that it obeys. Only what styles itself is written as it is: pages ([`Styled`]) and clap's help.
//!
//! A reader may take its time; after Ctrl-C it has [`PATIENCE`].
//!
//! A reader of stdout that went away is no reason to stop measuring or undoing. Every other error of stdout is kept for
//! [`finish`]: what was lost must not look like success. Errors of stderr can be told nowhere.

use std::fmt::Arguments;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iotax_model::visible;
use iotax_report::terminal::Styled;
use iotax_testbed::interrupt::{Interrupt, POLL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
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

/// How long a reader that takes nothing is waited for after an interrupt.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a pipe takes at once when it is ready: POSIX's `PIPE_BUF`, as Linux has it.
const PIPE_ROOM: usize = 4096;

/// Set by Ctrl-C, in commands that undo something first.
static STOP: OnceLock<Interrupt> = OnceLock::new();

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

    /// Its lines; none if it is no terminal.
    pub(crate) fn height(self) -> usize {
        let lines = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_row));
        if self.is_terminal() { lines } else { 0 }
    }

    fn put(self, bytes: &[u8]) {
        match self {
            Self::Stdout => put_on_stdout(bytes),
            Self::Stderr => drop(write_all(io::stderr().as_fd(), bytes)),
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

/// A document to a stream that has a name, as to stdout.
pub(crate) fn document_to(name: &Path, document: &[u8]) -> Result<(), Errno> {
    let stream = open(name)?;
    if stream.is_terminal() {
        let text = String::from_utf8_lossy(document);
        return write_all(stream.as_fd(), visible::text(&text).as_bytes());
    }
    write_all(stream.as_fd(), document)
}

/// Whether stdout leads to the same file, pipe or terminal.
pub(crate) fn is_stdout(other: &Metadata) -> bool {
    let device = (rustix::fs::major(other.rdev()), rustix::fs::minor(other.rdev()));
    // /dev/tty is another name of the session's terminal, whose session only its own processes can ask for.
    if other.file_type().is_char_device() && device == (5, 0) {
        return rustix::termios::tcgetsid(io::stdout()).is_ok();
    }
    let stdout = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| File::from(stdout).metadata());
    stdout.is_ok_and(|stdout| (stdout.dev(), stdout.ino()) == (other.dev(), other.ino()))
}

/// From now on an interrupt ends the waiting for readers.
pub(crate) fn heed(stop: &Interrupt) {
    let _ = STOP.set(Interrupt::clone(stop));
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
fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        await_room(stream)?;
        match rustix::io::write(stream, &bytes[..bytes.len().min(PIPE_ROOM)]) {
            Ok(written) => bytes = &bytes[written..],
            // Whoever shares a terminal or a pipe may have taken the room, or made it so that nothing waits.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until a stream takes something, or has an error to tell.
fn await_room(stream: BorrowedFd<'_>) -> Result<(), Errno> {
    let look_again = Timespec::try_from(POLL).ok();
    let mut reader = Reader::default();
    while let Ok(0) | Err(Errno::INTR) =
        poll(&mut [PollFd::new(&stream, PollFlags::OUT)], look_again.as_ref())
    {
        reader.may_take_its_time()?;
    }
    Ok(())
}

/// Opens a stream. What is in a file that the shell opened stays: what is written comes behind it.
fn open(name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let is_pipe = FileType::from_raw_mode(rustix::fs::stat(name)?.st_mode) == FileType::Fifo;
    let mut reader = Reader::default();
    loop {
        match rustix::fs::open(name, flags, Mode::empty()) {
            // Nobody reads the pipe yet.
            Err(Errno::NXIO) if is_pipe => reader.may_take_its_time()?,
            Err(Errno::INTR) => {}
            opened => return opened,
        }
        thread::sleep(POLL);
    }
}

/// Whoever reads a stream, and since when an interrupt has been waiting for it.
#[derive(Default)]
struct Reader(Option<Instant>);

impl Reader {
    /// `ECANCELED` if it takes nothing in [`PATIENCE`] after an interrupt.
    fn may_take_its_time(&mut self) -> Result<(), Errno> {
        let stopped = STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed));
        if stopped && self.0.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(Errno::CANCELED);
        }
        Ok(())
    }
}

/// Whether everything that was said on stdout is where it was to go, a file's contents on its disk.
pub(crate) fn finish() -> io::Result<()> {
    let broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    match broken {
        // The exit code says that it was interrupted.
        Some(Errno::PIPE | Errno::CANCELED) => Ok(()),
        Some(error) => Err(error.into()),
        None => {
            let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            if stdout.metadata()?.is_file() { stdout.sync_data() } else { Ok(()) }
        }
    }
}
