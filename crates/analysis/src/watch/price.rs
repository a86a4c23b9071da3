//! The cost of an event: the load during the event compared with the same seconds of windows without it, round by round.
//!
//! The compared seconds are those of the event's command or operation, at least one second. They do not depend on the event's effect:
//! seconds chosen because an effect was seen would show a cost even in pure noise.

use iotax_model::plan::{Action, Operation};
use iotax_model::record::{Measurement, Sample};
use iotax_model::{CellKey, Histogram};

use super::clock::HostClock;
use super::{Episode, EventEffect, RecoveryTime};
use crate::percentile::percentile;
use crate::stats::paired::{Differences, Interval};
use crate::stats::{ALPHA, Estimate, median};
use iotax_model::Run;

/// Shortest span that is compared with the control, in nanoseconds; shorter events are extended to it.
pub const SHORTEST_NS: u64 = 1_000_000_000;

/// The cost of an event for one load on one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Price<'a> {
    /// The target's name.
    pub target: &'a str,
    /// The workload's name.
    pub workload: &'a str,
    /// The event's name.
    pub event: &'a str,
    /// Number of rounds with a control in which the event succeeded and was observed to its end; with 0, all other figures but `took_ns`
    /// are unknown.
    pub rounds: usize,
    /// Median duration of the event's command or operation where it succeeded, in nanoseconds; absent if it did in no round.
    pub took_ns: Option<f64>,
    /// Median time to recovery in nanoseconds; absent if any recovery is unknown or did not end.
    pub recovery_ns: Option<f64>,
    /// Median over the rounds of the longest gap, without and with the event, in nanoseconds; 0 for no gap, absent if unknown in any round.
    pub gap_ns: Option<(f64, f64)>,
    /// Completed I/Os per second, without and with the event; absent if unknown in any round.
    pub iops: Option<FigureChange>,
    /// Mean response time in nanoseconds, without and with the event; absent if unknown in any round.
    pub mean: Option<FigureChange>,
    /// 99th percentile of response times in nanoseconds, without and with the event; absent if unknown in any round.
    pub p99: Option<FigureChange>,
    /// The writes after a snapshot; absent for other events, and if less than a second of them was observed in any round.
    pub first_writes: Option<FirstWrites>,
}

/// The writes from the end of a snapshot to the next event or the end of the window. The first write to each block of a disk copies it into
/// the overlay and is slower than later ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FirstWrites {
    /// Mean response time of the writes in nanoseconds, without and with the snapshot.
    pub mean: FigureChange,
    /// Length of the compared span in nanoseconds: the shortest over the rounds.
    pub span_ns: u64,
    /// Time after the snapshot in which the writes of every second were slower, by the 95% interval over the rounds, in nanoseconds: 0 if those
    /// of the first second are not decided. The slowdown lasts beyond the span if no whole second of it is left.
    pub slower_ns: u64,
}

impl FirstWrites {
    fn of(pairs: &[Pair<'_>]) -> Option<Self> {
        let span_ns = pairs.iter().map(Pair::quiet_ns).min()?;
        let change = |from_ns, to_ns| {
            let both: Option<Vec<(f64, f64)>> =
                pairs.iter().map(|pair| pair.writes(from_ns, to_ns)).collect();
            FigureChange::of(&both?)
        };
        let is_slower = |second: &u64| {
            change(second * SHORTEST_NS, (second + 1) * SHORTEST_NS)
                .and_then(|change| change.interval)
                .is_some_and(|interval| interval.low > 1.0)
        };
        let slower = (0..span_ns / SHORTEST_NS).take_while(is_slower).count() as u64;
        (span_ns >= SHORTEST_NS)
            .then(|| Some(Self { mean: change(0, span_ns)?, span_ns, slower_ns: slower * SHORTEST_NS }))?
    }

    /// Returns whether the writes were slower until the end of the compared span.
    #[must_use]
    pub const fn outlasts(&self) -> bool {
        self.slower_ns + SHORTEST_NS > self.span_ns
    }
}

/// A figure without and with an event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FigureChange {
    /// Geometric mean over the controls: I/Os per second, or nanoseconds.
    pub without: f64,
    /// Geometric mean over the windows with the event, in the unit of `without`.
    pub with: f64,
    /// 95% interval of the ratio, Student's t on its logarithm over the rounds; absent for a single round.
    pub interval: Option<Interval>,
}

impl FigureChange {
    fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let ratio = Differences::of_log_ratios(pairs)?;
        let mean = |of: fn(&(f64, f64)) -> f64| {
            Some(Differences::new(pairs.iter().map(|pair| of(pair).ln()).collect())?.mean().exp())
        };
        Some(Self {
            without: mean(|pair| pair.1)?,
            with: mean(|pair| pair.0)?,
            interval: ratio.interval(ALPHA).map(|interval| interval.map(f64::exp)),
        })
    }

    /// Returns the ratio of the figure with the event to the figure without.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.with / self.without
    }

    /// Returns whether the interval of the ratio excludes 1.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.interval.is_some_and(|interval| interval.low > 1.0 || interval.high < 1.0)
    }
}

/// Computes the costs of a run's events, by target, workload and event. Empty if the watch has no control (a workload that runs without
/// events).
#[must_use]
pub fn prices<'a>(run: &'a Run, episodes: &[Episode<'a>]) -> Vec<Price<'a>> {
    let Some(watch) = run.plan.watch().filter(|watch| watch.control.is_some()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for target in &run.plan.targets {
        for workload in run.plan.workloads.iter().filter(|workload| !watch.is_control(&workload.name)) {
            let cell = CellKey { workload: &workload.name, target: &target.name };
            let of = |episode: &&Episode<'_>| episode.measurement.cell() == cell;
            let ours: Vec<&Episode<'_>> = episodes.iter().filter(of).collect();
            for (_, event) in watch.scheduled(workload.runtime) {
                let pairs: Vec<Pair<'_>> = ours
                    .iter()
                    .filter_map(|episode| {
                        let control = episodes.iter().find(|other| {
                            let (one, other) = (episode.measurement, other.measurement);
                            one.target == other.target
                                && one.round == other.round
                                && watch.is_control(&other.workload)
                        })?;
                        let effect = episode.effects.iter().find(|effect| effect.name == event.name)?;
                        (effect.failure.is_none() && effect.unseen_ns == 0).then_some(Pair {
                            episode,
                            effect,
                            control,
                        })
                    })
                    .collect();
                let effects = || ours.iter().flat_map(|episode| &episode.effects);
                let mut of_event = effects().filter(|effect| effect.name == event.name).peekable();
                if of_event.peek().is_some() {
                    let done = of_event.filter(|effect| effect.failure.is_none());
                    let took: Vec<f64> =
                        done.filter_map(|effect| effect.duration_ns).map(|ns| ns as f64).collect();
                    let is_snapshot = event.action == Action::Operation(Operation::Snapshot);
                    let first_writes = is_snapshot.then(|| FirstWrites::of(&pairs)).flatten();
                    let price = price(&target.name, &workload.name, &event.name, &pairs, median(&took));
                    all.push(Price { first_writes, ..price });
                }
            }
        }
    }
    all
}

/// An event in one round, and the control of the same round, which is a window without events.
struct Pair<'a> {
    episode: &'a Episode<'a>,
    effect: &'a EventEffect<'a>,
    control: &'a Episode<'a>,
}

impl Pair<'_> {
    /// Returns a figure over the event's seconds, in the window with the event and in the control; `None` if one of the two is unknown or
    /// not positive.
    fn both(&self, figure: impl Fn(&Seconds) -> Option<f64>) -> Option<(f64, f64)> {
        let of = |episode: &Episode<'_>| figure(&Seconds::of(episode.measurement, span(self.effect)));
        let pair = (of(self.episode)?, of(self.control)?);
        (pair.0 > 0.0 && pair.1 > 0.0).then_some(pair)
    }

    /// Returns the end of the event's operation, in nanoseconds from the start of the window.
    fn end_ns(&self) -> u64 {
        self.effect.at_ns + self.effect.duration_ns.unwrap_or(0)
    }

    /// Returns the time in nanoseconds from the end of the event's operation to the next event, or to the end of the shorter window.
    fn quiet_ns(&self) -> u64 {
        let later = self.episode.effects.iter().map(|other| other.at_ns).filter(|at| *at > self.effect.at_ns);
        let windows = [self.episode, self.control].map(|episode| episode.measurement.outcome.duration_ns);
        later.chain(windows).min().unwrap_or(0).saturating_sub(self.end_ns())
    }

    /// Returns the mean response time of writes in nanoseconds between two times after the event's operation, in the window with the event and
    /// in the control; `None` without writes in one of the two.
    fn writes(&self, from_ns: u64, to_ns: u64) -> Option<(f64, f64)> {
        let span = (self.end_ns() + from_ns, self.end_ns() + to_ns);
        let of = |episode: &Episode<'_>| Seconds::of(episode.measurement, span).writes.mean();
        Some((of(self.episode)?, of(self.control)?))
    }

    /// Returns the longest gap in the event's seconds, in nanoseconds, in the window with the event and in the control; `None` if one of
    /// the two is unknown.
    fn gaps(&self) -> Option<(f64, f64)> {
        let longest = |episode: &Episode<'_>| longest_gap(episode, span(self.effect)).map(|ns| ns as f64);
        Some((longest(self.episode)?, longest(self.control)?))
    }
}

/// Returns start and end of the event's command, extended to at least one second, in nanoseconds from the start of the window.
pub(super) fn span(effect: &EventEffect<'_>) -> (u64, u64) {
    (effect.at_ns, effect.at_ns + effect.duration_ns.unwrap_or(0).max(SHORTEST_NS))
}

/// Returns the longest gap that overlaps a span, in nanoseconds; 0 for none, `None` if gaps are unknown.
pub(super) fn longest_gap(episode: &Episode<'_>, (begin, end): (u64, u64)) -> Option<u64> {
    let inside = episode.gaps.as_ref()?.iter().filter(|gap| gap.at_ns < end && gap.end_ns() > begin);
    Some(inside.map(|gap| gap.duration_ns).max().unwrap_or(0))
}

/// I/Os and response times during the compared seconds of a window.
pub(super) struct Seconds {
    ios: u64,
    length_ns: u64,
    pub(super) response: Histogram,
    /// Response times of the writes of intervals that begin within the span; in a closed loop their latencies.
    writes: Histogram,
}

impl Seconds {
    /// Sums the intervals that overlap a span, on the host's clock.
    pub(super) fn of(m: &Measurement, (begin, end): (u64, u64)) -> Self {
        let clock = HostClock::of(m);
        let mut all = Self { ios: 0, length_ns: 0, response: Histogram::new(), writes: Histogram::new() };
        let ends = |sample: &Sample| {
            (clock.of_agent(sample.at_ns.saturating_sub(sample.duration_ns)), clock.of_agent(sample.at_ns))
        };
        for sample in &m.samples {
            let (from, to) = ends(sample);
            if from < end && to > begin {
                all.ios += sample.tallies.ios();
                all.length_ns += to - from;
                if let Some(response) = sample.tallies.response() {
                    all.response.merge(&response);
                }
                // A sample that begins before the span may hold the event's own stall.
                if let Some(write) = sample.tallies.write.as_ref().filter(|_| from >= begin) {
                    all.writes.merge(write.response.as_ref().unwrap_or(&write.latency));
                }
            }
        }
        all
    }
}

fn price<'a>(
    target: &'a str,
    workload: &'a str,
    event: &'a str,
    pairs: &[Pair<'_>],
    took_ns: Option<f64>,
) -> Price<'a> {
    let change = |figure: fn(&Seconds) -> Option<f64>| {
        let both: Option<Vec<(f64, f64)>> = pairs.iter().map(|pair| pair.both(figure)).collect();
        FigureChange::of(&both?)
    };
    let recovery = |pair: &Pair<'_>| match pair.effect.recovery {
        RecoveryTime::Unaffected => Some(0.0),
        RecoveryTime::After(ns) => Some(ns as f64),
        RecoveryTime::Unknown(_) | RecoveryTime::NotWithin(_) => None,
    };
    let recoveries: Option<Vec<f64>> = pairs.iter().map(recovery).collect();
    let gaps: Option<Vec<(f64, f64)>> = pairs.iter().map(Pair::gaps).collect();
    let gap = |of: fn(&(f64, f64)) -> f64| upper_median(gaps.as_ref()?.iter().map(of).collect());
    Price {
        target,
        workload,
        event,
        rounds: pairs.len(),
        took_ns,
        recovery_ns: recoveries.and_then(upper_median),
        gap_ns: gap(|pair| pair.1).zip(gap(|pair| pair.0)),
        iops: change(|seconds| Some(seconds.ios as f64 * 1e9 / seconds.length_ns.max(1) as f64)),
        mean: change(|seconds| seconds.response.mean()),
        p99: change(|seconds| percentile(&seconds.response, 0.99)),
        first_writes: None,
    }
}

/// Returns the median; of an even number of values, the higher of the two middle ones. Their mean would not be an
/// observed value if the lower one is 0, which means no gap.
fn upper_median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_and_none_make_no_gap_of_half_the_length() {
        assert_eq!(upper_median(vec![115.2e6, 0.0]), Some(115.2e6));
        assert_eq!(upper_median(vec![0.0, 115.2e6, 0.0]), Some(0.0));
        assert_eq!(upper_median(Vec::new()), None);
    }

    #[test]
    fn a_change_has_an_interval_over_rounds() {
        let change = FigureChange::of(&[(20.0, 10.0), (40.0, 20.0), (10.0, 5.0)]).expect("positive");
        assert!((change.ratio() - 2.0).abs() < 1e-12 && change.is_decided(), "{change:?}");
        assert!((change.without - 10.0).abs() < 1e-9, "{change:?}");
        let noise = FigureChange::of(&[(20.0, 10.0), (10.0, 20.0)]).expect("positive");
        assert!(!noise.is_decided(), "{noise:?}");
        let one = FigureChange::of(&[(20.0, 10.0)]).expect("positive");
        assert_eq!((one.interval, one.is_decided()), (None, false));
        assert_eq!(FigureChange::of(&[]), None);
    }
}
