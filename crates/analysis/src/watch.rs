//! What events cost while a load was held: gaps, late, failed and lost I/Os, and the time until all was as before.

use iotax_model::plan::{Limit, Requirement, WatchFigure, WatchSpec};
use iotax_model::record::{Blackout, Happened, Measurement, Occurrence, Sample};

use crate::failed::Failed;
use crate::store::Run;

/// Fewer intervals before the first event do not tell what is normal.
const FEWEST: usize = 4;
/// An interval is normal with this share of the rate that the slowest one before the first event had ...
const RATE: f64 = 0.9;
/// ... and a mean response time up to so many times that of the slowest one.
const TIME: f64 = 2.0;
/// It is over when it has been normal for so long.
const HOLDS_NS: u64 = 1_000_000_000;

/// One measurement of a watch.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode<'a> {
    /// The measurement.
    pub measurement: &'a Measurement,
    /// Times without a completed I/O; absent if a worker did not return, or none are recorded.
    pub gaps: Option<&'a [Blackout]>,
    /// I/Os that took longer than the watch's `late`, from when they were due, and those that never returned.
    pub late: u64,
    /// I/Os that failed.
    pub failed: u64,
    /// Blocks that were found not to hold what was acknowledged; absent if nothing was verified.
    pub lost: Option<u64>,
    /// False if figures are lower bounds: a worker did not return, or what was written could not be read back to its end.
    pub is_whole: bool,
    /// In the order of their times.
    pub effects: Vec<Effect<'a>>,
    /// In the order of the plan.
    pub verdicts: Vec<Judged>,
}

/// What followed one event, up to the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect<'a> {
    /// When it happened, from the start of the window.
    pub at_ns: u64,
    /// The event's name.
    pub name: &'a str,
    /// How long its command took.
    pub duration_ns: Option<u64>,
    /// How its command failed.
    pub failure: Option<&'a str>,
    /// The longest gap that ended after it.
    pub gap: Option<Blackout>,
    /// The time until all was as before.
    pub recovery: Recovery,
}

/// The time from an event until rate and response time are as before the first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Too little was seen before the first event.
    Unknown,
    /// They never were otherwise.
    Unaffected,
    /// After so many nanoseconds, to the length of an interval.
    After(u64),
    /// Not in the nanoseconds until the next event or the end.
    NotWithin(u64),
}

/// What became of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// The requirement.
    pub requirement: Requirement,
    /// The figure, in nanoseconds or as a number; absent if unknown. A lower bound where nothing passes.
    pub value: Option<u64>,
    /// Whether it holds; absent if that is undecided.
    pub passed: Option<bool>,
}

/// The measurements of a watch; none of a run that is no watch.
#[must_use]
pub fn episodes(run: &Run) -> Vec<Episode<'_>> {
    let Some(watch) = &run.plan.watch else { return Vec::new() };
    run.measurements.iter().map(|measurement| episode(watch, measurement)).collect()
}

fn episode<'a>(watch: &WatchSpec, m: &'a Measurement) -> Episode<'a> {
    let gaps = m.outcome.blackouts.as_deref();
    let verify = m.outcome.verify.as_ref();
    let mut episode = Episode {
        measurement: m,
        gaps,
        late: late(watch, m),
        failed: Failed::of(m).ios,
        lost: verify.map(iotax_model::verify_errors::Findings::faulty),
        is_whole: gaps.is_some() && verify.is_none_or(|findings| !findings.unfinished),
        effects: effects(m),
        verdicts: Vec::new(),
    };
    episode.verdicts = watch.require.iter().map(|requirement| judged(&episode, *requirement)).collect();
    episode
}

impl Episode<'_> {
    /// The longest time without a completed I/O.
    #[must_use]
    pub fn longest_gap(&self) -> Option<&Blackout> {
        self.gaps?.iter().max_by_key(|gap| gap.duration_ns)
    }

    /// The longest time without a completed write, or without a completed read.
    #[must_use]
    pub fn longest_gap_of(&self, writes: bool) -> Option<&Blackout> {
        self.gaps?.iter().filter(|gap| gap.writes == writes).max_by_key(|gap| gap.duration_ns)
    }

    /// Returns whether a command failed: what it was to do may not have happened, so that nothing can pass.
    #[must_use]
    pub fn has_failed_events(&self) -> bool {
        self.effects.iter().any(|effect| effect.failure.is_some())
    }

    /// What the kernel logged meanwhile: when, how severe, and the line.
    pub fn kernel_lines(&self) -> impl Iterator<Item = (u64, u8, &str)> {
        self.measurement.occurrences.iter().filter_map(|one| match &one.what {
            Happened::Kernel { level, text } => Some((one.at_ns, *level, text.as_str())),
            Happened::Event { .. } => None,
        })
    }

    /// The figure of a requirement as far as it was seen, and whether more of it cannot have been missed.
    fn figure(&self, figure: WatchFigure) -> (Option<u64>, bool) {
        match figure {
            WatchFigure::Gap => {
                let seen = self.longest_gap().map_or(0, |gap| gap.duration_ns);
                let waiting = self.measurement.samples.iter().filter_map(|sample| sample.oldest_ns).max();
                // An I/O that never returned has waited for so long at least.
                let seen = if self.gaps.is_some() { Some(seen) } else { waiting };
                (seen, self.gaps.is_some())
            }
            WatchFigure::Late => (Some(self.late), self.gaps.is_some()),
            WatchFigure::Errors => (Some(self.failed), self.gaps.is_some()),
            WatchFigure::Lost => (self.lost, self.is_whole),
            WatchFigure::Recovery => {
                let times = self.effects.iter().map(|effect| match effect.recovery {
                    Recovery::Unknown => (None, false),
                    Recovery::Unaffected => (Some(0), true),
                    Recovery::After(ns) => (Some(ns), true),
                    Recovery::NotWithin(ns) => (Some(ns), false),
                });
                let all = times.reduce(|one, other| (one.0.max(other.0), one.1 && other.1));
                all.unwrap_or((None, false))
            }
        }
    }
}

fn judged(episode: &Episode<'_>, requirement: Requirement) -> Judged {
    let (value, is_whole) = episode.figure(requirement.figure);
    let passed = match value {
        Some(value) if !requirement.allows(value) => Some(false),
        Some(_) if is_whole && !episode.has_failed_events() => Some(true),
        _ => None,
    };
    Judged { requirement, value, passed }
}

impl Judged {
    /// Returns whether the figure is a time in nanoseconds.
    #[must_use]
    pub const fn is_time(&self) -> bool {
        matches!(self.requirement.limit, Limit::Time(_))
    }
}

fn late(watch: &WatchSpec, m: &Measurement) -> u64 {
    let response = m.outcome.tallies.response();
    let done: u64 = response
        .iter()
        .flat_map(iotax_model::Histogram::bars)
        .filter(|bar| bar.0 >= watch.late.0)
        .map(|bar| bar.2)
        .sum();
    // Of those in flight at the end none is late unless the oldest is.
    let oldest = m.samples.last().and_then(|sample| sample.oldest_ns);
    let pacing = m.outcome.pacing.filter(|_| oldest >= Some(watch.late.0));
    let seen = m.outcome.tallies.ios() + Failed::of(m).ios;
    done + pacing.map_or(0, |pacing| pacing.due.saturating_sub(seen))
}

fn effects(m: &Measurement) -> Vec<Effect<'_>> {
    let events: Vec<&Occurrence> =
        m.occurrences.iter().filter(|one| matches!(one.what, Happened::Event { .. })).collect();
    let normal = events.first().and_then(|first| Normal::before(&m.samples, first.at_ns));
    let ends = events.iter().skip(1).map(|next| next.at_ns).chain([m.outcome.duration_ns]);
    events.iter().zip(ends).filter_map(|(event, end)| effect(m, event, end, normal.as_ref())).collect()
}

/// What followed an event up to `end`.
fn effect<'a>(
    m: &Measurement,
    event: &'a Occurrence,
    end: u64,
    normal: Option<&Normal>,
) -> Option<Effect<'a>> {
    let Occurrence { at_ns, what: Happened::Event { name, duration_ns, failure } } = event else {
        return None;
    };
    let gaps = m.outcome.blackouts.iter().flatten();
    let after = gaps.filter(|gap| gap.at_ns < end && gap.at_ns + gap.duration_ns > *at_ns);
    Some(Effect {
        at_ns: *at_ns,
        name,
        duration_ns: *duration_ns,
        failure: failure.as_deref(),
        gap: after.max_by_key(|gap| gap.duration_ns).copied(),
        recovery: normal.map_or(Recovery::Unknown, |normal| normal.again(&m.samples, *at_ns, end)),
    })
}

/// What intervals were like before the first event.
struct Normal {
    /// I/Os per second of the slowest.
    rate: f64,
    /// The greatest mean response time, in nanoseconds.
    response_ns: f64,
}

/// I/Os per second of an interval, and their mean response time.
fn figures(sample: &Sample) -> Option<(f64, f64)> {
    let rate = sample.tallies.ios() as f64 * 1e9 / sample.duration_ns.max(1) as f64;
    Some((rate, sample.tallies.response()?.mean()?))
}

impl Normal {
    fn before(samples: &[Sample], event_ns: u64) -> Option<Self> {
        let before: Vec<(f64, f64)> =
            samples.iter().take_while(|sample| sample.at_ns <= event_ns).filter_map(figures).collect();
        let normal = |(rate, time): (f64, f64), one: &(f64, f64)| (rate.min(one.0), time.max(one.1));
        let (rate, response_ns) = before.iter().fold((f64::MAX, 0.0), normal);
        (before.len() >= FEWEST).then_some(Self { rate, response_ns })
    }

    fn is_like(&self, sample: &Sample) -> bool {
        figures(sample)
            .is_some_and(|(rate, time)| rate >= RATE * self.rate && time <= TIME * self.response_ns)
    }

    /// The time from an event until intervals are like those before for long enough.
    fn again(&self, samples: &[Sample], event_ns: u64, end_ns: u64) -> Recovery {
        let after = samples.iter().filter(|sample| sample.at_ns > event_ns && sample.at_ns <= end_ns);
        let mut since: Option<u64> = None;
        for sample in after {
            let begin = sample.at_ns - sample.duration_ns;
            since = if self.is_like(sample) { since.or(Some(begin)) } else { None };
            if let Some(since) = since.filter(|since| sample.at_ns - since >= HOLDS_NS) {
                // The interval in which it happened was normal.
                return if since <= event_ns {
                    Recovery::Unaffected
                } else {
                    Recovery::After(since - event_ns)
                };
            }
        }
        Recovery::NotWithin(end_ns.saturating_sub(event_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::Histogram;
    use iotax_model::record::{Tallies, Tally};

    const MS: u64 = 1_000_000;

    /// Intervals of 250 ms with so many I/Os of this many milliseconds.
    fn samples(all: &[(u64, u64)]) -> Vec<Sample> {
        let sample = |(number, (ios, ms)): (u64, &(u64, u64))| {
            let mut response = Histogram::new();
            response.add_many(ms * MS, *ios);
            let tally = Tally { ios: *ios, bytes: 0, latency: response.clone(), response: Some(response) };
            Sample {
                at_ns: (number + 1) * 250 * MS,
                duration_ns: 250 * MS,
                tallies: Tallies { read: Some(tally), ..Tallies::default() },
                oldest_ns: None,
                ways: Vec::new(),
            }
        };
        (0..).zip(all).map(sample).collect()
    }

    #[test]
    fn it_is_over_when_it_is_as_before_for_a_second() {
        let usual = [(100, 1); 8];
        let gap = [(5, 1), (0, 0), (0, 0), (300, 400), (150, 20), (100, 1), (10, 1)];
        let all = samples(&[&usual[..], &gap, &usual].concat());
        let normal = Normal::before(&all, 2000 * MS).expect("enough before");
        let end = 23 * 250 * MS;
        // The last interval that is not normal ends at 3.75 s.
        assert_eq!(normal.again(&all, 2000 * MS, end), Recovery::After(1750 * MS));
        assert_eq!(normal.again(&all, 500 * MS, 2000 * MS), Recovery::Unaffected);
        assert_eq!(normal.again(&all, 2000 * MS, 3500 * MS), Recovery::NotWithin(1500 * MS));
        assert!(Normal::before(&all, 750 * MS).is_none(), "three intervals do not tell");
    }
}
