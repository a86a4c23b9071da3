//! Tests that `iotax record` and blktrace on the same disk record the same requests at the same times.

use std::path::Path;

use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};

use crate::lab_guest::{Extras, LabGuest};

const SIZE: Bytes = Bytes(64 << 20);
/// Tolerance: the two take the time of a request in the same kernel function, one after the other.
const APART_NS: u64 = 200_000;

/// A request of a trace, from its CSV form.
#[derive(Debug)]
struct Row {
    at_ns: u64,
    latency_ns: u64,
    /// Operation, offset, length and FUA.
    request: String,
    process: String,
}

fn rows(lab: &mut LabGuest, trace: &str) -> Vec<Row> {
    lab.sh(&format!(
        "iotax trace {trace} --export csv /tmp/out.csv 2> /tmp/said || {{ cat /tmp/said; false; }}"
    ));
    let text = lab.sh("cat /tmp/out.csv && rm /tmp/out.csv");
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Row {
            at_ns: fields[0].parse().expect("a time"),
            latency_ns: fields[1].parse().unwrap_or_else(|_| panic!("{trace}: not completed: {line}")),
            request: fields[2..6].join(","),
            process: fields[6].to_owned(),
        }
    };
    text.lines().skip(1).map(row).collect()
}

/// Returns the number of requests of a kind, and their bytes.
fn sum(rows: &[Row], operation: &str) -> (usize, u64) {
    let of_it = rows.iter().filter(|row| row.request.starts_with(operation));
    let bytes = |row: &Row| row.request.split(',').nth(2).and_then(|length| length.parse::<u64>().ok());
    (of_it.clone().count(), of_it.map(|row| bytes(row).expect("a length")).sum())
}

#[test]
fn blktrace_and_iotax_record_see_the_same_requests() {
    let Some(mut lab) = LabGuest::boot_with(&Extras {
        programs: &["blktrace", "blkdiscard", "dd"],
        disks: &[SIZE],
        exact_time: true,
        ..Extras::default()
    }) else {
        return;
    };
    lab.sh(
        "mkdir -p /tmp && mount -t tmpfs tmpfs /tmp && mkdir /tmp/home && export HOME=/tmp/home && mount -t debugfs debugfs /sys/kernel/debug",
    );
    lab.sh("blktrace -d /dev/vda -D /tmp -o theirs > /tmp/blktrace.said 2>&1 & theirs=$!");
    lab.sh(
        "for i in $(seq 100); do [ -e /sys/kernel/debug/block/vda/dropped ] && break; usleep 100000; done",
    );
    lab.sh("iotax record /dev/vda -o /tmp/ours.parquet --time 10m > /tmp/record.said 2>&1 & ours=$!");
    lab.sh("for i in $(seq 100); do grep -q '^recording' /tmp/record.said && break; usleep 100000; done; cat /tmp/record.said");

    let keys = WorkloadKeys {
        ioengine: Some(IoEngine::IoUring),
        rw: Some(Rw::RandRw),
        iodepth: Some(8),
        runtime: Some(Nanos::from_millis(500)),
        ramp_time: Some(Nanos(0)),
        ..WorkloadKeys::default()
    };
    let outcome = lab.measure(Path::new("/dev/vda"), SIZE, &keys).expect("measured");
    // Requests that the kernel merges, of the page cache; long ones; trims.
    lab.sh("dd if=/dev/zero of=/dev/vda bs=4k count=500 seek=100 conv=fsync 2> /dev/null");
    lab.sh("dd if=/dev/vda of=/dev/null bs=1M count=20 iflag=direct 2> /dev/null");
    lab.sh("blkdiscard -o 8388608 -l 4194304 /dev/vda");

    lab.sh("kill -TERM $ours; wait $ours; cat /tmp/record.said");
    lab.sh("kill -TERM $theirs; wait $theirs; true");
    let said = lab.sh("cat /tmp/record.said /tmp/blktrace.said");
    assert!(said.contains("no event was lost") && said.contains("(dropped 0)"), "{said}");

    let (theirs, ours) = (rows(&mut lab, "/tmp/theirs.blktrace.0"), rows(&mut lab, "/tmp/ours.parquet"));
    for operation in ["read", "write", "trim", "flush"] {
        assert_eq!(sum(&ours, operation), sum(&theirs, operation), "{operation}");
        assert!(sum(&ours, operation).0 > 0, "the load has none: {operation}");
    }
    let done = |tally: Option<&iotax_model::record::Tally>| tally.map_or(0, |tally| tally.ios);
    let (reads, writes) = (done(outcome.tallies.read.as_ref()), done(outcome.tallies.write.as_ref()));
    assert!(
        sum(&ours, "read").0 as u64 >= reads + 20 && sum(&ours, "write").0 as u64 > writes,
        "{reads} {writes}"
    );
    let apart = |ours: &Row, theirs: &Row| theirs.at_ns - ours.at_ns;
    let mut begins: Vec<u64> = ours.iter().zip(&theirs).map(|(ours, theirs)| apart(ours, theirs)).collect();
    begins.sort_unstable();
    // Times of one count from its begin, of the other from the machine's.
    let between = begins[begins.len() / 2];
    let mut farthest = (0, 0);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!((&ours.request, &ours.process), (&theirs.request, &theirs.process), "{ours:?} {theirs:?}");
        let at = apart(ours, theirs).abs_diff(between);
        let latency = ours.latency_ns.abs_diff(theirs.latency_ns);
        assert!(at < APART_NS && latency < APART_NS, "{ours:?} {theirs:?}");
        farthest = (farthest.0.max(at), farthest.1.max(latency));
    }
    eprintln!("{} requests; times at most {} ns apart, latencies {} ns", ours.len(), farthest.0, farthest.1);
}
