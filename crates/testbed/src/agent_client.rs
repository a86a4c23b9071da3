//! Client side of the agent protocol, over any byte stream.
//!
//! Every wait has a deadline, and a wait for an answer ends within [`POLL`] of an interrupt, unless the load may be ended early. After an
//! error other than [`AgentError::Failed`] the connection is unusable: a late answer could be mistaken for the answer to the next request.

mod ending;
mod error;
mod heard;
mod local;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iotax_model::record::{CacheDrop, Interface, Outcome};
use iotax_model::units::Bytes;
use iotax_model::verify_errors::Recovery;
use iotax_model::wire::{
    self, AgentHello, ByteRange, Description, Event, FoundDisk, Job, PROTOCOL, Request, WireError,
};
use iotax_model::{survey::Survey, threads, workload::Content};

use crate::interrupt::{Interrupt, POLL, SILENCE};
use ending::Ending;
pub use error::AgentError;
use heard::Heard;
pub(crate) use local::keep_last;
use local::status;
pub use local::{AgentProcess, start_member};

/// Timeout of short requests, such as a ping, and of writes to a socket. Generous, because an emulated guest on a busy host is slow.
const PROMPT: Duration = Duration::from_secs(20);
/// Timeout of a cache drop, which first syncs: that takes long with many dirty pages.
const SYNC: Duration = Duration::from_mins(5);
/// Timeout of a survey, and of opening a target and allocating buffers, which takes longest in an emulated guest. A job's own time for
/// set-up and pre-reading is added.
const PREPARED: Duration = Duration::from_mins(1);
/// Timeout of the overhead measurement, which itself takes well under a second.
const FLOOR: Duration = Duration::from_mins(1);
/// Timeout of an audit, which reads back all writes that the journal lists. The user can interrupt it.
const AUDIT: Duration = Duration::from_hours(24);
/// Assumed minimum speed of storage in bytes per second, for the deadline of reading an area into the page cache.
const SLOWEST: u64 = 10_000_000;
/// Timeout for reaping a killed agent. An agent with I/O on a hung disk does not exit.
const REAPED: Duration = Duration::from_secs(5);

/// Callback for error messages: returns the exit status and last output of the agent's process, as far as known; may be empty.
pub type ExitDiagnostics = Box<dyn FnMut() -> String + Send>;

/// A connection to one agent. Dropping it ends the connection, and kills the local process behind it, if any: the agent itself or a program
/// that connects to it, such as ssh.
pub struct AgentClient {
    peer: String,
    writer: Option<Box<dyn Write + Send>>,
    events: Receiver<Result<Event, WireError>>,
    exit_diagnostics: ExitDiagnostics,
    interrupt: Interrupt,
    child: Option<Arc<Mutex<Child>>>,
    over: bool,
    /// Time since the last message or other sign of life from the agent, while an answer is pending.
    silent: Duration,
    ending: Ending,
}

/// Returns the time to allow for reading the areas of a job's `pre_read` workloads into the page cache.
fn pre_read(job: &Job) -> Duration {
    let bytes = job.workload.jobs().filter(|one| one.pre_read).map(|one| {
        let size = one.size.unwrap_or(job.size);
        one.span(size).unwrap_or(size).0
    });
    Duration::from_secs(bytes.sum::<u64>() / SLOWEST)
}

impl AgentClient {
    /// Starts `exe agent` and connects to its stdin and stdout. Dropping the client kills the agent.
    pub fn spawn_local(exe: &Path, interrupt: &Interrupt) -> Result<Self, AgentError> {
        Self::spawn_in(None, exe, interrupt)
    }

    /// Starts an agent as [`Self::spawn_local`] does, in the network namespace `namespace` if given.
    pub fn spawn_in(namespace: Option<&str>, exe: &Path, interrupt: &Interrupt) -> Result<Self, AgentError> {
        let spawn = |source| AgentError::Spawn { exe: exe.to_owned(), source };
        let process = local::start(namespace, exe).map_err(spawn)?;
        let peer = namespace.map_or("the local agent".into(), |name| format!("the agent in {name}"));
        Ok(Self::through(process, peer, interrupt))
    }

    /// Connects to an agent through the stdin and stdout of a process. Dropping the client kills the process.
    pub(crate) fn through(
        process: AgentProcess<impl Read + Send + 'static>,
        peer: impl Into<String>,
        interrupt: &Interrupt,
    ) -> Self {
        let AgentProcess { child, stdin, stdout, said } = process;
        let child = Arc::new(Mutex::new(child));
        let exit_diagnostics = Box::new({
            let child = Arc::clone(&child);
            move || local::exit_diagnostics(&child, &said)
        });
        let mut client = Self::new(stdout, Box::new(stdin), peer, exit_diagnostics, interrupt);
        client.child = Some(child);
        client
    }

    /// Connects to an agent over a socket. `peer` is the agent's name in errors; `exit_diagnostics` is called when the agent exits, hangs
    /// or misses a deadline.
    pub fn over(
        stream: UnixStream,
        peer: impl Into<String>,
        exit_diagnostics: ExitDiagnostics,
        interrupt: &Interrupt,
    ) -> std::io::Result<Self> {
        let reader = stream.try_clone()?;
        stream.set_write_timeout(Some(PROMPT))?;
        Ok(Self::new(reader, Box::new(Socket(stream)), peer, exit_diagnostics, interrupt))
    }

    fn new(
        mut reader: impl Read + Send + 'static,
        writer: Box<dyn Write + Send>,
        peer: impl Into<String>,
        exit_diagnostics: ExitDiagnostics,
        interrupt: &Interrupt,
    ) -> Self {
        let (sender, events) = mpsc::channel();
        let failures = sender.clone();
        // The thread ends with the stream, at the first invalid frame, or when the client is dropped.
        let listens = threads::spawn("agent", move || {
            while let Some(event) = wire::receive(&mut reader).transpose() {
                if event.is_err() | sender.send(event).is_err() {
                    return;
                }
            }
        });
        listens.map_or_else(|error| drop(failures.send(Err(WireError::Stream(error)))), drop);
        Self {
            peer: peer.into(),
            writer: Some(writer),
            events,
            exit_diagnostics,
            interrupt: Arc::clone(interrupt),
            child: None,
            over: false,
            silent: Duration::ZERO,
            ending: Ending::Never,
        }
    }

    /// Exchanges protocol versions with the agent. Fails if the versions differ.
    pub fn hello(&mut self, deadline: Duration) -> Result<AgentHello, AgentError> {
        self.hello_while(&mut || true, deadline)
    }

    /// Exchanges protocol versions as [`Self::hello`] does, with a guest that may still be booting. `lives` returns true if the guest
    /// showed a sign of life since the last call.
    pub fn hello_while(
        &mut self,
        lives: &mut dyn FnMut() -> bool,
        deadline: Duration,
    ) -> Result<AgentHello, AgentError> {
        let request = Request::Hello { protocol: PROTOCOL };
        let hello = self.follow_while("hello", &request, deadline, lives, |event| match event {
            Event::Hello(hello) => Heard::Answer(hello),
            other => Heard::foreign(&other),
        })?;
        if hello.protocol == PROTOCOL {
            return Ok(hello);
        }
        self.over = true;
        Err(AgentError::Version { peer: self.peer.clone(), version: hello.version, theirs: hello.protocol })
    }

    /// Sends a ping and waits for the answer.
    pub fn ping(&mut self) -> Result<(), AgentError> {
        self.follow("ping", &Request::Ping, PROMPT, |event| match event {
            Event::Pong => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Describes the file or device at a path on the agent's machine, or the file of `size` bytes that can be created there. Fails if the
    /// path cannot be measured.
    pub fn describe(&mut self, path: &Path, size: Bytes) -> Result<Description, AgentError> {
        let request = Request::Describe { path: path.display().to_string(), size };
        self.follow("describe", &request, PROMPT, |event| match event {
            Event::Described(description) => Heard::Answer(*description),
            other => Heard::foreign(&other),
        })
    }

    /// Finds the disk of the agent's machine with a serial number; `None` if there is none.
    pub fn find_disk(&mut self, serial: &str) -> Result<Option<FoundDisk>, AgentError> {
        let request = Request::FindDisk { serial: serial.to_owned() };
        self.follow("find_disk", &request, PROMPT, |event| match event {
            Event::DiskFound(found) => Heard::Answer(found),
            other => Heard::foreign(&other),
        })
    }

    /// Surveys the agent's machine; with `path`, only the storage layers of that path, the guests that use it, and the machine's settings.
    pub fn survey(&mut self, path: Option<&Path>) -> Result<Survey, AgentError> {
        self.follow("survey", &Request::Survey { path: text(path) }, PREPARED, |event| match event {
            Event::Surveyed(survey) => Heard::Answer(*survey),
            other => Heard::foreign(&other),
        })
    }

    /// Creates a file of `size` bytes on the agent's machine. The agent removes the file when it exits, unless [`Self::keep`] prevents
    /// that.
    pub fn create(&mut self, path: &Path, size: Bytes) -> Result<(), AgentError> {
        let request = Request::Create { path: path.display().to_string(), size };
        self.follow("create", &request, PROMPT, |event| match event {
            Event::Created => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Tells the agent not to remove a file when it exits. The agent must have created the file.
    pub fn keep(&mut self, path: &Path) -> Result<(), AgentError> {
        let request = Request::Keep { path: path.display().to_string() };
        self.follow("keep", &request, PROMPT, |event| match event {
            Event::Kept => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Writes every byte of `area` once with `content`. `progress` gets the bytes written so far; `deadline` covers the whole fill.
    pub fn fill(
        &mut self,
        area: &ByteRange,
        content: &Content,
        seed: u64,
        deadline: Duration,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<(), AgentError> {
        let request = Request::Fill { area: area.clone(), content: content.clone(), seed };
        self.follow("fill", &request, deadline, |event| match event {
            Event::Progress { done, .. } => {
                progress(done);
                Heard::More
            }
            Event::Filled => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Drops the cached pages of the files and devices `paths`, and of files and devices behind them, such as a loop device's file. If
    /// `paths` is empty, does so for the agent's disk. With `machine`, drops all caches of the machine instead, if permitted.
    pub fn drop_caches(&mut self, paths: &[PathBuf], machine: bool) -> Result<CacheDrop, AgentError> {
        let paths = paths.iter().map(|path| path.display().to_string()).collect();
        self.follow("drop_caches", &Request::DropCaches { paths, machine }, SYNC, |event| match event {
            Event::CachesDropped(how) => Heard::Answer(how),
            other => Heard::foreign(&other),
        })
    }

    /// Sets up a job on the agent, which opens the target and allocates buffers, without starting the load. The next request must be
    /// [`Self::go`].
    pub fn prepare(&mut self, job: &Job) -> Result<(), AgentError> {
        let deadline = PREPARED + Duration::from(job.workload.set_up_at_most()) + pre_read(job);
        self.follow("prepare", &Request::Run(Box::new(job.clone())), deadline, |event| match event {
            Event::Ready => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Starts the load of the prepared job: at once, or at `at_ns` of the monotonic clock if the agent is on this machine. `observe` gets
    /// each event up to [`Event::Over`]; then the agent flushes the job's writes. The load's deadline is start delays, warm-up and runtime
    /// plus `slack`; flushing has `slack` again. If the job records I/O gaps, an interrupt after the warm-up ends its load early, and the
    /// outcome so far is returned.
    pub fn go(
        &mut self,
        job: &Job,
        slack: Duration,
        at_ns: Option<u64>,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, AgentError> {
        let deadline = Duration::from(job.workload.duration()) + slack;
        self.ending = Ending::of(job);
        let over = self.follow("run", &Request::Go { at_ns }, deadline, |event| match event {
            Event::Started { .. } | Event::Measuring | Event::Sample(_) => {
                observe(&event);
                Heard::More
            }
            Event::Over => {
                observe(&event);
                Heard::Answer(())
            }
            other => Heard::foreign(&other),
        });
        let outcome = over.and_then(|()| self.conclude(slack));
        self.ending = Ending::Never;
        outcome
    }

    fn conclude(&mut self, deadline: Duration) -> Result<Outcome, AgentError> {
        self.follow("conclude", &Request::Conclude, deadline, |event| match event {
            Event::Done(outcome) => Heard::Answer(*outcome),
            other => Heard::foreign(&other),
        })
    }

    /// Runs a measurement from set-up to outcome: [`Self::prepare`], then [`Self::go`].
    pub fn run(
        &mut self,
        job: &Job,
        slack: Duration,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, AgentError> {
        self.prepare(job)?;
        self.go(job, slack, None, observe)
    }

    /// Returns the process id of the local agent, or of the local program that connects to a remote one, such as ssh; `None` if the agent
    /// is reached without a process, as in a guest or Xen domain that iotax booted.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.lock().ok().map(|child| child.id())
    }

    /// Returns true if the connection is unusable after an error, or after [`Self::shutdown`].
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Reads a target back and compares it with the journal of acknowledged writes, both on the agent's machine.
    pub fn audit(&mut self, path: &Path, journal: &Path) -> Result<Recovery, AgentError> {
        let text = |path: &Path| path.display().to_string();
        let request = Request::Audit { path: text(path), journal: text(journal) };
        self.follow("audit", &request, AUDIT, |event| match event {
            Event::Audited(recovery) => Heard::Answer(*recovery),
            other => Heard::foreign(&other),
        })
    }

    /// Starts a server for network measurements on an address of the agent's machine. Clients must present `token`; `None` accepts all
    /// clients. Returns the server's port.
    pub fn serve(&mut self, bind: &str, token: Option<&str>) -> Result<u16, AgentError> {
        let request = Request::Serve { bind: bind.to_owned(), token: token.map(str::to_owned) };
        self.follow("serve", &request, PROMPT, |event| match event {
            Event::Serving { port } => Heard::Answer(port),
            other => Heard::foreign(&other),
        })
    }

    /// Lists the network interfaces of the agent's machine.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, AgentError> {
        self.follow("interfaces", &Request::Interfaces, PROMPT, |event| match event {
            Event::Interfaces(interfaces) => Heard::Answer(interfaces),
            other => Heard::foreign(&other),
        })
    }

    /// Measures the load generator's own overhead on the agent's machine, in CPU nanoseconds per I/O, on the null backend, which does no
    /// I/O.
    pub fn floor(&mut self) -> Result<u64, AgentError> {
        self.follow("floor", &Request::Floor, FLOOR, |event| match event {
            Event::Floor { ns_per_io } => Heard::Answer(ns_per_io),
            other => Heard::foreign(&other),
        })
    }

    /// Asks the agent to exit and waits until its output stream closes. Also works after an error or an interrupt.
    pub fn shutdown(&mut self, deadline: Duration) -> Result<(), AgentError> {
        if let Some(mut writer) = self.writer.take() {
            // A failure means that the peer has exited already.
            let _ = wire::send(&mut writer, &Request::Shutdown);
            // A guest's agent needs only the message; closing the stream would cut off its last output.
            if self.child.is_none() {
                self.writer = Some(writer);
            }
        }
        self.over = true;
        let end = Instant::now() + deadline;
        loop {
            match self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => return Err(self.late("shutdown", deadline)),
            }
        }
    }

    /// Asks the agent to exit. Returns the exit status of its local process; `None` without a local process, if the agent's output stream
    /// does not close within `deadline`, or if the process then does not exit within the same time.
    pub fn end(&mut self, deadline: Duration) -> Option<ExitStatus> {
        self.shutdown(deadline).ok()?;
        self.child.as_ref().and_then(|child| status(child, deadline))
    }

    /// Sends a request and passes each event to `hear` until `hear` returns the answer. Gives up at `deadline`, after 15 s without a
    /// message, or on an interrupt, unless the load may end early.
    fn follow<T>(
        &mut self,
        name: &'static str,
        request: &Request,
        deadline: Duration,
        hear: impl FnMut(Event) -> Heard<T>,
    ) -> Result<T, AgentError> {
        self.follow_while(name, request, deadline, &mut || false, hear)
    }

    /// Sends a request as [`Self::follow`] does. `lives` reports signs of life other than messages, such as console output of a booting
    /// guest.
    fn follow_while<T>(
        &mut self,
        name: &'static str,
        request: &Request,
        deadline: Duration,
        lives: &mut dyn FnMut() -> bool,
        mut hear: impl FnMut(Event) -> Heard<T>,
    ) -> Result<T, AgentError> {
        let (false, Some(writer)) = (self.over, self.writer.as_mut()) else {
            return Err(AgentError::Over { peer: self.peer.clone(), request: name });
        };
        let sent = wire::send(writer, request);
        // Reset only when the answer arrives.
        self.over = true;
        if let Err(WireError::Stream(_)) = sent {
            return Err(self.gone(name));
        }
        sent.map_err(|source| AgentError::Protocol { peer: self.peer.clone(), source })?;
        let end = Instant::now() + deadline;
        self.silent = Duration::ZERO;
        loop {
            let event = self.next(name, end, deadline, lives)?;
            if event == Event::Alive {
                continue;
            }
            self.ending.see(&event);
            if let Event::Failed { message } = event {
                self.over = false;
                return Err(AgentError::Failed { peer: self.peer.clone(), message });
            }
            match hear(event) {
                Heard::More => {}
                Heard::Answer(value) => {
                    self.over = false;
                    return Ok(value);
                }
                Heard::Foreign(answer) => {
                    return Err(AgentError::Unexpected { peer: self.peer.clone(), request: name, answer });
                }
            }
        }
    }

    fn next(
        &mut self,
        name: &'static str,
        end: Instant,
        deadline: Duration,
        lives: &mut dyn FnMut() -> bool,
    ) -> Result<Event, AgentError> {
        loop {
            if self.interrupt.load(Ordering::Relaxed) && !self.ending.tell(self.writer.as_mut()) {
                return Err(AgentError::Interrupted);
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left.min(POLL)) {
                Ok(Ok(event)) => {
                    self.silent = Duration::ZERO;
                    return Ok(event);
                }
                Ok(Err(WireError::Stream(_))) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.gone(name));
                }
                Ok(Err(source)) => return Err(AgentError::Protocol { peer: self.peer.clone(), source }),
                Err(RecvTimeoutError::Timeout) if left <= POLL => return Err(self.late(name, deadline)),
                // Counts polls instead of time: while this process is stopped, it receives nothing.
                Err(RecvTimeoutError::Timeout) => {
                    self.silent = if lives() { Duration::ZERO } else { self.silent + POLL };
                    if self.silent >= SILENCE {
                        return Err(self.hangs(name));
                    }
                }
            }
        }
    }

    fn hangs(&mut self, request: &'static str) -> AgentError {
        AgentError::Silent { peer: self.peer.clone(), request, detail: (self.exit_diagnostics)() }
    }

    fn gone(&mut self, request: &'static str) -> AgentError {
        AgentError::Gone { peer: self.peer.clone(), request, detail: (self.exit_diagnostics)() }
    }

    fn late(&mut self, request: &'static str, waited: Duration) -> AgentError {
        AgentError::Deadline { peer: self.peer.clone(), request, waited, detail: (self.exit_diagnostics)() }
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        // Closes the stream, which ends the agent and the reader thread.
        self.writer = None;
        if let Some(child) = &self.child {
            // An agent blocked in the kernel does not notice that its stdin closed.
            if let Ok(mut child) = child.lock() {
                let _ = child.kill();
            }
            status(child, REAPED);
        }
    }
}

/// The writing half of a socket. Dropping it shuts the connection down: closing the descriptor would not, because the reader has a
/// duplicate.
struct Socket(UnixStream);

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

fn text(path: Option<&Path>) -> Option<String> {
    path.map(|path| path.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
