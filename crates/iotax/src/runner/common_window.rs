//! Merges the results of several agents over the window in which all of them ran.
//!
//! Each agent's samples are placed on the host's clock by the moment at which its window began. The common window reaches from the last
//! beginning to the first end. Only whole intervals within it count, the same number from each agent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use iotax_model::record::{
    Carried, CpuTime, DiskActivity, ErrorCount, Flow, HostActivity, HostCpu, Outcome, PageCache, Pressure,
    Sample, Share, Tallies,
};
use iotax_model::units::Nanos;
use iotax_model::workload::Workload;

/// A short interval of samples, so that little is lost at the ends of a common window.
pub(super) fn fine(workload: &Workload) -> Nanos {
    Nanos((workload.window().0 / 10).clamp(10_000_000, 100_000_000))
}

/// The results of one agent.
#[derive(Debug, Clone)]
pub(super) struct AgentRun {
    /// A guest's number, or a server's address.
    pub(super) name: String,
    /// The beginning of its window, by the host's clock.
    pub(super) began: Instant,
    pub(super) samples: Vec<Sample>,
    pub(super) outcome: Outcome,
}

/// The results of all agents.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) outcome: Outcome,
    /// The intervals that count, merged.
    pub(super) samples: Vec<Sample>,
    /// The share of each agent, if there are several.
    pub(super) shares: Vec<Share>,
    /// The time from the last beginning to the end of what counts.
    pub(super) window: Window,
}

/// A period of the host's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

impl Window {
    /// The time from the last beginning to the first end.
    fn common(all: &[AgentRun]) -> Option<Self> {
        Some(Self {
            begin: all.iter().map(|ran| ran.began).max()?,
            end: all.iter().map(AgentRun::ended).min()?,
        })
    }
}

impl AgentRun {
    fn ended(&self) -> Instant {
        self.began + Duration::from_nanos(self.samples.last().map_or(0, |sample| sample.at_ns))
    }

    /// The guest or server in words.
    fn who(&self) -> String {
        if self.name.parse::<u32>().is_ok() { format!("guest {}", self.name) } else { self.name.clone() }
    }

    /// Bytes received and bytes sent, of this end's uploads; `None` if a server does not report them or nothing was sent.
    fn received_of_sent(&self) -> Option<(u64, u64)> {
        let flows =
            || self.outcome.carried.iter().flat_map(|carried| &carried.flows).filter(|flow| flow.upload);
        let total = |figure: fn(&Flow) -> Option<u64>| flows().map(figure).sum::<Option<u64>>();
        let (received, sent) = (total(|flow| flow.received_bytes)?, total(|flow| flow.sent_bytes)?);
        (sent > 0).then_some((received, sent))
    }

    /// Counts of some of its intervals as received rather than sent, scaled by the ratio over the whole test.
    fn as_received(&self, mut tallies: Tallies) -> Tallies {
        if let (Some((received, sent)), Some(write)) = (self.received_of_sent(), &mut tallies.write) {
            write.bytes = part_of(write.bytes, received, sent);
            write.ios = part_of(write.ios, received, sent);
        }
        tallies
    }

    /// Its intervals of full length that lie wholly in a window. Network intervals end when a thread gets a CPU, so their lengths vary.
    fn within(&self, window: Window) -> Vec<&Sample> {
        let full = self.samples.first().map_or(0, |sample| sample.duration_ns);
        let tolerance = if self.outcome.carried.is_some() { full / 5 } else { 0 };
        let at = |ns| self.began + Duration::from_nanos(ns);
        let whole = |sample: &&Sample| {
            sample.duration_ns.abs_diff(full) <= tolerance
                && at(sample.at_ns - sample.duration_ns) >= window.begin
                && at(sample.at_ns) <= window.end
        };
        self.samples.iter().filter(whole).collect()
    }
}

/// The intervals of each in a window, the same number from each.
fn aligned(all: &[AgentRun], window: Window) -> Vec<Vec<&Sample>> {
    let mut parts: Vec<Vec<&Sample>> = all.iter().map(|ran| ran.within(window)).collect();
    let count = parts.iter().map(Vec::len).min().unwrap_or(0);
    parts.iter_mut().for_each(|part| part.truncate(count));
    parts
}

/// `count * part / whole`.
fn part_of(count: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(u128::from(count) * u128::from(part) / u128::from(whole.max(1))).unwrap_or(count)
}

fn length_ns(samples: &[&Sample]) -> u64 {
    samples.iter().map(|sample| sample.duration_ns).sum()
}

fn sum<'a>(samples: impl Iterator<Item = &'a Sample>) -> Tallies {
    samples.fold(Tallies::default(), |mut all, sample| {
        all.merge(&sample.tallies);
        all
    })
}

/// Merges the results of all agents. Those of a single one stay unchanged.
pub(super) fn merge(all: &[AgentRun]) -> anyhow::Result<Merged> {
    if let [only] = all {
        let window = Window { begin: only.began, end: only.ended() };
        let AgentRun { samples, outcome, .. } = only.clone();
        return Ok(Merged { outcome, samples, shares: Vec::new(), window });
    }
    let common = Window::common(all);
    let parts = common.map(|window| aligned(all, window)).unwrap_or_default();
    let (Some(common), Some(first @ [_, ..])) = (common, parts.first().map(Vec::as_slice)) else {
        let begins = || all.iter().map(|ran| ran.began);
        let apart = begins().max().zip(begins().min()).map_or(Duration::ZERO, |(last, first)| last - first);
        anyhow::bail!(
            "there is no interval in which all ran: they began {} ms apart; give a longer runtime",
            apart.as_millis()
        );
    };
    // Equal for storage, nearly equal for networks.
    let duration_ns = parts.iter().map(|part| length_ns(part)).sum::<u64>() / parts.len() as u64;
    let shares: Vec<Share> = all
        .iter()
        .zip(&parts)
        .map(|(ran, part)| Share {
            name: ran.name.clone(),
            duration_ns: length_ns(part),
            tallies: ran.as_received(sum(part.iter().copied())),
        })
        .collect();
    let samples =
        (0..first.len()).map(|place| merge_interval(all, &parts, place, duration_ns / first.len() as u64));
    Ok(Merged {
        samples: samples.collect(),
        window: Window { end: common.begin + Duration::from_nanos(duration_ns), ..common },
        outcome: merge_outcomes(all, duration_ns, &shares),
        shares,
    })
}

/// One interval of all agents, by its index among those that count.
fn merge_interval(all: &[AgentRun], parts: &[Vec<&Sample>], place: usize, duration_ns: u64) -> Sample {
    let mut merged = Sample::default();
    for (ran, sample) in all.iter().zip(parts.iter().filter_map(|part| part.get(place).copied())) {
        merged.merge(Sample { tallies: ran.as_received(sample.tallies.clone()), ..sample.clone() });
    }
    Sample { at_ns: duration_ns * (place as u64 + 1), duration_ns, ..merged }
}

/// One outcome from those of all agents; its notes name the agent.
fn merge_outcomes(all: &[AgentRun], duration_ns: u64, shares: &[Share]) -> Outcome {
    let mut outcome = Outcome { duration_ns, ..Outcome::default() };
    for ran in all {
        let (one, who) = (&ran.outcome, ran.who());
        outcome.ramp_ios += one.ramp_ios;
        // CPU time covers the agent's own window, which is a little longer than what counts.
        let part = |ns: u64| part_of(ns, duration_ns, one.duration_ns);
        outcome.cpu.user_ns += part(one.cpu.user_ns);
        outcome.cpu.system_ns += part(one.cpu.system_ns);
        outcome.notes.extend(one.notes.iter().map(|note| format!("{who}: {note}")));
        let failed: u64 = one.errors.iter().map(|error| error.count).sum();
        if failed > 0 {
            outcome.notes.push(format!("{who}: {failed} I/Os failed"));
        }
        one.errors.iter().for_each(|error| ErrorCount::add(&mut outcome.errors, error));
        outcome.ioengine = outcome.ioengine.or(one.ioengine);
        outcome.flush_ns = outcome.flush_ns.max(one.flush_ns);
        outcome.first_io_ns = outcome.first_io_ns.into_iter().chain(one.first_io_ns).min();
        outcome.pacing = match (outcome.pacing, one.pacing) {
            (Some(sum), Some(pacing)) => Some(sum.merge(pacing)),
            (sum, pacing) => sum.or(pacing),
        };
        one.jobs.iter().for_each(|job| add_job(&mut outcome.jobs, job));
        if let Some(carried) = &one.carried {
            let server_cpu = carried.server_cpu;
            let carried = Carried {
                flows: carried.flows.iter().map(|flow| flow.scaled(part)).collect(),
                server_cpu: server_cpu
                    .map(|cpu| CpuTime { user_ns: part(cpu.user_ns), system_ns: part(cpu.system_ns) }),
                ..carried.clone()
            };
            match &mut outcome.carried {
                Some(all) => all.merge(&carried),
                none => *none = Some(carried),
            }
        }
        outcome.stop = outcome.stop.or(one.stop);
        if let Some(findings) = &one.verify {
            outcome.verify.get_or_insert_default().merge(findings.clone());
        }
    }
    shares.iter().for_each(|share| outcome.tallies.merge(&share.tallies));
    let untold = |ran: &AgentRun| ran.outcome.carried.is_some() && ran.received_of_sent().is_none();
    if outcome.tallies.write.is_some() && all.iter().any(untold) {
        outcome.notes.push("a server does not tell what it received: what was sent to it counts".into());
    }
    if all.iter().any(|ran| ran.outcome.flush_ns.is_none()) {
        outcome.flush_ns = None;
    }
    let cached: Option<Vec<PageCache>> = all.iter().map(|ran| ran.outcome.page_cache).collect();
    outcome.page_cache = cached.and_then(|all| all.into_iter().reduce(PageCache::merge));
    let inside: Option<Vec<&HostActivity>> = all.iter().map(|ran| ran.outcome.inside.as_ref()).collect();
    outcome.inside = inside.map(|machines| added_up(&machines));
    outcome
}

/// Adds a job's results in one guest to those in the others, over the longest of their times.
fn add_job(jobs: &mut Vec<Share>, job: &Share) {
    match jobs.iter_mut().find(|known| known.name == job.name) {
        Some(known) => {
            known.duration_ns = known.duration_ns.max(job.duration_ns);
            known.tallies.merge(&job.tallies);
        }
        None => jobs.push(job.clone()),
    }
}

/// The activity of several machines, each over its own window: times and I/Os summed, shares of time averaged. A figure that one of
/// them lacks is absent.
fn added_up(machines: &[&HostActivity]) -> HostActivity {
    let longest =
        |of: fn(&HostActivity) -> u64| machines.iter().map(|machine| of(machine)).max().unwrap_or(0);
    let cpus: Option<Vec<HostCpu>> = machines.iter().map(|machine| machine.cpu).collect();
    let pressures: Option<Vec<Pressure>> = machines.iter().map(|machine| machine.pressure).collect();
    HostActivity {
        at_ns: longest(|machine| machine.at_ns),
        duration_ns: longest(|machine| machine.duration_ns),
        disks: disks(machines.iter().map(|machine| &machine.disks)),
        cpu: cpus.and_then(|all| all.into_iter().reduce(add_cpu)),
        pressure: pressures.and_then(|all| all.into_iter().reduce(add_pressure)),
        kernel_threads: kernel_threads(machines),
        flushed: disks(machines.iter().map(|machine| &machine.flushed)),
        ..HostActivity::default()
    }
}

fn add_cpu(one: HostCpu, other: HostCpu) -> HostCpu {
    HostCpu {
        user_ns: one.user_ns + other.user_ns,
        system_ns: one.system_ns + other.system_ns,
        irq_ns: one.irq_ns + other.irq_ns,
        iowait_ns: one.iowait_ns.zip(other.iowait_ns).map(|(one, other)| one + other),
        idle_ns: one.idle_ns + other.idle_ns,
        steal_ns: one.steal_ns + other.steal_ns,
        guest_ns: one.guest_ns + other.guest_ns,
    }
}

fn add_pressure(one: Pressure, other: Pressure) -> Pressure {
    Pressure {
        io_some_ns: one.io_some_ns + other.io_some_ns,
        io_full_ns: one.io_full_ns + other.io_full_ns,
        cpu_some_ns: one.cpu_some_ns + other.cpu_some_ns,
        memory_some_ns: one.memory_some_ns + other.memory_some_ns,
    }
}

/// Disk activity by name: the guests of a target name their disks alike.
fn disks<'a>(
    machines: impl ExactSizeIterator<Item = &'a BTreeMap<String, DiskActivity>>,
) -> BTreeMap<String, DiskActivity> {
    let mut all: BTreeMap<String, DiskActivity> = BTreeMap::new();
    let of_all = machines.len() as f64;
    for (name, disk) in machines.flatten() {
        let nothing =
            || DiskActivity { read_wait_ns: Some(0), write_wait_ns: Some(0), ..DiskActivity::default() };
        let add = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let sum = all.entry(name.clone()).or_insert_with(nothing);
        let ios = |disk: &DiskActivity| (disk.reads + disk.writes) as f64;
        let waited = |disk: &DiskActivity| disk.mean_wait_ns.map_or(0.0, |mean| mean * ios(disk));
        let (waited, count) = (waited(sum) + waited(disk), ios(sum) + ios(disk));
        *sum = DiskActivity {
            reads: sum.reads + disk.reads,
            read_bytes: sum.read_bytes + disk.read_bytes,
            read_merges: sum.read_merges + disk.read_merges,
            writes: sum.writes + disk.writes,
            write_bytes: sum.write_bytes + disk.write_bytes,
            write_merges: sum.write_merges + disk.write_merges,
            busy: sum.busy + disk.busy / of_all,
            mean_wait_ns: (count > 0.0).then(|| waited / count),
            read_wait_ns: add(sum.read_wait_ns, disk.read_wait_ns),
            write_wait_ns: add(sum.write_wait_ns, disk.write_wait_ns),
        };
    }
    all
}

fn kernel_threads(machines: &[&HostActivity]) -> BTreeMap<String, CpuTime> {
    let mut all: BTreeMap<String, CpuTime> = BTreeMap::new();
    for (name, time) in machines.iter().flat_map(|machine| &machine.kernel_threads) {
        let sum = all.entry(name.clone()).or_default();
        *sum = CpuTime { user_ns: sum.user_ns + time.user_ns, system_ns: sum.system_ns + time.system_ns };
    }
    all
}

/// A neighbour's share in a window, with notes about it.
pub(super) fn neighbour_share(name: &str, all: &[AgentRun], window: Window) -> (Share, Vec<String>) {
    let parts = aligned(all, window);
    let share = Share {
        name: name.to_owned(),
        duration_ns: parts.first().map_or(0, |part| length_ns(part)),
        tallies: sum(parts.iter().flatten().copied()),
    };
    let mut notes = vec![format!("the host's CPU time contains that of the neighbour {name}")];
    if all.iter().any(|ran| ran.ended() < window.end) {
        notes.push(format!("the neighbour {name} fell silent before the window's end"));
    }
    (share, notes)
}

#[cfg(test)]
mod tests;
