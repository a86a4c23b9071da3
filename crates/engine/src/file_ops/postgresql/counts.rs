//! Counts the transactions of a window, with the CPU time and the bytes of the processes that carry them out.

use std::collections::VecDeque;
use std::io;

use iotax_load::window::Window;
use iotax_model::record::{CpuTime, Pacing};
use iotax_model::units::Nanos;
use iotax_model::workload::Workload;

use super::super::ProgramResults;
use super::super::meter::Meter;
use super::log::Transaction;
use super::processes::ProcessTree;

/// Time after its schedule from which the start of a transaction counts as delayed: longer than a timer needs.
const DELAYED_NS: u64 = 1_000_000;

/// The transactions of a window.
#[derive(Debug)]
pub(super) struct Counts {
    window: Window,
    tree: ProcessTree,
    /// Time of the next reading of the processes' counters: the window's begin, and the end of each interval.
    next_mark: u64,
    /// CPU time at the window's begin; `None` before.
    at_begin: Option<CpuTime>,
    /// CPU time in the window; 0 before its end.
    cpu: CpuTime,
    /// Time of each reading, with the bytes moved since the one before, until a transaction has taken them.
    moved: VecDeque<(u64, u64)>,
    last_moved: Option<u64>,
    /// The last transaction that was read. It is counted when the next is known, so that it takes the bytes until then.
    held: Option<Transaction>,
    first_start: Option<u64>,
    schedule: Option<Schedule>,
    is_over: bool,
}

/// The schedule of an open loop.
#[derive(Debug)]
struct Schedule {
    /// Transactions per second over all clients.
    rate: u64,
    limit: Option<Nanos>,
    pacing: Pacing,
    /// Scheduled start of the last transaction that started, with its delay.
    last: Option<(u64, u64)>,
}

impl Counts {
    /// Creates counts of a window of `workload`.
    pub(super) fn new(window: Window, tree: ProcessTree, workload: &Workload) -> Self {
        let limit = workload.latency_limit;
        let none = limit.map(|_| 0);
        let pacing = Pacing { late: none, skipped: none, ..Pacing::default() };
        let rate = workload.rate_iops.map(|rate| rate * u64::from(workload.numjobs));
        Self {
            window,
            tree,
            next_mark: window.begin,
            at_begin: None,
            cpu: CpuTime::default(),
            moved: VecDeque::new(),
            last_moved: None,
            held: None,
            first_start: None,
            schedule: rate.map(|rate| Schedule { rate, limit, pacing, last: None }),
            is_over: false,
        }
    }

    pub(super) const fn next_mark(&self) -> u64 {
        self.next_mark
    }

    /// Reads the processes' counters if the window has begun or an interval has ended by `now`.
    pub(super) fn take_marks(&mut self, now: u64) -> io::Result<()> {
        if now < self.next_mark {
            return Ok(());
        }
        match self.at_begin {
            None => self.at_begin = Some(self.tree.cpu()?),
            Some(begin) if now >= self.window.end => {
                let end = self.tree.cpu()?;
                self.cpu = CpuTime {
                    user_ns: end.user_ns.saturating_sub(begin.user_ns),
                    system_ns: end.system_ns.saturating_sub(begin.system_ns),
                };
            }
            Some(_) => {}
        }
        let moved = self.tree.moved();
        let more = moved.zip(self.last_moved).map_or(0, |(now, before)| now.saturating_sub(before));
        self.moved.push_back((self.next_mark, more));
        self.last_moved = moved;
        self.next_mark = match self.window.interval_at(now) {
            interval if interval < self.window.intervals() => self.window.end_of(interval),
            _ => u64::MAX,
        };
        Ok(())
    }

    /// Adds the next transaction.
    pub(super) fn add(&mut self, transaction: Transaction, meter: &mut Meter) {
        self.count_held(transaction.at, meter);
        self.held = Some(transaction);
        let Transaction { at, response_ns, lag_ns } = transaction;
        let scheduled = at.saturating_sub(response_ns);
        self.first_start.get_or_insert(scheduled + lag_ns);
        let is_done_in_window = self.has(at);
        if let Some(schedule) = &mut self.schedule {
            schedule.add(scheduled, lag_ns, self.window);
            let is_late = is_done_in_window && transaction.is_late(schedule.limit);
            schedule.pacing.late = schedule.pacing.late.map(|late| late + u64::from(is_late));
        }
    }

    /// Counts a transaction as skipped, which was noticed at time `at`. pgbench does not tell when it was due.
    pub(super) fn skip(&mut self, at: u64) {
        let is_in_window = self.has(at);
        if let Some(Schedule { pacing, .. }) = self.schedule.as_mut().filter(|_| is_in_window) {
            pacing.due += 1;
            pacing.skipped = pacing.skipped.map(|skipped| skipped + 1);
        }
    }

    fn has(&self, at: u64) -> bool {
        (self.window.begin..self.window.end).contains(&at)
    }

    /// Counts a transaction that failed at time `at`.
    pub(super) fn fail(&mut self, at: u64, meter: &mut Meter) {
        self.count_held(at, meter);
        self.is_over |= !self.is_over && meter.failed_at(at, libc::EAGAIN).is_break();
    }

    /// Counts the transaction that is held, with the bytes that were moved by the time `until`.
    fn count_held(&mut self, until: u64, meter: &mut Meter) {
        let Some(Transaction { at, response_ns, lag_ns }) = self.held.take().filter(|_| !self.is_over) else {
            return;
        };
        let mut bytes = 0;
        while let Some((_, more)) = self.moved.front().filter(|(at, _)| *at <= until) {
            bytes += more;
            self.moved.pop_front();
        }
        self.is_over = meter.completed(at, bytes, response_ns - lag_ns, response_ns).is_break();
    }

    /// Counts the last transaction, and closes the window.
    pub(super) fn finish(&mut self, meter: &mut Meter) {
        self.count_held(u64::MAX, meter);
        self.is_over = self.is_over || meter.pass(self.window.end).is_break();
    }

    /// Returns whether a transaction began before the window.
    pub(super) fn began_before_window(&self) -> bool {
        self.first_start.is_some_and(|first| first <= self.window.begin)
    }

    /// Returns the CPU time of the processes in the window, and the delays of an open loop.
    pub(super) fn results(&self) -> ProgramResults {
        let pacing = self.schedule.as_ref().map(|schedule| schedule.until(self.window.end));
        ProgramResults { cpu: self.cpu, pacing }
    }
}

impl Schedule {
    /// Adds a transaction that was scheduled for the time `at` and started `lag_ns` later.
    fn add(&mut self, at: u64, lag_ns: u64, window: Window) {
        if self.last.is_none_or(|(last, _)| last < at) {
            self.last = Some((at, lag_ns));
        }
        if (window.begin..window.end).contains(&at) {
            self.pacing.due += 1;
            if lag_ns >= DELAYED_NS {
                self.pacing.delayed += 1;
                self.pacing.longest_delay_ns = self.pacing.longest_delay_ns.max(lag_ns);
            }
        }
    }

    /// Returns the delays until the window's end. pgbench draws the start time of a transaction only when a client is free, so the number
    /// of those not started is estimated from the rate.
    fn until(&self, end: u64) -> Pacing {
        let is_behind = |(last, lag_ns): &(u64, u64)| *lag_ns >= DELAYED_NS && *last < end;
        let Some((last, _)) = self.last.filter(is_behind) else { return self.pacing };
        let overdue_ns = end - last;
        let expected = u128::from(overdue_ns) * u128::from(self.rate) / 1_000_000_000;
        let backlog = u64::try_from(expected).unwrap_or(u64::MAX);
        Pacing { due: self.pacing.due + backlog, backlog, backlog_ns: overdue_ns, ..self.pacing }
    }
}
