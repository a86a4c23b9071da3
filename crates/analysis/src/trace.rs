//! Profiles a trace in one pass over its events, in bounded memory.

mod distinct;
mod hot;
mod lru_stack;
mod reuse;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use iotax_model::trace::{SequentialStreams, TraceSummary, TracedIo, TracedOperation};
use schemars::JsonSchema;
use serde::Serialize;

use self::distinct::Distinct;
use self::hot::HotCounter;
pub use self::hot::{HotAreas, HotShare};
pub use self::reuse::{CacheHits, HitShare, Reuse};
use self::reuse::{Kind, ReuseCounter};

/// Block size of the working set, in bytes.
const BLOCK: u64 = 4096;
/// Maximum number of distinct I/O lengths, and of queues, that are counted.
const LENGTHS: usize = 4096;
/// Maximum number of I/Os in flight that are tracked.
const MOST_IN_FLIGHT: usize = 1 << 16;
/// Window over which the peak rate is computed, in nanoseconds.
const PEAK_NS: u64 = 100_000_000;
/// Minimum share of I/Os with a recorded completion at which the depth is computed: a recording may end while some I/Os are in flight.
const COMPLETE: f64 = 0.99;
/// Maximum number of I/O lengths listed in the profile.
const LISTED: usize = 6;
/// Maximum number of 4 KiB blocks per I/O that count toward the working set and the reuse: 64 MiB.
const MOST_BLOCKS: u64 = 1 << 14;

/// An I/O length and its share among reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct LengthShare {
    /// The length in bytes.
    pub bytes: u64,
    /// Share of reads and writes with this length, 0 to 1.
    pub share: f64,
}

/// The characteristics of a trace. Rates are averages over its duration; unknown values are absent.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TraceProfile {
    /// Number of reads in the trace.
    pub reads: u64,
    /// Number of writes in the trace.
    pub writes: u64,
    /// Number of trims in the trace.
    pub trims: u64,
    /// Number of flushes in the trace.
    pub flushes: u64,
    /// Number of writes with FUA, each durable without a flush.
    pub fua: u64,
    /// Time from the first I/O issued to the last, in seconds.
    pub duration_s: f64,
    /// Number of bytes that the trace's reads transferred.
    pub read_bytes: u64,
    /// Number of bytes that the trace's writes transferred.
    pub written_bytes: u64,
    /// I/Os of all kinds per second; absent if the duration is 0.
    pub ios_per_s: Option<f64>,
    /// I/Os of all kinds per second in the busiest tenth of a second; absent for shorter traces.
    pub peak_ios_per_s: Option<f64>,
    /// Standard deviation of the gaps between I/Os divided by their mean: 1 for random arrivals, more for bursts. Absent for fewer than
    /// three I/Os, or if all gaps are 0.
    pub gap_variation: Option<f64>,
    /// The most frequent lengths of reads and writes: up to six, the most frequent first.
    pub lengths: Vec<LengthShare>,
    /// Length in bytes of the longest read or write; those longer than 64 MiB do not count.
    pub longest: u64,
    /// Share of reads and writes that begin where an earlier one ended, 0 to 1; the last 64 ends are remembered. Absent for fewer than two
    /// reads and writes.
    pub sequential: Option<f64>,
    /// Bytes of distinct 4 KiB blocks read or written, estimated to within 3%. Only the first 64 MiB of each I/O count.
    pub working_set: u64,
    /// Highest offset at which an I/O ends, in bytes.
    pub reach: u64,
    /// Shares of the reads and writes that would hit caches of different sizes. All volumes count as one, as in a replay.
    pub reuse: Reuse,
    /// Concentration of the I/Os on the busiest regions.
    pub hot: HotAreas,
    /// Mean number of I/Os in flight; absent if more than 1% of the I/Os have no completion, or if the duration is 0.
    pub mean_depth: Option<f64>,
    /// Highest number of I/Os in flight, counted up to 65,536; absent if more than 1% of the I/Os have no completion.
    pub max_depth: Option<u64>,
    /// Mean time in seconds from issue to completion of the I/Os with a completion; absent if there are none.
    pub mean_latency_s: Option<f64>,
    /// Number of queues or volumes that the trace distinguishes, counted up to 4,096.
    pub queues: usize,
}

/// Profiler of a trace, fed event by event.
#[derive(Debug, Default)]
pub struct Profiler {
    summary: TraceSummary,
    fua: u64,
    read_bytes: u64,
    written_bytes: u64,
    last_ns: Option<u64>,
    gaps: Gaps,
    busiest: u64,
    recent: VecDeque<u64>,
    lengths: BTreeMap<u64, u64>,
    streams: SequentialStreams,
    sequential: u64,
    blocks: Distinct,
    reuse: ReuseCounter,
    hot: HotCounter,
    in_flight: BinaryHeap<Reverse<u64>>,
    max_depth: u64,
    latency_ns: u128,
    completed: u64,
    queues: std::collections::BTreeSet<u32>,
}

/// Sums over the times between consecutive I/Os, in nanoseconds, from which the coefficient of variation is computed.
#[derive(Debug, Default)]
struct Gaps {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Profiler {
    /// Adds a traced I/O; events must be in order of time.
    pub fn add(&mut self, event: &TracedIo) {
        self.summary.add(event);
        self.time(event.at_ns);
        if let Some(queue) = event.queue.filter(|_| self.queues.len() < LENGTHS) {
            self.queues.insert(queue);
        }
        if let Some(latency) = event.latency_ns {
            self.latency_ns += u128::from(latency);
            self.completed += 1;
            self.depth(event.at_ns, latency);
        }
        let kind = match event.operation {
            TracedOperation::Read => {
                self.read_bytes = self.read_bytes.saturating_add(event.length);
                Kind::Read
            }
            TracedOperation::Write => {
                self.written_bytes = self.written_bytes.saturating_add(event.length);
                self.fua += u64::from(event.fua);
                Kind::Write
            }
            TracedOperation::Trim | TracedOperation::Flush => return,
        };
        if self.lengths.len() < LENGTHS || self.lengths.contains_key(&event.length) {
            *self.lengths.entry(event.length).or_default() += 1;
        }
        self.add_io(kind, event);
    }

    fn time(&mut self, at_ns: u64) {
        if let Some(last) = self.last_ns {
            let gap = at_ns.saturating_sub(last) as f64;
            self.gaps.count += 1.0;
            self.gaps.sum += gap;
            self.gaps.squares += gap * gap;
        }
        self.last_ns = Some(at_ns);
        self.recent.push_back(at_ns);
        while self.recent.front().is_some_and(|first| at_ns - first.min(&at_ns) >= PEAK_NS) {
            self.recent.pop_front();
        }
        // The window counts at most this many I/Os.
        if self.recent.len() > 1 << 20 {
            self.recent.pop_front();
        }
        self.busiest = self.busiest.max(self.recent.len() as u64);
    }

    fn depth(&mut self, at_ns: u64, latency_ns: u64) {
        while self.in_flight.peek().is_some_and(|Reverse(done)| *done <= at_ns) {
            self.in_flight.pop();
        }
        if self.in_flight.len() < MOST_IN_FLIGHT {
            self.in_flight.push(Reverse(at_ns.saturating_add(latency_ns)));
        }
        self.max_depth = self.max_depth.max(self.in_flight.len() as u64);
    }

    fn add_io(&mut self, kind: Kind, event: &TracedIo) {
        let end = event.offset.saturating_add(event.length);
        self.sequential += u64::from(self.streams.add(event.offset, event.length));
        self.hot.add(kind, event.offset);
        let first = event.offset / BLOCK;
        for block in first..end.div_ceil(BLOCK).min(first.saturating_add(MOST_BLOCKS)) {
            self.blocks.add(block);
            self.reuse.add(kind, block);
        }
    }

    /// Returns the summary from which a replay is planned: counts, duration, longest I/O and highest offset.
    #[must_use]
    pub const fn summary(&self) -> &TraceSummary {
        &self.summary
    }

    /// Returns the profile of all events added so far.
    #[must_use]
    pub fn profile(&self) -> TraceProfile {
        let TraceSummary { reads, writes, trims, flushes, duration_ns, longest, reach, .. } = self.summary;
        let duration_s = duration_ns as f64 / 1e9;
        let data = reads + writes;
        let share = |count: u64| count as f64 / data as f64;
        let mut lengths: Vec<(u64, u64)> =
            self.lengths.iter().map(|(bytes, count)| (*bytes, *count)).collect();
        lengths.sort_by_key(|(bytes, count)| (Reverse(*count), *bytes));
        let lasts = duration_ns > 0;
        let ios = self.summary.ios();
        let mean_latency_ns = (self.completed > 0).then(|| self.latency_ns as f64 / self.completed as f64);
        let knows_depth = self.completed > 0 && self.completed as f64 >= COMPLETE * ios as f64;
        // By Little's law, the mean depth is the mean latency times the rate.
        let depth = |latency_ns: f64| latency_ns * ios as f64 / duration_ns as f64;
        TraceProfile {
            reads,
            writes,
            trims,
            flushes,
            fua: self.fua,
            duration_s,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            ios_per_s: lasts.then(|| (ios - 1) as f64 / duration_s),
            peak_ios_per_s: (duration_ns >= PEAK_NS).then(|| self.busiest as f64 * 1e9 / PEAK_NS as f64),
            gap_variation: self.gaps.variation(),
            lengths: lengths
                .into_iter()
                .take(LISTED)
                .map(|(bytes, count)| LengthShare { bytes, share: share(count) })
                .collect(),
            longest,
            sequential: (data > 1).then(|| share(self.sequential)),
            working_set: self.blocks.estimate().saturating_mul(BLOCK),
            reach,
            reuse: self.reuse.reuse(),
            hot: self.hot.areas(),
            mean_depth: mean_latency_ns.filter(|_| knows_depth && lasts).map(depth),
            max_depth: knows_depth.then_some(self.max_depth),
            mean_latency_s: mean_latency_ns.map(|ns| ns / 1e9),
            queues: self.queues.len(),
        }
    }
}

impl Gaps {
    fn variation(&self) -> Option<f64> {
        let mean = self.sum / self.count;
        let variance = (self.squares / self.count - mean * mean).max(0.0);
        (self.count >= 2.0 && mean > 0.0).then(|| variance.sqrt() / mean)
    }
}

#[cfg(test)]
mod tests;
