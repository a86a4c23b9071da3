//! Merges the results of several agents over the window in which all of them ran.
//!
//! Each agent's samples are placed on the host's clock, starting when the agent's window began. The common window lasts from the latest
//! start to the earliest end. Only whole intervals within the common window count, the same number from each agent.

use std::time::{Duration, Instant};

use iotax_model::record::{Carried, CpuTime, Flow, LoadRelation, Outcome, Sample, Share, Tallies};
use iotax_model::units::Nanos;
use iotax_model::workload::Workload;

/// Returns the sampling interval for several agents: a tenth of the window, from 10 ms to 100 ms, so that little is lost at the ends of the
/// common window.
pub(super) fn fine(workload: &Workload) -> Nanos {
    Nanos((workload.window().0 / 10).clamp(10_000_000, 100_000_000))
}

/// The samples and the outcome of one agent, with the start of its window.
#[derive(Debug, Clone)]
pub(super) struct AgentRun {
    /// The instance's number, such as a guest's, or a server's address; for a neighbour its target's name.
    pub(super) name: String,
    /// The beginning of the agent's window, by the host's clock.
    pub(super) began: Instant,
    pub(super) samples: Vec<Sample>,
    pub(super) outcome: Outcome,
}

/// The merged results of all agents.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) outcome: Outcome,
    /// The merged sampling intervals of the common window.
    pub(super) samples: Vec<Sample>,
    /// Each agent's share of the I/O; empty with a single agent.
    pub(super) shares: Vec<Share>,
    /// The counted period. It begins at the latest start of any agent's window, and lasts as long as the counted intervals. With a single
    /// agent, the agent's whole window.
    pub(super) window: Window,
}

/// A period of time by the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) begin: Instant,
    pub(super) end: Instant,
}

impl Window {
    /// Returns the period from the latest start of any agent's window to the earliest end; `None` without agents.
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

    /// Returns the agent's name for notes: `guest 2`, or a server's address.
    fn who(&self) -> String {
        if self.name.parse::<u32>().is_ok() { format!("guest {}", self.name) } else { self.name.clone() }
    }

    /// Returns the bytes that servers received and the bytes that this end sent, over all uploads. `None` if a server does not report what
    /// it received, or if nothing was sent.
    fn received_of_sent(&self) -> Option<(u64, u64)> {
        let flows =
            || self.outcome.carried.iter().flat_map(|carried| &carried.flows).filter(|flow| flow.upload);
        let total = |figure: fn(&Flow) -> Option<u64>| flows().map(figure).sum::<Option<u64>>();
        let (received, sent) = (total(|flow| flow.received_bytes)?, total(|flow| flow.sent_bytes)?);
        (sent > 0).then_some((received, sent))
    }

    /// Scales write counts from sent to received data, by the ratio over the whole test. Leaves them unchanged if the ratio is unknown.
    fn as_received(&self, mut tallies: Tallies) -> Tallies {
        if let (Some((received, sent)), Some(write)) = (self.received_of_sent(), &mut tallies.write) {
            write.bytes = part_of(write.bytes, received, sent);
            write.ios = part_of(write.ios, received, sent);
        }
        tallies
    }

    /// Returns the samples of full length within a window. Network samples end when a thread gets a CPU, so their lengths may differ from
    /// the first by up to 20%.
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

/// Returns each agent's samples within a window, cut to the same number for all agents.
fn aligned(all: &[AgentRun], window: Window) -> Vec<Vec<&Sample>> {
    let mut parts: Vec<Vec<&Sample>> = all.iter().map(|ran| ran.within(window)).collect();
    let count = parts.iter().map(Vec::len).min().unwrap_or(0);
    parts.iter_mut().for_each(|part| part.truncate(count));
    parts
}

/// Returns `count * part / whole` without an overflow of the product.
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

/// Merges the results of all agents. The results of a single agent stay unchanged. Fails if no interval is common to all.
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
        (0..first.len()).map(|index| merge_interval(all, &parts, index, duration_ns / first.len() as u64));
    Ok(Merged {
        samples: samples.collect(),
        window: Window { end: common.begin + Duration::from_nanos(duration_ns), ..common },
        outcome: merge_outcomes(all, duration_ns, &shares),
        shares,
    })
}

/// Merges the samples at index `index` of all agents into one.
fn merge_interval(all: &[AgentRun], parts: &[Vec<&Sample>], index: usize, duration_ns: u64) -> Sample {
    let mut merged = Sample::default();
    for (ran, sample) in all.iter().zip(parts.iter().filter_map(|part| part.get(index).copied())) {
        merged.merge(Sample { tallies: ran.as_received(sample.tallies.clone()), ..sample.clone() });
    }
    Sample { at_ns: duration_ns * (index as u64 + 1), duration_ns, ..merged }
}

/// Merges the outcomes of all agents over the common part of their windows; notes name the agent.
fn merge_outcomes(all: &[AgentRun], duration_ns: u64, shares: &[Share]) -> Outcome {
    let parts = all.iter().zip(shares).map(|(ran, share)| (ran.who(), of_window(ran, duration_ns, share)));
    let mut outcome = Outcome::merge(parts, LoadRelation::OwnProcess);
    let lacks_receiver = |ran: &AgentRun| ran.outcome.carried.is_some() && ran.received_of_sent().is_none();
    if outcome.tallies.write.is_some() && all.iter().any(lacks_receiver) {
        outcome.notes.push("a server does not tell what it received: what was sent to it counts".into());
    }
    outcome
}

/// Returns an agent's outcome for the counted part of its window. Scales CPU time and streams, because they cover the agent's whole window,
/// which is slightly longer.
fn of_window(ran: &AgentRun, duration_ns: u64, share: &Share) -> Outcome {
    let mut outcome = ran.outcome.clone();
    let failed: u64 = outcome.errors.iter().map(|error| error.count).sum();
    if failed > 0 {
        outcome.notes.push(format!("{failed} I/Os failed"));
    }
    let part = |ns: u64| part_of(ns, duration_ns, outcome.duration_ns);
    let scaled = |cpu: CpuTime| CpuTime { user_ns: part(cpu.user_ns), system_ns: part(cpu.system_ns) };
    let carried = outcome.carried.map(|carried| Carried {
        flows: carried.flows.iter().map(|flow| flow.scaled(part)).collect(),
        server_cpu: carried.server_cpu.map(scaled),
        ..carried
    });
    // The edges belong to the agent's own window.
    Outcome {
        duration_ns,
        tallies: share.tallies.clone(),
        edges: None,
        cpu: scaled(outcome.cpu),
        carried,
        ..outcome
    }
}

/// Returns the I/O of a neighbour (a competing load) in a window, with notes about its CPU time and about an early end.
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
