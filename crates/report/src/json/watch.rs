//! JSON of a watch: a load, and the events that disturb it.

use iotax_analysis::stats::paired::Interval;
use iotax_analysis::watch::{
    CompletionGap, DeviceOwner, Episode, EventEffect, EventFigure, FigureChange, Judged, JudgedTimeout,
    Price, PriceComparison, RecoveryTime, Sight, TimeoutOwner, TimeoutVerdict,
};
use iotax_model::Nanos;
use schemars::JsonSchema;
use serde::Serialize;

use super::ratio::RatioEntry;

/// One measurement of a watch. Times are from the start of its window.
#[derive(Serialize, JsonSchema)]
pub(super) struct EpisodeEntry<'a> {
    target: &'a str,
    workload: &'a str,
    round: u32,
    /// Start of the measured window in milliseconds since 1970-01-01 UTC, for aligning several measurements.
    started_at_ms: u64,
    /// Periods without a completed I/O; absent if a worker never returned, or if gaps were not recorded.
    gaps: Option<&'a [CompletionGap]>,
    /// The longest gap as seen at each block device below the load, from the bottom up; absent without a gap, for a gap of round trips or
    /// of a whole machine, or if no device was observed.
    stalled: Option<Vec<SightEntry<'a>>>,
    /// Period in which the load's machine or agent did not run during the longest gap; absent if it covers less than half of the gap, or is
    /// unknown.
    stood_still: Option<StoodStill>,
    /// I/Os that took longer than the watch's `late`, measured from their due times, and I/Os that never completed.
    late: u64,
    failed: u64,
    /// Blocks that do not hold the acknowledged data; absent if nothing was verified.
    lost: Option<u64>,
    /// True if the figures are complete. If false, they are lower bounds: a worker never returned, or the written data could not be read back
    /// completely.
    whole: bool,
    events: Vec<EventEntry<'a>>,
    requirements: Vec<RequirementEntry<'a>>,
    /// Timeouts of the target's layers, from the bottom up, then those of its guest and the defaults of common guests; empty for a network.
    timeouts: Vec<JudgedTimeoutEntry<'a>>,
    /// Lines of the kernel's log and other observations, marks included, in order of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    seen: Vec<SeenEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct SightEntry<'a> {
    machine: DeviceOwner,
    /// The device's kernel name.
    device: &'a str,
    /// Period in which the device had I/Os in flight and completed none, to 10 ms; absent if it was shorter than half of the load's gap.
    gap: Option<CompletionGap>,
}

#[derive(Serialize, JsonSchema)]
struct StoodStill {
    at_ns: u64,
    duration_ns: u64,
}

#[derive(Serialize, JsonSchema)]
struct EventEntry<'a> {
    /// The event's name, or a mark's text.
    name: &'a str,
    /// True for a mark, which has no command; absent for events.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    mark: bool,
    at_ns: u64,
    /// Duration of the event's command; absent for a mark, or if the command did not start.
    duration_ns: Option<u64>,
    /// The reason why the event's command failed or did not start; absent if it succeeded.
    failure: Option<&'a str>,
    /// Time that the event's command continued after the end of the load.
    #[serde(skip_serializing_if = "is_zero")]
    unseen_ns: u64,
    /// I/Os that failed from this event to the next event or mark, or to the end of this event's command if that is later; counted in whole
    /// intervals.
    failed: u64,
    /// The longest gap that overlaps the time from this event to the next event or mark, or to the end of this event's command if that is
    /// later. Absent without a gap.
    gap: Option<CompletionGap>,
    /// Time until rate and response time were back to normal; 0 if they stayed normal. Absent if unknown, or if the load did not recover.
    recovery_ns: Option<u64>,
    /// Time to the next event or mark (or to the end of this event's command, if that is later), or to the end of the window, within which
    /// rate and response time did not recover; absent otherwise.
    not_recovered_within_ns: Option<u64>,
    /// The reason why the time to recovery is unknown; absent otherwise.
    recovery_unknown: Option<&'static str>,
}

#[derive(Serialize, JsonSchema)]
struct RequirementEntry<'a> {
    requirement: String,
    /// The figure as measured, in nanoseconds or as a count; absent if unknown.
    value: Option<u64>,
    /// True if `value` is a lower bound; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lower_bound: bool,
    verdict: RequirementVerdict,
    /// Reason why the requirement is undecided; absent if it is decided.
    reason: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RequirementVerdict {
    Passed,
    Failed,
    Undecided,
}

/// A timeout compared with the longest time that I/O hung: a gap, or a slow or unfinished I/O.
#[derive(Serialize, JsonSchema)]
struct JudgedTimeoutEntry<'a> {
    owner: TimeoutOwner,
    /// The disk, controller or mount point with this timeout; for a default, the guest.
    layer: &'a str,
    timeout: &'a str,
    /// The timeout; absent if the layer has none.
    limit_ns: Option<u64>,
    verdict: TimeoutWord,
    /// Time left until the timeout would have expired; only for `spare`.
    spare_ns: Option<u64>,
    /// The consequence when the timeout expires.
    then: &'a str,
    /// The file from which the timeout was read; for a default, the documentation that states it.
    source: &'a str,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TimeoutWord {
    Exceeded,
    Spare,
    /// The longest time that I/O hung is unknown, or a lower bound that is below the limit.
    Unknown,
    Unlimited,
    OnError,
}

#[derive(Serialize, JsonSchema)]
struct SeenEntry<'a> {
    at_ns: u64,
    /// Source of the line: `kernel` (the kernel log), `device` (the kernel's device events), `link` (an interface went up or down), `state`
    /// (a state in /sys), `qemu` (a measured guest's QEMU) or `mark` (the user).
    source: &'a str,
    /// Severity in the kernel's log, from 0 (emergency) to 7 (debug); absent for other sources.
    level: Option<u8>,
    text: &'a str,
}

/// The cost of an event of a watch: the load during the event compared with the same seconds of the control, a window of the load without
/// events.
#[derive(Serialize, JsonSchema)]
pub(super) struct PriceEntry<'a> {
    target: &'a str,
    workload: &'a str,
    event: &'a str,
    rounds: usize,
    /// Duration of the event's command or operation; median over the rounds in which it succeeded. Absent if there was no such round.
    took_ns: Option<f64>,
    /// Time to recovery, median over the rounds; absent if in any round it is unknown or the load did not recover.
    recovery_ns: Option<f64>,
    /// Longest gap in the control, median over the rounds; 0 for no gap, absent if unknown.
    gap_without_ns: Option<f64>,
    gap_with_ns: Option<f64>,
    iops: Option<PricedFigure>,
    response_mean_ns: Option<PricedFigure>,
    response_p99_ns: Option<PricedFigure>,
    /// The writes from the end of a snapshot to the next event or the end of the window; absent for other events, and if less than a second of
    /// them was observed.
    first_writes: Option<FirstWritesEntry>,
}

/// The writes after a snapshot, of which the first to each block is slower.
#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the unit belongs to the name")]
struct FirstWritesEntry {
    response_mean_ns: PricedFigure,
    /// Length of the compared span; the shortest over the rounds.
    span_ns: u64,
    /// Time after the snapshot in which the writes of every second were slower, by the 95% interval over the rounds; 0 if those of the first
    /// second are not decided.
    slower_ns: u64,
}

/// A metric with and without the event, over at least one second; geometric means over the rounds.
#[derive(Serialize, JsonSchema)]
struct PricedFigure {
    without: f64,
    with: f64,
    ratio: f64,
    #[serde(flatten)]
    interval: Option<Interval>,
}

/// The cost of an event on a target, compared with its cost on the baseline or with that of another event on the same target. Rounds are paired.
#[derive(Serialize, JsonSchema)]
pub(super) struct PriceComparisonEntry<'a> {
    workload: &'a str,
    event: &'a str,
    /// The compared metric, measured during the event over at least one second. Less is better.
    figure: EventFigure,
    target: &'a str,
    /// The target that is compared with; the same target if two events are compared.
    baseline: &'a str,
    /// The event that is compared with: the same event, or the alternative with the same result, such as `backup` for `backup-fleecing`.
    baseline_event: &'a str,
    /// Geometric mean of the target's figure over the rounds.
    target_value: f64,
    baseline_value: f64,
    rounds: u32,
    #[serde(flatten)]
    ratio: RatioEntry<'a>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(ns: &u64) -> bool {
    *ns == 0
}

pub(super) fn price_comparison<'a>(one: &'a PriceComparison<'a>) -> PriceComparisonEntry<'a> {
    PriceComparisonEntry {
        workload: one.workload,
        event: one.event,
        figure: one.figure,
        target: one.target,
        baseline: one.baseline,
        baseline_event: one.baseline_event,
        target_value: one.values.0,
        baseline_value: one.values.1,
        rounds: one.rounds,
        ratio: (&one.ratio).into(),
    }
}

pub(super) fn price<'a>(price: &Price<'a>) -> PriceEntry<'a> {
    let (gap_without_ns, gap_with_ns) = price.gap_ns.unzip();
    PriceEntry {
        target: price.target,
        workload: price.workload,
        event: price.event,
        rounds: price.rounds,
        took_ns: price.took_ns,
        recovery_ns: price.recovery_ns,
        gap_without_ns,
        gap_with_ns,
        iops: price.iops.as_ref().map(change),
        response_mean_ns: price.mean.as_ref().map(change),
        response_p99_ns: price.p99.as_ref().map(change),
        first_writes: price.first_writes.as_ref().map(|writes| FirstWritesEntry {
            response_mean_ns: change(&writes.mean),
            span_ns: writes.span_ns,
            slower_ns: writes.slower_ns,
        }),
    }
}

fn change(change: &FigureChange) -> PricedFigure {
    PricedFigure {
        without: change.without,
        with: change.with,
        ratio: change.ratio(),
        interval: change.interval,
    }
}

pub(super) fn episode<'a>(episode: &'a Episode<'a>) -> EpisodeEntry<'a> {
    let m = episode.measurement;
    let origin = episode.longest_gap().and_then(|gap| episode.origin(gap));
    let stood = origin.as_ref().and_then(|origin| origin.stood);
    let seen = episode.seen().map(|one| SeenEntry {
        at_ns: one.at_ns,
        source: one.source,
        level: one.level,
        text: one.text,
    });
    EpisodeEntry {
        target: &m.target,
        workload: &m.workload,
        round: m.round,
        started_at_ms: m.started_at_ms,
        gaps: episode.gaps.as_deref(),
        stalled: origin.map(|origin| {
            let entry = |sight: Sight<'a>| SightEntry {
                machine: sight.machine,
                device: sight.device,
                gap: sight.hung,
            };
            origin.sights.into_iter().map(entry).collect()
        }),
        stood_still: stood.map(|stood| StoodStill { at_ns: stood.at_ns, duration_ns: stood.duration_ns }),
        late: episode.late,
        failed: episode.failed,
        lost: episode.lost,
        whole: episode.is_whole,
        events: episode.effects.iter().map(event).collect(),
        requirements: episode.verdicts.iter().map(requirement).collect(),
        timeouts: episode.timeouts.iter().map(timeout).collect(),
        seen: seen.collect(),
    }
}

fn event<'a>(effect: &'a EventEffect<'a>) -> EventEntry<'a> {
    let (recovery_ns, not_recovered_within_ns, recovery_unknown) = match effect.recovery {
        RecoveryTime::Unknown(why) => (None, None, Some(why.words())),
        RecoveryTime::Unaffected => (Some(0), None, None),
        RecoveryTime::After(ns) => (Some(ns), None, None),
        RecoveryTime::NotWithin(ns) => (None, Some(ns), None),
    };
    EventEntry {
        name: effect.name,
        mark: effect.is_mark,
        at_ns: effect.at_ns,
        duration_ns: effect.duration_ns,
        failure: effect.failure,
        unseen_ns: effect.unseen_ns,
        failed: effect.failed,
        gap: effect.gap,
        recovery_ns,
        not_recovered_within_ns,
        recovery_unknown,
    }
}

fn requirement(judged: &Judged) -> RequirementEntry<'_> {
    RequirementEntry {
        requirement: judged.requirement.to_string(),
        value: judged.value,
        lower_bound: judged.is_bound,
        verdict: match judged.passed {
            Some(true) => RequirementVerdict::Passed,
            Some(false) => RequirementVerdict::Failed,
            None => RequirementVerdict::Undecided,
        },
        reason: judged.reason.as_deref(),
    }
}

fn timeout<'a>(timeout: &JudgedTimeout<'a>) -> JudgedTimeoutEntry<'a> {
    let (verdict, spare_ns) = match timeout.verdict {
        TimeoutVerdict::Exceeded => (TimeoutWord::Exceeded, None),
        TimeoutVerdict::Spare(ns) => (TimeoutWord::Spare, Some(ns)),
        TimeoutVerdict::Unknown => (TimeoutWord::Unknown, None),
        TimeoutVerdict::Unlimited => (TimeoutWord::Unlimited, None),
        TimeoutVerdict::OnError => (TimeoutWord::OnError, None),
    };
    JudgedTimeoutEntry {
        owner: timeout.owner,
        layer: timeout.layer,
        timeout: timeout.what,
        limit_ns: timeout.limit.map(|Nanos(ns)| ns),
        verdict,
        spare_ns,
        then: timeout.then,
        source: timeout.source,
    }
}
