//! Generates synthetic runs whose true latencies are known, to test the analysis and the reports.

pub mod network;
pub mod observed;

use std::collections::BTreeMap;

use iotax_model::Run;
use iotax_model::RunState;
use iotax_model::plan::{Design, Margin};
use iotax_model::record::{
    CacheDrop, CpuTime, DiskActivity, Environment, HostActivity, HostCpu, Measurement, Outcome, Pressure,
    RunSource, Sample, Tallies, Tally, TargetRecord,
};
use iotax_model::target::{
    DeviceSpec, FileSpec, FilesystemSpec, Format, FsType, GuestSpec, Layer, LayerKind, LvmSpec,
    Preallocation, Snapshot, Stack, TargetSpec,
};
use iotax_model::verify_errors::{FaultKind, Findings};
use iotax_model::{Histogram, Nanos, Plan, Workload};

/// Length of every measurement window in seconds.
pub const SECONDS: u32 = 6;

/// The true behaviour of a target, which determines its generated measurements.
#[derive(Clone, Copy)]
pub struct Truth {
    /// Mean latency as a multiple of the device's; 1 for no overhead.
    pub slowdown: f64,
    /// Relative spread of the latency between rounds, such as 0.004 for about 0.4%.
    pub noise: f64,
    /// Host CPU time per I/O in nanoseconds.
    pub cpu_ns: f64,
}

/// Behaviour of the baseline target: no added latency.
pub const HOST: Truth = Truth { slowdown: 1.0, noise: 0.004, cpu_ns: 4_100.0 };

/// Deviations of successive rounds in units of `noise`; they sum to zero over five rounds. The entry for the first round depends on the
/// target and the workload.
const STRAYS: [f64; 5] = [0.3, -1.0, 0.9, 0.6, -0.8];

/// Builds a target with the layers that its name implies: `vm` for a guest, `lvm`, `qcow2`, `snapshot` and so on.
pub fn target(name: &str) -> TargetSpec {
    let mut stack = Stack::default();
    if name.contains("device") || name.contains("lvm") {
        stack = stack.with(DeviceSpec("/dev/vdb".into()));
        if name.contains("lvm") {
            stack = stack.with(LvmSpec::default());
        }
        if name.contains("file") {
            stack = stack.with(FilesystemSpec::new(FsType::Ext4)).with(FileSpec::default());
        }
    } else {
        let qcow2 = name.contains("qcow2");
        stack = stack.with(FileSpec {
            dir: Some("/srv/images".into()),
            format: if qcow2 { Format::Qcow2 } else { Format::Raw },
            preallocation: if qcow2 { Preallocation::Metadata } else { Preallocation::Off },
            snapshot: name.contains("snapshot").then_some(Snapshot::External),
            ..FileSpec::default()
        });
    }
    TargetSpec::new(name, if name.starts_with("vm") { stack.with(GuestSpec::default()) } else { stack })
}

/// Returns the recorded layers and boot data of a target, derived from its name. `emulated` selects TCG instead of KVM.
pub fn record(name: &str, emulated: bool) -> TargetRecord {
    let bare = name.contains("device") || name.contains("lvm");
    let device = if bare { "vdb" } else { "vda" };
    let mut layers = vec![Layer::new(LayerKind::Device, device, "64 GiB, scheduler none")];
    if name.contains("lvm") {
        layers.push(Layer::new(LayerKind::Dm, "dm-0", "LVM"));
    }
    if !bare || name.contains("file") {
        layers.push(Layer::new(LayerKind::Filesystem, "ext4", "rw,relatime"));
    }
    let guest = name.starts_with("vm");
    if guest && !bare {
        let image = if name.contains("qcow2") { "qcow2" } else { "raw" };
        layers.push(Layer::new(LayerKind::Image, image, ""));
    }
    if guest {
        layers.push(Layer::new(LayerKind::Bus, "virtio-blk", "cache=none aio=io_uring iothread"));
        layers.push(Layer::new(LayerKind::Guest, "guest", "1 vCPU, 512m"));
    } else if !bare || name.contains("file") {
        layers.push(Layer::new(LayerKind::File, "file", ""));
    }
    TargetRecord {
        name: name.into(),
        layers,
        emulated,
        command_line: guest
            .then(|| format!("qemu-system-x86_64 -accel {}", if emulated { "tcg" } else { "kvm" })),
        guest_kernel: guest.then(|| "6.1.0-28-cloud-amd64".into()),
        guest_clocksource: guest.then(|| "kvm-clock".into()),
        boot_ns: guest.then_some(1_900_000_000),
        ..TargetRecord::default()
    }
}

/// Builds a right-skewed latency distribution with about this mean and `ios` samples; the slowest 1% are stretched by a factor of 2.5.
fn latencies(mean_ns: f64, ios: u64) -> Histogram {
    let mut histogram = Histogram::new();
    let steps = 400_u64;
    for step in 0..steps {
        let p = (step as f64 + 0.5) / steps as f64;
        // Tukey's lambda distribution, which approximates the normal distribution well enough here.
        let z = 4.91 * (p.powf(0.14) - (1.0 - p).powf(0.14));
        let tail = if p > 0.99 { 2.5 } else { 1.0 };
        let share = (step + 1) * ios / steps - step * ios / steps;
        histogram.add_many(whole(mean_ns * tail * (0.2 * z - 0.02).exp()), share);
    }
    histogram
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive figures")]
/// Rounds a small positive number to an integer.
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Returns I/O counts, bytes and latencies of a workload with `ios` I/Os of this mean latency, split into reads and writes by `rwmixread`.
pub fn tallies(workload: &Workload, ios: u64, mean_ns: f64) -> Tallies {
    let tally =
        |ios| Tally { ios, bytes: ios * workload.bs.0, latency: latencies(mean_ns, ios), response: None };
    let (read, write) = match (workload.rw.reads(), workload.rw.writes()) {
        (true, true) => {
            let reads = ios * u64::from(workload.rwmixread) / 100;
            (Some(tally(reads)), Some(tally(ios - reads)))
        }
        (true, false) => (Some(tally(ios)), None),
        _ => (None, Some(tally(ios))),
    };
    Tallies { read, write, ..Tallies::default() }
}

fn activity(
    device: &str,
    bytes: (u64, u64),
    ios: u64,
    cpu_ns: f64,
    wait_ns: f64,
    at_ns: u64,
    duration_ns: u64,
) -> HostActivity {
    let (read, written) = bytes;
    // All I/Os have the same size.
    let reads = (ios * read).checked_div(read + written).unwrap_or_default();
    let disk = DiskActivity {
        reads,
        read_bytes: read,
        writes: ios - reads,
        write_bytes: written,
        busy: 0.87,
        mean_wait_ns: Some(wait_ns),
        ..DiskActivity::default()
    };
    let busy = whole(cpu_ns * ios as f64);
    HostActivity {
        at_ns,
        duration_ns,
        disks: BTreeMap::from([(device.into(), disk)]),
        cpu: Some(HostCpu {
            user_ns: busy / 4,
            system_ns: busy - busy / 4,
            idle_ns: (2 * duration_ns).saturating_sub(busy),
            ..HostCpu::default()
        }),
        ..HostActivity::default()
    }
}

/// Returns the total bytes read and the total bytes written.
fn bytes(tallies: &Tallies) -> (u64, u64) {
    let moved = |tally: &Option<Tally>| tally.as_ref().map_or(0, |t| t.bytes);
    (moved(&tallies.read), moved(&tallies.write))
}

/// Builds one measurement of a target with the behaviour `truth`. `round` and `phase` select the deviation from `truth`; `phase` shifts the
/// sequence of deviations.
pub fn measurement(workload: &Workload, target: &str, truth: Truth, round: u32, phase: usize) -> Measurement {
    let device_ns = 60_000.0 + workload.bs.0 as f64 * 0.9 + 2_200.0 * f64::from(workload.iodepth);
    let stray = truth.noise * STRAYS[(round as usize + phase) % STRAYS.len()];
    let mean_ns = device_ns * truth.slowdown * stray.exp();
    let device = if target.contains("device") || target.contains("lvm") { "vdb" } else { "vda" };
    // The rest of the latency comes from the host's kernel and filesystem.
    let wait_ns = 0.8 * device_ns * stray.exp();
    let per_second = f64::from(workload.iodepth) / (mean_ns / 1e9);
    let samples: Vec<(Sample, HostActivity)> = (1..=SECONDS)
        .map(|second| {
            let wobble = 1.0 + 0.02 * STRAYS[(second as usize + phase) % STRAYS.len()];
            let ios = whole(per_second * wobble);
            let tallies = tallies(workload, ios, mean_ns / wobble);
            let at_ns = u64::from(second) * 1_000_000_000;
            let host = activity(device, bytes(&tallies), ios, truth.cpu_ns, wait_ns, at_ns, 1_000_000_000);
            (
                Sample {
                    at_ns,
                    duration_ns: 1_000_000_000,
                    tallies,
                    oldest_ns: None,
                    failed: 0,
                    directions: Vec::new(),
                },
                host,
            )
        })
        .collect();
    let mut tallies = Tallies::default();
    samples.iter().for_each(|(sample, _)| tallies.merge(&sample.tallies));
    let duration_ns = u64::from(SECONDS) * 1_000_000_000;
    let outcome = Outcome {
        duration_ns,
        tallies,
        ramp_ios: 1000,
        cpu: CpuTime { user_ns: 300_000_000, system_ns: 900_000_000 },
        ..Outcome::default()
    };
    let ios = outcome.tallies.ios();
    let host =
        activity(device, bytes(&outcome.tallies), ios, truth.cpu_ns, wait_ns, duration_ns, duration_ns);
    let (samples, host_samples) = samples.into_iter().unzip();
    Measurement {
        target: target.into(),
        workload: workload.name.clone(),
        round,
        order: 1,
        started_at_ms: 1_790_000_000_000,
        host_duration_ns: Some(duration_ns + 400_000),
        outcome,
        samples,
        host: Some(host),
        host_samples,
        host_cache: Some(CacheDrop::Target { of: 1 << 30, left: Some(0) }),
        guest_cache: target.starts_with("vm").then_some(CacheDrop::Machine),
        shares: Vec::new(),
        neighbour: None,
        qemu: None,
        counters: Vec::new(),
        devices: Vec::new(),
        standstills: Vec::new(),
        occurrences: Vec::new(),
        stated: None,
        fleet: None,
    }
}

/// Builds a complete run. `truths` has each target's name and behaviour; the first target is the baseline. `emulated` marks the guests as
/// emulated.
pub fn run(truths: &[(&str, Truth)], workloads: &[&str], rounds: u32, emulated: bool) -> Run {
    let workloads: Vec<Workload> = workloads
        .iter()
        .map(|name| {
            let standard: Workload = name.parse().expect("a standard workload");
            Workload { runtime: Nanos::from_secs(u64::from(SECONDS)), ..standard }
        })
        .collect();
    let targets = truths.iter().map(|(name, _)| target(name)).collect();
    let records = truths.iter().map(|(name, _)| record(name, emulated && name.starts_with("vm"))).collect();
    complete(
        "which disk format for our VMs",
        (targets, records),
        workloads,
        rounds,
        |t, workload, round, phase| measurement(workload, truths[t].0, truths[t].1, round, phase),
    )
}

/// Builds a complete run whose measurements come from `measure`, called with the target's index, the workload, the round and a phase, which
/// depends on the target and the workload. The first target is the baseline.
pub fn complete(
    name: &str,
    targets: (Vec<TargetSpec>, Vec<TargetRecord>),
    workloads: Vec<Workload>,
    rounds: u32,
    measure: impl Fn(usize, &Workload, u32, usize) -> Measurement,
) -> Run {
    let mut run = planned(name, targets, workloads, rounds);
    for round in 1..=rounds {
        for t in 0..run.plan.targets.len() {
            for (w, workload) in run.plan.workloads.iter().enumerate() {
                run.measurements.push(measure(t, workload, round, 2 * t + w));
            }
        }
    }
    for (order, measurement) in (1..).zip(&mut run.measurements) {
        measurement.order = order;
        measurement.started_at_ms += u64::from(order) * 8000;
    }
    run
}

/// Builds a run in the state `Complete` but still without measurements; the first target is the baseline.
pub fn planned(
    name: &str,
    (targets, records): (Vec<TargetSpec>, Vec<TargetRecord>),
    workloads: Vec<Workload>,
    rounds: u32,
) -> Run {
    Run {
        id: 17,
        state: RunState::Complete,
        seed: 71_823,
        started_at_ms: 1_790_000_000_000,
        plan: Plan {
            name: name.into(),
            suite: None,
            repeat: rounds,
            design: Design::FixedRounds,
            margin: Margin::default(),
            baseline: targets[0].name.clone(),
            control: None,
            seed: None,
            targets,
            workloads,
            neighbours: vec![],
            require: vec![],
        },
        environment: environment(),
        targets: records,
        measurements: vec![],
        warnings: vec![],
        phases: vec![],
        source: RunSource::Measured,
        fleet: None,
        store: None,
    }
}

/// Returns the environment of a fictional host: kernel, CPU, memory, QEMU version.
pub fn environment() -> Environment {
    Environment {
        kernel: Some("6.18.5".into()),
        os: Some("Debian GNU/Linux 12 (bookworm)".into()),
        cpu_model: Some("AMD EPYC 9B14".into()),
        cpus: Some(2),
        memory_bytes: Some(8 << 30),
        clocksource: Some("tsc".into()),
        mitigations: BTreeMap::from([("spectre_v2".into(), "Mitigation: Retpolines".into())]),
        qemu: Some("10.0.2".into()),
        tool: Some("iotax 0.1.0".into()),
        floor_ns_per_io: Some(20),
        ..Environment::default()
    }
}

/// Builds a run of five rounds on a host file and three guests. The guests are slower than the host, except for random reads at queue depth
/// 32; qcow2 is as fast as raw; the snapshot is the slowest.
pub fn ladder(emulated: bool) -> Run {
    let vm = |slowdown, cpu_ns| Truth { slowdown, noise: 0.006, cpu_ns };
    let mut run = run(
        &[
            ("host-file", HOST),
            ("vm-raw", vm(1.42, 9_800.0)),
            ("vm-qcow2", vm(1.423, 10_000.0)),
            ("vm-qcow2-snapshot", vm(1.9, 10_400.0)),
        ],
        &["randread-4k-qd1", "randread-4k-qd32", "randwrite-4k-qd32"],
        5,
        emulated,
    );
    // Deep queues hide the guest's overhead.
    let deep: Workload = run.plan.workloads[1].clone();
    for m in run.measurements.iter_mut().filter(|m| m.workload == deep.name && m.target != "host-file") {
        let truth = Truth { slowdown: 1.001, noise: 0.003, cpu_ns: 8_000.0 };
        let phase = m.target.len();
        let honest = measurement(&deep, &m.target, truth, m.round, phase);
        *m = Measurement { order: m.order, started_at_ms: m.started_at_ms, ..honest };
    }
    run
}

/// Builds a run with 500 measurements (ten targets, five workloads, ten rounds), each with results and host monitoring data for 30
/// intervals of 1 s.
pub fn large() -> Run {
    let vm = |slowdown, cpu_ns| Truth { slowdown, noise: 0.006, cpu_ns };
    let names = [
        "host-file",
        "host-device",
        "host-lvm",
        "host-lvm-file",
        "vm-device",
        "vm-lvm",
        "vm-lvm-file",
        "vm-raw",
        "vm-qcow2",
        "vm-qcow2-snapshot",
    ];
    let truths: Vec<(&str, Truth)> = (0_u32..)
        .zip(names)
        .map(|(n, name)| {
            (name, if n == 0 { HOST } else { vm(1.0 + 0.08 * f64::from(n), 4_000.0 + 700.0 * f64::from(n)) })
        })
        .collect();
    let workloads = ["randread-4k-qd1", "randread-4k-qd32", "seqread-1m", "randwrite-4k-qd32", "seqwrite-1m"];
    let mut run = run(&truths, &workloads, 10, false);
    for m in &mut run.measurements {
        let (samples, hosts) = (m.samples.clone(), m.host_samples.clone());
        for second in 0..30_u32 {
            let at = (second % SECONDS) as usize;
            let at_ns = u64::from(second + 1) * 1_000_000_000;
            let (mut sample, mut host) = (samples[at].clone(), hosts[at].clone());
            (sample.at_ns, host.at_ns) = (at_ns, at_ns);
            let share = u64::from(second % 7);
            host.pressure = Some(Pressure {
                io_some_ns: share * 100_000_000,
                io_full_ns: share * 40_000_000,
                ..Pressure::default()
            });
            for role in
                ["vcpu", "iothread", "main", "worker"].into_iter().filter(|_| m.target.starts_with("vm"))
            {
                host.guest_threads
                    .insert(role.into(), CpuTime { user_ns: share * 10_000_000, system_ns: 150_000_000 });
            }
            if second == 0 {
                m.samples.clear();
                m.host_samples.clear();
            }
            m.samples.push(sample);
            m.host_samples.push(host);
        }
    }
    run
}

/// Builds a run of `iotax bench`: one target, one workload, one round.
pub fn bench() -> Run {
    run(&[("disk.img", HOST)], &["randread-4k-qd32"], 1, false)
}

/// Returns the verification findings of storage that lost five writes and tore one.
pub fn damaged() -> Findings {
    let mut findings = Findings { checked: 1000, uncertain: 2, ..Findings::default() };
    for offset in [8192, 0, 40960, 4096, 1 << 20] {
        findings.add(Err(FaultKind::LostWrite), offset);
    }
    findings.add(Err(FaultKind::Torn), 12288);
    findings
}
