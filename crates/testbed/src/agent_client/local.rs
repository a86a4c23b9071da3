//! An agent's process on this machine.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::netns;

/// How long after its stream a local agent's process may take to end.
const LAST_BREATH: Duration = Duration::from_millis(200);
/// How much of a local agent's stderr is kept for an error's text.
const STDERR_KEPT: usize = 4096;

/// A process that has an agent behind its pipes.
pub(crate) struct Process<R> {
    pub(crate) child: Child,
    pub(crate) stdin: ChildStdin,
    /// From where the frames begin.
    pub(crate) stdout: R,
    /// The end of what it writes to stderr.
    pub(crate) said: Arc<Mutex<Vec<u8>>>,
}

/// Starts `exe agent`, in a network namespace if one is named.
pub(super) fn start(namespace: Option<&str>, exe: &Path) -> io::Result<Process<ChildStdout>> {
    let mut child = netns::command_in(namespace, exe)
        .arg("agent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is the conductor's to handle; an agent that it kills would look like a crash.
        .process_group(0)
        .spawn()?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        unreachable!("all three were asked to be pipes");
    };
    Ok(Process { child, stdin, stdout, said: keep_last(stderr) })
}

/// The end of what is written to a stream, kept up to date by a thread.
pub(crate) fn keep_last(mut stream: impl Read + Send + 'static) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&kept);
    thread::spawn(move || {
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            let Ok(mut kept) = shared.lock() else { break };
            kept.extend_from_slice(&chunk[..count]);
            let surplus = kept.len().saturating_sub(STDERR_KEPT);
            kept.drain(..surplus);
        }
    });
    kept
}

/// How a local agent ended, if it does before the deadline.
pub(super) fn status(child: &Mutex<Child>, deadline: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + deadline;
    loop {
        let status = child.lock().ok().and_then(|mut child| child.try_wait().ok().flatten());
        if status.is_some() || Instant::now() >= end {
            return status;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// How a local agent ended and what it said last.
pub(super) fn last_words(child: &Mutex<Child>, said: &Mutex<Vec<u8>>) -> String {
    let mut words: Vec<String> = status(child, LAST_BREATH).iter().map(ToString::to_string).collect();
    if let Ok(said) = said.lock() {
        words.push(String::from_utf8_lossy(&said).trim().to_owned());
    }
    words.retain(|word| !word.is_empty());
    words.join(": ")
}
