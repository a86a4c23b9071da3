//! Time and CPU time.

use iotax_model::record::CpuTime;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// Nanoseconds of CPU that this thread has used.
pub(crate) fn thread_cpu() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time that this process has used, all threads together.
pub(crate) fn process_cpu() -> CpuTime {
    let usage = rusage();
    CpuTime { user_ns: nanos_of_timeval(usage.ru_utime), system_ns: nanos_of_timeval(usage.ru_stime) }
}

#[inline]
#[expect(clippy::cast_sign_loss, reason = "these clocks start at 0")]
const fn nanos(time: Timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[expect(clippy::cast_sign_loss, reason = "CPU time is not negative")]
const fn nanos_of_timeval(time: libc::timeval) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000
}

#[expect(
    unsafe_code,
    reason = "the crates in use have no getrusage, the only call that parts user from system time"
)]
fn rusage() -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::zeroed();
    // SAFETY: the pointer is to a writable rusage, which the call fills; it cannot fail with these arguments.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: all-zero bytes, which it held before the call, are a valid rusage too.
    unsafe { usage.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time_of_thread_and_process() {
        let (thread, process) = (thread_cpu(), process_cpu().total_ns());
        while thread_cpu() - thread < 20_000_000 {
            std::hint::black_box(0_u64);
        }
        assert!(process_cpu().total_ns() - process >= 10_000_000);
    }
}
