//! The engine's clock, and the CPU time of threads and of the process.
//!
//! [`now`] counts nanoseconds of CLOCK_MONOTONIC. If the CPU's time stamp counter runs at one constant rate on all CPUs, [`now`] reads that
//! counter, which costs a fraction of a system clock reading. The counter is calibrated against the system clock once per process, and compared
//! with it again over each measurement ([`Check`]).

use std::sync::OnceLock;

use iotax_model::record::{CpuTime, ProcessCounts};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds over which the counter is compared with the system clock to determine its rate. Both ends are accurate to some 50 ns, so the
/// rate is accurate to some 5 ppm.
const CALIBRATION_NS: u64 = 20_000_000;
/// Relative difference between the two clocks above which [`Check::end`] reports it. The kernel may slew the system clock by up to 500 ppm.
const DISAGREEMENT: f64 = 0.001;

/// Returns the time on the monotonic clock, in nanoseconds.
#[inline]
pub fn now() -> u64 {
    match COUNTER.get() {
        Some(Some(counter)) => counter.now(),
        _ => system(),
    }
}

/// Makes [`now`] read the time stamp counter from this call on, if the counter can be trusted. The first call takes some 20 ms. A time read
/// before this call must not be compared with one read after it.
pub fn calibrate() {
    COUNTER.get_or_init(Counter::calibrated);
}

static COUNTER: OnceLock<Option<Counter>> = OnceLock::new();

/// Returns the nanoseconds of the system's monotonic clock (clock_gettime).
#[inline]
pub fn system() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// The time stamp counter's rate, and one point at which its time is known.
#[derive(Debug, Clone, Copy)]
struct Counter {
    /// The counter's ticks at the reference point.
    ticks: u64,
    /// The system clock's nanoseconds at the reference point.
    nanos: u64,
    /// Nanoseconds per tick of the counter, times 2^32.
    rate: u64,
}

impl Counter {
    /// Calibrates the counter against the system clock; `None` if the counter cannot be trusted.
    fn calibrated() -> Option<Self> {
        if !tsc::is_invariant() {
            return None;
        }
        let (ticks, nanos) = both()?;
        let mut end = both()?;
        while end.1 - nanos < CALIBRATION_NS {
            std::hint::spin_loop();
            end = both()?;
        }
        let ticked = end.0.checked_sub(ticks).filter(|ticked| *ticked > 0)?;
        let rate = (u128::from(end.1 - nanos) << 32) / u128::from(ticked);
        Some(Self { ticks: end.0, nanos: end.1, rate: u64::try_from(rate).ok()? })
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "nanoseconds since boot fit")]
    fn now(&self) -> u64 {
        // Another CPU's counter may lag a little, so the difference could be negative.
        let ticked = tsc::read().saturating_sub(self.ticks);
        self.nanos + ((u128::from(ticked) * u128::from(self.rate)) >> 32) as u64
    }
}

/// Reads the counter and the system clock as close together as possible: of 8 attempts, the one that took the least time. Never returns
/// `None`.
fn both() -> Option<(u64, u64)> {
    (0..8)
        .map(|_| {
            let before = tsc::read();
            let nanos = system();
            let took = tsc::read().saturating_sub(before);
            (took, before + took / 2, nanos)
        })
        .min()
        .map(|(_, ticks, nanos)| (ticks, nanos))
}

/// Comparison of the clock behind [`now`] with the system clock over a measurement.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    ours: u64,
    systems: u64,
}

impl Check {
    /// Reads both clocks at the start of a measurement.
    pub fn begin() -> Self {
        Self { ours: now(), systems: system() }
    }

    /// Describes by how much the clocks differ since [`Self::begin`]; `None` if by at most 0.1%, or if at most 20 ms have passed.
    pub fn end(self) -> Option<String> {
        Self::judge(now().saturating_sub(self.ours), system().saturating_sub(self.systems))
    }

    fn judge(ours: u64, systems: u64) -> Option<String> {
        let off = ours as f64 / (systems as f64).max(1.0) - 1.0;
        let telling = systems > CALIBRATION_NS && off.abs() > DISAGREEMENT;
        telling.then(|| {
            format!(
                "the CPU's time stamp counter and the system's clock parted by {:+.3}% over the measurement; latencies are off \
                 by as much",
                off * 100.0
            )
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod tsc {
    #![expect(unsafe_code, reason = "the instruction has no safe name")]

    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// The kernel's list of usable clock sources. The kernel removes the time stamp counter from this list when CPUs disagree.
    const TRUSTED: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    /// CPUID leaf "Advanced Power Management Information", which has the invariant-TSC bit; see the processor manuals.
    const POWER: u32 = 0x8000_0007;
    const INVARIANT: u32 = 1 << 8;

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: every x86-64 CPU has the instruction, and Linux lets programs use it.
        unsafe { _rdtsc() }
    }

    /// Returns whether the counter has a constant rate in all power states (according to the CPU) and on all CPUs (according to the kernel).
    pub(super) fn is_invariant() -> bool {
        let knows = __cpuid(0x8000_0000).eax >= POWER;
        let kernel = std::fs::read_to_string(TRUSTED).unwrap_or_default();
        knows && __cpuid(POWER).edx & INVARIANT != 0 && kernel.split_whitespace().any(|name| name == "tsc")
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod tsc {
    pub(super) const fn read() -> u64 {
        0
    }

    pub(super) const fn is_invariant() -> bool {
        false
    }
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub fn thread_cpu() -> u64 {
    nanos(clock_gettime(ClockId::ThreadCPUTime))
}

/// CPU time, context switches and page faults of this process, summed over its threads.
#[derive(Debug, Clone, Copy, Default)]
pub struct ProcessUsage {
    /// CPU time in user mode and in kernel mode.
    pub cpu: CpuTime,
    /// Number of context switches and page faults.
    pub counts: ProcessCounts,
}

impl ProcessUsage {
    /// Reads the usage since the start of the process.
    #[must_use]
    #[expect(clippy::cast_sign_loss, reason = "counts are not negative")]
    pub fn now() -> Self {
        let usage = rusage();
        let (user_ns, system_ns) = (nanos_of_timeval(usage.ru_utime), nanos_of_timeval(usage.ru_stime));
        let counts = ProcessCounts {
            context_switches: usage.ru_nvcsw as u64 + usage.ru_nivcsw as u64,
            major_faults: usage.ru_majflt as u64,
            minor_faults: usage.ru_minflt as u64,
        };
        Self { cpu: CpuTime { user_ns, system_ns }, counts }
    }

    /// Returns the usage since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        let Self { cpu, counts } = earlier;
        Self {
            cpu: CpuTime {
                user_ns: self.cpu.user_ns.saturating_sub(cpu.user_ns),
                system_ns: self.cpu.system_ns.saturating_sub(cpu.system_ns),
            },
            counts: ProcessCounts {
                context_switches: self.counts.context_switches.saturating_sub(counts.context_switches),
                major_faults: self.counts.major_faults.saturating_sub(counts.major_faults),
                minor_faults: self.counts.minor_faults.saturating_sub(counts.minor_faults),
            },
        }
    }
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
    use std::time::Duration;

    #[test]
    fn work_shows_as_cpu_time_of_thread_and_process() {
        let (thread, process) = (thread_cpu(), ProcessUsage::now());
        while thread_cpu() - thread < 20_000_000 {
            std::hint::black_box(0_u64);
        }
        assert!(ProcessUsage::now().since(&process).cpu.total_ns() >= 10_000_000);
    }

    #[test]
    fn the_counter_keeps_the_systems_time() {
        let Some(counter) = Counter::calibrated() else {
            iotax_testkit::skip!("the time stamp counter is not to be trusted here");
        };
        // A thread that loses its CPU between the two readings sees a false difference.
        let apart = || (0..100).map(|_| counter.now().abs_diff(system())).min().expect("readings");
        assert!(apart() < 2_000, "{} ns", apart());
        std::thread::sleep(Duration::from_millis(300));
        // 100 ppm.
        assert!(apart() < 30_000, "{} ns after 300 ms", apart());
    }

    #[test]
    fn clocks_that_part_are_told_of() {
        assert_eq!(Check::judge(1_000_400_000, 1_000_000_000), None);
        assert!(Check::judge(1_002_000_000, 1_000_000_000).expect("told").contains("+0.200%"));
        assert!(Check::judge(998_000_000, 1_000_000_000).expect("told").contains("-0.200%"));
        assert_eq!(Check::judge(2_000, 1_000), None, "too short to tell");
    }
}
