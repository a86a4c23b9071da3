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
