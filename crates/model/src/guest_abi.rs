//! The interface between the host and PID 1 of a guest: kernel parameters, device names, and paths in the initramfs.

/// Serial number of the disk under test, which lets the guest find that disk.
pub const DISK_SERIAL: &str = "iotax-disk";
/// Name of the virtio-serial port over which the host and the agent in the guest exchange messages.
pub const AGENT_PORT: &str = "iotax.agent";
/// Directory of the kernel modules in the initramfs.
pub const MODULES_DIR: &str = "/modules";
/// File in [`MODULES_DIR`] that lists the modules in load order, one per line.
pub const MODULES_LIST: &str = "list";
/// Kernel parameter that makes PID 1 print [`PROBE_MARKER`] and power off.
pub const PROBE_PARAMETER: &str = "iotax.probe";
/// Line that a guest booted with [`PROBE_PARAMETER`] prints to its console, which shows that guests can run here.
pub const PROBE_MARKER: &str = "iotax: this guest runs";
/// Kernel parameter, followed by the filesystem type: PID 1 creates the filesystem on the disk and the test file in it.
pub const MKFS_PARAMETER: &str = "iotax.mkfs=";
/// Kernel parameter, followed by the filesystem type: PID 1 mounts the filesystem that an earlier boot created.
pub const MOUNT_PARAMETER: &str = "iotax.mount=";
/// Kernel parameter, followed by the length of the test file in bytes.
pub const SIZE_PARAMETER: &str = "iotax.size=";
/// Mount point in the guest of the filesystem that holds the test file.
pub const MOUNT_POINT: &str = "/disk";
/// Path of the mkfs program in the initramfs.
pub const MKFS: &str = "/mkfs";
/// Kernel parameter of a Xen domain: the disk is [`XEN_DISK`], and the agent exchanges messages over [`XEN_CONSOLE`].
pub const XEN_PARAMETER: &str = "iotax.xen";
/// Name of the disk under test in a Xen domain.
pub const XEN_DISK: &str = "xvda";
/// Path of a Xen domain's console.
pub const XEN_CONSOLE: &str = "/dev/hvc0";
/// Line on a Xen domain's console after which only the agent writes there.
pub const LISTENS_MARKER: &str = "iotax: the agent listens";
/// Kernel parameter, followed by `TYPE:OPTIONS`: PID 1 mounts the directory with the tag [`SHARE_TAG`] at [`MOUNT_POINT`].
pub const SHARE_PARAMETER: &str = "iotax.share=";
/// Tag by which the guest finds the directory of the host.
pub const SHARE_TAG: &str = "iotax";
/// Name of the file to measure on a filesystem that PID 1 mounts.
pub const MEASURED_FILE: &str = "measured";
/// Kernel parameter that makes PID 1 start without waiting for a disk.
pub const DISKLESS_PARAMETER: &str = "iotax.diskless";
/// Kernel parameter, followed by `ADDRESS/PREFIX` and optionally `,MTU`: PID 1 configures the network card with them.
pub const NET_PARAMETER: &str = "iotax.net=";
