//! The JSON of answers: the highest rate that keeps conditions.

use iotax_analysis::ask::{Answer, Found, answers};
use iotax_model::Run;
use iotax_model::plan::AskSpec;
use serde_json::Value;

use super::{any, filled, number, object};

/// The answers of a run; absent for one that asks nothing.
pub(super) fn all(run: &Run) -> Option<Value> {
    let ask = run.plan.ask()?;
    let of_work = |answers: &iotax_analysis::ask::Answers<'_>| -> Vec<Value> {
        answers.targets.iter().map(|answer| one(ask, &answers.work.name, answer)).collect()
    };
    filled(answers(run).iter().flat_map(of_work).collect())
}

fn one(ask: &AskSpec, workload: &str, answer: &Answer<'_>) -> Value {
    let (rate, ends) = match answer.found {
        Found::Rate(located) => (Some(located.at), located.interval),
        _ => (None, None),
    };
    let at_least = if let Found::AtLeast(rate) = answer.found { Some(rate) } else { None };
    let below = if let Found::Below(rate) = answer.found { Some(rate) } else { None };
    object([
        ("target", Some(answer.target.into())),
        ("workload", Some(workload.into())),
        ("slo", any(&ask.slo)),
        ("rate", number(rate)),
        ("low", number(ends.map(|ends| ends.low))),
        ("high", number(ends.map(|ends| ends.high))),
        ("at_least", number(at_least)),
        ("below", number(below)),
        ("limited_by", answer.limited_by.map(|condition| condition.to_string().into())),
        ("trials", Some(answer.trials.into())),
        ("capacity", number(answer.capacity)),
        ("at_lowest_ns", number(answer.at_lowest_ns)),
        (
            "held",
            answer.held.as_ref().map(|held| {
                object([
                    ("rate", number(Some(held.rate))),
                    ("window_ns", Some(held.window_ns.into())),
                    ("windows", Some(held.windows.into())),
                    ("missed", Some(held.missed.iter().copied().collect())),
                    ("kept", Some(held.kept.into())),
                ])
            }),
        ),
        (
            "against_baseline",
            answer.against.map(|against| {
                object([
                    ("ratio", number(Some(against.ratio))),
                    ("low", number(Some(against.interval.low))),
                    ("high", number(Some(against.interval.high))),
                    ("verdict", Some(against.verdict.word().into())),
                ])
            }),
        ),
        (
            "possible",
            ask.iops.map(|iops| {
                object([
                    ("iops", Some(iops.into())),
                    ("answer", Some(answer.allows(iops as f64).word().into())),
                ])
            }),
        ),
    ])
}
