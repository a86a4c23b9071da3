//! Describes in sentences which targets meet the plan's demands (limits under `require`), and by what factor.

use iotax_analysis::Judgement;
use iotax_analysis::demands::{DemandOnTarget, Kept, NoFigure, all_of, demands};
use iotax_analysis::stats::paired::Interval;
use iotax_model::Run;
use iotax_model::plan::{Keep, RateUnit};
use iotax_model::units::human;

use crate::figure::{UNKNOWN, grouped, time_with};
use crate::marks::is_emulated;

/// Returns a sentence per target: whether it meets the demands, and by what factor. Empty if the plan has no demands.
pub(super) fn sentences(run: &Run, judgement: &Judgement) -> Vec<String> {
    let all = demands(run, judgement);
    if all.is_empty() {
        return Vec::new();
    }
    run.plan.targets.iter().map(|target| sentence(run, &all, &target.name)).collect()
}

/// Formats a target's answer: `host-file: yes; p99 of sync is 2.10 ms [1.90, 2.40], at most 10.0 ms: 4.76 times as quick as needed.`
fn sentence(run: &Run, all: &[DemandOnTarget<'_>], target: &str) -> String {
    let of_target: Vec<&DemandOnTarget<'_>> = all.iter().filter(|demand| demand.target == target).collect();
    let answer = all_of(all, target);
    let emulated = if is_emulated(run, target) { ", emulated: no word on a real machine" } else { "" };
    let about = decisive(&of_target, answer).map(|demand| clause(run, all, demand)).unwrap_or_default();
    format!("{target}: {}{emulated}{about}.", word(answer))
}

/// Selects the demand that decides a target's answer: among the demands with this answer, the one with the least headroom; `None` if there
/// is none.
fn decisive<'a, 'b>(of_target: &[&'b DemandOnTarget<'a>], answer: Kept) -> Option<&'b DemandOnTarget<'a>> {
    let same = of_target.iter().filter(|demand| demand.kept == answer);
    same.min_by(|one, other| {
        let room = |demand: &DemandOnTarget<'_>| demand.room().unwrap_or_default();
        room(one).total_cmp(&room(other))
    })
    .copied()
}

/// Explains the deciding demand:
/// `; p99 of sync is 12.0 ms [11.1, 13.0], at most 10.0 ms: it would have to be 1.20 times as quick; host-file keeps it`.
fn clause(run: &Run, all: &[DemandOnTarget<'_>], demand: &DemandOnTarget<'_>) -> String {
    let keep = &demand.demand.keep;
    let Some(shown) = shown(demand) else {
        let (figure, why) = (keep.figure(), why(demand).unwrap_or_default());
        return match demand.missing {
            Some(NoFigure::Beyond { .. }) => format!("; {figure} is beyond its limit: {why}"),
            _ => format!("; {figure} is unknown: {why}"),
        };
    };
    let room = demand.room().unwrap_or(1.0);
    let more = match demand.kept {
        Kept::Yes => {
            let needed = if keep.is_rate() { "what is needed" } else { "as quick as needed" };
            format!(": {} times {needed}", human::count(room))
        }
        Kept::No => {
            let quicker = if keep.is_rate() { "as much" } else { "as quick" };
            let below = all.iter().any(|other| {
                other.target == run.plan.baseline && other.demand == demand.demand && other.kept == Kept::Yes
            });
            let fault = if below { format!("; {} keeps it", run.plan.baseline) } else { String::new() };
            format!(": it would have to be {} times {quicker}{fault}", human::count(1.0 / room))
        }
        Kept::Undecided => {
            let because = why(demand).unwrap_or_else(|| {
                format!(
                    "the limit lies within the interval; more rounds: {}",
                    run.command("resume", " --repeat 20")
                )
            });
            format!(": {because}")
        }
    };
    format!("; {} is {shown}, {}{more}", keep.figure(), keep.limit())
}

/// Formats the measured figure with its interval; `None` if the figure is unknown.
pub(super) fn shown(demand: &DemandOnTarget<'_>) -> Option<String> {
    let figure = demand.figure?;
    Some(match demand.demand.keep {
        Keep::Latency { .. } => time_with(figure, demand.interval),
        Keep::Sustained { of: RateUnit::Bytes, .. } => {
            let within = |Interval { low, high }| format!(" [{}, {}]", human::rate(low), human::rate(high));
            human::rate(figure) + &demand.interval.map(within).unwrap_or_default()
        }
        Keep::Iops(_) | Keep::Sustained { of: RateUnit::Ios, .. } => {
            let within = |Interval { low, high }| format!(" [{}, {}]", human::count(low), human::count(high));
            human::count(figure) + &demand.interval.map(within).unwrap_or_default()
        }
    })
}

/// Explains why a demand has no figure, no interval or no decision. `None` if nothing is missing; such a demand is undecided if its limit
/// lies within the interval.
pub(super) fn why(demand: &DemandOnTarget<'_>) -> Option<String> {
    Some(match demand.missing? {
        NoFigure::Unusable => "its measurements cannot be used".into(),
        NoFigure::TooFew { needed, seconds } => {
            let longer = seconds.map(|seconds| format!(" of {seconds} s (--runtime {seconds}s)"));
            let longer = longer.unwrap_or_else(|| " (--runtime)".into());
            format!("each round needs {} of these I/Os; give longer rounds{longer}", grouped(needed))
        }
        NoFigure::Beyond { longer, of } => {
            format!("{} of {} took longer than {}", grouped(longer), grouped(of), human::time(demand.limit))
        }
        NoFigure::OneRound => "one round has no interval".into(),
        NoFigure::GeneratorBound => "the load's own CPU was the bound".into(),
        NoFigure::NotMeasured => "it was not measured".into(),
    })
}

/// Returns `yes`, `no` or `undecided`, the word for an answer.
pub(super) const fn word(kept: Kept) -> &'static str {
    match kept {
        Kept::Yes => "yes",
        Kept::No => "no",
        Kept::Undecided => "undecided",
    }
}

/// Formats the factor by which a demand is met, such as `4.76` (below 1: missed); `-` if unknown.
pub(super) fn room(demand: &DemandOnTarget<'_>) -> String {
    demand.room().map_or_else(|| UNKNOWN.into(), |room| format!("{room:.2}"))
}
