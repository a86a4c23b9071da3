//! Decides how many I/Os go into one call to the kernel.

/// I/Os per call on a device. With more, the kernel holds all of them back until the last is prepared (it plugs the block layer, see
/// IO_PLUG_THRESHOLD in its io_uring.c), and meanwhile the device has less to do.
const UNPLUGGED: usize = 2;
/// I/Os per call where they complete within the call. A longer batch saves next to nothing more, and its buffers no longer fit into the
/// CPU's nearer caches.
const AT_ONCE: usize = 64;
/// Consecutive waiting calls that returned with all I/Os complete, before one call does not wait. Only such a call shows whether I/O still
/// outlasts the call.
const DOUBT_AFTER: u32 = 64;

/// The state of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// The batch takes more I/Os.
    Open,
    /// Submit now without waiting, then start the next batch.
    Begin,
    /// The batch is full: submit it.
    Full,
}

/// Distinguishes a device, whose I/O outlasts the submitting call, from a cache, which answers within it.
#[derive(Debug, Default)]
pub(super) struct Batching {
    outlasts: bool,
    /// Calls that returned with all I/Os complete since I/O last outlasted one.
    doubt: u32,
}

impl Batching {
    /// The state of a batch of `queued` I/Os.
    #[inline]
    pub(super) const fn after(&self, queued: usize) -> Batch {
        match queued {
            UNPLUGGED if self.outlasts => Batch::Begin,
            AT_ONCE => Batch::Full,
            _ => Batch::Open,
        }
    }

    /// True if I/O outlasts the call that begins it.
    #[inline]
    pub(super) const fn outlasts(&self) -> bool {
        self.outlasts
    }

    /// Learns from a call that submitted I/Os: the number in flight before it, and how many of them it completed.
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
