//! Starts agents as processes of this machine, and collects their exit status and stderr.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::netns;
use iotax_model::threads;

/// Maximum wait for the exit status of a local agent, for an error message.
const LAST_BREATH: Duration = Duration::from_millis(200);
/// Maximum bytes of a process's stderr to keep for error messages.
const STDERR_KEPT: usize = 4096;

/// A local process whose stdin and stdout are connected to an agent or a fleet member.
#[derive(Debug)]
pub struct AgentProcess<R> {
    /// The agent or member itself, or the program that starts it or connects to its machine, such as ssh.
    pub child: Child,
    /// The process's stdin, which takes messages to the agent.
    pub stdin: ChildStdin,
    /// The process's stdout, positioned at the first message.
    pub stdout: R,
    /// The last part of the process's stderr, for error messages.
    pub said: Arc<Mutex<Vec<u8>>>,
}

/// Shell script that runs the program as a fleet member and, if it fails or is killed, runs `iotax clean` on its state.
const MEMBER: &str = r#"
trap : HUP INT TERM PIPE
export XDG_STATE_HOME="$2"
"$1" fleet member || "$1" clean </dev/null >&2
"#;

/// Starts the program at `program` as a fleet member on this machine, in the network namespace `namespace` if given. Its state directory is
/// `state`.
///
/// # Errors
/// The shell cannot be started.
pub fn start_member(
    namespace: Option<&str>,
    program: &Path,
    state: &Path,
) -> io::Result<AgentProcess<ChildStdout>> {
    let mut command = netns::command_in(namespace, Path::new("/bin/sh"));
    command.args(["-c", MEMBER, "sh"]).args([program, state]);
    piped(command)
}

/// Starts `exe agent`, in the network namespace `namespace` if given.
pub(super) fn start(namespace: Option<&str>, exe: &Path) -> io::Result<AgentProcess<ChildStdout>> {
    let mut command = netns::command_in(namespace, exe);
    command.arg("agent");
    piped(command)
}

fn piped(mut command: Command) -> io::Result<AgentProcess<ChildStdout>> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The runner handles Ctrl-C; an agent killed by it would look like a crash.
        .process_group(0)
        .spawn()?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        unreachable!("all three were asked to be pipes");
    };
    Ok(AgentProcess { child, stdin, stdout, said: keep_last(stderr) })
}

/// Starts a thread that reads a stream to its end and keeps the last 4096 bytes. If the thread cannot be started, returns the error as the
/// text.
pub(crate) fn keep_last(mut stream: impl Read + Send + 'static) -> Arc<Mutex<Vec<u8>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&kept);
    let reading = threads::spawn("stderr", move || {
        let mut chunk = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            let Ok(mut kept) = shared.lock() else { break };
            kept.extend_from_slice(&chunk[..count]);
            let surplus = kept.len().saturating_sub(STDERR_KEPT);
            kept.drain(..surplus);
        }
    });
    if let (Err(error), Ok(mut kept)) = (reading, kept.lock()) {
        kept.extend_from_slice(error.to_string().as_bytes());
    }
    kept
}

/// Waits for a local agent to exit. Returns its exit status; `None` if it is still running after `deadline`.
pub(super) fn status(child: &Mutex<Child>, deadline: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + deadline;
    loop {
        let status = child.lock().ok().and_then(|mut child| child.try_wait().ok().flatten());
        if status.is_some() || Instant::now() >= end {
            return status;
        }
        threads::sleep(Duration::from_millis(2));
    }
}

/// Describes the exit status and the last stderr output of a local agent, for error messages.
pub(super) fn exit_diagnostics(child: &Mutex<Child>, said: &Mutex<Vec<u8>>) -> String {
    let mut words: Vec<String> = status(child, LAST_BREATH).iter().map(ToString::to_string).collect();
    if let Ok(said) = said.lock() {
        words.push(String::from_utf8_lossy(&said).trim().to_owned());
    }
    words.retain(|word| !word.is_empty());
    words.join(": ")
}
