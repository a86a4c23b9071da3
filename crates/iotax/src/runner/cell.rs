//! One measurement of one cell.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use iotax_model::Cell;
use iotax_model::plan::{Operation, WatchSpec};
use iotax_model::record::{CacheDrop, Measurement, Occurrence};
use iotax_model::units::Nanos;
use iotax_model::wire::Job;
use iotax_model::workload::{Verify, Workload};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::undo::UndoLog;

use super::common_window;
use super::occurrences::{self, Happenings, Seen};
use super::operations::Operations;
use super::start_barrier::{self, Participant};
use super::target::{HostSite, OwnAgent, Site, Target};
use super::watch::{self, Host, Watch, Watched};
use super::{Progress, Runner, interrupted, pair, phases};

/// Time limit for an agent before and after the load: emulated guests are slow to answer.
const SLACK: Duration = Duration::from_secs(30);
/// Bytes per second: slower than any storage worth measuring.
const SLOWEST: u64 = 10_000_000;
/// Extra runtime of a neighbour, which starts a little earlier.
const OUTLAST: Nanos = Nanos::from_secs(1);
/// Intervals of a watch, and those of a long one, which lasts for hours.
const FINE: Nanos = Nanos::from_millis(250);
const COARSE: Nanos = Nanos::from_secs(1);
const LONG: Nanos = Nanos::from_secs(15 * 60);

/// A cell, and its position in the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScheduledCell {
    pub(super) cell: Cell,
    pub(super) round: u32,
    pub(super) order: u32,
}

impl Runner<'_> {
    /// Measures a cell: prepares its targets, then runs and monitors the workload.
    pub(super) fn measure(
        &mut self,
        scheduled: ScheduledCell,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Measurement> {
        self.phases.begin(phases::PREPARE);
        let prepared = self.prepare(scheduled, undo_log, progress)?;
        self.phases.begin(phases::MEASURE);
        let plan = Arc::clone(&self.plan);
        let group = self.neighbour_of(scheduled.cell.target);
        let neighbour = group.map(|group| &plan.neighbours[group - plan.targets.len()]);
        let (targets, neighbours) = pair(&mut self.groups, scheduled.cell.target, group);
        let operates = plan.watch.as_ref().filter(|watch| !watch.is_control(&prepared.workload.name));
        let operations: Vec<Operation> = operates.into_iter().flat_map(WatchSpec::operations).collect();
        let operations = match targets {
            [target] if !operations.is_empty() => Some(
                Operations::prepare(target, &operations, undo_log)
                    .context("an operation cannot be carried out")?,
            ),
            _ => None,
        };
        let happenings = plan.watch.as_ref().map(|watch| Happenings {
            events: watch.events_of(&prepared.workload),
            operations: operations.as_ref(),
            window: Duration::from(prepared.workload.window()),
            socket: undo_log.socket(),
            name: format!("run {}, {}", self.order.run, plan.targets[scheduled.cell.target].name),
        });
        let spec = MeasurementSpec {
            workload: &prepared.workload,
            neighbour: neighbour.map(|neighbour| outlasting(&neighbour.workload, &prepared.workload)),
            seed: job_seed(self.order.seed, scheduled.cell.workload, scheduled.round),
            interval: self.order.interval.or(plan.watch.as_ref().map(|_| watch_interval(&prepared.workload))),
            happenings,
        };
        let performed = perform(&spec, &mut self.local, targets, neighbours, progress);
        self.phases.begin(phases::FINISH);
        if let (Some(operations), [target]) = (operations, &mut *targets) {
            operations.finish(target, undo_log);
        }
        for target in targets.iter_mut().chain(neighbours.iter_mut()) {
            target.remove_directory(undo_log);
        }
        let (watched, occurrences) = performed?;
        // A watch that the user ended is kept, whether QEMU still answers or not.
        let paused = targets.iter_mut().chain(neighbours).try_for_each(Target::pause);
        if plan.watch.is_none() {
            paused?;
        }
        let in_guest = targets.iter().any(Target::is_guest);
        let name = &plan.targets[scheduled.cell.target].name;
        measurement(
            name,
            scheduled,
            prepared,
            &watched,
            in_guest,
            neighbour.map(|it| it.target.name.as_str()),
        )
        .map(|measurement| Measurement {
            standstills: watch::told_by_qemu(measurement.standstills, &occurrences),
            occurrences,
            ..measurement
        })
    }

    /// Fills a target that an earlier cell left partly unwritten.
    fn fill_again(&mut self, group: usize, progress: &mut dyn Progress) -> anyhow::Result<()> {
        for member in 0..self.groups[group].len() {
            if !self.groups[group][member].is_filled {
                self.fill(group, member, progress)?;
            }
        }
        Ok(())
    }

    /// Fills what was left unwritten, renews snapshots, resumes guests, creates directories and drops caches.
    fn prepare(
        &mut self,
        scheduled: ScheduledCell,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Prepared> {
        let neighbour = self.neighbour_of(scheduled.cell.target);
        for group in [Some(scheduled.cell.target), neighbour].into_iter().flatten() {
            self.reconnect(group, undo_log, progress)?;
        }
        let mut workload = self.plan.workloads[scheduled.cell.workload].clone();
        if workload.jobs().any(Workload::needs_filling) {
            self.fill_again(scheduled.cell.target, progress)?;
        }
        let (targets, neighbours) = pair(&mut self.groups, scheduled.cell.target, neighbour);
        for target in targets.iter_mut() {
            target.is_filled &= !(workload.lays_out() && target.takes_layouts());
        }
        // The first writes after a snapshot pay for it: a warm-up would do so uncounted.
        let from_the_first = workload.modifies() && targets.iter().any(Target::has_snapshot);
        if from_the_first {
            workload.ramp_time = Nanos(0);
        }
        for target in targets.iter_mut().chain(neighbours.iter_mut()) {
            let made_ready = target.renew_snapshots(undo_log).and_then(|()| target.resume());
            made_ready.with_context(|| format!("{} could not be made ready", target.spec.name))?;
        }
        if workload.needs_directory() {
            for target in targets.iter_mut().chain(neighbours.iter_mut()) {
                target.make_directory(&format!("{}-{}", self.tag, scheduled.order), undo_log)?;
            }
        }
        let (mut host_cache, mut guest_cache) = (None, None);
        if workload.invalidate {
            guest_cache = drop_in_guests(targets)?;
            host_cache = drop_on_host(&mut self.local, targets)?;
        }
        Ok(Prepared { workload, from_the_first, host_cache, guest_cache })
    }
}

/// The workload of a cell whose targets are ready.
struct Prepared {
    workload: Workload,
    /// True if writes count from the first one, without a warm-up.
    from_the_first: bool,
    host_cache: Option<CacheDrop>,
    guest_cache: Option<CacheDrop>,
}

/// Merges the results of all agents into one measurement.
fn measurement(
    target: &str,
    scheduled: ScheduledCell,
    prepared: Prepared,
    watched: &Watched,
    in_guest: bool,
    neighbour: Option<&str>,
) -> anyhow::Result<Measurement> {
    let mut all = common_window::merge(&watched.measured)?;
    let view = watched.view(all.samples.len());
    if view.host.is_some() && !in_guest {
        // The monitor has recorded the same, and more.
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
    Ok(Measurement {
        target: target.to_owned(),
        workload: prepared.workload.name,
        round: scheduled.round,
        order: scheduled.order,
        started_at_ms: view.started_at_ms,
        host_duration_ns: Some(view.host_duration_ns).filter(|duration| *duration > 0),
        outcome: all.outcome,
        samples: all.samples,
        host: view.host,
        host_samples: view.host_samples,
        host_cache: prepared.host_cache,
        guest_cache: prepared.guest_cache,
        shares: all.shares,
        neighbour,
        qemu: view.qemu,
        devices: view.devices,
        standstills: view.standstills,
        occurrences: Vec::new(),
        stated: None,
    })
}

/// The work of one measurement.
struct MeasurementSpec<'a> {
    workload: &'a Workload,
    /// The neighbour's workload.
    neighbour: Option<Workload>,
    seed: u64,
    /// `None` for one that suits the workload.
    interval: Option<Nanos>,
    /// What happens in the window; `None` if it is no watch.
    happenings: Option<Happenings<'a>>,
}

/// Runs the workloads and monitors the machine.
fn perform(
    spec: &MeasurementSpec<'_>,
    run_agent: &mut AgentClient,
    targets: &mut [Target],
    neighbours: &mut [Target],
    progress: &mut dyn Progress,
) -> anyhow::Result<(Watched, Vec<Occurrence>)> {
    let host = Host::new(targets, spec.workload)?;
    let interval = spec.interval.unwrap_or_else(|| interval(spec.workload, targets.len()));
    let (mut participants, mut layers) = (Vec::new(), Vec::new());
    let mut run_agent = Some(run_agent);
    for (number, target) in (0..).zip(targets.iter_mut()) {
        let job = target.job(spec.workload, spec.seed.wrapping_add(number), interval);
        let name = target.name_among(number);
        let agent = match target.own_agent()? {
            Some(OwnAgent { client, blocks }) => {
                layers.extend(blocks);
                client
            }
            None => run_agent.take().context("this host's agent measures one target at a time")?,
        };
        participants.push(Participant { name, agent, slack: slack(&job), job, is_neighbour: false });
    }
    for (number, target) in (0..).zip(neighbours.iter_mut()) {
        let workload = spec.neighbour.as_ref().context("noise has a workload")?;
        // Other offsets than those of the measured targets.
        let seed = !spec.seed.wrapping_add(number);
        let job = target.job(workload, seed, common_window::fine(workload));
        let name = target.spec.name.clone();
        let agent = target.own_agent()?.context("a neighbour has an agent of its own")?.client;
        participants.push(Participant { name, agent, slack: slack(&job), job, is_neighbour: true });
    }
    let disks = host.as_ref().map_or(Vec::new(), |host| host.disks.clone());
    let mut watch = Watch::new(host, layers, &participants, spec.workload.window().0);
    let Some(happenings) = &spec.happenings else {
        start_barrier::run(participants, &mut |event| watch.see(event, progress));
        return Ok((watch.finish()?, Vec::new()));
    };
    let mut watch = watch.keeping();
    let Seen { mut occurrences, remarks, began } = occurrences::during(happenings, &disks, |begin| {
        let mut begin = Some(begin);
        start_barrier::run(participants, &mut |event| {
            watch.see(event, progress);
            if let Some(at) = watch.began()
                && let Some(begin) = begin.take()
            {
                begin(at);
            }
        });
    });
    remarks.iter().for_each(|remark| progress.note(remark));
    let watched = watch.finish()?;
    if let Some(began) = began {
        occurrences.extend(occurrences::of_guests(targets, began));
        occurrences.sort_by_key(|occurrence| occurrence.at_ns);
    }
    Ok((watched, occurrences))
}

/// Drops the caches of all guests concurrently.
fn drop_in_guests(targets: &mut [Target]) -> anyhow::Result<Option<CacheDrop>> {
    let agents = targets.iter_mut().filter_map(Target::running_guest).map(|running| running.guest.agent());
    let dropped: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> = agents.map(|agent| scope.spawn(|| agent.drop_caches(None))).collect();
        asked
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut how = None;
    for dropped in dropped {
        how = Some(dropped.map_err(interrupted)?);
    }
    Ok(how)
}

/// Drops the caches of the targets' hosts, this or another: all at once, otherwise those of each file.
fn drop_on_host(run_agent: &mut AgentClient, targets: &mut [Target]) -> anyhow::Result<Option<CacheDrop>> {
    let mut how = None;
    for target in targets {
        let dropped = match &mut target.site {
            Site::Remote(site) => site.agent.drop_caches(),
            Site::Host(HostSite { storage, .. }) => run_agent.drop_caches(Some(&storage.built.path)),
            Site::Guest(site) => run_agent.drop_caches(Some(&site.storage.built.path)),
            Site::Network(_) => continue,
        };
        how = Some(dropped.map_err(interrupted)?);
        if how == Some(CacheDrop::PageCache) {
            break;
        }
    }
    Ok(how)
}

/// A neighbour's workload, for longer than the measured one.
fn outlasting(neighbour: &Workload, measured: &Workload) -> Workload {
    let runtime = Nanos(measured.duration().0 + OUTLAST.0);
    Workload { ramp_time: Nanos(0), runtime, ..neighbour.clone() }
}

/// Time limit of a measurement beyond its own length: writes are flushed from a cache that may hold the whole area and read back for
/// verification, and a test's files are removed.
fn slack(job: &Job) -> Duration {
    let bytes = job.workload.jobs().filter(|one| one.writes()).map(|one| {
        let passes = if one.verify == Verify::None { 1 } else { 2 };
        passes * one.span(one.size.unwrap_or(job.size)).unwrap_or(job.size).0
    });
    let files = Duration::from(job.workload.set_up_at_most());
    SLACK + Duration::from_secs(bytes.sum::<u64>() / SLOWEST) + files
}

/// The seed of offsets and payload. It does not depend on the target: within a round all targets get the same work.
fn job_seed(seed: u64, workload: usize, round: u32) -> u64 {
    // The finalizer of SplitMix64, so that neighbouring inputs share nothing.
    let mut z = seed ^ ((workload as u64) << 32 | u64::from(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The length of intervals of a watch.
fn watch_interval(workload: &Workload) -> Nanos {
    if workload.window() > LONG { COARSE } else { FINE }
}

/// The length of intervals: a tenth of the window, at most 1 s; shorter where only whole intervals count.
fn interval(workload: &Workload, guests: usize) -> Nanos {
    if guests > 1 {
        return common_window::fine(workload);
    }
    Nanos((workload.window().0 / 10).clamp(100_000_000, 1_000_000_000))
}
