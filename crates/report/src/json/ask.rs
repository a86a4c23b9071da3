//! JSON of rate searches: the highest rate that meets the conditions.

use iotax_analysis::ask::{Answer, Answers, HighestRate, Possible, answers};
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::Run;
use iotax_model::plan::{AskSpec, Slo};
use schemars::JsonSchema;
use serde::Serialize;

/// Result of a rate search on one target: `rate` with `low` and `high`, or `at_least`, or `below`; none of these if too little was measured.
#[derive(Serialize, JsonSchema)]
pub(super) struct AnswerEntry<'a> {
    target: &'a str,
    workload: &'a str,
    /// The conditions on latency and errors, such as p99 <= 500us.
    slo: &'a [Slo],
    /// The highest rate in I/Os per second that meets all conditions; absent if it lies outside the rates tried, or is unknown.
    rate: Option<f64>,
    #[serde(flatten)]
    interval: Option<Interval>,
    /// The highest rate tried, in I/Os per second, if all conditions held at every rate; absent otherwise.
    at_least: Option<f64>,
    /// The lowest rate tried, in I/Os per second, if the conditions held at no rate; absent otherwise.
    below: Option<f64>,
    /// The condition that fails at higher rates, or `capacity` if the target cannot complete more I/Os; absent if no condition failed.
    limited_by: Option<String>,
    /// Number of windows measured at scheduled rates, without closed-loop windows.
    trials: usize,
    /// Mean I/Os per second in a closed loop: the most that the target can do. Absent without I/O.
    capacity: Option<f64>,
    /// The limiting condition's latency at the lowest rate tried; absent if no condition on latency limits the rate, or if no I/O completed
    /// there.
    at_lowest_ns: Option<f64>,
    held: Option<HeldEntry>,
    /// The rate divided by the baseline's; absent for the baseline, and if either rate has no interval.
    against_baseline: Option<AgainstBaseline>,
    possible: Option<PossibleEntry>,
}

/// Result of holding the rate that was found, in consecutive windows.
#[derive(Serialize, JsonSchema)]
struct HeldEntry {
    rate: f64,
    window_ns: u64,
    windows: usize,
    /// Numbers of the windows that missed a condition, from 1.
    missed: Vec<u32>,
    /// True if at most half of the windows missed a condition, and all windows together met every condition.
    kept: bool,
}

#[derive(Serialize, JsonSchema)]
struct AgainstBaseline {
    ratio: f64,
    #[serde(flatten)]
    interval: Interval,
    verdict: Verdict,
}

/// The requested rate, and the answer on whether it is possible: `yes`, `no` or `undecided`.
#[derive(Serialize, JsonSchema)]
struct PossibleEntry {
    iops: u64,
    answer: Possible,
}

/// Returns the results of a run's rate searches, one entry per workload and target.
pub(super) fn all(run: &Run) -> Vec<AnswerEntry<'_>> {
    let Some(ask) = run.plan.ask() else { return Vec::new() };
    answers(run).into_iter().flat_map(|answers| of_work(ask, answers)).collect()
}

fn of_work<'a>(ask: &'a AskSpec, answers: Answers<'a>) -> impl Iterator<Item = AnswerEntry<'a>> {
    answers.targets.into_iter().map(move |answer| one(ask, &answers.work.name, answer))
}

fn one<'a>(ask: &'a AskSpec, workload: &'a str, answer: Answer<'a>) -> AnswerEntry<'a> {
    let (mut rate, mut interval, mut at_least, mut below) = (None, None, None, None);
    match answer.found {
        HighestRate::Rate(located) => (rate, interval) = (Some(located.at), located.interval),
        HighestRate::AtLeast(rate) => at_least = Some(rate),
        HighestRate::Below(rate) => below = Some(rate),
        HighestRate::Unknown => {}
    }
    AnswerEntry {
        target: answer.target,
        workload,
        slo: &ask.slo,
        rate,
        interval,
        at_least,
        below,
        possible: ask.iops.map(|iops| PossibleEntry { iops, answer: answer.allows(iops as f64) }),
        limited_by: answer.limited_by.map(|condition| condition.to_string()),
        trials: answer.trials,
        capacity: answer.capacity,
        at_lowest_ns: answer.at_lowest_ns,
        held: answer.held.map(|held| HeldEntry {
            rate: held.rate,
            window_ns: held.window_ns,
            windows: held.windows,
            missed: held.missed,
            kept: held.kept,
        }),
        against_baseline: answer.against.map(|against| AgainstBaseline {
            ratio: against.ratio,
            interval: against.interval,
            verdict: against.verdict,
        }),
    }
}
