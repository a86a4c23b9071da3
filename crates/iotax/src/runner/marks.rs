//! Sockets for messages to a run: a watch takes marks and a fleet's coordinator takes commands, on a socket next to the undo log that
//! only its user and root can reach.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use iotax_model::visible;
use iotax_testbed::undo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Maximum length of a mark in characters.
const LONGEST: usize = 200;
/// Timeout for reading from the other end of the socket, and for writing to it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Prefixes of an answer: for an accepted and for a refused message.
const ANSWERS: [&str; 2] = ["+", "-"];

/// The socket of a watch or of a fleet's coordinator, removed when dropped.
pub(crate) struct MarkSocket {
    path: PathBuf,
    listener: UnixListener,
}

impl MarkSocket {
    /// Opens the socket. Removes a socket that an earlier measurement left at the path.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = short(path, |short| UnixListener::bind(short))?;
        let this = Self { path: path.to_owned(), listener };
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        this.listener.set_nonblocking(true)?;
        Ok(this)
    }

    /// Waits up to `patience` for one message, a mark or a command, and answers with the result of `take`.
    pub(crate) fn answer(&self, patience: Duration, take: impl FnOnce(&str) -> Result<String, String>) {
        let patience = Timespec::try_from(patience).unwrap_or_default();
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        if !poll(&mut fds, Some(&patience)).is_ok_and(|ready| ready > 0) {
            return;
        }
        let Ok((stream, _)) = self.listener.accept() else { return };
        // A sender that has gone away needs no answer.
        let _ = exchange(stream, take);
    }
}

impl Drop for MarkSocket {
    fn drop(&mut self) {
        // If this fails, the socket is removed with the undo log.
        let _ = fs::remove_file(&self.path);
    }
}

fn exchange(mut stream: UnixStream, take: impl FnOnce(&str) -> Result<String, String>) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    // A character has at most four bytes.
    (&stream).take(4 * LONGEST as u64 + 1).read_to_string(&mut text)?;
    let [taken, refused] = ANSWERS;
    let answer = match check(&text).and_then(take) {
        Ok(answer) => format!("{taken}{answer}"),
        Err(reason) => format!("{refused}{reason}"),
    };
    stream.write_all(answer.as_bytes())
}

/// Returns the text if it is a valid mark: not empty, at most 200 characters, none of them control or invisible characters.
pub(crate) fn check(text: &str) -> Result<&str, String> {
    let length = text.chars().count();
    let reason = if text.trim().is_empty() {
        "it is empty".to_owned()
    } else if length > LONGEST {
        format!("it has {length} characters")
    } else if text.contains(visible::is_hidden) {
        "it has control characters or invisible ones".to_owned()
    } else {
        return Ok(text);
    };
    let beginning: String = text.chars().take(40).collect();
    Err(format!("{beginning:?} cannot be a mark: {reason}; accepted: one line of up to {LONGEST} characters"))
}

/// The answer of a watch to a mark, or of a coordinator to a command.
#[derive(Debug)]
pub(crate) struct Answer {
    /// False if the message was refused.
    pub(crate) is_marked: bool,
    /// The answer: a watch's run with the time of the mark, the coordinator's answer to a command, or the reason for a refusal.
    pub(crate) text: String,
}

/// Sends a message to the watch or coordinator that listens on the socket, and returns its answer. Fails if none listens or answers in
/// time.
pub(crate) fn send(socket: &Path, text: &str) -> io::Result<Answer> {
    let mut stream = short(socket, |short| UnixStream::connect(short))?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let [taken, refused] = ANSWERS.map(|first| answer.strip_prefix(first));
    let text = taken.or(refused).ok_or(ErrorKind::UnexpectedEof)?.to_owned();
    Ok(Answer { is_marked: taken.is_some(), text })
}

/// Sends a mark to every watch whose undo log is in this directory, and to coordinators, which refuse it. Returns their answers. Skips a
/// socket without a listener, which belongs to a killed run.
pub(crate) fn send_to_all(dir: &Path, text: &str) -> io::Result<Vec<Answer>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut sockets: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    sockets.retain(|path| path.extension().is_some_and(|end| end == undo::SOCKET));
    sockets.sort();
    let mut answers = Vec::new();
    for socket in sockets {
        match send(&socket, text) {
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {}
            answer => answers.push(answer?),
        }
    }
    Ok(answers)
}

/// Calls `act` with an alias of this path that is short enough for the address of a socket, even if the path itself is not.
fn short<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let directory = File::open(path.parent().unwrap_or(path))?;
    let through = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    act(&through.join(path.file_name().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_one_visible_line() {
        let longest = "ä".repeat(LONGEST);
        for good in ["cable pulled", &longest] {
            assert_eq!(check(good), Ok(good));
        }
        for (bad, reason) in [
            (" ", "it is empty"),
            ("a\nb", "it has control characters"),
            ("\u{1b}[2J", "it has control characters"),
            (&format!("{longest}x"), "it has 201 characters"),
        ] {
            let refused = check(bad).expect_err(bad);
            assert!(refused.contains(reason) && refused.contains("accepted: one line"), "{refused}");
        }
    }

    #[test]
    fn a_socket_that_nobody_listens_on_is_no_watch() {
        let root = tempfile::tempdir().expect("a directory");
        // Deeper than a socket's address is long.
        let dir = root.path().join("d".repeat(120));
        assert!(send_to_all(&dir, "x").expect("no directory").is_empty());
        fs::create_dir(&dir).expect("made");
        let path = dir.join("a.socket");
        drop(short(&path, |short| UnixListener::bind(short)).expect("bound"));
        assert!(send_to_all(&dir, "x").expect("none listens").is_empty());
        let socket = MarkSocket::open(&path).expect("the stale one is replaced");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        std::thread::scope(|scope| {
            let answers = scope.spawn(|| send_to_all(&dir, "cable"));
            socket.answer(PATIENCE, |text| Ok(format!("run 1: {text}")));
            let answers = answers.join().expect("ended").expect("sent");
            assert!(
                matches!(&answers[..], [Answer { is_marked: true, text }] if text == "run 1: cable"),
                "{answers:?}"
            );
        });
        drop(socket);
        assert!(!path.exists());
    }
}
