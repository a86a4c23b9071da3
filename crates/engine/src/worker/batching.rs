//! Decides how many I/Os go into one call to the kernel.

/// I/Os per call if they outlast the call, as on a device. With more, the kernel plugs the block layer (IO_PLUG_THRESHOLD in its io_uring.c):
/// it holds all I/Os back until the last is prepared, and meanwhile the device has less to do.
const UNPLUGGED: usize = 2;
/// I/Os per call if they complete within the call, as from the page cache. Longer batches save hardly anything more, and their buffers no
/// longer fit into the CPU's nearer caches.
const AT_ONCE: usize = 64;
/// Number of calls in a row that waited and returned with all I/Os complete, after which one call does not wait. Only a call that does not wait
/// shows whether I/O still outlasts the call.
const DOUBT_AFTER: u32 = 64;

/// The next step with a batch of queued I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// Queue more I/Os.
    Open,
    /// Submit these I/Os now without waiting, then queue more.
    Begin,
    /// The batch is full: submit and look for completions.
    Full,
}

/// Estimator of whether I/O outlasts the submitting call, as on a device, or completes within it, as from a cache.
#[derive(Debug, Default)]
pub(super) struct Batching {
    outlasts: bool,
    /// Number of calls that returned with all I/Os complete since a call last returned with I/O in flight.
    doubt: u32,
}

impl Batching {
    /// Returns the next step with a batch of `queued` I/Os.
    #[inline]
    pub(super) const fn after(&self, queued: usize) -> Batch {
        match queued {
            UNPLUGGED if self.outlasts => Batch::Begin,
            AT_ONCE => Batch::Full,
            _ => Batch::Open,
        }
    }

    /// Returns whether I/O outlasts the call that submits it.
    #[inline]
    pub(super) const fn outlasts(&self) -> bool {
        self.outlasts
    }

    /// Updates the estimate after a call that submitted I/Os: `in_flight` I/Os were in flight in it, and `done` of them were complete when
    /// it returned.
    #[inline]
    pub(super) const fn learn(&mut self, in_flight: usize, done: usize) {
        if done < in_flight {
            self.outlasts = true;
            self.doubt = 0;
        } else if self.outlasts {
            self.doubt += 1;
            self.outlasts = self.doubt < DOUBT_AFTER;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_gets_pairs_and_a_cache_gets_long_batches_again_after_some_doubt() {
        let mut batching = Batching::default();
        assert_eq!(
            [1, 2, 63, 64].map(|queued| batching.after(queued)),
            [Batch::Open, Batch::Open, Batch::Open, Batch::Full]
        );
        batching.learn(8, 7);
        assert_eq!([1, 2].map(|queued| batching.after(queued)), [Batch::Open, Batch::Begin]);
        for _ in 1..DOUBT_AFTER {
            batching.learn(8, 8);
            assert!(batching.outlasts());
        }
        batching.learn(8, 8);
        assert_eq!((batching.outlasts(), batching.after(2)), (false, Batch::Open));
    }
}
