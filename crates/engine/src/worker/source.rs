//! The I/Os of one worker, one after the other: their pattern, their content and their verification.

use std::sync::Arc;

use iotax_model::verify_errors::Findings;
use iotax_model::workload::Workload;

use crate::backend::Setup;
use crate::flow::FlowShare;
use crate::passes::Passes;
use crate::pattern::Pattern;
use crate::payload::{Payload, SECTOR};
use crate::random::{Purpose, SplitMix64};
use crate::request::{Direction, Io};
use crate::verify::{Next, Verification, Verifier};

/// Nanoseconds until a block that another worker is writing is asked for again.
const CLAIMED_NS: u64 = 50_000;

/// The next step of a worker.
#[derive(Debug)]
pub(super) enum NextIo {
    Io(Io),
    /// Asks again after this many nanoseconds.
    After(u64),
    Nothing,
}

/// See the module.
pub(super) struct Source {
    pattern: Pattern,
    passes: Option<Passes>,
    share: Option<FlowShare>,
    payload: Option<Payload>,
    verifier: Option<Verifier>,
    /// A flush (`end_fsync`) is still to come once all else is done.
    flush_at_end: bool,
    is_exhausted: bool,
}

impl Source {
    /// The I/Os of worker `number`, with the job's seed.
    pub(super) fn new(
        workload: &Workload,
        (number, seed): (u32, u64),
        pattern: Pattern,
        (passes, share): (Option<Passes>, Option<FlowShare>),
        verification: Option<Arc<Verification>>,
        setup: &Setup,
    ) -> Self {
        let depth = setup.depth as usize;
        let payload = workload.rw.writes().then(|| {
            let random = SplitMix64::new(seed, Purpose::Payload, number.into());
            Payload::new(&workload.content(), depth, workload.rw.reads(), random)
        });
        Self {
            pattern,
            passes,
            share,
            payload,
            verifier: verification.map(|verification| Verifier::new(verification, depth, setup.slot_bytes)),
            flush_at_end: workload.end_fsync && workload.rw.writes(),
            is_exhausted: false,
        }
    }

    /// True once everything was drawn.
    #[inline]
    pub(super) const fn is_exhausted(&self) -> bool {
        self.is_exhausted
    }

    /// The next I/O, for a slot; `is_alone` if no other is in flight.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "left to itself the compiler calls it, for 1 ns more per I/O")]
    pub(super) fn next(&mut self, slot: usize, is_alone: bool) -> NextIo {
        if let Some(pause) = self.share.as_ref().and_then(FlowShare::is_ahead) {
            return NextIo::After(pause);
        }
        let next = match &mut self.verifier {
            None => self.pattern.next(),
            Some(verifier) => match verifier.next(slot, &mut self.pattern) {
                Next::Io(io) => io,
                Next::Wait => return NextIo::After(CLAIMED_NS),
            },
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
                NextIo::Io(Io { direction: Direction::Sync, offset: 0, length: 0 })
            }
            None => NextIo::Nothing,
        }
    }

    /// Decides at the pattern's end: true once if the flush at the end is due. Else there is nothing left to draw.
    #[cold]
    fn flushes_now(&mut self, is_alone: bool) -> bool {
        let flushes = self.flush_at_end && is_alone;
        self.flush_at_end &= !flushes;
        self.is_exhausted |= !flushes;
        flushes
    }

    /// Puts the content of a write into its buffer.
    // Within the worker's loop it would take registers away from I/O that writes nothing.
    #[inline(never)]
    pub(super) fn fill(&mut self, slot: usize, io: Io, buffer: &mut [u8]) {
        let Some(payload) = &mut self.payload else { return };
        let buffer = &mut buffer[..io.length.next_multiple_of(SECTOR) as usize];
        payload.refresh(slot, buffer);
        if let Some(verifier) = &self.verifier {
            verifier.stamp(slot, &io, buffer);
        }
    }

    /// Passes completions on to verification.
    #[inline]
    pub(super) const fn verifier(&mut self) -> Option<&mut Verifier> {
        self.verifier.as_mut()
    }

    /// The verify errors, if anything was verified.
    pub(super) fn finish(self) -> Option<Findings> {
        self.verifier.map(Verifier::finish)
    }
}
