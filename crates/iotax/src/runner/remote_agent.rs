//! Agents on other machines, in containers and in libvirt's guests: starting, reconnecting and ending them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::plan::Plan;
use iotax_model::record::{CacheDrop, TargetRecord};
use iotax_model::survey::Survey;
use iotax_model::target::{
    ContainerEngine, Layer, LayerKind, Machine, NetworkEnds, NetworkStack, Remote, TargetKind, TargetSpec,
};
use iotax_model::threads;
use iotax_model::units::{Bytes, human};
use iotax_model::wire::{AgentHello, Description, FoundDisk, Identity};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::libvirt::ScratchSource;
use iotax_testbed::remote::{
    self, AgentLaunch, AgentProgram, RecordedAgent, RemoteError, RemoteHost, RemoteRole,
};
use iotax_testbed::stack::{self, LayerStack};
use iotax_testbed::target::{ScratchDisk, attach_disk, attach_port, preflight};
use iotax_testbed::undo::{Effect, UndoEntry, UndoLog};

use super::{Interrupted, fresh_seed, interrupted, own_program};

/// Time limit for the agent's first answer: a busy machine may be slow to start a program.
const AGENT_START: Duration = Duration::from_secs(30);
/// Time limit for the agent to remove its files and directory.
const FAREWELL: Duration = Duration::from_secs(30);
/// Time limit for the guest to show a disk that was attached to it.
const DISK_SHOWN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// Number of pings; their median is the round-trip time.
const PINGS: usize = 11;

/// The options for other machines from the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteOptions {
    /// True to leave the agent's program on the other machine.
    pub(crate) leave_agent: bool,
    /// True to allow ssh to ask on the terminal, before the run begins.
    pub(crate) ask: bool,
}

/// Agents whose targets are not built yet, by target name.
#[derive(Default)]
pub(crate) struct RemoteAgents(HashMap<String, RemoteAgent>);

impl RemoteAgents {
    /// Starts an agent for each target on another machine, and inspects the target's path. Fails if a target cannot be measured.
    pub(crate) fn prepare(
        plan: &Plan,
        options: RemoteOptions,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let mut remote_agents = Self::default();
        let prepared = remote_agents.start(plan, options, undo_log, stop);
        if prepared.is_err() {
            remote_agents.end(undo_log);
        }
        prepared.map(|()| remote_agents)
    }

    fn start(
        &mut self,
        plan: &Plan,
        options: RemoteOptions,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let remote = |spec| match TargetSpec::kind(spec).ok()? {
            TargetKind::Remote(remote) => Some((spec, remote, Purpose::Storage)),
            TargetKind::Network(NetworkStack { ends: NetworkEnds::Remote(remote), .. }) => {
                Some((spec, remote, Purpose::Server))
            }
            TargetKind::Path(_) | TargetKind::Storage | TargetKind::Network(_) => None,
        };
        let remotes: Vec<(&TargetSpec, Remote, Purpose)> = plan.everything().filter_map(remote).collect();
        if remotes.is_empty() {
            return Ok(());
        }
        let program = agent_program()?;
        for (spec, remote, purpose) in &remotes {
            let access = AgentAccess {
                host: RemoteHost { machine: remote.machine.clone(), sudo: spec.sudo },
                path: remote.path.clone(),
                domain: domain_of(&remote.machine)?,
                program: Arc::clone(&program),
                options,
                stop: Arc::clone(stop),
            };
            let has_disk = access.domain.is_none();
            let remote_agent = RemoteAgent::start(access, undo_log)?;
            let remote_agent = self.0.entry(spec.name.clone()).or_insert(remote_agent);
            // A guest's disk is attached later.
            if *purpose == Purpose::Server || !has_disk {
                continue;
            }
            // New files on one machine may share a filesystem.
            let alike = remotes.iter().filter(|(_, other, _)| other.machine == remote.machine);
            let files = plan.space().files.0;
            let size = plan.touched().0.saturating_mul(alike.count() as u64).saturating_add(files);
            remote_agent.inspect(Bytes(size))?;
            let shown = spec.path().map(|path| path.display().to_string()).unwrap_or_default();
            let (found, work) = (&remote_agent.description, plan.work_on(spec));
            preflight::check_found(&shown, found.length, plan, &work)?;
            let of_pgbench = work.iter().find(|workload| workload.is_pgbench());
            if let (Some(workload), false) = (of_pgbench, found.has_pgbench) {
                anyhow::bail!(
                    "{shown}: workload {:?}: pgbench was not found on that machine; install it there (Debian: apt-get install postgresql)",
                    workload.name
                );
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, name: &str) -> Option<RemoteAgent> {
        self.0.remove(name)
    }

    /// Ends the agents; see [`RemoteAgent::end`].
    pub(crate) fn end(&mut self, undo_log: &mut UndoLog) {
        self.0.values_mut().for_each(|remote_agent| remote_agent.end(undo_log));
    }
}

/// The purpose of a remote agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Measurement of storage at a path.
    Storage,
    /// Server for network measurements.
    Server,
}

/// A path on another machine, and how to start an agent for it there.
struct AgentAccess {
    host: RemoteHost,
    /// Path to measure. In a libvirt guest, the path of the disk that was attached to it; only valid once that is attached.
    path: PathBuf,
    /// The domain of libvirt that the agent runs in; `None` if the machine is not a libvirt guest.
    domain: Option<ScratchSource>,
    program: Arc<AgentProgram>,
    options: RemoteOptions,
    stop: Interrupt,
}

/// An agent on another machine, for one target.
pub(super) struct RemoteAgent {
    access: AgentAccess,
    client: AgentClient,
    /// The agent's record in the undo log; `None` once the agent is gone.
    recorded: Option<(RecordedAgent, UndoEntry)>,
    /// The undo log's entry of the port through which a libvirt guest's agent is reached; `None` if the machine is not such a guest.
    port: Option<UndoEntry>,
    /// The disk that was attached to a libvirt guest, and its identity there; `None` before it is attached, and if the machine is not such
    /// a guest.
    disk: Option<(ScratchDisk, Identity)>,
    hello: AgentHello,
    round_trip: Duration,
    /// The path's length, layers and machine, as last inspected.
    description: Description,
    /// True if the agent created the file and removes it when it ends.
    created: bool,
    /// True if the connection was given up and must be made again before the next measurement.
    lost: bool,
}

impl RemoteAgent {
    fn start(access: AgentAccess, undo_log: &mut UndoLog) -> anyhow::Result<Self> {
        let Connection { mut client, recorded, port } = access.connect(undo_log)?;
        let hello = client.hello(AGENT_START).map_err(interrupted)?;
        let round_trip = round_trip(&mut client).map_err(interrupted)?;
        Ok(Self {
            access,
            client,
            recorded: Some(recorded),
            port,
            disk: None,
            hello,
            round_trip,
            description: Description::default(),
            created: false,
            lost: false,
        })
    }

    /// Returns the machine's network address, for connections other than ssh. Fails for containers and libvirt's guests, whose address is
    /// unknown.
    pub(super) fn address(&self) -> anyhow::Result<String> {
        match &self.access.host.machine {
            Machine::Ssh { destination, port } => Ok(remote::address(destination, *port)?),
            machine => anyhow::bail!(
                "{machine}: its address in the network is not known; accepted: ssh://[user@]host[:port]"
            ),
        }
    }

    pub(super) const fn client(&mut self) -> &mut AgentClient {
        &mut self.client
    }

    /// Drops the page cache of the target on its machine; with `machine`, all caches of the machine.
    pub(super) fn drop_caches(&mut self, machine: bool) -> Result<CacheDrop, AgentError> {
        self.client.drop_caches(std::slice::from_ref(&self.access.path), machine)
    }

    /// Returns the measured path on the other machine.
    pub(super) fn path(&self) -> &Path {
        &self.access.path
    }

    /// Returns whether the agent runs in a guest of libvirt, where a scratch disk is measured.
    pub(super) const fn is_in_guest(&self) -> bool {
        self.access.domain.is_some()
    }

    /// Returns the identity that the agent must find at the path; `None` to accept any.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.disk.as_ref().map(|(_, identity)| *identity)
    }

    /// Returns the image, on this host, of the disk that was attached to a libvirt guest; `None` if no disk was attached.
    pub(super) fn image(&self) -> Option<&Path> {
        self.disk.as_ref().map(|(disk, _)| disk.image.path.as_path())
    }

    /// Inspects the path through the agent. If nothing exists there, checks that a file of `size` can be created.
    fn inspect(&mut self, size: Bytes) -> anyhow::Result<()> {
        let described = self.client.describe(&self.access.path, size);
        self.description = described.map_err(|error| self.with_remedy(error))?;
        Ok(())
    }

    fn with_remedy(&self, error: AgentError) -> anyhow::Error {
        let denied =
            matches!(&error, AgentError::Failed { message, .. } if message.contains("ermission denied"));
        let error = interrupted(error);
        match &self.access.host.machine {
            Machine::Ssh { .. } if denied && !self.access.host.sudo => error.context(
                "the user there may not; log in as another, or have the agent run under sudo (--sudo, sudo = true)",
            ),
            Machine::Container { engine, user: None, name }
                if denied && matches!(engine, ContainerEngine::Docker | ContainerEngine::Podman) =>
            {
                error.context(format!("another user is named as in {}://root@{name}/path", engine.word()))
            }
            _ => error,
        }
    }

    /// Has the agent create a file of `size` if nothing exists at the path, or attaches a disk of this size to a guest. Returns the length
    /// of the file or device that existed; `None` if iotax created it.
    pub(super) fn build(&mut self, size: Bytes, undo_log: &mut UndoLog) -> anyhow::Result<Option<Bytes>> {
        if let Some(domain) = &self.access.domain {
            let disk = attach_disk(domain, &fresh_name()?, size, undo_log)?;
            let identity = self.find_disk(&disk.serial, size)?;
            self.disk = Some((disk, identity));
            return Ok(None);
        }
        let length = self.description.length;
        if length.is_none() {
            self.client.create(&self.access.path, size).map_err(|error| self.with_remedy(error))?;
            self.created = true;
            self.inspect(size)?;
        }
        Ok(length)
    }

    /// Waits until the guest shows the disk with this serial number, and inspects it. Returns its identity. Fails if it does not appear in
    /// time or has another length.
    fn find_disk(&mut self, serial: &str, size: Bytes) -> anyhow::Result<Identity> {
        let end = Instant::now() + DISK_SHOWN;
        let FoundDisk { path, disk } = loop {
            match self.client.find_disk(serial).map_err(interrupted)? {
                Some(found) => break found,
                None if Instant::now() > end => anyhow::bail!(
                    "{}: no disk with the serial {serial:?} has appeared in the guest after {} s; does its kernel support hotplug?",
                    self.access.host,
                    DISK_SHOWN.as_secs()
                ),
                None => threads::sleep(POLL),
            }
        };
        self.access.path = path.into();
        self.inspect(size)?;
        let length = self.description.length;
        anyhow::ensure!(
            length == Some(size),
            "{}: {} has {} bytes in place of {}; nothing is written to it",
            self.access.host,
            self.access.path.display(),
            length.unwrap_or_default().0,
            size.0
        );
        Ok(Identity::Disk(disk))
    }

    /// Makes the agent keep its file. Does nothing if the agent did not create the file.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.created) {
            self.client.keep(&self.access.path).map_err(interrupted)?;
        }
        Ok(())
    }

    pub(super) const fn is_given_up(&self) -> bool {
        self.lost
    }

    /// Schedules a new connection before the next measurement, because the present one may be broken.
    pub(super) const fn give_up(&mut self) {
        self.lost = true;
    }

    /// Reconnects to an agent that was given up. Returns true if the file was created again and must be filled.
    pub(super) fn reconnect(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<bool> {
        if !self.lost {
            return Ok(false);
        }
        // The user may no longer be there to answer ssh.
        self.access.options.ask = false;
        // The old agent's files must be gone first.
        self.end(undo_log);
        if let Some((agent, entry)) = &self.recorded {
            remote::leave(agent, self.access.options.ask)?;
            undo_log.commit(*entry)?;
            self.recorded = None;
        }
        if let Some(port) = self.port.take() {
            undo_log
                .undo(port)
                .map_err(|failure| anyhow::anyhow!("{}: {}", failure.effect, failure.reason))?;
        }
        let Connection { client, recorded, port } = self.access.connect(undo_log)?;
        (self.client, self.recorded, self.port) = (client, Some(recorded), port);
        self.client.hello(AGENT_START).map_err(interrupted)?;
        if let Some((disk, _)) = self.disk.take() {
            let identity = self.find_disk(&disk.serial, disk.image.size)?;
            self.disk = Some((disk, identity));
        }
        if self.created {
            let size = self.description.length.context("a file that was made has a length")?;
            self.client.create(&self.access.path, size).map_err(interrupted)?;
        }
        self.lost = false;
        Ok(self.created)
    }

    /// Ends the agent, which removes its files. If the agent fails to, its entry stays in the undo log.
    pub(super) fn end(&mut self, undo_log: &mut UndoLog) {
        if self.client.end(FAREWELL).is_some_and(|status| status.success())
            && let Some((_, entry)) = &self.recorded
            && undo_log.commit(*entry).is_ok()
        {
            self.recorded = None;
        }
    }

    /// Returns the target's record, with the layers and the machine that the agent reported.
    pub(super) fn record(&self, name: &str) -> anyhow::Result<TargetRecord> {
        let machine = &self.description.environment;
        let cpus = machine.cpus.map(|cpus| if cpus == 1 { "1 CPU".into() } else { format!("{cpus} CPUs") });
        let known = [machine.os.clone(), cpus, machine.cpu_model.clone()].into_iter().flatten();
        let hypervisor = machine.hypervisor.iter().map(|name| format!("a guest of {name}"));
        let (kind, reached) = match &self.access.host.machine {
            Machine::Ssh { .. } => (LayerKind::Machine, "over ssh".to_owned()),
            Machine::Container { engine, .. } => (LayerKind::Container, of_container(engine.word())),
            Machine::Pod { namespace, .. } => {
                (LayerKind::Container, of_container(&format!("kubectl, namespace {namespace}")))
            }
            Machine::Domain { .. } => (LayerKind::Guest, "by libvirt".to_owned()),
        };
        let reached = format!("{reached}, round trip {}", human::time(self.round_trip.as_nanos() as f64));
        let detail: Vec<String> = known.chain(hypervisor).chain([reached]).collect();
        // The layers of a scratch disk are this machine's up to its bus, and the guest sees a bare disk.
        let here = self.layers_here()?;
        let (mut layers, timeouts, guest_timeouts) = match here {
            Some(LayerStack { layers, timeouts, .. }) => {
                (layers, timeouts, self.description.timeouts.clone())
            }
            None => (self.description.layers.clone(), self.description.timeouts.clone(), Vec::new()),
        };
        layers.push(Layer::new(kind, self.access.host.machine.name(), detail.join(", ")));
        Ok(TargetRecord {
            name: name.to_owned(),
            layers,
            timeouts,
            guest_timeouts,
            emulated: self.access.domain.as_ref().is_some_and(|domain| domain.emulated),
            command_line: None,
            guest_kernel: Some(self.hello.kernel.clone()),
            guest_clocksource: self.hello.clocksource.clone(),
            interfaces: Vec::new(),
            boot_ns: None,
            allocation: None,
            purged: None,
            found: None,
            lost: None,
        })
    }

    /// Returns the layers, on this host, of the disk that was attached to a libvirt guest, from the bottom up to the guest's bus; `None` if
    /// no disk was attached.
    fn layers_here(&self) -> anyhow::Result<Option<LayerStack>> {
        let (Some(domain), Some(image)) = (&self.access.domain, self.image()) else { return Ok(None) };
        let mut stack = stack::of_path(Path::new("/"), image)?;
        stack.layers.extend(domain.file.image_layers());
        stack.layers.push(domain.guest.bus_layer());
        Ok(Some(stack))
    }
}

/// Finds the domain that a machine names; `None` for other machines.
fn domain_of(machine: &Machine) -> anyhow::Result<Option<ScratchSource>> {
    match machine {
        Machine::Domain { name, disk } => Ok(Some(ScratchSource::find(name, disk.as_deref())?)),
        Machine::Ssh { .. } | Machine::Container { .. } | Machine::Pod { .. } => Ok(None),
    }
}

/// Returns a unique name for what is attached to a guest: `iotax-` and 16 hexadecimal digits.
fn fresh_name() -> anyhow::Result<String> {
    Ok(format!("iotax-{:016x}", fresh_seed()?))
}

/// Describes the connection to a container, and notes that kernel, CPUs and page cache are the host's.
fn of_container(reached: &str) -> String {
    format!("by {reached}; kernel, CPUs and page cache are its host's")
}

/// Makes an agent survey a path on another machine, or the whole machine without a path. If the agent cannot be ended cleanly, its entry
/// stays in the undo log.
pub(crate) fn survey(
    host: &RemoteHost,
    path: Option<&Path>,
    options: RemoteOptions,
    undo_log: &mut UndoLog,
    stop: &Interrupt,
) -> anyhow::Result<Survey> {
    let access = AgentAccess {
        host: host.clone(),
        path: path.unwrap_or(Path::new("/")).to_owned(),
        domain: domain_of(&host.machine)?,
        program: agent_program()?,
        options,
        stop: Arc::clone(stop),
    };
    let Connection { mut client, recorded: (_, entry), .. } = access.connect(undo_log)?;
    client.hello(AGENT_START).map_err(interrupted)?;
    let found = client.survey(path).map_err(interrupted);
    if client.end(FAREWELL).is_some_and(|status| status.success()) {
        undo_log.commit(entry)?;
    }
    found
}

/// Reads this program, for copying to other machines.
fn agent_program() -> anyhow::Result<Arc<AgentProgram>> {
    let program = AgentProgram::read(own_program());
    Ok(Arc::new(program.context("cannot read the program that is to be copied")?))
}

/// A connected agent.
struct Connection {
    client: AgentClient,
    /// The agent's record, with its entry in the undo log.
    recorded: (RecordedAgent, UndoEntry),
    /// The undo log's entry of the port to a libvirt guest; `None` if the machine is not such a guest.
    port: Option<UndoEntry>,
}

impl AgentAccess {
    /// Starts an agent on the other machine, and records it in the undo log. In a guest, attaches a port for it first.
    fn connect(&self, undo_log: &mut UndoLog) -> anyhow::Result<Connection> {
        let Self { host, path, domain, program, options, stop } = self;
        let attached = match domain {
            Some(domain) => Some(attach_port(domain, &fresh_name()?, undo_log)?),
            None => None,
        };
        let launch = AgentLaunch {
            host,
            port: attached.as_ref().map(|(port, _)| port),
            tag: &fresh_name()?,
            target: &path.to_string_lossy(),
            program,
            leave: options.leave_agent,
            role: RemoteRole::Agent,
            ask: options.ask,
        };
        let mut recorded: Option<(RecordedAgent, UndoEntry)> = None;
        let mut record = |agent: RecordedAgent| {
            let entry = undo_log.record(Effect::Agent(Box::new(agent.clone())))?;
            // Replaces the earlier entry, which had fewer details.
            if let Some((_, before)) = recorded.replace((agent, entry)) {
                undo_log.commit(before)?;
            }
            Ok(())
        };
        let client = remote::enter(&launch, stop, &mut record).map_err(|error| match error {
            RemoteError::Interrupted => Interrupted.into(),
            other => anyhow::Error::from(other),
        })?;
        let recorded = recorded.context("an agent was started that is not on record")?;
        Ok(Connection { client, recorded, port: attached.map(|(_, entry)| entry) })
    }
}

/// Returns the median round-trip time of a message.
fn round_trip(agent: &mut AgentClient) -> Result<Duration, AgentError> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        agent.ping()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[PINGS / 2])
}
