//! The client's worker: sends messages and times the replies.
//!
//! One thread does both. With a rate, messages are due on a schedule: the thread never waits for a reply while a message is due, and if it
//! sends late, for lack of CPU or socket buffer space, the delay is part of the response time. Without a rate, each reply makes the next
//! message due.

use std::io;
use std::num::NonZeroU64;
use std::sync::mpsc::Sender;

use iotax_model::record::Probes;
use iotax_model::workload::Workload;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::set_current_timer_slack;
use rustix::time::Timespec;

use super::in_flight::InFlightMessages;
use super::message::Message;
use super::transport::{Reply, Transport};
use iotax_load::blackouts::BlackoutRecorder;
use iotax_load::clock;
use iotax_load::error::EngineError;
use iotax_load::intervals::{IntervalRecorder, IntervalState};
use iotax_load::io_errors::IoErrors;
use iotax_load::latencies::Latencies;
use iotax_load::pace::Pace;
use iotax_load::request::{Io, IoKind};
use iotax_load::window::Window;
use iotax_load::workers::{DRAIN, Finish, WorkerContext, WorkerReport};

/// Nanoseconds after which a message counts as lost, even if its reply arrives later.
pub(super) const DEADLINE: u64 = 5_000_000_000;
/// Nanoseconds without a reply after which a closed loop sends the next message anyway. If the measurement is stopped early, unanswered
/// messages that were sent less than this before do not count.
const PATIENCE: u64 = 1_000_000_000;
/// Minimum time in nanoseconds to wait after the window's end for messages in flight; the wait is twice the longest round trip if that is
/// more.
const LAST_CALL: u64 = 1_000_000_000;
/// Maximum time in nanoseconds to wait after the window's end, so that the worker is not given up as stuck.
const LAST_CALL_MOST: u64 = DRAIN.0 / 5 * 4;
/// Pause in nanoseconds of a closed loop after a socket error.
const PAUSE: u64 = 10_000_000;
/// Nanoseconds before a message is due for which the worker spins instead of sleeping, because a sleeping thread wakes up late.
const SPIN: u64 = 20_000;
/// Minimum number of messages that are remembered, also in a closed loop, to recognize duplicates.
const LEAST_ROOM: u64 = 1 << 12;
/// Maximum number of messages that are remembered.
const MOST_ROOM: u64 = 1 << 20;
/// Maximum number of due messages to send before reading replies, and of reads before checking for due messages.
const AT_ONCE: u32 = 16;

/// Counts of the messages and replies of one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeTotals {
    pub(super) probes: Probes,
    /// Number of messages of the window whose round trip took longer than [`DEADLINE`].
    pub(super) late: u64,
    /// Standard deviation in nanoseconds of the counted round trips; `None` if there are none.
    pub(super) mdev_ns: Option<u64>,
}

/// The worker that measures round trips over a transport.
pub(super) struct Prober<L> {
    pub(super) transport: L,
    /// The test expressed as a workload of reads: `bs` is the message length, `rate_iops` the messages per second.
    pub(super) workload: Workload,
    pub(super) cookie: u64,
    /// True to poll the socket instead of sleeping until data arrives.
    pub(super) spins: bool,
    pub(super) totals: Sender<ProbeTotals>,
}

impl<L: Transport> Prober<L> {
    /// Sets up, waits for the start, and runs until it is stopped, or until each message of the window is answered or given up as lost.
    pub(super) fn work(self, context: WorkerContext) -> Result<Finish, EngineError> {
        let Self { transport, workload, cookie, spins, totals } = self;
        let WorkerContext { number, common, start, spare, reports, .. } = context;
        let room = workload.rate_iops.map_or(0, |rate| rate.saturating_mul(DEADLINE / 1_000_000_000));
        let in_flight = InFlightMessages::new(room.clamp(LEAST_ROOM, MOST_ROOM), DEADLINE);
        // Nobody listens if the measurement is given up; then the start channel is closed too.
        let _ = reports.send(WorkerReport::Ready);
        let Ok(window) = start.recv() else { return Ok(Finish::default()) };
        let pace = Pace::new(&workload, number, 0, window);
        // The default timer slack of 50 us would delay messages.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let latencies = Latencies::new(&workload);
        let mut round = Round {
            transport,
            cookie,
            length: u32::try_from(workload.bs.0).unwrap_or(u32::MAX),
            spins,
            window,
            pace,
            in_flight,
            recorder: IntervalRecorder::new(number, latencies, window, spare, reports),
            replies: Vec::with_capacity(1 << 12),
            errors: IoErrors::new(window.begin),
            paused_until: window.start,
            no_room: false,
            spread: Spread::default(),
            blackouts: workload.blackout.map(|least| BlackoutRecorder::new(least, clock::now())),
            awaited_since: None,
        };
        let began_at = Some(clock::now());
        while !common.is_stopped() {
            round.receive()?;
            let now = clock::now();
            if round.is_over(now) {
                break;
            }
            let wake = round.send_due(now)?;
            round.wait(wake);
        }
        if common.is_stopped() {
            round.in_flight.forget_recent(clock::now(), PATIENCE);
        }
        let (probes, late) = (round.in_flight.probes(), round.in_flight.late());
        let _ = totals.send(ProbeTotals { probes, late, mdev_ns: round.spread.deviation() });
        Ok(Finish {
            began_at,
            ramp_ios: round.recorder.ramp_ios,
            pacing: round.pace.and_then(|pace| pace.finish(clock::now(), false)),
            io_errors: round.errors,
            blackouts: round.blackouts.map(|all| all.finish([round.awaited_since, None, None], clock::now())),
            ..Finish::default()
        })
    }
}

/// A running measurement.
struct Round<L> {
    transport: L,
    cookie: u64,
    length: u32,
    spins: bool,
    window: Window,
    /// Schedule of the messages in an open loop; `None` in a closed loop.
    pace: Option<Pace>,
    in_flight: InFlightMessages,
    recorder: IntervalRecorder,
    replies: Vec<Reply>,
    errors: IoErrors,
    /// Time before which a closed loop sends no message after an error, in nanoseconds of the engine's clock.
    paused_until: u64,
    /// True if the last message did not fit into the socket buffer.
    no_room: bool,
    spread: Spread,
    /// Recorder of the times without a reply; `None` if not requested.
    blackouts: Option<BlackoutRecorder>,
    /// Time since which a reply is awaited, in nanoseconds of the engine's clock: the due time of the first message sent since the last
    /// reply, or the send time of the latest message if that was unanswered then. `None` if the latest message is answered.
    awaited_since: Option<u64>,
}

impl<L: Transport> Round<L> {
    /// Reads the replies that have arrived, and counts them.
    fn receive(&mut self) -> Result<(), EngineError> {
        for _ in 0..AT_ONCE {
            let came = match self.transport.receive(&mut self.replies) {
                Ok(came) => came,
                Err(error) => self.failed("read", &error).map(|()| false)?,
            };
            let now = clock::now();
            for index in 0..self.replies.len() {
                self.record_reply(self.replies[index], now);
            }
            self.replies.clear();
            // In a closed loop no reply is left once the last message is answered; skip the read that would find nothing.
            if !came || self.pace.is_none() && self.in_flight.awaits_since().is_none() {
                break;
            }
        }
        Ok(())
    }

    fn record_reply(&mut self, reply: Reply, now: u64) {
        if reply.message.cookie != self.cookie {
            return;
        }
        if let Some(blackouts) = &mut self.blackouts {
            // A late reply counts too: the network works again.
            let first_due = || [self.awaited_since, None, None];
            blackouts.completed(IoKind::Read, now.saturating_sub(reply.waited), first_due);
        }
        let trip = self.in_flight.record_reply(reply.message.number, now.saturating_sub(reply.waited));
        self.awaited_since = self.in_flight.awaits_since();
        // Warm-up lasts until the recorder begins the window; messages sent before then do not count.
        let measures = self.recorder.boundary > self.window.begin;
        if let Some(trip) = trip.filter(|trip| trip.counts == measures) {
            let io = Io { direction: IoKind::Read, offset: 0, length: self.length };
            self.recorder.latencies.add(io, trip.service, trip.response);
            if measures {
                self.spread.add(trip.service);
            }
        }
    }

    /// Counts a socket error. Fails if the transport cannot be used any more.
    #[cold]
    fn failed(&mut self, direction: &'static str, error: &io::Error) -> Result<(), EngineError> {
        if self.transport.ends_with(error) {
            return Err(EngineError::Net(format!(
                "the connection broke after {} round trips: {error}",
                self.in_flight.next()
            )));
        }
        let (number, now) = (error.raw_os_error().unwrap_or(0), clock::now());
        self.errors.add(-number, direction, 0, now);
        self.recorder.failed += 1;
        self.paused_until = now + PAUSE;
        Ok(())
    }

    /// Closes the current interval if it has ended. Returns true after the last interval, which stays open until the messages that were due
    /// in the window are sent, and each is answered or given up.
    fn is_over(&mut self, now: u64) -> bool {
        if now < self.recorder.boundary {
            return false;
        }
        let oldest = self.in_flight.oldest_since(now);
        let is_owed = self.pace.as_ref().is_some_and(|pace| pace.due() < self.window.end);
        if now >= self.window.end && (oldest.is_some() || is_owed) && now < self.gives_up() {
            return false;
        }
        self.recorder.turn(now, oldest.map(|since| now - since)) == IntervalState::Over
    }

    /// Returns the time at which unanswered messages are given up as lost, in nanoseconds of the engine's clock; it is after the window's
    /// end.
    fn gives_up(&self) -> u64 {
        self.window.end + LAST_CALL.max(2 * self.in_flight.longest()).min(DEADLINE).min(LAST_CALL_MOST)
    }

    /// Sends the messages that are due. Returns the time at which to act next if no reply arrives, in nanoseconds of the engine's clock; 0
    /// if more messages may be due now.
    fn send_due(&mut self, now: u64) -> Result<u64, EngineError> {
        let boundary = if now < self.window.end { self.recorder.boundary } else { self.gives_up() };
        self.no_room = false;
        for _ in 0..AT_ONCE {
            let (due, now) = (self.due(), clock::now());
            // Messages due before the end are sent even after it; a closed loop has no schedule.
            if due >= self.window.end || self.pace.is_none() && now >= self.window.end {
                return Ok(boundary);
            }
            if due > now {
                return Ok(boundary.min(due));
            }
            // No message that counts is sent before the warm-up interval is closed.
            if now >= self.recorder.boundary && now < self.window.end {
                return Ok(now);
            }
            let message = Message { cookie: self.cookie, number: self.in_flight.next() };
            match self.transport.send(message) {
                Ok(true) => {}
                Ok(false) => {
                    self.no_room = true;
                    return Ok(boundary);
                }
                Err(error) => self.failed("write", &error)?,
            }
            let intended = self.pace.as_mut().map_or(now, |pace| pace.take(now, self.length));
            let counts = intended >= self.window.begin && intended < self.window.end;
            self.in_flight.record_sent(now, intended, counts);
            self.awaited_since.get_or_insert(intended);
        }
        Ok(0)
    }

    /// Returns the time at which the next message is due, in nanoseconds of the engine's clock.
    fn due(&self) -> u64 {
        match (&self.pace, self.in_flight.awaits_since()) {
            (Some(pace), _) => pace.due(),
            (None, None) => self.paused_until,
            (None, Some(since)) if self.paused_until > since => self.paused_until,
            (None, Some(since)) => since + PATIENCE,
        }
    }

    /// Waits until a reply arrives, the socket becomes writable if a message did not fit, or the engine's clock reaches `wake` nanoseconds.
    /// May return early, and returns immediately if the job polls.
    fn wait(&self, wake: u64) {
        let nanos = wake.saturating_sub(clock::now()).saturating_sub(SPIN);
        if self.spins || nanos == 0 {
            return std::hint::spin_loop();
        }
        let mut wanted = PollFlags::IN;
        if self.no_room || self.transport.is_held_up() {
            wanted |= PollFlags::OUT;
        }
        let time = Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        };
        // After a signal, the caller just checks again.
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.transport.descriptor(), wanted)], Some(&time));
    }
}

/// Sums for an exact standard deviation, because the buckets of a histogram could be too wide.
#[derive(Debug, Clone, Copy, Default)]
struct Spread {
    count: u128,
    sum: u128,
    squares: u128,
}

impl Spread {
    fn add(&mut self, value: u64) {
        let value = u128::from(value);
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    /// Returns the standard deviation in nanoseconds as ping(8) computes it: `sqrt(mean(x^2) - mean(x)^2)`. `None` without values.
    fn deviation(self) -> Option<u64> {
        // Fits into 128 bits: 2^30 values of at most 2^33 ns give 2^30 * 2^30 * (2^33)^2 = 2^126.
        let squares = (self.count * self.squares).checked_sub(self.sum * self.sum)?;
        u64::try_from(squares.isqrt().checked_div(self.count)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_exact_where_a_histogram_is_coarse() {
        let mut spread = Spread::default();
        assert_eq!(spread.deviation(), None, "of nothing");
        // Around 5 ms, where a bucket is 32 us wide.
        [4_999_000, 5_001_000, 4_999_000, 5_001_000].iter().for_each(|value| spread.add(*value));
        assert_eq!(spread.deviation(), Some(1000));
        let mut one = Spread::default();
        one.add(77);
        assert_eq!(one.deviation(), Some(0));
    }
}
