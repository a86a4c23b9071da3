//! Measurements of devices with a known delay.
//!
//! In an emulated machine timers are 0.1 to 0.9 ms late, more after longer sleeps. This overhead is measured on a device of
//! 10 ms. Three sources give the truth:
//! - The configured delay: no I/O may be faster, and the median may exceed it only by the overhead.
//! - The kernel's counts of the device (`/sys/block/*/stat`): the same number of I/Os, and a mean that is shorter only by the
//!   path between device and program.
//! - Little's law: IOPS times mean service time is the depth.

use std::path::Path;

use iotax_model::record::Outcome;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};

use crate::lab_guest::LabGuest;

/// Size of every device, in bytes.
const SIZE: Bytes = Bytes(64 << 20);
const MS: f64 = 1e6;
/// The share of its I/O slots that an emulated program keeps busy.
const EMULATED: f64 = 0.9;
const TOLERANCE: f64 = 0.03;
/// The number of I/Os in a sample at depth 1.
const IOS: f64 = 100.0;

/// The load on a device.
#[derive(Debug, Clone, Copy)]
struct Drive {
    ioengine: IoEngine,
    rw: Rw,
    iodepth: u32,
}

const fn drive(ioengine: IoEngine, rw: Rw, iodepth: u32) -> Drive {
    Drive { ioengine, rw, iodepth }
}

const DRIVES: [Drive; 6] = [
    drive(IoEngine::Psync, Rw::RandRead, 1),
    drive(IoEngine::Psync, Rw::RandWrite, 1),
    drive(IoEngine::IoUring, Rw::RandRead, 1),
    drive(IoEngine::IoUring, Rw::RandWrite, 1),
    drive(IoEngine::IoUring, Rw::RandRead, 8),
    drive(IoEngine::IoUring, Rw::RandWrite, 8),
];

/// Returns the kernel's counts for a device: I/Os and their nanoseconds, reads and writes together.
fn account(guest: &mut LabGuest, device: &str) -> (u64, f64) {
    let stat = guest.sh(&format!("cat /sys/block/{device}/stat"));
    let fields: Vec<u64> = stat.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    (fields[0] + fields[4], (fields[3] + fields[7]) as f64 * MS)
}

/// One measurement, with the kernel's counts of the same I/O.
struct GroundTruth {
    outcome: Outcome,
    mean_ns: f64,
    min_ns: f64,
    median_ns: f64,
    kernel_mean_ns: f64,
    /// Description for messages.
    text: String,
}

/// Measures a device whose I/Os take about `delay_ns`, and runs the checks that apply to every device.
fn measured(guest: &mut LabGuest, device: &str, delay_ns: f64, drive: Drive) -> GroundTruth {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below ten seconds")]
    let runtime = Nanos((delay_ns * IOS).max(300.0 * MS) as u64);
    let keys = WorkloadKeys {
        ioengine: Some(drive.ioengine),
        rw: Some(drive.rw),
        iodepth: Some(drive.iodepth),
        runtime: Some(runtime),
        ramp_time: Some(Nanos(0)),
        ..WorkloadKeys::default()
    };
    let before = account(guest, device);
    let outcome = guest.measure(&Path::new("/dev").join(device), SIZE, &keys).expect("measured");
    let after = account(guest, device);
    let kernel_ios = after.0 - before.0;
    let latency = outcome.tallies.latency();
    let mean_ns = latency.mean().expect("I/Os");
    let median_ns = latency.quantile(0.5).expect("I/Os");
    let min_ns = latency.min().expect("I/Os") as f64;
    let kernel_mean_ns = (after.1 - before.1) / kernel_ios as f64;
    let ios = outcome.tallies.ios();
    let Drive { ioengine, rw, iodepth } = drive;
    let text = format!(
        "{device} {ioengine} {rw} qd{iodepth}: {ios} I/Os, mean {:.3} ms, least {:.3}, median {:.3}; by the kernel's \
         account {kernel_ios} I/Os, mean {:.3} ms",
        mean_ns / MS,
        min_ns / MS,
        median_ns / MS,
        kernel_mean_ns / MS,
    );
    eprintln!("{text}");
    assert_eq!(outcome.errors, [], "{text}");
    assert_eq!(outcome.tallies.read.is_some(), rw.reads(), "{text}");
    // The kernel also counts I/O in flight at the window's end, and the flush after a window of writes.
    let besides = u64::from(iodepth) + u64::from(outcome.flush_ns.is_some());
    assert!((ios..=ios + besides).contains(&kernel_ios), "miscounted: {text}");
    GroundTruth { outcome, mean_ns, min_ns, median_ns, kernel_mean_ns, text }
}

impl GroundTruth {
    /// Checks the median, the kernel's counts and Little's law for a device of `delay_ns`. Fails with the reason.
    fn check(&self, drive: Drive, delay_ns: f64, floor: &Floor) -> Result<(), String> {
        let Self { outcome, mean_ns, text, .. } = self;
        // The time that a slot is empty between two I/Os. A delay that ends on a tick is shorter by the I/O's offset from the
        // previous tick.
        let depth = f64::from(drive.iodepth);
        let window_ns = outcome.duration_ns as f64;
        let empty_ns = (depth * window_ns / outcome.tallies.ios() as f64 - mean_ns).max(0.0);
        if !near(self.median_ns + empty_ns, delay_ns, floor.late_ns + empty_ns) {
            return Err(format!(
                "not {delay_ns} ns, with {floor:?}, slots empty for {empty_ns:.0} ns: {text}"
            ));
        }
        if *mean_ns > self.kernel_mean_ns * (1.0 + TOLERANCE) + floor.wake_ns {
            return Err(format!("longer than by the kernel's account, with {floor:?}: {text}"));
        }
        // Little's law. I/Os in flight at the end of the window do not count, and an emulated CPU takes time to submit the next I/O, which
        // matters for short delays.
        let in_flight = outcome.tallies.ios() as f64 / window_ns * mean_ns;
        let uncounted = depth * self.median_ns / window_ns;
        let (least, most) = (depth * EMULATED - uncounted, depth * (1.0 + TOLERANCE));
        if delay_ns >= 5.0 * MS && !(least..=most).contains(&in_flight) {
            return Err(format!("{in_flight} in flight: {text}"));
        }
        Ok(())
    }
}

/// Retries: a busy host only adds time, so one of three attempts must pass.
fn calm(mut attempt: impl FnMut() -> Result<(), String>) {
    let outcome = attempt().or_else(|_| attempt()).or_else(|_| attempt());
    assert_eq!(outcome, Ok(()));
}

/// True if a value is within the tolerance, plus the overhead `floor`.
fn near(value: f64, truth: f64, floor: f64) -> bool {
    (truth * (1.0 - TOLERANCE)..=truth * (1.0 + TOLERANCE) + floor).contains(&value)
}

/// Timer and completion overhead of this machine.
#[derive(Debug)]
struct Floor {
    /// Nanoseconds from a timer's due time until the program sees it.
    late_ns: f64,
    /// Nanoseconds from the kernel's completion until the program sees it.
    wake_ns: f64,
}

#[test]
fn a_timer_in_a_device_is_seen_as_it_is() {
    let Some(mut guest) = LabGuest::boot_in_exact_time() else { return };
    guest.sh("insmod /lab/null_blk.ko nr_devices=0");
    for ms in [1, 5, 10, 20] {
        // irqmode 2 completes each I/O by a separate high-resolution timer.
        guest.sh(&format!(
            "cd /sys/kernel/config/nullb && mkdir timer{ms} && cd timer{ms} && echo {} > size && echo 2 > irqmode && \
             echo {ms}000000 > completion_nsec && echo 1 > power",
            SIZE.0 >> 20,
        ));
    }
    guest.sh(&format!("insmod /lab/scsi_debug.ko dev_size_mb={}", SIZE.0 >> 20));
    guest.sh("for wait in $(seq 100); do [ -b /dev/sda ] && break; usleep 50000; done; [ -b /dev/sda ]");
    let measured = |guest: &mut LabGuest, device: &str, ms: u32, drive: Drive| {
        guest.sh(&format!("echo {ms}000000 > /sys/bus/pseudo/drivers/scsi_debug/ndelay"));
        let measurement = measured(guest, device, f64::from(ms) * MS, drive);
        assert!(measurement.min_ns >= f64::from(ms) * MS, "quicker than the device: {}", measurement.text);
        measurement
    };
    let null: &[_] = &[("timer1", 1), ("timer5", 5), ("timer20", 20)];
    let scsi: &[_] = &[("sda", 2), ("sda", 5)];
    for drive in DRIVES {
        for (of_ten, others) in [("timer10", null), ("sda", scsi)] {
            calm(|| {
                let ten = measured(&mut guest, of_ten, 10, drive);
                let late_ns = ten.median_ns - 10.0 * MS;
                let floor = Floor { late_ns, wake_ns: ten.mean_ns - ten.kernel_mean_ns };
                others.iter().try_for_each(|(device, ms)| {
                    measured(&mut guest, device, *ms, drive).check(drive, f64::from(*ms) * MS, &floor)
                })
            });
        }
    }
}

/// dm-delay and the kernel's counts of such a device use ticks of 4 ms (`CONFIG_HZ=250` in Debian's kernels). A delay of
/// `d` ms is `ceil(d / 4)` ticks, and timers fire one tick later so as never to be early. In a closed loop, where an I/O
/// begins right after a tick, it therefore takes `ceil(d / 4) + 1` ticks: 8 ms for 2, 24 ms for 20.
#[test]
fn a_delay_in_the_mapper_is_seen_as_it_is() {
    const TICK: f64 = 4.0 * MS;
    let Some(mut guest) = LabGuest::boot_in_exact_time() else { return };
    guest.sh(&format!("insmod /lab/brd.ko rd_nr=1 rd_size={}", SIZE.0 >> 10));
    for (name, read_ms, write_ms) in [("none", 0, 0), ("slow-read", 20, 2), ("slow-write", 2, 20)] {
        let table = format!("0 {} delay /dev/ram0 0 {read_ms} /dev/ram0 0 {write_ms}", SIZE.0 / 512);
        guest.map(name, &[table]);
    }
    for drive in DRIVES {
        let undelayed = measured(&mut guest, "dm-0", 0.0, drive).mean_ns;
        let floor = Floor { late_ns: undelayed, wake_ns: undelayed };
        for (device, read_ms, write_ms) in [("dm-1", 20.0, 2.0), ("dm-2", 2.0, 20.0)] {
            let asked_ms: f64 = if drive.rw.reads() { read_ms } else { write_ms };
            let truth = ((asked_ms * MS / TICK).ceil() + 1.0) * TICK;
            calm(|| measured(&mut guest, device, truth, drive).check(drive, truth, &floor));
        }
    }
}
