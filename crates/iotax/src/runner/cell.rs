//! Measures a cell: one workload on one target.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use iotax_model::plan::{Neighbour, Operation};
use iotax_model::record::{CacheDrop, HostActivity, Measurement, Outcome};
use iotax_model::schedule;
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::warning::{Warning, WarningKind};
use iotax_model::workload::Workload;
use iotax_model::{Cell, TargetSpec};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::undo::Effect;

use super::common_window;
use super::gate::Entry;
use super::occurrences::PlannedEvents;
use super::operations::Operations;
use super::target::{HostSite, Site, Target};
use super::window::{self, Part, Performed};
use super::{Runner, interrupted, members, pair, phases};
use crate::causes::with_causes;

/// Extra runtime of a neighbour (a competing load), which starts before the measured load and must not end before it.
const OUTLAST: Nanos = Nanos::from_secs(1);
/// Sampling interval of a watch of up to 15 minutes; a longer one has `COARSE`.
const FINE: Nanos = Nanos::from_millis(250);
const COARSE: Nanos = Nanos::from_secs(1);
const LONG: Nanos = Nanos::from_secs(15 * 60);

/// A cell (a target and a workload) with its round and its position in the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduledCell {
    pub(super) cell: Cell,
    pub(super) round: u32,
    pub(super) order: u32,
}

impl Runner<'_> {
    /// Measures a cell: prepares its targets, then runs and monitors the workload.
    pub(super) fn measure(&mut self, scheduled: ScheduledCell) -> anyhow::Result<Measurement> {
        let measured = self.measure_ready(&[scheduled])?;
        measured.into_iter().next().context("nothing was measured")?
    }

    /// Measures several cells (each a target with a workload) at the same time, each on a different target.
    pub(super) fn measure_together(
        &mut self,
        scheduled: &[ScheduledCell],
    ) -> Vec<anyhow::Result<Measurement>> {
        let is_lost = |one: &&ScheduledCell| self.lost.contains(&one.cell.target);
        let there: Vec<ScheduledCell> = scheduled.iter().filter(|one| !is_lost(one)).copied().collect();
        let mut measured = match self.measure_ready(&there) {
            Ok(measured) => measured,
            Err(error) => {
                let error = with_causes(&error);
                there.iter().map(|_| Err(anyhow::anyhow!("{error}"))).collect()
            }
        }
        .into_iter();
        let of = |one: &ScheduledCell| {
            let is_there = there.iter().any(|it| it.cell == one.cell);
            measured.by_ref().take(usize::from(is_there)).next().context("the target was lost")?
        };
        scheduled.iter().map(of).collect()
    }

    /// Prepares the given cells, none of them of a lost target, and then measures them at the same time. Fails if any cell cannot be
    /// prepared.
    fn measure_ready(
        &mut self,
        scheduled: &[ScheduledCell],
    ) -> anyhow::Result<Vec<anyhow::Result<Measurement>>> {
        self.phases.begin(phases::PREPARE);
        let prepared = scheduled.iter().map(|one| self.prepare(*one));
        let mut prepared = prepared.collect::<anyhow::Result<Vec<Prepared>>>()?;
        if prepared.iter().any(|one| one.from_the_first) {
            // All windows begin at the same time.
            prepared.iter_mut().for_each(|one| one.workload.ramp_time = Nanos(0));
        }
        self.phases.begin(phases::MEASURE);
        let plan = Arc::clone(&self.plan);
        let wanted: Vec<(usize, Option<usize>)> =
            scheduled.iter().map(|one| (one.cell.target, self.neighbour_of(one.cell.target))).collect();
        let named = |index: usize| &plan.targets[scheduled[index].cell.target].name;
        let neighbours: Vec<Option<&Neighbour>> = wanted
            .iter()
            .map(|(_, group)| group.map(|group| &plan.neighbours[group - plan.targets.len()]))
            .collect();
        let mut operations = None;
        let parts = members(&mut self.groups, &wanted).into_iter().enumerate();
        let mut parts: Vec<Part<'_>> = parts
            .map(|(index, (targets, beside))| {
                let workload = &prepared[index].workload;
                let ScheduledCell { cell, round, .. } = scheduled[index];
                Part {
                    workload,
                    neighbour: neighbours[index].map(|neighbour| outlasting(&neighbour.workload, workload)),
                    seed: job_seed(self.order.seed, cell.workload, round),
                    interval: self.order.interval.unwrap_or_else(|| match plan.watch() {
                        Some(_) => watch_interval(workload),
                        None => interval(workload, targets.len()),
                    }),
                    targets,
                    neighbours: beside,
                    fua_writes: self.fua_writes.as_ref(),
                }
            })
            .collect();
        let watch = plan.watch().zip(prepared.first().map(|first| &first.workload));
        if let (Some((watch, workload)), [Part { targets: [target], .. }]) = (watch, parts.as_mut_slice()) {
            let wanted: Vec<Operation> = watch.operations_of(workload).collect();
            if !wanted.is_empty() {
                let ready = Operations::prepare(target, &wanted, watch.copy_iops, self.context.undo_log);
                operations = Some(ready.context("an operation cannot be carried out")?);
            }
        }
        let planned = watch.map(|(watch, workload)| {
            let names: Vec<&str> = (0..scheduled.len()).map(|index| named(index).as_str()).collect();
            let round = scheduled.first().map_or(1, |first| first.round);
            PlannedEvents {
                events: schedule::events_in_round(watch, workload, self.order.seed, round),
                operations: operations.as_ref(),
                window: Duration::from(workload.window()),
                is_control: watch.is_control(&workload.name),
                socket: self.context.undo_log.socket(),
                name: format!("run {}, {}", self.order.run, names.join(", ")),
                marker: format!(
                    "iotax-{}-event-{}",
                    self.tag,
                    scheduled.first().map_or(0, |first| first.order)
                ),
                stop: self.context.stop,
            }
        });
        let commands = planned.as_ref().filter(|planned| planned.has_commands());
        let commands = commands.map(|planned| Effect::Commands { marker: planned.marker.clone() });
        let commands = commands.map(|commands| self.context.undo_log.record(commands)).transpose()?;
        // Targets that are measured at the same time have no settings to apply.
        let setting = wanted.first().map_or(usize::MAX, |(target, _)| *target);
        let applied =
            self.settings.apply(setting, self.context.undo_log).context("a setting cannot be applied");
        let entry = Entry {
            gate: self.order.gate,
            order: scheduled.first().map_or(0, |first| first.order),
            warm_up: prepared.first().map_or(Nanos(0), |first| first.workload.ramp_time),
        };
        let limited = applied
            .and_then(|()| parts.iter_mut().flat_map(Part::everything).try_for_each(Target::set_limit));
        let performed = limited.and_then(|()| {
            window::perform(&mut parts, entry, planned.as_ref(), &mut self.local, self.context.progress)
        });
        let lifted = parts.iter_mut().flat_map(Part::everything).try_for_each(Target::lift_limit);
        let restored = self.settings.restore(self.context.undo_log).context("a setting is not as it was");
        drop(planned);
        if let Some(commands) = commands {
            // The commands have ended, or the user left them running.
            let _ = self.context.undo_log.commit(commands);
        }
        self.phases.begin(phases::FINISH);
        if let (Some(operations), [Part { targets: [target], .. }]) = (operations, parts.as_mut_slice()) {
            operations.finish(target, self.context.undo_log);
        }
        for target in parts.iter_mut().flat_map(Part::everything) {
            target.remove_directory(self.context.undo_log);
        }
        let performed = performed?;
        restored?;
        lifted?;
        // Keep a watch that the user ended, whether QEMU still answers or not.
        let paused = parts.iter_mut().flat_map(Part::everything).try_for_each(Target::pause);
        // The reason for a failed measurement is more useful than the error of a guest that does not answer.
        if !plan.disturbs() && performed.iter().all(Result::is_ok) {
            paused?;
        }
        let measured =
            performed.into_iter().zip(prepared).enumerate().map(|(index, (performed, prepared))| {
                let performed = performed?;
                let neighbour = neighbours[index].map(|it| it.target.name.as_str());
                let spec = &plan.targets[scheduled[index].cell.target];
                measurement(spec, scheduled[index], prepared, performed, neighbour)
            });
        let measured: Vec<anyhow::Result<Measurement>> = measured.collect();
        for (one, measured) in scheduled.iter().zip(&measured) {
            let lays_out = plan.workloads[one.cell.workload].lays_out();
            if !lays_out && measured.as_ref().is_ok_and(|m| is_known_to_hold(&m.outcome)) {
                self.each_on_storage_of(one.cell.target, |target| {
                    target.is_filled |= target.stamped.is_some();
                });
            }
        }
        for one in scheduled {
            self.check_unchanged(*one)?;
        }
        Ok(measured)
    }

    /// Stores a warning if another program has changed a file of the user's that a target reads.
    fn check_unchanged(&mut self, measured: ScheduledCell) -> anyhow::Result<()> {
        let ScheduledCell { cell, round, .. } = measured;
        let (target, workload) =
            (&self.plan.targets[cell.target].name, &self.plan.workloads[cell.workload].name);
        for evidence in self.groups[cell.target].iter_mut().flat_map(Target::changes) {
            self.context.progress.note(&format!("{target}: {evidence}"));
            let warning = Warning {
                kind: WarningKind::Changed,
                target: Some(target.clone()),
                workload: Some(workload.clone()),
                round: Some(round),
                evidence: format!("{evidence}, during this measurement or since the one before"),
                remedy: "measure a copy, or again when nobody writes the file".into(),
            };
            self.context.store.put_warning(self.order.run, &warning)?;
        }
        Ok(())
    }

    /// Fills the storage of a target again if an earlier measurement left unwritten space, or left unknown which data stamped blocks hold.
    fn fill_again(&mut self, group: usize) -> anyhow::Result<()> {
        for member in 0..self.groups[group].len() {
            if !self.groups[group][member].is_filled {
                self.fill(group, member)?;
            }
        }
        Ok(())
    }

    /// Calls `change` for all instances of a target, and for those of other targets on the same storage.
    fn each_on_storage_of(&mut self, target: usize, mut change: impl FnMut(&mut Target)) {
        let storage = self.plan.storage_of(target);
        let same = (0..self.plan.targets.len()).filter(|other| self.plan.storage_of(*other) == storage);
        for other in same {
            self.groups[other].iter_mut().for_each(&mut change);
        }
    }

    /// Prepares a cell: reconnects to lost machines, fills the storage again, renews snapshots, resumes guests, creates directories and
    /// drops caches, each only if needed.
    fn prepare(&mut self, scheduled: ScheduledCell) -> anyhow::Result<Prepared> {
        let neighbour = self.neighbour_of(scheduled.cell.target);
        for group in [Some(scheduled.cell.target), neighbour].into_iter().flatten() {
            self.reconnect(group)?;
        }
        let mut workload = self.plan.workloads[scheduled.cell.workload].clone();
        if workload.jobs().any(Workload::needs_filling) {
            self.fill_again(scheduled.cell.target)?;
        }
        let leaves_holes = workload.lays_out() || workload.frees_space();
        let modifies = workload.modifies();
        self.each_on_storage_of(scheduled.cell.target, |part| {
            // After unacknowledged writes, blocks may hold anything. A snapshot would restore them.
            let is_at_stake = part.stamped.is_some() && modifies && !part.has_snapshot();
            part.is_filled &= !(leaves_holes && part.takes_layouts() || is_at_stake);
        });
        let (targets, neighbours) = pair(&mut self.groups, scheduled.cell.target, neighbour);
        // The first writes after a snapshot bear its cost; a warm-up would hide that.
        let from_the_first = workload.modifies() && targets.iter().any(Target::has_snapshot);
        if from_the_first {
            workload.ramp_time = Nanos(0);
        }
        for target in targets.iter_mut().chain(neighbours.iter_mut()) {
            let made_ready = target.renew_snapshots(self.context.undo_log).and_then(|()| target.resume());
            made_ready.with_context(|| format!("{} could not be made ready", target.spec.name))?;
        }
        if workload.needs_directory() {
            for target in targets.iter_mut().chain(neighbours.iter_mut()) {
                target.make_directory(&format!("{}-{}", self.tag, scheduled.order), self.context.undo_log)?;
            }
        }
        let (mut host_cache, mut guest_cache) = (None, None);
        if workload.invalidate {
            guest_cache = drop_in_guests(targets)?;
            // For metadata workloads, the agent drops the caches after it has created the files.
            let machine = workload.invalidate_machine;
            host_cache = drop_on_host(&mut self.local, targets, machine)?;
            drop_on_host(&mut self.local, neighbours, machine)?;
        }
        Ok(Prepared { workload, from_the_first, host_cache, guest_cache })
    }
}

/// The workload of a cell whose targets are ready, and the caches that were dropped for it.
struct Prepared {
    workload: Workload,
    /// True if the window starts with the first write, without a warm-up.
    from_the_first: bool,
    host_cache: Option<CacheDrop>,
    guest_cache: Option<CacheDrop>,
}

/// Merges the results of all agents into one measurement.
fn measurement(
    spec: &TargetSpec,
    scheduled: ScheduledCell,
    prepared: Prepared,
    Performed { watched, occurrences }: Performed,
    neighbour: Option<&str>,
) -> anyhow::Result<Measurement> {
    let mut all = common_window::merge(&watched.measured)?;
    let view = watched.view(all.samples.len());
    let in_guest = spec.is_in_guest();
    if view.host.is_some() && !in_guest {
        // The host's monitor has recorded a superset of these.
        all.outcome.inside = None;
    }
    if prepared.from_the_first {
        let remark = "writes are measured from the first one after the snapshot, without a warm-up";
        all.outcome.notes.push(remark.into());
    }
    let neighbour = neighbour.map(|name| {
        let (share, notes) = common_window::neighbour_share(name, &watched.neighbour, all.window);
        all.outcome.notes.extend(notes);
        share
    });
    // An agent on this host uses the host's clock, so no standstill can be seen.
    let has_own_clock = in_guest || view.host.is_none();
    let standstills = if has_own_clock { watched.standstills(&occurrences) } else { Vec::new() };
    let host = view
        .host
        .map(|host| HostActivity { programs_ns: watched.programs_ns(&host, &all.outcome, spec), ..host });
    Ok(Measurement {
        target: spec.name.clone(),
        workload: prepared.workload.name,
        round: scheduled.round,
        order: scheduled.order,
        started_at_ms: view.started_at_ms,
        host_duration_ns: Some(view.host_duration_ns).filter(|duration| *duration > 0),
        outcome: all.outcome,
        samples: all.samples,
        host,
        host_samples: view.host_samples,
        host_cache: prepared.host_cache,
        guest_cache: prepared.guest_cache,
        shares: all.shares,
        neighbour,
        qemu: view.qemu,
        counters: view.counters,
        devices: view.devices,
        standstills,
        occurrences,
        stated: None,
        fleet: None,
    })
}

/// Returns whether each written block is known to hold its last write: the load ran to its end, only reads failed, and verification found
/// nothing uncertain. Always false without verification.
fn is_known_to_hold(outcome: &Outcome) -> bool {
    let reads_alone_failed = outcome.errors.iter().all(|error| error.direction == "read");
    let is_certain = outcome.verify.as_ref().is_some_and(|found| found.uncertain == 0);
    outcome.stop.is_none() && reads_alone_failed && is_certain
}

/// Drops the caches of all guests concurrently. Returns the kind of caches that were dropped; `None` without guests.
fn drop_in_guests(targets: &mut [Target]) -> anyhow::Result<Option<CacheDrop>> {
    let agents = targets.iter_mut().filter_map(Target::agent_in_guest);
    let dropped: Vec<anyhow::Result<CacheDrop>> = thread::scope(|scope| {
        let ask = |agent: &mut AgentClient| agent.drop_caches(&[], true).map_err(interrupted);
        let asked: Vec<_> =
            agents.map(|agent| threads::spawn_scoped(scope, "caches", move || ask(agent))).collect();
        asked
            .into_iter()
            .map(|thread| thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut how = None;
    for dropped in dropped {
        how = Some(dropped?);
    }
    Ok(how)
}

/// Drops the targets' page cache on their hosts; with `machine`, all caches of these hosts. Returns the kind of caches that were dropped;
/// `None` if no target has any.
fn drop_on_host(
    run_agent: &mut AgentClient,
    targets: &mut [Target],
    machine: bool,
) -> anyhow::Result<Option<CacheDrop>> {
    let mut how = None;
    for target in targets {
        let dropped = match &mut target.site {
            Site::Remote(site) => {
                if let Some(image) = site.agent.image() {
                    run_agent.drop_caches(&[image.to_owned()], machine).map_err(interrupted)?;
                }
                site.agent.drop_caches(machine)
            }
            // A server that iotax did not start has the caches.
            Site::Host(HostSite { storage, .. }) if storage.built.cached().is_empty() && !machine => continue,
            Site::Host(HostSite { storage, .. }) => run_agent.drop_caches(&storage.built.cached(), machine),
            Site::Guest(site) => run_agent.drop_caches(&site.files(), machine),
            Site::Domain(site) => run_agent.drop_caches(&site.storage.built.cached(), machine),
            Site::Network(_) => continue,
        };
        how = Some(dropped.map_err(interrupted)?);
        if how == Some(CacheDrop::Machine) {
            break;
        }
    }
    Ok(how)
}

/// Returns the workload of a neighbour (a competing load), without a warm-up and 1 s longer than the measured one.
fn outlasting(neighbour: &Workload, measured: &Workload) -> Workload {
    let runtime = Nanos(measured.duration().0 + OUTLAST.0);
    Workload { ramp_time: Nanos(0), runtime, ..neighbour.clone() }
}

/// Returns the seed of offsets and payload. It does not depend on the target, so that within a round all targets get the same work.
pub(super) fn job_seed(seed: u64, workload: usize, round: u32) -> u64 {
    // The finalizer of SplitMix64, so that neighbouring inputs share nothing.
    let mut z = seed ^ ((workload as u64) << 32 | u64::from(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the sampling interval of a watch: 250 ms, or 1 s if its window is longer than 15 minutes.
fn watch_interval(workload: &Workload) -> Nanos {
    if workload.window() > LONG { COARSE } else { FINE }
}

/// Returns the sampling interval: a tenth of the window, from 100 ms to 1 s. With several guests it is 10 ms to 100 ms, because their
/// common window counts only whole intervals. For a load that ends once it is steady, intervals divide the time between two checks.
fn interval(workload: &Workload, guests: usize) -> Nanos {
    if guests > 1 {
        return common_window::fine(workload);
    }
    let tenth = (workload.window().0 / 10).clamp(100_000_000, 1_000_000_000);
    if workload.steadystate.is_none() {
        return Nanos(tenth);
    }
    let check = workload.steady_interval().0;
    Nanos(check / check.div_ceil(tenth))
}
