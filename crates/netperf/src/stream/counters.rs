//! The counters of a running stream.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Settings;
use super::pace::Pace;

/// Minimum length of a gap in nanoseconds; for a stream with a low bit rate, [`Counters::shortest`] is more.
const SHORTEST_GAP_NS: u64 = 10_000_000;
/// Number of gaps kept per stream: the longest ones.
const KEPT: usize = 10;

/// Counters of one end of a stream since its start. One thread writes them; others may read at any time. Each number is consistent, but two
/// numbers read one after the other may not belong to the same moment. The alignment keeps each stream's counters on separate cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    bytes: AtomicU64,
    packets: AtomicU64,
    lost: AtomicU64,
    out_of_order: AtomicU64,
    duplicates: AtomicU64,
    jitter_ns: AtomicU64,
    first_arrival: AtomicU64,
    last_arrival: AtomicU64,
    /// Start of the window in nanoseconds of the engine's clock; gaps before it do not count. 0 before the end of a warm-up, and without
    /// one.
    begin: AtomicU64,
    /// Three times the expected nanoseconds between arrivals; 0 without a bit rate. A gap is at least that long, and at least 10 ms.
    shortest: AtomicU64,
    /// The [`SendMethod`] as a number; 0 as long as it is unknown.
    method: AtomicU8,
    gaps: Mutex<Vec<GapSpan>>,
}

/// The values of [`Counters`] at one moment, or the difference of two such values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Bytes that the kernel accepted from the sender, or that the receiver read. For UDP, they include duplicates and the header in each payload.
    pub(crate) bytes: u64,
    /// Datagrams sent, or received without duplicates. 0 for TCP, whose segments only the kernel counts ([`super::tcp_info`]).
    pub(crate) packets: u64,
    /// Datagrams that have not arrived although a later one has. `packets + lost` is the minimum number sent.
    pub(crate) lost: u64,
    /// Datagrams that arrived after a later one, each counted once.
    pub(crate) out_of_order: u64,
    /// Datagrams that arrived more than once, each repetition counted.
    pub(crate) duplicates: u64,
    /// Interarrival jitter in nanoseconds (RFC 3550, section 6.4.1). It is the current value even in a difference of two snapshots.
    pub(crate) jitter_ns: u64,
}

/// The way datagrams are passed between program and kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMethod {
    /// Many separate datagrams per call (sendmmsg, recvmmsg).
    Many = 1,
    /// Several datagrams in one buffer, which the kernel splits (UDP_SEGMENT) or has joined (UDP_GRO).
    Segmented = 2,
}

impl SendMethod {
    /// Describes the method in words, for sent or received datagrams.
    pub(crate) const fn words(self, sends: bool) -> &'static str {
        match (self, sends) {
            (Self::Many, true) => "datagrams went to the kernel one by one (sendmmsg)",
            (Self::Many, false) => "datagrams came from the kernel one by one (recvmmsg)",
            (Self::Segmented, true) => {
                "datagrams went to the kernel joined, and it cut them apart (UDP_SEGMENT)"
            }
            (Self::Segmented, false) => "datagrams came from the kernel joined (UDP_GRO)",
        }
    }
}

/// A time without received data, in nanoseconds of [`iotax_load::clock::now`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GapSpan {
    /// Time of the last arrival before the gap, or the start of the window if that is later.
    pub(crate) begin: u64,
    /// Time of the first arrival after the gap, or the end of the window if the gap still lasts then.
    pub(crate) end: u64,
    /// Bytes that were lost in the gap: the skipped sequence numbers times the bytes of a datagram; 0 for TCP, and for a gap that still
    /// lasts.
    pub(crate) lost_bytes: u64,
}

impl GapSpan {
    pub(crate) const fn duration(&self) -> u64 {
        self.end.saturating_sub(self.begin)
    }
}

impl Snapshot {
    /// Returns the difference to `earlier`. A count that fell, because a datagram counted as lost arrived late, gives 0. The losses of
    /// intervals may therefore add up to more than the total.
    pub(crate) const fn since(&self, earlier: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            packets: self.packets.saturating_sub(earlier.packets),
            lost: self.lost.saturating_sub(earlier.lost),
            out_of_order: self.out_of_order.saturating_sub(earlier.out_of_order),
            duplicates: self.duplicates.saturating_sub(earlier.duplicates),
            jitter_ns: self.jitter_ns,
        }
    }
}

impl Counters {
    /// Reads the current values.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Snapshot {
            bytes: read(&self.bytes),
            packets: read(&self.packets),
            lost: read(&self.lost),
            out_of_order: read(&self.out_of_order),
            duplicates: read(&self.duplicates),
            jitter_ns: read(&self.jitter_ns),
        }
    }

    /// Makes gaps count from `now` on and drops earlier ones, at the end of the warm-up. Without this call, the time before the first arrival
    /// is not a gap.
    pub(crate) fn begin(&self, now: u64) {
        let mut gaps = self.lock();
        self.begin.store(now, Ordering::Relaxed);
        gaps.clear();
    }

    /// Returns the longest gaps up to `end`, longest first, including a gap that still lasts at `end`.
    pub(crate) fn gaps(&self, end: u64) -> Vec<GapSpan> {
        let kept = self.lock().clone();
        let begin = self.begin.load(Ordering::Relaxed).max(self.last_arrival.load(Ordering::Relaxed));
        let mut found = Vec::new();
        for gap in kept.into_iter().chain([GapSpan { begin, end, lost_bytes: 0 }]) {
            keep(&mut found, GapSpan { end: gap.end.min(end), ..gap }, self.shortest());
        }
        found
    }

    /// Returns the time of the first arrival in nanoseconds of the engine's clock; `None` before that.
    pub(crate) fn first_arrival(&self) -> Option<u64> {
        Some(self.first_arrival.load(Ordering::Relaxed)).filter(|first| *first > 0)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<GapSpan>> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shortest(&self) -> u64 {
        self.shortest.load(Ordering::Relaxed).max(SHORTEST_GAP_NS)
    }

    /// Sets the minimum length of a gap to three times the interval between blocks at the stream's bit rate, but at least 10 ms.
    pub(super) fn expect_blocks(&self, settings: &Settings) {
        self.expect_every(settings.bitrate.map_or(0, |bitrate| Pace::gap_ns(bitrate, settings.length)));
    }

    /// Sets the minimum length of a gap to three times `gap_ns`, the expected nanoseconds between arrivals.
    fn expect_every(&self, gap_ns: u64) {
        self.shortest.store(gap_ns.saturating_mul(3), Ordering::Relaxed);
    }

    /// Returns the method that passes datagrams to or from the kernel; `None` for TCP, and before the first datagram.
    pub(crate) fn method(&self) -> Option<SendMethod> {
        match self.method.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(SendMethod::Many),
            _ => Some(SendMethod::Segmented),
        }
    }

    #[inline]
    pub(super) fn went(&self, method: SendMethod) {
        self.method.store(method as u8, Ordering::Relaxed);
    }

    /// Counts sent bytes, and the datagrams that contained them.
    #[inline]
    pub(super) fn sent(&self, bytes: u64, packets: u64) {
        add(&self.bytes, bytes);
        if packets > 0 {
            add(&self.packets, packets);
        }
    }

    /// Counts bytes received at `now` nanoseconds of the engine's clock. `lost_bytes` of the stream were lost before them.
    #[inline]
    pub(super) fn arrived(&self, bytes: u64, now: u64, lost_bytes: u64) {
        add(&self.bytes, bytes);
        let last = self.last_arrival.load(Ordering::Relaxed);
        self.last_arrival.store(now, Ordering::Relaxed);
        if now.saturating_sub(last) >= SHORTEST_GAP_NS {
            self.add_gap(last, now, lost_bytes);
        }
    }

    /// Records the gap between the last arrival and this one if it is long enough. Also records the time of the first arrival.
    #[cold]
    fn add_gap(&self, last: u64, now: u64, lost_bytes: u64) {
        if last == 0 {
            self.first_arrival.store(now, Ordering::Relaxed);
        }
        let mut gaps = self.lock();
        let begin = last.max(self.begin.load(Ordering::Relaxed));
        keep(&mut gaps, GapSpan { begin, end: now, lost_bytes }, self.shortest());
    }

    /// Copies the counts that `Sequence` derived from the datagrams' numbers and times.
    #[inline]
    pub(super) fn follow(&self, sequence: &super::sequence::Sequence) {
        self.packets.store(sequence.received(), Ordering::Relaxed);
        self.lost.store(sequence.lost(), Ordering::Relaxed);
        self.out_of_order.store(sequence.out_of_order(), Ordering::Relaxed);
        self.duplicates.store(sequence.duplicates(), Ordering::Relaxed);
        self.jitter_ns.store(sequence.jitter_ns(), Ordering::Relaxed);
    }
}

/// Adds to a counter. Only one thread may write the counter.
#[inline]
fn add(number: &AtomicU64, more: u64) {
    number.store(number.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Inserts a gap if it is among the longest. Ignores a gap that is too short or without a start.
fn keep(gaps: &mut Vec<GapSpan>, gap: GapSpan, shortest: u64) {
    if gap.begin == 0 || gap.duration() < shortest {
        return;
    }
    let at = gaps.partition_point(|other| other.duration() >= gap.duration());
    gaps.insert(at, gap);
    gaps.truncate(KEPT);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn gaps_of(counters: &Counters, end: u64) -> Vec<(u64, u64, u64)> {
        let found = counters.gaps(end * MS);
        found.iter().map(|one| (one.begin / MS, one.duration() / MS, one.lost_bytes)).collect()
    }

    #[test]
    fn gaps_are_told_with_what_was_lost_from_the_window_on() {
        let counters = Counters::default();
        counters.arrived(1, 100 * MS, 0);
        counters.arrived(1, 900 * MS, 0);
        assert_eq!(gaps_of(&counters, 901), [(100, 800, 0)], "from the first arrival on");
        counters.begin(1_000 * MS);
        for (at, lost) in [(1_030, 7), (1_039, 0), (1_100, 3)] {
            counters.arrived(1, at * MS, lost);
        }
        assert_eq!(gaps_of(&counters, 1_105), [(1_039, 61, 3), (1_000, 30, 7)]);
        assert_eq!(
            gaps_of(&counters, 2_000),
            [(1_100, 900, 0), (1_039, 61, 3), (1_000, 30, 7)],
            "one goes on"
        );
        assert_eq!(gaps_of(&counters, 1_060), [(1_000, 30, 7), (1_039, 21, 3)], "cut off at the end");
        counters.begin(1_200 * MS);
        assert_eq!(gaps_of(&counters, 1_250), [(1_200, 50, 0)], "no arrival yet");
    }

    #[test]
    fn the_ten_longest_gaps_are_kept() {
        let counters = Counters::default();
        counters.begin(MS);
        let mut now = MS;
        for length in (20..50).chain((50..80).rev()) {
            now += length * MS;
            counters.arrived(1, now, 0);
        }
        let durations: Vec<u64> = counters.gaps(now).iter().map(|one| one.duration() / MS).collect();
        assert_eq!(durations, (70..80).rev().collect::<Vec<_>>());
    }

    #[test]
    fn what_comes_seldom_leaves_no_gap() {
        let counters = Counters::default();
        counters.expect_every(20 * MS);
        counters.begin(MS);
        for at in [21, 41, 100, 161] {
            counters.arrived(1, at * MS, 0);
        }
        assert_eq!(gaps_of(&counters, 162), [(100, 61, 0)]);
    }

    #[test]
    fn what_was_gained_never_runs_backwards() {
        let earlier = Snapshot { bytes: 10, packets: 5, lost: 4, jitter_ns: 3, ..Snapshot::default() };
        let later = Snapshot { bytes: 30, packets: 9, lost: 2, jitter_ns: 2, ..earlier };
        let gained = Snapshot { bytes: 20, packets: 4, jitter_ns: 2, ..Snapshot::default() };
        assert_eq!(later.since(&earlier), gained);
    }
}
