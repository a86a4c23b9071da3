//! Carries out a plan: builds and fills targets, measures round by round, stores each measurement.
//!
//! The runner itself makes no load: agents do.

mod ask;
mod cell;
mod common_window;
mod context;
pub(crate) mod crash;
mod crash_database;
mod domains;
mod fill;
mod gate;
mod guests;
pub(crate) mod marks;
mod network;
mod occurrences;
mod operations;
mod phases;
pub(crate) mod powercut;
mod progress;
mod rates;
mod recover;
mod remote_agent;
mod rounds;
mod scheduler;
mod start_barrier;
mod storage;
mod target;
mod watch;
mod window;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use iotax_model::RunState;
use iotax_model::plan::{BETWEEN, Plan};
use iotax_model::record::{Environment, TargetRecord};
use iotax_model::target::{
    Accel, CgroupSpec, FilterSpec, ImageSpec, LayerSpec, NetworkEnds, NetworkStack, TargetKind, TargetSpec,
};
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Recovery;
use iotax_model::warning::{Warning, WarningKind};
use iotax_model::workload::{SyncMode, Workload};
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::device::Permission;
use iotax_testbed::fua_writes;
use iotax_testbed::host_info;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::monitor::fua_writes::FuaWrites;
use iotax_testbed::settings::KernelSettings;
use iotax_testbed::target::{Builder, existing, scratch_size};
use iotax_testbed::undo::UndoLog;

pub(crate) use context::RunContext;
pub(crate) use domains::Domains;
pub(crate) use gate::{Gate, Open};
pub(crate) use guests::{
    GuestOptions, Guests, check_all as check_guests, obstacle_to_kvm, possible as guests_possible,
    possible_with as guests_possible_with,
};
use network::NetworkPath;
use phases::Phases;
pub(crate) use progress::{Progress, Step};
use remote_agent::RemoteAgent;
pub(crate) use remote_agent::{RemoteAgents, RemoteOptions, survey as remote_survey};

use crate::causes::with_causes;
use target::{DomainSite, GuestSite, HostSite, NetworkSite, RemoteSite, Site, Target};

/// Time limit for a local agent's first answer.
const AGENT_START: Duration = Duration::from_secs(10);

/// A plan to carry out, with the run's number, its seed and the user's options.
pub(crate) struct Order<'a> {
    pub(crate) run: i64,
    pub(crate) plan: &'a Plan,
    pub(crate) seed: u64,
    /// Cells measured by an earlier part of the run: target, workload, round.
    pub(crate) done: HashSet<(String, String, u32)>,
    /// The kernels and images of the plan's guests; `None` if the plan has no guests.
    pub(crate) guests: Option<&'a Guests>,
    /// The kernel and initramfs of the plan's Xen domains; `None` if the plan has none.
    pub(crate) domains: Option<&'a Domains>,
    /// True to keep created files instead of deleting them at the end.
    pub(crate) keep: bool,
    /// The devices that may be overwritten.
    pub(crate) permission: &'a Permission,
    /// Length of sampling intervals; `None` to derive it from the workload.
    pub(crate) interval: Option<Nanos>,
    /// Tokens of servers, by their source in the plan.
    pub(crate) tokens: &'a HashMap<String, String>,
    /// The targets' records from an earlier part of the run.
    pub(crate) before: &'a [TargetRecord],
    /// Synchronization of window starts with the other members of a fleet; never waits in a run on one machine.
    pub(crate) gate: &'a dyn Gate,
}

/// The way a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All planned measurements succeeded.
    Complete,
    /// The run went on to its end, but this number of measurements failed.
    Missing(usize),
    /// The user or a fleet's coordinator stopped the run.
    Interrupted,
}

/// The error of a run that the user or a fleet's coordinator stopped.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Returns eight random hex digits, which become part of the names of this run's files and processes.
pub(crate) fn fresh_tag() -> anyhow::Result<String> {
    Ok(format!("{:08x}", fresh_seed()? & 0xffff_ffff))
}

/// Returns a random seed from the kernel.
pub(crate) fn fresh_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Carries out an order. `tag` is part of all created names. The caller undoes the changes, which are in the undo log. Each measurement is
/// stored as soon as it is complete. Fails if the run could not be set up or continued.
pub(crate) fn carry_out(
    order: &Order<'_>,
    remote_agents: RemoteAgents,
    tag: &str,
    mut context: RunContext<'_>,
) -> anyhow::Result<Ended> {
    storage::same_directories(order.plan, order.before)?;
    context.store.set_state(order.run, RunState::Running)?;
    let result = local_agent(context.stop).and_then(|local| {
        let mut runner = Runner::new(order, tag, local, remote_agents, context.reborrow());
        let result = runner.set_up().and_then(|()| runner.all_rounds());
        runner.end()?;
        result
    });
    let ended = match result {
        // If the user is stopping the run, errors are a consequence of that.
        Err(_) if context.is_stopped() => Ok(Ended::Interrupted),
        other => other,
    };
    if let Err(error) = &ended {
        context.store.put_warning(order.run, &ended_early(error))?;
    }
    context.store.set_state(
        order.run,
        match ended {
            Ok(Ended::Complete) => RunState::Complete,
            Ok(Ended::Interrupted) => RunState::Interrupted,
            Ok(Ended::Missing(_)) | Err(_) => RunState::Failed,
        },
    )?;
    ended
}

/// Returns the warning that keeps the cause of a run's early end, for later reports.
fn ended_early(error: &anyhow::Error) -> Warning {
    Warning {
        kind: WarningKind::Incomplete,
        target: None,
        workload: None,
        round: None,
        evidence: format!("the run ended early: {}", with_causes(error)),
        remedy: "remove the cause, then go on with iotax resume".into(),
    }
}

/// A run in progress.
struct Runner<'a> {
    order: &'a Order<'a>,
    /// The order's plan, with the rates chosen during the run.
    plan: Arc<Plan>,
    /// Part of the names of all files and processes of the run.
    tag: &'a str,
    /// The agent on this host: measures host targets and drops the host's caches.
    local: AgentClient,
    /// Agents on other machines whose targets are not built yet.
    remote_agents: RemoteAgents,
    context: RunContext<'a>,
    /// A group for each target, followed by one for each neighbour (a competing load). Each group has one member, or one for each guest or
    /// server.
    groups: Vec<Vec<Target>>,
    /// Indices of groups that failed for good; the run continues without them.
    lost: HashSet<usize>,
    /// Records of the targets that have been built and inspected, by group.
    records: HashMap<usize, TargetRecord>,
    /// The kernel's settings that targets change while they are measured.
    settings: KernelSettings,
    /// The count of this machine's writes with FUA; `None` if the plan has no durable writes, or if they cannot be counted.
    fua_writes: Option<Arc<FuaWrites>>,
    phases: Phases,
}

impl<'a> Runner<'a> {
    fn new(
        order: &'a Order<'a>,
        tag: &'a str,
        local: AgentClient,
        remote_agents: RemoteAgents,
        context: RunContext<'a>,
    ) -> Self {
        let mut phases = Phases::default();
        phases.add(phases::PROVISION, order.guests.map_or(Duration::ZERO, Guests::prepared_in));
        phases.begin(phases::PROVISION);
        Self {
            order,
            plan: Arc::new(order.plan.clone()),
            tag,
            local,
            remote_agents,
            context,
            groups: Vec::new(),
            lost: HashSet::new(),
            records: HashMap::new(),
            settings: KernelSettings::default(),
            fua_writes: None,
            phases,
        }
    }
}

impl Runner<'_> {
    fn set_up(&mut self) -> anyhow::Result<()> {
        let order = self.order;
        let has_storage = order.plan.everything().any(|target| target.network().is_none());
        let mut environment = environment(order.guests);
        if has_storage {
            self.context.progress.phase("measuring the engine's own cost");
            environment.floor_ns_per_io = Some(self.local.floor().map_err(interrupted)?);
        }
        self.context.store.set_environment(order.run, &environment)?;
        for record in storage::not_recorded(order.plan, order.before)? {
            self.context.store.put_target(order.run, &record)?;
        }

        self.settings = KernelSettings::find(Path::new("/"), order.plan)?;
        self.settings.claim().context("a setting cannot be tried")?;
        self.settings.record(self.context.undo_log)?;
        if has_storage {
            self.context.progress.phase("creating files");
        }
        self.build_all()?;
        if let Some(guests) = order.guests {
            self.phases.begin(phases::BOOT);
            self.context.progress.phase("booting guests");
            for (group, error) in guests.boot(&mut self.groups, &mut self.context) {
                self.context.fail_if_stopped()?;
                self.lose(group, &with_causes(&error))?;
            }
        }
        if let Some(domains) = order.domains {
            self.phases.begin(phases::BOOT);
            self.context.progress.phase("booting domains");
            for (group, error) in domains.boot(&mut self.groups, &mut self.context) {
                self.context.fail_if_stopped()?;
                self.lose(group, &with_causes(&error))?;
            }
        }
        for record in self.groups.iter().filter_map(|group| group.first()).map(Target::record) {
            storage::same_disks(order.before, &record?)?;
        }
        for target in 0..order.plan.targets.len() {
            match self.settings.try_out(target, self.context.undo_log) {
                Err(error) if order.plan.targets[target].name != order.plan.baseline => {
                    self.lose(target, &error.to_string())?;
                }
                tried => tried.context("a setting cannot be applied")?,
            }
        }
        self.phases.begin(phases::FILL);
        self.fill_all()?;
        for group in 0..order.plan.targets.len() {
            if self.lost.contains(&group) {
                continue;
            }
            let inspected = self.groups[group][0].inspected(&mut self.local).and_then(|record| {
                self.context.store.put_target(order.run, &record)?;
                self.records.insert(group, record);
                Ok(())
            });
            self.or_lose(group, inspected)?;
        }
        if order.keep {
            self.groups.iter_mut().flatten().try_for_each(|target| target.keep(self.context.undo_log))?;
        }
        if order.plan.workloads.iter().flat_map(Workload::jobs).any(|job| job.sync != SyncMode::None) {
            let counted = fua_writes::start(Path::new("/"), self.tag, self.context.undo_log)?;
            self.fua_writes = counted.map(Arc::new);
        }
        if order.plan.wants_rates() {
            self.set_rates()?;
        }
        Ok(())
    }

    /// Builds all targets, and the neighbours that make competing load.
    fn build_all(&mut self) -> anyhow::Result<()> {
        let order = self.order;
        let mut builder = Builder::new(self.tag, order.plan, order.permission.clone());
        for (index, spec) in order.plan.everything().enumerate() {
            let members = target::instances(spec).enumerate();
            let group = match self.built_before(index) {
                Some(target) => vec![target],
                None => members
                    .map(|(number, spec)| self.build(spec, number, &mut builder))
                    .collect::<anyhow::Result<Vec<Target>>>()?,
            };
            for warning in group.iter().flat_map(Target::warnings) {
                self.context.progress.note(&format!("{}: {}", spec.name, warning.evidence));
                let warning = Warning { target: Some(spec.name.clone()), ..warning.clone() };
                self.context.store.put_warning(order.run, &warning)?;
            }
            self.groups.push(group);
        }
        let targets = order.plan.targets.len();
        let together = order.plan.is_together();
        if together {
            storage::all_different(&self.groups[..targets])?;
        }
        // The run's shared agent measures one target at a time, without a control group limit.
        let has_own = |index: usize, target: &Target| {
            together || index >= targets || target.spec.stack.has::<CgroupSpec>()
        };
        for (index, group) in self.groups.iter_mut().enumerate() {
            for target in group.iter_mut().filter(|target| has_own(index, target)) {
                target.start_own_agent(self.context.stop)?;
            }
        }
        Ok(())
    }

    /// Returns a target on the storage of an earlier one if the two differ only in settings; `None` otherwise.
    fn built_before(&self, index: usize) -> Option<Target> {
        let plan = self.order.plan;
        let spec = plan.targets.get(index)?;
        let earlier = self.groups.get(plan.storage_of(index))?.first()?;
        let built = earlier.local_storage()?.built.for_another();
        Some(Target {
            spec: spec.clone(),
            site: Site::Host(HostSite::new(built)),
            is_filled: false,
            stamped: None,
        })
    }

    /// Builds a member of a target's group: the only one, or one of its guests or servers.
    fn build(&mut self, spec: TargetSpec, number: usize, builder: &mut Builder) -> anyhow::Result<Target> {
        let remote_agent = self.remote_agents.take(&spec.name);
        let site = match spec.kind()? {
            TargetKind::Path(path) => builder
                .open_or_create(path, self.context.undo_log)
                .map(|built| Site::Host(HostSite::new(built)))
                .map_err(Into::into),
            TargetKind::Storage => build_storage(&spec, builder, self.context.undo_log),
            TargetKind::Remote(_) => build_remote(remote_agent, self.order.plan, self.context.undo_log),
            TargetKind::Network(network) => self.build_network(&network, number, remote_agent),
        };
        let site = site.with_context(|| format!("target {:?}", spec.name))?;
        Ok(Target { spec, site, is_filled: false, stamped: None })
    }

    fn build_network(
        &mut self,
        stack: &NetworkStack<'_>,
        number: usize,
        remote_agent: Option<RemoteAgent>,
    ) -> anyhow::Result<Site> {
        let token = stack.spec.auth.as_ref().and_then(|auth| self.order.tokens.get(auth));
        let token = token.map(String::as_str);
        let path = NetworkPath::build(stack, number, token, remote_agent, &mut self.context)?;
        let is_one_of_many = matches!(&stack.ends, NetworkEnds::Servers(servers) if servers.len() > 1);
        let site = NetworkSite::new(stack.spec, stack.ends.guest(), path, is_one_of_many, self.context.stop)?;
        Ok(Site::Network(site))
    }

    /// Returns the index of the group of the neighbour that competes with a target; `None` without a neighbour.
    fn neighbour_of(&self, target: usize) -> Option<usize> {
        let plan = self.order.plan;
        let name = plan.targets[target].neighbour.as_ref()?;
        let index = plan.neighbours.iter().position(|neighbour| neighbour.target.name == *name)?;
        Some(plan.targets.len() + index)
    }

    /// Reconnects to other machines after a failure. Files that an agent created are created and filled again.
    fn reconnect(&mut self, group: usize) -> anyhow::Result<()> {
        for member in 0..self.groups[group].len() {
            let needs_fill = match &mut self.groups[group][member].site {
                Site::Host(_) | Site::Guest(_) | Site::Domain(_) => false,
                Site::Remote(site) => site.agent.reconnect(self.context.undo_log)?,
                Site::Network(site) => {
                    site.path.reconnect(self.context.undo_log)?;
                    false
                }
            };
            if needs_fill {
                self.fill(group, member)?;
            }
        }
        Ok(())
    }

    /// Ends guests and agents, here and on other machines, and stores the time per phase.
    fn end(mut self) -> anyhow::Result<()> {
        self.phases.begin(phases::FINISH);
        self.remote_agents.end(self.context.undo_log);
        let remote_agents = self.groups.iter_mut().flatten().filter_map(Target::remote_agent);
        remote_agents.for_each(|remote_agent| remote_agent.end(self.context.undo_log));
        drop((self.groups, self.local));
        Ok(self.context.store.add_phases(self.order.run, &self.phases.finish())?)
    }
}

/// Builds a target's storage on this host, to be measured from this host or as a guest's disk.
fn build_storage(spec: &TargetSpec, builder: &mut Builder, undo_log: &mut UndoLog) -> anyhow::Result<Site> {
    let built = builder.build(spec, undo_log)?;
    Ok(match (spec.guest(), spec.xen()) {
        (Some(guest), _) => Site::Guest(Box::new(GuestSite::new(guest, spec.file(), built))),
        (None, Some(domain)) => Site::Domain(Box::new(DomainSite::new(domain, built))),
        (None, None) => Site::Host(HostSite::new(built)),
    })
}

/// Opens existing storage on another machine, or creates a file or disk for the plan there.
fn build_remote(agent: Option<RemoteAgent>, plan: &Plan, undo_log: &mut UndoLog) -> anyhow::Result<Site> {
    let mut agent = agent.context("there is no agent on its machine")?;
    let size = if agent.is_in_guest() { scratch_size(plan) } else { plan.size() };
    let length = agent.build(size, undo_log)?;
    let site = RemoteSite { agent, size: length.unwrap_or(size), writable: length.is_none() };
    Ok(Site::Remote(Box::new(site)))
}

/// Returns the members of a target's group and of its neighbour's group. The second slice is empty without a neighbour.
fn pair(
    groups: &mut [Vec<Target>],
    target: usize,
    neighbour: Option<usize>,
) -> (&mut [Target], &mut [Target]) {
    members(groups, &[(target, neighbour)]).pop().unwrap_or_default()
}

/// Like [`pair`], for several targets at once. All groups in `wanted` must differ, because each can be borrowed only once.
fn members<'a>(
    groups: &'a mut [Vec<Target>],
    wanted: &[(usize, Option<usize>)],
) -> Vec<(&'a mut [Target], &'a mut [Target])> {
    let mut left: Vec<&'a mut [Target]> = groups.iter_mut().map(Vec::as_mut_slice).collect();
    let mut take = |group: usize| left.get_mut(group).map(std::mem::take).unwrap_or_default();
    wanted
        .iter()
        .map(|(target, neighbour)| (take(*target), neighbour.map(&mut take).unwrap_or_default()))
        .collect()
}

/// Starts the agent on this host.
fn local_agent(stop: &Interrupt) -> anyhow::Result<AgentClient> {
    let mut agent = AgentClient::spawn_local(own_program(), stop)?;
    agent.hello(AGENT_START).map_err(interrupted)?;
    Ok(agent)
}

/// Compares a target with the journal of its acknowledged writes.
pub(crate) fn audit(target: &Path, journal: &Path, stop: &Interrupt) -> anyhow::Result<Recovery> {
    local_agent(stop)?.audit(target, journal).map_err(interrupted)
}

/// Converts an agent's error. An interruption becomes [`Interrupted`].
fn interrupted(error: AgentError) -> anyhow::Error {
    match error {
        AgentError::Interrupted => Interrupted.into(),
        other => other.into(),
    }
}

/// Returns the path of this process's program, which agents and guests also run. The path is a kernel link, which works even after a new
/// build has replaced the file.
pub(crate) fn own_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// Describes this machine and its hypervisor, without the engine's overhead.
pub(crate) fn environment(guests: Option<&Guests>) -> Environment {
    Environment {
        tool: Some(crate::version().to_owned()),
        user: host_info::user(Path::new("/")),
        qemu: guests.map(|guests| guests.qemu_version().to_owned()),
        accel: guests.map(|guests| guests.accel().word().to_owned()),
        accel_reason: guests.map(|guests| guests.accel_reason().to_owned()),
        ..host_info::environment(Path::new("/"))
    }
}

/// Estimates roughly the seconds that a run of `rounds` rounds still takes if `done` measurements are done. Includes building and filling.
pub(crate) fn estimate_seconds(plan: &Plan, rounds: u32, done: usize, accel: Option<Accel>) -> f64 {
    /// Low estimate of the rate at which targets are filled, in bytes per second.
    const FILL: f64 = 400e6;
    let per_round = plan.round_time().as_secs_f64() + BETWEEN.as_secs_f64() * plan.cells() as f64;
    let cells = plan.cells() * rounds as usize;
    let left = (cells.saturating_sub(done)) as f64 / cells.max(1) as f64;
    let fill: f64 = plan
        .everything()
        .flat_map(target::instances)
        .map(|spec| {
            throttled_fill(&spec, plan).unwrap_or_default().max(fill_bytes(&spec, plan) as f64 / FILL)
        })
        .sum();
    let guests = plan.everything().filter_map(|t| t.guest()).map(|guest| guest.count).sum::<u32>();
    let guests = f64::from(guests);
    let boot = match accel {
        Some(Accel::Tcg) => 2.0 + 1.5 * guests,
        Some(_) => 1.0 + 0.5 * guests,
        None => 0.0,
    };
    left * per_round * f64::from(rounds) + fill + boot
}

/// Returns the bytes that are written to fill one instance of a target, in all passes; 0 for what is not filled.
pub(crate) fn fill_bytes(spec: &TargetSpec, plan: &Plan) -> u64 {
    let is_filled = match spec.kind() {
        Ok(TargetKind::Storage) => !spec.stack.has::<ImageSpec>(),
        Ok(TargetKind::Path(path)) => !path.exists(),
        Ok(TargetKind::Remote(_) | TargetKind::Network(_)) | Err(_) => false,
    };
    if !is_filled {
        return 0;
    }
    let is_bare =
        spec.file().is_none() && spec.bottom_volume().is_none() && spec.filesystem_in_guest().is_none();
    let is_whole = plan.preconditions() && plan.reach().is_none() && is_bare;
    let whole = spec.device().filter(|_| is_whole).and_then(|device| existing::length(device).ok());
    whole.unwrap_or(plan.filled()).0.saturating_mul(plan.fill_passes())
}

/// Returns the minimum filling time in seconds under the throttles in a target's layers; `None` without a throttle, or if nothing is
/// filled.
pub(crate) fn throttled_fill(spec: &TargetSpec, plan: &Plan) -> Option<f64> {
    /// Size in bytes of each write when a target is filled.
    const WRITE: f64 = (1 << 20) as f64;
    let bytes = fill_bytes(spec, plan) as f64;
    if bytes <= 0.0 {
        return None;
    }
    let throttles = spec.stack.layers().iter().filter_map(FilterSpec::of);
    let limits = throttles.flat_map(|filter| {
        let by_ios = filter.iops.map(|iops| bytes / WRITE / f64::from(iops));
        [by_ios, filter.rate.map(|rate| bytes / rate.0 as f64)]
    });
    limits.flatten().reduce(f64::max)
}

/// Returns the current time in milliseconds since 1970-01-01 UTC.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
