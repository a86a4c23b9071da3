//! Cuts the power of a stack under load, opens the stack again and reads back the writes that it acknowledged.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::crash::{ImageCondition, PowerCut, VolatileCut};
use iotax_model::plan::Plan;
use iotax_model::target::{TargetSpec, VolatileSpec};
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Recovery;
use iotax_model::wire::Event;
use iotax_testbed::device::Permission;
use iotax_testbed::export::StorageDaemon;
use iotax_testbed::guest::image_check;
use iotax_testbed::interrupt::{Interrupt, POLL};
use iotax_testbed::target::{Builder, Built, Survivor};
use iotax_testbed::undo::UndoLog;
use rustix::process::{Pid, Signal, kill_process};

use super::cell::job_seed;
use super::target::{HostSite, Site, Target};
use super::{Interrupted, local_agent};
use crate::causes::with_causes;

/// Minimum time of load before the power cut; a random time of up to `DRAWN` is added.
const EARLIEST: Duration = Duration::from_millis(500);
const DRAWN: Duration = Duration::from_secs(2);
/// Time for the load to notice the cut and close its journal before it is killed.
const LAST_RECORDS: Duration = Duration::from_secs(1);
/// Time limit for a load to begin.
pub(super) const BEGINNING: Duration = Duration::from_mins(1);
/// Sampling interval. The samples of a power-cut load are discarded.
const INTERVAL: Nanos = Nanos::from_millis(100);

/// Tester that cuts the power of a plan's targets, which are built on volatile directories.
pub(crate) struct PowerCuts<'a> {
    plan: &'a Plan,
    builder: Builder,
    pub(super) tag: String,
    /// The directory of the journals, which a power cut does not affect.
    journals: PathBuf,
    seed: u64,
    pub(super) stop: &'a Interrupt,
}

impl<'a> PowerCuts<'a> {
    /// Creates the directory for journals. `tag` is part of all created names; the caller undoes the effects in `undo_log`.
    pub(crate) fn new(
        plan: &'a Plan,
        permission: &Permission,
        tag: &str,
        seed: u64,
        undo_log: &mut UndoLog,
        stop: &'a Interrupt,
    ) -> anyhow::Result<Self> {
        let journals = std::env::temp_dir().join(format!("iotax-{tag}-journals"));
        undo_log.make_tree(&journals)?;
        let builder = Builder::new(tag, plan, permission.clone());
        Ok(Self { plan, builder, tag: tag.to_owned(), journals, seed, stop })
    }

    /// Builds a target, cuts its power under load, reads it back and removes it.
    pub(crate) fn cut(
        &mut self,
        target: usize,
        number: u32,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<PowerCut> {
        let (spec, seed, built) = self.build(target, number, undo_log)?;
        let journal = self.journals.join(format!("{}-{number}", spec.name));
        // An image with a data file names it by its path in the directory that was cut, and one on a filesystem is within another file.
        let is_plain = spec.file().is_none_or(|file| !file.data_file) && spec.filesystem().is_none();
        let stored = built.stored().filter(|_| is_plain);
        let image = stored.and_then(|(path, format)| Some((path.file_name()?.to_owned(), format)));
        let (seconds, volatile, survivor) = self.under_load(&spec, built, seed, &journal, undo_log)?;
        let image = match image {
            Some((name, format)) => image_check::check(&survivor.directory.join(name), format)?,
            None => ImageCondition::Unchecked,
        };
        let cut = match self.read_back(&spec, &survivor, &journal, undo_log) {
            Ok(recovery) => PowerCut::found(Some(seconds), &recovery),
            Err(error) if self.stop.load(Ordering::Relaxed) => return Err(error),
            Err(error) => PowerCut {
                seconds: Some(seconds),
                unusable: Some(with_causes(&error)),
                ..PowerCut::default()
            },
        };
        let cut = PowerCut { volatile: Some(volatile), image, ..cut };
        Self::remove(survivor, undo_log)?;
        fs::remove_file(&journal).with_context(|| journal.display().to_string())?;
        Ok(cut)
    }

    /// Builds a target for its power cut `number`. Returns its description, the cut's seed and the built storage.
    pub(super) fn build(
        &mut self,
        target: usize,
        number: u32,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<(TargetSpec, u64, Built)> {
        let seed = job_seed(self.seed, target, number);
        let mut spec = self.plan.targets[target].clone();
        if let Some(volatile) = spec.stack.find_mut::<VolatileSpec>() {
            volatile.seed = volatile.seed.wrapping_add(seed) >> 1;
        }
        let built = self.builder.build(&spec, undo_log)?;
        Ok((spec, seed, built))
    }

    /// Removes the storage that is left after a cut. Fails if a part cannot be removed.
    pub(super) fn remove(survivor: Survivor, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        match survivor.remove(undo_log).first() {
            None => Ok(()),
            Some(left) => anyhow::bail!("{}: {}", left.effect, left.reason),
        }
    }

    /// Writes to a target until its power is cut. Returns the seconds until the cut, the volatile layer's counts at the cut, and the
    /// storage that is left.
    fn under_load(
        &self,
        spec: &TargetSpec,
        mut built: Built,
        seed: u64,
        journal: &Path,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<(f64, VolatileCut, Survivor)> {
        let mut volatile = built.volatile.take().context("no layer of it is volatile")?;
        if spec.filesystem().is_some() {
            // The load is tested, and not how the filesystem was made.
            volatile.settle(undo_log)?;
        }
        let daemons: Vec<u32> = built.daemons().flat_map(StorageDaemon::pids).collect();
        let target = Target {
            spec: spec.clone(),
            site: Site::Host(HostSite::new(built)),
            is_filled: false,
            stamped: None,
        };
        let mut workload = self.plan.workloads[0].clone();
        workload.write_journal = Some(journal.display().to_string());
        let job = target.job(&workload, seed, INTERVAL);
        let moment = moment(seed);
        let mut agent = local_agent(self.stop)?;
        let agent_pid = agent.pid();
        let (begins, began) = mpsc::channel();
        let (seconds, account) = thread::scope(|scope| {
            let load = threads::spawn_scoped(scope, "load", || {
                // Moved here, so that a load that fails to begin closes the channel and ends the wait.
                let begins = begins;
                agent.run(&job, BEGINNING, &mut |event| {
                    if matches!(event, Event::Measuring) {
                        let _ = begins.send(Instant::now());
                    }
                })
            })?;
            let Ok(began) = began.recv_timeout(BEGINNING) else {
                agent_pid.into_iter().for_each(kill);
                let ended = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                return Err(ended
                    .err()
                    .map_or_else(|| anyhow::anyhow!("the load did not begin"), super::interrupted));
            };
            while began.elapsed() < moment && !load.is_finished() && !self.stop.load(Ordering::Relaxed) {
                threads::sleep(POLL.min(moment.saturating_sub(began.elapsed())));
            }
            let ended_early = load.is_finished();
            let seconds = began.elapsed().as_secs_f64();
            let account = volatile.cut();
            daemons.iter().copied().for_each(kill);
            let patience = Instant::now();
            while !load.is_finished() && patience.elapsed() < LAST_RECORDS {
                threads::sleep(Duration::from_millis(2));
            }
            agent_pid.into_iter().for_each(kill);
            let ended = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (ended_early, ended) {
                (true, Err(error)) => {
                    Err(super::interrupted(error).context("the load failed before the cut"))
                }
                _ => Ok((seconds, account?)),
            }
        })?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(Interrupted.into());
        }
        // They have files open in the volatile directory.
        drop((target, agent));
        Ok((seconds, account, volatile.remove(undo_log)?))
    }

    /// Opens the storage that is left after the cut, and compares it with the journal.
    fn read_back(
        &mut self,
        spec: &TargetSpec,
        survivor: &Survivor,
        journal: &Path,
        undo_log: &mut UndoLog,
    ) -> anyhow::Result<Recovery> {
        let mut built = self.builder.rebuild(spec, survivor.clone(), undo_log)?;
        let volatile = built.volatile.take();
        let recovery = super::audit(&built.path, journal, self.stop);
        drop(built);
        // Waits for the server, which still has the file open: the kernel spins in the removal of a directory while another process closes
        // a removed file of it. Removing the survivor reports what cannot be undone.
        let _ = volatile.map(|volatile| volatile.remove(undo_log));
        recovery
    }
}

/// Returns the time from the first write to the cut: 0.5 s to 2.5 s, drawn from the seed.
pub(super) fn moment(seed: u64) -> Duration {
    EARLIEST + DRAWN.mul_f64((seed >> 11) as f64 / (1_u64 << 53) as f64)
}

pub(super) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
