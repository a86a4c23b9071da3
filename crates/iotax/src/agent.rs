//! The agent: the process that makes the I/O load, on this host, on another machine or in a guest, as the runner requests.
//!
//! It exchanges [`iotax_model::wire`] messages with the runner on stdin and stdout. On a host these are pipes or an ssh connection; in a
//! guest PID 1 connects them to the virtio-serial port or, in a Xen domain, to the console, and names the path to measure in
//! [`DISK_VARIABLE`].

mod activity;
mod files;

use std::any::Any;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iotax_engine::{Control, EngineError};
use iotax_interop::trace;
use iotax_model::exit::Exit;
use iotax_model::record::{CacheDrop, Outcome};
use iotax_model::target::LayerKind;
use iotax_model::threads;
use iotax_model::trace::{Events, OffsetMap};
use iotax_model::units::Bytes;
use iotax_model::wire::{
    self, AgentHello, ByteRange, Description, Event, FoundDisk, Job, PROTOCOL, Request, WireError,
};
use iotax_model::workload::Workload;
use iotax_netperf::Server;
use iotax_testbed::postgresql::Programs;
use iotax_testbed::stack::{self, LayerStack};
use iotax_testbed::target::preflight;
use iotax_testbed::{device, host_info, interfaces, survey};

use crate::say::say;
use activity::ActivityRecorder;
use files::Files;

/// Environment variable with the path to measure if a request names no path: the disk of a guest, or a file on it. PID 1 of the guest sets
/// it.
pub(crate) const DISK_VARIABLE: &str = "IOTAX_DISK";

/// The sysfs file with the name of the kernel's current clocksource.
pub(crate) const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Serves the runner on stdin and stdout until the runner shuts the agent down or disconnects, or an error ends the exchange. Then removes
/// the files that the agent created and need not keep. `undo_dir` is the directory for the undo log of these files.
pub(crate) fn main(undo_dir: Option<PathBuf>) -> ExitCode {
    let disk = std::env::var_os(DISK_VARIABLE).map(PathBuf::from);
    let files = Arc::new(Mutex::new(Files::new(undo_dir)));
    let agent = Agent { disk, server: Mutex::new(None), files, control: Arc::default() };
    let served = listen(io::stdin(), Arc::clone(&agent.files), Arc::clone(&agent.control))
        .and_then(|requests| Ok((requests, EventSender::new(io::stdout())?)))
        .map_err(WireError::Stream)
        .and_then(|(requests, events)| agent.serve(&requests, &events));
    match served {
        Ok(()) => end(&agent.files, Exit::Fine),
        Err(error) => {
            say!("iotax agent: {error}");
            end(&agent.files, Exit::Environment)
        }
    }
    .into()
}

/// Removes the files that the agent created, except those that the runner keeps. Returns `exit`, or [`Exit::Environment`] if any could not
/// be removed.
fn end(files: &Mutex<Files>, exit: Exit) -> Exit {
    let undone = lock(files).undo();
    if undone { exit } else { Exit::Environment }
}

/// Locks a mutex even if it is poisoned: a panic never leaves this data inconsistent.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads requests on a separate thread. Ends the process on a shutdown request, end of stream or invalid input, even during a measurement,
/// because the runner no longer waits for its result.
fn listen(
    mut stream: impl Read + Send + 'static,
    files: Arc<Mutex<Files>>,
    control: Arc<Control>,
) -> io::Result<Receiver<Request>> {
    let (sender, requests) = mpsc::channel();
    threads::spawn("requests", move || {
        let exit = loop {
            match wire::receive(&mut stream) {
                Ok(None | Some(Request::Shutdown)) => break Exit::Fine,
                // The thread that carries out a load does not read requests.
                Ok(Some(Request::End)) => control.end(),
                Ok(Some(request)) => {
                    if sender.send(request).is_err() {
                        return;
                    }
                }
                Err(error) => {
                    say!("iotax agent: {error}");
                    break Exit::Usage;
                }
            }
        };
        std::process::exit(end(&files, exit) as i32)
    })?;
    Ok(requests)
}

/// Blocks until the runner requests the start of the load. Returns the start time in nanoseconds of the monotonic clock, or `None` to start
/// at once.
fn await_go(requests: &Receiver<Request>) -> Option<u64> {
    await_request(requests, "go", |request| match request {
        Request::Go { at_ns } => Some(*at_ns),
        _ => None,
    })
}

/// Blocks until the runner has read its counters at the window's end, so that the final flush does not count in them.
fn await_conclude(requests: &Receiver<Request>) {
    await_request(requests, "conclude", |request| match request {
        Request::Conclude => Some(()),
        _ => None,
    });
}

/// Blocks until the next request arrives and returns the result of `accept`. Ends the process if `accept` returns `None`.
fn await_request<T>(
    requests: &Receiver<Request>,
    expected: &str,
    accept: impl Fn(&Request) -> Option<T>,
) -> T {
    match requests.recv() {
        Ok(request) => accept(&request).unwrap_or_else(|| {
            // Prints only the kind: a request may hold a secret.
            let said = format!("{request:?}");
            let kind = said.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            say!("iotax agent: expected {expected} and got {kind}");
            std::process::exit(Exit::Usage as i32)
        }),
        // The reading thread is about to end the process.
        Err(_) => loop {
            thread::park();
        },
    }
}

/// Sender of events to the runner. While a request is being answered, it also sends heartbeats, which show that the agent is alive.
struct EventSender<W> {
    state: Arc<Mutex<SenderState<W>>>,
}

struct SenderState<W> {
    stream: W,
    /// True while a request is being answered; only then are heartbeats sent.
    is_busy: bool,
    last_sent: Instant,
}

impl<W: Write + Send + 'static> EventSender<W> {
    /// Starts the thread that sends [`Event::Alive`] while a request is being answered, [`wire::BEAT`] after the last event.
    fn new(stream: W) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(SenderState { stream, is_busy: false, last_sent: Instant::now() }));
        let beating = Arc::clone(&state);
        threads::spawn("beat", move || {
            loop {
                let since = lock(&beating).beat();
                threads::sleep(wire::BEAT.saturating_sub(since));
            }
        })?;
        Ok(Self { state })
    }

    fn send(&self, event: &Event) -> Result<(), WireError> {
        lock(&self.state).send(event)
    }

    fn set_busy(&self, is_busy: bool) {
        let mut state = lock(&self.state);
        (state.is_busy, state.last_sent) = (is_busy, Instant::now());
    }
}

impl<W: Write> SenderState<W> {
    fn send(&mut self, event: &Event) -> Result<(), WireError> {
        self.last_sent = Instant::now();
        wire::send(&mut self.stream, event)
    }

    /// Sends a heartbeat if a request is being answered and the last event is at least [`wire::BEAT`] old. Returns the age of the last
    /// event, if that is less than [`wire::BEAT`], otherwise zero.
    fn beat(&mut self) -> Duration {
        let since = self.last_sent.elapsed();
        if since < wire::BEAT {
            return since;
        }
        self.last_sent = Instant::now();
        if self.is_busy {
            // If the stream is broken, sending the answer will fail and report it.
            let _ = self.send(&Event::Alive);
        }
        Duration::ZERO
    }
}

struct Agent {
    /// Path to measure if a request names none; `None` outside of guests, and in guests without a disk.
    disk: Option<PathBuf>,
    files: Arc<Mutex<Files>>,
    /// The running server for network measurements; `None` if none runs.
    server: Mutex<Option<Server>>,
    /// Handle to start and end the engine's load from other threads.
    control: Arc<Control>,
}

impl Agent {
    /// Answers requests until the channel closes. Fails only if an event cannot be sent.
    fn serve<W: Write + Send + 'static>(
        &self,
        requests: &Receiver<Request>,
        events: &EventSender<W>,
    ) -> Result<(), WireError> {
        for request in requests {
            let mut broken = None;
            let mut emit = |event: Event| {
                // Report the start only with the next event, so that the load did not wait for it.
                let started_ns = if event == Event::Ready { None } else { self.control.take_started_ns() };
                let started = started_ns.map(|at_ns| Event::Started { at_ns });
                for event in started.iter().chain([&event]) {
                    if broken.is_none() {
                        broken = events.send(event).err();
                    }
                }
                match event {
                    _ if broken.is_some() => {}
                    Event::Ready => await_go(requests).into_iter().for_each(|at| self.control.start_at(at)),
                    Event::Over => await_conclude(requests),
                    _ => {}
                }
            };
            events.set_busy(true);
            let answered = catch_unwind(AssertUnwindSafe(|| self.answer(request, &mut emit)));
            let last = answered.unwrap_or_else(|panic| Err(format!("the agent panicked: {}", text(&*panic))));
            events.set_busy(false);
            emit(last.unwrap_or_else(|message| Event::Failed { message }));
            if let Some(error) = broken {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Carries out one request. Passes events to `emit` as they occur and returns the final event. On failure, returns a message for the
    /// runner.
    fn answer(&self, request: Request, emit: &mut dyn FnMut(Event)) -> Result<Event, String> {
        match request {
            Request::Hello { .. } => Ok(Event::Hello(self.hello())),
            // The reading thread has already handled the end of a load and a shutdown.
            Request::Ping | Request::Shutdown | Request::End => Ok(Event::Pong),
            Request::Fill { area, content, seed } => {
                let path = self.target(area.path.clone())?;
                let identity = area.identity.or_else(|| lock(&self.files).identity(&path));
                let area = ByteRange { identity, ..area };
                iotax_engine::fill(&path, &area, &content, seed, &mut |done| {
                    emit(Event::Progress { done, total: area.size });
                })
                .map(|()| Event::Filled)
                .map_err(|error| error.to_string())
            }
            Request::DropCaches { paths, machine } => {
                self.drop_caches(paths, machine).map(Event::CachesDropped)
            }
            Request::Run(job) => self.run(&job, emit),
            Request::Go { .. } => Err("there is nothing set up that could start".into()),
            Request::Conclude => Err("there is no load that is over".into()),
            Request::Audit { path, journal } => iotax_engine::audit(Path::new(&path), Path::new(&journal))
                .map(|recovery| Event::Audited(Box::new(recovery)))
                .map_err(|error| error.to_string()),
            Request::Serve { bind, token } => self.listen_as_server(&bind, token.as_deref()),
            Request::Interfaces => interfaces::interfaces(Path::new("/"))
                .map(Event::Interfaces)
                .map_err(|error| format!("the network interfaces are unknown: {error}")),
            Request::Floor => Ok(Event::Floor { ns_per_io: iotax_engine::overhead_ns() }),
            Request::Describe { path, size } => {
                describe(Path::new(&path), size).map(|found| Event::Described(Box::new(found)))
            }
            Request::FindDisk { serial } => {
                let found = device::find_serial(&serial).map_err(|error| error.to_string())?;
                let found = found.map(|(path, disk)| FoundDisk { path: path.display().to_string(), disk });
                Ok(Event::DiskFound(found))
            }
            Request::Survey { path } => surveyed(path.as_deref().map(Path::new)),
            Request::Create { path, size } => {
                lock(&self.files).create(Path::new(&path), size).map(|()| Event::Created)
            }
            Request::Keep { path } => lock(&self.files).keep(Path::new(&path)).map(|()| Event::Kept),
        }
    }

    fn drop_caches(&self, paths: Vec<String>, machine: bool) -> Result<CacheDrop, String> {
        if machine && iotax_engine::drop_caches_of_machine() {
            return Ok(CacheDrop::Machine);
        }
        let tops = if paths.is_empty() {
            vec![self.target(None)?]
        } else {
            paths.into_iter().map(PathBuf::from).collect()
        };
        let all: Vec<PathBuf> =
            tops.into_iter().flat_map(|top| stack::cached_in(Path::new("/"), top)).collect();
        Ok(iotax_engine::drop_caches_of(&all))
    }

    /// Starts a network server on a free port of the address `bind`, and stops the previous server. With `token`, clients must
    /// authenticate.
    fn listen_as_server(&self, bind: &str, token: Option<&str>) -> Result<Event, String> {
        let mut serving = lock(&self.server);
        *serving = None;
        let server = Server::start(bind, 0, token).map_err(|error| error.to_string())?;
        let port = server.port();
        *serving = Some(server);
        Ok(Event::Serving { port })
    }

    fn run(&self, job: &Job, emit: &mut dyn FnMut(Event)) -> Result<Event, String> {
        if let Some(peer) = &job.peer {
            let recorder = ActivityRecorder::of_network(&job.workload);
            self.control.reset();
            return self.recorded(recorder, emit, |events| {
                iotax_netperf::measure_under(&self.control, job, peer, events)
            });
        }
        let path = self.target(job.path.clone())?;
        let is_of_postgresql = job.workload.is_pgbench();
        let programs = is_of_postgresql.then(Programs::find_pgbench).transpose();
        let programs = programs.map_err(|error| error.to_string())?;
        let postgresql = programs.map(|programs| programs.directory().display().to_string());
        let needed = job.directory.is_none() && job.workload.needs_directory();
        let own = needed.then(|| lock(&self.files).make_directory(&path)).transpose()?;
        let named = own.as_ref().map(|directory| directory.display().to_string());
        let directory = named.or_else(|| job.directory.clone());
        let identity = job.identity.or_else(|| lock(&self.files).identity(&path));
        let job = Job { directory, identity, postgresql, ..job.clone() };
        let recorder = ActivityRecorder::new(&path, &job.workload);
        self.control.reset();
        let trace = job.workload.read_iolog.as_deref().map(|trace| open_trace(trace, &job.workload));
        let trace = trace.transpose().map_err(|error| format!("read_iolog: {error}"))?;
        let measure = |events: &mut dyn FnMut(Event)| match trace {
            Some(trace) => iotax_engine::replay_under(&self.control, &job, &path, trace, events),
            None => iotax_engine::measure_under(&self.control, &job, &path, events),
        };
        let outcome = self.recorded(recorder, emit, measure);
        if let Some(directory) = own {
            lock(&self.files).remove_directory(&directory);
        }
        outcome
    }

    /// Runs a load, and records this machine's activity while the load runs.
    fn recorded(
        &self,
        mut recorder: ActivityRecorder,
        emit: &mut dyn FnMut(Event),
        measure: impl FnOnce(&mut dyn FnMut(Event)) -> Result<Outcome, EngineError>,
    ) -> Result<Event, String> {
        let outcome = measure(&mut |event| {
            if event == Event::Over {
                // Observe before emitting, because the runner may take a while to answer.
                recorder.observe(&event, self.control.starts_at_once());
                return emit(event);
            }
            // Emit first, so that the host's own samples are not late and the start is known.
            emit(event.clone());
            recorder.observe(&event, self.control.starts_at_once());
        });
        let mut outcome = outcome.map_err(|error| error.to_string())?;
        (outcome.inside, outcome.devices) = recorder.finish(outcome.flush_ns.is_some());
        Ok(Event::Done(Box::new(outcome)))
    }

    /// Returns a request's path, or the path that [`DISK_VARIABLE`] names if the request has none. Fails without either.
    fn target(&self, path: Option<String>) -> Result<PathBuf, String> {
        path.map(PathBuf::from)
            .or_else(|| self.disk.clone())
            .ok_or_else(|| "the request names no path, and only a guest's agent has a disk of its own".into())
    }

    fn hello(&self) -> AgentHello {
        let stack = self.disk.as_deref().and_then(|disk| stack::of_path(Path::new("/"), disk).ok());
        let LayerStack { layers, timeouts, .. } = stack.unwrap_or_default();
        AgentHello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            clocksource: std::fs::read_to_string(CLOCKSOURCE).ok().map(|name| name.trim().to_owned()),
            disk: self.disk.as_ref().map(|disk| disk.display().to_string()),
            filesystem: layers.into_iter().rfind(|layer| layer.kind == LayerKind::Filesystem),
            timeouts,
        }
    }
}

/// Opens the trace of a replay, and reads it to its end before if its offsets are mapped.
fn open_trace(trace: &str, workload: &Workload) -> Result<(Events, OffsetMap), String> {
    let open = || trace::open(Path::new(trace)).map(|trace| trace.events).map_err(|error| error.to_string());
    let map = if workload.maps_offsets() {
        OffsetMap::read(workload.replay_offsets, open()?)?
    } else {
        OffsetMap::Wrap
    };
    Ok((open()?, map))
}

/// Returns the length in bytes and the layers of the target at `path`, and a description of this machine. The length is `None` if nothing
/// exists there and a new file of `size` can be created. The error is the reason why the target cannot be measured.
fn describe(path: &Path, size: Bytes) -> Result<Description, String> {
    let root = Path::new("/");
    let length = preflight::check_agent_path(path, size).map_err(|refusal| refusal.to_string())?;
    let existing = if length.is_some() { path } else { path.parent().unwrap_or(root) };
    let stack = stack::of_path(root, existing).map_err(|error| error.to_string())?;
    let LayerStack { layers, timeouts, .. } = stack;
    let has_pgbench = Programs::find_pgbench().is_ok();
    Ok(Description { has_pgbench, length, layers, timeouts, environment: host_info::environment(root) })
}

/// Surveys the layers below `path` with their settings; without a path, the whole machine.
fn surveyed(path: Option<&Path>) -> Result<Event, String> {
    let root = Path::new("/");
    let found = match path {
        Some(path) => survey::path(root, path).map_err(|error| error.to_string())?,
        None => survey::machine(root),
    };
    Ok(Event::Surveyed(Box::new(found)))
}

/// Returns a panic's message; a fixed text if the panic carries no string.
fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
