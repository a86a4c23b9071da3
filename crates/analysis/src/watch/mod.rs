//! What events cost while a load was held: gaps, late, failed and lost I/Os, and the time until all was as before.

mod clock;
mod price;
mod stall;
mod timeouts;

use iotax_model::plan::{Limit, Requirement, WatchFigure, WatchSpec};
use iotax_model::record::{Happened, Measurement, Occurrence, Sample, Source, TargetRecord};

pub use clock::{Gap, Stalled};
pub use price::{Change, Price, prices};
pub use stall::{Machine, Origin, Sight};

use clock::HostClock;

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
    pub gaps: Option<Vec<Gap>>,
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
    /// Of the requirements that are about it, in the order of the plan.
    pub verdicts: Vec<Judged>,
    /// The target's timeouts from the bottom up, its guest's, and guests' defaults.
    pub timeouts: Vec<JudgedTimeout<'a>>,
}

/// The source of a line of the kernel's log.
const KERNEL: &str = "kernel";

/// A line of what was seen beside the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting<'a> {
    /// From the start of the window.
    pub at_ns: u64,
    /// A word of [`Source`], or `kernel`.
    pub source: &'static str,
    /// The severity of a line of the kernel's log.
    pub level: Option<u8>,
    /// The line.
    pub text: &'a str,
}

impl Sighting<'_> {
    /// Returns whether it is a line of the kernel's log.
    #[must_use]
    pub fn is_of_kernel(&self) -> bool {
        self.source == KERNEL
    }

    /// Returns whether it is a mark, which is an [`Effect`] too.
    #[must_use]
    pub fn is_mark(&self) -> bool {
        self.source == Source::Mark.word()
    }
}

/// What followed one event or mark, up to the next one.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect<'a> {
    /// When it happened, from the start of the window.
    pub at_ns: u64,
    /// The event's name, or the mark's text.
    pub name: &'a str,
    /// True of a mark, which has no command.
    pub is_mark: bool,
    /// How long its command took.
    pub duration_ns: Option<u64>,
    /// How its command failed.
    pub failure: Option<&'a str>,
    /// The longest gap that ended after it.
    pub gap: Option<Gap>,
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
    let gaps = gaps(m);
    let verify = m.outcome.verify.as_ref();
    let mut episode = Episode {
        measurement: m,
        is_whole: gaps.is_some() && verify.is_none_or(|findings| !findings.unfinished),
        effects: effects(m, gaps.as_deref().unwrap_or_default()),
        gaps,
        late: late(watch, m),
        failed: Failed::of(m).ios,
        lost: verify.map(iotax_model::verify_errors::Findings::faulty),
        verdicts: Vec::new(),
        timeouts: Vec::new(),
    };
    // A network holds nothing that could be lost, and what waits for storage does not wait for it.
    let judges = |requirement: &&Requirement| !is_network(m) || requirement.figure != WatchFigure::Lost;
    let asked = watch.require.iter().filter(judges);
    episode.verdicts = asked.map(|requirement| judged(&episode, *requirement)).collect();
    if !is_network(m) {
        episode.timeouts = timeouts::judged(record, episode.longest_hang());
    }
    episode
}

/// Returns whether round trips of a network were measured.
fn is_network(m: &Measurement) -> bool {
    m.outcome.carried.is_some()
}

/// The gaps on the host's clock, in their order.
fn gaps(m: &Measurement) -> Option<Vec<Gap>> {
    let clock = HostClock::of(m);
    let gap = |blackout| match clock.gap(blackout) {
        gap if is_network(m) => Gap { of: Stalled::RoundTrips, ..gap },
        gap => gap,
    };
    let blackouts = m.outcome.blackouts.as_ref()?.iter().map(gap);
    let mut all: Vec<Gap> = blackouts.chain(clock.standstills()).collect();
    all.sort_by_key(|gap| gap.at_ns);
    Some(all)
}

impl<'a> Episode<'a> {
    /// Returns whether round trips of a network were measured, rather than I/Os.
    #[must_use]
    pub fn is_network(&self) -> bool {
        is_network(self.measurement)
    }

    /// The longest time without a completed I/O.
    #[must_use]
    pub fn longest_gap(&self) -> Option<&Gap> {
        self.gaps.as_ref()?.iter().max_by_key(|gap| gap.duration_ns)
    }

    /// The longest time in which reads, writes or the guest did not go on.
    #[must_use]
    pub fn longest_gap_of(&self, of: Stalled) -> Option<&Gap> {
        self.gaps.as_ref()?.iter().filter(|gap| gap.of == of).max_by_key(|gap| gap.duration_ns)
    }

    /// Where a gap arose, from what each block device saw of it; `None` if none was watched.
    #[must_use]
    pub fn origin(&self, gap: &Gap) -> Option<Origin<'a>> {
        stall::origin(self.measurement, gap)
    }

    /// The host's time at a sample's end.
    #[must_use]
    pub fn host_ns(&self, sample: &Sample) -> u64 {
        HostClock::of(self.measurement).of_agent(sample.at_ns)
    }

    /// Returns whether I/Os completed at the end, so that nothing was left that may have taken longer than was seen.
    fn has_ended(&self) -> bool {
        self.gaps.as_ref().is_some_and(|gaps| gaps.iter().all(|gap| gap.ended))
    }

    /// The longest gap, or the slowest I/O if that took longer: one of several paths may hang without a gap. By the clock of the load, on which
    /// a guest's timers run: while a guest is stopped they do not.
    fn longest_hang(&self) -> LongestHang {
        let blackouts = self.measurement.outcome.blackouts.iter().flatten();
        let (gap, is_whole) = (blackouts.map(|gap| gap.duration_ns).max(), self.has_ended());
        let slowest = self.measurement.outcome.tallies.latency().max();
        let oldest = self.measurement.samples.iter().filter_map(|sample| sample.oldest_ns).max();
        LongestHang { ns: [gap, slowest, oldest].into_iter().flatten().max(), is_whole }
    }

    /// Returns whether a command failed: what it was to do may not have happened, so that nothing can pass.
    #[must_use]
    pub fn has_failed_events(&self) -> bool {
        self.effects.iter().any(|effect| effect.failure.is_some())
    }

    /// What was seen meanwhile, marks included, in the order of their times.
    pub fn seen(&self) -> impl Iterator<Item = Sighting<'_>> {
        self.measurement.occurrences.iter().filter_map(|one| {
            let (source, level, text) = match &one.what {
                Happened::Kernel { level, text } => (KERNEL, Some(*level), text),
                Happened::Seen { source, text } => (source.word(), None, text),
                Happened::Event { .. } => return None,
            };
            Some(Sighting { at_ns: one.at_ns, source, level, text })
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
    if let Some(probes) = m.outcome.carried.as_ref().and_then(|carried| carried.probes) {
        // Those of the last moments were waited for.
        return done + probes.sent.saturating_sub(probes.received);
    }
    // Of what was due and did not complete, that of the last moments is not late yet.
    let not_done = m.outcome.pacing.map_or(0, |pacing| {
        let last = pacing.due as f64 * watch.late.0 as f64 / m.outcome.duration_ns.max(1) as f64;
        let missing = pacing.due.saturating_sub(m.outcome.tallies.ios() + Failed::of(m).ios);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of I/Os")]
        missing.saturating_sub(last.ceil() as u64)
    });
    done + not_done
}

fn effects<'a>(m: &'a Measurement, gaps: &[Gap]) -> Vec<Effect<'a>> {
    let mut effects: Vec<Effect<'_>> = m.occurrences.iter().filter_map(effect).collect();
    let course = Course { intervals: intervals(m), gaps };
    let normal = effects.first().and_then(|first| Normal::before(&course.intervals, first.at_ns));
    let end = HostClock::of(m).of_agent(m.outcome.duration_ns);
    let ends: Vec<u64> = effects.iter().skip(1).map(|next| next.at_ns).chain([end]).collect();
    for (effect, end) in effects.iter_mut().zip(ends) {
        let after = gaps.iter().filter(|gap| gap.at_ns < end && gap.end_ns() > effect.at_ns);
        effect.gap = after.max_by_key(|gap| gap.duration_ns).copied();
        if let Some(normal) = &normal {
            effect.recovery = normal.again(&course, effect.at_ns, effect.duration_ns.unwrap_or(0), end);
        }
    }
    effects
}

/// An event or a mark, before what followed it is known.
fn effect(occurrence: &Occurrence) -> Option<Effect<'_>> {
    let (name, is_mark, duration_ns, failure) = match &occurrence.what {
        Happened::Event { name, duration_ns, failure } => (name, false, *duration_ns, failure.as_deref()),
        Happened::Seen { source: Source::Mark, text } => (text, true, None, None),
        Happened::Kernel { .. } | Happened::Seen { .. } => return None,
    };
    let (gap, recovery) = (None, Recovery::Unknown);
    Some(Effect { at_ns: occurrence.at_ns, name, is_mark, duration_ns, failure, gap, recovery })
}

/// The load over time, on the host's clock.
struct Course<'a> {
    intervals: Vec<Interval>,
    gaps: &'a [Gap],
}

/// One interval of the load.
struct Interval {
    begin_ns: u64,
    end_ns: u64,
    /// I/Os per second, and their mean response time in nanoseconds; absent if none completed.
    figures: Option<(f64, f64)>,
}

fn intervals(m: &Measurement) -> Vec<Interval> {
    let clock = HostClock::of(m);
    let interval = |sample: &Sample| {
        let begin_ns = clock.of_agent(sample.at_ns.saturating_sub(sample.duration_ns));
        let end_ns = clock.of_agent(sample.at_ns);
        let rate = sample.tallies.ios() as f64 * 1e9 / (end_ns - begin_ns).max(1) as f64;
        let response = sample.tallies.response().and_then(|response| response.mean());
        Interval { begin_ns, end_ns, figures: response.map(|response| (rate, response)) }
    };
    m.samples.iter().map(interval).collect()
}

/// What intervals were like before the first event.
struct Normal {
    /// I/Os per second of the slowest.
    rate: f64,
    /// The greatest mean response time, in nanoseconds.
    response_ns: f64,
}

impl Normal {
    fn before(intervals: &[Interval], event_ns: u64) -> Option<Self> {
        let before = intervals.iter().take_while(|interval| interval.end_ns <= event_ns);
        let before: Vec<(f64, f64)> = before.filter_map(|interval| interval.figures).collect();
        let normal = |(rate, time): (f64, f64), one: &(f64, f64)| (rate.min(one.0), time.max(one.1));
        let (rate, response_ns) = before.iter().fold((f64::MAX, 0.0), normal);
        (before.len() >= FEWEST).then_some(Self { rate, response_ns })
    }

    fn is_like(&self, interval: &Interval) -> bool {
        interval
            .figures
            .is_some_and(|(rate, time)| rate >= RATE * self.rate && time <= TIME * self.response_ns)
    }

    /// The time from an event until intervals are like those before, and stay so to the end. Long after the command, and after what else was
    /// counted, only what has a gap or lasts is its effect: the rest is noise.
    fn again(&self, course: &Course<'_>, event_ns: u64, command_ns: u64, end_ns: u64) -> Recovery {
        let after = course.intervals.iter();
        let after = after.filter(|interval| interval.end_ns > event_ns && interval.end_ns <= end_ns);
        let mut runs: Vec<Unlike> = Vec::new();
        for interval in after.filter(|interval| !self.is_like(interval)) {
            let (begin_ns, end_ns) = (interval.begin_ns, interval.end_ns);
            let has_gap = course.gaps.iter().any(|gap| gap.at_ns < end_ns && gap.end_ns() > begin_ns)
                || interval.figures.is_none();
            match runs.last_mut() {
                Some(run) if run.end_ns == begin_ns => {
                    *run = Unlike { end_ns, count: run.count + 1, has_gap: run.has_gap || has_gap, ..*run };
                }
                _ => runs.push(Unlike { begin_ns, end_ns, count: 1, has_gap }),
            }
        }
        let mut until = None;
        let mut soon = event_ns + command_ns + HOLDS_NS;
        for run in runs {
            let lasts = run.count > 1 && run.end_ns - run.begin_ns >= HOLDS_NS;
            if run.begin_ns <= soon || lasts || run.has_gap {
                until = Some(run.end_ns);
                soon = soon.max(run.end_ns + HOLDS_NS);
            }
        }
        match until {
            _ if end_ns.saturating_sub(until.unwrap_or(event_ns)) < HOLDS_NS => {
                Recovery::NotWithin(end_ns.saturating_sub(event_ns))
            }
            None => Recovery::Unaffected,
            Some(until) => Recovery::After(until - event_ns),
        }
    }
}

/// Consecutive intervals that are not like those before the event.
#[derive(Clone, Copy)]
struct Unlike {
    begin_ns: u64,
    end_ns: u64,
    count: u32,
    /// True if nothing was completed in a part of them.
    has_gap: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::Histogram;
    use iotax_model::record::{Blackout, Tallies, Tally};

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
        let watch = WatchSpec { late: iotax_model::Nanos(MS), ..WatchSpec::default() };
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
            let m = Measurement { samples: samples(all), ..empty() };
            let course = Course { intervals: intervals(&m), gaps: &[] };
            let normal = Normal::before(&course.intervals, 2000 * MS).expect("enough before");
            normal.again(&course, event_ms * MS, command_ms * MS, end_ms * MS)
        };
        let all = [&usual[..], &gap, &usual].concat();
        // The last interval that is not normal ends at 3.75 s.
        assert_eq!(at(2000, 1500, 5750, &all), Recovery::After(1750 * MS));
        assert_eq!(at(2000, 0, 5750, &all), Recovery::After(1750 * MS), "it has not settled");
        assert_eq!(at(500, 0, 2000, &all), Recovery::Unaffected);
        assert_eq!(at(2000, 0, 3500, &all), Recovery::NotWithin(1500 * MS));
        // What begins two seconds after the event is its effect too, if nothing completes, if it lasts, or if the command went on until then.
        let later = [&usual[..], &usual, &[(0, 0), (0, 0)], &usual].concat();
        assert_eq!(at(2000, 0, 6500, &later), Recovery::After(2500 * MS));
        let slow = [&usual[..], &usual, &[(100, 9); 4], &usual].concat();
        assert_eq!(at(2000, 0, 7000, &slow), Recovery::After(3000 * MS));
        let noise = [&usual[..], &usual, &[(100, 9); 3], &usual].concat();
        assert_eq!(at(2000, 0, 6750, &noise), Recovery::Unaffected);
        let noise = [&usual[..], &usual, &[(100, 9)], &usual].concat();
        assert_eq!(at(2000, 0, 6250, &noise), Recovery::Unaffected);
        assert_eq!(at(2000, 1500, 6250, &noise), Recovery::After(2250 * MS));
        let m = Measurement { samples: samples(&all), ..empty() };
        assert!(Normal::before(&intervals(&m), 750 * MS).is_none(), "three intervals do not tell");
    }

    #[test]
    fn a_mark_has_its_gap_and_recovery_and_other_sightings_have_none() {
        let all = [&[(100, 1); 8][..], &[(0, 0); 4], &[(100, 1); 8]].concat();
        let blackout = Blackout { writes: false, at_ns: 2100 * MS, duration_ns: 900 * MS, ended: true };
        let seen = |source, text: &str| Happened::Seen { source, text: text.into() };
        let outcome = iotax_model::record::Outcome {
            duration_ns: 5000 * MS,
            blackouts: Some(vec![blackout]),
            ..iotax_model::record::Outcome::default()
        };
        let m = Measurement {
            samples: samples(&all),
            outcome,
            occurrences: vec![
                Occurrence { at_ns: 1000 * MS, what: seen(Source::Link, "eth1: down") },
                Occurrence { at_ns: 2000 * MS, what: seen(Source::Mark, "pulled") },
                Occurrence { at_ns: 2100 * MS, what: Happened::Kernel { level: 3, text: "sdb".into() } },
            ],
            ..empty()
        };
        let episode = episode(&WatchSpec::default(), None, &m);
        let expected = Effect {
            at_ns: 2000 * MS,
            name: "pulled",
            is_mark: true,
            duration_ns: None,
            failure: None,
            gap: Some(HostClock::of_host().gap(&blackout)),
            recovery: Recovery::After(1000 * MS),
        };
        assert_eq!(episode.effects, [expected]);
        let seen: Vec<_> = episode.seen().map(|one| (one.source, one.level, one.text)).collect();
        assert_eq!(
            seen,
            [("link", None, "eth1: down"), ("mark", None, "pulled"), ("kernel", Some(3), "sdb")]
        );
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
            devices: Vec::new(),
            standstills: Vec::new(),
            occurrences: Vec::new(),
            stated: None,
        }
    }
}
