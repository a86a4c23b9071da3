//! Builds targets from their layers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use iotax_model::Plan;
use iotax_model::target::{
    BlockStack, DiskStack, FilesystemSpec, Format, NewFile, Preallocation, RequiredSpace, StorageStack,
    TargetSpec,
};
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;

use super::lvm::{BlockPlace, Origin, Volume, Volumes};
use super::{Built, existing, filesystem, loop_device, qcow2, raw};
use crate::build_error::BuildError;
use crate::device::{self, DeviceArea, DeviceClaim, OverwrittenDevice, Permission};
use crate::undo::{Effect, UndoLog};

/// Builds the targets of one run. Creates shared parts (a folder, a device claim) once.
#[derive(Debug)]
pub struct Builder {
    tag: String,
    /// Space of created targets.
    space: RequiredSpace,
    /// End of the workloads' areas; `None` to use whole devices.
    reach: Option<Bytes>,
    permission: Permission,
    volumes: Volumes,
    /// The folders that iotax created, by parent directory.
    folders: BTreeMap<PathBuf, PathBuf>,
    /// Devices claimed by targets of this run, by the kernel's node.
    claims: BTreeMap<PathBuf, Weak<DeviceClaim>>,
}

/// A block device for the layers above.
struct Bottom {
    block: DeviceArea,
    /// True if LVM holds it.
    shared: bool,
    identity: Option<Identity>,
    claim: Option<Arc<DeviceClaim>>,
    /// Set for a volume that needs snapshots.
    origin: Option<Origin>,
}

impl Builder {
    /// A builder for the targets of a plan. `tag` is part of all names.
    #[must_use]
    pub fn new(tag: &str, plan: &Plan, permission: Permission) -> Self {
        Self {
            tag: tag.to_owned(),
            space: plan.space(),
            reach: plan.reach(),
            volumes: Volumes::new(tag, plan, &permission),
            permission,
            folders: BTreeMap::new(),
            claims: BTreeMap::new(),
        }
    }

    /// Opens the file or device at a path; creates a file where nothing exists.
    pub fn open_or_create(&self, path: &Path, undo_log: &mut UndoLog) -> Result<Built, BuildError> {
        if path.exists() {
            return existing::open(path);
        }
        raw::build(path, self.space.area, Preallocation::Off, undo_log).map(Into::into)
    }

    /// Builds the storage of a target, which must have passed [`super::preflight::check`].
    pub fn build(
        &mut self,
        spec: &TargetSpec,
        storage: StorageStack<'_>,
        undo_log: &mut UndoLog,
    ) -> Result<Built, BuildError> {
        match storage.disk {
            DiskStack::Block(BlockStack::Device(path)) if !self.permission.allows(path) => {
                let found = existing::open(path)?;
                Ok(Built { size: self.reached(found.size), ..found })
            }
            DiskStack::Block(block) => {
                let bottom = self.bottom(spec, block, undo_log)?;
                let built = self.on(bottom);
                // The guest's filesystem takes space beyond the area.
                let in_guest = spec.filesystem_in_guest().is_some();
                Ok(if in_guest { Built { size: self.space.area, ..built } } else { built })
            }
            DiskStack::InDirectory(dir, file) => {
                let directory = self.folder(dir, undo_log)?;
                self.file(&directory, spec, file, undo_log)
            }
            DiskStack::OnFilesystem(block, filesystem, file) => {
                let (directory, origin) = self.filesystem(spec, block, filesystem, undo_log)?;
                Ok(Built { origin, ..self.file(&directory, spec, file, undo_log)? })
            }
        }
    }

    /// A new filesystem: its mount point, and the volume below it if that needs snapshots.
    fn filesystem(
        &mut self,
        spec: &TargetSpec,
        block: BlockStack<'_>,
        filesystem: &FilesystemSpec,
        undo_log: &mut UndoLog,
    ) -> Result<(PathBuf, Option<Origin>), BuildError> {
        let Bottom { block, claim, origin, .. } = self.bottom(spec, block, undo_log)?;
        if let Some(claim) = claim.as_ref().filter(|_| !self.permission.signature) {
            claim.check_signature()?;
        }
        // mkfs and mount need an exclusive claim of their own; the pin keeps the device the same until then.
        let _pin = claim.as_ref().map(|claim| claim.pin());
        drop(claim);
        filesystem::check_room(filesystem.kind, spec.on_filesystem(self.space), &block.path, block.size)?;
        let name = format!("{}-{}", self.tag, spec.name);
        Ok((filesystem::build(&block, filesystem, &name, undo_log)?, origin))
    }

    /// The device or volume at a target's bottom.
    fn bottom(
        &mut self,
        spec: &TargetSpec,
        block: BlockStack<'_>,
        undo_log: &mut UndoLog,
    ) -> Result<Bottom, BuildError> {
        let path = match self.volumes.place(block) {
            BlockPlace::Lvm(location) => {
                let Volume { path, offset, size, shared, identity, origin } =
                    self.volumes.build(spec, &location, &self.permission, undo_log)?;
                let block = DeviceArea { path, offset, size };
                return Ok(Bottom { block, shared, identity, claim: None, origin });
            }
            BlockPlace::Device(path) => path,
        };
        let node = self.permission.place(path);
        let held = self.claims.get(&node).and_then(Weak::upgrade);
        let claim = if let Some(claim) = held {
            claim
        } else {
            let claim = device::claim(path, &self.permission)?;
            undo_log.record(Effect::Overwritten(OverwrittenDevice::new(claim.block.path.clone())))?;
            Arc::new(claim)
        };
        self.claims.insert(node, Arc::downgrade(&claim));
        let (block, identity) = (claim.block.clone(), Some(Identity::Disk(claim.pin().disk)));
        Ok(Bottom { block, shared: false, identity, claim: Some(claim), origin: None })
    }

    /// The part of a device that the workloads reach.
    fn reached(&self, length: Bytes) -> Bytes {
        self.reach.map_or(length, |reach| reach.min(length))
    }

    /// The target on a bare device.
    fn on(&self, bottom: Bottom) -> Built {
        let Bottom { block, shared, identity, claim, origin } = bottom;
        let built = Built::at(block.path, Format::Raw, self.reached(block.size));
        let (offset, shared) = (block.offset, shared || claim.is_some());
        Built { offset, writable: true, shared, identity, claim, origin, ..built }
    }

    /// A new file in a directory, with its loop device.
    fn file(
        &self,
        directory: &Path,
        spec: &TargetSpec,
        file: NewFile<'_>,
        undo_log: &mut UndoLog,
    ) -> Result<Built, BuildError> {
        let (stem, length) = (directory.join(&spec.name), spec.disk_size(self.space));
        let built = match file {
            NewFile::Raw(file, loop_device) => {
                let path = stem.with_added_extension("raw");
                let created = raw::build(&path, length, file.preallocation, undo_log)?;
                match loop_device {
                    Some(settings) => loop_device::build(created, settings, undo_log)?,
                    // Its filesystem may have to be unmounted while this process still runs: do not keep it open.
                    None => Built { held: None, ..created.into() },
                }
            }
            NewFile::Qcow2(file) => {
                qcow2::build(&stem.with_added_extension("qcow2"), length, file, undo_log)?
            }
        };
        Ok(Built { size: self.space.area, ..built })
    }

    /// The folder that iotax created in a directory.
    fn folder(&mut self, dir: &Path, undo_log: &mut UndoLog) -> Result<PathBuf, BuildError> {
        // One folder per directory, whatever name it is given by.
        let dir = std::fs::canonicalize(dir).map_err(BuildError::file(dir))?;
        if let Some(folder) = self.folders.get(&dir) {
            return Ok(folder.clone());
        }
        let folder = dir.join(format!("iotax-{}", self.tag));
        undo_log.make_directory(&folder)?;
        self.folders.insert(dir, folder.clone());
        Ok(folder)
    }
}
