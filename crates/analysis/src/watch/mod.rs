//! The effect of events on a load: gaps, late, failed and lost I/Os, and the time to recovery.

mod clock;
mod price;
mod price_comparison;
mod recovery;
mod stall;
mod timeouts;

use iotax_model::plan::{Limit, Requirement, WatchFigure, WatchSpec};
use iotax_model::record::{Happened, Measurement, Occurrence, Sample, Source, Stop, TargetRecord};
use iotax_model::units::human;

pub use clock::{CompletionGap, Stalled};
pub use price::{FigureChange, FirstWrites, Price, SHORTEST_NS, prices};
pub use price_comparison::{EventFigure, PriceComparison, price_comparisons};
pub use recovery::{RecoveryTime, Unknown};
pub use stall::{DeviceOwner, GapOrigin, Sight};

use clock::HostClock;
use recovery::{Course, Normal};

use crate::failed::Failed;
use iotax_model::Run;
use timeouts::LongestHang;

pub use timeouts::{JudgedTimeout, TimeoutOwner, TimeoutVerdict};

/// The results of one measurement of a watch: a load, and the events that disturb it.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode<'a> {
    /// The measurement from which the results are computed.
    pub measurement: &'a Measurement,
    /// Periods without a completed I/O; absent if a worker did not return, or if gaps were not recorded.
    pub gaps: Option<Vec<CompletionGap>>,
    /// Number of I/Os that took longer than the watch's limit `late`, counted from the scheduled start, plus I/Os that never completed. A
    /// flush counts from its issue.
    pub late: u64,
    /// Number of I/Os that failed, flushes included.
    pub failed: u64,
    /// Number of blocks that lack the acknowledged content; absent if nothing was verified.
    pub lost: Option<u64>,
    /// False if figures are lower bounds: a worker did not return, or the written data could not be read back completely.
    pub is_whole: bool,
    /// Effects of the events and marks, in order of time.
    pub effects: Vec<EventEffect<'a>>,
    /// Verdicts on the watch's requirements, in the order of the plan; none for the control, a window without events.
    pub verdicts: Vec<Judged>,
    /// Timeouts of the target's layers from the bottom up, then those of its guest, then the defaults of common guests; empty for a
    /// network.
    pub timeouts: Vec<JudgedTimeout<'a>>,
}

/// Word that names the kernel's log as the source of a line.
const KERNEL: &str = "kernel";

/// An observation during the window other than the load, such as a kernel message, as a line of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation<'a> {
    /// Nanoseconds from the start of the window.
    pub at_ns: u64,
    /// Source of the line: a word of [`Source`], or `kernel` for the kernel's log.
    pub source: &'static str,
    /// Severity of the line in the kernel's log, from 0 (emergency) to 7 (debug); absent for other sources.
    pub level: Option<u8>,
    /// Text of the line.
    pub text: &'a str,
}

impl Observation<'_> {
    /// Returns whether the line comes from the kernel's log.
    #[must_use]
    pub fn is_of_kernel(&self) -> bool {
        self.source == KERNEL
    }

    /// Returns whether the line is a mark, which also has an [`EventEffect`].
    #[must_use]
    pub fn is_mark(&self) -> bool {
        self.source == Source::Mark.word()
    }
}

/// The effect of one event or mark, up to the next event or mark, or to the end of the event's own command if that is later. A mark is a
/// line of text that the user added during the run.
#[derive(Debug, Clone, PartialEq)]
pub struct EventEffect<'a> {
    /// Nanoseconds from the start of the window.
    pub at_ns: u64,
    /// The event's name, or the mark's text.
    pub name: &'a str,
    /// True for a mark, which has no command.
    pub is_mark: bool,
    /// Duration of the event's command in nanoseconds; absent for a mark, or if the command did not start.
    pub duration_ns: Option<u64>,
    /// Error of the event's command; absent if it succeeded.
    pub failure: Option<&'a str>,
    /// Nanoseconds for which the command ran on after the load had ended.
    pub unseen_ns: u64,
    /// I/Os that failed from this event to the next, or to the end of this event's command if that is later; counted in whole intervals.
    pub failed: u64,
    /// The longest gap that overlaps the time from this event to the next, or to the end of this event's command if that is later; absent
    /// without a gap.
    pub gap: Option<CompletionGap>,
    /// The time until rate and response time were back to normal.
    pub recovery: RecoveryTime,
}

/// The verdict on one requirement: met, missed or undecided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judged {
    /// The requirement as the plan states it.
    pub requirement: Requirement,
    /// The measured figure, in nanoseconds or as a count; absent if unknown. A lower bound if `is_bound`.
    pub value: Option<u64>,
    /// True if the requirement is met, false if it is missed; absent if undecided.
    pub passed: Option<bool>,
    /// True if the figure is a lower bound.
    pub is_bound: bool,
    /// The reason why the requirement is undecided; absent if it is decided.
    pub reason: Option<String>,
}

/// Evaluates the measurements of a watch; empty for other runs.
#[must_use]
pub fn episodes(run: &Run) -> Vec<Episode<'_>> {
    let Some(watch) = run.plan.watch() else { return Vec::new() };
    let record = |m: &Measurement| run.targets.iter().find(|record| record.name == m.target);
    run.measurements.iter().map(|measurement| episode(watch, record(measurement), measurement)).collect()
}

fn episode<'a>(watch: &WatchSpec, record: Option<&'a TargetRecord>, m: &'a Measurement) -> Episode<'a> {
    let gaps = gaps(m);
    let verify = m.outcome.verify.as_ref();
    let mut episode = Episode {
        measurement: m,
        is_whole: gaps.is_some() && verify.is_none_or(|findings| !findings.unfinished),
        effects: effects(m, gaps.as_deref()),
        gaps,
        late: late(watch, m),
        failed: Failed::of(m).ios,
        lost: verify.map(iotax_model::verify_errors::Findings::faulty),
        verdicts: Vec::new(),
        timeouts: Vec::new(),
    };
    // Requirements do not apply to windows without events. A network stores no data that could be lost, and
    // timeouts of storage do not apply to it.
    let judges = |requirement: &&Requirement| {
        !watch.is_control(&m.workload) && (!is_network(m) || requirement.figure != WatchFigure::Lost)
    };
    let asked = watch.require.iter().filter(judges);
    episode.verdicts = asked.map(|requirement| judged(&episode, *requirement)).collect();
    if !is_network(m) {
        episode.timeouts = timeouts::judged(record, episode.longest_hang());
    }
    episode
}

/// Returns whether network round trips were measured instead of I/Os.
fn is_network(m: &Measurement) -> bool {
    m.outcome.carried.is_some()
}

/// Returns the gaps on the host's clock, with the periods in which the machine did not run, in order of time; `None` if gaps were not
/// recorded.
fn gaps(m: &Measurement) -> Option<Vec<CompletionGap>> {
    let clock = HostClock::of(m);
    let gap = |blackout| match clock.gap(blackout) {
        gap if is_network(m) => CompletionGap { of: Stalled::RoundTrips, ..gap },
        gap => gap,
    };
    let blackouts = m.outcome.blackouts.as_ref()?.iter().map(gap);
    // Without observations by the host, the load ran on another machine.
    let machine = if m.host.is_none() { Stalled::Machine } else { Stalled::Guest };
    let mut all: Vec<CompletionGap> = blackouts.chain(clock.standstills(machine)).collect();
    all.sort_by_key(|gap| gap.at_ns);
    Some(all)
}

impl<'a> Episode<'a> {
    /// Returns whether network round trips were measured instead of I/Os.
    #[must_use]
    pub fn is_network(&self) -> bool {
        is_network(self.measurement)
    }

    /// Returns the longest gap of any kind; `None` if there was none, or if gaps are unknown.
    #[must_use]
    pub fn longest_gap(&self) -> Option<&CompletionGap> {
        self.gaps.as_ref()?.iter().max_by_key(|gap| gap.duration_ns)
    }

    /// Returns the longest gap of this kind; `None` if there was none, or if gaps are unknown.
    #[must_use]
    pub fn longest_gap_of(&self, of: Stalled) -> Option<&CompletionGap> {
        self.gaps.as_ref()?.iter().filter(|gap| gap.of == of).max_by_key(|gap| gap.duration_ns)
    }

    /// Locates a gap by the gaps in the completions of each block device; `None` if no device was watched, and for gaps of round trips or
    /// of a whole machine.
    #[must_use]
    pub fn origin(&self, gap: &CompletionGap) -> Option<GapOrigin<'a>> {
        stall::origin(self.measurement, gap)
    }

    /// Returns the host's times at the start and end of a sample, in nanoseconds from the start of the window.
    #[must_use]
    pub fn host_span(&self, sample: &Sample) -> (u64, u64) {
        let clock = HostClock::of(self.measurement);
        (clock.of_agent(sample.at_ns.saturating_sub(sample.duration_ns)), clock.of_agent(sample.at_ns))
    }

    /// Returns whether every gap ended within the window, so that no I/O can have taken longer than observed. False if gaps are unknown.
    fn has_ended(&self) -> bool {
        self.gaps.as_ref().is_some_and(|gaps| gaps.iter().all(|gap| gap.ended))
    }

    /// Returns the longest of all gaps and I/Os, unfinished I/Os included: if only one of several paths hangs, there is no gap. Uses the
    /// load's clock, on which a guest's timers run; it stops while the guest is stopped.
    fn longest_hang(&self) -> LongestHang {
        let blackouts = self.measurement.outcome.blackouts.iter().flatten();
        let (gap, is_whole) = (blackouts.map(|gap| gap.duration_ns).max(), self.has_ended());
        let tallies = self.measurement.outcome.tallies.each();
        let slowest = tallies.filter_map(|(_, tally)| tally?.latency.max()).max();
        let oldest = self.measurement.samples.iter().filter_map(|sample| sample.oldest_ns).max();
        LongestHang { ns: [gap, slowest, oldest].into_iter().flatten().max(), is_whole }
    }

    /// Returns whether the command of any event failed, so that the event may not have happened.
    #[must_use]
    pub fn has_failed_events(&self) -> bool {
        self.effects.iter().any(|effect| effect.failure.is_some())
    }

    /// Returns the reason why no requirement can pass: an event failed, or went on after the load had ended. `None` if all events succeeded
    /// in time.
    fn unseen_event(&self) -> Option<String> {
        self.effects.iter().find_map(|effect| match effect {
            EventEffect { failure: Some(_), name, duration_ns: None, .. } => {
                Some(format!("{name} did not begin"))
            }
            EventEffect { failure: Some(_), name, .. } => Some(format!("{name} failed")),
            EventEffect { unseen_ns: 1.., name, .. } => {
                let left_running = human::time(effect.unseen_ns as f64);
                Some(format!("{name} went on for {left_running} after the load had ended"))
            }
            _ => None,
        })
    }

    /// Lists lines of the kernel's log and other observations, marks included, in order of time.
    pub fn observations(&self) -> impl Iterator<Item = Observation<'_>> {
        self.measurement.occurrences.iter().filter_map(|one| {
            let (source, level, text) = match &one.what {
                Happened::Kernel { level, text } => (KERNEL, Some(*level), text),
                Happened::Observed { source, text } => (source.word(), None, text),
                Happened::Event { .. } => return None,
            };
            Some(Observation { at_ns: one.at_ns, source, level, text })
        })
    }

    /// Returns the observed figure of a requirement, and the reason why the true figure may be larger; no reason if the figure is exact.
    fn figure(&self, figure: WatchFigure) -> (Option<u64>, Option<String>) {
        let hung = || (!self.has_ended()).then(|| "I/Os had not completed at the end".to_owned());
        match figure {
            WatchFigure::Gap => {
                let longest_ns = self.longest_gap().map_or(0, |gap| gap.duration_ns);
                let waiting = self.measurement.samples.iter().filter_map(|sample| sample.oldest_ns).max();
                // An I/O that never returned has waited at least this long.
                (if self.gaps.is_some() { Some(longest_ns) } else { waiting }, hung())
            }
            WatchFigure::Late => {
                let backlog = self.measurement.outcome.pacing.is_some_and(|pacing| pacing.backlog > 0);
                let behind = backlog.then(|| "I/Os that were due had not begun at the end".to_owned());
                (Some(self.late), hung().or(behind))
            }
            WatchFigure::Errors => (Some(self.failed), hung().filter(|_| self.gaps.is_none())),
            WatchFigure::Lost => {
                let unread =
                    (!self.is_whole).then(|| "not all that was written could be read back".to_owned());
                (self.lost, unread)
            }
            WatchFigure::Recovery => self.recovery(),
        }
    }

    /// Returns the longest recovery, and the reason why a recovery may have taken longer or is unknown.
    fn recovery(&self) -> (Option<u64>, Option<String>) {
        let (mut longest, mut reason) = (None, None);
        for effect in &self.effects {
            let name = effect.name;
            let (time, missing) = match effect.recovery {
                RecoveryTime::Unknown(why) => (None, Some(format!("{name}: {}", why.words()))),
                RecoveryTime::Unaffected => (Some(0), None),
                RecoveryTime::After(ns) => (Some(ns), None),
                RecoveryTime::NotWithin(ns) => {
                    (Some(ns), Some(format!("{name}: it was not as before to the end of what was seen")))
                }
            };
            longest = longest.max(time);
            reason = reason.or(missing);
        }
        (longest, reason.or_else(|| self.effects.is_empty().then(|| "there was no event".to_owned())))
    }
}

fn judged(episode: &Episode<'_>, requirement: Requirement) -> Judged {
    let (value, missing) = episode.figure(requirement.figure);
    let is_bound = missing.is_some();
    let reason = missing.or_else(|| episode.unseen_event());
    let passed = match value {
        Some(value) if !requirement.allows(value) => Some(false),
        Some(_) if reason.is_none() => Some(true),
        _ => None,
    };
    Judged { requirement, value, passed, is_bound, reason: reason.filter(|_| passed.is_none()) }
}

impl Judged {
    /// Returns whether the figure is a time in nanoseconds.
    #[must_use]
    pub const fn is_time(&self) -> bool {
        matches!(self.requirement.limit, Limit::Time(_))
    }
}

/// Counts late I/Os, including all in the histogram bucket that contains the limit, and I/Os that were due long enough before the end and
/// did not complete.
fn late(watch: &WatchSpec, m: &Measurement) -> u64 {
    let responses = m.outcome.tallies.each().filter_map(|(_, tally)| tally?.response.as_ref());
    let bars = responses.flat_map(iotax_model::Histogram::bars);
    let done: u64 = bars.filter(|(edge, width, _)| edge + width - 1 > watch.late.0).map(|bar| bar.2).sum();
    if let Some(probes) = m.outcome.carried.as_ref().and_then(|carried| carried.probes) {
        // Late replies were waited for, so a missing reply is late.
        return done + probes.sent.saturating_sub(probes.received);
    }
    // I/Os that became due within `late` of the end are not late yet.
    let not_done = m.outcome.pacing.map_or(0, |pacing| {
        let last = pacing.due as f64 * watch.late.0 as f64 / m.outcome.duration_ns.max(1) as f64;
        let missing = pacing.due.saturating_sub(m.outcome.tallies.ios() + Failed::due(m));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of I/Os")]
        missing.saturating_sub(last.ceil() as u64)
    });
    done + not_done
}

fn effects<'a>(m: &'a Measurement, gaps: Option<&[CompletionGap]>) -> Vec<EventEffect<'a>> {
    let gaps = gaps.unwrap_or_default();
    let mut effects: Vec<EventEffect<'_>> = m.occurrences.iter().filter_map(effect).collect();
    let course = Course::of(m, gaps);
    let offered =
        m.outcome.pacing.map(|pacing| pacing.due as f64 * 1e9 / m.outcome.duration_ns.max(1) as f64);
    let normal = effects.first().map(|first| Normal::before(&course, offered, first.at_ns));
    let end = HostClock::of(m).of_agent(m.outcome.duration_ns);
    let is_gone = m.outcome.stop == Some(Stop::Gone);
    let nexts: Vec<u64> = effects.iter().skip(1).map(|next| next.at_ns).chain([end]).collect();
    for (effect, next) in effects.iter_mut().zip(nexts) {
        let over = effect.at_ns + effect.duration_ns.unwrap_or(0);
        effect.unseen_ns = over.saturating_sub(end);
        let is_begun = effect.is_mark || effect.duration_ns.is_some();
        // An event's effects last at least until its command ends, even if another event begins before.
        let until = next.max(over).min(end);
        let after = gaps.iter().filter(|gap| is_begun && gap.at_ns < until && gap.end_ns() > effect.at_ns);
        effect.gap = after.max_by_key(|gap| gap.duration_ns).copied();
        effect.failed = if is_begun { course.failed(effect.at_ns, until) } else { 0 };
        effect.recovery = match normal {
            _ if !is_begun => RecoveryTime::Unknown(Unknown::Nothing),
            _ if is_gone && until == end => RecoveryTime::Unknown(Unknown::Gone),
            None => RecoveryTime::Unknown(Unknown::Before),
            Some(Err(unknown)) => RecoveryTime::Unknown(unknown),
            Some(Ok(normal)) => normal.again(&course, effect.at_ns, over, until),
        };
    }
    effects
}

/// Builds the effect of an event or mark, without its gap, failures and recovery; `None` for other lines.
fn effect(occurrence: &Occurrence) -> Option<EventEffect<'_>> {
    let (name, is_mark, duration_ns, failure) = match &occurrence.what {
        Happened::Event { name, duration_ns, failure } => (name, false, *duration_ns, failure.as_deref()),
        Happened::Observed { source: Source::Mark, text } => (text, true, None, None),
        Happened::Kernel { .. } | Happened::Observed { .. } => return None,
    };
    let (unseen_ns, failed) = (0, 0);
    let (gap, recovery) = (None, RecoveryTime::Unknown(Unknown::Nothing));
    Some(EventEffect {
        at_ns: occurrence.at_ns,
        name,
        is_mark,
        duration_ns,
        failure,
        unseen_ns,
        failed,
        gap,
        recovery,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::Histogram;
    use iotax_model::record::{Blackout, IoClass, Tallies, Tally};

    pub(super) const MS: u64 = 1_000_000;

    /// Creates an interval of 250 ms for each pair of a number of I/Os and their response time in milliseconds.
    pub(super) fn samples(all: &[(u64, u64)]) -> Vec<Sample> {
        let sample = |(number, (ios, ms)): (u64, &(u64, u64))| {
            let mut response = Histogram::new();
            response.add_many(ms * MS, *ios);
            let tally = Tally { ios: *ios, bytes: 0, latency: response.clone(), response: Some(response) };
            Sample {
                at_ns: (number + 1) * 250 * MS,
                duration_ns: 250 * MS,
                tallies: Tallies { read: Some(tally), ..Tallies::default() },
                oldest_ns: None,
                failed: 0,
                directions: Vec::new(),
            }
        };
        (0..).zip(all).map(sample).collect()
    }

    #[test]
    fn the_longest_hang_is_a_gap_or_an_io_that_no_gap_shows() {
        let watch = WatchSpec { late: iotax_model::Nanos(MS), ..WatchSpec::default() };
        let hang = |gaps: Option<&[(u64, bool)]>, slowest_ms: u64, oldest_ms: u64| {
            let gap = |(ms, ended): &(u64, bool)| Blackout {
                of: IoClass::Writes,
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
    fn flushes_that_fail_hang_or_are_late_are_told_as_any_other_io() {
        use iotax_model::record::{ErrorCount, Outcome};
        let histogram = |ms: u64, count: u64| {
            let mut all = Histogram::new();
            all.add_many(ms * MS, count);
            all
        };
        let tally = |ms: u64, count: u64| {
            let latency = histogram(ms, count);
            Some(Tally { ios: count, bytes: 0, response: Some(latency.clone()), latency })
        };
        let error = |direction: &str, count: u64| ErrorCount {
            error: "EIO".into(),
            direction: direction.into(),
            count,
            in_ramp: 0,
            first_offset: 0,
            last_offset: None,
        };
        let blackout = Blackout { of: IoClass::Flushes, at_ns: 0, duration_ns: 900 * MS, ended: true };
        let outcome = Outcome {
            duration_ns: 1000 * MS,
            tallies: Tallies { write: tally(1, 98), sync: tally(700, 3), ..Tallies::default() },
            errors: vec![error("write", 2), error("sync", 61)],
            blackouts: Some(vec![blackout]),
            pacing: Some(iotax_model::record::Pacing { due: 100, ..Default::default() }),
            ..Outcome::default()
        };
        let m = Measurement { outcome, ..empty() };
        let require = ["errors = 0", "late = 0", "gap < 500ms"].map(|one| one.parse().expect("one"));
        let watch = WatchSpec {
            late: iotax_model::Nanos(500 * MS),
            require: require.to_vec(),
            ..WatchSpec::default()
        };
        let episode = episode(&watch, None, &m);
        assert_eq!((episode.failed, episode.late), (63, 3), "all of 100 that were due are accounted for");
        assert_eq!(
            episode.longest_gap().map(|gap| (gap.of, gap.duration_ns)),
            Some((Stalled::Flushes, 900 * MS))
        );
        assert_eq!(episode.longest_hang().ns, Some(900 * MS));
        let verdicts: Vec<_> = episode.verdicts.iter().map(|one| (one.value, one.passed)).collect();
        assert_eq!(
            verdicts,
            [(Some(63), Some(false)), (Some(3), Some(false)), (Some(900 * MS), Some(false))]
        );
    }

    #[test]
    fn a_mark_has_its_gap_and_recovery_and_other_sightings_have_none() {
        let all = [&[(100, 1); 8][..], &[(0, 0); 4], &[(100, 1); 8]].concat();
        let blackout = Blackout { of: IoClass::Reads, at_ns: 2100 * MS, duration_ns: 900 * MS, ended: true };
        let observed = |source, text: &str| Happened::Observed { source, text: text.into() };
        let outcome = iotax_model::record::Outcome {
            duration_ns: 5000 * MS,
            blackouts: Some(vec![blackout]),
            ..iotax_model::record::Outcome::default()
        };
        let m = Measurement {
            samples: samples(&all),
            outcome,
            occurrences: vec![
                Occurrence { at_ns: 1000 * MS, what: observed(Source::Link, "eth1: down") },
                Occurrence { at_ns: 2000 * MS, what: observed(Source::Mark, "pulled") },
                Occurrence { at_ns: 2100 * MS, what: Happened::Kernel { level: 3, text: "sdb".into() } },
            ],
            ..empty()
        };
        let episode = episode(&WatchSpec::default(), None, &m);
        let expected = EventEffect {
            at_ns: 2000 * MS,
            name: "pulled",
            is_mark: true,
            duration_ns: None,
            failure: None,
            unseen_ns: 0,
            failed: 0,
            gap: Some(HostClock::of_host().gap(&blackout)),
            recovery: RecoveryTime::After(1000 * MS),
        };
        assert_eq!(episode.effects, [expected]);
        let observations: Vec<_> =
            episode.observations().map(|one| (one.source, one.level, one.text)).collect();
        assert_eq!(
            observations,
            [("link", None, "eth1: down"), ("mark", None, "pulled"), ("kernel", Some(3), "sdb")]
        );
    }

    pub(super) fn empty() -> Measurement {
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
            counters: Vec::new(),
            devices: Vec::new(),
            standstills: Vec::new(),
            occurrences: Vec::new(),
            stated: None,
            fleet: None,
        }
    }
}
