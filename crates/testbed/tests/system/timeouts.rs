use std::path::Path;

use iotax_model::record::TimeoutKind::{self, *};
use iotax_testbed::stack::of_path;
use iotax_testkit::tree;

const RECORDED: &str = include_str!("trees/timeouts.tree");

/// The timeouts below a path: layer, kind, seconds, and the end of the source.
fn assert_read(recorded: &str, path: &str, expected: &[(&str, TimeoutKind, Option<u64>, &str)]) {
    let root = tree::build(recorded);
    let stack = of_path(root.path(), Path::new(path)).expect("a path of the tree");
    assert_eq!(stack.timeouts.len(), expected.len(), "{path}: {:#?}", stack.timeouts);
    for (found, (layer, kind, seconds, source)) in stack.timeouts.iter().zip(expected) {
        assert_eq!((found.layer.as_str(), found.kind), (*layer, *kind), "{path}");
        assert_eq!(found.limit_ns, seconds.map(|seconds| seconds * 1_000_000_000), "{path}: {found:?}");
        assert!(found.source.starts_with('/') && found.source.ends_with(source), "{path}: {found:?}");
    }
}

#[test]
fn a_scsi_disk_has_its_commands_and_ext4_its_reaction_to_errors() {
    let disk = ("sda", ScsiCommand, Some(30), "/sda/device/timeout");
    let filesystem = ("/", ErrorsRemountReadOnly, None, "/proc/fs/ext4/sda1/options");
    assert_read(RECORDED, "/srv/a", &[disk, filesystem]);
    // The mount table does not say that it is the default, so that nothing is known.
    assert_read(&RECORDED.replace("errors=remount-ro", "errors=other"), "/srv/a", &[disk]);
    // Nor is an empty file.
    let changed = RECORDED.replace("sda/device/timeout = 30", "sda/device/timeout = none");
    assert_read(&changed, "/srv/a", &[filesystem]);
}

#[test]
fn disks_of_a_hypervisor_are_waited_for_without_a_limit() {
    let waiting = ("vda", VirtioRequest, None, "/vda/queue/io_timeout: no such file");
    assert_read(RECORDED, "/old", &[waiting, ("/old", ErrorsPanic, None, "/proc/self/mountinfo")]);
    // A driver that handles timeouts is not known.
    let shown = "sys/devices/pci0000:00/0000:00:02.0/virtio1/block/vda/queue/io_timeout = 30000\n";
    assert_read(
        &format!("{RECORDED}{shown}"),
        "/old",
        &[("/old", ErrorsPanic, None, "/proc/self/mountinfo")],
    );
    assert_read(RECORDED, "/xfs", &[("sdb", ScsiCommand, None, "/host2/proc_name")]);
}

#[test]
fn a_lost_session_or_port_has_a_time_of_its_own() {
    let command = ("sdc", ScsiCommand, Some(60), "/sdc/device/timeout");
    let session = |limit| ("sdc", IscsiReplacement, limit, "/session1/recovery_tmo");
    assert_read(RECORDED, "/iscsi", &[command, session(Some(120))]);
    for (recorded, limit) in [("off", None), ("-1", None), ("0", Some(0))] {
        let changed = RECORDED.replace("recovery_tmo = 120", &format!("recovery_tmo = {recorded}"));
        assert_read(&changed, "/iscsi", &[command, session(limit)]);
    }
    let command = ("sdd", ScsiCommand, Some(30), "/sdd/device/timeout");
    let loss = ("sdd", FcDeviceLoss, Some(60), "/rport-4:0-1/dev_loss_tmo");
    assert_read(RECORDED, "/fc", &[command, loss]);
    let changed = RECORDED.replace("4:0-1/fast_io_fail_tmo = off", "4:0-1/fast_io_fail_tmo = 5");
    assert_read(&changed, "/fc", &[command, ("sdd", FcFastIoFail, Some(5), "/fast_io_fail_tmo"), loss]);
}

#[test]
fn a_namespace_has_its_queue_or_the_module_and_its_controllers() {
    assert_read(RECORDED, "/nvme", &[("nvme0n1", NvmeCommand, Some(45), "/nvme0n1/queue/io_timeout")]);
    assert_read(
        RECORDED,
        "/fabric",
        &[
            ("nvme1n1", NvmeCommand, Some(30), "/nvme_core/parameters/io_timeout"),
            ("nvme1", NvmeFastIoFail, Some(15), "/nvme1/fast_io_fail_tmo"),
            ("nvme1", NvmeControllerLoss, Some(600), "/nvme1/ctrl_loss_tmo"),
            ("nvme2", NvmeControllerLoss, None, "/nvme2/ctrl_loss_tmo"),
        ],
    );
}
