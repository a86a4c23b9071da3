//! What events cost while a load was held: gaps, late, failed and lost I/Os, and the time until all was as before.

mod timeouts;

use iotax_model::plan::{Limit, Requirement, WatchFigure, WatchSpec};
use iotax_model::record::{Blackout, Happened, Measurement, Occurrence, Sample, TargetRecord};

use crate::failed::Failed;
use crate::store::Run;
use timeouts::LongestHang;

pub use timeouts::{JudgedTimeout, TimeoutOwner, TimeoutVerdict};

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
    /// The target's timeouts from the bottom up, its guest's, and guests' defaults.
    pub timeouts: Vec<JudgedTimeout<'a>>,
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
    let record = |m: &Measurement| run.targets.iter().find(|record| record.name == m.target);
    run.measurements.iter().map(|measurement| episode(watch, record(measurement), measurement)).collect()
}

fn episode<'a>(watch: &WatchSpec, record: Option<&'a TargetRecord>, m: &'a Measurement) -> Episode<'a> {
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
        timeouts: Vec::new(),
    };
    episode.verdicts = watch.require.iter().map(|requirement| judged(&episode, *requirement)).collect();
    episode.timeouts = timeouts::judged(record, episode.longest_hang());
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

    /// Returns whether I/Os completed at the end, so that nothing was left that may have taken longer than was seen.
    fn has_ended(&self) -> bool {
        self.gaps.is_some_and(|gaps| gaps.iter().all(|gap| gap.ended))
    }

    /// The longest gap, or the slowest I/O if that took longer: one of several paths may hang without a gap.
    fn longest_hang(&self) -> LongestHang {
        let (gap, is_whole) = self.figure(WatchFigure::Gap);
        let slowest = self.measurement.outcome.tallies.latency().max();
        let oldest = self.measurement.samples.iter().filter_map(|sample| sample.oldest_ns).max();
        LongestHang { ns: [gap, slowest, oldest].into_iter().flatten().max(), is_whole }
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
                (seen, self.has_ended())
            }
            WatchFigure::Late => {
                let backlog = self.measurement.outcome.pacing.is_some_and(|pacing| pacing.backlog > 0);
                (Some(self.late), self.has_ended() && !backlog)
            }
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

/// Those that were too late for certain, and those of a bucket of the histogram in which some are.
fn late(watch: &WatchSpec, m: &Measurement) -> u64 {
    let response = m.outcome.tallies.response();
    let bars = response.iter().flat_map(iotax_model::Histogram::bars);
    let done: u64 = bars.filter(|(edge, width, _)| edge + width - 1 > watch.late.0).map(|bar| bar.2).sum();
    // Of what was due and did not complete, that of the last moments is not late yet.
    let not_done = m.outcome.pacing.map_or(0, |pacing| {
        let last = pacing.due as f64 * watch.late.0 as f64 / m.outcome.duration_ns.max(1) as f64;
        let missing = pacing.due.saturating_sub(m.outcome.tallies.ios() + Failed::of(m).ios);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of I/Os")]
        missing.saturating_sub(last.ceil() as u64)
    });
    done + not_done
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
        recovery: normal
            .map_or(Recovery::Unknown, |normal| normal.again(m, *at_ns, duration_ns.unwrap_or(0), end)),
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

    /// The time from an event until intervals are like those before, and stay so to the end. One interval alone that is not, long after the
    /// command and without a gap, is noise.
    fn again(&self, m: &Measurement, event_ns: u64, command_ns: u64, end_ns: u64) -> Recovery {
        let after = m.samples.iter().filter(|sample| sample.at_ns > event_ns && sample.at_ns <= end_ns);
        let mut runs: Vec<(u64, u64, u32)> = Vec::new();
        for sample in after.filter(|sample| !self.is_like(sample)) {
            let begin = sample.at_ns - sample.duration_ns;
            match runs.last_mut() {
                Some((_, end, count)) if *end == begin => (*end, *count) = (sample.at_ns, *count + 1),
                _ => runs.push((begin, sample.at_ns, 1)),
            }
        }
        let gaps = || m.outcome.blackouts.iter().flatten();
        let has_gap = |begin, end| gaps().any(|gap| gap.at_ns < end && gap.at_ns + gap.duration_ns > begin);
        let soon = event_ns + command_ns + HOLDS_NS;
        let last = runs
            .into_iter()
            .rfind(|(begin, end, count)| *count > 1 || *begin <= soon || has_gap(*begin, *end));
        let until = last.map_or(event_ns, |(_, end, _)| end);
        match last {
            _ if end_ns.saturating_sub(until) < HOLDS_NS => {
                Recovery::NotWithin(end_ns.saturating_sub(event_ns))
            }
            None => Recovery::Unaffected,
            Some((_, end, _)) => Recovery::After(end - event_ns),
        }
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
    fn the_longest_hang_is_a_gap_or_an_io_that_no_gap_shows() {
        let watch = WatchSpec { events: Vec::new(), require: Vec::new(), late: iotax_model::Nanos(MS) };
        let hang = |gaps: Option<&[(u64, bool)]>, slowest_ms: u64, oldest_ms: u64| {
            let gap = |(ms, ended): &(u64, bool)| Blackout {
                writes: true,
                at_ns: 0,
                duration_ns: ms * MS,
                ended: *ended,
            };
            let blackouts = gaps.map(|gaps| gaps.iter().map(gap).collect());
            let mut samples = samples(&[(1, slowest_ms)]);
            samples[0].oldest_ns = Some(oldest_ms * MS);
            let tallies = samples[0].tallies.clone();
            let outcome = iotax_model::record::Outcome { tallies, blackouts, ..Default::default() };
            let m = Measurement { samples, outcome, ..empty() };
            let found = episode(&watch, None, &m).longest_hang();
            (found.ns.map(|ns| ns / MS), found.is_whole)
        };
        assert_eq!(hang(Some(&[(300, true), (900, true)]), 1, 1), (Some(900), true));
        assert_eq!(hang(Some(&[(900, true), (300, false)]), 1, 1), (Some(900), false));
        assert_eq!(hang(Some(&[]), 2000, 1), (Some(2000), true), "one path of several");
        assert_eq!(hang(None, 1, 5000), (Some(5000), false), "an I/O that never returned");
    }

    #[test]
    fn it_is_over_when_it_stays_as_before() {
        let usual = [(100, 1); 8];
        let gap = [(5, 1), (0, 0), (0, 0), (300, 400), (150, 20), (100, 1), (10, 1)];
        let at = |event_ms: u64, command_ms: u64, end_ms: u64, all: &[(u64, u64)]| {
            let samples = samples(all);
            let normal = Normal::before(&samples, 2000 * MS).expect("enough before");
            let m = Measurement { samples, ..empty() };
            normal.again(&m, event_ms * MS, command_ms * MS, end_ms * MS)
        };
        let all = [&usual[..], &gap, &usual].concat();
        // The last interval that is not normal ends at 3.75 s.
        assert_eq!(at(2000, 1500, 5750, &all), Recovery::After(1750 * MS));
        assert_eq!(at(2000, 0, 5750, &all), Recovery::After(1250 * MS), "one interval alone is noise");
        assert_eq!(at(500, 0, 2000, &all), Recovery::Unaffected);
        assert_eq!(at(2000, 0, 3500, &all), Recovery::NotWithin(1500 * MS));
        // What begins two seconds after the event is its effect too, of one interval if the command went on until then.
        let later = [&usual[..], &usual, &[(0, 0), (0, 0)], &usual].concat();
        assert_eq!(at(2000, 0, 6500, &later), Recovery::After(2500 * MS));
        let noise = [&usual[..], &usual, &[(100, 9)], &usual].concat();
        assert_eq!(at(2000, 0, 6250, &noise), Recovery::Unaffected);
        assert_eq!(at(2000, 1500, 6250, &noise), Recovery::After(2250 * MS));
        assert!(Normal::before(&samples(&all), 750 * MS).is_none(), "three intervals do not tell");
    }

    fn empty() -> Measurement {
        Measurement {
            target: String::new(),
            workload: String::new(),
            round: 1,
            order: 1,
            started_at_ms: 0,
            host_duration_ns: None,
            outcome: iotax_model::record::Outcome::default(),
            samples: Vec::new(),
            host: None,
            host_samples: Vec::new(),
            host_cache: None,
            guest_cache: None,
            shares: Vec::new(),
            neighbour: None,
            qemu: None,
            occurrences: Vec::new(),
            stated: None,
        }
    }
}
