//! Decides when a worker starts its I/Os: rate limits, think times and replays.

mod recorded;

use iotax_model::record::Pacing;
use iotax_model::workload::{RateProcess, Workload};

pub use self::recorded::{Recorded, TraceCounts, TraceTimes};
use crate::random::{Purpose, SplitMix64};
use crate::window::Window;

/// The pacing of a worker. A worker that starts the next I/O as soon as a slot is free has no `Pace`.
#[derive(Debug)]
pub enum Pace {
    /// A closed loop that pauses (`thinktime`) after every `every` I/Os.
    Think {
        /// Length of a pause in nanoseconds.
        pause: u64,
        /// Number of I/Os between two pauses.
        every: u64,
        /// Number of I/Os left until the next pause.
        left: u64,
        /// Earliest start of the next I/O, in nanoseconds of the engine's clock; `u64::MAX` until the I/Os before a pause are complete.
        due: u64,
    },
    /// An open loop at a target rate.
    Open(Schedule),
    /// A replay of a trace.
    Recorded(Box<Recorded>),
}

impl Pace {
    /// Creates the pacing of worker number `job`, for a load that starts with `window`; `None` for a closed loop without pauses.
    pub fn new(workload: &Workload, job: u32, seed: u64, window: Window) -> Option<Self> {
        if let Some(schedule) = Schedule::new(workload, job, seed, window) {
            return Some(Self::Open(schedule));
        }
        let every = workload.thinktime_blocks.unwrap_or(1);
        workload.thinktime.map(|pause| Self::Think { pause: pause.0, every, left: every, due: 0 })
    }

    /// Returns the earliest start of the next I/O, in nanoseconds of the engine's clock.
    #[inline]
    pub const fn due(&self) -> u64 {
        match self {
            Self::Think { due, .. } => *due,
            Self::Open(schedule) => schedule.due,
            Self::Recorded(recorded) => recorded.due(),
        }
    }

    /// Starts the next I/O, of `bytes` bytes. Returns its scheduled start; in a closed loop that is `now`.
    #[inline]
    pub fn take(&mut self, now: u64, bytes: u32) -> u64 {
        match self {
            Self::Think { every, left, due, .. } => {
                *left -= 1;
                if *left == 0 {
                    *left = *every;
                    // The pause begins when the last of these I/Os has completed.
                    *due = u64::MAX;
                }
                now
            }
            Self::Open(schedule) => schedule.take(now, bytes),
            // The worker calls `Recorded::take` for replays instead.
            Self::Recorded(recorded) => recorded.due(),
        }
    }

    /// Notifies the pacing that no I/O is in flight at `now`; a pause that waited for this begins.
    #[inline]
    pub const fn all_done(&mut self, now: u64) {
        if let Self::Think { pause, due: due @ u64::MAX, .. } = self {
            *due = now + *pause;
        }
    }

    /// Notifies the pacing that all slots of the worker were in use until `now`: I/Os that were due before count as delayed by the target.
    #[inline]
    pub const fn was_full(&mut self, now: u64) {
        match self {
            Self::Open(schedule) => schedule.full_until = now,
            Self::Recorded(recorded) => recorded.was_full(now),
            Self::Think { .. } => {}
        }
    }

    /// Returns how well the schedule of a fixed rate was kept, up to the earlier of the window's end and `now`; `None` for pauses and replays.
    /// With `exhausted`, no I/O was left to start, so none counts as missed.
    pub fn finish(self, now: u64, exhausted: bool) -> Option<Pacing> {
        match self {
            Self::Think { .. } | Self::Recorded(_) => None,
            Self::Open(schedule) if exhausted => Some(schedule.kept),
            Self::Open(schedule) => Some(schedule.finish(now)),
        }
    }
}

/// Scheduled start times of an open loop. They depend on the rate alone, not on when I/Os complete.
#[derive(Debug)]
pub struct Schedule {
    /// Time at which the next I/O is due, in whole nanoseconds; `rest` is the fraction of a nanosecond.
    due: u64,
    rest: f64,
    /// Nanoseconds from one I/O to the next, or per byte if `by_bytes` is set.
    gap: f64,
    by_bytes: bool,
    bs: u32,
    /// Generator of random gaps (Poisson); `None` for constant gaps.
    poisson: Option<SplitMix64>,
    window: Window,
    full_until: u64,
    kept: Pacing,
}

impl Schedule {
    fn new(workload: &Workload, job: u32, seed: u64, window: Window) -> Option<Self> {
        let (per_second, by_bytes) = match (workload.rate_iops, workload.rate) {
            (Some(ios), _) => (ios, false),
            (None, Some(bytes)) => (bytes.0, true),
            (None, None) => return None,
        };
        let gap = 1e9 / per_second as f64;
        let poisson = (workload.rate_process == RateProcess::Poisson)
            .then(|| SplitMix64::new(seed, Purpose::Arrivals, job.into()));
        let bs = u32::try_from(workload.bs.0).unwrap_or(u32::MAX);
        let mut schedule = Self {
            due: window.start,
            rest: 0.0,
            gap,
            by_bytes,
            bs,
            poisson,
            window,
            full_until: 0,
            kept: Pacing::default(),
        };
        // Jobs that all started at the same time would issue their I/Os in bursts.
        let first = match schedule.poisson {
            None => schedule.step(bs) * f64::from(job) / f64::from(workload.numjobs),
            Some(_) => schedule.gap_after(bs),
        };
        schedule.advance(first);
        Some(schedule)
    }

    /// Returns the mean nanoseconds from an I/O of `bytes` bytes to the next.
    fn step(&self, bytes: u32) -> f64 {
        if self.by_bytes { self.gap * f64::from(bytes) } else { self.gap }
    }

    fn gap_after(&mut self, bytes: u32) -> f64 {
        let mean = self.step(bytes);
        match &mut self.poisson {
            // The inverse of the exponential distribution; the logarithm's argument is never 0.
            Some(random) => -mean * (1.0 - random.unit()).ln(),
            None => mean,
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a gap is not negative")]
    fn advance(&mut self, gap: f64) {
        // A floating-point sum would accumulate rounding errors.
        let gap = self.rest + gap;
        let whole = gap as u64;
        self.due += whole;
        self.rest = gap - whole as f64;
    }

    #[inline]
    fn take(&mut self, now: u64, bytes: u32) -> u64 {
        let intended = self.due;
        if self.is_measured(intended) {
            self.kept.due += 1;
        }
        if intended < self.full_until && self.is_measured(now) {
            self.kept.delayed += 1;
            self.kept.longest_delay_ns = self.kept.longest_delay_ns.max(now - intended);
        }
        let gap = self.gap_after(bytes);
        self.advance(gap);
        intended
    }

    const fn is_measured(&self, time: u64) -> bool {
        time >= self.window.begin && time < self.window.end
    }

    fn finish(mut self, now: u64) -> Pacing {
        let end = self.window.end.min(now);
        self.kept.backlog_ns = end.saturating_sub(self.due);
        // I/Os that did not begin have no known length, so each counts as one block. A random rate counts with its mean: drawing
        // each gap might take longer than the measurement.
        let gap = self.step(self.bs);
        let until = |time: u64| -> u64 {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
            let gaps = ((time.saturating_sub(self.due) as f64 - self.rest) / gap).ceil().max(0.0) as u64;
            gaps
        };
        self.kept.backlog = until(end);
        self.kept.due += self.kept.backlog - until(self.window.begin.min(end));
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::units::{Bytes, Nanos};
    use iotax_model::workload::WorkloadKeys;

    const SECOND: u64 = 1_000_000_000;

    fn schedule(keys: &WorkloadKeys, job: u32) -> Schedule {
        let workload = keys.complete(&WorkloadKeys::default());
        let window = Window { start: 0, begin: SECOND, end: 3 * SECOND, interval: SECOND };
        match Pace::new(&workload, job, 7, window) {
            Some(Pace::Open(schedule)) => schedule,
            other => panic!("{other:?}"),
        }
    }

    fn rate_iops(rate: u64, process: RateProcess) -> WorkloadKeys {
        WorkloadKeys { rate_iops: Some(rate), rate_process: Some(process), ..WorkloadKeys::default() }
    }

    #[test]
    fn even_starts_do_not_drift_and_jobs_take_turns() {
        let keys = WorkloadKeys { numjobs: Some(2), ..rate_iops(3, RateProcess::Linear) };
        let mut first = schedule(&keys, 0);
        let due: Vec<u64> = (0..4).map(|_| first.take(0, 4096)).collect();
        assert_eq!(due, [0, 333_333_333, 666_666_666, 999_999_999]);
        for _ in 0..3_000_000 {
            first.take(0, 4096);
        }
        assert!(first.due.abs_diff(1_000_001 * SECOND + SECOND / 3) < 1_000, "{}", first.due);
        assert_eq!(schedule(&keys, 1).due, 166_666_666);
    }

    #[test]
    fn a_rate_in_bytes_follows_each_length() {
        let keys = WorkloadKeys { rate: Some(Bytes(1000)), bs: Some(Bytes(512)), ..WorkloadKeys::default() };
        let mut bytes = schedule(&keys, 0);
        assert_eq!([100, 900, 1].map(|length| bytes.take(0, length)), [0, SECOND / 10, SECOND]);
    }

    /// Compares the gaps with the exponential distribution by the Kolmogorov-Smirnov statistic. Its critical value for
    /// many values is 1.63 / sqrt(n) at a level of 1%.
    #[test]
    fn gaps_at_random_are_exponential() {
        const N: u32 = 100_000;
        for seed in 0..5 {
            let mut random = schedule(&rate_iops(10_000, RateProcess::Poisson), seed);
            let mut last = random.take(0, 4096);
            let mut gaps: Vec<f64> = (0..N)
                .map(|_| {
                    let due = random.take(0, 4096);
                    let gap = (due - last) as f64;
                    last = due;
                    gap
                })
                .collect();
            gaps.sort_by(f64::total_cmp);
            let distance = (0..N)
                .zip(&gaps)
                .map(|(rank, gap)| {
                    let theory = 1.0 - (-gap / 100_000.0).exp();
                    let (below, at) = (f64::from(rank) / f64::from(N), f64::from(rank + 1) / f64::from(N));
                    (theory - below).abs().max((theory - at).abs())
                })
                .fold(0.0, f64::max);
            assert!(distance < 1.63 / f64::from(N).sqrt(), "seed {seed}: {distance}");
        }
    }

    #[test]
    fn what_waits_for_a_slot_and_what_never_begins_is_counted() {
        let mut late = schedule(&rate_iops(10, RateProcess::Linear), 0);
        // The warm-up counts nothing.
        for _ in 0..10 {
            late.take(SECOND / 2, 4096);
        }
        assert_eq!(late.kept, Pacing::default());
        // Every slot was in use until 1.55 s: I/Os due at 1.0 to 1.5 s waited; the next one did not.
        late.full_until = 1_550_000_000;
        for _ in 0..7 {
            late.take(1_600_000_000, 4096);
        }
        assert_eq!((late.kept.due, late.kept.delayed, late.kept.longest_delay_ns), (7, 6, 600_000_000));
        // Due at 1.7 to 2.9 s, and none began.
        let kept = late.finish(9 * SECOND);
        assert_eq!((kept.due, kept.backlog, kept.backlog_ns), (20, 13, 1_300_000_000));
    }

    #[test]
    fn pauses_come_after_so_many_ios() {
        let keys = WorkloadKeys {
            thinktime: Some(Nanos(500)),
            thinktime_blocks: Some(2),
            ..WorkloadKeys::default()
        };
        let window = Window { start: 0, begin: 0, end: SECOND, interval: SECOND };
        let workload = keys.complete(&WorkloadKeys::default());
        let mut pace = Pace::new(&workload, 0, 7, window).expect("paced");
        let mut due = Vec::new();
        for (begun, done) in [(10, 15), (20, 30), (530, 540), (545, 600)] {
            pace.take(begun, 4096);
            pace.all_done(done);
            due.push(pace.due());
        }
        // A pause counts from the completion of the last I/O before it.
        assert_eq!(due, [0, 530, 530, 1100]);
        assert_eq!(pace.finish(SECOND, false), None);
    }
}
