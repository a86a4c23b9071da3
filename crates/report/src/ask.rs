//! Describes the result of a rate search: the highest rate at which the load meets all conditions.

use iotax_analysis::ask::{Against, Answer, Answers, Condition, Held, HighestRate, Possible};
use iotax_analysis::curve::Located;
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::plan::{AskSpec, Slo};
use iotax_model::units::human::listed;
use iotax_model::units::{Nanos, human};
use iotax_model::{Run, RunState};

use super::figure::title;

/// Formats the heading of a rate search: `4k random read: the highest rate with p99 <= 500us and errors = 0`.
pub(super) fn heading(ask: &AskSpec, answers: &Answers<'_>) -> String {
    let conditions: Vec<String> = ask.slo.iter().map(Slo::to_string).collect();
    format!("{}: the highest rate with {}", title(answers.work), listed(&conditions))
}

/// Returns a sentence per target: the highest rate, the comparison with the baseline, the limiting condition, and whether the requested rate is
/// possible. The last sentence may suggest a longer search.
pub(super) fn sentences(run: &Run, ask: &AskSpec, answers: &Answers<'_>) -> Vec<String> {
    let one = |answer: &Answer<'_>| {
        let mut parts = vec![rate(answer)];
        parts.extend(answer.against.map(|against| compared(&against, &run.plan.baseline)));
        parts.extend(limit(answer));
        parts.extend(answer.held.as_ref().map(held));
        parts.extend(ask.iops.map(|iops| possible(answer, iops)));
        format!("{}: {}.", answer.target, parts.join("; "))
    };
    answers.targets.iter().map(one).chain(next_step(run, ask, answers)).collect()
}

/// Suggests a longer search, with its command, if a completed search left a rate without an interval, or left a comparison or the requested
/// rate undecided; else `None`. `None` for imported runs.
fn next_step(run: &Run, ask: &AskSpec, answers: &Answers<'_>) -> Option<String> {
    let has_interval = |answer: &Answer<'_>| {
        !matches!(answer.found, HighestRate::Rate(Located { interval: None, .. }) | HighestRate::Unknown)
    };
    let is_open = |answer: &Answer<'_>| {
        let possible = ask.iops.is_some_and(|iops| answer.allows(iops as f64) == Possible::Undecided);
        possible || answer.against.is_some_and(|against| against.verdict == Verdict::Undecided)
    };
    // Four times the time halves the interval.
    let (factor, what) = match (answers.targets.iter().all(has_interval), answers.targets.iter().any(is_open))
    {
        (false, _) => (2, "gives more trials near the rate"),
        (true, true) => (4, "halves the interval"),
        (true, false) => return None,
    };
    let time = Nanos(ask.time.0.saturating_mul(factor));
    let command = run.command("resume", &format!("--time {time}"));
    (run.state == RunState::Complete && !run.source.is_imported())
        .then(|| format!("A new search of {time} {what}: {command}"))
}

/// Returns all sentences of a rate search; empty for other runs.
pub(super) fn all(run: &Run) -> Vec<String> {
    let Some(ask) = run.plan.ask() else { return Vec::new() };
    iotax_analysis::ask::answers(run).iter().flat_map(|answers| sentences(run, ask, answers)).collect()
}

fn rate(answer: &Answer<'_>) -> String {
    let trials = answer.trials;
    match answer.found {
        HighestRate::Unknown => format!("unknown after {trials} trials"),
        HighestRate::AtLeast(rate) => {
            format!("{} IOPS and more, the highest rate that was tried", human::count(rate))
        }
        HighestRate::Below(rate) => {
            let there = answer.at_lowest_ns.map(|ns| format!(", where it is {}", human::time(ns)));
            let condition =
                answer.limited_by.map(|condition| format!("{condition} is missed ")).unwrap_or_default();
            format!("{condition}even at {} IOPS{}", human::count(rate), there.unwrap_or_default())
        }
        HighestRate::Rate(located) => {
            let ends = located.interval;
            let ends = ends.map_or_else(
                || " (no interval: too few trials near it)".into(),
                |ends| format!(" [{}, {}]", human::count(ends.low), human::count(ends.high)),
            );
            format!("{} IOPS{ends}", human::count(located.at))
        }
    }
}

/// Names the limiting condition: `limited by p99 <= 500us, at 46% of the 25.9k that it can do; 62 trials` (in IOPS). `None` unless a rate
/// and its limiting condition were found.
fn limit(answer: &Answer<'_>) -> Option<String> {
    let HighestRate::Rate(located) = answer.found else { return None };
    let limit = match answer.limited_by? {
        Condition::KeepsUp => "limited by what it keeps up with".to_owned(),
        condition @ Condition::Slo(_) => {
            let share = answer.capacity.map(|capacity| {
                format!(
                    ", at {:.0}% of the {} that it can do",
                    100.0 * located.at / capacity,
                    human::count(capacity)
                )
            });
            format!("limited by {condition}{}", share.unwrap_or_default())
        }
    };
    Some(format!("{limit}; {} trials", answer.trials))
}

/// Compares a target's rate with the baseline's: `12 to 19% less than host-file`.
fn compared(against: &Against, baseline: &str) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let (low, high) = (percent(against.interval.low), percent(against.interval.high));
    match against.verdict {
        Verdict::Same => format!("the same as {baseline}"),
        Verdict::Undecided => format!("undecided against {baseline} ({low:+.0}% to {high:+.0}%)"),
        Verdict::Slower => format!("{:.0} to {:.0}% less than {baseline}", -high, -low),
        Verdict::Faster => format!("{low:.0} to {high:.0}% more than {baseline}"),
    }
}

/// Describes the long run at the found rate: `11.9k IOPS for 60 windows of 1m: kept, missed in 2, first in number 17`.
fn held(held: &Held) -> String {
    let (rate, window) = (human::count(held.rate), Nanos(held.window_ns));
    let missed = match held.missed.as_slice() {
        [] => "kept in all".to_owned(),
        [first, ..] => {
            let word = if held.kept { "kept" } else { "not kept" };
            format!("{word}, missed in {}, first in number {first}", held.missed.len())
        }
    };
    format!("{rate} IOPS for {} windows of {window}: {missed}", held.windows)
}

/// Formats the answer to whether the target can sustain the requested rate: `20.0k IOPS: yes, with 18% to spare`.
fn possible(answer: &Answer<'_>, iops: u64) -> String {
    let asked = iops as f64;
    let possible = answer.allows(asked);
    let word = possible.word();
    let not_held = answer.held.as_ref().filter(|held| !held.kept && possible != Possible::Yes);
    if let Some(held) = not_held {
        let rate = human::count(held.rate);
        return format!("{} IOPS: {word}, {rate} were not kept when they were held", human::count(asked));
    }
    let margin = match answer.found {
        _ if possible == Possible::Undecided => String::new(),
        HighestRate::Rate(located) if located.at >= 2.0 * asked => {
            format!(", {:.1} times that", located.at / asked)
        }
        HighestRate::Rate(located) if located.at >= asked => {
            format!(", with {:.0}% to spare", 100.0 * (located.at / asked - 1.0))
        }
        HighestRate::Rate(located) => format!(", {:.0}% short", 100.0 * (1.0 - located.at / asked)),
        _ => String::new(),
    };
    format!("{} IOPS: {word}{margin}", human::count(asked))
}
