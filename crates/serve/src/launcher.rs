//! Runs started from the browser: one at a time, each as a separate process.

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

/// Number of bytes kept of a process's output.
const KEPT: usize = 16 << 10;
/// Time between two checks of a process that is ending.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for a run to undo its effects when the server ends.
const FAREWELL: Duration = Duration::from_mins(2);

/// A started run and its state.
#[derive(Debug, Clone)]
pub(crate) struct Begun {
    /// The plan's name.
    pub(crate) name: String,
    /// The last part of its output.
    pub(crate) said: String,
    /// Its exit; absent while it runs.
    pub(crate) ended: Option<String>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// True once it was asked to stop. A second signal would kill it before it has undone its effects.
    is_stopping: bool,
    begun: Begun,
}

/// Begins runs.
#[derive(Debug)]
pub(crate) struct Launcher {
    pub(crate) launch: Launch,
    store: Location,
    /// The last one that was begun.
    last: Arc<Mutex<Option<Process>>>,
}

impl Launcher {
    pub(crate) fn new(launch: Launch, store: Location) -> Self {
        Self { launch, store, last: Arc::default() }
    }

    /// The last run that was begun.
    pub(crate) fn last(&self) -> Option<Begun> {
        lock(&self.last).as_ref().map(|process| process.begun.clone())
    }

    /// Begins a run of a plan, unless one goes on: two would measure each other.
    ///
    /// The plan's text goes to the process's stdin and the store's place to its environment, so no shell and no other user reads either. Who wrote the
    /// plan is not known, so the process is confined to directories and refuses by itself what goes beyond them.
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
            // Ctrl-C at the server's terminal is not for it: the server ends it.
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
                // A process that ends before it reads says why.
                let _ = stdin.write_all(plan.as_bytes());
            }
            stderr.into_iter().for_each(|stderr| listen(stderr, &of));
            while !has_ended(&of) {
                threads::sleep(PAUSE);
            }
        });
        listening.map(drop).map_err(|error| {
            // Without a plan it has begun nothing.
            if let Some(mut process) = lock(&self.last).take() {
                let _ = process.child.kill().and_then(|()| process.child.wait());
            }
            Problem::internal(error.to_string())
        })
    }

    /// Asks the current run to stop, which it does after undoing its effects.
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

    /// Stops the current run, if any, and waits for it.
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

/// Keeps the last part of a process's output, until its end.
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

/// Records how a process ended, once it has.
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
