//! One measurement of one cell.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::Cell;
use iotax_model::record::{CacheDrop, HostActivity, Measurement, Outcome, Sample};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::{Verify, Workload};
use iotax_rig::ledger::Ledger;
use iotax_rig::monitor::{self, Monitor, Snapshot};
use iotax_rig::stack;

use super::outpost::Outpost;
use super::target::Machine;
use super::{Conductor, Progress, interrupted, nanos_since, now_ms};

/// For what an agent does before and after the load: emulated guests are slow to answer.
const SLACK: Duration = Duration::from_secs(30);
/// Bytes a second: slower than any storage worth measuring.
const SLOWEST: u64 = 10_000_000;

/// Which cell, and where in the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) cell: Cell,
    pub(super) block: u32,
    pub(super) order: u32,
}

impl Conductor<'_> {
    /// Measures a cell: fresh snapshot, guest resumed, caches dropped, then the work under the monitor's eyes.
    pub(super) fn measure(
        &mut self,
        place: Place,
        ledger: &mut Ledger,
        progress: &mut dyn Progress,
    ) -> anyhow::Result<Measurement> {
        self.reach(place.cell.target, ledger, progress)?;
        let target = &mut self.targets[place.cell.target];
        let mut workload = self.order.plan.workloads[place.cell.workload].clone();
        // What a snapshot costs is paid by the first writes after it: a warm-up would use it up uncounted.
        let from_the_first = target.built.has_snapshot() && workload.rw.modifies();
        if from_the_first {
            workload.ramp_time = Nanos(0);
        }
        target.renew_snapshots(ledger)?;
        target.resume()?;
        let (mut host_cache, mut guest_cache) = (None, None);
        if workload.invalidate {
            if let Some(machine) = &mut target.machine {
                guest_cache = Some(machine.guest.link().drop_caches(None).map_err(interrupted)?);
            }
            let host = target.outpost.as_mut().map_or(&mut self.local, Outpost::link);
            host_cache = Some(host.drop_caches(Some(&target.built.path)).map_err(interrupted)?);
        }
        let size = workload.size.unwrap_or(Bytes(target.built.size.0.saturating_sub(workload.offset.0)));
        workload.offset.0 += target.agent_offset().0;
        let job = Job {
            path: target.agent_path().map(|path| path.display().to_string()),
            workload: workload.clone(),
            size,
            seed: job_seed(self.order.seed, place.cell.workload, place.block),
            interval: interval(&workload),
            writable: target.built.writable,
            shared: target.built.shared,
        };
        // What this machine does says nothing of a target on another one.
        let monitor = if target.outpost.is_none() {
            let disks = stack::of_path(Path::new("/"), &target.built.path)?.disks;
            let threads = target.machine.as_mut().map(Machine::threads).transpose()?;
            Some(Monitor::new(Path::new("/"), disks, threads.into_iter().collect()))
        } else {
            None
        };
        let mut watch = Watch::new(monitor);
        let link = target.link(&mut self.local);
        let mut outcome =
            link.run(&job, slack(&job), &mut |event| watch.see(event, progress)).map_err(interrupted)?;
        if target.machine.is_none() && target.outpost.is_none() {
            // The monitor has seen the same, and more.
            outcome.inside = None;
        }
        if from_the_first {
            outcome
                .notes
                .push("writes are measured from the first one after the snapshot, without a warm-up".into());
        }
        target.pause()?;
        let names = (target.spec.name.as_str(), workload.name.as_str());
        watch.finish(place, names, outcome, (host_cache, guest_cache))
    }
}

/// What a measurement may take beyond its own length. After it what was written is read back, if it is to be verified.
fn slack(job: &Job) -> Duration {
    let reads_back = job.workload.verify != Verify::None && job.workload.rw.writes();
    SLACK + Duration::from_secs(if reads_back { job.size.0 / SLOWEST } else { 0 })
}

/// Offsets and payload follow from the run's seed, the workload and the block, and not from the target: within a
/// block every target gets the same work.
fn job_seed(seed: u64, workload: usize, block: u32) -> u64 {
    // The finalizer of SplitMix64, so that neighbouring inputs share nothing.
    let mut z = seed ^ ((workload as u64) << 32 | u64::from(block)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// One second, and less for short measurements: about ten intervals.
fn interval(workload: &Workload) -> Nanos {
    Nanos((workload.runtime.0 / 10).clamp(100_000_000, 1_000_000_000))
}

/// Sees the machine at every event of the agent.
struct Watch {
    /// Absent for a target on another machine, whose own agent watches that.
    monitor: Option<Monitor>,
    started: Option<Started>,
    samples: Vec<Sample>,
    host_samples: Vec<HostActivity>,
}

struct Started {
    at: Instant,
    at_ms: u64,
    /// The first snapshot and the last.
    seen: Option<(Snapshot, Snapshot)>,
    host_duration_ns: u64,
}

impl Watch {
    fn new(monitor: Option<Monitor>) -> Self {
        Self { monitor, started: None, samples: Vec::new(), host_samples: Vec::new() }
    }

    fn see(&mut self, event: &Event, progress: &mut dyn Progress) {
        match event {
            Event::Measuring => {
                let at = Instant::now();
                let first = self.monitor.as_mut().map(Monitor::snapshot);
                let seen = first.map(|first| (first.clone(), first));
                self.started = Some(Started { at, at_ms: now_ms(), seen, host_duration_ns: 0 });
            }
            Event::Sample(sample) => {
                if let Some(started) = &mut self.started {
                    started.host_duration_ns = nanos_since(started.at);
                    if let (Some(monitor), Some((_, last))) = (&mut self.monitor, &mut started.seen) {
                        let now = monitor.snapshot();
                        self.host_samples.push(monitor::delta(last, &now, started.at));
                        *last = now;
                    }
                }
                let ios: u64 = sample.tallies.ios();
                if sample.duration_ns > 0 {
                    progress.interval(ios as f64 * 1e9 / sample.duration_ns as f64, sample.oldest_ns);
                }
                self.samples.push((**sample).clone());
            }
            _ => {}
        }
    }

    fn finish(
        self,
        place: Place,
        (target, workload): (&str, &str),
        outcome: Outcome,
        (host_cache, guest_cache): (Option<CacheDrop>, Option<CacheDrop>),
    ) -> anyhow::Result<Measurement> {
        let started = self.started.context("the agent never said that the warm-up was over")?;
        Ok(Measurement {
            target: target.to_owned(),
            workload: workload.to_owned(),
            block: place.block,
            order: place.order,
            started_at_ms: started.at_ms,
            host_duration_ns: Some(started.host_duration_ns).filter(|duration| *duration > 0),
            outcome,
            samples: self.samples,
            host: started.seen.map(|(first, last)| monitor::delta(&first, &last, started.at)),
            host_samples: self.host_samples,
            host_cache,
            guest_cache,
            shares: Vec::new(),
            neighbour: None,
            qemu: None,
        })
    }
}
