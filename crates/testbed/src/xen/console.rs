//! A domain's console: text until the agent listens, then the agent's messages.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iotax_model::{guest_abi, threads};
use rustix::fs::OFlags;

/// Lines of text that are kept for error messages.
const TAIL_LINES: usize = 15;
/// Minimum number of bytes of text to keep.
const KEPT: usize = 64 << 10;

/// The text that a domain printed before its agent listened.
#[derive(Debug, Clone, Default)]
pub(super) struct Console(Arc<Mutex<BootText>>);

#[derive(Debug, Default)]
struct BootText {
    /// Number of bytes so far.
    length: usize,
    /// The last of them: at least [`KEPT`], if there are as many.
    kept: Vec<u8>,
}

impl Console {
    /// Opens a console, and returns its text with a stream of the agent's messages. Messages to the agent wait until it listens: until then
    /// the domain would print them again. Two threads copy until either end closes.
    pub(super) fn open(path: &Path) -> io::Result<(Self, UnixStream)> {
        let no_terminal = i32::try_from(OFlags::NOCTTY.bits()).map_err(io::Error::other)?;
        let tty = OpenOptions::new().read(true).write(true).custom_flags(no_terminal).open(path)?;
        Self::over(tty.try_clone()?, tty)
    }

    fn over(from_domain: impl Read + Send + 'static, mut to_domain: File) -> io::Result<(Self, UnixStream)> {
        let console = Self::default();
        let (agent, near) = UnixStream::pair()?;
        let (begin, begun) = mpsc::channel();
        let (text, mut outgoing) = (console.clone(), near.try_clone()?);
        threads::spawn("console", move || {
            // An error is the end of the domain, which the closed stream shows.
            let _ = text.copy(from_domain, &near, &begin);
            let _ = near.shutdown(Shutdown::Both);
        })?;
        threads::spawn("to console", move || {
            if Receiver::recv(&begun).is_ok() {
                let _ = pass_on(&mut outgoing, &mut to_domain);
            }
        })?;
        Ok((console, agent))
    }

    /// Keeps the text up to the line by which the agent says that it listens, then passes on the rest.
    fn copy(&self, mut from: impl Read, mut to: &UnixStream, begin: &mpsc::Sender<()>) -> io::Result<()> {
        let mark = format!("{}\n", guest_abi::LISTENS_MARKER);
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        let rest = loop {
            let length = from.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            seen.extend_from_slice(&buffer[..length]);
            self.keep(&buffer[..length]);
            if let Some(at) = seen.windows(mark.len()).position(|window| window == mark.as_bytes()) {
                break seen.split_off(at + mark.len());
            }
            // The mark may be split between two reads.
            seen.drain(..seen.len().saturating_sub(mark.len()));
        };
        // The receiver is gone if its thread could not write.
        let _ = begin.send(());
        to.write_all(&rest)?;
        pass_on(&mut from, &mut to)
    }

    fn keep(&self, bytes: &[u8]) {
        let mut text = self.text();
        text.length += bytes.len();
        text.kept.extend_from_slice(bytes);
        let surplus = text.kept.len().saturating_sub(2 * KEPT);
        if surplus > 0 {
            text.kept.drain(..surplus + KEPT);
        }
    }

    /// Returns the number of bytes that the domain printed before its agent listened.
    pub(super) fn length(&self) -> usize {
        self.text().length
    }

    /// Returns the last 15 lines of text, for error messages; empty if there is none.
    pub(super) fn tail(&self) -> String {
        let text = self.text();
        let text = String::from_utf8_lossy(&text.kept);
        let clean = |line: &str| line.chars().filter(|c| !c.is_control()).collect::<String>();
        let lines: Vec<String> = text.lines().map(clean).filter(|line| !line.trim().is_empty()).collect();
        if lines.is_empty() {
            return String::new();
        }
        let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        format!("the domain's console ends with:\n{}", last.join("\n"))
    }

    fn text(&self) -> MutexGuard<'_, BootText> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies bytes as they come, until either end closes.
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            length => to.write_all(&buffer[..length])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_follow_the_text_in_both_directions() {
        let (domain, ours) = UnixStream::pair().expect("sockets");
        let mut domain = domain;
        let (to_domain, mut heard) = {
            let (reader, writer) = io::pipe().expect("a pipe");
            (File::from(std::os::fd::OwnedFd::from(writer)), reader)
        };
        let (console, mut agent) = Console::over(ours, to_domain).expect("a console");
        agent.write_all(b"early\0").expect("written");
        // The mark comes in pieces, and the first message with its end.
        domain.write_all(b"[ 0.0] Linux\r\niotax: the ag").expect("written");
        domain.write_all(b"ent listens\n\x00\xff\x03").expect("written");
        let mut message = [0; 3];
        agent.read_exact(&mut message).expect("read");
        assert_eq!(&message, b"\x00\xff\x03");
        let mut early = [0; 6];
        heard.read_exact(&mut early).expect("read");
        assert_eq!(&early, b"early\0");
        assert!(console.length() > 20 && console.tail().contains("[ 0.0] Linux\n"), "{}", console.tail());
        drop(domain);
        assert_eq!(agent.read(&mut message).expect("the end"), 0);
    }

    #[test]
    fn a_domain_that_ends_early_leaves_its_text() {
        let (mut domain, ours) = UnixStream::pair().expect("sockets");
        let (_heard, writer) = io::pipe().expect("a pipe");
        let (console, mut agent) =
            Console::over(ours, File::from(std::os::fd::OwnedFd::from(writer))).expect("a console");
        domain.write_all(b"\x1b[1mKernel panic\r\n\r\n").expect("written");
        drop(domain);
        assert_eq!(agent.read(&mut [0; 1]).expect("the end"), 0);
        assert_eq!(console.tail(), "the domain's console ends with:\n[1mKernel panic");
    }
}
