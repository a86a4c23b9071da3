//! A PostgreSQL server with a new cluster, for one measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use iotax_model::postgresql::{INITDB, SETTINGS, UNPRIVILEGED};
use iotax_model::threads;
use rustix::process::{Pid, Signal, geteuid, kill_process};

use super::processes::{self, ErrorOutput};

/// Name of the cluster in the worker's directory.
pub(super) const CLUSTER: &str = "cluster";
/// Directory of the server's socket, for clients whose working directory is the worker's. This path is short enough for the name of a socket,
/// wherever the directory is.
pub(super) const SOCKETS: &str = "/proc/self/cwd/cluster";
/// Flags of unshare(1) with which all processes of a server end with its first.
const TOGETHER: [&str; 2] = ["--pid", "--kill-child"];
/// Maximum time for a server to begin or end.
const PATIENCE: Duration = Duration::from_mins(2);
const POLL: Duration = Duration::from_millis(5);

/// A server's cluster, and the server while it runs. Dropping it kills the server; the cluster's files remain.
#[derive(Debug)]
pub(super) struct ClusterServer {
    programs: PathBuf,
    /// The worker's directory, which contains the cluster's.
    directory: PathBuf,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    /// The server's main process; as root unshare(1), whose child that is.
    child: Child,
    /// The server's log.
    log: ErrorOutput,
}

impl ClusterServer {
    /// Creates a cluster in a worker's directory, without flushing it.
    pub(super) fn create(programs: &Path, directory: &Path) -> Result<Self, String> {
        let mut initdb = unprivileged(&programs.join("initdb"), &[]);
        let initdb = initdb.current_dir(directory).args(["--no-sync", "-D", CLUSTER]).args(INITDB);
        processes::finish(initdb).map_err(|error| {
            let remedy =
                "PostgreSQL does not run as root, which needs a user namespace here; measure as another user";
            if error.starts_with("unshare: ") { format!("{error}; {remedy}") } else { error }
        })?;
        Ok(Self { programs: programs.to_owned(), directory: directory.to_owned(), running: None })
    }

    /// Starts the server with the defaults of its settings but `settings`, which have the form `name=value`, and waits until it takes clients.
    pub(super) fn start(&mut self, settings: &[&str]) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("postgres: {error}");
        let mut command = unprivileged(&self.programs.join("postgres"), &TOGETHER);
        command.current_dir(&self.directory).args(["-D", CLUSTER]);
        // Relative to the cluster, which only its owner can enter.
        for setting in SETTINGS.iter().chain(&["unix_socket_directories=."]).chain(settings) {
            command.args(["-c", setting]);
        }
        let log = ErrorOutput::new().map_err(failed)?;
        let child = command.stderr(log.stdio().map_err(failed)?).spawn().map_err(failed)?;
        let running = self.running.insert(Running { child, log });
        let deadline = Instant::now() + PATIENCE;
        let state = self.directory.join(CLUSTER).join("postmaster.pid");
        // Its eighth line is the server's state.
        while !fs::read_to_string(&state)
            .is_ok_and(|text| text.lines().nth(7).is_some_and(|state| state.trim() == "ready"))
        {
            if !matches!(running.child.try_wait(), Ok(None)) {
                return Err(format!("postgres: {}", running.log.text()));
            }
            if Instant::now() > deadline {
                return Err(format!("postgres: it took no clients within {} s", PATIENCE.as_secs()));
            }
            threads::sleep(POLL);
        }
        Ok(())
    }

    /// Stops the server, which writes its buffers.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        if running.end(Signal::INT) { Ok(()) } else { Err(format!("postgres: {}", running.log.text())) }
    }

    /// Returns the id of the first of the server's processes; 0 if it does not run.
    pub(super) fn process(&self) -> u32 {
        self.running.as_ref().map_or(0, |running| running.child.id())
    }

    /// Returns the last error that ended the server or one of its processes, from its log; `None` if it has none.
    pub(super) fn reason(&self) -> Option<String> {
        let log = self.running.as_ref()?.log.text();
        let last = |word: &str| log.lines().rev().find_map(|line| Some(line.split_once(word)?.1.to_owned()));
        last("PANIC:  ").or_else(|| last("FATAL:  "))
    }
}

impl Running {
    /// Sends a signal to the server's main process and waits for its end. Returns whether it succeeded.
    fn end(&mut self, signal: Signal) -> bool {
        let own = self.child.id();
        let main = if geteuid().is_root() { processes::child_of(own) } else { Some(own) };
        let Some(main) = main.and_then(|id| Pid::from_raw(id.cast_signed())) else { return false };
        let _ = kill_process(main, signal);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(None) => threads::sleep(POLL),
                ended => return ended.is_ok_and(|status| status.is_some_and(|status| status.success())),
            }
        }
        false
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The server ends its processes and removes its shared memory, without writing its buffers.
            self.end(Signal::QUIT);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Prepares a program of the server. PostgreSQL refuses to run as root, which therefore appears as an unprivileged user. `flags` of unshare(1)
/// are for root only.
fn unprivileged(program: &Path, flags: &[&str]) -> Command {
    if !geteuid().is_root() {
        // SIGQUIT ends a server with all its processes.
        return processes::bound(program, Signal::QUIT);
    }
    let mut command = processes::bound(Path::new("unshare"), Signal::KILL);
    command.args(UNPRIVILEGED).args(flags).arg(program);
    command
}
