//! What the host and PID 1 of a guest agree on, each in one place.

/// Serial number of the disk that is measured.
pub const DISK_SERIAL: &str = "iotax-disk";
/// Name of the virtio-serial port that carries the agent's stream.
pub const AGENT_PORT: &str = "iotax.agent";
/// Directory of the kernel modules in the initramfs.
pub const MODULES_DIR: &str = "/modules";
/// File in [`MODULES_DIR`] that names the modules, one a line, in the order in which they are to be loaded.
pub const MODULES_LIST: &str = "list";
/// Kernel parameter by which PID 1 only prints [`PROBE_MARKER`] and powers off.
pub const PROBE_PARAMETER: &str = "iotax.probe";
/// What PID 1 prints to the console when it is only probed.
pub const PROBE_MARKER: &str = "iotax: this guest runs";
/// Kernel parameter, followed by the kind: PID 1 makes this filesystem on the disk and a file on it, which is measured.
pub const MKFS_PARAMETER: &str = "iotax.mkfs=";
/// Kernel parameter, followed by the kind: PID 1 mounts the filesystem that an earlier boot made.
pub const MOUNT_PARAMETER: &str = "iotax.mount=";
/// Kernel parameter, followed by the length in bytes of the file that is measured.
pub const SIZE_PARAMETER: &str = "iotax.size=";
/// Where PID 1 mounts the filesystem.
pub const MOUNT_POINT: &str = "/disk";
/// The program in the initramfs that makes it.
pub const MKFS: &str = "/mkfs";
/// Kernel parameter by which PID 1 looks for no disk.
pub const DISKLESS_PARAMETER: &str = "iotax.diskless";
/// Kernel parameter, followed by `ADDRESS/PREFIX` and perhaps `,MTU`: PID 1 gives them to the network card.
pub const NET_PARAMETER: &str = "iotax.net=";
