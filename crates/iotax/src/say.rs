//! The only place that writes to stdout and stderr.
//!
//! All text passes [`visible`], so that no name, path or error from elsewhere reaches the terminal as an escape sequence. Only pages
//! ([`Styled`]), clap's help, and documents that go into a pipe or file are written unchanged.
//!
//! Output waits for a slow reader; after an interrupt for at most [`PATIENCE`]. If the reader of stdout goes away, measuring and undoing
//! continue. Other errors of stdout are kept for [`finish`], so that lost output is not reported as success.

use std::borrow::Cow;
use std::fmt::Arguments;
use std::fs::{File, Metadata};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use iotax_model::{threads, visible, wrap};
use iotax_report::terminal::Styled;
use iotax_testbed::interrupt::{Interrupt, POLL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

/// Prints a line to stderr, even with `--quiet`.
macro_rules! say {
    ($($argument:tt)*) => { $crate::say::words(format_args!($($argument)*)) };
}

/// Prints a line about progress to stderr, unless `--quiet` is given.
macro_rules! note {
    ($($argument:tt)*) => { if !$crate::say::is_quiet() { $crate::say::words(format_args!($($argument)*)) } };
}

/// Prints a line to stdout.
macro_rules! print_line {
    ($($argument:tt)*) => { $crate::say::line(format_args!($($argument)*)) };
}

pub(crate) use {note, print_line, say};

/// Default width in columns without a terminal.
const DEFAULT_WIDTH: usize = 80;

/// Time for which output waits for a stalled reader after an interrupt.
const PATIENCE: Duration = Duration::from_secs(1);

/// The bytes that a ready pipe takes without blocking: `PIPE_BUF` on Linux.
const PIPE_ROOM: usize = 4096;

/// True with `--quiet`: notes about progress are not printed.
static QUIET: AtomicBool = AtomicBool::new(false);

/// The interrupt flag of a command that watches for signals; empty in other commands.
static STOP: OnceLock<Interrupt> = OnceLock::new();

/// The error that ended output to stdout, for [`finish`]; `None` while stdout accepts output.
static BROKEN: Mutex<Option<Errno>> = Mutex::new(None);

/// A stream for human-readable text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) fn is_terminal(self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
        }
    }

    /// Returns whether the stream is a terminal that obeys escape sequences.
    pub(crate) fn obeys_escapes(self) -> bool {
        self.is_terminal() && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
    }

    /// Returns whether the stream is a terminal with colours and `NO_COLOR` is not set.
    pub(crate) fn has_colour(self) -> bool {
        self.obeys_escapes() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    /// Returns the width in columns: `COLUMNS`, else that of the terminal, else 80.
    pub(crate) fn width(self) -> usize {
        let stated = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
        let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if self.is_terminal() { columns } else { 0 };
        stated.filter(|columns| *columns > 0).or((columns > 0).then_some(columns)).unwrap_or(DEFAULT_WIDTH)
    }

    /// Returns the height in lines; 0 without a terminal.
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

    /// Writes text with control characters and invisible ones escaped, except line ends and tabs. Adds no line end.
    pub(crate) fn text(self, text: &str) {
        self.put(in_locale(&visible::text(text)).as_bytes());
    }

    /// Writes a styled page.
    pub(crate) fn page(self, page: &Styled) {
        self.put(in_locale(page).as_bytes());
    }

    /// Writes clap's help or errors, styled on a terminal with colours unless they could quote hidden characters.
    pub(crate) fn help(self, help: &clap::builder::StyledStr) {
        let hidden = |argument: std::ffi::OsString| argument.to_string_lossy().contains(visible::is_hidden);
        if self.has_colour() && !std::env::args_os().any(hidden) {
            self.put(help.ansi().to_string().as_bytes());
        } else {
            self.text(&help.to_string());
        }
    }
}

/// Returns whether the locale names a character set other than UTF-8. The first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set counts
/// (locale(7)); false if none is set.
pub(crate) fn is_ascii_locale() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
    let locale = set.into_iter().find(|locale| !locale.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_lowercase();
        !(locale.contains("utf-8") || locale.contains("utf8"))
    })
}

/// Replaces drawing characters with ASCII ones if the locale names a character set other than UTF-8.
pub(crate) fn in_locale(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || !is_ascii_locale() {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(plain).collect())
}

/// Returns an ASCII character that resembles a drawing character. Other characters stay unchanged.
fn plain(letter: char) -> char {
    /// The lower four dots of a braille character.
    const LOWER: u32 = 0b1110_0100;
    match letter {
        '\u{2800}' => ' ',
        '\u{2801}'..='\u{28ff}' => match u32::from(letter) & 0xff {
            dots if dots & LOWER == 0 => '\'',
            dots if dots & !LOWER == 0 => '.',
            _ => ':',
        },
        '▁' | '▂' => '_',
        '▃' | '▄' | '─' => '-',
        '▅' | '▆' => '=',
        '▇' | '█' => '#',
        '│' => '|',
        '┤' | '├' | '└' | '┴' | '┼' => '+',
        other => other,
    }
}

/// Wraps lines longer than `width` between words and keeps their indentation. Other lines are unchanged.
pub(crate) fn broken(text: &str, width: usize) -> String {
    let line = |line: &str| {
        if line.chars().count() <= width {
            return line.to_owned();
        }
        let indent = " ".repeat(line.len() - line.trim_start().len());
        let room = width.saturating_sub(indent.len()).max(1);
        wrap::lines(line, room).iter().map(|part| format!("{indent}{part}")).collect::<Vec<_>>().join("\n")
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Suppresses notes from now on if `quiet`, else permits them.
pub(crate) fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Returns whether notes are suppressed, as by `--quiet`.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a line to stderr, wrapped between words; see [`say!`].
pub(crate) fn words(words: Arguments<'_>) {
    let text = format!("{words}\n");
    if Stream::Stderr.is_terminal() {
        Stream::Stderr.text(&broken(&text, Stream::Stderr.width()));
    } else {
        Stream::Stderr.text(&text);
    }
}

/// Prints a line to stdout; see [`print_line!`].
pub(crate) fn line(line: Arguments<'_>) {
    Stream::Stdout.text(&format!("{line}\n"));
}

/// Writes a document to stdout: unchanged into a pipe or file, with escaped control characters on a terminal.
pub(crate) fn document(document: &str) {
    if Stream::Stdout.is_terminal() {
        Stream::Stdout.text(document);
    } else {
        put_on_stdout(document.as_bytes());
    }
}

/// Writes a document to the pipe, terminal or open file with this name: unchanged, or with escaped control characters on a terminal.
pub(crate) fn document_to(name: &Path, document: &[u8]) -> Result<(), Errno> {
    let stream = open(name)?;
    if stream.is_terminal() {
        let text = String::from_utf8_lossy(document);
        return write_all(stream.as_fd(), visible::text(&text).as_bytes());
    }
    write_all(stream.as_fd(), document)
}

/// Returns whether stdout is the same file, pipe or terminal as `other`.
pub(crate) fn is_stdout(other: &Metadata) -> bool {
    let device = (rustix::fs::major(other.rdev()), rustix::fs::minor(other.rdev()));
    // /dev/tty is another name of the controlling terminal; tcgetsid succeeds only on that one.
    if other.file_type().is_char_device() && device == (5, 0) {
        return rustix::termios::tcgetsid(io::stdout()).is_ok();
    }
    let stdout = io::stdout().as_fd().try_clone_to_owned().and_then(|stdout| File::from(stdout).metadata());
    stdout.is_ok_and(|stdout| (stdout.dev(), stdout.ino()) == (other.dev(), other.ino()))
}

/// Limits the wait for stalled readers once `stop` is set.
pub(crate) fn heed(stop: &Interrupt) {
    let _ = STOP.set(Interrupt::clone(stop));
}

/// Prints JSON to stdout.
pub(crate) fn print_json(document: &serde_json::Value) {
    put_on_stdout(json(document).as_bytes());
}

/// Formats JSON as iotax writes it to stdout and to files.
pub(crate) fn json(document: &serde_json::Value) -> String {
    visible::json(&format!("{document:#}\n")).into_owned()
}

fn put_on_stdout(bytes: &[u8]) {
    let mut broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner);
    if broken.is_none() {
        *broken = write_all(io::stdout().as_fd(), bytes).err();
    }
}

/// Writes all bytes to a stream. Bypasses `io::Stdout`, which buffers lines and hides errors of a descriptor that cannot be written.
fn write_all(stream: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        await_room(stream)?;
        match rustix::io::write(stream, &bytes[..bytes.len().min(PIPE_ROOM)]) {
            Ok(written) => bytes = &bytes[written..],
            // Another process on the same terminal or pipe may have taken the room or set O_NONBLOCK.
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until a stream accepts bytes or has an error, which the next write returns. Fails only with `ECANCELED`, if the reader stalls
/// after an interrupt.
fn await_room(stream: BorrowedFd<'_>) -> Result<(), Errno> {
    let timeout = Timespec::try_from(POLL).ok();
    let mut reader = Reader::default();
    while let Ok(0) | Err(Errno::INTR) = poll(&mut [PollFd::new(&stream, PollFlags::OUT)], timeout.as_ref()) {
        reader.may_take_its_time()?;
    }
    Ok(())
}

/// Opens a stream for appending, because it may be a file that the shell opened. Waits until a named pipe has a reader; fails with
/// `ECANCELED` if an interrupt ends the wait.
fn open(name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let is_pipe = FileType::from_raw_mode(rustix::fs::stat(name)?.st_mode) == FileType::Fifo;
    let mut reader = Reader::default();
    loop {
        match rustix::fs::open(name, flags, Mode::empty()) {
            // The pipe has no reader yet.
            Err(Errno::NXIO) if is_pipe => reader.may_take_its_time()?,
            Err(Errno::INTR) => {}
            opened => return opened,
        }
        threads::sleep(POLL);
    }
}

/// Time limit for a stalled reader after an interrupt. Holds the time at which the interrupt was noticed; `None` before.
#[derive(Default)]
struct Reader(Option<Instant>);

impl Reader {
    /// Fails with `ECANCELED` if the reader takes nothing for [`PATIENCE`] after an interrupt.
    fn may_take_its_time(&mut self) -> Result<(), Errno> {
        let stopped = STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed));
        if stopped && self.0.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            return Err(Errno::CANCELED);
        }
        Ok(())
    }
}

/// Returns the error that ended output to stdout, except if the reader went away or an interrupt ended the wait for it. Without an error,
/// syncs the file that stdout is redirected to.
pub(crate) fn finish() -> io::Result<()> {
    let broken = BROKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    match broken {
        // A reader that went away is no error, and an interrupt has its own exit code.
        Some(Errno::PIPE | Errno::CANCELED) => Ok(()),
        Some(error) => Err(error.into()),
        None => {
            let stdout = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            if stdout.metadata()?.is_file() { stdout.sync_data() } else { Ok(()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_too_long_break_between_words() {
        assert_eq!(broken("  one two three\nshort  as it is\n", 11), "  one two\n  three\nshort as it\nis\n");
        assert_eq!(broken("two  blanks\n", 11), "two  blanks\n");
    }

    #[test]
    fn pictures_have_a_plain_form() {
        assert_eq!("⠀⠉⣀⣿▁▄█│é".chars().map(plain).collect::<String>(), " '.:_-#|é");
    }
}
