//! The agent: carries out a conductor's requests with the engine.
//!
//! It speaks [`iotax_model::wire`] on stdin and stdout. On a host these are pipes or an ssh connection; in a guest PID 1
//! starts it on the virtio-serial port and names the guest's disk in [`DISK_VARIABLE`].

mod files;
mod inside;

use std::any::Any;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use iotax_engine::EngineError;
use iotax_model::exit::Exit;
use iotax_model::record::Outcome;
use iotax_model::target::{Layer, LayerKind};
use iotax_model::units::Bytes;
use iotax_model::wire::{self, AgentHello, Area, Description, Event, Job, PROTOCOL, Request, WireError};
use iotax_netperf::Server;
use iotax_testbed::target::preflight;
use iotax_testbed::{host_info, interfaces, stack};

use crate::say::say;
use files::Files;
use inside::Inside;

/// Environment variable that names the disk which requests without a path mean.
pub(crate) const DISK_VARIABLE: &str = "IOTAX_DISK";

/// Names the kernel's clocksource.
pub(crate) const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Serves the conductor on stdin and stdout until it says goodbye or goes away, and removes what it made meanwhile. The undo
/// undo log of that is kept in `undo_dir`.
pub(crate) fn main(undo_dir: Option<PathBuf>) -> ExitCode {
    let disk = std::env::var_os(DISK_VARIABLE).map(PathBuf::from);
    let agent = Agent { disk, server: Mutex::new(None), files: Arc::new(Mutex::new(Files::new(undo_dir))) };
    let requests = listen(io::stdin(), Arc::clone(&agent.files));
    match agent.serve(&requests, &Voice::new(io::stdout())) {
        Ok(()) => end(&agent.files, Exit::Fine),
        Err(error) => {
            say!("iotax agent: {error}");
            end(&agent.files, Exit::Environment)
        }
    }
    .into()
}

/// Removes what was made. The exit code then.
fn end(files: &Mutex<Files>, exit: Exit) -> Exit {
    let undone = lock(files).undo();
    if undone { exit } else { Exit::Environment }
}

/// A panic in between leaves what is locked as it is.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads requests in a thread of its own, which ends the process on a shutdown, at the end of the stream and on bytes
/// that are no message, in the middle of a measurement too: nobody waits for the result any more.
fn listen(mut stream: impl Read + Send + 'static, files: Arc<Mutex<Files>>) -> Receiver<Request> {
    let (sender, requests) = mpsc::channel();
    thread::spawn(move || {
        let exit = loop {
            match wire::receive(&mut stream) {
                Ok(None | Some(Request::Shutdown)) => break Exit::Fine,
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
    });
    requests
}

/// Returns when the load is to start. Ends the process, as the listener does, on what is not the protocol.
fn await_go(requests: &Receiver<Request>) {
    match requests.recv() {
        Ok(Request::Go) => {}
        Ok(other) => {
            // A request may hold a secret.
            let said = format!("{other:?}");
            let kind = said.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            say!("iotax agent: expected go and got {kind}");
            std::process::exit(Exit::Usage as i32)
        }
        // The listener is about to end the process.
        Err(_) => loop {
            thread::park();
        },
    }
}

/// What the agent says, its work and the beat beside it.
struct Voice<W> {
    mouth: Arc<Mutex<Mouth<W>>>,
}

struct Mouth<W> {
    stream: W,
    /// Whether somebody waits for an answer.
    is_asked: bool,
    spoke: Instant,
}

impl<W: Write + Send + 'static> Voice<W> {
    /// Starts the beat: what is silent for [`wire::BEAT`] while it is asked says that it is there.
    fn new(stream: W) -> Self {
        let mouth = Arc::new(Mutex::new(Mouth { stream, is_asked: false, spoke: Instant::now() }));
        let beating = Arc::clone(&mouth);
        thread::spawn(move || {
            loop {
                let since = lock(&beating).beat();
                thread::sleep(wire::BEAT.saturating_sub(since));
            }
        });
        Self { mouth }
    }

    fn say(&self, event: &Event) -> Result<(), WireError> {
        lock(&self.mouth).say(event)
    }

    fn is_asked(&self, is_so: bool) {
        let mut mouth = lock(&self.mouth);
        (mouth.is_asked, mouth.spoke) = (is_so, Instant::now());
    }
}

impl<W: Write> Mouth<W> {
    fn say(&mut self, event: &Event) -> Result<(), WireError> {
        self.spoke = Instant::now();
        wire::send(&mut self.stream, event)
    }

    /// How long ago something was said.
    fn beat(&mut self) -> Duration {
        let since = self.spoke.elapsed();
        if since < wire::BEAT {
            return since;
        }
        self.spoke = Instant::now();
        if self.is_asked {
            // Whoever answers notices that nobody listens any more.
            let _ = self.say(&Event::Alive);
        }
        Duration::ZERO
    }
}

/// What an agent works with.
struct Agent {
    /// The disk that requests without a path mean.
    disk: Option<PathBuf>,
    files: Arc<Mutex<Files>>,
    /// The server that it is, of a network's measurements.
    server: Mutex<Option<Server>>,
}

impl Agent {
    /// Answers requests as long as they come. An error means that the answers cannot be sent.
    fn serve<W: Write + Send + 'static>(
        &self,
        requests: &Receiver<Request>,
        voice: &Voice<W>,
    ) -> Result<(), WireError> {
        for request in requests {
            let mut broken = None;
            let mut emit = |event: Event| {
                if broken.is_none() {
                    broken = voice.say(&event).err();
                }
                if event == Event::Ready && broken.is_none() {
                    await_go(requests);
                }
            };
            voice.is_asked(true);
            let answered = catch_unwind(AssertUnwindSafe(|| self.answer(request, &mut emit)));
            let last = answered.unwrap_or_else(|panic| Err(format!("the agent panicked: {}", text(&*panic))));
            voice.is_asked(false);
            emit(last.unwrap_or_else(|message| Event::Failed { message }));
            if let Some(error) = broken {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Carries out one request; returns its last event, after `emit` got those before, or what went wrong.
    fn answer(&self, request: Request, emit: &mut dyn FnMut(Event)) -> Result<Event, String> {
        match request {
            Request::Hello { .. } => Ok(Event::Hello(self.hello())),
            // The listener has ended the process on a shutdown.
            Request::Ping | Request::Shutdown => Ok(Event::Pong),
            Request::Fill { area, content, seed } => {
                let path = self.target(area.path.clone())?;
                let identity = area.identity.or_else(|| lock(&self.files).identity(&path));
                let area = Area { identity, ..area };
                iotax_engine::fill(&path, &area, &content, seed, &mut |done| {
                    emit(Event::Progress { done, total: area.size });
                })
                .map(|()| Event::Filled)
                .map_err(|error| error.to_string())
            }
            Request::DropCaches { path } => {
                let path = self.target(path)?;
                Ok(Event::CachesDropped(iotax_engine::drop_caches(&path)))
            }
            Request::Run(job) => self.run(&job, emit),
            Request::Go => Err("there is nothing set up that could start".into()),
            Request::Audit { path, journal } => iotax_engine::audit(Path::new(&path), Path::new(&journal))
                .map(Event::Audited)
                .map_err(|error| error.to_string()),
            Request::Serve { bind, token } => self.listen_as_server(&bind, token.as_deref()),
            Request::Interfaces => interfaces::interfaces(Path::new("/"))
                .map(Event::Interfaces)
                .map_err(|error| format!("the network interfaces are unknown: {error}")),
            Request::Floor => Ok(Event::Floor { ns_per_io: iotax_engine::floor() }),
            Request::Describe { path, size } => {
                describe(Path::new(&path), size).map(|found| Event::Described(Box::new(found)))
            }
            Request::Create { path, size } => {
                lock(&self.files).create(Path::new(&path), size).map(|()| Event::Created)
            }
            Request::Keep { path } => lock(&self.files).keep(Path::new(&path)).map(|()| Event::Kept),
        }
    }

    /// Becomes a server, in place of the one that it was.
    fn listen_as_server(&self, bind: &str, token: Option<&str>) -> Result<Event, String> {
        let mut serving = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        *serving = None;
        let server = Server::start(bind, 0, token).map_err(|error| error.to_string())?;
        let port = server.port();
        *serving = Some(server);
        Ok(Event::Serving { port })
    }

    fn run(&self, job: &Job, emit: &mut dyn FnMut(Event)) -> Result<Event, String> {
        if let Some(peer) = &job.peer {
            let inside = Inside::of_network(job.workload.window().0);
            return watched(inside, emit, |events| iotax_netperf::measure(job, peer, events));
        }
        let path = self.target(job.path.clone())?;
        let needed = job.directory.is_none() && job.workload.needs_directory();
        let own = needed.then(|| lock(&self.files).make_directory(&path)).transpose()?;
        let named = own.as_ref().map(|directory| directory.display().to_string());
        let directory = named.or_else(|| job.directory.clone());
        let identity = job.identity.or_else(|| lock(&self.files).identity(&path));
        let job = Job { directory, identity, ..job.clone() };
        let inside = Inside::new(&path, job.workload.window().0);
        let outcome = watched(inside, emit, |events| iotax_engine::measure(&job, &path, events));
        if let Some(directory) = own {
            lock(&self.files).remove_directory(&directory);
        }
        outcome
    }

    /// The path of a request, or the guest's disk.
    fn target(&self, path: Option<String>) -> Result<PathBuf, String> {
        path.map(PathBuf::from)
            .or_else(|| self.disk.clone())
            .ok_or_else(|| "the request names no path, and only a guest's agent has a disk of its own".into())
    }

    fn hello(&self) -> AgentHello {
        AgentHello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").into(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            clocksource: std::fs::read_to_string(CLOCKSOURCE).ok().map(|name| name.trim().to_owned()),
            disk: self.disk.as_ref().map(|disk| disk.display().to_string()),
            filesystem: self.disk.as_deref().and_then(filesystem),
        }
    }
}

/// Makes a load, and looks at this machine meanwhile.
fn watched(
    mut inside: Inside,
    emit: &mut dyn FnMut(Event),
    measure: impl FnOnce(&mut dyn FnMut(Event)) -> Result<Outcome, EngineError>,
) -> Result<Event, String> {
    let outcome = measure(&mut |event| {
        // Whoever measures this machine from outside is not to wait.
        emit(event.clone());
        inside.see(&event);
    });
    let mut outcome = outcome.map_err(|error| error.to_string())?;
    outcome.inside = inside.activity(outcome.flush_ns.is_some());
    Ok(Event::Done(Box::new(outcome)))
}

/// What is at a path, or why nothing there can be measured.
fn describe(path: &Path, size: Bytes) -> Result<Description, String> {
    let root = Path::new("/");
    let length = preflight::look(path, size).map_err(|refusal| refusal.to_string())?;
    let standing = if length.is_some() { path } else { path.parent().unwrap_or(root) };
    let layers = stack::of_path(root, standing).map_err(|error| error.to_string())?.layers;
    Ok(Description { length, layers, environment: host_info::environment(root) })
}

/// The filesystem that a file lies on; absent for a device.
fn filesystem(path: &Path) -> Option<Layer> {
    let layers = stack::of_path(Path::new("/"), path).ok()?.layers;
    layers.into_iter().rfind(|layer| layer.kind == LayerKind::Filesystem)
}

/// The message that a panic carries.
fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
