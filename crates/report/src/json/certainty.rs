//! The JSON of percentiles, effects over the run, and series of intervals.

use serde_json::Value;

use super::{number, object};
use iotax_analysis::percentile::{name, needed};
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::series::Series;
use iotax_analysis::{Drift, Effects, Percentile};

/// One percentile of a cell; if it is unknown, the number of I/Os that it needs.
pub(super) fn percentile(percentile: &Percentile) -> Value {
    let value = percentile.value;
    let needed = value.is_none().then(|| needed(percentile.q).into());
    object([
        ("name", Some(name(percentile.q).into())),
        ("q", number(Some(percentile.q))),
        ("ios", Some(percentile.ios.into())),
        ("needed_ios", needed),
        ("ns", number(value.map(|value| value.ns))),
        ("of_ios_ns", value.map(|value| ends(value.of_ios))),
        ("over_rounds_ns", value.and_then(|value| value.over_rounds).map(ends)),
    ])
}

pub(super) fn effects(effects: &Effects) -> Value {
    let furthest =
        object([("round", Some(effects.furthest.into())), ("change", number(Some(effects.furthest_by)))]);
    object([
        ("workload", Some(effects.workload.as_str().into())),
        ("metric", Some(effects.metric.word().into())),
        ("rounds", Some(effects.rounds.into())),
        ("round_sd", number(Some(effects.spread))),
        ("round_p", number(effects.rounds_p)),
        ("furthest", Some(furthest)),
        ("rest_sd", number(effects.rest)),
        ("drift", effects.drift.map(drift)),
    ])
}

fn drift(drift: Drift) -> Value {
    object([
        ("change", number(Some(drift.change))),
        ("low", number(Some(drift.interval.low))),
        ("high", number(Some(drift.interval.high))),
        ("p", number(Some(drift.p))),
    ])
}

pub(super) fn series(series: &Series) -> Value {
    let warm_up = series.warm_up.map(|warm_up| {
        object([
            ("duration_s", number(Some(warm_up.ns as f64 / 1e9))),
            ("ratio", number(Some(warm_up.ratio))),
            ("unsettled", Some(warm_up.unsettled.into())),
        ])
    });
    object([
        ("intervals", Some(series.intervals.into())),
        ("autocorrelation", number(Some(series.autocorrelation))),
        ("effective", number(Some(series.effective))),
        ("warm_up", warm_up),
    ])
}

fn ends(interval: Interval) -> Value {
    object([("low", number(Some(interval.low))), ("high", number(Some(interval.high)))])
}
