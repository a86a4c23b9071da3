//! Sees the machine at every word of the agents that are measured.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::record::{
    BlockStats, BlockTally, CpuPace, CpuTime, DiskActivity, HostActivity, NicActivity, Outcome, Sample,
};
use iotax_model::target::{LayerKind, NetPath};
use iotax_model::wire::Event;
use iotax_testbed::agent_client::{AgentClient, AgentError};
use iotax_testbed::guest::BlockLayer;
use iotax_testbed::guest::blockstats::{self, BlockCounters};
use iotax_testbed::monitor::kernel::{self, KernelCounters, KernelThreads};
use iotax_testbed::monitor::pace::{self, PaceReading};
use iotax_testbed::monitor::{self, Monitor, MonitorSnapshot};
use iotax_testbed::stack;

use super::common_window::Ran;
use super::network;
use super::start_barrier::{Player, What, Word};
use super::target::{Machine, Target};
use super::{Progress, interrupted, now_ms};

/// What is watched. Players are those that are measured, and after them those that make noise.
pub(super) struct Watch<'a> {
    /// Absent if what is measured is on another machine.
    host: Option<Host>,
    /// QEMU's block layers of those that are measured.
    blocks: Vec<BlockLayer<'a>>,
    /// How many are measured.
    measured: usize,
    runtime_ns: u64,
    players: Vec<Seen>,
    started: Option<Started>,
    ended: Option<Ended>,
}

/// What is read of this machine.
pub(super) struct Host {
    monitor: Monitor,
    kernel: KernelThreads,
    /// By which way packets go, if it is a network that is measured.
    via: Option<NetPath>,
}

/// What one player said.
#[derive(Default)]
struct Seen {
    name: String,
    began: Option<Instant>,
    samples: Vec<Sample>,
    outcome: Option<Result<Outcome, AgentError>>,
}

/// Since all that are measured have been in their window.
struct Started {
    /// The last that began: its intervals give the beat for the monitor.
    lead: usize,
    at: Instant,
    at_ms: u64,
    /// At the beginning and at the end of each of the lead's intervals.
    beats: Vec<Beat>,
    kernel: Option<KernelCounters>,
    pace: Option<PaceReading>,
    /// What this process had used of the CPUs.
    own_ns: u64,
    blocks: Vec<Option<BlockCounters>>,
}

/// The machine at one moment, so long after the beginning.
struct Beat {
    after: Duration,
    snapshot: Option<MonitorSnapshot>,
}

/// When the first of those that are measured came to its window's end.
struct Ended {
    kernel: BTreeMap<String, CpuTime>,
    kernel_ns: Option<u64>,
    pace: Option<CpuPace>,
    /// What this process used of the CPUs until then.
    own_ns: u64,
    /// When the last of them had said everything, and so had flushed what it wrote.
    after: Option<MonitorSnapshot>,
    blocks: Option<BlockStats>,
}

/// What was seen of the host while all that were measured ran.
pub(super) struct View {
    pub(super) started_at_ms: u64,
    pub(super) host_duration_ns: u64,
    /// Absent if what was measured is on another machine.
    pub(super) host: Option<HostActivity>,
    pub(super) host_samples: Vec<HostActivity>,
    pub(super) qemu: Option<BlockStats>,
}

impl Host {
    /// For what these targets stand on and run in.
    pub(super) fn new(targets: Vec<&mut Target>) -> anyhow::Result<Self> {
        let root = Path::new("/");
        let (mut stacks, mut threads, mut ways) = (Vec::new(), Vec::new(), Vec::new());
        for target in targets {
            match &target.way {
                // Beneath a guest are the interfaces where its server is; else the client's are what packets pass.
                Some(way) if way.card().is_some() => ways.push((way.via, way.server_process())),
                Some(way) => ways.push((way.via, target.agent.as_ref().and_then(AgentClient::pid))),
                None => stacks.push(stack::of_path(root, &target.built.path)?),
            }
            let of_guest = target.machine.as_mut().map(Machine::threads).transpose();
            threads.extend(of_guest.with_context(|| format!("the guest of {}", target.spec.name))?);
        }
        let unique = |words: BTreeSet<String>| words.into_iter().collect::<Vec<_>>();
        let disks = unique(stacks.iter().flat_map(|stack| stack.disks.iter().cloned()).collect());
        let layers = stacks.iter().flat_map(|stack| &stack.layers);
        let filesystems = layers.filter(|layer| layer.kind == LayerKind::Filesystem);
        let filesystems = unique(filesystems.map(|layer| layer.name.clone()).collect());
        let mut kernel = KernelThreads::new(root, &disks, &filesystems);
        // The first look is the long one.
        kernel.read();
        let monitor = Monitor::new(root, disks, threads);
        // Of several guests each has a namespace of its own.
        let (monitor, via) = match ways.as_slice() {
            [(via, process)] => (monitor.with_network(root, *process), Some(*via)),
            _ => (monitor, None),
        };
        Ok(Self { monitor, kernel, via })
    }
}

impl<'a> Watch<'a> {
    /// Those that are measured come first among the players.
    pub(super) fn new(
        host: Option<Host>,
        blocks: Vec<BlockLayer<'a>>,
        players: &[Player<'_>],
        runtime_ns: u64,
    ) -> Self {
        Self {
            host,
            blocks,
            measured: players.iter().filter(|player| !player.is_noise).count(),
            runtime_ns,
            players: players
                .iter()
                .map(|player| Seen { name: player.name.clone(), ..Seen::default() })
                .collect(),
            started: None,
            ended: None,
        }
    }

    pub(super) fn see(&mut self, word: Word, progress: &mut dyn Progress) {
        let Word { player, at, what } = word;
        match what {
            What::Event(Event::Measuring) => {
                self.players[player].began = Some(at);
                let all = self.players[..self.measured].iter().all(|seen| seen.began.is_some());
                if player < self.measured && all {
                    self.start(player);
                }
            }
            What::Event(Event::Sample(sample)) => self.sample(player, *sample, progress),
            // Work may end before its time.
            What::Event(Event::Over) if player < self.measured => self.end(),
            What::Ended(outcome) => {
                // Beneath one that failed there may be a QEMU that does not answer.
                let is_whole = outcome.is_ok();
                self.players[player].outcome = Some(*outcome);
                if player < self.measured && is_whole {
                    self.end();
                    self.see_flushed();
                }
            }
            What::Ready | What::Event(_) => {}
        }
    }

    fn start(&mut self, lead: usize) {
        let at = Instant::now();
        let snapshot = self.host.as_mut().map(|host| host.monitor.snapshot());
        // QEMU may take a while to answer on a busy host: the window does not wait for it.
        let own_ns = own_cpu_ns();
        let kernel = self.host.as_mut().map(|host| host.kernel.read());
        let blocks = self.blocks.iter_mut().map(BlockLayer::counters).collect();
        let pace = self.host.as_ref().map(|_| pace::read(Path::new("/")));
        let beats = vec![Beat { after: Duration::ZERO, snapshot }];
        self.started = Some(Started { lead, at, at_ms: now_ms(), beats, kernel, pace, own_ns, blocks });
    }

    fn sample(&mut self, player: usize, sample: Sample, progress: &mut dyn Progress) {
        let is_last = sample.at_ns >= self.runtime_ns;
        if player < self.measured {
            progress.sample(&self.players[player].name, &sample);
        }
        self.players[player].samples.push(sample);
        if player >= self.measured {
            return;
        }
        if let Some(started) = self.started.as_mut().filter(|started| started.lead == player) {
            let after = started.at.elapsed();
            started
                .beats
                .push(Beat { after, snapshot: self.host.as_mut().map(|host| host.monitor.snapshot()) });
            let latest = || self.players[..self.measured].iter().filter_map(|seen| seen.samples.last());
            let rate = |sample: &Sample| sample.tallies.ios() as f64 * 1e9 / sample.duration_ns.max(1) as f64;
            progress.interval(latest().map(rate).sum(), latest().filter_map(|sample| sample.oldest_ns).max());
        }
        if is_last {
            self.end();
        }
    }

    /// The first time it counts.
    fn end(&mut self) {
        if let (Some(started), None) = (&self.started, &self.ended) {
            let blocks = self.blocks.iter_mut().zip(&started.blocks).map(|(layer, before)| {
                let (before, after) = before.as_ref().zip(layer.counters())?;
                blockstats::between(before, &after)
            });
            let blocks: Option<Vec<BlockStats>> = blocks.collect();
            let kernel = started.kernel.as_ref().zip(self.host.as_mut());
            let kernel = kernel.map(|(before, host)| {
                let now = host.kernel.read();
                (kernel::between(before, &now), kernel::total_ns(before, &now))
            });
            let (kernel, kernel_ns) = kernel.unwrap_or_default();
            let pace =
                started.pace.as_ref().and_then(|first| pace::between(first, &pace::read(Path::new("/"))));
            self.ended = Some(Ended {
                kernel,
                kernel_ns,
                pace,
                own_ns: own_cpu_ns().saturating_sub(started.own_ns),
                after: None,
                blocks: blocks.and_then(|all| all.into_iter().reduce(|one, other| added(one, &other))),
            });
        }
    }

    /// The last time it counts.
    fn see_flushed(&mut self) {
        if let (Some(ended), Some(host)) = (&mut self.ended, &mut self.host) {
            ended.after = Some(host.monitor.snapshot());
        }
    }

    /// What all said and what was seen. An error if one of them failed.
    pub(super) fn finish(self) -> anyhow::Result<Watched> {
        let mut measured = Vec::with_capacity(self.players.len());
        for (number, seen) in self.players.into_iter().enumerate() {
            let ended = seen.outcome.context("an agent was never asked")?.map_err(interrupted);
            let outcome = if number < self.measured { ended? } else { ended.context("the neighbour")? };
            let began = seen.began.context("the agent never said that the warm-up was over")?;
            measured.push(Ran { name: seen.name, began, samples: seen.samples, outcome });
        }
        let noise = measured.split_off(self.measured);
        let (started, ended) = self.started.zip(self.ended).context("the measurement never began")?;
        let via = self.host.and_then(|host| host.via);
        Ok(Watched { measured, noise, started, ended, via })
    }
}

/// Everything that was heard and seen in one measurement.
pub(super) struct Watched {
    pub(super) measured: Vec<Ran>,
    pub(super) noise: Vec<Ran>,
    started: Started,
    ended: Ended,
    via: Option<NetPath>,
}

impl Watched {
    /// The host over so many intervals of the lead.
    pub(super) fn view(&self, intervals: usize) -> View {
        let Started { at, at_ms, beats, .. } = &self.started;
        let last = intervals.min(beats.len() - 1);
        let over = |from: usize, to: usize| {
            let (from, to) = beats[from].snapshot.as_ref().zip(beats[to].snapshot.as_ref())?;
            let mut activity = monitor::delta(from, to, *at);
            activity.nics = self.placed(activity.nics);
            Some(activity)
        };
        let whole = over(0, last);
        View {
            started_at_ms: *at_ms,
            host_duration_ns: u64::try_from(beats[last].after.as_nanos()).unwrap_or(u64::MAX),
            host: whole.map(|host| HostActivity {
                kernel_threads: self.ended.kernel.clone(),
                kernel_ns: self.ended.kernel_ns,
                watching_ns: Some(self.ended.own_ns),
                pace: self.ended.pace.clone(),
                flushed: self.flushed(),
                ..host
            }),
            host_samples: (0..last).filter_map(|place| over(place, place + 1)).collect(),
            qemu: self.ended.blocks.clone(),
        }
    }
}

impl Watched {
    /// Interfaces that packets pass, by where they are and their names there.
    fn placed(&self, nics: BTreeMap<String, NicActivity>) -> BTreeMap<String, NicActivity> {
        let placed = nics.into_iter().filter_map(|(name, activity)| {
            let place = network::watched_at(self.via?, &name)?;
            Some((format!("{place}/{name}"), activity))
        });
        placed.collect()
    }

    /// What the disks did from the last beat on, if all that were measured ended in a flush.
    fn flushed(&self) -> BTreeMap<String, DiskActivity> {
        let all = self.measured.iter().all(|ran| ran.outcome.flush_ns.is_some());
        let last = self.started.beats.last().and_then(|beat| beat.snapshot.as_ref());
        let ends = last.zip(self.ended.after.as_ref()).filter(|_| all);
        ends.map(|(from, to)| monitor::delta(from, to, self.started.at).disks).unwrap_or_default()
    }
}

/// CPU time of this process, which does no more than watch: what makes the load is another.
fn own_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}

/// What QEMU's block layers did for two guests.
fn added(one: BlockStats, other: &BlockStats) -> BlockStats {
    BlockStats {
        read: added_tally(one.read, &other.read),
        write: added_tally(one.write, &other.write),
        flush: added_tally(one.flush, &other.flush),
    }
}

/// Guests of one target sort into the same bins; one without I/O has none.
fn added_tally(mut one: BlockTally, other: &BlockTally) -> BlockTally {
    one.ios += other.ios;
    one.bytes += other.bytes;
    one.total_ns += other.total_ns;
    if one.latency.is_empty() {
        one.latency.clone_from(&other.latency);
    } else {
        for ((_, count), (_, more)) in one.latency.iter_mut().zip(&other.latency) {
            *count += more;
        }
    }
    one
}
