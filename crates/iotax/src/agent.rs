//! The agent: carries out a conductor's requests with the engine.
//!
//! It speaks [`iotax_model::wire`] on stdin and stdout. On a host these are pipes or an ssh connection; in a guest PID 1
//! starts it on the virtio-serial port and names the guest's disk in [`DISK_VARIABLE`].

use std::any::Any;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use iotax_model::exit::Exit;
use iotax_model::wire::{self, AgentHello, Event, Job, PROTOCOL, Request, WireError};

/// Environment variable that names the disk which requests without a path mean.
pub(crate) const DISK_VARIABLE: &str = "IOTAX_DISK";

/// Names the kernel's clocksource.
pub(crate) const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Serves the conductor on stdin and stdout until it says goodbye or goes away.
pub(crate) fn main() -> ExitCode {
    let disk = std::env::var_os(DISK_VARIABLE).map(PathBuf::from);
    match serve(&listen(io::stdin()), io::stdout(), disk.as_deref()) {
        Ok(()) => Exit::Fine.into(),
        Err(error) => {
            eprintln!("iotax agent: {error}");
            Exit::Environment.into()
        }
    }
}

/// Reads requests in a thread of its own, which ends the process on a shutdown, at the end of the stream and on bytes
/// that are no message, in the middle of a measurement too: nobody waits for the result any more.
fn listen(mut stream: impl Read + Send + 'static) -> Receiver<Request> {
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
                    eprintln!("iotax agent: {error}");
                    break Exit::Usage;
                }
            }
        };
        std::process::exit(exit as i32)
    });
    requests
}

/// Answers requests as long as they come. An error means that the answers cannot be sent.
fn serve(requests: &Receiver<Request>, mut stream: impl Write, disk: Option<&Path>) -> Result<(), WireError> {
    for request in requests {
        let mut broken = None;
        let mut emit = |event: Event| {
            if broken.is_none() {
                broken = wire::send(&mut stream, &event).err();
            }
            if event == Event::Ready && broken.is_none() {
                await_go(requests);
            }
        };
        let last =
            catch_unwind(AssertUnwindSafe(|| answer(request, disk, &mut emit))).unwrap_or_else(|panic| {
                Event::Failed { message: format!("the agent panicked: {}", text(&*panic)) }
            });
        emit(last);
        if let Some(error) = broken {
            return Err(error);
        }
    }
    Ok(())
}

/// Returns when the load is to start. Ends the process, as the listener does, on what is not the protocol.
fn await_go(requests: &Receiver<Request>) {
    match requests.recv() {
        Ok(Request::Go) => {}
        Ok(other) => {
            eprintln!("iotax agent: expected go and got {other:?}");
            std::process::exit(Exit::Usage as i32)
        }
        // The listener is about to end the process.
        Err(_) => loop {
            thread::park();
        },
    }
}

/// Carries out one request; returns its last event, after `emit` got those before.
fn answer(request: Request, disk: Option<&Path>, emit: &mut dyn FnMut(Event)) -> Event {
    let outcome = match request {
        Request::Hello { .. } => Ok(Event::Hello(hello(disk))),
        // The listener has ended the process on a shutdown.
        Request::Ping | Request::Shutdown => Ok(Event::Pong),
        Request::Fill { area, content, seed } => target(area.path.clone(), disk).and_then(|path| {
            iotax_engine::fill(&path, &area, &content, seed, &mut |done| {
                emit(Event::Progress { done, total: area.size });
            })
            .map(|()| Event::Filled)
            .map_err(|error| error.to_string())
        }),
        Request::DropCaches { path } => {
            target(path, disk).map(|path| Event::CachesDropped(iotax_engine::drop_caches(&path)))
        }
        Request::Run(job) => run(&job, disk, emit),
        Request::Go => Err("there is nothing set up that could start".into()),
        Request::Audit { path, journal } => iotax_engine::audit(Path::new(&path), Path::new(&journal))
            .map(Event::Audited)
            .map_err(|error| error.to_string()),
        Request::Floor => Ok(Event::Floor { ns_per_io: iotax_engine::floor() }),
    };
    outcome.unwrap_or_else(|message| Event::Failed { message })
}

fn run(job: &Job, disk: Option<&Path>, emit: &mut dyn FnMut(Event)) -> Result<Event, String> {
    let path = target(job.path.clone(), disk)?;
    iotax_engine::measure(job, &path, emit)
        .map(|outcome| Event::Done(Box::new(outcome)))
        .map_err(|error| error.to_string())
}

/// The path of a request, or the guest's disk.
fn target(path: Option<String>, disk: Option<&Path>) -> Result<PathBuf, String> {
    path.map(PathBuf::from)
        .or_else(|| disk.map(Path::to_owned))
        .ok_or_else(|| "the request names no path, and only a guest's agent has a disk of its own".into())
}

fn hello(disk: Option<&Path>) -> AgentHello {
    AgentHello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        clocksource: std::fs::read_to_string(CLOCKSOURCE).ok().map(|name| name.trim().to_owned()),
        disk: disk.map(|disk| disk.display().to_string()),
    }
}

/// The message that a panic carries.
fn text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
