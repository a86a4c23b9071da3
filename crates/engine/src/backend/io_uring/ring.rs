//! An io_uring of one thread, set up with the best options that the kernel supports.
#![expect(unsafe_code, reason = "the ring's queues borrow from it for as long as it lives")]

use std::io;
use std::ptr::NonNull;

use io_uring::squeue::{Entry, SubmissionQueue};
use io_uring::{Builder, IoUring, Submitter, cqueue, types};
use iotax_load::clock;
use iotax_load::error::EngineError;

use crate::backend::Options;

const SECOND: u64 = 1_000_000_000;
/// Longest wait in nanoseconds. The kernel adds the wait to its clock, which would overflow with a longer one.
const LONGEST_WAIT: u64 = 3600 * SECOND;
/// Idle time in milliseconds after which the kernel's submission thread (SQPOLL) goes to sleep.
const IDLE: u32 = 1000;

/// A ring whose queues stay borrowed. The queue's head and tail are then written once per call instead of once per I/O, and the kernel need not
/// look up the ring by its file descriptor.
pub(in crate::backend) struct Ring {
    submitter: Submitter<'static>,
    submissions: SubmissionQueue<'static>,
    completions: cqueue::CompletionQueue<'static>,
    /// True if this thread polls for completions instead of sleeping, because the device or the kernel's thread polls (hipri,
    /// sqthread_poll).
    polled: bool,
    /// Dropped last, because the other fields borrow from it.
    _owner: Owner,
}

/// The io_uring, on the heap at a fixed address and owned like a `Box`.
struct Owner(NonNull<IoUring>);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: made from a box in Ring::new, and all that borrowed from it is gone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Ring {
    /// Creates a ring for up to `depth` I/Os in flight.
    pub(in crate::backend) fn new(depth: u32, options: &Options) -> Result<Self, EngineError> {
        let ring = build(depth, options).map_err(|error| refusal(error, depth))?;
        if !ring.params().is_feature_ext_arg() {
            let error = io::Error::new(io::ErrorKind::Unsupported, "its io_uring is older than Linux 5.11's");
            return Err(EngineError::NoIoUring { error });
        }
        let owner = Owner(NonNull::from(Box::leak(Box::new(ring))));
        // SAFETY: this is the only reference ever made to it. Its borrowers are in the same Ring and dropped before it.
        let (mut submitter, submissions, completions) = unsafe { &mut *owner.0.as_ptr() }.split();
        // Before Linux 5.18 the ring is looked up at each call.
        let _ = submitter.register_ring_fd();
        Ok(Self {
            submitter,
            submissions,
            completions,
            polled: options.hipri || options.sqthread_poll,
            _owner: owner,
        })
    }

    /// Returns the handle with which files and buffers are registered.
    pub(super) const fn submitter(&self) -> &Submitter<'static> {
        &self.submitter
    }

    /// Queues an entry for the next submission.
    ///
    /// # Safety
    /// The buffer and file of the entry stay valid until its completion.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: guaranteed by the caller.
        let pushed = unsafe { self.submissions.push(entry) };
        assert!(pushed.is_ok(), "the ring has a place for every slot");
    }

    /// Submits the queued entries without waiting.
    #[inline]
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.submissions.sync();
        let entered = self.submitter.submit();
        self.entered(entered)
    }

    /// Submits the queued entries and waits for a completion, at most `wait_ns` nanoseconds.
    #[inline]
    pub(super) fn submit(&mut self, wait_ns: u64) -> io::Result<()> {
        if self.polled {
            return self.poll(wait_ns);
        }
        if wait_ns == 0 {
            // Submits without a timeout argument, which costs time. A flag of the ring makes the call fetch
            // deferred completions.
            return self.begin();
        }
        self.submissions.sync();
        // Publishes the completions already taken, so that the kernel does not count them as something to return for.
        self.completions.sync();
        let wait_ns = wait_ns.min(LONGEST_WAIT);
        let wait = types::Timespec::new().sec(wait_ns / SECOND).nsec((wait_ns % SECOND) as u32);
        let entered = self.submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&wait));
        self.entered(entered)
    }

    /// Polls for completions without sleeping. If the kernel's thread submits and no device needs polling, this makes no system calls.
    fn poll(&mut self, wait_ns: u64) -> io::Result<()> {
        let give_up = clock::now().saturating_add(wait_ns);
        loop {
            self.begin()?;
            self.completions.sync();
            if !self.completions.is_empty() || clock::now() >= give_up {
                return Ok(());
            }
        }
    }

    /// Handles the result of io_uring_enter(2). A timeout, an interruption, or a lack of memory or of room for completions is not an error.
    #[inline]
    fn entered(&mut self, result: io::Result<usize>) -> io::Result<()> {
        // Reads how much the kernel has taken, which frees room in the queue.
        self.submissions.sync();
        match result {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // A timeout, a signal, or a lack of memory or of room for completions. The rest is submitted
                // once some are reaped.
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes the completions that are available at the time of the call.
    #[inline]
    pub(super) fn completions(&mut self) -> impl Iterator<Item = cqueue::Entry> {
        self.completions.sync();
        &mut self.completions
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Otherwise the ring would stay open as long as the thread runs.
        let _ = self.submitter.unregister_ring_fd();
    }
}

/// Builds a ring with the flags that make it faster, as far as the kernel supports them.
fn build(depth: u32, options: &Options) -> io::Result<IoUring> {
    let mut plain = IoUring::builder();
    if options.hipri {
        plain.setup_iopoll();
    }
    let mut entries = depth;
    if options.sqthread_poll {
        plain.setup_sqpoll(IDLE);
        if let Some(cpu) = options.sqthread_poll_cpu {
            plain.setup_sqpoll_cpu(cpu);
        }
        // A completion may arrive before its submission entry is free again.
        entries *= 2;
    }
    // Linux 6.1.
    let mut lean = plain.clone();
    lean.setup_single_issuer();
    if !options.sqthread_poll {
        lean.setup_defer_taskrun().setup_taskrun_flag();
    }
    // Linux 6.6.
    let mut leanest = lean.clone();
    leanest.setup_no_sqarray();
    let unknown = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
    [leanest, lean]
        .iter()
        .map(|builder: &Builder| builder.build(entries))
        .find(|built| !built.as_ref().is_err_and(unknown))
        .unwrap_or_else(|| plain.build(entries))
}

fn refusal(error: io::Error, depth: u32) -> EngineError {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => EngineError::NoIoUring { error },
        _ => EngineError::System { doing: format!("setting up an io_uring for {depth} I/Os"), error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_forbidden_is_told_from_other_errors() {
        for errno in [libc::ENOSYS, libc::EPERM] {
            let error = refusal(io::Error::from_raw_os_error(errno), 8);
            assert!(matches!(error, EngineError::NoIoUring { .. }), "{error}");
        }
        let error = refusal(io::Error::from_raw_os_error(libc::ENOMEM), 8);
        assert!(matches!(&error, EngineError::System { doing, .. } if doing.contains("8 I/Os")), "{error}");
    }
}
