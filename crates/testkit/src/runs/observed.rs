//! Generates synthetic runs with measurements from inside guests, or with several concurrent guests.

use std::collections::BTreeMap;

use iotax_model::Run;
use iotax_model::record::{
    BlockStats, BlockTally, CpuTime, DiskActivity, HostActivity, HostCpu, Measurement, RunPhase, Share, Tally,
};
use iotax_model::target::TargetSpec;
use iotax_model::{Histogram, Plan};

use super::{HOST, Truth, run, tallies, whole};

/// Upper bounds of QEMU's latency histogram bins in nanoseconds; the last bin has no bound.
const BOUNDS: [u64; 9] = [20_000, 50_000, 80_000, 100_000, 150_000, 200_000, 500_000, 1_000_000, 10_000_000];

/// Shares of a guest's added latency (0 to 1) that are visible to QEMU's block layer and to the guest's block device.
pub const WAITS: (f64, f64) = (0.25, 0.7);

/// Converts a histogram into QEMU's bins, with each latency multiplied by `factor`. Returns upper bounds and counts.
fn binned(latency: &Histogram, factor: f64) -> Vec<(Option<u64>, u64)> {
    let mut bins: Vec<(Option<u64>, u64)> =
        BOUNDS.iter().map(|bound| (Some(*bound), 0)).chain([(None, 0)]).collect();
    for step in 0..1000_u32 {
        let ns = latency.quantile((f64::from(step) + 0.5) / 1000.0).unwrap_or_default() * factor;
        let bin = bins.iter_mut().find(|(bound, _)| bound.is_none_or(|bound| ns < bound as f64));
        bin.expect("the last has no bound").1 += latency.count() / 1000;
    }
    bins
}

/// Adds the data that a guest's monitoring would collect to a measurement: QEMU's block statistics, CPU time of QEMU's and kernel threads,
/// disk and CPU activity inside the guest.
pub fn add_guest_data(m: &mut Measurement) {
    let latency = m.outcome.tallies.latency();
    let program = latency.mean().expect("I/O");
    let host = m.host.as_mut().expect("observed");
    let device = host.disks.values().next().and_then(|disk| disk.mean_wait_ns).expect("observed");
    let at = |share: f64| device + share * (program - device);
    let block_stats = |tally: &Option<Tally>| {
        tally.as_ref().map_or_else(BlockTally::default, |tally| BlockTally {
            ios: tally.ios,
            bytes: tally.bytes,
            total_ns: whole(tally.ios as f64 * at(WAITS.0)),
            latency: binned(&tally.latency, at(WAITS.0) / program),
        })
    };
    m.qemu = Some(BlockStats {
        read: block_stats(&m.outcome.tallies.read),
        write: block_stats(&m.outcome.tallies.write),
        flush: BlockTally::default(),
    });
    let busy = host.cpu.expect("observed").busy_ns() as f64;
    let time =
        |share: f64| CpuTime { user_ns: whole(busy * share / 4.0), system_ns: whole(busy * share * 0.75) };
    for (role, share) in [("vcpu", 0.5), ("iothread", 0.25), ("main", 0.02), ("worker", 0.03)] {
        host.guest_threads.insert(role.into(), time(share));
    }
    host.kernel_threads.insert("jbd2/vda-8".into(), time(0.04));
    host.kernel_ns = Some(time(0.04).total_ns());
    for disk in host.disks.values_mut() {
        let waited = |ios: u64| disk.mean_wait_ns.map(|ns| whole(ns * ios as f64));
        (disk.read_wait_ns, disk.write_wait_ns) = (waited(disk.reads), waited(disk.writes));
    }
    let moved = |tally: &Option<Tally>| tally.as_ref().map_or((0, 0), |tally| (tally.ios, tally.bytes));
    let ((reads, read_bytes), (writes, write_bytes)) =
        (moved(&m.outcome.tallies.read), moved(&m.outcome.tallies.write));
    let waited = |ios: u64| Some(whole(at(WAITS.1) * ios as f64));
    let disk = DiskActivity {
        reads,
        read_bytes,
        writes,
        write_bytes,
        mean_wait_ns: Some(at(WAITS.1)),
        read_wait_ns: waited(reads),
        write_wait_ns: waited(writes),
        ..DiskActivity::default()
    };
    m.outcome.inside = Some(HostActivity {
        at_ns: m.outcome.duration_ns,
        duration_ns: m.outcome.duration_ns,
        disks: BTreeMap::from([("vda".into(), disk)]),
        cpu: Some(HostCpu {
            user_ns: 500_000_000,
            system_ns: 1_500_000_000,
            idle_ns: 3_800_000_000,
            steal_ns: 200_000_000,
            ..HostCpu::default()
        }),
        ..HostActivity::default()
    });
}

/// Builds a run of five rounds over nine targets on devices and on files, with data from inside the guests and phase durations.
pub fn both_ladders() -> Run {
    let rung = |slowdown, cpu_ns| Truth { slowdown, noise: 0.004, cpu_ns };
    let truths = [
        ("host-device", HOST),
        ("host-lvm", rung(1.03, 4_400.0)),
        ("host-lvm-file", rung(1.09, 4_700.0)),
        ("host-file", rung(1.05, 4_300.0)),
        ("vm-device", rung(1.40, 9_500.0)),
        ("vm-lvm", rung(1.44, 9_900.0)),
        ("vm-raw", rung(1.45, 9_800.0)),
        ("vm-qcow2", rung(1.46, 10_000.0)),
        ("vm-qcow2-snapshot", rung(1.9, 10_400.0)),
    ];
    let mut run = run(&truths, &["randread-4k-qd1", "randwrite-4k-qd32"], 5, false);
    for m in &mut run.measurements {
        if m.target.starts_with("vm") {
            add_guest_data(m);
        } else {
            let busy = m.host.as_ref().and_then(|host| host.cpu).expect("observed").busy_ns();
            m.outcome.cpu = CpuTime { user_ns: busy / 10, system_ns: busy * 3 / 10 };
        }
    }
    let phase =
        |name: &str, seconds: u64| RunPhase { name: name.into(), duration_ns: seconds * 1_000_000_000 };
    run.phases = vec![
        phase("provision", 12),
        phase("boot", 20),
        phase("fill", 40),
        phase("prepare", 68),
        phase("measure", 630),
        phase("finish", 5),
    ];
    run
}

/// Builds a run with one, two and four concurrent guests, in which the first guest gets more I/O than the others, plus a single guest with
/// a noisy neighbour.
pub fn crowd() -> Run {
    let guests = |slowdown| Truth { slowdown, noise: 0.004, cpu_ns: 9_800.0 };
    let truths =
        [("vm-1", guests(1.4)), ("vm-2", guests(1.6)), ("vm-4", guests(2.4)), ("vm-noisy", guests(2.0))];
    let mut run = run(&truths, &["randread-4k-qd1"], 5, false);
    for (target, count) in run.plan.targets.iter_mut().zip([1, 2, 4, 1]) {
        target.stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest").count = count;
    }
    run.plan.targets[3].neighbour = Some("loud".into());
    run.plan.neighbours = neighbour(&run.plan.targets[0]);
    let workload = run.plan.workloads[0].clone();
    for m in &mut run.measurements {
        let mean = m.outcome.tallies.latency().mean().expect("I/O");
        let ios = m.outcome.tallies.ios();
        let share = |name: &str, ios: u64, mean: f64| Share {
            name: name.into(),
            duration_ns: m.outcome.duration_ns,
            tallies: tallies(&workload, ios, mean),
        };
        m.shares = match m.target.as_str() {
            "vm-2" => vec![share("1", ios * 6 / 10, mean * 0.8), share("2", ios * 4 / 10, mean * 1.2)],
            "vm-4" => {
                (1..=4).map(|n| share(&n.to_string(), ios * if n == 1 { 4 } else { 2 } / 10, mean)).collect()
            }
            _ => vec![],
        };
        m.neighbour = (m.target == "vm-noisy").then(|| share("loud", 60_000, mean * 3.0));
        let theirs = m.neighbour.as_ref().map_or(0, |share| share.tallies.bytes());
        let host = m.host.as_mut().expect("observed");
        host.disks.values_mut().for_each(|disk| disk.read_bytes += theirs);
    }
    run
}

fn neighbour(beside: &TargetSpec) -> Vec<iotax_model::plan::Neighbour> {
    let text =
        "[[target]]\nname = \"t\"\npath = \"/t\"\n[[workload]]\nname = \"noise\"\nrw = \"randwrite\"\n";
    let workload = Plan::from_toml(text).expect("a plan").workloads.remove(0);
    let target = TargetSpec { name: "loud".into(), ..beside.clone() };
    vec![iotax_model::plan::Neighbour { target, workload }]
}
