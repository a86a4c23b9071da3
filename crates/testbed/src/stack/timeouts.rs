//! Reads the timeouts and error policies of layers from /sys and /proc.

use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::record::{Timeout, TimeoutKind};

use super::mount::Mount;
use super::{Walk, device};
use crate::host_info::text;

/// SCSI drivers that restart a command's timer when it expires, so that the command never times out: they expect the hypervisor to answer
/// eventually. From virtio_scsi.c (`virtscsi_eh_timed_out`) and storvsc_drv.c (`storvsc_eh_timed_out`).
const PATIENT: [&str; 2] = ["virtio_scsi", "storvsc_host"];
/// Types of filesystems that the kernel's ext4 driver serves.
const EXT: [&str; 3] = ["ext4", "ext3", "ext2"];

impl Walk<'_> {
    /// Adds the timeouts of a SCSI, NVMe or virtio disk with this directory in /sys.
    pub(super) fn add_disk_timeouts(&mut self, directory: &Path, name: &str) {
        if directory.join("device/timeout").exists() {
            self.add_scsi_timeouts(directory, name);
        } else if ["nvme", "nvme-subsys"].iter().any(|above| ancestor(directory, above).is_some()) {
            self.add_nvme_timeouts(directory, name);
        } else if name.starts_with("vd")
            && device::is_on_virtio(directory)
            && directory.join("queue").exists()
        {
            // The kernel hides the file of drivers that do not handle timeouts (`queue_attr_visible` in blk-sysfs.c), as virtio_blk does not.
            let source = sys_block(directory, "queue/io_timeout");
            if !self.root_path(&source).exists() {
                self.add_timeout(name, TimeoutKind::VirtioRequest, None, format!("{source}: no such file"));
            }
        }
    }

    fn add_scsi_timeouts(&mut self, directory: &Path, name: &str) {
        let driver = ancestor(directory, "host").map(|host| format!("/sys/class/scsi_host/{host}/proc_name"));
        let patient = driver
            .filter(|source| self.read(source).is_some_and(|driver| PATIENT.contains(&driver.as_str())));
        if let Some(source) = patient {
            self.add_timeout(name, TimeoutKind::ScsiCommand, None, source);
        } else {
            let source = sys_block(directory, "device/timeout");
            self.add_seconds(name, TimeoutKind::ScsiCommand, source);
        }
        if let Some(session) = ancestor(directory, "session") {
            let source = format!("/sys/class/iscsi_session/{session}/recovery_tmo");
            self.add_seconds(name, TimeoutKind::IscsiReplacement, source);
        }
        if let Some(port) = ancestor(directory, "rport-") {
            let of_port = |file: &str| format!("/sys/class/fc_remote_ports/{port}/{file}");
            self.add_known_seconds(name, TimeoutKind::FcFastIoFail, of_port("fast_io_fail_tmo"));
            self.add_known_seconds(name, TimeoutKind::FcDeviceLoss, of_port("dev_loss_tmo"));
        }
    }

    fn add_nvme_timeouts(&mut self, directory: &Path, name: &str) {
        let of_queue = sys_block(directory, "queue/io_timeout");
        let milliseconds = self.read(&of_queue).and_then(|text| text.parse().ok());
        if let Some(ns) = milliseconds.and_then(|ms: u64| ms.checked_mul(1_000_000)) {
            self.add_timeout(name, TimeoutKind::NvmeCommand, Some(ns), of_queue);
        } else {
            // A multipath namespace has no request queue.
            let of_module = "/sys/module/nvme_core/parameters/io_timeout".to_owned();
            self.add_known_seconds(name, TimeoutKind::NvmeCommand, of_module);
        }
        for controller in controllers(directory) {
            // Only controllers of a fabric have these files.
            let of_controller = |file: &str| format!("/sys/class/nvme/{controller}/{file}");
            let (fail, loss) = (of_controller("fast_io_fail_tmo"), of_controller("ctrl_loss_tmo"));
            self.add_known_seconds(&controller, TimeoutKind::NvmeFastIoFail, fail);
            self.add_seconds(&controller, TimeoutKind::NvmeControllerLoss, loss);
        }
    }

    /// Adds the error policy of a mounted ext4 filesystem: continue, remount read-only or panic.
    pub(super) fn add_filesystem_timeouts(&mut self, mount: &Mount) {
        if !EXT.contains(&mount.kind.as_str()) {
            return;
        }
        // The mount table only has the option if it differs from the superblock's default.
        let device = fs::canonicalize(self.root.join("sys/dev/block").join(&mount.number)).ok();
        let name =
            device.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let source = name.map(|name| format!("/proc/fs/ext4/{name}/options"));
        let all = source.as_ref().and_then(|source| self.read(source));
        let kind = |options: &str| {
            let mut options = options.split([',', '\n']).map(str::trim);
            options.find(|option| option.starts_with("errors="))?.parse::<TimeoutKind>().ok()
        };
        let (kind, source) = match (all.as_deref().and_then(kind), source) {
            (Some(kind), Some(source)) => (Some(kind), source),
            _ => (kind(&mount.options), "/proc/self/mountinfo".into()),
        };
        if let Some(kind) = kind {
            self.add_timeout(&mount.point.to_string_lossy(), kind, None, source);
        }
    }

    /// Adds a timeout in seconds from the file `source`, or the fact that it is unlimited. Adds nothing if the file cannot be read.
    fn add_seconds(&mut self, layer: &str, kind: TimeoutKind, source: String) {
        match self.limit(&source) {
            ReadLimit::Unknown => {}
            ReadLimit::Off => self.add_timeout(layer, kind, None, source),
            ReadLimit::Ns(ns) => self.add_timeout(layer, kind, Some(ns), source),
        }
    }

    /// Adds a timeout in seconds from the file `source`. Adds nothing if the file cannot be read, or if the timeout is unlimited, because
    /// another one then applies.
    fn add_known_seconds(&mut self, layer: &str, kind: TimeoutKind, source: String) {
        if let ReadLimit::Ns(ns) = self.limit(&source) {
            self.add_timeout(layer, kind, Some(ns), source);
        }
    }

    /// Reads a number of seconds from a file; `off` and negative numbers mean unlimited.
    fn limit(&self, source: &str) -> ReadLimit {
        let Some(text) = self.read(source) else { return ReadLimit::Unknown };
        match text.parse::<i64>().map(u64::try_from) {
            Ok(Ok(seconds)) => seconds.checked_mul(1_000_000_000).map_or(ReadLimit::Off, ReadLimit::Ns),
            Ok(Err(_)) => ReadLimit::Off,
            Err(_) if text == "off" => ReadLimit::Off,
            Err(_) => ReadLimit::Unknown,
        }
    }

    fn add_timeout(&mut self, layer: &str, kind: TimeoutKind, limit_ns: Option<u64>, source: String) {
        let timeout = Timeout { layer: layer.to_owned(), kind, limit_ns, source };
        if !self.stack.timeouts.contains(&timeout) {
            self.stack.timeouts.push(timeout);
        }
    }

    fn read(&self, source: &str) -> Option<String> {
        text(&self.root_path(source))
    }

    fn root_path(&self, source: &str) -> PathBuf {
        self.root.join(source.trim_start_matches('/'))
    }
}

/// A timeout read from a file: unknown, unlimited, or in nanoseconds.
enum ReadLimit {
    Unknown,
    Off,
    Ns(u64),
}

/// Returns the path of a block device's file in /sys/class/block, without the root.
fn sys_block(directory: &Path, file: &str) -> String {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    format!("/sys/class/block/{name}/{file}")
}

/// Returns the name of the nearest parent directory whose name is `prefix` followed by a digit, such as `host0` or `rport-0:0-1`; `None` if
/// there is none.
pub(crate) fn ancestor(directory: &Path, prefix: &str) -> Option<String> {
    let names = directory.ancestors().filter_map(|dir| dir.file_name()?.to_str());
    names.skip(1).find(|name| is_numbered(name, prefix)).map(str::to_owned)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns the names of the controllers of an NVMe namespace: its parent controller or, with multipath, all controllers of its subsystem.
fn controllers(directory: &Path) -> Vec<String> {
    let is_controller = |name: &str| {
        name.strip_prefix("nvme")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let name = |dir: &Path| dir.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let Some(above) = directory.parent() else { return Vec::new() };
    match name(above).filter(|name| is_controller(name)) {
        Some(controller) => vec![controller],
        None => device::sorted(above)
            .iter()
            .filter_map(|dir| name(dir))
            .filter(|name| is_controller(name))
            .collect(),
    }
}
