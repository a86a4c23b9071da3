//! The slots of a worker and the I/Os in flight in them.

use iotax_load::blackouts;
use iotax_load::buffers::Slot;
use iotax_load::clock;
use iotax_load::request::{Completion, Io, IoKind};

/// An I/O in flight.
// Made of fields in registers: an `Io` that lies in memory for a call would be copied from there, which stalls the CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlight {
    pub(super) io: Io,
    /// Time of submission, in nanoseconds of the engine's clock; 0 if the I/O is not submitted.
    pub(super) submitted_at: u64,
    /// Scheduled start of the I/O, in nanoseconds of the engine's clock; without a schedule, the time at which the I/O was queued.
    pub(super) intended_at: u64,
}

/// The slots of one worker.
pub(super) struct Slots {
    free: Vec<Slot>,
    /// The I/O in flight in each slot; for free slots, the last one.
    in_flight: Vec<InFlight>,
    /// Slots of I/Os that are queued but not submitted.
    queued: Vec<usize>,
    /// True if each I/O gets its own time stamps instead of those of its batch.
    stamps_each: bool,
}

impl Slots {
    /// Creates the slots, all of them free.
    pub(super) fn new(free: Vec<Slot>, stamps_each: bool) -> Self {
        let io = Io { direction: IoKind::Read, offset: 0, length: 0 };
        let in_flight = vec![InFlight { io, submitted_at: 0, intended_at: 0 }; free.len()];
        Self { queued: Vec::with_capacity(free.len()), free, in_flight, stamps_each }
    }

    /// Returns the number of slots, used and free.
    pub(super) const fn count(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the number of slots in use: queued or in flight.
    #[inline]
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight.len() - self.free.len()
    }

    #[inline]
    pub(super) const fn are_all_taken(&self) -> bool {
        self.free.is_empty()
    }

    /// Returns the number of I/Os that are queued but not submitted.
    #[inline]
    pub(super) const fn queued(&self) -> usize {
        self.queued.len()
    }

    #[inline]
    pub(super) const fn stamps_each(&self) -> bool {
        self.stamps_each
    }

    #[inline]
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    #[inline]
    pub(super) fn give_back(&mut self, slot: Slot) {
        self.in_flight[slot.index()].submitted_at = 0;
        self.free.push(slot);
    }

    /// Returns the I/O in a slot.
    #[inline]
    pub(super) fn of(&self, slot: &Slot) -> InFlight {
        self.in_flight[slot.index()]
    }

    /// Records an I/O that is being put into the backend's queue.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "left to itself the compiler calls it, for 1 ns more per I/O")]
    pub(super) fn queue(&mut self, slot: &Slot, io: Io, intended_at: u64) {
        let submitted_at = if self.stamps_each { clock::now() } else { 0 };
        self.in_flight[slot.index()] = InFlight { io, submitted_at, intended_at };
        self.queued.push(slot.index());
    }

    /// Marks the queued I/Os as submitted now and returns the time in nanoseconds of the engine's clock. The I/Os of a batch enter the
    /// kernel together and their completions are seen together, so one time stamp per batch loses nothing. I/Os with their own time stamps
    /// keep those.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "left to itself the compiler calls it, for 1 ns more per I/O")]
    pub(super) fn stamp(&mut self) -> u64 {
        let now = clock::now();
        if !self.stamps_each {
            for index in &self.queued {
                self.in_flight[*index].submitted_at = now;
            }
        }
        self.queued.clear();
        now
    }

    /// Returns for each I/O class the earliest scheduled start of an I/O that is not counted yet, in nanoseconds of the engine's clock;
    /// `None` if there is none.
    #[cold]
    pub(super) fn first_due(&self) -> [Option<u64>; 3] {
        let mut first = [None; 3];
        for of in self.in_flight.iter().filter(|of| of.submitted_at > 0) {
            let first = &mut first[blackouts::class_index(of.io.direction)];
            *first = Some(first.map_or(of.intended_at, |due: u64| due.min(of.intended_at)));
        }
        first
    }

    /// Returns the age in nanoseconds of the oldest I/O in flight, leaving out those in `done`; `None` if there is none.
    #[cold]
    pub(super) fn oldest(&self, done: &[Completion]) -> Option<u64> {
        let now = clock::now();
        let is_done = |index: usize| done.iter().any(|completion| completion.slot.index() == index);
        self.in_flight
            .iter()
            .enumerate()
            .filter(|(index, io)| io.submitted_at > 0 && !is_done(*index))
            .map(|(_, io)| now.saturating_sub(io.submitted_at))
            .max()
    }
}
