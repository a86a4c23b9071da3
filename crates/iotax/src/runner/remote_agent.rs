//! Targets on other machines: the agents there, and what these know.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::plan::Plan;
use iotax_model::record::TargetRecord;
use iotax_model::target::{Layer, LayerKind, Remote, TargetSpec};
use iotax_model::units::{Bytes, human};
use iotax_model::wire::{AgentHello, Description};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::remote::{self, AgentLaunch, AgentProgram, RecordedAgent, RemoteError, SshHost};
use iotax_testbed::target::{Built, preflight};
use iotax_testbed::undo::{Effect, UndoEntry, UndoLog};

use super::{Interrupted, fresh_seed, interrupted, own_program};

/// A busy machine may be slow to start a program.
const AGENT_START: Duration = Duration::from_secs(30);
/// For removing what was made and the agent's place.
const FAREWELL: Duration = Duration::from_secs(30);
/// As many pings tell the link's round trip.
const PINGS: usize = 11;

/// What the user says about other machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteOptions {
    /// The agent's program stays there.
    pub(crate) leave_agent: bool,
    /// ssh may ask on the terminal, before the run begins.
    pub(crate) ask: bool,
}

/// The agents on other machines before the run begins, by the names of their targets.
#[derive(Default)]
pub(crate) struct Outposts(HashMap<String, RemoteAgent>);

impl Outposts {
    /// Starts an agent for each target that is on another machine and has it look at the path: what cannot be measured is
    /// refused now.
    pub(crate) fn prepare(
        plan: &Plan,
        options: RemoteOptions,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let mut remote_agents = Self::default();
        let prepared = remote_agents.enter(plan, options, undo_log, stop);
        if prepared.is_err() {
            remote_agents.dismiss(undo_log);
        }
        prepared.map(|()| remote_agents)
    }

    fn enter(
        &mut self,
        plan: &Plan,
        options: RemoteOptions,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let server = |spec: &TargetSpec| spec.network.as_ref()?.server_machine();
        let remotes: Vec<(&TargetSpec, Remote)> = plan
            .everything()
            .filter_map(|spec| Some((spec, spec.remote().or_else(|| server(spec))?)))
            .collect();
        if remotes.is_empty() {
            return Ok(());
        }
        let program =
            AgentProgram::read(own_program()).context("cannot read the program that is to be copied")?;
        let program = Arc::new(program);
        for (spec, remote) in &remotes {
            let host =
                SshHost { destination: remote.destination.clone(), port: remote.port, sudo: spec.sudo };
            let remote_agent = RemoteAgent::enter(remote, host, &program, options, undo_log, stop)?;
            let remote_agent = self.0.entry(spec.name.clone()).or_insert(remote_agent);
            if spec.network.is_some() {
                continue;
            }
            // New files on one machine may share a filesystem.
            let alike = remotes
                .iter()
                .filter(|(_, other)| (&other.destination, other.port) == (&remote.destination, remote.port));
            let space = plan.space();
            let size = space.area.0.saturating_mul(alike.count() as u64).saturating_add(space.files.0);
            let size = Bytes(size);
            remote_agent.look(size)?;
            let shown = spec.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            preflight::check_found(&shown, remote_agent.description.length, plan, &plan.work_on(spec))?;
        }
        Ok(())
    }

    pub(super) fn take(&mut self, name: &str) -> Option<RemoteAgent> {
        self.0.remove(name)
    }

    /// Ends the agents; see [`RemoteAgent::dismiss`].
    pub(crate) fn dismiss(&mut self, undo_log: &mut UndoLog) {
        self.0.values_mut().for_each(|remote_agent| remote_agent.dismiss(undo_log));
    }
}

/// The agent on the other machine of one target.
pub(super) struct RemoteAgent {
    remote: Remote,
    host: SshHost,
    program: Arc<AgentProgram>,
    options: RemoteOptions,
    stop: Interrupt,
    link: AgentClient,
    /// As it is in the undo log; absent once it is gone.
    standing: Option<(RecordedAgent, UndoEntry)>,
    hello: AgentHello,
    round_trip: Duration,
    /// As it was looked at last.
    description: Description,
    /// Whether the agent made the file and removes it when it ends.
    made: bool,
    /// Whether the link is to be made anew before the next measurement.
    lost: bool,
}

impl RemoteAgent {
    fn enter(
        remote: &Remote,
        host: SshHost,
        program: &Arc<AgentProgram>,
        options: RemoteOptions,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Self> {
        let (mut link, standing) = connect(&host, &remote.path, program, options, undo_log, stop)?;
        let hello = link.hello(AGENT_START).map_err(interrupted)?;
        let round_trip = round_trip(&mut link).map_err(interrupted)?;
        Ok(Self {
            remote: remote.clone(),
            host,
            program: Arc::clone(program),
            options,
            stop: Arc::clone(stop),
            link,
            standing: Some(standing),
            hello,
            round_trip,
            description: Description::default(),
            made: false,
            lost: false,
        })
    }

    /// Where it is reached over the network.
    pub(super) fn address(&self) -> anyhow::Result<String> {
        Ok(remote::address(&self.host)?)
    }

    pub(super) fn link(&mut self) -> &mut AgentClient {
        &mut self.link
    }

    /// Has the agent look at the path. A new file there would take so much.
    fn look(&mut self, size: Bytes) -> anyhow::Result<()> {
        let described = self.link.describe(&self.remote.path, size);
        self.description = described.map_err(|error| self.with_remedy(error))?;
        Ok(())
    }

    fn with_remedy(&self, error: AgentError) -> anyhow::Error {
        let denied =
            matches!(&error, AgentError::Failed { message, .. } if message.contains("ermission denied"));
        let error = interrupted(error);
        if denied && !self.host.sudo {
            return error.context("the user there may not; log in as another, or have the agent run under sudo (--sudo, sudo = true)");
        }
        error
    }

    /// What is to be measured: what exists, or a file that the agent makes.
    pub(super) fn build(&mut self, size: Bytes) -> anyhow::Result<Built> {
        let length = self.description.length;
        if length.is_none() {
            self.link.create(&self.remote.path, size).map_err(|error| self.with_remedy(error))?;
            self.made = true;
            self.look(size)?;
        }
        let found = Built::found(self.remote.path.clone(), length.unwrap_or(size));
        Ok(Built { writable: self.made, ..found })
    }

    /// Lets the file stay that the agent made.
    pub(super) fn keep(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.made) {
            self.link.keep(&self.remote.path).map_err(interrupted)?;
        }
        Ok(())
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.lost
    }

    /// Has the link made anew before the next measurement: it may be broken.
    pub(super) fn give_up(&mut self) {
        self.lost = true;
    }

    /// Makes a link anew that was given up. Whether the file was made anew with it, so that it must be filled.
    pub(super) fn reach(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<bool> {
        if !self.lost {
            return Ok(false);
        }
        // What the old agent made must be gone first. Nobody may be there any more to be asked.
        let options = RemoteOptions { ask: false, ..self.options };
        self.dismiss(undo_log);
        if let Some((agent, entry)) = &self.standing {
            remote::leave(agent, options.ask)?;
            undo_log.commit(*entry)?;
            self.standing = None;
        }
        let (link, standing) =
            connect(&self.host, &self.remote.path, &self.program, options, undo_log, &self.stop)?;
        (self.link, self.standing) = (link, Some(standing));
        self.link.hello(AGENT_START).map_err(interrupted)?;
        if self.made {
            let size = self.description.length.context("a file that was made has a length")?;
            self.link.create(&self.remote.path, size).map_err(interrupted)?;
        }
        self.lost = false;
        Ok(self.made)
    }

    /// Ends the agent, which removes what it made, and takes it off the record if it did. What it could not remove stays on
    /// record.
    pub(super) fn dismiss(&mut self, undo_log: &mut UndoLog) {
        if self.link.end(FAREWELL).is_some_and(|status| status.success())
            && let Some((_, entry)) = &self.standing
            && undo_log.commit(*entry).is_ok()
        {
            self.standing = None;
        }
    }

    /// The stack that it stands on, as its machine shows it, and that machine.
    pub(super) fn record(&self, name: &str) -> TargetRecord {
        let machine = &self.description.environment;
        let cpus = machine.cpus.map(|cpus| if cpus == 1 { "1 CPU".into() } else { format!("{cpus} CPUs") });
        let told = [machine.os.clone(), cpus, machine.cpu_model.clone()].into_iter().flatten();
        let beneath = machine.hypervisor.iter().map(|name| format!("a guest of {name}"));
        let ssh = format!("over ssh, round trip {}", human::time(self.round_trip.as_nanos() as f64));
        let detail: Vec<String> = told.chain(beneath).chain([ssh]).collect();
        let mut layers = self.description.layers.clone();
        layers.push(Layer::new(LayerKind::Machine, &self.remote.destination, detail.join(", ")));
        TargetRecord {
            name: name.to_owned(),
            layers,
            emulated: false,
            command_line: None,
            guest_kernel: Some(self.hello.kernel.clone()),
            guest_clocksource: self.hello.clocksource.clone(),
            interfaces: Vec::new(),
            boot_ns: None,
            allocation: None,
            found: None,
            lost: None,
        }
    }
}

/// Starts an agent, on record.
fn connect(
    host: &SshHost,
    target: &Path,
    program: &AgentProgram,
    options: RemoteOptions,
    undo_log: &mut UndoLog,
    stop: &Interrupt,
) -> anyhow::Result<(AgentClient, (RecordedAgent, UndoEntry))> {
    let tag = format!("iotax-{:016x}", fresh_seed()?);
    let target = &target.to_string_lossy();
    let visit =
        AgentLaunch { host, tag: &tag, target, program, leave: options.leave_agent, ask: options.ask };
    let mut standing: Option<(RecordedAgent, UndoEntry)> = None;
    let mut record = |agent: RecordedAgent| {
        let entry = undo_log.record(Effect::Agent(Box::new(agent.clone())))?;
        // What is known of it now takes the place of what was known before.
        if let Some((_, before)) = standing.replace((agent, entry)) {
            undo_log.commit(before)?;
        }
        Ok(())
    };
    let link = remote::enter(&visit, stop, &mut record).map_err(|error| match error {
        RemoteError::Interrupted => Interrupted.into(),
        other => anyhow::Error::from(other),
    })?;
    let standing = standing.context("an agent was started that is not on record")?;
    Ok((link, standing))
}

/// How long a message there and back takes: the median.
fn round_trip(link: &mut AgentClient) -> Result<Duration, AgentError> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        link.ping()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[PINGS / 2])
}
