//! Tests of storage with known failures: each is counted with its kind, direction and first offset, and nothing hangs.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use iotax_model::histogram::Histogram;
use iotax_model::record::{ErrorCount, Outcome, Stop};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};

use crate::lab_guest::LabGuest;

const BS: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Half a second of 4k I/O at depth 1, for which the counts can be derived.
fn keys(ioengine: IoEngine, rw: Rw) -> WorkloadKeys {
    WorkloadKeys {
        rw: Some(rw),
        ioengine: Some(ioengine),
        runtime: Some(Nanos::from_millis(500)),
        ramp_time: Some(Nanos(0)),
        ..WorkloadKeys::default()
    }
}

/// The same for 5 MiB, regardless of the duration.
fn whole(ioengine: IoEngine, rw: Rw) -> WorkloadKeys {
    WorkloadKeys { io_size: Some(Bytes(5 * MIB)), runtime: Some(Nanos::from_secs(60)), ..keys(ioengine, rw) }
}

fn measure(guest: &mut LabGuest, path: &str, mib: u64, keys: &WorkloadKeys) -> Outcome {
    let outcome = guest.measure(Path::new(path), Bytes(mib * MIB), keys).expect("an outcome");
    eprintln!(
        "{path} {:?}: {} I/Os, {:?}, {:?}",
        keys.rw,
        outcome.tallies.ios(),
        outcome.errors,
        outcome.notes
    );
    outcome
}

/// The expected error count if sequential I/O over `blocks` fails exactly on the `bad` blocks.
fn failures(outcome: &Outcome, error: &str, direction: &str, blocks: u64, bad: Range<u64>) -> ErrorCount {
    let failed: u64 = outcome.errors.iter().map(|error| error.count).sum();
    let all = 0..outcome.tallies.ios() + failed;
    let on_bad: Vec<u64> = all.map(|n| n % blocks).filter(|block| bad.contains(block)).collect();
    let [first, .., last] = on_bad.as_slice() else { panic!("too short to fail twice: {outcome:?}") };
    ErrorCount {
        error: error.into(),
        direction: direction.into(),
        count: on_bad.len() as u64,
        in_ramp: 0,
        first_offset: first * BS,
        last_offset: Some(last * BS),
    }
}

const ENGINES: [IoEngine; 2] = [IoEngine::Psync, IoEngine::IoUring];

#[test]
fn what_fails_is_counted_exactly() {
    let Some(mut guest) = LabGuest::boot() else { return };
    guest.sh("insmod /lab/brd.ko rd_nr=1 rd_size=65536");

    // One block in the middle of 2 MiB that cannot be read or written.
    let hole = ["0 2048 linear /dev/ram0 0", "2048 8 error", "2056 2040 linear /dev/ram0 2056"];
    guest.map("hole", &hole.map(str::to_owned));
    for ioengine in ENGINES {
        for (rw, direction) in [(Rw::Read, "read"), (Rw::Write, "write")] {
            let outcome = measure(&mut guest, "/dev/mapper/hole", 2, &whole(ioengine, rw));
            let expected = failures(&outcome, "EIO", direction, 2 * MIB / BS, 256..257);
            assert_eq!(outcome.errors, [expected]);
        }
        let few = WorkloadKeys {
            max_errors: Some(3),
            runtime: Some(Nanos::from_secs(30)),
            ..keys(ioengine, Rw::Read)
        };
        let outcome = measure(&mut guest, "/dev/mapper/hole", 2, &few);
        assert_eq!((outcome.stop, outcome.errors[0].count), (Some(Stop::Errors), 3));
    }

    // Writes fail, reads do not: of each 100 I/Os exactly 70 are reads.
    guest.map("no-writes", &["0 16384 flakey /dev/ram0 0 0 1000000 1 error_writes".to_owned()]);
    for ioengine in ENGINES {
        let mix = WorkloadKeys { rwmixread: Some(70), ..whole(ioengine, Rw::RandRw) };
        let outcome = measure(&mut guest, "/dev/mapper/no-writes", 8, &mix);
        let [error] = outcome.errors.as_slice() else { panic!("{:?}", outcome.errors) };
        assert_eq!((error.error.as_str(), error.direction.as_str()), ("EIO", "write"));
        let (reads, writes) =
            (outcome.tallies.read.expect("reads").ios, outcome.tallies.write.expect("writes").ios);
        assert_eq!(writes, 0);
        let hundreds = (reads + error.count) / 100;
        assert!((hundreds * 30..=hundreds * 30 + 30).contains(&error.count), "{reads} reads, {error:?}");
    }

    // Two blocks of a SCSI disk that can be written but not read: ten sectors from 4660 on.
    guest.sh("insmod /lab/scsi_debug.ko delay=0 dev_size_mb=16 opts=2 medium_error_start=4660 medium_error_count=10");
    guest.sh("for wait in $(seq 100); do [ -b /dev/sda ] && break; usleep 50000; done; [ -b /dev/sda ]");
    for ioengine in ENGINES {
        let outcome = measure(&mut guest, "/dev/sda", 4, &whole(ioengine, Rw::Read));
        let expected = failures(&outcome, "ENODATA", "read", 4 * MIB / BS, 582..584);
        assert_eq!(outcome.errors, [expected]);
        assert_eq!(measure(&mut guest, "/dev/sda", 4, &whole(ioengine, Rw::Write)).errors, []);
    }

    // A filesystem of 4 MiB with a file of 8 that is all hole.
    guest.sh("mount -t tmpfs -o size=4m small /mnt; truncate -s 8M /mnt/file");
    for ioengine in ENGINES {
        guest.sh("truncate -s 0 /mnt/file; truncate -s 8M /mnt/file");
        let buffered = WorkloadKeys { direct: Some(false), ..whole(ioengine, Rw::Write) };
        let outcome = measure(&mut guest, "/mnt/file", 8, &buffered);
        let expected = failures(&outcome, "ENOSPC", "write", 8 * MIB / BS, 1024..2048);
        assert_eq!(outcome.errors, [expected]);
    }

    // A file of 512 blocks that is cut within block 256 while it is read: in each pass one short read and 255 beyond the end.
    for ioengine in ENGINES {
        guest.sh(
            "truncate -s 0 /mnt/file; truncate -s 2M /mnt/file; (sleep 1; truncate -s 1049076 /mnt/file) &",
        );
        let buffered = WorkloadKeys {
            direct: Some(false),
            runtime: Some(Nanos::from_secs(4)),
            ..keys(ioengine, Rw::Read)
        };
        let outcome = measure(&mut guest, "/mnt/file", 2, &buffered);
        let [empty, short] = outcome.errors.as_slice() else { panic!("{:?}", outcome.errors) };
        assert_eq!((empty.error.as_str(), short.error.as_str()), ("empty read", "short read"));
        assert_eq!((short.first_offset, short.last_offset), (MIB, Some(MIB)));
        assert!(empty.first_offset > MIB && short.count > 0);
        // But for the passes that were cut themselves, by the cut and by the end.
        assert!(empty.count.abs_diff(short.count * 255) <= 255, "{short:?}, {empty:?}");
    }
}

#[test]
fn a_device_that_is_taken_away_ends_in_counted_errors() {
    let Some(mut guest) = LabGuest::boot() else { return };
    guest.sh("insmod /lab/null_blk.ko nr_devices=0; insmod /lab/scsi_debug.ko ndelay=1000000 dev_size_mb=16");
    for (ioengine, iodepth) in [(IoEngine::Psync, 1), (IoEngine::IoUring, 8)] {
        let long = WorkloadKeys {
            iodepth: Some(iodepth),
            runtime: Some(Nanos::from_secs(2)),
            ..keys(ioengine, Rw::RandRead)
        };
        guest.sh(
            "cd /sys/kernel/config/nullb && mkdir gone && cd gone && echo 16 > size && echo 2 > irqmode && \
             echo 1000000 > completion_nsec && echo 1 > power",
        );
        guest.sh(&once_read("gone", "echo 0 > /sys/kernel/config/nullb/gone/power"));
        is_seen_to_go(&mut guest, "/dev/gone", &long);
        guest.sh("rmdir /sys/kernel/config/nullb/gone");

        guest.sh("for wait in $(seq 100); do [ -b /dev/sda ] && break; usleep 50000; done; [ -b /dev/sda ]");
        guest.sh(&once_read("sda", "echo 1 > /sys/block/sda/device/delete"));
        is_seen_to_go(&mut guest, "/dev/sda", &long);
        guest.sh("echo '- - -' > /sys/class/scsi_host/host0/scan");
    }
}

/// Returns a shell command that waits in the background for more reads of a disk, and then runs another command.
fn once_read(disk: &str, then: &str) -> String {
    let reads = format!("set -- $(cat /sys/block/{disk}/stat)");
    format!(
        "({reads}; begin=$1; while {reads}; [ $1 -lt $((begin + 50)) ]; do usleep 20000; done; {then}) 2>/dev/null &"
    )
}

fn is_seen_to_go(guest: &mut LabGuest, device: &str, keys: &WorkloadKeys) {
    let began = Instant::now();
    let outcome = measure(guest, device, 16, keys);
    assert!(outcome.tallies.ios() > 0, "nothing before it went");
    // A removed device has size 0; the errors during the removal depend on the driver.
    assert!(outcome.errors.iter().any(|error| error.error == "empty read"), "{:?}", outcome.errors);
    assert!(outcome.errors.iter().all(|error| error.direction == "read"), "{:?}", outcome.errors);
    assert!(began.elapsed() < Duration::from_secs(8), "it hung: {:?}", began.elapsed());
}

/// Tests that I/O to a suspended mapped device waits until it is resumed.
#[test]
fn a_stall_is_seen_as_long_as_it_is() {
    const RATE: u64 = 200;
    let Some(mut guest) = LabGuest::boot_in_exact_time() else { return };
    // A device that leaves the guest idle: instructions are counted, and those of a busy one take long to emulate.
    guest.sh("insmod /lab/null_blk.ko nr_devices=1 gb=1 irqmode=2 completion_nsec=200000");
    guest.sh("now() { cut -d' ' -f1 /proc/uptime; }");
    guest.map("stalls", &["0 32768 linear /dev/nullb0 0".to_owned()]);
    let long = |ioengine| WorkloadKeys { runtime: Some(Nanos::from_secs(4)), ..keys(ioengine, Rw::RandRead) };
    let mut stall = |keys: &WorkloadKeys| {
        // Each time from the guest's start, to 10 ms: before and after the suspension, before and after the resumption.
        guest.sh(
            "(sleep 0.7; echo $(now; dmsetup suspend stalls; now; sleep 1.5; now; dmsetup resume stalls; now) > /tmp/times) &",
        );
        let outcome = measure(&mut guest, "/dev/mapper/stalls", 16, keys);
        let times = guest.sh("cat /tmp/times");
        let times: Vec<f64> = times.split_whitespace().map(|time| time.parse().expect("seconds")).collect();
        let (least, most) = (times[2] - times[1], times[3] - times[0]);
        let longest = outcome.tallies.latency().max().expect("I/Os") as f64 / 1e9;
        eprintln!("stalled for {least:.2} to {most:.2} s, longest I/O {longest:.3} s");
        assert!((least - 0.02..=most + 0.02).contains(&longest), "{longest} s for {least} to {most}");
        assert_eq!((over_a_second(&outcome.tallies.latency()), &outcome.errors), (1, &vec![]));
        (outcome, longest)
    };
    for ioengine in ENGINES {
        stall(&long(ioengine));
    }
    // An open loop at depth 1: I/Os due in the stall wait until its end, each shorter than the previous one.
    let (outcome, longest) = stall(&WorkloadKeys { rate_iops: Some(RATE), ..long(IoEngine::IoUring) });
    let waited = over_a_second(&outcome.tallies.response().expect("an open loop")) as f64;
    let truth = (longest - 1.0) * RATE as f64;
    eprintln!("{waited} responses over a second, {truth:.1} expected, {:?}", outcome.pacing);
    // Later I/O waits too while the backlog is worked off.
    let truths = truth * 0.97 - 1.0..=truth * 1.1 + 1.0;
    assert!(truths.contains(&waited), "{waited} responses over a second, not {truth}");

    guest.sh("(sleep 0.3; dmsetup suspend stalls) &");
    let impatient = WorkloadKeys { stall_timeout: Some(Nanos::from_secs(1)), ..long(IoEngine::IoUring) };
    let began = Instant::now();
    let outcome = measure(&mut guest, "/dev/mapper/stalls", 16, &impatient);
    assert_eq!((outcome.stop, outcome.errors.len()), (Some(Stop::Stalled), 0));
    assert!(outcome.tallies.ios() > 0 && outcome.duration_ns < 2_000_000_000, "{} ns", outcome.duration_ns);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// Returns the number of I/Os that took longer than a second.
fn over_a_second(latency: &Histogram) -> u64 {
    latency.bars().filter(|(lowest, ..)| *lowest > 1_000_000_000).map(|(.., count)| count).sum()
}
