//! Types that several documents share.

use iotax_analysis::figures::bottom_of;
use iotax_analysis::latency_breakdown::quantile;
use iotax_analysis::percentile::percentile;
use iotax_model::record::{BlockStats, BlockTally, Measurement, Share, Tallies, Tally};
use iotax_model::{Histogram, Run};
use schemars::JsonSchema;
use serde::Serialize;

/// I/Os by direction. A direction that the workload does not use is absent.
#[derive(Serialize, JsonSchema)]
pub(super) struct Directions {
    read: Option<DirectionEntry>,
    write: Option<DirectionEntry>,
    trim: Option<DirectionEntry>,
    /// Flushes: fsync and fdatasync.
    sync: Option<DirectionEntry>,
    /// Metadata operations, such as create, open, stat, rename and unlink; for a database, its transactions.
    meta: Option<DirectionEntry>,
}

#[derive(Serialize, JsonSchema)]
struct DirectionEntry {
    ios: u64,
    bytes: u64,
    iops: Option<f64>,
    bytes_per_s: Option<f64>,
    latency_ns: Option<Latencies>,
    /// Times from when an I/O was due to its completion; absent in a closed loop.
    response_ns: Option<Latencies>,
}

/// Times from submission to completion, or in `response_ns` from when an I/O was due. A percentile with fewer than ten values beyond it is
/// absent.
#[derive(Serialize, JsonSchema)]
pub(super) struct Latencies {
    #[schemars(required)]
    pub(super) mean: Option<f64>,
    #[schemars(required)]
    stddev: Option<f64>,
    #[schemars(required)]
    min: Option<u64>,
    #[schemars(required)]
    max: Option<u64>,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p99_9: Option<f64>,
    p99_99: Option<f64>,
}

/// Results of one of several concurrent guests, servers or jobs, or of a neighbour.
#[derive(Serialize, JsonSchema)]
pub(super) struct ShareEntry<'a> {
    name: &'a str,
    duration_s: f64,
    iops: Option<f64>,
    bytes_per_s: Option<f64>,
    #[serde(flatten)]
    directions: Directions,
}

/// Counters of QEMU's block layer for a guest's disk.
#[derive(Serialize, JsonSchema)]
pub(super) struct BlockStatsEntry {
    read: BlockTallyEntry,
    write: BlockTallyEntry,
    flush: BlockTallyEntry,
}

#[derive(Serialize, JsonSchema)]
struct BlockTallyEntry {
    ios: u64,
    bytes: u64,
    mean_ns: Option<f64>,
    /// Median, interpolated within its bin; absent without bins, without I/O, or if it lies in the last bin.
    p50_ns: Option<f64>,
    /// 99th percentile, interpolated within its bin; absent without bins, without I/O, or if it lies in the last bin.
    p99_ns: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bins: Vec<BinEntry>,
}

/// A bin of a histogram; the last bin has no upper bound.
#[derive(Serialize, JsonSchema)]
struct BinEntry {
    below_ns: Option<u64>,
    count: u64,
}

/// The flush after the measured window.
#[derive(Serialize, JsonSchema)]
pub(super) struct FlushEntry {
    duration_ns: u64,
    /// Bytes that the devices at the bottom of the stack wrote during the flush; absent if unknown.
    device_bytes: Option<u64>,
}

fn per_second(count: u64, duration_ns: u64) -> Option<f64> {
    (duration_ns > 0).then(|| count as f64 / (duration_ns as f64 / 1e9))
}

pub(super) fn directions(tallies: &Tallies, duration_ns: u64) -> Directions {
    let direction = |tally: &Option<Tally>| tally.as_ref().map(|tally| direction(tally, duration_ns));
    Directions {
        read: direction(&tallies.read),
        write: direction(&tallies.write),
        trim: direction(&tallies.trim),
        sync: direction(&tallies.sync),
        meta: direction(&tallies.meta),
    }
}

fn direction(tally: &Tally, duration_ns: u64) -> DirectionEntry {
    DirectionEntry {
        ios: tally.ios,
        bytes: tally.bytes,
        iops: per_second(tally.ios, duration_ns),
        bytes_per_s: per_second(tally.bytes, duration_ns),
        latency_ns: latency(&tally.latency),
        response_ns: tally.response.as_ref().and_then(latency),
    }
}

/// Returns mean, standard deviation, extremes and percentiles of latencies; `None` without I/O.
pub(super) fn latency(histogram: &Histogram) -> Option<Latencies> {
    (histogram.count() > 0).then(|| Latencies {
        mean: histogram.mean(),
        stddev: histogram.stddev(),
        min: histogram.min(),
        max: histogram.max(),
        p50: percentile(histogram, 0.5),
        p90: percentile(histogram, 0.9),
        p99: percentile(histogram, 0.99),
        p99_9: percentile(histogram, 0.999),
        p99_99: percentile(histogram, 0.9999),
    })
}

pub(super) fn share(share: &Share) -> ShareEntry<'_> {
    ShareEntry {
        name: &share.name,
        duration_s: share.duration_ns as f64 / 1e9,
        iops: per_second(share.tallies.ios(), share.duration_ns),
        bytes_per_s: per_second(share.tallies.bytes(), share.duration_ns),
        directions: directions(&share.tallies, share.duration_ns),
    }
}

pub(super) fn block_stats(stats: &BlockStats) -> BlockStatsEntry {
    BlockStatsEntry {
        read: block_tally(&stats.read),
        write: block_tally(&stats.write),
        flush: block_tally(&stats.flush),
    }
}

fn block_tally(tally: &BlockTally) -> BlockTallyEntry {
    let bins = tally.latency.iter().map(|(below_ns, count)| BinEntry { below_ns: *below_ns, count: *count });
    BlockTallyEntry {
        ios: tally.ios,
        bytes: tally.bytes,
        mean_ns: (tally.ios > 0).then(|| tally.total_ns as f64 / tally.ios as f64),
        p50_ns: quantile(&tally.latency, 0.5),
        p99_ns: quantile(&tally.latency, 0.99),
        bins: bins.collect(),
    }
}

/// Returns the duration of the flush after the measured window, and the bytes that the devices wrote during it; `None` without a flush.
pub(super) fn flush(run: &Run, m: &Measurement) -> Option<FlushEntry> {
    let duration_ns = m.outcome.flush_ns?;
    let flushed = m.machine().map(|machine| &machine.flushed).filter(|flushed| !flushed.is_empty());
    let device_bytes =
        flushed.map(|disks| bottom_of(run, &m.target, disks).map(|(_, disk)| disk.write_bytes).sum::<u64>());
    Some(FlushEntry { duration_ns, device_bytes })
}
