//! The JSON of a watch.

use iotax_analysis::watch::{
    Change, Effect, Episode, Gap, Judged, JudgedTimeout, Machine, Price, PriceComparison, Recovery, Sight,
    Stalled, TimeoutOwner, TimeoutVerdict, episodes, price_comparisons, prices,
};
use iotax_model::Run;
use serde_json::Value;

use super::{filled, merged, number, object, ratio};

/// The measurements of a watch; absent for a run that is none.
pub(super) fn all(run: &Run) -> Option<Value> {
    filled(episodes(run).iter().map(one).collect())
}

/// The price of each event by comparison with windows without it; absent for a run that has none.
pub(super) fn all_prices(run: &Run) -> Option<Value> {
    filled(prices(run, &episodes(run)).iter().map(price).collect())
}

/// Each target's price of each event against the baseline's; absent for a run that has none.
pub(super) fn all_price_comparisons(run: &Run) -> Option<Value> {
    filled(price_comparisons(run, &episodes(run)).iter().map(price_comparison).collect())
}

fn price_comparison(one: &PriceComparison<'_>) -> Value {
    let of = object([
        ("workload", Some(one.workload.into())),
        ("event", Some(one.event.into())),
        ("figure", Some(one.figure.word().into())),
        ("target", Some(one.target.into())),
        ("baseline", Some(one.baseline.into())),
        ("target_value", number(Some(one.values.0))),
        ("baseline_value", number(Some(one.values.1))),
        ("rounds", Some(one.rounds.into())),
    ]);
    merged([of, ratio(&one.ratio)])
}

fn price(price: &Price<'_>) -> Value {
    let (without, with) = price.gap_ns.unzip();
    object([
        ("target", Some(price.target.into())),
        ("workload", Some(price.workload.into())),
        ("event", Some(price.event.into())),
        ("rounds", Some(price.rounds.into())),
        ("took_ns", number(price.took_ns)),
        ("recovery_ns", number(price.recovery_ns)),
        ("gap_without_ns", number(without)),
        ("gap_with_ns", number(with)),
        ("iops", price.iops.as_ref().map(change)),
        ("response_mean_ns", price.mean.as_ref().map(change)),
        ("response_p99_ns", price.p99.as_ref().map(change)),
    ])
}

fn change(change: &Change) -> Value {
    object([
        ("without", number(Some(change.without))),
        ("with", number(Some(change.with))),
        ("ratio", number(Some(change.ratio()))),
        ("low", number(change.interval.map(|interval| interval.low))),
        ("high", number(change.interval.map(|interval| interval.high))),
    ])
}

fn one(episode: &Episode<'_>) -> Value {
    let m = episode.measurement;
    let seen = episode.seen().map(|one| {
        object([
            ("at_ns", Some(one.at_ns.into())),
            ("source", Some(one.source.into())),
            ("level", one.level.map(Value::from)),
            ("text", Some(one.text.into())),
        ])
    });
    object([
        ("target", Some(m.target.as_str().into())),
        ("workload", Some(m.workload.as_str().into())),
        ("round", Some(m.round.into())),
        ("started_at_ms", Some(m.started_at_ms.into())),
        ("gaps", episode.gaps.as_ref().map(|gaps| gaps.iter().map(gap).collect())),
        (
            "stalled",
            episode
                .longest_gap()
                .and_then(|gap| episode.origin(gap))
                .map(|origin| origin.sights.iter().map(stalled).collect()),
        ),
        (
            "stood_still",
            episode.longest_gap().and_then(|gap| episode.origin(gap)?.stood).map(|stood| {
                object([("at_ns", Some(stood.at_ns.into())), ("duration_ns", Some(stood.duration_ns.into()))])
            }),
        ),
        ("late", Some(episode.late.into())),
        ("failed", Some(episode.failed.into())),
        ("lost", episode.lost.map(Value::from)),
        ("whole", Some(episode.is_whole.into())),
        ("events", Some(episode.effects.iter().map(event).collect())),
        ("requirements", Some(episode.verdicts.iter().map(requirement).collect())),
        ("timeouts", Some(episode.timeouts.iter().map(timeout).collect())),
        ("seen", filled(seen.collect())),
    ])
}

fn gap(gap: &Gap) -> Value {
    let of = match gap.of {
        Stalled::Reads => "reads",
        Stalled::Writes => "writes",
        Stalled::Flushes => "flushes",
        Stalled::RoundTrips => "round_trips",
        Stalled::Guest => "guest",
        Stalled::Machine => "machine",
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
        Recovery::Unknown(_) => (None, None),
        Recovery::Unaffected => (Some(0), None),
        Recovery::After(ns) => (Some(ns), None),
        Recovery::NotWithin(ns) => (None, Some(ns)),
    };
    let unknown = match effect.recovery {
        Recovery::Unknown(why) => Some(why.words().into()),
        Recovery::Unaffected | Recovery::After(_) | Recovery::NotWithin(_) => None,
    };
    object([
        ("name", Some(effect.name.into())),
        ("mark", effect.is_mark.then_some(true.into())),
        ("at_ns", Some(effect.at_ns.into())),
        ("duration_ns", effect.duration_ns.map(Value::from)),
        ("failure", effect.failure.map(Value::from)),
        ("unseen_ns", (effect.unseen_ns > 0).then(|| effect.unseen_ns.into())),
        ("failed", Some(effect.failed.into())),
        ("gap", effect.gap.as_ref().map(gap)),
        ("recovery_ns", recovery.map(Value::from)),
        ("not_recovered_within_ns", not_within.map(Value::from)),
        ("recovery_unknown", unknown),
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
        ("lower_bound", judged.is_bound.then_some(true.into())),
        ("verdict", Some(word.into())),
        ("reason", judged.reason.as_deref().map(Value::from)),
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
