//! The I/Os of one worker in order, with their content and verification.

use std::sync::Arc;

use iotax_load::error::EngineError;
use iotax_load::pace::{TraceCounts, TraceTimes};
use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::{Io, IoKind};
use iotax_model::verify_errors::Findings;
use iotax_model::workload::Workload;

use crate::backend::Setup;
use crate::flow::FlowShare;
use crate::passes::Passes;
use crate::pattern::Pattern;
use crate::payload::{Payload, SECTOR};
use crate::replay::Replay;
use crate::verify::{Next, Verification, Verifier};

/// Nanoseconds to wait before asking again for a block that another write has claimed.
const CLAIMED_NS: u64 = 50_000;

/// The next step of a worker: an I/O, a pause, or nothing more to do.
#[derive(Debug)]
pub(super) enum NextIo {
    Io(Io),
    /// No I/O is possible now: ask again after this many nanoseconds.
    After(u64),
    Nothing,
}

/// The origin of a worker's I/Os.
enum Origin {
    /// The workload's pattern.
    Pattern,
    /// The workload's pattern, with verification.
    Verifier(Verifier),
    /// A recorded trace.
    Replay(Replay),
}

/// Source of one worker's I/Os, with their content and verification.
pub(super) struct Source {
    pattern: Pattern,
    passes: Option<Passes>,
    share: Option<FlowShare>,
    payload: Option<Payload>,
    origin: Origin,
    /// True if the flush at the end (`end_fsync`) is still to be done.
    flush_at_end: bool,
    is_exhausted: bool,
}

impl Source {
    /// Creates the source of worker number `number`; `seed` is the job's seed.
    pub(super) fn new(
        workload: &Workload,
        (number, seed): (u32, u64),
        pattern: Pattern,
        (passes, share): (Option<Passes>, Option<FlowShare>),
        verification: Option<Arc<Verification>>,
        replay: Option<Replay>,
        setup: &Setup,
    ) -> Self {
        let depth = setup.depth as usize;
        let payload = workload.rw.writes().then(|| {
            let random = SplitMix64::new(seed, Purpose::Payload, number.into());
            Payload::new(&workload.content(), depth, workload.rw.reads(), random)
        });
        let origin = match (replay, verification) {
            (Some(replay), _) => Origin::Replay(replay),
            (None, Some(verification)) => {
                Origin::Verifier(Verifier::new(verification, depth, setup.slot_bytes))
            }
            (None, None) => Origin::Pattern,
        };
        Self {
            pattern,
            passes,
            share,
            payload,
            origin,
            flush_at_end: workload.end_fsync && workload.rw.writes(),
            is_exhausted: false,
        }
    }

    /// Returns whether no I/O is left.
    #[inline]
    pub(super) const fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// Returns the next I/O, to be done in `slot`. `is_alone` means that no other I/O is in flight, which the final flush requires.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "left to itself the compiler calls it, for 1 ns more per I/O")]
    pub(super) fn next(&mut self, slot: usize, is_alone: bool) -> NextIo {
        if let Some(pause) = self.share.as_ref().and_then(FlowShare::is_ahead) {
            return NextIo::After(pause);
        }
        let next = match &mut self.origin {
            Origin::Pattern => self.pattern.next(),
            Origin::Verifier(verifier) => match verifier.next(slot, &mut self.pattern) {
                Next::Io(io) => io,
                Next::Wait => return NextIo::After(CLAIMED_NS),
            },
            Origin::Replay(replay) => replay.next(),
        };
        match next {
            Some(io) => {
                if let Some(passes) = &mut self.passes {
                    passes.count(io);
                }
                if let Some(share) = &mut self.share {
                    share.count();
                }
                NextIo::Io(io)
            }
            None if self.flushes_now(is_alone) => {
                NextIo::Io(Io { direction: IoKind::Sync, offset: 0, length: 0 })
            }
            None => NextIo::Nothing,
        }
    }

    /// Decides at the pattern's end if the final flush is done now. Returns true at most once; otherwise marks the
    /// source as exhausted.
    #[cold]
    fn flushes_now(&mut self, is_alone: bool) -> bool {
        let flushes = self.flush_at_end && is_alone;
        self.flush_at_end &= !flushes;
        self.is_exhausted |= !flushes;
        flushes
    }

    /// Fills the buffer of a write with its content, and stamps it if the job verifies.
    // Inlined into the worker's loop, this would take registers away from reads.
    #[inline(never)]
    pub(super) fn fill(&mut self, slot: usize, io: Io, buffer: &mut [u8]) {
        let Some(payload) = &mut self.payload else { return };
        let buffer = &mut buffer[..io.length.next_multiple_of(SECTOR) as usize];
        payload.refresh(slot, buffer);
        if let Origin::Verifier(verifier) = &self.origin {
            verifier.stamp(slot, &io, buffer);
        }
    }

    /// Returns the verifier, to which every completion must be reported; `None` without verification.
    #[inline]
    pub(super) const fn verifier(&mut self) -> Option<&mut Verifier> {
        if let Origin::Verifier(verifier) = &mut self.origin { Some(verifier) } else { None }
    }

    /// Returns the times of a replay's next I/O; `None` after the last, or without a replay.
    pub(super) fn upcoming(&self) -> Option<TraceTimes> {
        if let Origin::Replay(replay) = &self.origin { replay.upcoming() } else { None }
    }

    /// Returns the findings of the verification and the counts of the replay; each is `None` if there was none. `elapsed` is the duration of
    /// the replay in nanoseconds.
    pub(super) fn finish(self, elapsed: u64) -> Result<(Option<Findings>, Option<TraceCounts>), EngineError> {
        match self.origin {
            Origin::Pattern => Ok((None, None)),
            Origin::Verifier(verifier) => Ok((Some(verifier.finish()), None)),
            Origin::Replay(replay) => replay.finish(elapsed).map(|counts| (None, Some(counts))),
        }
    }
}
