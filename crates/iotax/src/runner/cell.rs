//! One measurement of one cell.

use std::thread;
use std::time::Duration;

use anyhow::Context;
use iotax_model::Cell;
use iotax_model::record::{CacheDrop, Measurement};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::Job;
use iotax_model::workload::{DEFAULT_SIZE, Verify, Workload};
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::undo::UndoLog;

use super::common_window;
use super::remote_agent::RemoteAgent;
use super::start_barrier::{self, Player};
use super::target::Target;
use super::watch::{Host, Watch, Watched};
use super::{Progress, Runner, interrupted, pair, phases};

/// For what an agent does before and after the load: emulated guests are slow to answer.
const SLACK: Duration = Duration::from_secs(30);
/// Bytes a second: slower than any storage worth measuring.
const SLOWEST: u64 = 10_000_000;
/// How long a neighbour goes on after what is measured should have ended: that starts a little later.
const OUTLAST: Nanos = Nanos::from_secs(1);

/// Which cell, and where in the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) cell: Cell,
    pub(super) round: u32,
    pub(super) order: u32,
}

impl Runner<'_> {
    /// Measures a cell: fresh snapshots, guests resumed, caches dropped, then the work under the monitor's eyes.
    pub(super) fn measure(
        &mut self,
        place: Place,
        undo_log: &mut UndoLog,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Measurement> {
        self.phases.begin(phases::PREPARE);
        let plan = self.order.plan;
        let neighbour = self.neighbour_of(place.cell.target);
        for group in [Some(place.cell.target), neighbour].into_iter().flatten() {
            self.reach(group, undo_log, progress)?;
        }
        let (targets, noise) = pair(&mut self.groups, place.cell.target, neighbour);
        let neighbour = neighbour.map(|group| &plan.neighbours[group - plan.targets.len()]);

        let mut workload = plan.workloads[place.cell.workload].clone();
        // What a snapshot costs is paid by the first writes after it: a warm-up would use it up uncounted.
        let from_the_first = workload.modifies() && targets.iter().any(|target| target.built.has_snapshot());
        if from_the_first {
            workload.ramp_time = Nanos(0);
        }
        for target in targets.iter_mut().chain(noise.iter_mut()) {
            let made_ready = target.renew_snapshots(undo_log).and_then(|()| target.resume());
            made_ready.with_context(|| format!("{} could not be made ready", target.spec.name))?;
        }
        if workload.needs_directory() {
            for target in targets.iter_mut().chain(noise.iter_mut()) {
                target.make_directory(&format!("{}-{}", self.tag, place.order), undo_log)?;
            }
        }
        let (mut host_cache, mut guest_cache) = (None, None);
        if workload.invalidate {
            guest_cache = drop_in_guests(targets)?;
            host_cache = drop_on_host(&mut self.local, targets)?;
        }

        self.phases.begin(phases::MEASURE);
        let score = Score {
            workload: &workload,
            noise: neighbour.map(|neighbour| outlasting(&neighbour.workload, &workload)),
            seed: job_seed(self.order.seed, place.cell.workload, place.round),
            interval: self.order.interval,
        };
        let watched = perform(&score, &mut self.local, targets, noise, progress);
        self.phases.begin(phases::FINISH);
        for target in targets.iter_mut().chain(noise.iter_mut()) {
            target.remove_directory(undo_log);
        }
        let watched = watched?;
        targets.iter_mut().chain(noise).try_for_each(Target::pause)?;

        let mut all = common_window::together(&watched.measured)?;
        let view = watched.view(all.samples.len());
        if view.host.is_some() && targets.iter().all(|target| target.machine.is_none()) {
            // The monitor has seen the same, and more.
            all.outcome.inside = None;
        }
        if from_the_first {
            let remark = "writes are measured from the first one after the snapshot, without a warm-up";
            all.outcome.notes.push(remark.into());
        }
        let neighbour = neighbour.map(|neighbour| {
            let (share, notes) = common_window::beside(&neighbour.target.name, &watched.noise, all.window);
            all.outcome.notes.extend(notes);
            share
        });
        Ok(Measurement {
            target: plan.targets[place.cell.target].name.clone(),
            workload: workload.name,
            round: place.round,
            order: place.order,
            started_at_ms: view.started_at_ms,
            host_duration_ns: Some(view.host_duration_ns).filter(|duration| *duration > 0),
            outcome: all.outcome,
            samples: all.samples,
            host: view.host,
            host_samples: view.host_samples,
            host_cache,
            guest_cache,
            shares: all.shares,
            neighbour,
            qemu: view.qemu,
            stated: None,
        })
    }
}

/// What is played.
struct Score<'a> {
    /// By what is measured.
    workload: &'a Workload,
    /// By what makes noise beside it.
    noise: Option<Workload>,
    seed: u64,
    /// Absent: as long as suits the workload.
    interval: Option<Nanos>,
}

/// Has the agents do their work, and watches.
fn perform(
    score: &Score<'_>,
    local: &mut AgentClient,
    targets: &mut [Target],
    noise: &mut [Target],
    progress: &mut dyn Progress,
) -> anyhow::Result<Watched> {
    // What this machine does says nothing of a target on another one.
    let here: Vec<&mut Target> = targets.iter_mut().filter(|target| target.remote_agent.is_none()).collect();
    let host = if here.is_empty() { None } else { Some(Host::new(here)?) };
    let interval = score.interval.unwrap_or_else(|| interval(score.workload, targets.len()));
    let (mut players, mut layers) = (Vec::new(), Vec::new());
    let mut local = Some(local);
    for (number, target) in (0..).zip(targets.iter_mut()) {
        let job = job(target, score.workload, score.seed.wrapping_add(number), interval);
        let name = target.name_among(number);
        let (own, layer) = target.own_link();
        let link = own.or_else(|| local.take()).context("this host's agent measures one target at a time")?;
        layers.extend(layer);
        players.push(Player { name, link, slack: slack(&job), job, is_noise: false });
    }
    for (number, target) in (0..).zip(noise.iter_mut()) {
        let workload = score.noise.as_ref().context("noise has a workload")?;
        // Not the offsets of what is measured.
        let job = job(target, workload, !score.seed.wrapping_add(number), common_window::fine(workload));
        let name = target.spec.name.clone();
        let link = target.own_link().0.context("a neighbour has an agent of its own")?;
        players.push(Player { name, link, slack: slack(&job), job, is_noise: true });
    }
    let mut watch = Watch::new(host, layers, &players, score.workload.window().0);
    start_barrier::play(players, &mut |word| watch.see(word, progress));
    watch.finish()
}

/// Has all guests drop their caches, at the same time.
fn drop_in_guests(targets: &mut [Target]) -> anyhow::Result<Option<CacheDrop>> {
    let machines = targets.iter_mut().filter_map(|target| target.machine.as_mut());
    let links = machines.map(|machine| machine.guest.agent());
    let dropped: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> = links.map(|link| scope.spawn(|| link.drop_caches(None))).collect();
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

/// Drops the caches where the targets are, on this host or another: all at once, else those of each file.
fn drop_on_host(local: &mut AgentClient, targets: &mut [Target]) -> anyhow::Result<Option<CacheDrop>> {
    let mut how = None;
    for target in targets {
        let host = target.remote_agent.as_mut().map_or(&mut *local, RemoteAgent::link);
        how = Some(host.drop_caches(Some(&target.built.path)).map_err(interrupted)?);
        if how == Some(CacheDrop::PageCache) {
            break;
        }
    }
    Ok(how)
}

fn job(target: &Target, workload: &Workload, seed: u64, interval: Nanos) -> Job {
    let mut workload = workload.clone();
    let area = Bytes(target.built.size.0.saturating_sub(workload.offset.0));
    let size = workload.size.unwrap_or(if workload.needs_directory() { DEFAULT_SIZE } else { area });
    let offset = target.agent_offset().0;
    workload.offset.0 += offset;
    workload.beside.iter_mut().for_each(|job| job.offset.0 += offset);
    Job {
        path: target.agent_path().map(|path| path.display().to_string()),
        workload,
        size,
        seed,
        interval,
        writable: target.built.writable,
        shared: target.built.shared,
        identity: target.agent_identity(),
        directory: target.directory().map(|path| path.display().to_string()),
        peer: target.way.as_ref().map(|way| way.peer.clone()),
    }
}

/// A neighbour's work for as long as another is measured.
fn outlasting(noise: &Workload, measured: &Workload) -> Workload {
    let runtime = Nanos(measured.duration().0 + OUTLAST.0);
    Workload { ramp_time: Nanos(0), runtime, ..noise.clone() }
}

/// What a measurement may take beyond its own length. After it what was written is flushed, from a cache that may hold the
/// whole area, and read back if it is to be verified; files that a test made are removed.
fn slack(job: &Job) -> Duration {
    let bytes = job.workload.jobs().filter(|one| one.writes()).map(|one| {
        let passes = if one.verify == Verify::None { 1 } else { 2 };
        passes * one.span(one.size.unwrap_or(job.size)).unwrap_or(job.size).0
    });
    let files = Duration::from(job.workload.set_up_at_most());
    SLACK + Duration::from_secs(bytes.sum::<u64>() / SLOWEST) + files
}

/// Offsets and payload follow from the run's seed, the workload and the round, and not from the target: within a
/// round every target gets the same work.
fn job_seed(seed: u64, workload: usize, round: u32) -> u64 {
    // The finalizer of SplitMix64, so that neighbouring inputs share nothing.
    let mut z = seed ^ ((workload as u64) << 32 | u64::from(round)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One second, and less for short measurements: about ten intervals. Finer where only whole ones count.
fn interval(workload: &Workload, guests: usize) -> Nanos {
    if guests > 1 {
        return common_window::fine(workload);
    }
    Nanos((workload.window().0 / 10).clamp(100_000_000, 1_000_000_000))
}
