//! Results of a fleet: a comparison of hosts, or the sum of the I/O on shared storage.

use std::collections::BTreeMap;

use iotax_model::record::{FleetMode, Measurement, Sample};
use iotax_model::{CellKey, Histogram, Run, RunState, WarningKind};
use schemars::JsonSchema;
use serde::Serialize;

use crate::fairness::{Fairness, jain};
use crate::figures::iops;
use crate::percentile::percentile;
use crate::stats::paired::{Differences, Interval};
use crate::stats::{ALPHA, Estimate, median};

/// Minimum number of hosts among which outliers are searched for.
const FEWEST_HOSTS: usize = 5;
/// The modified z-score beyond which a host is an outlier (B. Iglewicz, D. Hoaglin, How to Detect and Handle Outliers, ASQC Quality Press,
/// 1993).
const FAR: f64 = 3.5;
/// Factor from a deviation, in median absolute deviations, to the modified z-score (same source).
const NORMAL: f64 = 0.6745;

/// Results of all members of a fleet.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetAnswer {
    /// Id of the fleet, the same for all members.
    pub id: String,
    /// The plan's title.
    pub name: String,
    /// Mode of the fleet: each member has its own storage, or all share one.
    pub mode: FleetMode,
    /// The fleet's members, in the order of the runs given to [`fleet`].
    pub members: Vec<FleetRun>,
    /// Comparisons of the hosts, by workload and target; empty if the members share one storage.
    pub hosts: Vec<HostCell>,
    /// Sums over the members, by workload and target; empty if each member has its own storage.
    pub shared: Vec<SharedCell>,
}

/// One member's run and its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRun {
    /// The member's name.
    pub name: String,
    /// Host name of its machine, if known.
    pub machine: Option<String>,
    /// Number of the member's run in the store.
    pub run: i64,
    /// State of the run.
    pub state: RunState,
    /// Number of measurements in the run.
    pub measured: usize,
    /// The reason why the run did not finish, if known.
    pub reason: Option<String>,
}

/// Figures of one workload and target on all hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct HostCell {
    /// The workload's name.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// Figures of each host that measured the workload on the target.
    pub hosts: Vec<HostFigures>,
    /// The median of the hosts' mean latencies, in nanoseconds.
    pub median_ns: f64,
    /// False if fewer than five hosts measured the workload on the target, too few to find outliers.
    pub is_judged: bool,
}

/// One host's figures for a workload on a target.
#[derive(Debug, Clone, PartialEq)]
pub struct HostFigures {
    /// The member's name.
    pub member: String,
    /// Number of rounds in `mean_ns`: those with I/O.
    pub rounds: usize,
    /// Median over the rounds of I/Os per second; absent if unknown in every round.
    pub iops: Option<f64>,
    /// Geometric mean over the rounds of the mean latency, in nanoseconds.
    pub mean_ns: f64,
    /// Student's t interval of `mean_ns` at 95%; absent for fewer than two rounds.
    pub interval: Option<Interval>,
    /// The 99th percentile of all I/Os, in nanoseconds; absent if fewer than ten lie beyond it.
    pub p99_ns: Option<f64>,
    /// `mean_ns` divided by the median of all hosts.
    pub ratio: f64,
    /// Modified z-score of the host among the logarithms of all hosts' `mean_ns`; absent if their median absolute deviation is 0.
    pub score: Option<f64>,
    /// True if the host is an outlier among at least five hosts: its score is beyond 3.5 in either direction or absent, it deviates from
    /// the median by more than the margin, and its interval excludes the median.
    pub is_outlier: bool,
}

/// Figures of one workload and target on members that share storage.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedCell {
    /// The workload's name.
    pub workload: String,
    /// The target's name.
    pub target: String,
    /// Groups of rounds by the members that took part, those with the most rounds first.
    pub groups: Vec<SharedGroup>,
    /// Rounds left out of the sums, each with the reason.
    pub withheld: Vec<WithheldRound>,
}

/// A round that is left out of the sums.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct WithheldRound {
    /// Number of the round.
    pub round: u32,
    /// The reason why the round is left out.
    pub reason: String,
}

/// Sums over the rounds that the same members measured.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedGroup {
    /// Each member's name and share of the I/Os, 0 to 1.
    pub shares: Vec<(String, f64)>,
    /// Number of rounds in the sums.
    pub rounds: usize,
    /// Median over the rounds of the I/Os per second of all members together.
    pub iops: f64,
    /// Student's t interval at 95% of the geometric mean of the rounds' sums of I/Os per second; absent for fewer than two rounds.
    pub iops_interval: Option<Interval>,
    /// Median over the rounds of the bytes per second of all members together.
    pub bytes_per_s: f64,
    /// Jain's index of the members' I/Os per second; absent if no round had I/O.
    pub fairness: Option<Fairness>,
    /// Number of I/Os in the sums.
    pub ios: u64,
    /// Service times of all members and rounds, merged, so that its percentiles are those of all I/Os.
    pub latency: Histogram,
    /// Spread of the members' first I/Os in a round.
    pub skew: StartSkew,
}

/// The spread of the members' first I/Os in a round. If first I/Os are not recorded (network streams, records of older versions of iotax),
/// the starts of the measured windows count instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StartSkew {
    /// 99th percentile of the delay from the first I/O of the round to a member's first I/O, over all members and
    /// rounds, in nanoseconds.
    pub p99_ns: u64,
    /// The longest delay from the first I/O of a round to a member's first I/O, in nanoseconds.
    pub longest_ns: u64,
    /// Error bound of both delays in nanoseconds, from the round trips by which the clocks were compared.
    pub uncertainty_ns: u64,
}

impl SharedGroup {
    /// Returns a percentile of all I/Os in nanoseconds; `None` if fewer than ten lie beyond it.
    #[must_use]
    pub fn percentile(&self, q: f64) -> Option<f64> {
        percentile(&self.latency, q)
    }
}

/// Computes the results of the fleet to which the first fleet run in `runs` belongs; `None` if no run belongs to a fleet.
#[must_use]
pub fn fleet(runs: &[Run]) -> Option<FleetAnswer> {
    let first = runs.iter().find(|run| run.fleet.is_some())?;
    let own = first.fleet.as_ref()?;
    let members: Vec<(&str, &Run)> = runs
        .iter()
        .filter_map(|run| {
            Some((run.fleet.as_ref().filter(|one| one.fleet == own.fleet)?.member.as_str(), run))
        })
        .collect();
    let plan = &first.plan;
    let cells: Vec<CellKey<'_>> = plan
        .workloads
        .iter()
        .flat_map(|work| {
            plan.targets.iter().map(|target| CellKey { workload: &work.name, target: &target.name })
        })
        .collect();
    let is_shared = own.mode == FleetMode::Shared;
    let margin = first.plan.margin.share();
    let hosts = cells.iter().filter(|_| !is_shared).filter_map(|cell| HostCell::of(*cell, &members, margin));
    let shared = cells.iter().filter(|_| is_shared).map(|cell| SharedCell::of(*cell, &members));
    Some(FleetAnswer {
        id: own.fleet.clone(),
        name: first.plan.name.clone(),
        mode: own.mode,
        hosts: hosts.collect(),
        shared: shared.collect(),
        members: members.iter().map(|(name, run)| FleetRun::of(name, run)).collect(),
    })
}

impl FleetRun {
    fn of(name: &str, run: &Run) -> Self {
        let about_all = run.warnings.iter().rev().find(|warning| {
            warning.kind == WarningKind::Incomplete && warning.target.is_none() && warning.workload.is_none()
        });
        let reason =
            about_all.filter(|_| run.state != RunState::Complete).map(|warning| warning.evidence.clone());
        Self {
            name: name.to_owned(),
            machine: run.environment.hostname.clone(),
            run: run.id,
            state: run.state,
            measured: run.measurements.len(),
            reason,
        }
    }
}

impl HostCell {
    /// Compares the hosts on one workload and target; `None` if no host measured the workload on the target.
    fn of(cell: CellKey<'_>, members: &[(&str, &Run)], margin: f64) -> Option<Self> {
        let mut hosts: Vec<HostFigures> =
            members.iter().filter_map(|(name, run)| HostFigures::of(name, run, cell)).collect();
        let logs: Vec<f64> = hosts.iter().map(|host| host.mean_ns.ln()).collect();
        let centre = median(&logs)?;
        let distances: Vec<f64> = logs.iter().map(|log| (log - centre).abs()).collect();
        let spread = median(&distances)?;
        let is_judged = hosts.len() >= FEWEST_HOSTS;
        for host in &mut hosts {
            let distance = host.mean_ns.ln() - centre;
            host.ratio = distance.exp();
            host.score = (spread > 0.0).then(|| NORMAL * distance / spread);
            let is_far = host.score.map_or(distance != 0.0, |score| score.abs() > FAR);
            let is_apart = host.interval.is_some_and(|own| !(own.low..=own.high).contains(&centre.exp()));
            host.is_outlier = is_judged && is_far && is_apart && distance.abs() > margin.ln_1p();
        }
        let (workload, target) = (cell.workload.to_owned(), cell.target.to_owned());
        Some(Self { workload, target, hosts, median_ns: centre.exp(), is_judged })
    }
}

impl HostFigures {
    fn of(name: &str, run: &Run, cell: CellKey<'_>) -> Option<Self> {
        let all: Vec<&Measurement> = run.of_cell(cell).collect();
        let mean = |m: &&Measurement| m.outcome.tallies.latency().mean().filter(|mean| *mean > 0.0);
        let logs: Vec<f64> = all.iter().filter_map(mean).map(f64::ln).collect();
        let rounds = logs.len();
        let logs = Differences::new(logs)?;
        let mut latency = Histogram::new();
        all.iter().for_each(|m| latency.merge(&m.outcome.tallies.latency()));
        Some(Self {
            member: name.to_owned(),
            rounds,
            iops: median(&all.iter().filter_map(|m| iops(m)).collect::<Vec<_>>()),
            mean_ns: logs.mean().exp(),
            interval: logs.interval(ALPHA).map(|interval| interval.map(f64::exp)),
            p99_ns: percentile(&latency, 0.99),
            ratio: 1.0,
            score: None,
            is_outlier: false,
        })
    }
}

/// The part of one member's round that counts toward the sums.
struct Counted {
    member: usize,
    ios: u64,
    bytes: u64,
    seconds: f64,
    latency: Histogram,
    /// Time of the member's first I/O relative to the agreed start, in nanoseconds.
    began_ns: i64,
    uncertainty_ns: u64,
}

impl SharedCell {
    fn of(cell: CellKey<'_>, members: &[(&str, &Run)]) -> Self {
        let measured: Vec<BTreeMap<u32, &Measurement>> =
            members.iter().map(|(_, run)| run.measurements.iter().map(|m| (m.order, m)).collect()).collect();
        let mut steps: Vec<u32> = measured.iter().flat_map(|own| own.keys().copied()).collect();
        steps.sort_unstable();
        steps.dedup();
        let mut withheld = Vec::new();
        let mut groups: BTreeMap<Vec<usize>, Vec<Vec<Counted>>> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            let Some(one) = measured.iter().find_map(|own| own.get(step)) else { continue };
            if one.cell() != cell {
                continue;
            }
            // A member that measured neither this step nor the one before had already left.
            let was_there = |own: &BTreeMap<u32, &Measurement>| {
                own.contains_key(step)
                    || at.checked_sub(1).is_none_or(|before| own.contains_key(&steps[before]))
            };
            let there: Vec<usize> =
                (0..members.len()).filter(|member| was_there(&measured[*member])).collect();
            match counted(&there, members, &measured, *step) {
                Ok(round) => groups.entry(there).or_default().push(round),
                Err(reason) => withheld.push(WithheldRound { round: one.round, reason }),
            }
        }
        let mut groups: Vec<SharedGroup> =
            groups.into_values().map(|rounds| SharedGroup::of(members, &rounds)).collect();
        groups.sort_by_key(|group| std::cmp::Reverse((group.rounds, group.shares.len())));
        withheld.sort_by_key(|round| round.round);
        let (workload, target) = (cell.workload.to_owned(), cell.target.to_owned());
        Self { workload, target, groups, withheld }
    }
}

/// Cuts one round to the window that all members share: each member's whole intervals within it. Fails with the reason if a member did not
/// measure the round, if its start is unknown, or if it has no whole interval in that window.
fn counted(
    there: &[usize],
    members: &[(&str, &Run)],
    measured: &[BTreeMap<u32, &Measurement>],
    step: u32,
) -> Result<Vec<Counted>, String> {
    let mut all = Vec::with_capacity(there.len());
    for member in there {
        let name = members[*member].0;
        let m = measured[*member].get(&step).ok_or_else(|| format!("{name} did not measure it"))?;
        let start = m.fleet.ok_or_else(|| format!("it is not known when {name} began"))?;
        all.push((*member, *m, start));
    }
    let end = |m: &Measurement| m.samples.last().map_or(0, |sample| sample.at_ns);
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let from = all.iter().map(|(_, _, start)| start.late_ns).max().unwrap_or(0);
    let to = all.iter().map(|(_, m, start)| start.late_ns.saturating_add(signed(end(m)))).min().unwrap_or(0);
    let counted: Vec<Counted> = all
        .into_iter()
        .map(|(member, m, start)| {
            let is_within = |sample: &&Sample| {
                let ends = start.late_ns.saturating_add(signed(sample.at_ns));
                ends <= to && ends.saturating_sub(signed(sample.duration_ns)) >= from
            };
            let mut counted = Counted {
                member,
                ios: 0,
                bytes: 0,
                seconds: 0.0,
                latency: Histogram::new(),
                began_ns: start.late_ns.saturating_add(signed(m.outcome.first_io_ns.unwrap_or(0))),
                uncertainty_ns: start.uncertainty_ns,
            };
            for sample in m.whole_samples().filter(is_within) {
                counted.ios += sample.tallies.ios();
                counted.bytes += sample.tallies.bytes();
                counted.seconds += sample.duration_ns as f64 / 1e9;
                counted.latency.merge(&sample.tallies.latency());
            }
            counted
        })
        .collect();
    match counted.iter().find(|one| one.seconds <= 0.0) {
        Some(none) => {
            Err(format!("{} has no whole interval in the window that all share", members[none.member].0))
        }
        None => Ok(counted),
    }
}

impl SharedGroup {
    fn of(members: &[(&str, &Run)], rounds: &[Vec<Counted>]) -> Self {
        let sums = |of: fn(&Counted) -> u64| -> Vec<f64> {
            rounds.iter().map(|round| round.iter().map(|one| of(one) as f64 / one.seconds).sum()).collect()
        };
        let iops = sums(|one| one.ios);
        let even = rounds.iter().filter_map(|round| {
            jain(&round.iter().map(|one| one.ios as f64 / one.seconds).collect::<Vec<_>>())
        });
        let mut got: BTreeMap<usize, f64> = BTreeMap::new();
        let mut latency = Histogram::new();
        for one in rounds.iter().flatten() {
            *got.entry(one.member).or_default() += one.ios as f64 / one.seconds;
            latency.merge(&one.latency);
        }
        let all: f64 = got.values().sum();
        let least = 1.0 / got.len().max(1) as f64;
        let share = |rate: f64| if all > 0.0 { rate / all } else { 0.0 };
        Self {
            shares: got.iter().map(|(member, rate)| (members[*member].0.to_owned(), share(*rate))).collect(),
            rounds: rounds.len(),
            iops: median(&iops).unwrap_or_default(),
            iops_interval: Differences::new(iops.iter().map(|sum| sum.ln()).collect())
                .and_then(|logs| logs.interval(ALPHA))
                .map(|interval| interval.map(f64::exp)),
            bytes_per_s: median(&sums(|one| one.bytes)).unwrap_or_default(),
            fairness: Fairness::over(even.collect(), least),
            ios: rounds.iter().flatten().map(|one| one.ios).sum(),
            latency,
            skew: StartSkew::of(rounds),
        }
    }
}

impl StartSkew {
    fn of(rounds: &[Vec<Counted>]) -> Self {
        let mut distances: Vec<u64> = rounds
            .iter()
            .flat_map(|round| {
                let first = round.iter().map(|one| one.began_ns).min().unwrap_or(0);
                round.iter().map(move |one| one.began_ns.abs_diff(first))
            })
            .collect();
        distances.sort_unstable();
        let index = (distances.len() * 99).div_ceil(100).saturating_sub(1);
        // A delay compares two members' clocks, so their error bounds add up.
        let uncertainty_ns = rounds
            .iter()
            .map(|round| {
                let mut bounds: Vec<u64> = round.iter().map(|one| one.uncertainty_ns).collect();
                bounds.sort_unstable();
                bounds.iter().rev().take(2).sum()
            })
            .max();
        Self {
            p99_ns: distances.get(index).copied().unwrap_or(0),
            longest_ns: distances.last().copied().unwrap_or(0),
            uncertainty_ns: uncertainty_ns.unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests;
