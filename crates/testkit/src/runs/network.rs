//! Generates synthetic network runs whose true rates are known.

use std::collections::BTreeMap;

use iotax_model::Run;
use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::record::{
    Carried, CpuTime, Flow, HostActivity, HostCpu, Interface, Measurement, NicActivity, Outcome, Probes,
    Sample, Tallies, Tally, TargetRecord,
};
use iotax_model::target::{GuestSpec, Layer, LayerKind, NetPath, NetworkSpec, Nic, Stack, TargetSpec};
use iotax_model::units::{BitRate, Bytes};
use iotax_model::{Histogram, Nanos, Workload};

use super::{SECONDS, complete, whole};

/// Deviations of successive rounds in units of 0.5%; they sum to zero over five rounds.
const STRAYS: [f64; 5] = [0.3, -1.0, 0.9, 0.6, -0.8];
/// Payload bytes of a TCP segment.
const SEGMENT: u64 = 1448;
/// Payload bytes of a UDP datagram.
pub const DATAGRAM: u64 = 1470;

/// The true behaviour of a network path.
#[derive(Clone, Copy)]
pub struct TestPath {
    /// Name of the target, which implies the type of path.
    pub name: &'static str,
    /// Total upload rate of all streams in bytes per second; downloads get 90% of it.
    pub rate: f64,
    /// Host CPU time in nanoseconds per byte.
    pub cpu_ns: f64,
    /// Mean round-trip time of the path in nanoseconds.
    pub rtt_ns: f64,
}

/// The baseline: the host's loopback interface.
pub const LOOPBACK: TestPath = TestPath { name: "loopback", rate: 4.5e9, cpu_ns: 0.35, rtt_ns: 22_000.0 };
/// A veth pair between two network namespaces.
pub const VETH: TestPath = TestPath { name: "veth", rate: 3.9e9, cpu_ns: 0.41, rtt_ns: 27_000.0 };
/// A guest with a virtio network card on a bridge.
pub const VIRTIO: TestPath = TestPath { name: "vm-virtio", rate: 1.2e9, cpu_ns: 0.95, rtt_ns: 96_000.0 };
/// A guest with an emulated e1000 network card on a bridge.
pub const E1000: TestPath = TestPath { name: "vm-e1000", rate: 0.11e9, cpu_ns: 9.1, rtt_ns: 210_000.0 };
/// A guest with a virtio network card on QEMU's user-mode network stack.
pub const SLIRP: TestPath = TestPath { name: "vm-slirp", rate: 0.21e9, cpu_ns: 6.3, rtt_ns: 260_000.0 };

fn network(name: &str) -> NetworkSpec {
    let via = match name {
        "loopback" => NetPath::Loopback,
        "veth" => NetPath::Veth,
        "vm-slirp" => NetPath::User,
        _ => NetPath::Bridge,
    };
    let nic = if name.contains("e1000") { Nic::E1000 } else { Nic::VirtioNet };
    NetworkSpec { nic, ..NetworkSpec::new(via) }
}

/// Builds a target with the network path that its name implies.
pub fn target(name: &str) -> TargetSpec {
    let path = Stack::from(network(name));
    TargetSpec::new(name, if name.starts_with("vm") { path.with(GuestSpec::default()) } else { path })
}

fn interface(name: &str, position: &str, driver: &str) -> Interface {
    let offloads = ["tx-tcp-segmentation", "tx-generic-segmentation", "rx-gro"].map(str::to_owned);
    Interface {
        name: name.into(),
        position: position.into(),
        driver: Some(driver.into()),
        mtu: Some(1500),
        offloads: Some(offloads.into()),
        ..Interface::default()
    }
}

fn record(name: &str) -> TargetRecord {
    let guest = name.starts_with("vm");
    let (near, driver) = match name {
        "loopback" => ("lo", "loopback"),
        "vm-e1000" => ("eth0", "e1000"),
        _ if guest => ("eth0", "virtio_net"),
        _ => ("near0", "veth"),
    };
    let mut interfaces = vec![interface(near, "client", driver)];
    if name != "loopback" {
        interfaces.push(interface("far0", "server", "veth"));
    }
    let mut layers = vec![Layer::new(LayerKind::Network, name, "")];
    if guest {
        interfaces.insert(1, interface("tap0", "host", "tun"));
        layers.push(Layer::new(LayerKind::Nic, driver, "1 queue"));
        layers.push(Layer::new(LayerKind::Guest, "guest", "1 vCPU, 512m"));
    }
    TargetRecord { name: name.into(), layers, interfaces, ..TargetRecord::default() }
}

/// Builds a workload of [`SECONDS`] s with this traffic, named after it.
pub fn workload(net: Traffic) -> Workload {
    let name = net.generated_name();
    let standard: Workload = "seqread-1m".parse().expect("a standard workload");
    // As in a real plan: network workloads have no page cache.
    let standard = Workload { direct: false, invalidate: false, ..standard };
    Workload { name, runtime: Nanos::from_secs(u64::from(SECONDS)), kind: net.into(), ..standard }
}

/// Builds a workload of one TCP stream in this direction.
pub fn tcp(direction: Direction) -> Workload {
    workload(Traffic { direction, ..Traffic::new(NetTest::Tcp) })
}

/// Builds a workload of UDP datagrams at 100 Mbit/s.
pub fn udp() -> Workload {
    let bitrate = Some(BitRate(100_000_000));
    workload(Traffic { bitrate, length: Some(Bytes(DATAGRAM)), ..Traffic::new(NetTest::Udp) })
}

/// Builds a workload of TCP round trips.
pub fn rtt() -> Workload {
    workload(Traffic::new(NetTest::TcpRtt))
}

fn times(mean_ns: f64, count: u64) -> Histogram {
    let mut histogram = Histogram::new();
    for step in 0..100_u64 {
        let share = (step + 1) * count / 100 - step * count / 100;
        let tail = if step == 99 { 3.0 } else { 1.0 };
        histogram.add_many(whole(mean_ns * tail * (0.9 + 0.002 * step as f64)), share);
    }
    histogram
}

/// Returns bytes, packets and round-trip times of a path in `seconds`, at `factor` times its true speed. A fixed bit rate is not scaled.
fn tallies(net: &Traffic, test_path: TestPath, factor: f64, seconds: f64) -> Tallies {
    if net.test.is_rtt() {
        let rtt_ns = test_path.rtt_ns / factor;
        let ios = whole(seconds * 1e9 / rtt_ns);
        let tally = Tally { ios, bytes: 64 * ios, latency: times(rtt_ns, ios), response: None };
        return Tallies { read: Some(tally), ..Tallies::default() };
    }
    let one = |rate: f64| {
        let each = if net.test == NetTest::Udp { DATAGRAM } else { SEGMENT };
        let ios = whole(seconds * rate / each as f64);
        Tally { ios, bytes: ios * each, ..Tally::default() }
    };
    let rate = net.bitrate.map_or(test_path.rate * factor, |bitrate| bitrate.0 as f64 / 8.0);
    Tallies {
        write: net.direction.sends().then(|| one(rate)),
        read: net.direction.receives().then(|| one(0.9 * rate)),
        ..Tallies::default()
    }
}

/// Splits a tally evenly over the parallel streams; empty without a tally.
fn flows(net: &Traffic, upload: bool, tally: Option<&Tally>) -> Vec<Flow> {
    let Some(tally) = tally else { return vec![] };
    let is_udp = net.test == NetTest::Udp;
    let n = u64::from(net.parallel);
    let flow = |_| Flow {
        upload,
        sent_bytes: Some(tally.bytes / n),
        received_bytes: Some(tally.bytes / n),
        sent_packets: Some(tally.ios / n),
        received_packets: Some(tally.ios / n),
        lost: is_udp.then_some(0),
        out_of_order: is_udp.then_some(0),
        duplicates: is_udp.then_some(0),
        jitter_ns: is_udp.then_some(11_000),
        retransmits: (!is_udp).then_some(0),
        rtt_ns: (!is_udp).then_some([40_000, 90_000, 400_000]),
        max_cwnd: None,
    };
    (0..n).map(flow).collect()
}

/// Returns interface counters inside the guest (empty without one) and on the host: the payload plus 2% for headers.
fn nics(outcome: &Outcome, name: &str) -> (BTreeMap<String, NicActivity>, BTreeMap<String, NicActivity>) {
    let of =
        |tally: &Option<Tally>| tally.as_ref().map_or((0, 0), |t| (t.bytes + t.bytes / 50, t.ios / 40 + 1));
    let (mut up, down) = (of(&outcome.tallies.write), of(&outcome.tallies.read));
    // Round trips: every message comes back with the same size.
    if outcome.carried.as_ref().is_some_and(|carried| carried.probes.is_some()) {
        up = down;
    }
    let sum = (up.0 + down.0, up.1 + down.1);
    let counted = |rx: (u64, u64), tx: (u64, u64)| NicActivity {
        rx_bytes: rx.0,
        rx_packets: rx.1,
        tx_bytes: tx.0,
        tx_packets: tx.1,
        ..NicActivity::default()
    };
    let (near, far) = (counted(down, up), counted(up, down));
    match name {
        "loopback" => (BTreeMap::new(), BTreeMap::from([("lo".into(), counted(sum, sum))])),
        "veth" => (BTreeMap::new(), BTreeMap::from([("near0".into(), near), ("far0".into(), far)])),
        _ => (
            BTreeMap::from([("eth0".into(), near)]),
            BTreeMap::from([("tap0".into(), far), ("far0".into(), far)]),
        ),
    }
}

fn busy(ns: f64, duration_ns: u64) -> HostCpu {
    let busy = whole(ns);
    HostCpu {
        user_ns: busy / 4,
        system_ns: busy - busy / 4,
        idle_ns: (16 * duration_ns).saturating_sub(busy),
        ..HostCpu::default()
    }
}

/// Builds one measurement of a path. `round` and `phase` select the deviation from its true speed.
pub fn measurement(workload: &Workload, test_path: TestPath, round: u32, phase: usize) -> Measurement {
    let net = workload.kind.traffic().expect("a network's");
    let factor = (0.005 * STRAYS[(round as usize + phase) % STRAYS.len()]).exp();
    let guest = test_path.name.starts_with("vm");
    let seconds = f64::from(SECONDS);
    let duration_ns = u64::from(SECONDS) * 1_000_000_000;
    let samples: Vec<Sample> = (1..=SECONDS)
        .map(|second| Sample {
            at_ns: u64::from(second) * 1_000_000_000,
            duration_ns: 1_000_000_000,
            tallies: tallies(net, test_path, factor * if second % 2 == 0 { 1.01 } else { 0.99 }, 1.0),
            oldest_ns: None,
            failed: 0,
            directions: Vec::new(),
        })
        .collect();
    let all = tallies(net, test_path, factor, seconds);
    let cpu_ns = test_path.cpu_ns * all.bytes() as f64
        + 9_000.0 * if net.test.is_rtt() { all.ios() as f64 } else { 0.0 };
    let mut flows_of = flows(net, true, all.write.as_ref().filter(|_| !net.test.is_rtt()));
    flows_of.extend(flows(net, false, all.read.as_ref().filter(|_| !net.test.is_rtt())));
    let probes =
        net.test.is_rtt().then(|| Probes { sent: all.ios(), received: all.ios(), ..Probes::default() });
    let mss = (net.test == NetTest::Tcp).then(|| u32::try_from(SEGMENT).expect("a length"));
    let used = CpuTime { user_ns: whole(cpu_ns / 20.0), system_ns: whole(cpu_ns / 5.0) };
    let mut outcome = Outcome {
        duration_ns,
        tallies: all,
        cpu: used,
        carried: Some(Carried { flows: flows_of, server_cpu: Some(used), mss, probes, ..Carried::default() }),
        ..Outcome::default()
    };
    let (inside, outside) = nics(&outcome, test_path.name);
    if guest {
        let cpu = Some(busy(0.4 * cpu_ns, duration_ns));
        outcome.inside = Some(HostActivity { duration_ns, cpu, nics: inside, ..HostActivity::default() });
    }
    let threads = [("vcpu", 0.4), ("iothread", 0.0), ("main", 0.2)].into_iter().filter(|_| guest);
    let threads = threads.map(|(role, part)| {
        let ns = whole(part * cpu_ns);
        (role.to_owned(), CpuTime { user_ns: ns / 2, system_ns: ns - ns / 2 })
    });
    let host = HostActivity {
        at_ns: duration_ns,
        duration_ns,
        cpu: Some(busy(cpu_ns, duration_ns)),
        nics: outside,
        guest_threads: threads.collect(),
        watching_ns: Some(1_000_000),
        ..HostActivity::default()
    };
    Measurement {
        target: test_path.name.into(),
        workload: workload.name.clone(),
        round,
        order: 1,
        started_at_ms: 1_790_000_000_000,
        host_duration_ns: Some(duration_ns),
        outcome,
        samples,
        host: Some(host),
        ..Measurement::default()
    }
}

/// Builds a complete run over these paths; the first is the baseline.
pub fn run(paths: &[TestPath], workloads: &[Workload], rounds: u32) -> Run {
    let targets = paths.iter().map(|test_path| target(test_path.name)).collect();
    let records = paths.iter().map(|test_path| record(test_path.name)).collect();
    let measure = |t: usize, workload: &Workload, round, phase| measurement(workload, paths[t], round, phase);
    let name = "what the network costs our VMs";
    Run { id: 21, ..complete(name, (targets, records), workloads.into(), rounds, measure) }
}

/// Builds a run of five rounds over five paths, with TCP upload, TCP download, UDP and round trips.
pub fn ladder() -> Run {
    let workloads = [tcp(Direction::Upload), tcp(Direction::Download), udp(), rtt()];
    run(&[LOOPBACK, VETH, VIRTIO, E1000, SLIRP], &workloads, 5)
}

/// Builds a run with one path and one round, including a bidirectional workload of two parallel TCP streams.
pub fn alone() -> Run {
    let both = Traffic { direction: Direction::Both, parallel: 2, ..Traffic::new(NetTest::Tcp) };
    run(&[VETH], &[workload(both), udp(), rtt()], 1)
}
