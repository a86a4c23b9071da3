//! Creates filesystems on a device or volume, and mounts them.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use iotax_model::target::{FilesystemSpec, FsType, VolatileSpec};
use iotax_model::units::{Bytes, human};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use super::ground::{Ground, TakenBlock};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::device::{self, RecordedDisk, signature};
use crate::filesystem::{CreatedFilesystem, Mounted};
use crate::host_info::new_uuid;
use crate::program::Program;
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};

const MOUNT: Program = Program { name: "mount", package: "mount" };

fn maker(kind: FsType) -> Program {
    match kind {
        FsType::Ext4 => Program { name: "mkfs.ext4", package: "e2fsprogs" },
        FsType::Xfs => Program { name: "mkfs.xfs", package: "xfsprogs" },
        FsType::Btrfs => Program { name: "mkfs.btrfs", package: "btrfs-progs" },
    }
}

impl Build for FilesystemSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        check(self)?;
        check_created(at.plan, &at.plan.work_on(at.target))
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let mut taken = below.block()?.take(at.builder.permission.signature)?;
        // A cut may leave a device that cannot be wiped, and the file below it is removed.
        taken.transient |= at.target.stack.has::<VolatileSpec>();
        let area = &taken.area;
        check_room(self.kind, at.size(), &area.path, area.size)?;
        let name = format!("{}-{}", at.builder.tag, at.name::<Self>());
        if at.builder.survivor.is_none() {
            make(&taken, self, at.undo_log)?;
        }
        mount(&area.path, self, &name, at.undo_log).map(Ground::Directory)
    }
}

/// Rejects a filesystem that this user cannot mount, or whose tools are missing.
fn check(spec: &FilesystemSpec) -> Result<(), Refusal> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::environment(format!(
            "filesystem = {{ type = \"{}\" }}: only root may mount it; run iotax as root",
            spec.kind
        )));
    }
    for program in [maker(spec.kind), MOUNT, signature::WIPEFS] {
        program.find().map_err(|error| Refusal::environment(error.to_string()))?;
    }
    Ok(())
}

/// Rejects a device of `length` bytes that is too small for a filesystem with a file of `file` bytes.
pub fn check_room(kind: FsType, file: Bytes, device: &Path, length: Bytes) -> Result<(), Refusal> {
    let needed = kind.room(file);
    if needed <= length {
        return Ok(());
    }
    Err(Refusal::input(format!(
        "{}: it holds {}, and {} of a file with {kind} around it take {}; give a smaller size",
        device.display(),
        human::bytes(length.0),
        human::bytes(file.0),
        human::bytes(needed.0)
    )))
}

/// Creates a filesystem on a whole device.
fn make(taken: &TakenBlock, spec: &FilesystemSpec, undo_log: &mut UndoLog) -> Result<(), BuildError> {
    let block = &taken.area;
    let in_path = |error| BuildError::file(&block.path)(error);
    let uuid = new_uuid().map_err(in_path)?;
    if !taken.transient {
        let (device, disk) = (block.path.clone(), RecordedDisk::of(&block.path).map(Box::new));
        let made = CreatedFilesystem { device, disk, kind: spec.kind, uuid: uuid.clone() };
        undo_log.record(Effect::Filesystem(made))?;
    }
    // Wipes all old signatures, so that the next check finds only the new one.
    undo_log.run(signature::WIPEFS, ["--all".as_ref(), block.path.as_os_str()])?;
    let device = block.path.to_string_lossy();
    let known_by = match spec.kind {
        FsType::Ext4 => ["-F", "-U", &uuid],
        FsType::Xfs => ["-f", "-m", &format!("uuid={uuid}")],
        FsType::Btrfs => ["-f", "-U", &uuid],
    };
    undo_log.run(maker(spec.kind), ["-q", "-L", LABEL].into_iter().chain(known_by).chain([&*device]))?;
    Ok(())
}

/// Mounts the filesystem of a device. Returns the mount point. `name` is part of the mount point and must be unique.
fn mount(
    device: &Path,
    spec: &FilesystemSpec,
    name: &str,
    undo_log: &mut UndoLog,
) -> Result<PathBuf, BuildError> {
    let number = device::number_text(fs::metadata(device).map_err(BuildError::file(device))?.rdev());
    let device = device.to_string_lossy();
    // The mount table shows paths without symbolic links.
    let scratch = std::env::temp_dir();
    let scratch = fs::canonicalize(&scratch).map_err(BuildError::file(&scratch))?;
    let point = scratch.join(format!("iotax-{name}"));
    undo_log.make_directory(&point)?;
    undo_log.record(Effect::Mount(Mounted { point: point.clone(), source: number }))?;
    let options = options(spec);
    let mut words = vec!["-t", spec.kind.word()];
    words.extend(options.iter().flat_map(|options| ["-o", options.as_str()]));
    let place = point.to_string_lossy();
    words.extend([&*device, &*place]);
    undo_log.run(MOUNT, words)?;
    fs::set_permissions(&point, Permissions::from_mode(0o700)).map_err(BuildError::file(&point))?;
    if spec.nodatacow {
        // New files inherit the attribute.
        let directory = File::open(&point).map_err(BuildError::file(&point))?;
        ioctl_getflags(&directory)
            .and_then(|flags| ioctl_setflags(&directory, flags | IFlags::NOCOW))
            .map_err(|errno| BuildError::file(&point)(errno.into()))?;
    }
    Ok(point)
}

/// Label of the filesystems that iotax creates, by which a user recognises them after a power failure.
const LABEL: &str = "iotax";

/// Returns the value of mount(8)'s option -o; `None` if no options are needed.
fn options(spec: &FilesystemSpec) -> Option<String> {
    // Otherwise ext4 would initialize inode tables in the background, during measurements.
    let quiet = (spec.kind == FsType::Ext4).then(|| "noinit_itable".to_owned());
    let all: Vec<String> = quiet.into_iter().chain(spec.mount_options.clone()).collect();
    (!all.is_empty()).then(|| all.join(","))
}
