//! Reads this machine's counters at the events of the measured agents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::TargetSpec;
use iotax_model::record::{
    BlockStats, CpuPace, CpuTime, DeviceGaps, DiskActivity, Happened, HostActivity, LayerCounters,
    NicActivity, Occurrence, Outcome, Sample, Source, Standstill, Stop, Tallies,
};
use iotax_model::target::{LayerKind, NetPath};
use iotax_model::wire::Event;
use iotax_model::workload::Workload;
use iotax_testbed::agent_client::AgentError;
use iotax_testbed::export::StorageDaemon;
use iotax_testbed::guest::BlockLayer;
use iotax_testbed::guest::blockstats::{self, BlockCounters};
use iotax_testbed::monitor::device_gaps::DeviceGapWatch;
use iotax_testbed::monitor::fua_writes::FuaWrites;
use iotax_testbed::monitor::kernel::{self, KernelCounters, KernelThreads};
use iotax_testbed::monitor::pace::{self, PaceReading};
use iotax_testbed::monitor::{self, Monitor, MonitorSnapshot};
use iotax_testbed::stack::{self, LayerStack};
use iotax_testbed::target::counters::{self, Counters};
use iotax_testbed::target::zfs::ArcCounters;

use super::common_window::AgentRun;
use super::network;
use super::start_barrier::{AgentEvent, EventKind, Participant};
use super::target::{RunningGuest, Site, Target};
use super::{Progress, interrupted, now_ms};

/// A measurement in progress. The measured agents come first, then those of the neighbour, which makes competing load.
pub(super) struct Watch<'a> {
    /// Monitors of this machine; `None` if all targets are on other machines.
    host: Option<Host>,
    /// QEMU's block layers of the measured guests.
    blocks: Vec<BlockLayer<'a>>,
    /// The number of measured agents.
    measured: usize,
    runtime_ns: u64,
    /// True if the load has neither a warm-up nor a start delay: the counters must then be read before the load starts.
    has_no_warm_up: bool,
    /// True to keep an agent's results up to the time at which it is lost.
    keeps: bool,
    agents: Vec<AgentLog>,
    /// Readings from before the start of a load without a warm-up, until its window begins; otherwise `None`.
    before: Option<(Option<MonitorSnapshot>, StartCounters)>,
    started: Option<Started>,
    ended: Option<Ended>,
}

/// Monitors of this machine's devices, kernel threads and guests.
pub(super) struct Host {
    /// The block devices below the targets, by kernel name.
    pub(super) disks: Vec<String>,
    monitor: Monitor,
    kernel: KernelThreads,
    /// The packets' path; `None` unless exactly one network path is measured.
    via: Option<NetPath>,
    /// Detector of periods in which a guest's device completes no I/O; `None` if the workload does not record them, and without guests,
    /// because agents on the host detect such periods themselves.
    gaps: Option<DeviceGapWatch>,
    /// True if a layer is served by a program whose CPU time is not measured.
    is_served_unseen: bool,
    /// For each target with storage on this machine, the counters of its layers that keep some.
    counters: Vec<Vec<Arc<dyn Counters>>>,
}

/// The events that one agent sent during a measurement.
#[derive(Default)]
struct AgentLog {
    name: String,
    began: Option<Instant>,
    samples: Vec<Sample>,
    outcome: Option<Result<Outcome, AgentError>>,
}

/// Readings from the time at which all measured agents had begun their windows.
struct Started {
    /// The index of the last agent to begin. Snapshots are taken at the ends of its sampling intervals.
    lead: usize,
    at: Instant,
    at_ms: u64,
    /// Snapshots at the beginning, and at the end of each sampling interval of the agent `lead`.
    beats: Vec<Beat>,
    counters: StartCounters,
}

/// Counters read at the beginning of a window in addition to the snapshot.
struct StartCounters {
    kernel: Option<KernelCounters>,
    pace: Option<PaceReading>,
    /// CPU time of this process in nanoseconds, up to the beginning of the window.
    own_ns: u64,
    blocks: Vec<Option<BlockCounters>>,
    /// Readings of each target's layers; `None` for a layer that did not answer.
    layers: Vec<Vec<Option<LayerCounters>>>,
}

/// A snapshot of the machine, with its time after the beginning of the window.
struct Beat {
    after: Duration,
    snapshot: Option<MonitorSnapshot>,
}

/// Readings from the time at which the first measured agent reached the end of its window.
struct Ended {
    at: Instant,
    kernel: BTreeMap<String, CpuTime>,
    kernel_ns: Option<u64>,
    pace: Option<CpuPace>,
    /// CPU time of this process in nanoseconds, during the window.
    own_ns: u64,
    /// The snapshot after the last measured agent had ended, so that it includes the final flushes; `None` if no agent has ended without an
    /// error, or if this machine is not monitored.
    after: Option<MonitorSnapshot>,
    blocks: Option<BlockStats>,
    counters: Vec<LayerCounters>,
}

/// The host's activity while all measured agents ran.
pub(super) struct HostView {
    pub(super) started_at_ms: u64,
    pub(super) host_duration_ns: u64,
    /// The activity of this machine; `None` if all targets are on other machines.
    pub(super) host: Option<HostActivity>,
    pub(super) host_samples: Vec<HostActivity>,
    pub(super) qemu: Option<BlockStats>,
    pub(super) counters: Vec<LayerCounters>,
    pub(super) devices: Vec<DeviceGaps>,
}

impl Host {
    /// Prepares to monitor the devices, filesystems, guests and interfaces below `targets`; `None` if all targets are on other machines.
    pub(super) fn new(
        targets: &mut [Target],
        workload: &Workload,
        fua: Option<&Arc<FuaWrites>>,
    ) -> anyhow::Result<Option<Self>> {
        let root = Path::new("/");
        let (mut stacks, mut threads, mut paths, mut counters) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let is_guest = targets.iter().any(Target::is_guest);
        let mut is_served_unseen = false;
        for target in targets {
            if let Some(storage) = target.local_storage() {
                let stored = storage.built.stored();
                is_served_unseen |= stored.is_none();
                let stack =
                    stored.map(|(path, _)| stack::of_path(root, path)).transpose()?.unwrap_or_default();
                let mut of_layers = storage.built.counters.clone();
                if stack.is_on_zfs() {
                    of_layers.push(Arc::new(ArcCounters::new(root)));
                }
                stacks.push(stack);
                counters.push(of_layers);
                threads.extend(storage.built.daemons().flat_map(StorageDaemon::threads));
            }
            if let Site::Network(site) = &target.site {
                paths.push((site.path.via, site.watched_process()));
            }
            let of_guest = target.running_guest().map(RunningGuest::threads).transpose();
            let of_guest = of_guest.with_context(|| format!("the guest of {}", target.spec.name))?;
            threads.extend(of_guest.into_iter().flatten());
        }
        if stacks.is_empty() && paths.is_empty() {
            return Ok(None);
        }
        is_served_unseen |= stacks.iter().any(LayerStack::is_served_by_programs);
        let unique = |words: BTreeSet<String>| words.into_iter().collect::<Vec<_>>();
        let disks = unique(stacks.iter().flat_map(|stack| stack.disks.iter().cloned()).collect());
        let layers = stacks.iter().flat_map(|stack| &stack.layers);
        let filesystems = layers.filter(|layer| layer.kind == LayerKind::Filesystem);
        let filesystems = unique(filesystems.map(|layer| layer.name.clone()).collect());
        let mut kernel = KernelThreads::new(root, &disks, &filesystems);
        // The first reading takes longest; do it before the window.
        kernel.read();
        let gaps = workload.blackout.filter(|_| is_guest);
        let gaps = gaps.map(|least| DeviceGapWatch::start(root, &disks, Duration::from_nanos(least.0)));
        let monitor = Monitor::new(root, disks.clone(), threads).with_fua_writes(fua);
        // Several guests are in separate network namespaces, which are not monitored.
        let (monitor, via) = match paths.as_slice() {
            [(via, process)] => (monitor.with_network(root, *process), Some(*via)),
            _ => (monitor, None),
        };
        Ok(Some(Self { disks, monitor, kernel, via, gaps, is_served_unseen, counters }))
    }

    /// Reads the counters of each target's layers; `None` for a layer that does not answer.
    fn layers(&self) -> Vec<Vec<Option<LayerCounters>>> {
        self.counters.iter().map(|all| all.iter().map(|one| counters::reading(&**one)).collect()).collect()
    }
}

impl<'a> Watch<'a> {
    /// Creates the watch of a measurement. Measured participants must come before neighbours.
    pub(super) fn new(
        host: Option<Host>,
        blocks: Vec<BlockLayer<'a>>,
        participants: &[Participant<'_>],
        workload: &Workload,
    ) -> Self {
        Self {
            host,
            blocks,
            measured: participants.iter().filter(|one| !one.is_neighbour).count(),
            runtime_ns: workload.window().0,
            has_no_warm_up: workload.ramp_time.0 == 0 && workload.startdelay.is_none(),
            keeps: false,
            agents: participants
                .iter()
                .map(|one| AgentLog { name: one.name.clone(), ..AgentLog::default() })
                .collect(),
            before: None,
            started: None,
            ended: None,
        }
    }

    /// Keeps the results of an agent that is lost before the end, because a measurement may have run for hours.
    pub(super) fn keeping(self) -> Self {
        Self { keeps: true, ..self }
    }

    /// Processes an event of an agent. Returns true if a sampling interval of the agent whose window began last has ended.
    pub(super) fn see(&mut self, event: AgentEvent, progress: &mut dyn Progress) -> bool {
        let AgentEvent { participant, at, kind } = event;
        let is_measured = participant < self.measured;
        match kind {
            EventKind::Event(Event::Measuring) => {
                self.agents[participant].began = Some(at);
                let all = self.agents[..self.measured].iter().all(|agent| agent.began.is_some());
                if is_measured && all {
                    self.start(participant);
                }
            }
            EventKind::Event(Event::Sample(sample)) => return self.sample(participant, *sample, progress),
            // Work without a time limit may end early.
            EventKind::Event(Event::Over) if is_measured => self.end(),
            EventKind::Ended(outcome) => {
                // QEMU may not answer for an agent that failed.
                let is_whole = outcome.is_ok();
                self.agents[participant].outcome = Some(*outcome);
                if is_measured && !is_whole && self.keeps {
                    self.end();
                }
                if is_measured && is_whole {
                    self.end();
                    self.see_flushed();
                }
            }
            EventKind::Starting if self.has_no_warm_up && self.before.is_none() => {
                self.before = Some(self.counters());
            }
            EventKind::Ready | EventKind::Starting | EventKind::Event(_) => {}
        }
        false
    }

    /// Returns true once all measured agents have begun their windows, or any of them has ended or failed.
    pub(super) fn is_settled(&self) -> bool {
        self.started.is_some() || self.agents[..self.measured].iter().any(|agent| agent.outcome.is_some())
    }

    /// Returns the sum of the measured agents' IOPS in their last intervals.
    pub(super) fn iops(&self) -> f64 {
        self.latest().map(|sample| sample.tallies.ios() as f64 * 1e9 / sample.duration_ns.max(1) as f64).sum()
    }

    /// Returns the age in nanoseconds of the oldest I/O in flight at the end of the last intervals; `None` if no I/O is reported.
    pub(super) fn oldest_ns(&self) -> Option<u64> {
        self.latest().filter_map(|sample| sample.oldest_ns).max()
    }

    /// Iterates over the last sample of each measured agent.
    pub(super) fn latest(&self) -> impl Iterator<Item = &Sample> {
        self.agents[..self.measured].iter().filter_map(|agent| agent.samples.last())
    }

    /// Returns the time at which all measured agents had begun their windows; `None` before.
    pub(super) fn began(&self) -> Option<Instant> {
        self.started.as_ref().map(|started| started.at)
    }

    fn start(&mut self, lead: usize) {
        let (at, at_ms) = (Instant::now(), now_ms());
        let (snapshot, counters) = self.before.take().unwrap_or_else(|| self.counters());
        let beats = vec![Beat { after: Duration::ZERO, snapshot }];
        self.started = Some(Started { lead, at, at_ms, beats, counters });
    }

    fn counters(&mut self) -> (Option<MonitorSnapshot>, StartCounters) {
        let snapshot = self.host.as_mut().map(|host| host.monitor.snapshot());
        // Read before QEMU's counters, because QEMU may take a while to answer on a busy host.
        let own_ns = own_cpu_ns();
        let kernel = self.host.as_mut().map(|host| host.kernel.read());
        let blocks = self.blocks.iter_mut().map(BlockLayer::counters).collect();
        let pace = self.host.as_ref().map(|_| pace::read(Path::new("/")));
        let layers = self.host.as_ref().map(Host::layers).unwrap_or_default();
        (snapshot, StartCounters { kernel, pace, own_ns, blocks, layers })
    }

    fn sample(&mut self, participant: usize, sample: Sample, progress: &mut dyn Progress) -> bool {
        let is_last = sample.at_ns >= self.runtime_ns;
        let is_measured = participant < self.measured;
        if is_measured {
            progress.sample(&self.agents[participant].name, &sample);
        }
        self.agents[participant].samples.push(sample);
        let beats = self.started.as_mut().filter(|started| is_measured && started.lead == participant);
        let is_beat = beats.is_some();
        if let Some(started) = beats {
            let after = started.at.elapsed();
            started
                .beats
                .push(Beat { after, snapshot: self.host.as_mut().map(|host| host.monitor.snapshot()) });
        }
        if is_measured && is_last {
            self.end();
        }
        is_beat
    }

    /// Reads all counters at the window's end. Only the first call has an effect.
    fn end(&mut self) {
        let at = Instant::now();
        if let (Some(started), None) = (&self.started, &self.ended) {
            let blocks = self.blocks.iter_mut().zip(&started.counters.blocks).map(|(layer, before)| {
                let (before, after) = before.as_ref().zip(layer.counters())?;
                blockstats::between(before, &after)
            });
            let blocks: Option<Vec<BlockStats>> = blocks.collect();
            let layers = self.host.as_ref().map(Host::layers).unwrap_or_default();
            let counted = layers.into_iter().zip(&started.counters.layers).map(|(now, before)| {
                let both = now.into_iter().zip(before);
                both.filter_map(|(now, before)| now?.since(before.as_ref()?)).collect()
            });
            let counted: Vec<Vec<LayerCounters>> = counted.collect();
            let kernel = started.counters.kernel.as_ref().zip(self.host.as_mut());
            let kernel = kernel.map(|(before, host)| {
                let now = host.kernel.read();
                (kernel::between(before, &now), kernel::total_ns(before, &now))
            });
            let (kernel, kernel_ns) = kernel.unwrap_or_default();
            let pace = started
                .counters
                .pace
                .as_ref()
                .and_then(|first| pace::between(first, &pace::read(Path::new("/"))));
            self.ended = Some(Ended {
                at,
                kernel,
                kernel_ns,
                pace,
                own_ns: own_cpu_ns().saturating_sub(started.counters.own_ns),
                after: None,
                counters: LayerCounters::sum(&counted),
                blocks: blocks.and_then(|all| {
                    all.into_iter().reduce(|mut sum, one| {
                        sum.merge(&one);
                        sum
                    })
                }),
            });
        }
    }

    /// Takes a snapshot after an agent has ended, and has thus flushed its writes. A later call replaces it.
    fn see_flushed(&mut self) {
        if let (Some(ended), Some(host)) = (&mut self.ended, &mut self.host) {
            ended.after = Some(host.monitor.snapshot());
        }
    }

    /// Returns all results and observations. Fails if the run was interrupted, if the measurement never began, or if an agent failed,
    /// unless results are kept and that agent has sent samples.
    pub(super) fn finish(self) -> anyhow::Result<Watched> {
        let mut measured = Vec::with_capacity(self.agents.len());
        for (number, agent) in self.agents.into_iter().enumerate() {
            let ended = agent.outcome.context("an agent was never queried")?;
            let ended = match ended {
                Err(AgentError::Interrupted) | Ok(_) => ended.map_err(interrupted),
                Err(error) if !self.keeps || agent.samples.is_empty() => Err(interrupted(error)),
                Err(error) => Ok(until_gone(&agent.samples, &error)),
            };
            let outcome = if number < self.measured { ended? } else { ended.context("the neighbour")? };
            let began = agent.began.context("the agent never said that the warm-up was over")?;
            measured.push(AgentRun { name: agent.name, began, samples: agent.samples, outcome });
        }
        let neighbour = measured.split_off(self.measured);
        let (started, ended) = self.started.zip(self.ended).context("the measurement never began")?;
        let is_served_unseen = self.host.as_ref().is_some_and(|host| host.is_served_unseen);
        let (via, gaps) = self.host.map(|host| (host.via, host.gaps)).unwrap_or_default();
        let devices = gaps.map(|watch| watch.finish(started.at, ended.at)).unwrap_or_default();
        Ok(Watched { measured, neighbour, started, ended, via, devices, is_served_unseen })
    }
}

/// Returns the outcome of a lost agent, computed from the samples that the agent had sent.
fn until_gone(samples: &[Sample], error: &AgentError) -> Outcome {
    let tallies = samples.iter().fold(Tallies::default(), |mut all, sample| {
        all.merge(&sample.tallies);
        all
    });
    Outcome {
        duration_ns: samples.last().map_or(0, |sample| sample.at_ns),
        tallies,
        stop: Some(Stop::Gone),
        notes: vec![error.to_string()],
        ..Outcome::default()
    }
}

/// The results and observations of one measurement.
pub(super) struct Watched {
    pub(super) measured: Vec<AgentRun>,
    pub(super) neighbour: Vec<AgentRun>,
    started: Started,
    ended: Ended,
    via: Option<NetPath>,
    devices: Vec<DeviceGaps>,
    is_served_unseen: bool,
}

impl Watched {
    /// Returns the CPU time in nanoseconds of all programs that take part in the I/O. `outcome` is merged from all agents. `None` if any
    /// program is not observed.
    pub(super) fn programs_ns(
        &self,
        host: &HostActivity,
        outcome: &Outcome,
        spec: &TargetSpec,
    ) -> Option<u64> {
        let is_guest = spec.is_in_guest();
        if self.is_served_unseen || is_guest && host.guest_threads.is_empty() {
            return None;
        }
        let threads: u64 = host.guest_threads.values().map(|time| time.total_ns()).sum();
        let generator = if is_guest { 0 } else { outcome.cpu.total_ns() };
        let server =
            if spec.has_server_here() { outcome.carried.as_ref()?.server_cpu?.total_ns() } else { 0 };
        Some(threads + generator + server)
    }

    /// Returns the start of the window.
    pub(super) const fn began(&self) -> Instant {
        self.started.at
    }

    /// Returns the host's activity over the first `intervals` sampling intervals of the agent whose window began last.
    pub(super) fn view(&self, intervals: usize) -> HostView {
        let Started { at, at_ms, beats, .. } = &self.started;
        let last = intervals.min(beats.len() - 1);
        let over = |from: usize, to: usize| {
            let (from, to) = beats[from].snapshot.as_ref().zip(beats[to].snapshot.as_ref())?;
            let mut activity = monitor::delta(from, to, *at);
            activity.nics = self.on_path(activity.nics);
            Some(activity)
        };
        let whole = over(0, last);
        HostView {
            started_at_ms: *at_ms,
            host_duration_ns: nanos(beats[last].after),
            host: whole.map(|host| HostActivity {
                kernel_threads: self.ended.kernel.clone(),
                kernel_ns: self.ended.kernel_ns,
                watching_ns: Some(self.ended.own_ns),
                pace: self.ended.pace.clone(),
                flushed: self.flushed(),
                ..host
            }),
            host_samples: (0..last).filter_map(|index| over(index, index + 1)).collect(),
            qemu: self.ended.blocks.clone(),
            counters: self.ended.counters.clone(),
            devices: self.devices.clone(),
        }
    }

    /// Returns periods in which an agent's clock stood still; empty with several agents. `occurrences` contains QEMU's reports of stops.
    pub(super) fn standstills(&self, occurrences: &[Occurrence]) -> Vec<Standstill> {
        let [only] = self.measured.as_slice() else { return Vec::new() };
        let arrivals = self.started.beats.iter().skip(1).map(|beat| beat.after);
        let both: Vec<(u64, u64)> =
            arrivals.zip(&only.samples).map(|(after, sample)| (nanos(after), sample.at_ns)).collect();
        standstills(&both, &stops(occurrences))
    }

    /// Returns only interfaces that packets pass, named by part of the path and interface: `client/eth0`.
    fn on_path(&self, nics: BTreeMap<String, NicActivity>) -> BTreeMap<String, NicActivity> {
        let on_path = nics.into_iter().filter_map(|(name, activity)| {
            let position = network::watched_at(self.via?, &name)?;
            Some((format!("{position}/{name}"), activity))
        });
        on_path.collect()
    }

    /// Returns the disks' activity from the last snapshot in the window to the end of the flushes; empty unless all measured agents
    /// flushed.
    fn flushed(&self) -> BTreeMap<String, DiskActivity> {
        let all = self.measured.iter().all(|ran| ran.outcome.flush_ns.is_some());
        let last = self.started.beats.last().and_then(|beat| beat.snapshot.as_ref());
        let ends = last.zip(self.ended.after.as_ref()).filter(|_| all);
        ends.map(|(from, to)| monitor::delta(from, to, self.started.at).disks).unwrap_or_default()
    }
}

/// Minimum time in nanoseconds that a clock must lose to count as a standstill rather than a late message.
const STOOD_NS: u64 = 50_000_000;
/// Longest time from an interval's end to a guest's stop: a little more than the longest interval of a watch.
const INTERVAL_NS: u64 = 1_100_000_000;

/// Finds periods in which an agent's clock stood still. For each interval's end, `ends` has the host's time of its arrival and the
/// agent's own time. `stops` are the times at which QEMU stopped the guest, where a standstill begins.
///
/// A late message is followed by punctual ones, but time that a clock has lost stays lost. The last message has no successor and may
/// wait for outstanding I/Os, so a loss at its end counts only with a stop.
fn standstills(ends: &[(u64, u64)], stops: &[u64]) -> Vec<Standstill> {
    let mut least = i64::MAX;
    let mut lost: Vec<i64> = Vec::with_capacity(ends.len());
    for (host, own) in ends.iter().rev() {
        least = least.min(host.cast_signed() - own.cast_signed());
        lost.push(least);
    }
    lost.reverse();
    let before = |index: usize| index.checked_sub(1).map_or((0, 0), |last| (ends[last].0, lost[last]));
    let jumps = lost.iter().enumerate().filter_map(|(index, lost)| {
        let (at_ns, lost_before) = before(index);
        let duration_ns = u64::try_from(lost - lost_before).ok().filter(|lost| *lost >= STOOD_NS)?;
        let stop = stops.iter().find(|at| **at >= at_ns && **at <= at_ns + INTERVAL_NS).copied();
        let is_last = index + 1 == ends.len();
        Some(Standstill { at_ns: stop.or((!is_last).then_some(at_ns))?, duration_ns })
    });
    jumps.collect()
}

/// Returns the times at which QEMU reported stopping the guest, in nanoseconds since the window's start.
fn stops(occurrences: &[Occurrence]) -> Vec<u64> {
    let stops = occurrences.iter().filter_map(|one| match &one.what {
        Happened::Observed { source: Source::Qemu, text } if text == "STOP" => Some(one.at_ns),
        _ => None,
    });
    stops.collect()
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the CPU time of this process in nanoseconds. This process only observes; agents make the load.
fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_stands_still_from_when_qemu_stopped_it() {
        let stop = |ms: u64, text: &str| Occurrence {
            at_ns: ms * 1_000_000,
            what: Happened::Observed { source: Source::Qemu, text: text.into() },
        };
        let occurrences = [stop(100, "STOP"), stop(400, "RESUME"), stop(1200, "STOP")];
        assert_eq!(stops(&occurrences), [100_000_000, 1_200_000_000]);
        let all = [(50, 50), (350, 150), (1000, 800), (2200, 1000), (4000, 2800), (6000, 3000), (6200, 3200)];
        assert_eq!(ms(&all, &[100, 1200]), [(100, 200), (1200, 1000), (4000, 1800)]);
    }

    #[test]
    fn a_last_message_that_is_late_tells_of_no_standstill_unless_qemu_stopped_the_guest() {
        let waited = [(252, 250), (501, 500), (752, 750), (2900, 1000)];
        assert_eq!(ms(&waited, &[]), [], "it waited for what had not returned");
        assert_eq!(ms(&waited, &[800]), [(800, 1898)]);
    }

    /// Returns the standstills for these ends of intervals and stops. All times are in milliseconds.
    fn ms(ends: &[(u64, u64)], stops: &[u64]) -> Vec<(u64, u64)> {
        let ends: Vec<(u64, u64)> =
            ends.iter().map(|(host, own)| (host * 1_000_000, own * 1_000_000)).collect();
        let stops: Vec<u64> = stops.iter().map(|at| at * 1_000_000).collect();
        let found = standstills(&ends, &stops);
        found.iter().map(|one| (one.at_ns / 1_000_000, one.duration_ns / 1_000_000)).collect()
    }

    #[test]
    fn a_clock_that_lost_time_stood_still_and_a_late_message_did_not() {
        assert_eq!(ms(&[(252, 250), (501, 500), (1153, 750), (1180, 1000), (1251, 1250)], &[]), [], "late");
        assert_eq!(ms(&[(252, 250), (501, 500), (3751, 750), (4003, 1000)], &[]), [(501, 3000)]);
        let twice = [(1250, 250), (1500, 500), (3750, 750), (4000, 1000)];
        assert_eq!(ms(&twice, &[]), [(0, 1000), (1500, 2000)]);
        assert_eq!(ms(&[], &[]), []);
    }
}
