//! Maps the I/Os of a trace onto a target.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::vec;

use iotax_load::error::EngineError;
use iotax_load::pace::{TraceCounts, TraceTimes};
use iotax_load::request::{Io, IoKind};
use iotax_model::threads;
use iotax_model::trace::{Events, OffsetMap, SequentialStreams, TracedIo, TracedOperation};
use iotax_model::wire::Job;

use crate::open::Target;

/// Number of I/Os that the reading thread hands over at a time.
const CHUNK: usize = 1024;
/// Number of chunks read ahead of the replay, so that reading the trace does not delay I/O.
const AHEAD: usize = 64;
/// Maximum length in bytes of a replayed discard; a longer one is left out.
const LONGEST_TRIM: u64 = 1 << 30;

/// Alignment in bytes for direct I/O if the filesystem does not report one.
const ALIGNED: u64 = 4096;

/// The area onto which a trace is mapped, and the kinds of I/O replayed there.
#[derive(Debug, Clone)]
struct Room {
    map: OffsetMap,
    /// Start of the area in bytes from the target's start.
    start: u64,
    size: u64,
    /// Alignment of offsets and lengths in bytes.
    unit: u64,
    /// Maximum length in bytes of a replayed read or write; a longer one is left out.
    longest: u64,
    writes: bool,
    trims: bool,
}

/// A traced I/O as it will be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Planned {
    times: TraceTimes,
    /// The I/O to do; `None` if the traced I/O is left out, because the target cannot do it.
    io: Option<Io>,
    is_wrapped: bool,
    is_aligned: bool,
    /// Distance in bytes from the offset in the trace, rounded to the alignment, to that in the replay.
    moved_by: u64,
    /// True if the I/O continues an earlier one, in the trace and in the replay.
    was_sequential: bool,
    is_sequential: bool,
}

/// Source of a trace's I/Os, in order; a separate thread reads the trace ahead.
#[derive(Debug)]
pub(crate) struct Replay {
    chunks: Receiver<Result<Vec<Planned>, String>>,
    chunk: vec::IntoIter<Planned>,
    next: Option<Planned>,
    counts: TraceCounts,
    /// The reason why the trace could not be read to its end; `None` while there is no error.
    broken: Option<String>,
}

impl Replay {
    /// Starts the thread that reads a trace for a job and adapts its I/Os to the target.
    pub(crate) fn new(
        job: &Job,
        target: &Target,
        (events, map): (Events, OffsetMap),
    ) -> Result<Self, EngineError> {
        let workload = &job.workload;
        let unit = target.direct_unit().unwrap_or(if target.access.direct { ALIGNED } else { 1 });
        let room = Room {
            map,
            start: workload.offset.0,
            size: job.size.0 - job.size.0 % unit,
            unit,
            longest: workload.bs.0,
            writes: workload.rw.writes(),
            trims: workload.rw.writes() && target.check_trim(false).is_ok(),
        };
        let scale = workload.replay_time_scale;
        let (sender, chunks) = mpsc::sync_channel(AHEAD);
        threads::spawn("trace", move || read(events, &room, scale, &sender))
            .map_err(EngineError::system("reading the trace"))?;
        let mut replay = Self {
            chunks,
            chunk: Vec::new().into_iter(),
            next: None,
            counts: TraceCounts::default(),
            broken: None,
        };
        replay.advance();
        Ok(replay)
    }

    /// Returns the times of the next I/O; `None` after the last.
    pub(crate) fn upcoming(&self) -> Option<TraceTimes> {
        self.next.map(|planned| planned.times)
    }

    /// Takes the next I/O and counts it as begun; `None` after the last.
    #[inline(never)]
    pub(crate) fn next(&mut self) -> Option<Io> {
        let planned = self.next.take()?;
        planned.count(&mut self.counts);
        self.advance();
        planned.io
    }

    /// Moves on to the next I/O that the target can do, and counts those skipped as left out.
    fn advance(&mut self) {
        loop {
            match self.draw() {
                Some(Planned { io: None, .. }) => self.counts.left_out += 1,
                next => {
                    self.next = next;
                    return;
                }
            }
        }
    }

    fn draw(&mut self) -> Option<Planned> {
        loop {
            if let Some(planned) = self.chunk.next() {
                return Some(planned);
            }
            match self.chunks.recv() {
                Ok(Ok(chunk)) => self.chunk = chunk.into_iter(),
                Ok(Err(reason)) => {
                    self.broken = Some(reason);
                    return None;
                }
                Err(_) => return None,
            }
        }
    }

    /// Ends a replay that took `elapsed` nanoseconds and returns its counts. I/Os that were due by then but had not started are counted as
    /// not begun. Fails if the trace could not be read to its end.
    pub(crate) fn finish(mut self, elapsed: u64) -> Result<TraceCounts, EngineError> {
        while self.next.is_some_and(|planned| planned.times.at < elapsed) {
            self.counts.not_begun += 1;
            self.advance();
        }
        match self.broken {
            Some(reason) => Err(EngineError::Trace(reason)),
            None => Ok(self.counts),
        }
    }
}

impl Planned {
    /// Counts the I/O as begun.
    fn count(&self, counts: &mut TraceCounts) {
        counts.begun += 1;
        counts.wrapped += u64::from(self.is_wrapped);
        counts.aligned += u64::from(self.is_aligned);
        counts.moved += u64::from(self.moved_by > 0);
        counts.moved_bytes += u128::from(self.moved_by);
        counts.sequential += u64::from(self.is_sequential);
        counts.recorded_sequential += u64::from(self.was_sequential);
    }
}

/// Reads the trace to its end and sends its I/Os in chunks. Stops early when the replay has ended.
fn read(mut events: Events, room: &Room, scale: u32, chunks: &SyncSender<Result<Vec<Planned>, String>>) {
    let mut first = None;
    let (mut recorded, mut replayed) = (SequentialStreams::default(), SequentialStreams::default());
    loop {
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut broken = None;
        for event in events.by_ref().take(CHUNK) {
            match event {
                Ok(event) => {
                    let from = *first.get_or_insert(event.at_ns);
                    let mut planned = room.fit(event, TraceTimes::of(&event, from, scale));
                    if matches!(event.operation, TracedOperation::Read | TracedOperation::Write) {
                        planned.was_sequential = recorded.add(event.offset, event.length);
                        planned.is_sequential =
                            planned.io.is_some_and(|io| replayed.add(io.offset, io.length.into()));
                    }
                    chunk.push(planned);
                }
                Err(reason) => {
                    broken = Some(reason);
                    break;
                }
            }
        }
        let is_last = chunk.len() < CHUNK;
        if !chunk.is_empty() && chunks.send(Ok(chunk)).is_err() {
            return;
        }
        if let Some(reason) = broken {
            let _ = chunks.send(Err(reason));
            return;
        }
        if is_last {
            return;
        }
    }
}

impl Room {
    /// Moves and aligns a traced I/O so that it lies within the area, or marks it as left out.
    fn fit(&self, event: TracedIo, times: TraceTimes) -> Planned {
        let TracedIo { operation, offset, length, fua, .. } = event;
        let left_out = Planned {
            times,
            io: None,
            is_wrapped: false,
            is_aligned: false,
            moved_by: 0,
            was_sequential: false,
            is_sequential: false,
        };
        let (direction, is_possible, longest) = match operation {
            TracedOperation::Read => (IoKind::Read, true, self.longest),
            TracedOperation::Write => {
                let kind = if fua { IoKind::DurableWrite } else { IoKind::Write };
                (kind, self.writes, self.longest)
            }
            TracedOperation::Trim => (IoKind::Trim, self.trims, LONGEST_TRIM),
            TracedOperation::Flush => {
                let io = Some(Io { direction: IoKind::DataSync, offset: 0, length: 0 });
                return Planned { io, ..left_out };
            }
        };
        let Some((wanted, length)) = self.map.map_offset(operation, (offset, length), self.size) else {
            return left_out;
        };
        let Some(rounded) = length.checked_next_multiple_of(self.unit) else { return left_out };
        let fits = rounded > 0 && rounded <= longest.min(self.size);
        let (true, true, Ok(length_done)) = (is_possible, fits, u32::try_from(rounded)) else {
            return left_out;
        };
        let ends_within = wanted.checked_add(length).is_some_and(|end| end <= self.size);
        let within = if ends_within { wanted } else { wanted % self.size };
        let aligned = within - within % self.unit;
        // An I/O that would end beyond the area is moved back to end with it.
        let fitted_offset = aligned.min(self.size - rounded);
        Planned {
            io: Some(Io { direction, offset: self.start + fitted_offset, length: length_done }),
            is_wrapped: !ends_within,
            is_aligned: aligned != within || rounded != length,
            moved_by: fitted_offset.abs_diff(offset - offset % self.unit),
            ..left_out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::trace::ReplayOffsets;
    use proptest::prelude::*;

    const ROOM: Room = Room {
        map: OffsetMap::Wrap,
        start: 0,
        size: 1 << 20,
        unit: 4096,
        longest: 65536,
        writes: true,
        trims: false,
    };

    const NOW: TraceTimes = TraceTimes { at: 0, completes: None, latency_ns: None };

    fn event(operation: TracedOperation, offset: u64, length: u64) -> TracedIo {
        TracedIo {
            at_ns: 0,
            latency_ns: None,
            operation,
            offset,
            length,
            fua: true,
            process: None,
            queue: None,
        }
    }

    fn fitted(operation: TracedOperation, offset: u64, length: u64) -> Option<(u64, u32, bool, bool)> {
        let Planned { io, is_wrapped, is_aligned, .. } = ROOM.fit(event(operation, offset, length), NOW);
        io.map(|io| (io.offset, io.length, is_wrapped, is_aligned))
    }

    #[test]
    fn an_io_within_the_target_stays_where_it_was() {
        assert_eq!(fitted(TracedOperation::Read, 8192, 4096), Some((8192, 4096, false, false)));
        assert_eq!(
            fitted(TracedOperation::Write, (1 << 20) - 4096, 4096),
            Some(((1 << 20) - 4096, 4096, false, false))
        );
        assert_eq!(fitted(TracedOperation::Read, 512, 512), Some((0, 4096, false, true)));
        assert_eq!(fitted(TracedOperation::Flush, 0, 0), Some((0, 0, false, false)));
    }

    #[test]
    fn a_write_with_fua_is_durable_in_the_replay() {
        let kind = |fua| {
            let event = TracedIo { fua, ..event(TracedOperation::Write, 0, 4096) };
            ROOM.fit(event, NOW).io.map(|io| io.direction)
        };
        assert_eq!((kind(true), kind(false)), (Some(IoKind::DurableWrite), Some(IoKind::Write)));
    }

    #[test]
    fn an_io_beyond_the_target_is_wrapped_and_one_that_cannot_be_done_left_out() {
        assert_eq!(fitted(TracedOperation::Read, (5 << 20) + 8192, 4096), Some((8192, 4096, true, false)));
        assert_eq!(
            fitted(TracedOperation::Read, (1 << 20) - 4096, 8192),
            Some(((1 << 20) - 8192, 8192, true, false))
        );
        for (operation, length) in [
            (TracedOperation::Read, 0),
            (TracedOperation::Write, 1 << 63),
            (TracedOperation::Write, u64::MAX),
            (TracedOperation::Read, 65537),
            (TracedOperation::Trim, 4096),
        ] {
            assert_eq!(fitted(operation, 0, length), None, "{operation} {length}");
        }
        let read_only = Room { writes: false, ..ROOM };
        assert_eq!(read_only.fit(event(TracedOperation::Write, 0, 4096), NOW).io, None);
    }

    #[test]
    fn distances_are_told_from_where_the_trace_was() {
        let moved = |offset| ROOM.fit(event(TracedOperation::Read, offset, 4096), NOW).moved_by;
        assert_eq!([0, 4096, 4608, (5 << 20) + 8192].map(moved), [0, 0, 0, 5 << 20]);
        let events = [4096, 8192, (5 << 20) + 8192, (5 << 20) + 12288]
            .map(|offset| Ok(event(TracedOperation::Read, offset, 4096)));
        let (sender, chunks) = mpsc::sync_channel(1);
        read(Box::new(events.into_iter()), &ROOM, 100, &sender);
        let mut counts = TraceCounts::default();
        chunks.recv().expect("a chunk").expect("whole").iter().for_each(|planned| planned.count(&mut counts));
        assert_eq!((counts.moved, counts.moved_mean_bytes()), (2, Some(5 << 20)));
        assert_eq!(
            (counts.recorded_sequential, counts.sequential),
            (2, 2),
            "wrapped as it was: one after the other"
        );
        assert_eq!(TraceCounts::default().moved_mean_bytes(), None);
    }

    proptest! {
        /// Checks that wrapping keeps lengths, and offsets within a copy of the target.
        #[test]
        fn wrapping_keeps_lengths_and_what_lies_side_by_side(block in 0_u64..1 << 40, blocks in 1_u64..16) {
            let io = ROOM.fit(event(TracedOperation::Read, block * 4096, blocks * 4096), NOW).io.expect("placed");
            prop_assert_eq!(u64::from(io.length), blocks * 4096);
            let fit = block * 4096 % ROOM.size;
            prop_assert_eq!(io.offset, fit.min(ROOM.size - blocks * 4096));
        }

        /// Checks that even a tampered trace writes only within the area.
        #[test]
        fn nothing_is_placed_outside_of_the_area(
            offset in any::<u64>(),
            length in prop_oneof![any::<u64>(), 0_u64..200_000],
            size in 1_u64..(1 << 40),
            unit in prop::sample::select(vec![1_u64, 512, 4096]),
            start in 0_u64..(1 << 40),
            kind in prop::sample::select(vec![TracedOperation::Read, TracedOperation::Write, TracedOperation::Trim]),
            offsets in prop::sample::select(vec![ReplayOffsets::Wrap, ReplayOffsets::Compress, ReplayOffsets::WorkingSet]),
            others in prop::collection::vec((any::<u64>(), 1_u64..200_000), 0..20),
        ) {
            // The trace may have changed since its offsets were mapped.
            let mapped = others.into_iter().map(|(offset, length)| Ok(event(TracedOperation::Read, offset, length)));
            let map = OffsetMap::read(offsets, mapped).expect("few areas");
            let room = Room { map, start, size: size - size % unit, unit, longest: 1 << 26, writes: true, trims: true };
            if let Some(io) = room.fit(event(kind, offset, length), NOW).io {
                prop_assert!(io.offset >= start && io.offset + u64::from(io.length) <= start + room.size);
                prop_assert!(io.offset - start == (io.offset - start) / unit * unit && u64::from(io.length) % unit == 0);
            }
        }
    }
}
