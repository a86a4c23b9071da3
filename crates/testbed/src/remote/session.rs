//! A process that connects to a machine or container: sends a script, reads its output lines, and hands the connection over to an agent.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{RemoteError, RemoteHost, reach};
use crate::agent_client::{AgentProcess, keep_last};
use crate::interrupt::{Interrupt, POLL};
use iotax_model::threads;

/// Maximum length of an output line in bytes.
const LINE: u64 = 4096;
/// Maximum time for the connecting process to exit after its stdout closed.
const LAST_BREATH: Duration = Duration::from_secs(2);
/// Maximum bytes of unexpected output to keep for errors.
const NOISE: usize = 400;

/// Output of the remote script.
pub(super) enum SessionOutput {
    /// A line of the script, without the leading tag.
    Line(String),
    /// The agent has started; holds stdout, positioned at its first message.
    Frames(BufReader<ChildStdout>),
}

/// The connecting process, with a script running at the other end.
pub(super) struct RemoteSession {
    host: RemoteHost,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<SessionOutput>,
    /// The last part of the process's stderr.
    said: Arc<Mutex<Vec<u8>>>,
    /// Output on stdout that does not carry the script's tag: login greetings, or the output of something other than a shell.
    noise: Arc<Mutex<String>>,
}

impl RemoteSession {
    /// Starts the connecting process and sends it the script. The script must begin its output lines with `tag`. A script that starts an
    /// agent prints the line `agent` last; the agent's messages follow.
    pub(super) fn open(host: &RemoteHost, tag: &str, ask: bool, script: &str) -> Result<Self, RemoteError> {
        Self::through(reach::shell(&host.machine, ask), host, tag, script)
    }

    /// Starts a command that connects its stdin and stdout to a shell on the machine, and sends the script as [`Self::open`] does.
    pub(super) fn through(
        mut command: Command,
        host: &RemoteHost,
        tag: &str,
        script: &str,
    ) -> Result<Self, RemoteError> {
        reach::program(&host.machine).find()?;
        let local = |source| RemoteError::Local { host: host.clone(), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(local)?;
        let (Some(mut stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            unreachable!("all three were asked to be pipes");
        };
        let noise = Arc::default();
        let lines = listen(stdout, format!("{tag} "), Arc::clone(&noise));
        // The script fits into the pipe. If the process has already failed, its output shows why.
        let _ = stdin.write_all(script.as_bytes());
        Ok(Self { host: host.clone(), child, stdin, lines, said: keep_last(stderr), noise })
    }

    /// Waits for the script's next output; `None` if stdout has closed. Fails after `patience` or on an interrupt.
    pub(super) fn hear(
        &mut self,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<SessionOutput>, RemoteError> {
        let end = Instant::now() + patience;
        loop {
            if interrupt.load(Ordering::Relaxed) {
                return Err(RemoteError::Interrupted);
            }
            match self.lines.recv_timeout(POLL) {
                Ok(heard) => return Ok(Some(heard)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if Instant::now() > end => {
                    return Err(RemoteError::Deadline { host: self.host.clone(), waited: patience });
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Sends bytes to the other end. Returns false if that end has closed its stdin; its output then gives the reason.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stdin.write_all(bytes).is_ok()
    }

    /// Sends the content of a local file. Stops early, without an error, if the other end closes its stdin.
    pub(super) fn send_file(&mut self, path: &Path, interrupt: &Interrupt) -> Result<(), RemoteError> {
        let host = self.host.clone();
        let local = |source| RemoteError::Local { host: host.clone(), source };
        let mut file = File::open(path).map_err(local)?;
        let mut chunk = vec![0; 1 << 18];
        loop {
            let count = file.read(&mut chunk).map_err(local)?;
            if interrupt.load(Ordering::Relaxed) {
                return Err(RemoteError::Interrupted);
            }
            if count == 0 || !self.send(&chunk[..count]) {
                return Ok(());
            }
        }
    }

    /// Hands the connection over to an agent client, once the remote agent runs.
    pub(super) fn into_process(self, stdout: BufReader<ChildStdout>) -> AgentProcess<BufReader<ChildStdout>> {
        AgentProcess { child: self.child, stdin: self.stdin, stdout, said: self.said }
    }

    /// Returns the exit status of the connecting process, which is the script's if the script ran. `None` if the
    /// process was killed by a signal, or is still running 2 s after the call.
    pub(super) fn status(&mut self) -> Option<i32> {
        let end = Instant::now() + LAST_BREATH;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < end => threads::sleep(Duration::from_millis(5)),
                Ok(status) => return status?.code(),
                Err(_) => return None,
            }
        }
    }

    /// Kills the connecting process.
    pub(super) fn end(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Returns the output on stderr and stdout that is not from the script, for error messages. Waits up to 2 s for the process to exit.
    pub(super) fn words(&mut self) -> String {
        // The thread that reads stderr may lag behind.
        self.status();
        threads::sleep(POLL);
        let said = self.said.lock().map(|said| String::from_utf8_lossy(&said).into_owned());
        let noise = self.noise.lock().map(|noise| noise.clone());
        let all = [said.unwrap_or_default(), noise.unwrap_or_default()].join("\n");
        let lines: Vec<&str> = all.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        if lines.is_empty() { "it ended without a word".into() } else { lines.join("; ") }
    }
}

/// Starts a thread that reads the script's lines from stdout, up to the line `agent`.
fn listen(stdout: ChildStdout, tag: String, noise: Arc<Mutex<String>>) -> Receiver<SessionOutput> {
    let (sender, lines) = mpsc::channel();
    let said = Arc::clone(&noise);
    let listening = threads::spawn("remote", move || {
        let mut stdout = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            if !matches!(stdout.by_ref().take(LINE).read_until(b'\n', &mut line), Ok(1..)) {
                break;
            }
            let line = String::from_utf8_lossy(&line);
            match line.trim_end().strip_prefix(&tag) {
                Some("agent") => {
                    let _ = sender.send(SessionOutput::Frames(stdout));
                    break;
                }
                Some(line) if sender.send(SessionOutput::Line(line.to_owned())).is_ok() => {}
                Some(_) => break,
                None => {
                    if let Ok(mut noise) = noise.lock()
                        && noise.len() < NOISE
                    {
                        noise.push_str(&line);
                    }
                }
            }
        }
    });
    if let (Err(error), Ok(mut said)) = (listening, said.lock()) {
        said.push_str(&error.to_string());
    }
    lines
}
