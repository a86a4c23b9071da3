use std::path::Path;

use iotax_model::record::Environment;
use iotax_testbed::host_info::{environment, free_space};
use iotax_testkit::tree;

#[test]
fn a_recorded_machine_is_read_exactly() {
    let root = tree::build(include_str!("trees/virtio.tree"));
    let expected = Environment {
        kernel: Some("6.18.44".into()),
        os: Some("Debian GNU/Linux 12 (bookworm)".into()),
        cpu_model: Some("AMD EPYC".into()),
        cpus: Some(2),
        memory_bytes: Some(24_684_096 * 1024),
        governor: None,
        clocksource: Some("tsc".into()),
        mitigations: [("meltdown", "Not affected"), ("spec_store_bypass", "Vulnerable")]
            .map(|(name, state)| (name.to_owned(), state.to_owned()))
            .into(),
        hypervisor: Some("KVM".into()),
        ..Environment::default()
    };
    assert_eq!(environment(root.path()), expected);
}

#[test]
fn what_cannot_be_read_is_absent() {
    let root = tree::build(
        "proc/cpuinfo = nonsense\nproc/meminfo = MemTotal: many kB\nsys/devices/system/cpu/online = 3-1",
    );
    assert_eq!(environment(root.path()), Environment::default());
}

#[test]
fn cpus_are_counted_by_list() {
    for (list, cpus) in [("0", Some(1)), ("0-3,8", Some(5)), ("0-1,4-5", Some(4)), ("", None), ("x", None)] {
        let root = tree::build(&format!("sys/devices/system/cpu/online = {list}"));
        assert_eq!(environment(root.path()).cpus, cpus, "{list:?}");
    }
}

#[test]
fn hypervisors_are_told_by_flag_firmware_and_clock() {
    const GUEST: &str = "proc/cpuinfo = flags : fpu hypervisor";
    const METAL: &str = "proc/cpuinfo = flags : fpu";
    let dmi = |vendor: &str, product: &str| {
        format!("\nsys/class/dmi/id/sys_vendor = {vendor}\nsys/class/dmi/id/product_name = {product}")
    };
    for (tree, expected) in [
        (format!("{METAL}{}", dmi("Amazon EC2", "m5.metal")), None),
        (format!("{GUEST}{}", dmi("Amazon EC2", "m5.large")), Some("Amazon EC2")),
        (format!("{GUEST}{}", dmi("QEMU", "Standard PC (Q35 + ICH9, 2009)")), Some("QEMU")),
        (format!("{GUEST}{}", dmi("Microsoft Corporation", "Virtual Machine")), Some("Hyper-V")),
        (GUEST.to_owned(), Some("a hypervisor that does not give its name")),
        // ARM has no such flag: only known firmware counts.
        (dmi("Ampere", "Altra"), None),
        (dmi("QEMU", "KVM Virtual Machine"), Some("QEMU")),
        ("sys/hypervisor/type = xen".to_owned(), Some("xen")),
    ] {
        let root = tree::build(&tree);
        assert_eq!(environment(root.path()).hypervisor.as_deref(), expected, "{tree}");
    }
}

#[test]
fn the_live_machine_has_a_kernel_and_room() {
    let environment = environment(Path::new("/"));
    let uname = rustix::system::uname();
    assert_eq!(environment.kernel.as_deref(), uname.release().to_str().ok());
    assert!(environment.cpus.is_some_and(|cpus| cpus > 0));
    assert!(environment.memory_bytes.is_some_and(|bytes| bytes > 64 << 20));

    let dir = tempfile::tempdir().expect("a temporary directory");
    let space = free_space(dir.path()).expect("readable");
    assert!(space.total.0 > 0 && space.available <= space.total, "{space:?}");
    let error = free_space(&dir.path().join("missing")).expect_err("it is not there").to_string();
    assert!(error.contains("missing") && error.contains("name an existing directory"), "{error}");
}

#[test]
fn every_missing_device_of_a_btrfs_counts() {
    let devices = |missing: [u8; 3]| {
        let lines =
            (1..).zip(missing).map(|(id, is)| format!("\nsys/fs/btrfs/1111/devinfo/{id}/missing = {is}"));
        let tree = "proc/self/mountinfo = 4 1 0:40 / /pool rw - btrfs /dev/sdd rw\ndev/sdd = \nsys/fs/btrfs/1111/devices/sdd = ";
        let root = tree::build(&format!("{tree}{}", lines.collect::<String>()));
        let survey = iotax_testbed::survey::machine(root.path());
        survey.filesystems[0].missing_devices.clone().map(|missing| (missing.value, missing.source))
    };
    let shown = |id: u8| format!("/sys/fs/btrfs/1111/devinfo/{id}/missing");
    assert_eq!(devices([0, 1, 1]).map(|(count, _)| count), Some(2));
    assert_eq!(devices([0, 1, 0]), Some((1, shown(2))));
    assert_eq!(devices([0, 0, 0]).map(|(count, _)| count), Some(0));
}
