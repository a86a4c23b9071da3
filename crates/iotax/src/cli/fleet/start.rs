//! Starts members: over ssh, and on this machine for trying a fleet out.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_fleet::PipeHub;
use iotax_fleet::link::Hub;
use iotax_fleet::nats::{AddressError, NatsHub};
use iotax_model::exit::Exit;
use iotax_model::threads;
use iotax_testbed::agent_client::{AgentProcess, start_member};
use iotax_testbed::interrupt::{Interrupt, POLL};
use iotax_testbed::remote::{self, AgentLaunch, AgentProgram, RecordedAgent, RemoteHost, RemoteRole};
use iotax_testbed::undo::{self, Effect, UndoEntry, UndoLog};
use rustix::process::{Pid, Signal, kill_process_group};

use super::super::enlist::refused;
use super::super::session::say_not_undone;
use super::super::{Failure, OrExit, usage};
use super::hosts::{Host, Link};
use crate::causes::with_causes;
use crate::runner;

/// Maximum number of connections made concurrently: sshd refuses more (`MaxStartups`), and each copies the program.
const AT_ONCE: usize = 8;
/// Time limit for the members' processes to end once their work is done.
const FAREWELL: Duration = Duration::from_secs(30);

/// Maximum number of attempts to undo a killed member's changes while its undo log is in use.
const AGAIN: u32 = 100;

/// The processes that this coordinator started, one for each member; for a remote member its ssh client. None for agents at a NATS server.
#[derive(Default)]
pub(super) struct Started {
    processes: Vec<Process>,
}

struct Process {
    name: String,
    child: Child,
    said: Arc<Mutex<Vec<u8>>>,
    /// The member's entry in the undo log; `None` if the member runs on this machine.
    entry: Option<UndoEntry>,
    /// The directory of the member's state, with its undo log; `None` if the member runs on another machine.
    state: Option<PathBuf>,
}

/// The links to all members, the processes started here, and the name and reason of each member that could not be started.
type Reached = (Box<dyn Hub>, Started, Vec<(String, String)>);

/// Starts all members, unless they are agents at a NATS server, and connects the hub to them. Also returns the members that could not be
/// started, with the reasons.
pub(super) fn all(
    hosts: &[Host],
    undo_log: &mut UndoLog,
    tag: &str,
    ask: bool,
    stop: &Interrupt,
) -> Result<Reached, Failure> {
    if let Some(hub) = enlisted(hosts, tag)? {
        return Ok((Box::new(hub), Started::default(), Vec::new()));
    }
    let mut hub = PipeHub::default();
    let mut started = Started::default();
    let mut failed = Vec::new();
    let program =
        std::env::current_exe().context("this program's file is not known").or_exit(Exit::Environment)?;
    if hosts.iter().any(|host| host.link.is_here()) {
        here(hosts, &program, &mut hub, undo_log, tag, &mut started, &mut failed)?;
    }
    let far: Vec<(&Host, &RemoteHost)> = hosts
        .iter()
        .filter_map(|host| match &host.link {
            Link::Ssh(ssh) => Some((host, ssh)),
            Link::Local | Link::Namespace(_) | Link::Nats(_) => None,
        })
        .collect();
    if far.is_empty() {
        return Ok((Box::new(hub), started, failed));
    }
    let program = AgentProgram::read(&program)
        .context("cannot read the program that is to be copied")
        .or_exit(Exit::Environment)?;
    let undo_log = Mutex::new(undo_log);
    for some in far.chunks(AT_ONCE) {
        let reached: Vec<anyhow::Result<(Process, Streams)>> = thread::scope(|scope| {
            let asked: Vec<_> = some
                .iter()
                .map(|(host, ssh)| {
                    let (program, undo_log) = (&program, &undo_log);
                    let reach = move || reach(&host.name, ssh, program, undo_log, ask, stop);
                    threads::spawn_scoped(scope, "reach", reach)
                })
                .collect();
            let join = |thread: io::Result<thread::ScopedJoinHandle<'_, _>>| {
                thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            asked.into_iter().map(join).collect()
        });
        for ((host, _), reached) in some.iter().zip(reached) {
            match reached {
                Ok((process, streams)) => {
                    hub.add(&host.name, streams.0, streams.1);
                    started.processes.push(process);
                }
                Err(error) => failed.push((host.name.clone(), with_causes(&error))),
            }
        }
    }
    Ok((Box::new(hub), started, failed))
}

/// Connects to the agents that wait at a NATS server; `None` for other hosts, because `--hosts` never mixes the two.
fn enlisted(hosts: &[Host], fleet: &str) -> Result<Option<NatsHub>, Failure> {
    let Some(Host { link: Link::Nats(url), .. }) = hosts.first() else { return Ok(None) };
    let address = url.parse().map_err(|error: AddressError| usage(error))?;
    let names: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    NatsHub::open(&address, fleet, crate::version(), Some(&names)).map(Some).map_err(refused)
}

/// Starts the members that run on this machine. Adds those that could not be started to `failed`.
fn here(
    hosts: &[Host],
    program: &Path,
    hub: &mut PipeHub,
    undo_log: &mut UndoLog,
    tag: &str,
    started: &mut Started,
    failed: &mut Vec<(String, String)>,
) -> Result<(), Failure> {
    let directory: PathBuf = super::super::args::undo_dir()?.with_file_name(format!("fleet-{tag}"));
    undo_log.make_tree(&directory).or_exit(Exit::Environment)?;
    for host in hosts {
        let namespace = match &host.link {
            Link::Local => None,
            Link::Namespace(name) => Some(name.as_str()),
            Link::Ssh(_) | Link::Nats(_) => continue,
        };
        let state = directory.join(&host.name);
        match start_member(namespace, program, &state) {
            Ok(AgentProcess { child, stdin, stdout, said }) => {
                hub.add(&host.name, stdout, stdin);
                let (name, state) = (host.name.clone(), Some(state));
                started.processes.push(Process { name, child, said, entry: None, state });
            }
            Err(error) => failed.push((host.name.clone(), error.to_string())),
        }
    }
    Ok(())
}

type Streams = (std::io::BufReader<std::process::ChildStdout>, std::process::ChildStdin);

/// Starts a member on another machine over ssh. Returns its ssh process, and the streams to the member.
fn reach(
    name: &str,
    host: &RemoteHost,
    program: &AgentProgram,
    undo_log: &Mutex<&mut UndoLog>,
    ask: bool,
    stop: &Interrupt,
) -> anyhow::Result<(Process, Streams)> {
    let tag = format!("iotax-{:016x}", runner::fresh_seed()?);
    let launch = AgentLaunch {
        port: None,
        host,
        tag: &tag,
        target: "/",
        program,
        leave: false,
        role: RemoteRole::FleetMember,
        ask,
    };
    let mut entry: Option<UndoEntry> = None;
    let mut record = |agent: RecordedAgent| {
        let mut undo_log = undo_log.lock().unwrap_or_else(PoisonError::into_inner);
        let new = undo_log.record(Effect::Agent(Box::new(agent)))?;
        if let Some(before) = entry.replace(new) {
            undo_log.commit(before)?;
        }
        Ok(())
    };
    let AgentProcess { child, stdin, stdout, said } = remote::start(&launch, stop, &mut record)?;
    Ok((Process { name: name.to_owned(), child, said, entry, state: None }, (stdout, stdin)))
}

impl Process {
    /// Kills the member's process group. If the member ran on this machine, also undoes its changes.
    fn kill(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        if let Some(state) = &self.state {
            let undo_dir = state.join("iotax").join("undo");
            // The log stays in use until the agent that the member started has ended too.
            for _ in 0..AGAIN {
                let cleaned = undo::clean(&undo_dir, false);
                if cleaned.as_ref().is_ok_and(|cleaned| cleaned.in_use > 0) {
                    threads::sleep(POLL);
                    continue;
                }
                cleaned.iter().flat_map(|cleaned| &cleaned.failed).for_each(say_not_undone);
                return;
            }
        }
    }
}

impl Started {
    /// Returns the last stderr lines of a member's process, separated by semicolons; empty if there are none.
    pub(super) fn words(&self, name: &str) -> String {
        let process = self.processes.iter().find(|process| process.name == name);
        let said = process.and_then(|process| process.said.lock().ok().map(|said| said.clone()));
        let said = String::from_utf8_lossy(&said.unwrap_or_default()).into_owned();
        said.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Waits up to 30 s for all processes to end, then kills the rest. Members on other machines that did not end cleanly stay in the
    /// undo log.
    pub(super) fn end(self, undo_log: &mut UndoLog) {
        let end = Instant::now() + FAREWELL;
        for mut process in self.processes {
            let status = loop {
                match process.child.try_wait() {
                    Ok(None) if Instant::now() < end => threads::sleep(POLL),
                    Ok(status) => break status,
                    Err(_) => break None,
                }
            };
            if status.is_none() {
                // The process hangs. Its changes on another machine stay in the undo log.
                process.kill();
            }
            if let (Some(entry), true) = (process.entry, status.is_some_and(|status| status.success())) {
                // If this fails, the entry is just undone again later.
                let _ = undo_log.commit(entry);
            }
        }
    }
}
