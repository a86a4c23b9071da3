//! Carries out a plan: sets up, fills, measures round by round, stores each measurement, undoes.
//!
//! It never makes load itself: every measurement is made by an agent.

mod cell;
mod common_window;
mod decide;
mod guests;
mod network;
mod phases;
mod progress;
mod recover;
mod remote_agent;
mod start_barrier;
mod storage;
mod target;
mod watch;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use iotax_analysis::store::{RunState, Store};
use iotax_model::plan::{BETWEEN, Plan};
use iotax_model::record::{Environment, Measurement, RunPhase, TargetRecord};
use iotax_model::schedule::{self, Cell};
use iotax_model::target::{Accel, TargetSpec};
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Recovery;
use iotax_model::warning::Warning;
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::device::Permission;
use iotax_testbed::host_info;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::target::Builder;
use iotax_testbed::undo::UndoLog;

use decide::{Agenda, Stretch};
pub(crate) use guests::{
    GuestOptions, Guests, check_all as check_guests, possible as guests_possible,
    possible_on as guests_possible_on,
};
use network::Way;
use phases::Phases;
pub(crate) use progress::{Progress, Step};
pub(crate) use remote_agent::{Outposts, RemoteOptions};
use target::Target;

/// How long a local agent may take to answer for the first time.
const AGENT_START: Duration = Duration::from_secs(10);

/// What is to be carried out.
pub(crate) struct Order<'a> {
    pub(crate) run: i64,
    pub(crate) plan: &'a Plan,
    pub(crate) seed: u64,
    /// Cells that an earlier part of the run measured: target, workload, round.
    pub(crate) done: HashSet<(String, String, u32)>,
    /// What boots guests; absent if the plan has none.
    pub(crate) guests: Option<&'a Guests>,
    /// Whether created files stay.
    pub(crate) keep: bool,
    /// Which devices may be overwritten.
    pub(crate) permission: &'a Permission,
    /// How long the intervals of samples are; absent: as long as suits the workload.
    pub(crate) interval: Option<Nanos>,
    /// The tokens that servers ask for, by where the plan says they are.
    pub(crate) tokens: &'a HashMap<String, String>,
    /// What the targets stood on when an earlier part of the run measured them.
    pub(crate) before: &'a [TargetRecord],
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Every cell was measured.
    Complete,
    /// So many cells are missing because their measurement failed.
    Missing(usize),
    /// The user stopped it.
    Interrupted,
}

/// Raised within a run when the user stops it; everything above undoes and passes it on.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Eight random hex digits that tell this run's files and processes from every other's.
pub(crate) fn fresh_tag() -> anyhow::Result<String> {
    Ok(format!("{:08x}", fresh_seed()? & 0xffff_ffff))
}

/// A random seed from the kernel.
pub(crate) fn fresh_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .context("no random numbers")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Carries out an order. `tag` names what this run makes; every effect goes into `undo`, which the caller replays.
/// `remote_agents` are the agents on other machines. What was measured is in the store, whatever the result. An error means that the
/// run could not be set up.
pub(crate) fn carry_out(
    order: &Order<'_>,
    remote_agents: Outposts,
    tag: &str,
    undo_log: &mut UndoLog,
    store: &mut Store,
    progress: &mut dyn Progress,
    stop: &Interrupt,
) -> anyhow::Result<Ended> {
    storage::same_directories(order.plan, order.before)?;
    store.set_state(order.run, RunState::Running)?;
    let result = local_agent(stop).and_then(|local| {
        let mut phases = Phases::default();
        phases.add(phases::PROVISION, order.guests.map_or(Duration::ZERO, Guests::prepared_in));
        phases.begin(phases::PROVISION);
        let mut runner = Runner::new(order, tag, local, remote_agents, phases);
        let result = runner
            .set_up(undo_log, store, progress, stop)
            .and_then(|()| runner.all_rounds(undo_log, store, progress, stop));
        store.add_phases(order.run, &runner.end(undo_log))?;
        result
    });
    let ended = match result {
        // Whatever failed while the user stopped the run failed for that.
        Err(_) if stop.load(Ordering::Relaxed) => Ok(Ended::Interrupted),
        other => other,
    };
    store.set_state(
        order.run,
        match ended {
            Ok(Ended::Complete) => RunState::Complete,
            Ok(Ended::Interrupted) => RunState::Interrupted,
            Ok(Ended::Missing(_)) | Err(_) => RunState::Failed,
        },
    )?;
    ended
}

/// A run that is under way.
struct Runner<'a> {
    order: &'a Order<'a>,
    /// Names what this run makes.
    tag: &'a str,
    /// The agent on this host: measures host targets and drops the host's caches.
    local: AgentClient,
    /// Agents on other machines whose targets do not stand yet.
    remote_agents: Outposts,
    /// What the plan's targets, and after them its neighbours, consist of: one, or one for each guest.
    groups: Vec<Vec<Target>>,
    /// What the run goes on without, by its place among the groups.
    lost: HashSet<usize>,
    /// What was recorded of targets that stood.
    records: HashMap<usize, TargetRecord>,
    phases: Phases,
}

impl<'a> Runner<'a> {
    fn new(
        order: &'a Order<'a>,
        tag: &'a str,
        local: AgentClient,
        remote_agents: Outposts,
        phases: Phases,
    ) -> Self {
        let (groups, lost, records) = (Vec::new(), HashSet::new(), HashMap::new());
        Self { order, tag, local, remote_agents, groups, lost, records, phases }
    }
}

impl Runner<'_> {
    fn set_up(
        &mut self,
        undo_log: &mut UndoLog,
        store: &mut Store,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<()> {
        let order = self.order;
        let has_storage = order.plan.everything().any(|target| target.network.is_none());
        let mut environment = environment(order.guests);
        if has_storage {
            progress.phase("measuring the engine's own cost");
            environment.floor_ns_per_io = Some(self.local.floor().map_err(interrupted)?);
        }
        store.set_environment(order.run, &environment)?;
        for record in storage::not_recorded(order.plan, order.before)? {
            store.put_target(order.run, &record)?;
        }

        if has_storage {
            progress.phase("creating files");
        }
        let mut builder = Builder::new(self.tag, order.plan, order.permission.clone());
        for spec in order.plan.everything() {
            let members = target::instances(spec).enumerate();
            let group = members.map(|(number, spec)| self.build(spec, number, &mut builder, undo_log, stop));
            let group = group.collect::<anyhow::Result<Vec<Target>>>()?;
            for warning in group.iter().flat_map(|target| &target.built.warnings) {
                progress.note(&format!("{}: {}", spec.name, warning.evidence));
                let warning = Warning { target: Some(spec.name.clone()), ..warning.clone() };
                store.put_warning(order.run, &warning)?;
            }
            self.groups.push(group);
        }
        let neighbours = self.groups[order.plan.targets.len()..].iter_mut().flatten();
        for target in neighbours.filter(|target| !target.is_guest() && target.remote_agent.is_none()) {
            // The run's agent measures meanwhile.
            if target.agent.is_none() {
                target.agent = Some(local_agent(stop)?);
            }
        }

        if let Some(guests) = order.guests {
            self.phases.begin(phases::BOOT);
            progress.phase("booting guests");
            for (group, error) in guests.boot(&mut self.groups, undo_log, progress, stop) {
                if stop.load(Ordering::Relaxed) {
                    return Err(Interrupted.into());
                }
                self.lose(group, &format!("{error:#}"), store, progress)?;
            }
        }
        for record in self.groups.iter().filter_map(|group| group.first()).map(Target::record) {
            storage::same_disks(order.before, &record?)?;
        }
        self.phases.begin(phases::FILL);
        for group in 0..self.groups.len() {
            let filled = self.fill_group(group, progress);
            self.or_lose(group, filled, store, progress, stop)?;
        }
        for group in 0..order.plan.targets.len() {
            if self.lost.contains(&group) {
                continue;
            }
            let inspected = self.groups[group][0].inspected(&mut self.local).and_then(|record| {
                store.put_target(order.run, &record)?;
                self.records.insert(group, record);
                Ok(())
            });
            self.or_lose(group, inspected, store, progress, stop)?;
        }
        if order.keep {
            self.groups.iter_mut().flatten().try_for_each(|target| target.keep(undo_log))?;
        }
        Ok(())
    }

    fn build(
        &mut self,
        spec: TargetSpec,
        number: usize,
        builder: &mut Builder,
        undo_log: &mut UndoLog,
        stop: &Interrupt,
    ) -> anyhow::Result<Target> {
        let mut remote_agent = self.remote_agents.take(&spec.name);
        if let Some(network) = &spec.network {
            // Tells its ways from each other too.
            let tag = fresh_tag()?;
            let token = network.auth.as_ref().and_then(|auth| self.order.tokens.get(auth));
            let laid = Way::lay(&spec, number, token.map(String::as_str), remote_agent, &tag, undo_log, stop)
                .and_then(|way| {
                    let agent = way.client_agent(stop)?;
                    // The run's agent measures one path at a time.
                    let needs_own = agent.is_none() && network.servers().len() > 1;
                    Ok((way, if needs_own { Some(local_agent(stop)?) } else { agent }))
                });
            let (way, agent) = laid.with_context(|| format!("target {:?}", spec.name))?;
            return Ok(Target::network(spec, way, agent));
        }
        let built = match &mut remote_agent {
            Some(remote_agent) => remote_agent.build(self.order.plan.size()),
            None => builder.build(&spec, undo_log).map_err(Into::into),
        };
        let built = built.with_context(|| format!("target {:?}", spec.name))?;
        Ok(Target::new(spec, built, remote_agent))
    }

    /// Fills what a target consists of.
    fn fill_group(&mut self, group: usize, progress: &mut dyn Progress) -> anyhow::Result<()> {
        let members = if self.lost.contains(&group) { 0 } else { self.groups[group].len() };
        (0..members).try_for_each(|member| self.fill(group, member, progress))
    }

    /// Fills a target, each with other data: alike, those beneath which duplicates are found would share one copy.
    fn fill(&mut self, group: usize, member: usize, progress: &mut dyn Progress) -> anyhow::Result<()> {
        let before: usize = self.groups[..group].iter().map(Vec::len).sum();
        let seed = self.order.seed.wrapping_add((before + member) as u64);
        self.groups[group][member].fill(&mut self.local, &self.order.plan.content(), seed, progress)
    }

    /// Measures every cell that is still to be measured.
    fn all_rounds(
        &mut self,
        undo_log: &mut UndoLog,
        store: &mut Store,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<Ended> {
        let plan = self.order.plan;
        let mut agenda = Agenda::new(plan, &store.load(self.order.run)?);
        let mut missing = 0;
        while let Some(stretch) = agenda.next(progress) {
            let mut number = stretch.before;
            for round in stretch.rounds.clone() {
                let whole = schedule::round_order(plan, self.order.seed, round);
                for (place, cell) in (1..).zip(whole).filter(|(_, cell)| stretch.cells.contains(cell)) {
                    number += 1;
                    if self.is_done(cell, round) {
                        continue;
                    }
                    if stop.load(Ordering::Relaxed) {
                        return Err(Interrupted.into());
                    }
                    progress.cell(step(plan, &stretch, cell, round, number));
                    // The place in the whole round, so that it does not depend on what is left out.
                    let order = u32::try_from((round as usize - 1) * plan.cells() + place)?;
                    let place = cell::Place { cell, round, order };
                    match self.measure_alive(place, undo_log, progress, stop) {
                        Ok(measurement) => {
                            store.put_measurement(self.order.run, &measurement)?;
                            agenda.measured(cell, &measurement);
                        }
                        Err(_) if stop.load(Ordering::Relaxed) => return Err(Interrupted.into()),
                        Err(error) => {
                            missing += 1;
                            agenda.failed(cell, round);
                            self.failed(cell, round, &error, undo_log, store, progress, stop)?;
                        }
                    }
                }
            }
        }
        Ok(if missing == 0 { Ended::Complete } else { Ended::Missing(missing) })
    }

    /// Whether an earlier part of the run measured a cell in a round.
    fn is_done(&self, cell: Cell, round: u32) -> bool {
        let plan = self.order.plan;
        let (target, workload) = (&plan.targets[cell.target].name, &plan.workloads[cell.workload].name);
        self.order.done.contains(&(target.clone(), workload.clone(), round))
    }

    /// Measures a cell, unless its target was lost.
    fn measure_if_there(
        &mut self,
        place: cell::Place,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Measurement> {
        // Why is said once, of the target.
        anyhow::ensure!(!self.lost.contains(&place.cell.target), "the target was lost");
        self.measure(place, undo_log, progress)
    }

    /// Measures a cell; once more in a guest that is started again because its disk did not answer.
    fn measure_alive(
        &mut self,
        place: cell::Place,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
        stop: &Interrupt,
    ) -> anyhow::Result<Measurement> {
        let measurement = self.measure_if_there(place, undo_log, progress)?;
        if !self.hangs(place.cell, &measurement) {
            return Ok(measurement);
        }
        self.revive(place.cell, undo_log, progress, stop)?;
        let mut again = self.measure_if_there(place, undo_log, progress)?;
        if self.hangs(place.cell, &again) {
            self.revive(place.cell, undo_log, progress, stop)?;
        }
        let remark =
            "the guest's disk had not answered, so the guest was started again; this is the second attempt";
        again.outcome.notes.push(remark.into());
        Ok(again)
    }

    /// The place of a target's neighbour among the groups.
    fn neighbour_of(&self, target: usize) -> Option<usize> {
        let plan = self.order.plan;
        let name = plan.targets[target].neighbour.as_ref()?;
        let place = plan.neighbours.iter().position(|neighbour| neighbour.target.name == *name)?;
        Some(plan.targets.len() + place)
    }

    /// Makes links anew that a failure broke, to targets on other machines. What an agent made went with it.
    fn reach(
        &mut self,
        group: usize,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<()> {
        for member in 0..self.groups[group].len() {
            let target = &mut self.groups[group][member];
            target.way.as_mut().map_or(Ok(()), |way| way.reach(undo_log))?;
            let remote_agent = target.remote_agent.as_mut();
            if remote_agent.map(|remote_agent| remote_agent.reach(undo_log)).transpose()? == Some(true) {
                self.fill(group, member, progress)?;
            }
        }
        Ok(())
    }

    /// Ends the guests and the agents, here and on other machines. Where the time went.
    fn end(mut self, undo_log: &mut UndoLog) -> Vec<RunPhase> {
        self.phases.begin(phases::FINISH);
        self.remote_agents.dismiss(undo_log);
        let remote_agents = self.groups.iter_mut().flatten().filter_map(Target::remote_agent);
        remote_agents.for_each(|remote_agent| remote_agent.dismiss(undo_log));
        drop((self.groups, self.local));
        self.phases.finish()
    }
}

/// What is told when a measurement begins.
fn step<'a>(plan: &'a Plan, stretch: &Stretch, cell: Cell, round: u32, number: usize) -> Step<'a> {
    Step {
        round,
        rounds: *stretch.rounds.end(),
        cell: number,
        cells: stretch.after(),
        at_most: stretch.at_most,
        open: stretch.open,
        target: &plan.targets[cell.target].name,
        workload: &plan.workloads[cell.workload].name,
    }
}

/// What a target consists of, and its neighbour: nothing if it has none.
fn pair(
    groups: &mut [Vec<Target>],
    target: usize,
    neighbour: Option<usize>,
) -> (&mut [Target], &mut [Target]) {
    let Some(neighbour) = neighbour else { return (&mut groups[target], &mut []) };
    // Neighbours come after all targets.
    let (targets, neighbours) = groups.split_at_mut(neighbour);
    (&mut targets[target], &mut neighbours[0])
}

/// Starts the agent on this host.
fn local_agent(stop: &Interrupt) -> anyhow::Result<AgentClient> {
    let mut link = AgentClient::spawn_local(own_program(), stop)?;
    link.hello(AGENT_START).map_err(interrupted)?;
    Ok(link)
}

/// Has an agent compare a target with the journal of its acknowledged writes.
pub(crate) fn audit(target: &Path, journal: &Path, stop: &Interrupt) -> anyhow::Result<Recovery> {
    local_agent(stop)?.audit(target, journal).map_err(interrupted)
}

/// A link's interruption becomes the run's.
fn interrupted(error: AgentError) -> anyhow::Error {
    match error {
        AgentError::Interrupted => Interrupted.into(),
        other => other.into(),
    }
}

/// The file that this process runs, which is the agent's and the guest's init too: by the kernel's link, which leads to
/// the same file even if another build has taken its name meanwhile.
fn own_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// This machine, and what boots guests on it. The engine's floor is not known yet.
pub(crate) fn environment(guests: Option<&Guests>) -> Environment {
    Environment {
        tool: Some(crate::version().to_owned()),
        qemu: guests.map(|guests| guests.qemu_version().to_owned()),
        accel: guests.map(|guests| guests.accel().word().to_owned()),
        accel_reason: guests.map(|guests| guests.accel_reason().to_owned()),
        ..host_info::environment(Path::new("/"))
    }
}

/// Seconds that carrying out the rest of so many rounds of a plan takes, roughly.
pub(crate) fn estimate_seconds(plan: &Plan, rounds: u32, done: usize, accel: Option<Accel>) -> f64 {
    /// Bytes per second at which targets are filled, on the low side.
    const FILL: f64 = 400e6;
    let per_round: f64 =
        plan.workloads.iter().map(|w| w.expected_time().as_secs_f64() + BETWEEN.as_secs_f64()).sum();
    let cells = plan.cells() * rounds as usize;
    let left = (cells.saturating_sub(done)) as f64 / cells.max(1) as f64;
    let built = plan
        .everything()
        .filter(|t| t.path.is_none() && t.network.is_none())
        .flat_map(target::instances)
        .count();
    let fill = built as f64 * plan.size().0 as f64 / FILL;
    let guests = plan.everything().filter_map(|t| t.guest.as_ref()).map(|guest| guest.count).sum::<u32>();
    let guests = f64::from(guests);
    let boot = match accel {
        Some(Accel::Tcg) => 2.0 + 1.5 * guests,
        Some(_) => 1.0 + 0.5 * guests,
        None => 0.0,
    };
    left * per_round * plan.targets.len() as f64 * f64::from(rounds) + fill + boot
}

/// Milliseconds since 1970-01-01 UTC.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
