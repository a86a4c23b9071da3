//! The conversation with an agent, whatever stream carries it.
//!
//! Every wait has a deadline and is given up within [`POLL`] of an interrupt. A conversation that went wrong is over:
//! a late answer to an abandoned request could be taken for the answer to the next one.

mod local;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use iotax_model::record::{CacheDrop, Interface, Outcome};
use iotax_model::units::Bytes;
use iotax_model::verify_errors::Recovery;
use iotax_model::wire::{self, AgentHello, Area, Description, Event, Job, PROTOCOL, Request, WireError};
use iotax_model::workload::Content;

use crate::interrupt::{Interrupt, POLL, SILENCE};
use local::status;
pub(crate) use local::{Process, keep_last};

/// For requests that an agent answers at once. Generous, because an emulated guest on a busy host is slow.
const PROMPT: Duration = Duration::from_secs(20);
/// A sync can take long where much was written into a cache.
const SYNC: Duration = Duration::from_mins(5);
/// For opening a target and laying out its buffers and tables, in an emulated guest too.
const PREPARED: Duration = Duration::from_mins(1);
/// The null backend runs for well under a second.
const FLOOR: Duration = Duration::from_mins(1);
/// As much is read as was ever written; whoever waits can interrupt.
const AUDIT: Duration = Duration::from_hours(24);
/// Bytes a second: slower than any storage worth measuring.
const SLOWEST: u64 = 10_000_000;
/// A killed agent whose disk hangs cannot be reaped before the disk answers.
const REAPED: Duration = Duration::from_secs(5);

/// A conversation that went wrong.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A local agent could not be started.
    #[error("{}: the agent could not be started: {source}", exe.display())]
    Spawn {
        /// The program.
        exe: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The agent or its guest ended.
    #[error("{peer} went away during {request}{}", after_colon(detail))]
    Gone {
        /// Who.
        peer: String,
        /// What it was asked.
        request: &'static str,
        /// Its exit status and last words, as far as they are known.
        detail: String,
    },
    /// No answer in time.
    #[error("{peer} did not answer {request} within {} s{}", waited.as_secs_f32(), after_colon(detail))]
    Deadline {
        /// Who.
        peer: String,
        /// What it was asked.
        request: &'static str,
        /// How long it was waited for.
        waited: Duration,
        /// Its last words, as far as they are known.
        detail: String,
    },
    /// No sign of life: it hangs.
    #[error("{peer} hangs: no sign of life for {} s during {request}{}", SILENCE.as_secs(), after_colon(detail))]
    Silent {
        /// Who.
        peer: String,
        /// What it was asked.
        request: &'static str,
        /// Its last words, as far as they are known.
        detail: String,
    },
    /// Something else than messages came.
    #[error("{peer}: {source}")]
    Protocol {
        /// Who.
        peer: String,
        /// What came.
        source: WireError,
    },
    /// A message came that does not answer the request.
    #[error("{peer} answered {request} with {answer}")]
    Unexpected {
        /// Who.
        peer: String,
        /// What it was asked.
        request: &'static str,
        /// The message's beginning.
        answer: String,
    },
    /// The agent speaks another protocol.
    #[error(
        "{peer} is iotax {version} and speaks protocol {theirs}, this one speaks {PROTOCOL}: use the same version on both ends"
    )]
    Version {
        /// Who.
        peer: String,
        /// Its version.
        version: String,
        /// Its protocol.
        theirs: u16,
    },
    /// The agent could not do what it was asked; the conversation goes on.
    #[error("{peer}: {message}")]
    Failed {
        /// Who.
        peer: String,
        /// The agent's words.
        message: String,
    },
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
    /// An earlier error ended the conversation.
    #[error("{peer} cannot be asked for {request} after an earlier error; start it anew")]
    Over {
        /// Who.
        peer: String,
        /// What it was to be asked.
        request: &'static str,
    },
}

fn after_colon(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

/// Tells what is known of a peer that went away or hangs: exit status, last lines of its output. May be empty.
pub type LastWords = Box<dyn FnMut() -> String + Send>;

/// A conversation with one agent. Dropping it ends a local agent.
pub struct AgentClient {
    peer: String,
    writer: Option<Box<dyn Write + Send>>,
    events: Receiver<Result<Event, WireError>>,
    last_words: LastWords,
    interrupt: Interrupt,
    child: Option<Arc<Mutex<Child>>>,
    over: bool,
    /// How long the peer has shown no sign of life while it was waited for.
    silent: Duration,
}

/// What a message is to the request that waits.
enum Heard<T> {
    /// It is the answer.
    Answer(T),
    /// It belongs to the request and more will come.
    More,
    /// It does not belong here; this is its beginning.
    Foreign(String),
}

impl<T> Heard<T> {
    fn foreign(event: &Event) -> Self {
        Self::Foreign(format!("{event:?}").chars().take(120).collect())
    }
}

/// How long it may take to read a job's area into the page cache.
fn pre_read(job: &Job) -> Duration {
    let bytes = job.workload.jobs().filter(|one| one.pre_read).map(|one| {
        let size = one.size.unwrap_or(job.size);
        one.span(size).unwrap_or(size).0
    });
    Duration::from_secs(bytes.sum::<u64>() / SLOWEST)
}

impl AgentClient {
    /// Starts `exe agent` and speaks to it over its stdin and stdout. It ends when this link does.
    pub fn spawn_local(exe: &Path, interrupt: &Interrupt) -> Result<Self, AgentError> {
        Self::spawn_in(None, exe, interrupt)
    }

    /// The same in a network namespace, if one is named.
    pub fn spawn_in(namespace: Option<&str>, exe: &Path, interrupt: &Interrupt) -> Result<Self, AgentError> {
        let spawn = |source| AgentError::Spawn { exe: exe.to_owned(), source };
        let process = local::start(namespace, exe).map_err(spawn)?;
        let peer = namespace.map_or("the local agent".into(), |name| format!("the agent in {name}"));
        Ok(Self::through(process, peer, interrupt))
    }

    /// Speaks to an agent through the pipes of a process, which ends when this link does.
    pub(crate) fn through(
        process: Process<impl Read + Send + 'static>,
        peer: impl Into<String>,
        interrupt: &Interrupt,
    ) -> Self {
        let Process { child, stdin, stdout, said } = process;
        let child = Arc::new(Mutex::new(child));
        let last_words = Box::new({
            let child = Arc::clone(&child);
            move || local::last_words(&child, &said)
        });
        let mut link = Self::new(stdout, Box::new(stdin), peer, last_words, interrupt);
        link.child = Some(child);
        link
    }

    /// Speaks to an agent over a socket. `peer` names it in errors; `last_words` is asked when it is lost.
    pub fn over(
        stream: UnixStream,
        peer: impl Into<String>,
        last_words: LastWords,
        interrupt: &Interrupt,
    ) -> std::io::Result<Self> {
        let reader = stream.try_clone()?;
        stream.set_write_timeout(Some(PROMPT))?;
        Ok(Self::new(reader, Box::new(Socket(stream)), peer, last_words, interrupt))
    }

    fn new(
        mut reader: impl Read + Send + 'static,
        writer: Box<dyn Write + Send>,
        peer: impl Into<String>,
        last_words: LastWords,
        interrupt: &Interrupt,
    ) -> Self {
        let (sender, events) = mpsc::channel();
        // Ends with the stream, with the first frame that is none, or with the link.
        thread::spawn(move || {
            while let Some(event) = wire::receive(&mut reader).transpose() {
                let broken = event.is_err();
                if sender.send(event).is_err() || broken {
                    break;
                }
            }
        });
        Self {
            peer: peer.into(),
            writer: Some(writer),
            events,
            last_words,
            interrupt: Arc::clone(interrupt),
            child: None,
            over: false,
            silent: Duration::ZERO,
        }
    }

    /// Asks who answers and refuses another protocol.
    pub fn hello(&mut self, deadline: Duration) -> Result<AgentHello, AgentError> {
        self.hello_while(&mut || true, deadline)
    }

    /// The same of a machine that is still booting, which `lives` tells: whether there was a sign of life since it was asked last.
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

    /// Whether the agent answers at all.
    pub fn ping(&mut self) -> Result<(), AgentError> {
        self.follow("ping", &Request::Ping, PROMPT, |event| match event {
            Event::Pong => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// What is at a path where the agent runs, or why nothing there can be measured. A new file there would take `size`.
    pub fn describe(&mut self, path: &Path, size: Bytes) -> Result<Description, AgentError> {
        let request = Request::Describe { path: path.display().to_string(), size };
        self.follow("describe", &request, PROMPT, |event| match event {
            Event::Described(description) => Heard::Answer(*description),
            other => Heard::foreign(&other),
        })
    }

    /// Has a file made where the agent runs. It goes when the agent does.
    pub fn create(&mut self, path: &Path, size: Bytes) -> Result<(), AgentError> {
        let request = Request::Create { path: path.display().to_string(), size };
        self.follow("create", &request, PROMPT, |event| match event {
            Event::Created => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Lets a file that was made stay.
    pub fn keep(&mut self, path: &Path) -> Result<(), AgentError> {
        let request = Request::Keep { path: path.display().to_string() };
        self.follow("keep", &request, PROMPT, |event| match event {
            Event::Kept => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Has the first `size` bytes of a file or device (absent: the guest's disk) written once with such
    /// content. `progress` gets the bytes done so far; `deadline` is for the whole.
    pub fn fill(
        &mut self,
        area: &Area,
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

    /// Has caches dropped where the agent runs.
    pub fn drop_caches(&mut self, path: Option<&Path>) -> Result<CacheDrop, AgentError> {
        self.follow("drop_caches", &Request::DropCaches { path: text(path) }, SYNC, |event| match event {
            Event::CachesDropped(how) => Heard::Answer(how),
            other => Heard::foreign(&other),
        })
    }

    /// Has a measurement set up, to the point where [`Self::go`] starts its load. That must be what is asked next.
    pub fn prepare(&mut self, job: &Job) -> Result<(), AgentError> {
        let deadline = PREPARED + Duration::from(job.workload.set_up_at_most()) + pre_read(job);
        self.follow("prepare", &Request::Run(Box::new(job.clone())), deadline, |event| match event {
            Event::Ready => Heard::Answer(()),
            other => Heard::foreign(&other),
        })
    }

    /// Has the load started that was set up for this job. `observe` sees [`Event::Measuring`] and every
    /// [`Event::Sample`] as they come, and [`Event::Over`]. The deadline is the job's warm-up and runtime and `slack` for everything around them.
    pub fn go(
        &mut self,
        job: &Job,
        slack: Duration,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, AgentError> {
        let deadline = Duration::from(job.workload.duration()) + slack;
        self.follow("run", &Request::Go, deadline, |event| match event {
            Event::Measuring | Event::Sample(_) | Event::Over => {
                observe(&event);
                Heard::More
            }
            Event::Done(outcome) => Heard::Answer(*outcome),
            other => Heard::foreign(&other),
        })
    }

    /// Has a measurement made by itself: [`Self::prepare`], then [`Self::go`].
    pub fn run(
        &mut self,
        job: &Job,
        slack: Duration,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, AgentError> {
        self.prepare(job)?;
        self.go(job, slack, observe)
    }

    /// The id of the process that was started for it; absent if none was.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.lock().ok().map(|child| child.id())
    }

    /// Whether an earlier error ended the conversation.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Has a target compared with the journal of its acknowledged writes, where the agent runs.
    pub fn audit(&mut self, path: &Path, journal: &Path) -> Result<Recovery, AgentError> {
        let text = |path: &Path| path.display().to_string();
        let request = Request::Audit { path: text(path), journal: text(journal) };
        self.follow("audit", &request, AUDIT, |event| match event {
            Event::Audited(recovery) => Heard::Answer(recovery),
            other => Heard::foreign(&other),
        })
    }

    /// Has the agent be the far end of a network's measurements, on an address of its machine. The port that it listens on.
    pub fn serve(&mut self, bind: &str, token: Option<&str>) -> Result<u16, AgentError> {
        let request = Request::Serve { bind: bind.to_owned(), token: token.map(str::to_owned) };
        self.follow("serve", &request, PROMPT, |event| match event {
            Event::Serving { port } => Heard::Answer(port),
            other => Heard::foreign(&other),
        })
    }

    /// The network interfaces where the agent runs.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, AgentError> {
        self.follow("interfaces", &Request::Interfaces, PROMPT, |event| match event {
            Event::Interfaces(interfaces) => Heard::Answer(interfaces),
            other => Heard::foreign(&other),
        })
    }

    /// CPU nanoseconds per I/O of the engine on the null backend, where the agent runs.
    pub fn floor(&mut self) -> Result<u64, AgentError> {
        self.follow("floor", &Request::Floor, FLOOR, |event| match event {
            Event::Floor { ns_per_io } => Heard::Answer(ns_per_io),
            other => Heard::foreign(&other),
        })
    }

    /// Asks the agent to end and waits until its stream does. Works after an error and an interrupt too.
    pub fn shutdown(&mut self, deadline: Duration) -> Result<(), AgentError> {
        if let Some(mut writer) = self.writer.take() {
            // A peer that is gone already has done what is asked.
            let _ = wire::send(&mut writer, &Request::Shutdown);
            // A guest's agent ends by the message alone; closing would only cut off what it still has to say.
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

    /// Asks the agent to end and tells how the process did that it was spoken to through, if it did in time.
    pub fn end(&mut self, deadline: Duration) -> Option<ExitStatus> {
        self.shutdown(deadline).ok()?;
        self.child.as_ref().and_then(|child| status(child, deadline))
    }

    /// Sends a request and hands each message to `hear` until one is the answer.
    fn follow<T>(
        &mut self,
        name: &'static str,
        request: &Request,
        deadline: Duration,
        hear: impl FnMut(Event) -> Heard<T>,
    ) -> Result<T, AgentError> {
        self.follow_while(name, request, deadline, &mut || false, hear)
    }

    /// The same of a peer that may show signs of life beside its messages.
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
        // What follows ends the conversation unless the answer comes.
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
            if self.interrupt.load(Ordering::Relaxed) {
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
                // Counted by looks, not by the clock: while this process was stopped it heard nothing.
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
        AgentError::Silent { peer: self.peer.clone(), request, detail: (self.last_words)() }
    }

    fn gone(&mut self, request: &'static str) -> AgentError {
        AgentError::Gone { peer: self.peer.clone(), request, detail: (self.last_words)() }
    }

    fn late(&mut self, request: &'static str, waited: Duration) -> AgentError {
        AgentError::Deadline { peer: self.peer.clone(), request, waited, detail: (self.last_words)() }
    }
}

impl Drop for AgentClient {
    fn drop(&mut self) {
        // Closes the stream, which ends the agent and the reader's thread.
        self.writer = None;
        if let Some(child) = &self.child {
            // An agent stuck in the kernel does not see its stdin close.
            if let Ok(mut child) = child.lock() {
                let _ = child.kill();
            }
            status(child, REAPED);
        }
    }
}

/// The writing half. The reader has a clone of the socket, so that closing this one would not end it.
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
