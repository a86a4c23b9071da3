//! Parts that the document uses in several places.

use iotax_model::Histogram;
use iotax_model::record::{BlockStats, BlockTally, Measurement, Share, Tallies, Tally};
use serde_json::Value;

use super::{filled, number, object};
use iotax_analysis::figures::bottom_of;
use iotax_analysis::latency_breakdown::quantile;
use iotax_analysis::percentile::percentile;
use iotax_model::Run;

fn per_second(count: u64, duration_ns: u64) -> Option<Value> {
    (duration_ns > 0).then(|| number(Some(count as f64 / (duration_ns as f64 / 1e9)))).flatten()
}

/// Adds a key for each direction with a tally.
pub(super) fn add_directions(told: &mut Value, tallies: &Tallies, duration_ns: u64) {
    for (word, tally) in tallies.each() {
        if let Some(tally) = tally {
            told[word] = direction(tally, duration_ns);
        }
    }
}

fn direction(tally: &Tally, duration_ns: u64) -> Value {
    object([
        ("ios", Some(tally.ios.into())),
        ("bytes", Some(tally.bytes.into())),
        ("iops", per_second(tally.ios, duration_ns)),
        ("bytes_per_s", per_second(tally.bytes, duration_ns)),
        ("latency_ns", latency(&tally.latency)),
        ("response_ns", tally.response.as_ref().and_then(latency)),
    ])
}

/// Mean, deviation, extremes and percentiles; absent without I/O.
pub(super) fn latency(histogram: &Histogram) -> Option<Value> {
    (histogram.count() > 0).then(|| {
        object([
            ("mean", number(histogram.mean())),
            ("stddev", number(histogram.stddev())),
            ("min", histogram.min().map(Value::from)),
            ("max", histogram.max().map(Value::from)),
            ("p50", number(percentile(histogram, 0.5))),
            ("p90", number(percentile(histogram, 0.9))),
            ("p99", number(percentile(histogram, 0.99))),
            ("p99_9", number(percentile(histogram, 0.999))),
            ("p99_99", number(percentile(histogram, 0.9999))),
        ])
    })
}

/// The share of one of several concurrent guests, jobs or neighbours.
pub(super) fn share(share: &Share) -> Value {
    let mut told = object([
        ("name", Some(share.name.as_str().into())),
        ("duration_s", number(Some(share.duration_ns as f64 / 1e9))),
        ("iops", per_second(share.tallies.ios(), share.duration_ns)),
        ("bytes_per_s", per_second(share.tallies.bytes(), share.duration_ns)),
    ]);
    add_directions(&mut told, &share.tallies, share.duration_ns);
    told
}

/// The counters of QEMU's block layer.
pub(super) fn block_stats(stats: &BlockStats) -> Value {
    object([
        ("read", Some(block_tally(&stats.read))),
        ("write", Some(block_tally(&stats.write))),
        ("flush", Some(block_tally(&stats.flush))),
    ])
}

fn block_tally(tally: &BlockTally) -> Value {
    let bin = |(below, count): &(Option<u64>, u64)| {
        object([("below_ns", below.map(Value::from)), ("count", Some((*count).into()))])
    };
    let mean = (tally.ios > 0).then(|| tally.total_ns as f64 / tally.ios as f64);
    object([
        ("ios", Some(tally.ios.into())),
        ("bytes", Some(tally.bytes.into())),
        ("mean_ns", number(mean)),
        ("p50_ns", number(quantile(&tally.latency, 0.5))),
        ("p99_ns", number(quantile(&tally.latency, 0.99))),
        ("bins", filled(tally.latency.iter().map(bin).collect())),
    ])
}

/// The flush after the window, and the bytes that the bottom devices wrote during it; absent without a flush.
pub(super) fn flush(run: &Run, m: &Measurement) -> Option<Value> {
    let duration_ns = m.outcome.flush_ns?;
    let flushed = m.machine().map(|machine| &machine.flushed).filter(|flushed| !flushed.is_empty());
    let bytes =
        flushed.map(|disks| bottom_of(run, &m.target, disks).map(|(_, disk)| disk.write_bytes).sum::<u64>());
    Some(object([("duration_ns", Some(duration_ns.into())), ("device_bytes", bytes.map(Value::from))]))
}
