//! Transactions of pgbench against a PostgreSQL server that is started for the measurement.
//!
//! The server and pgbench are child processes of the worker's thread, and the kernel kills them when that thread ends, however it ends. One
//! worker runs all clients. The times of transactions are pgbench's own: its log of transactions goes into a pipe.

mod counts;
mod log;
mod processes;
mod server;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use iotax_load::clock;
use iotax_load::error::EngineError;
use iotax_load::window::Window;
use iotax_model::postgresql::USER;
use iotax_model::units::Nanos;
use iotax_model::workload::Workload;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use self::counts::Counts;
use self::log::{Entry, Log};
use self::processes::{ErrorOutput, ProcessTree};
use self::server::ClusterServer;
use super::meter::{Meter, Over};
use super::setup::WorkerSetup;
use super::{ProgramResults, Routine};

/// Clients for which PostgreSQL's default of 100 connections suffices.
const CLIENTS: u32 = 90;
/// Time after the window's end for the transactions in flight; less than the time after which the worker counts as stuck.
const DRAIN: Nanos = Nanos::from_secs(8);
/// Longest time between two looks at the stop flag.
const POLL: Nanos = Nanos::from_millis(100);
/// Seconds after the window in which pgbench would end by itself. A signal at the window's end ends it before.
const LATER: u64 = 30;

/// The clients of one measurement, and their server.
struct Transactions {
    server: ClusterServer,
    programs: PathBuf,
    directory: PathBuf,
    workload: Workload,
    seed: u64,
    result: Result<ProgramResults, String>,
}

/// Creates a cluster with pgbench's tables, flushed, and starts its server with nothing in its buffers.
pub(super) fn prepare(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let own = setup.own_directory()?;
    let programs = setup.postgresql.clone().ok_or(EngineError::NoPostgresql)?;
    let mut server = filled(&programs, own.path(), &setup.workload).map_err(EngineError::Postgresql)?;
    let files = files(own.path()).map_err(EngineError::system("listing the cluster's files"))?;
    own.settle(setup.workload.invalidate, files.iter().map(OsString::as_os_str))?;
    let clients = setup.workload.numjobs;
    let connections = (clients > CLIENTS).then(|| format!("max_connections={}", clients + 10));
    let lazily = (!setup.workload.commits_are_durable()).then_some("synchronous_commit=off");
    let settings: Vec<&str> = connections.as_deref().into_iter().chain(lazily).collect();
    server.start(&settings).map_err(EngineError::Postgresql)?;
    Ok(Box::new(Transactions {
        server,
        programs,
        directory: own.path().to_owned(),
        workload: setup.workload.clone(),
        seed: setup.seed,
        result: Ok(ProgramResults::default()),
    }))
}

/// Creates a cluster with pgbench's tables in `directory`. Its server is stopped.
fn filled(programs: &Path, directory: &Path, workload: &Workload) -> Result<ClusterServer, String> {
    let mut server = ClusterServer::create(programs, directory)?;
    // All is flushed after everything is there.
    server.start(&["fsync=off"])?;
    let scale = format!("--scale={}", workload.pgbench_scale());
    let mut fill = pgbench(programs, directory);
    processes::finish(fill.args(["--initialize", "--quiet", &scale, "postgres"]))?;
    server.stop()?;
    Ok(server)
}

/// Prepares pgbench for the server whose cluster is in `directory`.
fn pgbench(programs: &Path, directory: &Path) -> Command {
    let mut command = processes::bound(&programs.join("pgbench"), Signal::KILL);
    command.current_dir(directory).args(["-h", server::SOCKETS, "-U", USER]);
    command
}

/// Lists the files of the cluster's tables, relative to `directory`.
fn files(directory: &Path) -> io::Result<Vec<OsString>> {
    let mut files = Vec::new();
    let base = Path::new(server::CLUSTER).join("base");
    for database in fs::read_dir(directory.join(&base))? {
        let database = base.join(database?.file_name());
        for file in fs::read_dir(directory.join(&database))? {
            files.push(database.join(file?.file_name()).into_os_string());
        }
    }
    Ok(files)
}

impl Transactions {
    /// Starts pgbench. Its standard output receives the log of transactions, and then the summary.
    #[expect(unsafe_code, reason = "what is called between fork and exec")]
    fn start(&self, window: Window, errors: &ErrorOutput) -> io::Result<Running> {
        let Workload { numjobs, rate_iops, latency_limit, .. } = &self.workload;
        let seconds = (window.end - window.start).div_ceil(1_000_000_000) + LATER;
        let mut command = pgbench(&self.programs, &self.directory);
        command.args(["--no-vacuum", "--jobs=1", "--log", "--log-prefix", log::PREFIX]);
        command.arg(format!("--builtin={}", self.workload.pgbench_script()));
        command.args([format!("--client={numjobs}"), format!("--time={seconds}")]);
        command.arg(format!("--random-seed={}", self.seed));
        command.args(rate_iops.map(|rate| format!("--rate={}", rate * u64::from(*numjobs))));
        command.args(latency_limit.map(|limit| format!("--latency-limit={}", limit.0 / 1_000_000)));
        command.arg("postgres").stdout(Stdio::piped()).stderr(errors.stdio()?);
        // SAFETY: between fork and exec the function makes system calls only, and allocates nothing.
        unsafe {
            command.pre_exec(log::link_to_stdout);
        }
        Ok(Running(command.spawn()?))
    }

    /// Runs pgbench until the window is over, and counts its transactions.
    fn measure(&self, meter: &mut Meter) -> Result<ProgramResults, String> {
        let failed = |error: io::Error| format!("pgbench: {error}");
        let window = meter.window();
        let errors = ErrorOutput::new().map_err(failed)?;
        let mut pgbench = self.start(window, &errors).map_err(failed)?;
        let mut stdout = pgbench.0.stdout.take().ok_or("pgbench: its output is no pipe")?;
        let tree = ProcessTree::new(vec![pgbench.0.id(), self.server.process()]);
        let mut counts = Counts::new(window, tree, &self.workload);
        let mut log = Log::new(self.workload.latency_limit);
        let mut bytes = vec![0; 1 << 16];
        let mut is_ended = false;
        loop {
            let now = clock::now();
            counts.take_marks(now).map_err(|error| format!("reading the CPU time of PostgreSQL: {error}"))?;
            if now >= window.end && !is_ended {
                is_ended = true;
                // The signal of pgbench's own timer: no client begins another transaction.
                let _ = kill_process(Pid::from_child(&pgbench.0), Signal::ALARM);
            }
            if meter.is_stopped() {
                return Ok(ProgramResults::default());
            }
            if now >= window.end + DRAIN.0 {
                let late = "transactions in flight did not end within";
                return Err(format!("pgbench: {late} {DRAIN} of the window's end; does the storage hang?"));
            }
            let wait = counts.next_mark().saturating_sub(now).min(POLL.0);
            if !is_readable(&stdout, wait).map_err(failed)? {
                continue;
            }
            let length = stdout.read(&mut bytes).map_err(failed)?;
            if length == 0 {
                break;
            }
            log.read(&bytes[..length], &mut |entry| match entry {
                Entry::Done(transaction) => counts.add(transaction, meter),
                Entry::Skipped(at) => counts.skip(at),
                Entry::Failed(at) => counts.fail(at, meter),
            });
        }
        counts.finish(meter);
        self.check(pgbench, &errors, &counts, &log)?;
        Ok(counts.results())
    }

    /// Compares pgbench's summary with the transactions that were read.
    fn check(
        &self,
        mut pgbench: Running,
        errors: &ErrorOutput,
        counts: &Counts,
        log: &Log,
    ) -> Result<(), String> {
        let status = pgbench.0.wait().map_err(|error| format!("pgbench: {error}"))?;
        let ended_in_time = status.success() || status.signal() == Some(Signal::ALARM.as_raw());
        if ended_in_time && !counts.began_before_window() {
            let Workload { numjobs, ramp_time, .. } = &self.workload;
            return Err(format!(
                "pgbench: no transaction of its {numjobs} client(s) began within ramp_time = {ramp_time}; use a longer one, such as {}",
                Nanos(ramp_time.0.saturating_mul(4))
            ));
        }
        if !status.success() {
            let server = self.server.reason().map(|reason| format!("; the server: {reason}"));
            return Err(format!("pgbench: {} ({status}){}", errors.text(), server.unwrap_or_default()));
        }
        match log.summary() {
            Some(totals) if totals == log.totals => Ok(()),
            totals => Err(format!(
                "pgbench: its log has {}, and its summary {}; run the measurement again",
                log.totals,
                totals.map_or_else(|| "no number of transactions".into(), |totals| totals.to_string())
            )),
        }
    }
}

impl Routine for Transactions {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        self.result = self.measure(meter);
        ControlFlow::Break(Over)
    }

    fn conclude(self: Box<Self>) -> Result<ProgramResults, EngineError> {
        self.result.map_err(EngineError::Postgresql)
    }
}

/// A pgbench that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Blocks for at most `wait_ns` nanoseconds. Returns whether bytes or the end of the stream can be read.
fn is_readable(stdout: &ChildStdout, wait_ns: u64) -> io::Result<bool> {
    let seconds = i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let wait = Timespec { tv_sec: seconds, tv_nsec: (wait_ns % 1_000_000_000).cast_signed() };
    match poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&wait)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}
