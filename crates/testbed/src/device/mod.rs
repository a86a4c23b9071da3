//! Claims block devices for overwriting: only devices that the user also names with `--overwrite`, and only if they are not in use.
//!
//! A name is resolved once, when it is permitted. From then on the device is identified by its number and disk sequence number, opened
//! through the kernel's own node, and kept open so that no other disk gets its number.

mod disk;
mod image;
mod loops;
mod node;
mod overwritten;
mod serial;
pub(crate) mod signature;
mod signed;
pub mod usage;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iotax_model::Plan;
use iotax_model::target::{NbdExportSpec, TargetSpec};
use iotax_model::threads;
use iotax_model::units::Bytes;
use iotax_model::wire::DiskId;
use rustix::io::Errno;

use crate::holders;
use crate::refusal::Refusal;
pub use disk::RecordedDisk;
pub(crate) use node::number_text;
pub(crate) use node::{by_descriptor, disk_of, kernel_node};
pub use overwritten::OverwrittenDevice;
pub use overwritten::ZEROED_END;
pub(crate) use overwritten::{blank, until_free};
pub use serial::{find_serial, with_serial};
pub(crate) use signature::WIPEFS;
pub(crate) use signed::SignedDevice;

/// Time for another program that briefly opens devices, such as udev, to close this one.
const PASSING: Duration = Duration::from_millis(500);

/// Devices and NBD exports that may be overwritten, because the user named them with `--overwrite`.
#[derive(Debug, Clone, Default)]
pub struct Permission {
    overwrite: Vec<Allowed>,
    /// NBD exports that may be overwritten.
    exports: Vec<NbdExportSpec>,
    /// True to overwrite devices even if they carry a signature, such as a filesystem's, or have non-zero bytes at their ends.
    pub signature: bool,
}

/// A device that may be overwritten: only the disk that was at the path when the user named it.
#[derive(Debug, Clone)]
struct Allowed {
    path: PathBuf,
    /// The disk that was at the path; `None` if there was none.
    disk: Option<DiskId>,
}

impl Permission {
    /// Permits overwriting the devices at these paths, or NBD exports given by their URIs. With `signature`, also permits devices that
    /// carry a signature or have non-zero bytes at their ends.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>, signature: bool) -> Self {
        let mut permission = Self { signature, ..Self::default() };
        for path in paths {
            match path.to_str().and_then(|text| text.parse().ok()) {
                Some(export) => permission.exports.push(export),
                None => permission.overwrite.push(Allowed { disk: node::disk_at(&path).ok(), path }),
            }
        }
        permission
    }

    /// Returns whether the user permits overwriting this NBD export.
    #[must_use]
    pub fn allows_export(&self, export: &NbdExportSpec) -> bool {
        self.exports.contains(export)
    }

    /// Returns whether the user permits overwriting the device at a path, under this or any other name of the device.
    #[must_use]
    pub fn allows(&self, path: &Path) -> bool {
        self.disk(path).is_ok_and(|disk| self.allowed(disk).is_some())
    }

    /// Returns the path of the kernel's own device node for a device given by any name; the given path if there is no such node.
    pub(super) fn kernel_path(&self, path: &Path) -> PathBuf {
        let node = self.disk(path).ok().and_then(|disk| kernel_node(disk.number).ok());
        node.unwrap_or_else(|| path.to_owned())
    }

    /// Identifies the disk at a path. For a path that the user permitted, returns the disk that was there when the permission was given.
    fn disk(&self, path: &Path) -> Result<DiskId, Refusal> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let named = self.overwrite.iter().find(|allowed| allowed.path == absolute);
        named.and_then(|allowed| allowed.disk).map_or_else(|| node::disk_at(path), Ok)
    }

    fn allowed(&self, disk: DiskId) -> Option<DiskId> {
        let all = self.overwrite.iter().filter_map(|allowed| allowed.disk);
        all.into_iter().find(|allowed| allowed.number == disk.number)
    }
}

/// A block device below a target, or a byte range of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceArea {
    /// Path of the device node.
    pub path: PathBuf,
    /// Byte offset of the range on the device.
    pub offset: Bytes,
    /// Length of the range in bytes.
    pub size: Bytes,
}

/// A handle that keeps a device open, so that no other disk gets its device number.
#[derive(Debug, Clone)]
pub struct DevicePin {
    /// Device number and disk sequence number of the device.
    pub disk: DiskId,
    _open: Arc<File>,
}

/// A device held open exclusively (O_EXCL) until dropped, against mounts, volume managers and other iotax processes.
#[derive(Debug)]
pub struct DeviceClaim {
    /// The whole device, with the kernel's own node as its path.
    pub block: DeviceArea,
    pin: DevicePin,
    /// Exclusively opened files: the device, then the backing devices of loop devices in its stack, which the kernel does not claim.
    held: Vec<File>,
}

impl DeviceClaim {
    /// Returns a handle that keeps the device open after the exclusive claim is dropped, when tools claim it themselves.
    pub(super) fn pin(&self) -> DevicePin {
        self.pin.clone()
    }

    /// Rejects a device that carries a signature or has non-zero bytes at its ends.
    pub(super) fn check_signature(&self) -> Result<(), Refusal> {
        check_signature(&self.held[0], &self.block.path)
    }
}

/// Rejects a target's device that does not exist. Also rejects a device that cannot be claimed, if it will be written or `--overwrite`
/// names it.
pub fn check(spec: &TargetSpec, plan: &Plan, permission: &Permission) -> Result<(), Refusal> {
    let Some(path) = spec.device() else { return Ok(()) };
    permission.disk(path)?;
    let makes = spec.bottom_volume().is_some()
        || spec.formatted_by().is_some()
        || spec.filesystem_in_guest().is_some();
    let writes = plan.work_on(spec).iter().any(|workload| workload.modifies());
    if !permission.allows(path) && !makes && !writes {
        return Ok(());
    }
    claim(path, permission).map(drop)
}

/// Replaces the error `refusal` if a workload writes to a block device that is given as a path. The new error explains that iotax only
/// reads such a device unless `--overwrite` names it too.
pub(super) fn or_named_twice(path: &Path, plan: &Plan, refusal: Refusal) -> Refusal {
    let writes = plan.workloads.iter().find(|workload| workload.modifies());
    match writes.filter(|_| node::disk_at(path).is_ok()) {
        Some(workload) => Refusal::input(format!(
            "{0}: a block device is only read as it is, and {1:?} changes it ({2}); to have it overwritten, name it \
             twice: iotax bench {0} --overwrite {0}, in a plan device = \"{0}\" and iotax run --overwrite {0}",
            path.display(),
            workload.name,
            workload.doing()
        )),
        None => refusal,
    }
}

/// Rejects an `--overwrite` for a device or export that no target uses: it may be a typing error for another device.
pub fn check_permission(plan: &Plan, permission: &Permission) -> Result<(), Refusal> {
    for export in &permission.exports {
        if !plan.everything().any(|target| target.stack.find() == Some(export)) {
            return Err(Refusal::input(format!(
                "--overwrite {export}: no target is on that export; name it as the target too, or leave the flag out"
            )));
        }
    }
    for Allowed { path: allowed, .. } in &permission.overwrite {
        let device = permission.disk(allowed)?;
        let named = |path: &Path| permission.disk(path).is_ok_and(|disk| disk.number == device.number);
        if !plan.everything().any(|target| target.device().is_some_and(named)) {
            return Err(Refusal::input(format!(
                "--overwrite {}: no target is on that device; name it as device = \"{}\" too, or leave the flag out",
                allowed.display(),
                allowed.display()
            )));
        }
    }
    Ok(())
}

/// Rejects two targets on one device if either of them takes the whole device, for example for a filesystem or encryption, without LVM.
pub fn check_sharing(plan: &Plan, permission: &Permission) -> Result<(), Refusal> {
    let mut seen: BTreeMap<u64, (&str, Option<&str>)> = BTreeMap::new();
    for target in plan.everything() {
        let Some(path) = &target.device() else { continue };
        let device = permission.disk(path)?.number;
        let in_guest = target.filesystem_in_guest().is_some();
        let formatted = target.formatted_by().or(in_guest.then_some("filesystem"));
        let alone = formatted.filter(|_| target.bottom_volume().is_none());
        if let Some((other, other_alone)) = seen.insert(device, (&target.name, alone))
            && let Some(taking) = alone.or(other_alone)
        {
            return Err(Refusal::input(format!(
                "targets {other:?} and {:?} are on the same device, and {} takes all of it; use lvm = {{}} below, another device, or a \
                 plan for each",
                target.name,
                if taking == "filesystem" { "a filesystem" } else { taking }
            )));
        }
    }
    Ok(())
}

/// Claims a device exclusively, without writing to it. Rejects a device that the user does not permit, that has been replaced since it was
/// named, that is in use (the error says by what), or that has no medium. Also rejects a device that carries a signature or has non-zero
/// bytes at its ends, unless these may be overwritten.
pub fn claim(path: &Path, permission: &Permission) -> Result<DeviceClaim, Refusal> {
    let disk = permission.disk(path)?;
    let shown = path.display();
    let Some(allowed) = permission.allowed(disk) else {
        return Err(Refusal::input(format!(
            "{shown}: it would be overwritten; name it once more with --overwrite {shown}"
        )));
    };
    let refuse = |reason: String| Refusal::environment(format!("{shown}: {reason}"));
    let node = kernel_node(disk.number).map_err(refuse)?;
    let open =
        |exclusive| node::open(&node, disk.number, exclusive).map_err(|error| refuse(reason_of(&error)));
    // Opened once, so that all later lookups by number mean this disk.
    let pinned = open(false).or_else(|refusal| {
        // A device in use by the system may refuse to open; report the use instead.
        usage::check(Path::new("/"), &number_text(disk.number)).map_err(refuse)?;
        Err(refusal)
    })?;
    if disk_of(&pinned).map_err(|error| refuse(error.to_string()))? != allowed {
        return Err(refuse("another device has taken its place since it was named; name it again".into()));
    }
    let root = Path::new("/");
    let number = number_text(disk.number);
    usage::check(root, &number).map_err(refuse)?;
    let shared = usage::shared(root, &number).map_err(refuse)?;
    until_unwritten(&shared).map_err(refuse)?;
    let mut held = vec![open(true)?];
    for number in &shared.below {
        let node = kernel_node(*number).map_err(refuse)?;
        held.push(node::open(&node, *number, true).map_err(|error| refuse(reason_of(&error)))?);
    }
    let size = held[0].seek(SeekFrom::End(0)).map_err(|error| refuse(error.to_string()))?;
    if size == 0 {
        return Err(refuse("it holds nothing; is there a medium in it?".into()));
    }
    if !permission.signature {
        check_signature(&held[0], path)?;
    }
    let block = DeviceArea { path: node.clone(), offset: Bytes(0), size: Bytes(size) };
    Ok(DeviceClaim { block, pin: DevicePin { disk: allowed, _open: Arc::new(pinned) }, held })
}

/// Waits up to 500 ms until no process has the device or its backing files open for writing. The error names the process.
fn until_unwritten(shared: &usage::SharedBytes) -> Result<(), String> {
    let deadline = Instant::now() + PASSING;
    let all = [("it", &shared.devices[..], &[][..]), ("the file below it", &[], &shared.files)];
    for (what, devices, files) in all {
        while let Some(writer) = holders::writers(devices, files).first() {
            if Instant::now() > deadline {
                return Err(format!("{writer} has {what} open for writing; end that first"));
            }
            threads::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Rejects a device that carries a signature or has non-zero bytes at its ends. `shown` is the device's name for the error.
fn check_signature(device: &File, shown: &Path) -> Result<(), Refusal> {
    let found = signature::read(device).map_err(|error| Refusal::environment(error.to_string()))?;
    let shown = shown.display();
    if found.is_empty() {
        let content = overwritten::content(device);
        return match content.map_err(|error| Refusal::environment(format!("{shown}: {error}")))? {
            None => Ok(()),
            Some(at) => Err(Refusal::environment(format!(
                "{shown}: it carries no signature that is known, but is not empty: byte {at} is not zero; if its content is not needed, add --overwrite-signature"
            ))),
        };
    }
    let wipe = if found.iter().all(|signature| signature.wipeable) {
        format!(", or wipe it (wipefs --all {shown})")
    } else {
        String::new()
    };
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    Err(Refusal::environment(format!(
        "{shown}: it carries {}; if it is not needed any more, add --overwrite-signature{wipe}",
        found.join(", ")
    )))
}

fn reason_of(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::BUSY) => {
            "something else has claimed it (O_EXCL): a volume manager, a filesystem that is mounted where no table shows \
             it, another iotax; end that first (lsblk and fuser may show it)"
                .into()
        }
        Some(Errno::NXIO | Errno::NODEV) => {
            "there is no device behind this node any more; was it unplugged? Name one that lsblk lists".into()
        }
        Some(Errno::NOMEDIUM) => "there is no medium in it".into(),
        Some(Errno::ACCESS | Errno::PERM) => format!("cannot be opened ({error}); run iotax as root"),
        _ => format!("cannot be opened ({error})"),
    }
}
