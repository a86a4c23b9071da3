//! Starts agents as processes of this machine, and collects their exit status and stderr.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::netns;
use iotax_model::threads;

/// Time for a local agent's process to exit after its stream ended.
const LAST_BREATH: Duration = Duration::from_millis(200);
/// Bytes of a local agent's stderr kept for error messages.
const STDERR_KEPT: usize = 4096;

/// A process that connects to an agent through its pipes.
#[derive(Debug)]
pub struct AgentProcess<R> {
    /// The process, which may be ssh.
    pub child: Child,
    /// The process's stdin.
    pub stdin: ChildStdin,
    /// The process's stdout, positioned at the first frame.
    pub stdout: R,
    /// The tail of the process's stderr.
    pub said: Arc<Mutex<Vec<u8>>>,
}

/// Shell script that runs the program as a fleet member and, if it fails or is killed, runs `iotax clean` on its state.
const MEMBER: &str = r#"
trap : HUP INT TERM PIPE
export XDG_STATE_HOME="$2"
"$1" fleet member || "$1" clean </dev/null >&2
"#;

/// Starts the program as a fleet member on this machine, optionally in a network namespace. Its state goes to a separate directory.
///
/// # Errors
/// No shell can be started.
pub fn start_member(
    namespace: Option<&str>,
    program: &Path,
    state: &Path,
) -> io::Result<AgentProcess<ChildStdout>> {
    let mut command = netns::command_in(namespace, Path::new("/bin/sh"));
    command.args(["-c", MEMBER, "sh"]).args([program, state]);
    piped(command)
}

/// Starts `exe agent`, optionally in a network namespace.
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

/// Spawns a thread that keeps the tail of a stream's output.
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

/// The exit status of a local agent, if it exits before the deadline.
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

/// The exit status and last output of a local agent.
pub(super) fn exit_diagnostics(child: &Mutex<Child>, said: &Mutex<Vec<u8>>) -> String {
    let mut words: Vec<String> = status(child, LAST_BREATH).iter().map(ToString::to_string).collect();
    if let Ok(said) = said.lock() {
        words.push(String::from_utf8_lossy(&said).trim().to_owned());
    }
    words.retain(|word| !word.is_empty());
    words.join(": ")
}
