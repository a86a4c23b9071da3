//! Tests of data collected inside guests: the latency and CPU time of each layer, and fairness between guests.

use iotax_analysis::cpu_breakdown::Role;
use iotax_analysis::fairness::by_count;
use iotax_analysis::latency_breakdown::View;
use iotax_analysis::{CpuByRole, Judgement, LatencyBreakdown, Metric, judge};
use iotax_model::record::{CpuTime, HostCpu};
use iotax_model::target::GuestFs;
use iotax_model::{CellKey, Run};

use iotax_testkit::runs::ladder;
use iotax_testkit::runs::observed::{WAITS, add_guest_data, both_ladders, crowd};

const QD1: &str = "randread-4k-qd1";

fn near(value: f64, truth: f64) -> bool {
    (value / truth - 1.0).abs() < 0.01
}

fn inside<'a>(judgement: &'a Judgement, target: &str) -> &'a LatencyBreakdown {
    judgement.cell(CellKey { workload: QD1, target }).and_then(|cell| cell.latency.as_ref()).expect("seen")
}

fn names(inside: &LatencyBreakdown) -> Vec<&str> {
    inside.stretches.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_latency_is_cut_where_it_was_seen() {
    let judgement = judge(&both_ladders());
    let vm = inside(&judgement, "vm-raw");
    assert_eq!(
        names(vm),
        [
            "host device",
            "QEMU + host kernel and filesystem",
            "virtio + virtual interrupt",
            "guest kernel and program"
        ]
    );
    let (device, program) =
        (vm.latency_at(View::Device).expect("seen"), vm.latency_at(View::Program).expect("seen"));
    let added = program - device;
    let truths = [device, WAITS.0 * added, (WAITS.1 - WAITS.0) * added, (1.0 - WAITS.1) * added];
    for ((name, ns), truth) in vm.stretches.iter().zip(truths) {
        assert!(near(*ns, truth), "{name}: {ns} for {truth}");
    }
    let sum: f64 = vm.stretches.iter().map(|(_, ns)| ns).sum();
    assert!((sum - program).abs() < 1e-6 && vm.not_separable.is_empty(), "{vm:?}");
    let host = inside(&judgement, "host-file");
    assert_eq!(names(host), ["host device", "host kernel, filesystem and program"]);
    assert!(!host.within());
}

#[test]
fn qemus_percentiles_are_near_those_of_its_bins() {
    let judgement = judge(&both_ladders());
    let vm = inside(&judgement, "vm-raw");
    let qemu = vm.latency_at(View::Qemu).expect("seen");
    // The synthetic median lies 2% below the mean before its tail; a bin is a fifth wide.
    assert!((0.75..1.1).contains(&(vm.qemu_p50_ns.expect("bins") / qemu)), "{vm:?}");
    assert!(vm.qemu_p99_ns.expect("bins") > 1.3 * qemu, "{vm:?}");
}

/// A change to measurements monitored inside the guest, the layers that can still be told apart, and a word of the reason.
type Case = (fn(&mut Run), &'static [&'static str], &'static str);

#[test]
fn what_cannot_be_told_apart_is_one_stretch_and_says_so() {
    const ALL_BUT_DEVICE: [&str; 3] = [
        "host device, QEMU + host kernel and filesystem",
        "virtio + virtual interrupt",
        "guest kernel and program",
    ];
    let cases: [Case; 5] = [
        (
            |run| run.measurements.iter_mut().for_each(|m| m.qemu = None),
            &[
                "host device",
                "QEMU + host kernel and filesystem, virtio + virtual interrupt",
                "guest kernel and program",
            ],
            "",
        ),
        (
            |run| run.measurements.iter_mut().for_each(|m| m.host.as_mut().expect("observed").disks.clear()),
            &ALL_BUT_DEVICE,
            "",
        ),
        (
            // A cache answered most of it, and the device had other work that took long.
            |run| each_device(run, &|disk| disk.mean_wait_ns = Some(3e6)),
            &ALL_BUT_DEVICE,
            "host device saw 3.00 ms, more than the ",
        ),
        (
            |run| each_device(run, &|disk| disk.reads /= 4),
            &ALL_BUT_DEVICE,
            "host device saw 0.25 I/Os for each of the program's",
        ),
        (
            // One round has no data from the guest.
            |run| run.measurements[1].outcome.inside = None,
            &[
                "host device",
                "QEMU + host kernel and filesystem",
                "virtio + virtual interrupt, guest kernel and program",
            ],
            "",
        ),
    ];
    for (change, stretches, reason) in cases {
        let mut run = ladder(false);
        run.plan.workloads.truncate(1);
        run.measurements.retain(|m| m.workload == QD1);
        run.measurements.iter_mut().filter(|m| m.target.starts_with("vm")).for_each(add_guest_data);
        change(&mut run);
        let judgement = judge(&run);
        let vm = inside(&judgement, "vm-raw");
        assert_eq!(names(vm), stretches);
        assert!(vm.stretches.iter().all(|(_, ns)| *ns >= 0.0), "{vm:?}");
        let reasons = vm.not_separable.join("; ");
        assert!(reasons.contains(reason) && reason.is_empty() == reasons.is_empty(), "{reasons}");
    }
}

fn each_device(run: &mut Run, change: &dyn Fn(&mut iotax_model::record::DiskActivity)) {
    let hosts = run.measurements.iter_mut().filter_map(|m| m.host.as_mut());
    hosts.flat_map(|host| host.disks.values_mut()).for_each(change);
}

#[test]
fn a_filesystem_in_the_guest_is_named() {
    let mut run = both_ladders();
    let raw = run.plan.targets.iter_mut().find(|target| target.name == "vm-raw").expect("planned");
    raw.stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest").filesystem = Some(GuestFs::Xfs);
    let judgement = judge(&run);
    assert_eq!(names(inside(&judgement, "vm-raw")).last(), Some(&"guest kernel, filesystem and program"));
}

#[test]
fn cpu_time_is_told_apart_by_role() {
    let judgement = judge(&both_ladders());
    let of = |target: &str| -> &CpuByRole {
        judgement
            .cell(CellKey { workload: QD1, target })
            .and_then(|cell| cell.cpu.as_ref())
            .expect("observed")
    };
    let vm = of("vm-raw");
    for (role, share) in [
        (Role::Vcpu, 0.5),
        (Role::Iothread, 0.25),
        (Role::Main, 0.02),
        (Role::Worker, 0.03),
        (Role::KernelThreads, 0.04),
        (Role::Other, 0.16),
    ] {
        assert!(near(vm.of_role(role).expect("observed"), share * 9_800.0), "{role:?}: {vm:?}");
    }
    assert_eq!(vm.of_role(Role::Generator), None, "it runs on the vCPUs");
    assert!(near(vm.steal.expect("the guest says"), 0.2 / 6.0) && vm.nested == Some(0.0), "{vm:?}");
    let host = of("host-file");
    assert!(host.of_role(Role::Generator).is_some() && host.of_role(Role::Vcpu).is_none(), "{host:?}");
    assert_eq!(host.steal, None, "unknown is not 0");
}

#[test]
fn servers_of_storage_are_a_role_apart_from_qemus() {
    let mut run = both_ladders();
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        let threads = &mut m.host.as_mut().expect("observed").guest_threads;
        let time = threads.remove("iothread").expect("observed");
        threads.insert("ceph-mon".into(), CpuTime { user_ns: time.user_ns, system_ns: 0 });
        threads.insert("ceph-osd".into(), CpuTime { user_ns: 0, system_ns: time.system_ns });
    }
    let judgement = judge(&run);
    let of = |target: &str| {
        judgement
            .cell(CellKey { workload: QD1, target })
            .and_then(|cell| cell.cpu.as_ref())
            .expect("observed")
    };
    let vm = of("vm-raw");
    assert!(near(vm.of_role(Role::StorageServer).expect("observed"), 0.25 * 9_800.0), "{vm:?}");
    assert_eq!((vm.of_role(Role::Iothread), of("host-file").of_role(Role::StorageServer)), (None, None));
}

#[test]
fn cpu_time_is_that_of_what_takes_part_and_not_of_other_programs() {
    let mut run = both_ladders();
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        let host = m.host.as_mut().expect("observed");
        host.programs_ns = Some(host.guest_threads.values().map(|time| time.total_ns()).sum());
        let cpu = host.cpu.as_mut().expect("observed");
        let busy = cpu.busy_ns();
        *cpu = HostCpu { user_ns: 9 * busy, irq_ns: busy / 100, ..*cpu };
    }
    let judgement = judge(&run);
    let vm = judgement
        .cell(CellKey { workload: QD1, target: "vm-raw" })
        .and_then(|cell| cell.cpu.as_ref())
        .expect("observed");
    assert_eq!(vm.of_role(Role::Other), None);
    assert!(near(vm.of_role(Role::Interrupts).expect("observed"), 98.0), "{vm:?}");
    let sum: f64 = vm.roles.iter().map(|(_, ns)| ns).sum();
    assert!(near(sum, 0.85 * 9_800.0), "{vm:?}");
    let m = run.measurements.iter().find(|m| m.target == "vm-raw" && m.workload == QD1).expect("measured");
    let host = m.host.as_ref().expect("observed");
    let all = host.programs_ns.expect("set") + host.kernel_ns.expect("set") + host.cpu.expect("set").irq_ns;
    let per_io = all as f64 / m.outcome.tallies.ios() as f64;
    assert_eq!(Metric::CPU_PER_IO.value(m), Some(per_io));
}

#[test]
fn threads_that_say_more_than_the_hosts_account_leave_no_rest() {
    let mut run = both_ladders();
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        let host = m.host.as_mut().expect("observed");
        let busy = host.cpu.expect("observed").busy_ns();
        host.guest_threads.get_mut("vcpu").expect("observed").user_ns = busy;
    }
    let judgement = judge(&run);
    let vm = judgement
        .cell(CellKey { workload: QD1, target: "vm-raw" })
        .and_then(|cell| cell.cpu.as_ref())
        .expect("observed");
    assert_eq!(vm.of_role(Role::Other), None);
}

#[test]
fn every_guest_of_several_has_its_part() {
    let judgement = judge(&crowd());
    let of = |target: &str| judgement.cells.iter().find(|cell| cell.target == target)?.guests.as_ref();
    assert_eq!(of("vm-1"), None, "it is alone");
    let two = of("vm-2").expect("two guests");
    let rates: Vec<f64> = two.members.iter().filter_map(|m| m.iops).collect();
    assert!(near(rates[0] / rates[1], 1.5), "{rates:?}");
    // (0.6 + 0.4)^2 / (2 (0.36 + 0.16))
    let fairness = two.fairness.expect("I/O");
    assert!(near(fairness.mean, 1.0 / 1.04), "{fairness:?}");
    let interval = fairness.interval.expect("five rounds");
    assert!(interval.low <= fairness.mean && fairness.mean <= interval.high && interval.high <= 1.0);
    let four = of("vm-4").expect("four guests").fairness.expect("I/O");
    assert!(near(four.mean, 1.0 / (4.0 * 0.28)), "{four:?}");
    let all =
        judgement.cells.iter().filter_map(|cell| Some((cell.target.as_str(), cell.neighbour.as_ref()?)));
    let all: Vec<_> = all.collect();
    let [(beside, noise)] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((noise.name.as_str(), *beside, noise.iops), ("loud", "vm-noisy", Some(10_000.0)));
}

#[test]
fn targets_that_differ_in_their_number_alone_are_a_series() {
    let run = crowd();
    assert_eq!(by_count(&run.plan.targets), [vec![(1, "vm-1"), (2, "vm-2"), (4, "vm-4")]]);
    let judgement = judge(&run);
    let named: Vec<_> = judgement.edges.iter().map(|edge| (edge.to.as_str(), edge.name.as_str())).collect();
    let edges =
        [("vm-2", "2 guests instead of 1"), ("vm-4", "4 guests instead of 1"), ("vm-noisy", "noise of loud")];
    assert_eq!(named, edges);
}
