//! How far figures can be trusted.

use serde_json::Value;

use super::{number, object};
use crate::judge::Percentile;
use crate::judge::percentile::{name, needed};
use crate::stats::paired::Interval;

/// One percentile of a cell, or how many I/Os it would have needed.
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
        ("over_blocks_ns", value.and_then(|value| value.over_blocks).map(ends)),
    ])
}

fn ends(interval: Interval) -> Value {
    object([("low", number(Some(interval.low))), ("high", number(Some(interval.high)))])
}
