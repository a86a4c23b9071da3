//! The JSON of a watch.

use iotax_analysis::store::Run;
use iotax_analysis::watch::{Effect, Episode, Gap, Judged, Machine, Recovery, Sight, Stalled, episodes};
use serde_json::Value;

use super::{filled, object};

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
        ("gaps", episode.gaps.as_ref().map(|gaps| gaps.iter().map(gap).collect())),
        (
            "stalled",
            episode
                .longest_gap()
                .and_then(|gap| episode.origin(gap))
                .map(|origin| origin.sights.iter().map(stalled).collect()),
        ),
        ("late", Some(episode.late.into())),
        ("failed", Some(episode.failed.into())),
        ("lost", episode.lost.map(Value::from)),
        ("whole", Some(episode.is_whole.into())),
        ("events", Some(episode.effects.iter().map(event).collect())),
        ("requirements", Some(episode.verdicts.iter().map(requirement).collect())),
        ("kernel", filled(kernel.collect())),
    ])
}

fn gap(gap: &Gap) -> Value {
    let of = match gap.of {
        Stalled::Reads => "reads",
        Stalled::Writes => "writes",
        Stalled::Guest => "guest",
    };
    object([
        ("of", Some(of.into())),
        ("at_ns", Some(gap.at_ns.into())),
        ("duration_ns", Some(gap.duration_ns.into())),
        ("ended", Some(gap.ended.into())),
    ])
}

fn stalled(sight: &Sight<'_>) -> Value {
    let machine = match sight.machine {
        Machine::Host => "host",
        Machine::Guest => "guest",
    };
    object([
        ("machine", Some(machine.into())),
        ("device", Some(sight.device.into())),
        ("gap", sight.hung.as_ref().map(gap)),
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
        ("gap", effect.gap.as_ref().map(gap)),
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
