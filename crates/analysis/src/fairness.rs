//! Fairness between concurrent guests or jobs, and the load of a noisy neighbour.

use iotax_model::plan::Neighbour;
use iotax_model::record::{Measurement, Share, Tallies};
use iotax_model::{Histogram, TargetSpec};
use schemars::JsonSchema;
use serde::Serialize;

use crate::figures::{done, is_stream};
use crate::metric::Metric;
use crate::percentile::percentile;
use crate::stats::Estimate;
use crate::stats::paired::{Differences, Interval};
use crate::stats::{ALPHA, median};

/// The kind of members that share a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberKind {
    /// Guests with the same work, or servers of the same work.
    Guests,
    /// Concurrent jobs. Their work differs, so equal service is not expected.
    Jobs,
}

/// I/O rates of a target's concurrent guests or jobs on one workload, over all rounds, and the fairness between them.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFairness {
    /// Kind of the members: guests or jobs.
    pub of: MemberKind,
    /// The guests or jobs, in the order in which they were recorded.
    pub members: Vec<Contender>,
    /// Fairness between guests by I/Os per second, or by bytes per second for streams; absent for jobs, and if it is unknown in every
    /// round.
    pub fairness: Option<Fairness>,
}

/// One guest, server or job that competes for service.
#[derive(Debug, Clone, PartialEq)]
pub struct Contender {
    /// Name of the member: `1`, `2`, ... for guests, else the name of the job or server.
    pub name: String,
    /// I/Os per second: median of the rounds; absent if no round has a known duration.
    pub iops: Option<f64>,
    /// Bytes per second: median of the rounds; absent if no round has a known duration.
    pub bytes_per_s: Option<f64>,
    /// Service times of all rounds in nanoseconds: reads, writes, trims and metadata operations together.
    pub latency: Histogram,
}

impl Contender {
    /// Returns a percentile of the pooled service times in nanoseconds; `None` if fewer than ten values lie beyond it.
    #[must_use]
    pub fn percentile(&self, q: f64) -> Option<f64> {
        percentile(&self.latency, q)
    }
}

/// Jain's fairness index over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Fairness {
    /// Mean of the index over the rounds, from 1/n (one member got everything) to 1 (all got the same).
    pub mean: f64,
    /// Student's t interval of the mean at 95%, limited to the index's range; absent for fewer than two rounds.
    #[serde(flatten)]
    pub interval: Option<Interval>,
}

impl Fairness {
    /// Averages Jain's index over the rounds. Cuts the confidence interval off at `least`, the smallest possible index, and at 1. `None` if
    /// no round has an index.
    pub(super) fn over(indexes: Vec<f64>, least: f64) -> Option<Self> {
        let found = Differences::new(indexes)?;
        let interval = found.interval(ALPHA).map(|i| i.map(|end| end.clamp(least, 1.0)));
        Some(Self { mean: found.mean(), interval })
    }
}

/// The load of a noisy neighbour while a target was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct NeighbourLoad {
    /// The neighbour's name.
    pub name: String,
    /// I/Os per second: median of the rounds; absent if no round has a known duration.
    pub iops: Option<f64>,
    /// Bytes per second: median of the rounds; absent if no round has a known duration.
    pub bytes_per_s: Option<f64>,
    /// The combined throughput; absent unless both the target and the neighbour carried streams.
    pub together: Option<CombinedThroughput>,
}

/// Combined throughput of a target's streams and its neighbour's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CombinedThroughput {
    /// Median over the rounds of the bytes per second of target and neighbour together.
    pub bytes_per_s: f64,
    /// Median over the rounds of the neighbour's share of these bytes, 0 to 1.
    pub share: f64,
    /// Fairness between target and neighbour, by bytes per second; absent if it is unknown in every round.
    pub fairness: Option<Fairness>,
}

/// Computes Jain's fairness index: the square of the sum over n times the sum of squares. `None` if all values are 0.
/// See R. Jain, D. Chiu, W. Hawe, A Quantitative Measure of Fairness and Discrimination for Resource Allocation in
/// Shared Computer Systems, DEC-TR-301, 1984.
#[must_use]
pub fn jain(got: &[f64]) -> Option<f64> {
    let sum: f64 = got.iter().sum();
    let squares: f64 = got.iter().map(|x| x * x).sum();
    // Rounding errors may push the index slightly above 1.
    (squares > 0.0).then(|| (sum * sum / (got.len() as f64 * squares)).min(1.0))
}

/// Computes Jain's index of one measurement's guests, by I/Os per second, or by bytes per second for streams; `None` for fewer than two
/// guests, if a guest's window has no length, or if no guest did any I/O.
#[must_use]
pub fn fairness(measurement: &Measurement) -> Option<f64> {
    if measurement.shares.len() < 2 {
        return None;
    }
    jain(
        &measurement
            .shares
            .iter()
            .map(|share| rate(share, done(measurement, &share.tallies)))
            .collect::<Option<Vec<_>>>()?,
    )
}

/// Converts a count to a rate per second over a share's window; `None` if the window has no length.
pub(crate) fn rate(share: &Share, count: u64) -> Option<f64> {
    (share.duration_ns > 0).then(|| count as f64 / (share.duration_ns as f64 / 1e9))
}

/// Builds a member from its shares in all rounds: median rates and pooled service times.
fn member<'a>(name: &str, shares: &(impl Iterator<Item = &'a Share> + Clone)) -> Contender {
    let over_rounds = |count: &dyn Fn(&Tallies) -> u64| {
        median(&shares.clone().filter_map(|share| rate(share, count(&share.tallies))).collect::<Vec<_>>())
    };
    let mut all = Tallies::default();
    shares.clone().for_each(|share| all.merge(&share.tallies));
    Contender {
        name: name.into(),
        iops: over_rounds(&Tallies::ios),
        bytes_per_s: over_rounds(&Tallies::bytes),
        latency: all.latency(),
    }
}

impl GroupFairness {
    /// Computes the rates of the members and the fairness between them over all rounds of a workload on a target; `None` if no measurement
    /// had several members.
    pub(super) fn new(of: MemberKind, measurements: &[&Measurement]) -> Option<Self> {
        let shares = measurements.iter().flat_map(|m| match of {
            MemberKind::Guests => &m.shares,
            MemberKind::Jobs => &m.outcome.jobs,
        });
        let mut names: Vec<&str> = Vec::new();
        for share in shares.clone() {
            if !names.contains(&share.name.as_str()) {
                names.push(&share.name);
            }
        }
        if names.is_empty() {
            return None;
        }
        let least = 1.0 / names.len() as f64;
        let evenly = measurements.iter().filter(|_| of == MemberKind::Guests).filter_map(|m| fairness(m));
        let fairness = Fairness::over(evenly.collect(), least);
        let members =
            names.iter().map(|name| member(name, &shares.clone().filter(|share| share.name == *name)));
        Some(Self { of, members: members.collect(), fairness })
    }
}

impl GroupFairness {
    /// Returns `job`, `guest` or `server`. Members that are named by numbers are guests.
    #[must_use]
    pub fn member_word(&self) -> &'static str {
        let numbered = self.members.iter().all(|member| member.name.parse::<u32>().is_ok());
        match self.of {
            MemberKind::Jobs => "job",
            MemberKind::Guests if numbered => "guest",
            MemberKind::Guests => "server",
        }
    }
}

impl NeighbourLoad {
    /// Computes the load of a noisy neighbour over all rounds; `None` if no neighbour was recorded.
    pub fn of(neighbours: &[Neighbour], measurements: &[&Measurement]) -> Option<Self> {
        let shares = measurements.iter().filter_map(|m| m.neighbour.as_ref());
        let Contender { name, iops, bytes_per_s, .. } = member(&shares.clone().next()?.name, &shares);
        let own = neighbours.iter().find(|neighbour| neighbour.target.name == name);
        let streams = own.and_then(|own| own.workload.kind.traffic()).is_some_and(|net| !net.test.is_rtt());
        let together = if streams { CombinedThroughput::of(measurements) } else { None };
        Some(Self { name, iops, bytes_per_s, together })
    }
}

impl CombinedThroughput {
    /// Computes the combined throughput over all rounds; `None` if no measurement carried streams next to a neighbour's.
    fn of(measurements: &[&Measurement]) -> Option<Self> {
        let both = |m: &&Measurement| {
            let share = m.neighbour.as_ref().filter(|_| is_stream(m))?;
            let got = [Metric::BYTES_PER_S.value(m)?, rate(share, share.tallies.bytes())?];
            (got[0] + got[1] > 0.0).then_some(got)
        };
        let both: Vec<[f64; 2]> = measurements.iter().filter_map(both).collect();
        let over_rounds = |of: fn(&[f64; 2]) -> f64| median(&both.iter().map(of).collect::<Vec<_>>());
        Some(Self {
            bytes_per_s: over_rounds(|[ours, theirs]| ours + theirs)?,
            share: over_rounds(|[ours, theirs]| theirs / (ours + theirs))?,
            fairness: Fairness::over(both.iter().filter_map(|got| jain(got)).collect(), 0.5),
        })
    }
}

/// Groups targets that differ only in their number of guests. Each group lists the number of guests and the name of each target, ascending,
/// and has at least two targets.
#[must_use]
pub fn by_count(targets: &[TargetSpec]) -> Vec<Vec<(u32, &str)>> {
    let apart_from_count = |target: &TargetSpec| {
        let mut one = TargetSpec { name: String::new(), ..target.clone() };
        if let Some(guest) = one.stack.find_mut::<iotax_model::target::GuestSpec>() {
            guest.count = 1;
        }
        one
    };
    let mut groups: Vec<(TargetSpec, Vec<(u32, &str)>)> = Vec::new();
    for target in targets {
        let Some(guest) = &target.guest() else { continue };
        let (same, entry) = (apart_from_count(target), (guest.count, target.name.as_str()));
        match groups.iter_mut().find(|(known, _)| *known == same) {
            Some((_, group)) if group.iter().all(|(count, _)| *count != guest.count) => group.push(entry),
            Some(_) => {}
            None => groups.push((same, vec![entry])),
        }
    }
    let mut found: Vec<_> =
        groups.into_iter().map(|(_, group)| group).filter(|group| group.len() > 1).collect();
    found.iter_mut().for_each(|group| group.sort_unstable());
    found
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn the_index_is_as_the_paper_has_it() {
        for (got, index) in [
            (&[5.0, 5.0, 5.0, 5.0][..], 1.0),
            (&[8.0, 0.0, 0.0, 0.0], 0.25),
            // 20% of the users get all, evenly: the index is 0.2.
            (&[3.0, 0.0, 0.0, 0.0, 0.0], 0.2),
            (&[1.0, 2.0, 3.0], 36.0 / 42.0),
        ] {
            assert!((jain(got).expect("something") - index).abs() < 1e-12, "{got:?}");
        }
        assert_eq!((jain(&[]), jain(&[0.0, 0.0])), (None, None));
    }
}
