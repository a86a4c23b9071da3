//! Wakes a thread on time even if other threads wait for the CPU.
//!
//! When many agents on one machine wake at the same time, each waits for the others' time slices. A thread under SCHED_FIFO (sched(7)) runs as
//! soon as its timer expires. The thread keeps that priority until its first I/Os are submitted, so that it does not lose the CPU just before
//! them. If realtime scheduling is not permitted (`RLIMIT_RTPRIO`, a control group without a realtime share), the thread sleeps at its own
//! priority.

#![expect(unsafe_code, reason = "rustix does not set a thread's scheduling policy")]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::time::Duration;

use iotax_model::threads;
use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};

use crate::clock;

/// Blocks until `at_ns` on the system's monotonic clock. Wakes less precisely if a sandbox forbids clock_nanosleep(2).
pub fn sleep_until(at_ns: u64) {
    let at = Timespec {
        tv_sec: i64::try_from(at_ns / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (at_ns % 1_000_000_000).cast_signed(),
    };
    loop {
        match clock_nanosleep_absolute(ClockId::Monotonic, &at) {
            Ok(()) => return,
            Err(Errno::INTR) => {}
            Err(_) => {
                return threads::sleep(Duration::from_nanos(at_ns.saturating_sub(clock::system())));
            }
        }
    }
}

/// A realtime priority of the calling thread. Dropping this restores the thread's previous scheduling.
pub struct RealtimePriority {
    /// The previous scheduling policy.
    policy: i32,
    param: libc::sched_param,
    /// Marker that makes the type `!Send`: a drop on another thread would change the scheduling of that thread.
    stays: PhantomData<*const ()>,
}

impl RealtimePriority {
    /// Raises the calling thread's priority; `None` if that is not permitted, or if the thread's policy is not one of the plain ones
    /// (other, batch, idle).
    pub fn raise() -> Option<Self> {
        let (policy, param) = scheduling()?;
        let is_plain = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
        let above_all_plain = libc::sched_param { sched_priority: 1 };
        // Without the flag, threads that the kernel creates for this thread's I/O would inherit the policy.
        let raised = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        (is_plain && schedule(raised, above_all_plain)).then_some(Self { policy, param, stays: PhantomData })
    }
}

impl Drop for RealtimePriority {
    fn drop(&mut self) {
        // Lowering the priority is always permitted, but only a privileged thread may clear the flag.
        let _ = schedule(self.policy, self.param)
            || schedule(self.policy | libc::SCHED_RESET_ON_FORK, self.param);
    }
}

/// Returns the calling thread's scheduling policy and parameter; `None` if the kernel refuses the query.
fn scheduling() -> Option<(i32, libc::sched_param)> {
    let mut param = MaybeUninit::<libc::sched_param>::zeroed();
    // SAFETY: 0 is the calling thread; the call takes no pointer.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // SAFETY: the pointer is to a writable sched_param.
    let got = unsafe { libc::sched_getparam(0, param.as_mut_ptr()) };
    // SAFETY: all-zero bytes, which it held before the call, are a valid sched_param too.
    let param = unsafe { param.assume_init() };
    (policy >= 0 && got == 0).then_some((policy, param))
}

/// Sets the calling thread's scheduling policy. Returns false if that is not permitted.
fn schedule(policy: i32, param: libc::sched_param) -> bool {
    // SAFETY: 0 is the calling thread; the pointer is to a readable sched_param.
    unsafe { libc::sched_setscheduler(0, policy, &raw const param) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn policy() -> i32 {
        scheduling().expect("known").0
    }

    #[test]
    fn a_sleeper_is_never_early_and_scheduled_as_before() {
        let before = policy();
        for sleep_ns in [0, 3_000_000] {
            let at_ns = clock::system() + sleep_ns;
            let priority = RealtimePriority::raise();
            sleep_until(at_ns);
            drop(priority);
            assert!(clock::system() >= at_ns);
            assert_eq!(policy(), before);
        }
        // A thread with another plain policy gets its policy back.
        std::thread::spawn(|| {
            assert!(schedule(libc::SCHED_BATCH, libc::sched_param { sched_priority: 0 }));
            drop(RealtimePriority::raise());
            assert_eq!(policy(), libc::SCHED_BATCH);
        })
        .join()
        .expect("the policy is the same");
    }

    #[test]
    fn the_priority_ends_with_its_guard() {
        let before = policy();
        let Some(priority) = RealtimePriority::raise() else {
            iotax_testkit::skip!("SCHED_FIFO is not permitted here");
        };
        assert_eq!(policy() & !libc::SCHED_RESET_ON_FORK, libc::SCHED_FIFO);
        let of_child = std::thread::spawn(policy).join();
        assert_eq!(of_child.expect("known"), libc::SCHED_OTHER);
        assert!(RealtimePriority::raise().is_none(), "it has one already");
        drop(priority);
        assert_eq!(policy(), before);
    }

    /// Runs in a separate process, because limits are per process.
    #[test]
    fn a_thread_that_may_goes_back_and_one_that_may_not_sleeps_as_it_is() {
        use rustix::process::{Resource, Rlimit, setrlimit};
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

        // Capabilities are per thread, and the limit only applies to threads without them.
        std::thread::spawn(|| {
            let limit = |most| Rlimit { current: Some(most), maximum: Some(most) };
            let may = setrlimit(Resource::Rtprio, limit(1)).is_ok();
            let mut own = capabilities(None).expect("known");
            own.effective.remove(CapabilitySet::SYS_NICE);
            own.permitted.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, own).expect("less is permitted");
            if may {
                drop(RealtimePriority::raise().expect("the limit permits it"));
                assert_eq!(policy() & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER);
            }
            setrlimit(Resource::Rtprio, limit(0)).expect("less is permitted");
            assert!(RealtimePriority::raise().is_none());
            let at_ns = clock::system() + 1_000_000;
            sleep_until(at_ns);
            assert!(clock::system() >= at_ns);
        })
        .join()
        .expect("it sleeps");
    }
}
