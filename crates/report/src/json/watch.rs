//! The JSON of a watch.

use iotax_analysis::store::Run;
use iotax_analysis::watch::{
    Effect, Episode, Judged, JudgedTimeout, Recovery, TimeoutOwner, TimeoutVerdict, episodes,
};
use serde_json::Value;

use super::{any, filled, object};

/// The measurements of a watch; absent for a run that is none.
pub(super) fn all(run: &Run) -> Option<Value> {
    filled(episodes(run).iter().map(one).collect())
}

fn one(episode: &Episode<'_>) -> Value {
    let m = episode.measurement;
    let kernel = episode.kernel_lines().map(|(at_ns, level, text)| {
        object([("at_ns", Some(at_ns.into())), ("level", Some(level.into())), ("text", Some(text.into()))])
    });
    object([
        ("target", Some(m.target.as_str().into())),
        ("workload", Some(m.workload.as_str().into())),
        ("round", Some(m.round.into())),
        ("gaps", episode.gaps.and_then(|gaps| any(&gaps))),
        ("late", Some(episode.late.into())),
        ("failed", Some(episode.failed.into())),
        ("lost", episode.lost.map(Value::from)),
        ("whole", Some(episode.is_whole.into())),
        ("events", Some(episode.effects.iter().map(event).collect())),
        ("requirements", Some(episode.verdicts.iter().map(requirement).collect())),
        ("timeouts", Some(episode.timeouts.iter().map(timeout).collect())),
        ("kernel", filled(kernel.collect())),
    ])
}

fn event(effect: &Effect<'_>) -> Value {
    let (recovery, not_within) = match effect.recovery {
        Recovery::Unknown => (None, None),
        Recovery::Unaffected => (Some(0), None),
        Recovery::After(ns) => (Some(ns), None),
        Recovery::NotWithin(ns) => (None, Some(ns)),
    };
    object([
        ("name", Some(effect.name.into())),
        ("at_ns", Some(effect.at_ns.into())),
        ("duration_ns", effect.duration_ns.map(Value::from)),
        ("failure", effect.failure.map(Value::from)),
        ("gap", effect.gap.as_ref().and_then(any)),
        ("recovery_ns", recovery.map(Value::from)),
        ("not_recovered_within_ns", not_within.map(Value::from)),
    ])
}

fn requirement(judged: &Judged) -> Value {
    let word = match judged.passed {
        Some(true) => "passed",
        Some(false) => "failed",
        None => "undecided",
    };
    object([
        ("requirement", Some(judged.requirement.to_string().into())),
        ("value", judged.value.map(Value::from)),
        ("verdict", Some(word.into())),
    ])
}

fn timeout(timeout: &JudgedTimeout<'_>) -> Value {
    let owner = match timeout.owner {
        TimeoutOwner::Target => "target",
        TimeoutOwner::Guest => "guest",
        TimeoutOwner::GuestDefault => "guest_default",
    };
    let (word, spare) = match timeout.verdict {
        TimeoutVerdict::Exceeded => ("exceeded", None),
        TimeoutVerdict::Spare(ns) => ("spare", Some(ns)),
        TimeoutVerdict::Unknown => ("unknown", None),
        TimeoutVerdict::Unlimited => ("unlimited", None),
        TimeoutVerdict::OnError => ("on_error", None),
    };
    object([
        ("owner", Some(owner.into())),
        ("layer", Some(timeout.layer.into())),
        ("timeout", Some(timeout.what.into())),
        ("limit_ns", timeout.limit.map(|limit| limit.0.into())),
        ("verdict", Some(word.into())),
        ("spare_ns", spare.map(Value::from)),
        ("then", Some(timeout.then.into())),
        ("source", Some(timeout.source.into())),
    ])
}
