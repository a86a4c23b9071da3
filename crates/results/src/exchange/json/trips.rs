//! The document `iotax-ping/1`, whose JSON Schema is `crates/results/schema/iotax-ping-1.schema.json`.

use iotax_model::histogram::Histogram;
use iotax_model::net::Traffic;
use iotax_model::record::ErrorCount;
use serde_json::{Value, json};

use super::{filled, number, object};
use crate::mark::Mark;
use crate::report::document::Trips;
use crate::report::document::trips::QUANTILES;

/// The value of `schema`; its number rises as that of `iotax/1` does.
pub const SCHEMA: &str = "iotax-ping/1";

/// By what a file is known as such a document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Round trips with a host. Times are nanoseconds; of each there are `min`, `mean`, `p50`, `p90`, `p99`, `p99_9`, `max`, `mdev` (the
/// standard deviation; of `round_trip_ns` only), and the `histogram` as [lowest value, width, count] of each bucket that holds any.
/// `response_ns` is from the intended start, and only there for a stated rate.
#[must_use]
pub fn document(host: &str, asked: &Traffic, length: u64, all: &[Trips]) -> Value {
    object([
        ("schema", Some(SCHEMA.into())),
        ("host", Some(host.into())),
        ("test", Some(asked.test.word().into())),
        ("length_bytes", Some(length.into())),
        ("rate_per_s", asked.rate.map(Into::into)),
        ("busy_poll_ns", asked.busy_poll.map(|time| time.0.into())),
        ("measurements", Some(all.iter().map(measurement).collect())),
    ])
}

fn measurement(trips: &Trips) -> Value {
    let outcome = &trips.outcome;
    let probes = outcome.carried.as_ref().and_then(|carried| carried.probes);
    let tally = trips.tally().filter(|tally| tally.ios > 0);
    let response = tally.and_then(|tally| tally.response.as_ref());
    let [up, down] = trips.load_bits();
    let load = (up.is_some() || down.is_some())
        .then(|| object([("up_bits_per_s", number(up)), ("down_bits_per_s", number(down))]));
    object([
        ("name", Some(trips.name.as_str().into())),
        ("duration_ns", Some(outcome.duration_ns.into())),
        ("sent", probes.map(|probes| probes.sent.into())),
        ("received", probes.map(|probes| probes.received.into())),
        ("lost", probes.map(|probes| probes.sent.saturating_sub(probes.received).into())),
        ("duplicates", probes.map(|probes| probes.duplicates.into())),
        ("out_of_order", probes.map(|probes| probes.out_of_order.into())),
        ("round_trip_ns", tally.map(|tally| times(&tally.latency, trips.mdev_ns()))),
        ("response_ns", response.map(|response| times(response, None))),
        ("load", load),
        ("cpu_user_ns", Some(outcome.cpu.user_ns.into())),
        ("cpu_system_ns", Some(outcome.cpu.system_ns.into())),
        ("errors", filled(outcome.errors.iter().map(error).collect())),
        ("notes", filled(outcome.notes.iter().map(|note| note.as_str().into()).collect())),
    ])
}

fn times(of: &Histogram, mdev_ns: Option<u64>) -> Value {
    let [p50, p90, p99, p99_9] = QUANTILES.map(|(_, q)| number(of.quantile(q)));
    object([
        ("min", of.min().map(Into::into)),
        ("mean", number(of.mean())),
        ("p50", p50),
        ("p90", p90),
        ("p99", p99),
        ("p99_9", p99_9),
        ("max", of.max().map(Into::into)),
        ("mdev", mdev_ns.map(Into::into)),
        ("histogram", Some(of.bars().map(|(edge, width, count)| json!([edge, width, count])).collect())),
    ])
}

fn error(error: &ErrorCount) -> Value {
    json!({ "error": error.error, "direction": error.direction, "count": error.count })
}
