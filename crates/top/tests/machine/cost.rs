//! The cost of a reading, on a large host: `cargo test --release -p iotax-top --test machine cost -- --ignored --nocapture`.

use std::fmt::Write as _;
use std::time::Duration;

use iotax_testbed::interrupt::Interrupt;
use iotax_testkit::tree;
use iotax_top::collect::{Collector, Options};
use iotax_top::{json, rates};
use rustix::time::{ClockId, clock_gettime};

const DEVICES: u32 = 20;
const GUESTS: u32 = 50;
const PROCESSES: u32 = 300;
const READINGS: u32 = 100;

/// A host with many devices, guests and other processes.
fn host() -> String {
    let mut text = String::from("proc/self/mountinfo = 1 0 8:0 / / rw - ext4 /dev/sd0 rw\nsrv/a = x\n");
    let mut stats = Vec::new();
    for at in 0..DEVICES {
        let _ = writeln!(text, "sys/class/block/sd{at} -> ../../devices/d{at}/block/sd{at}");
        let _ = writeln!(text, "sys/dev/block/8:{at} -> ../../devices/d{at}/block/sd{at}");
        let _ = writeln!(text, "sys/devices/d{at}/block/sd{at}/size = 2097152");
        stats.push(format!("8 {at} sd{at} 1000 10 80000 2000 500 50 8000 1500 0 3000 3500 1 2 3 4 7 70"));
    }
    let _ = writeln!(text, "proc/diskstats = {}", stats.join("\\n"));
    for pid in 1..=GUESTS + PROCESSES {
        let (name, group) = if pid <= GUESTS { ("qemu-system-x86", "machine") } else { ("worker", "user") };
        let _ = writeln!(text, "proc/{pid}/comm = {name}\nproc/{pid}/cgroup = 0::/{group}/{pid}");
        let _ = writeln!(
            text,
            "proc/{pid}/stat = {pid} ({name}) S 1 {pid} {pid} 0 -1 4194304 90 0 0 0 1 1 0 0 20 0 1 0 5"
        );
        let _ = writeln!(
            text,
            "proc/{pid}/io = rchar: 1\\nwchar: 2\\nsyscr: 1000\\nsyscw: 10\\nread_bytes: 4096\\nwrite_bytes: 0\\ncancelled_write_bytes: 0"
        );
        if pid <= GUESTS {
            let _ = writeln!(text, "proc/{pid}/cmdline = qemu-system-x86_64 -name vm{pid} -hda /srv/a");
            let _ = writeln!(
                text,
                "sys/fs/cgroup/machine/{pid}/io.stat = 8:0 rbytes=1000 wbytes=0 rios=10 wios=0 dbytes=0 dios=0"
            );
        }
    }
    text
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(now.tv_sec.unsigned_abs()) + Duration::from_nanos(now.tv_nsec.unsigned_abs())
}

#[test]
#[ignore = "it measures, and asserts nothing"]
fn cost() {
    let root = tree::build(&host());
    let options = Options { root: root.path().to_owned(), percentiles: false, qmp: Vec::new() };
    let mut collector = Collector::new(&options, &Interrupt::default());
    let mut before = collector.snapshot();
    let began = cpu_time();
    for _ in 0..READINGS {
        let after = collector.snapshot();
        assert_eq!(after.devices.len(), 20);
        let frame = rates::between(&before, &after).expect("time passed");
        assert!(json::document(&frame).to_string().len() > 1000);
        before = after;
    }
    let each = cpu_time().saturating_sub(began) / READINGS;
    eprintln!(
        "{DEVICES} devices, {GUESTS} guests, {PROCESSES} other processes: {each:?} of CPU time for a reading"
    );
    eprintln!("at one reading per second: {:.2}% of a CPU", each.as_secs_f64() * 100.0);
}

/// Asserts that all devices, guests and processes of the tree are read.
#[test]
fn the_large_host_is_read_in_whole() {
    let root = tree::build(&host());
    let options = Options { root: root.path().to_owned(), percentiles: false, qmp: Vec::new() };
    let read = Collector::new(&options, &Interrupt::default()).snapshot();
    assert_eq!((read.devices.len(), read.guests.len()), (20, 50));
    assert_eq!((read.processes.len(), read.cgroups.len()), (350, 50));
}
