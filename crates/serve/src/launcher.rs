//! Starts runs from the browser: one at a time, each in a separate process.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use iotax_store::Location;
use rustix::process::{Pid, Signal, kill_process};

use crate::config::Launch;
use crate::problem::Problem;
use iotax_model::threads;

/// Number of bytes kept from the end of a process's stderr.
const KEPT: usize = 16 << 10;
/// Interval at which to check whether a process has exited.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum time to wait at shutdown until a run has undone its changes.
const FAREWELL: Duration = Duration::from_mins(2);

/// The state of a run that this server started.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    /// Name of the plan, or of its file.
    pub(crate) name: String,
    /// The last 16 KiB of the process's stderr.
    pub(crate) said: String,
    /// Exit status as text; `None` while the process runs.
    pub(crate) ended: Option<String>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// True if the process was already asked to stop. A second signal would kill it before it has undone its changes.
    is_stopping: bool,
    begun: Begun,
}

/// Launcher that starts and stops runs, one at a time.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) launch: Launch,
    store: Location,
    /// The process that was started last; `None` before the first.
    last: Arc<Mutex<Option<Process>>>,
}

impl Launcher {
    pub(crate) fn new(launch: Launch, store: Location) -> Self {
        Self { launch, store, last: Arc::default() }
    }

    /// Returns the state of the run that was started last; `None` before the first.
    pub(crate) fn last(&self) -> Option<Begun> {
        lock(&self.last).as_ref().map(|process| process.begun.clone())
    }

    /// Starts a run of a plan. Fails if another one is still running: concurrent runs would disturb each other's results.
    ///
    /// The plan is passed on stdin and the store's location in the environment, so that no shell interprets them and no other user sees
    /// them. Because the plan's author is unknown, the process rejects plans that do more than create and read files in the configured
    /// directories.
    pub(crate) fn begin(&self, name: &str, plan: String) -> Result<(), Problem> {
        let mut last = lock(&self.last);
        if let Some(process) = last.as_ref().filter(|process| process.begun.ended.is_none()) {
            let name = &process.begun.name;
            return Err(Problem::conflict(format!(
                "{name:?} is still going on; two runs at once would measure each other"
            )));
        }
        let spawned = Command::new(&self.launch.program)
            .args(["run", "/dev/stdin", "--yes"])
            .args(self.launch.directories.iter().flat_map(|dir| [OsStr::new("--confine"), dir.as_os_str()]))
            .env("IOTAX_DB", self.store.with_password())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Keeps Ctrl-C at the server's terminal from this process; the server stops the process itself.
            .process_group(0)
            .spawn();
        let mut child = spawned.map_err(|error| {
            Problem::internal(format!("{} cannot be started: {error}", self.launch.program.display()))
        })?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let begun = Begun { name: name.to_owned(), said: String::new(), ended: None };
        *last = Some(Process { child, is_stopping: false, begun });
        drop(last);
        let of = Arc::clone(&self.last);
        let listening = threads::spawn("launcher", move || {
            if let Some(mut stdin) = stdin {
                // A process that exits before it reads its plan reports the reason.
                let _ = stdin.write_all(plan.as_bytes());
            }
            stderr.into_iter().for_each(|stderr| listen(stderr, &of));
            while !has_ended(&of) {
                threads::sleep(PAUSE);
            }
        });
        listening.map(drop).map_err(|error| {
            // Without its plan the process has not started anything.
            if let Some(mut process) = lock(&self.last).take() {
                let _ = process.child.kill().and_then(|()| process.child.wait());
            }
            Problem::internal(error.to_string())
        })
    }

    /// Asks the running process to stop; it undoes its changes and exits. Fails if no run is in progress.
    pub(crate) fn cancel(&self) -> Result<(), Problem> {
        let mut last = lock(&self.last);
        let process = last.as_mut().filter(|process| process.begun.ended.is_none());
        let process = process.ok_or_else(|| Problem::conflict("no run of this server goes on"))?;
        if process.is_stopping {
            return Ok(());
        }
        kill_process(Pid::from_child(&process.child), Signal::INT)
            .map_err(|error| Problem::internal(format!("the run cannot be stopped: {error}")))?;
        process.is_stopping = true;
        Ok(())
    }

    /// Asks the running process to stop, if there is one, and waits up to 2 minutes for its exit.
    pub(crate) fn stop(&self) {
        if self.cancel().is_err() {
            return;
        }
        let until = Instant::now() + FAREWELL;
        while self.last().is_some_and(|begun| begun.ended.is_none()) && Instant::now() < until {
            threads::sleep(PAUSE);
        }
    }
}

fn lock(last: &Mutex<Option<Process>>) -> std::sync::MutexGuard<'_, Option<Process>> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a process's stderr until it ends, and keeps the last 16 KiB.
fn listen(mut stderr: impl Read, of: &Mutex<Option<Process>>) {
    let (mut buffer, mut said) = ([0; 4096], Vec::new());
    while let Ok(read @ 1..) = stderr.read(&mut buffer) {
        said.extend_from_slice(&buffer[..read]);
        if said.len() > KEPT {
            said.drain(..said.len() - KEPT);
        }
        if let Some(process) = lock(of).as_mut() {
            process.begun.said = String::from_utf8_lossy(&said).into_owned();
        }
    }
}

/// Returns whether no process is running; records the exit status of one that has exited.
fn has_ended(of: &Mutex<Option<Process>>) -> bool {
    let mut last = lock(of);
    let Some(process) = last.as_mut() else { return true };
    let ended = match process.child.try_wait() {
        Ok(None) => return false,
        Ok(Some(status)) => status.to_string(),
        Err(error) => error.to_string(),
    };
    process.begun.ended = Some(ended);
    true
}
