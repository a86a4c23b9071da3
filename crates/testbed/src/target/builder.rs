//! Builds targets from their layers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use iotax_model::Plan;
use iotax_model::target::RequiredSpace;
use iotax_model::target::{FileSpec, Format, Preallocation, TargetSpec};
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;

use super::lvm::{Origin, Volume, Volumes};
use super::{Built, existing, filesystem, loop_device, qcow2, raw};
use crate::build_error::BuildError;
use crate::device::{self, DeviceArea, DeviceClaim, Permission};
use crate::undo::UndoLog;

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
struct Ground {
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

    /// Builds one target. The spec must have passed the plan's check and [`super::preflight::check`].
    pub fn build(&mut self, spec: &TargetSpec, undo_log: &mut UndoLog) -> Result<Built, BuildError> {
        if let Some(path) = &spec.path {
            return if path.exists() {
                existing::open(path)
            } else {
                raw::build(path, self.space.area, Preallocation::Off, undo_log)
            };
        }
        let Some(file) = &spec.file else {
            if let Some(path) = spec.device.as_deref().filter(|path| !self.permission.allows(path)) {
                let found = existing::open(path)?;
                return Ok(Built { size: self.reached(found.size), ..found });
            }
            let ground = self.ground(spec, undo_log)?;
            let built = self.on(ground);
            // The guest's filesystem takes space beyond the area.
            let in_guest = spec.filesystem_in_guest().is_some();
            return Ok(if in_guest { Built { size: self.space.area, ..built } } else { built });
        };
        let mut origin = None;
        let directory = match (&spec.filesystem, &file.dir) {
            (Some(filesystem), _) => {
                let Ground { block, claim, origin: volume, .. } = self.ground(spec, undo_log)?;
                if let Some(claim) = claim.as_ref().filter(|_| !self.permission.signature) {
                    claim.check_signature()?;
                }
                // mkfs and mount need an exclusive claim of their own; the pin keeps the device the same until then.
                let _pin = claim.as_ref().map(|claim| claim.pin());
                drop(claim);
                origin = volume;
                filesystem::check_room(
                    filesystem.kind,
                    spec.on_filesystem(self.space),
                    &block.path,
                    block.size,
                )?;
                filesystem::build(&block, filesystem, &format!("{}-{}", self.tag, spec.name), undo_log)?
            }
            (None, Some(dir)) => self.folder(dir, undo_log)?,
            (None, None) => unreachable!("Plan::check refuses a file without a place"),
        };
        let built = Built {
            origin,
            ..self.file(&directory.join(&spec.name), spec.disk_size(self.space), file, undo_log)?
        };
        let Some(settings) = &spec.loop_device else { return Ok(built) };
        loop_device::build(built, settings, undo_log)
    }

    /// The device or volume at a target's bottom.
    fn ground(&mut self, spec: &TargetSpec, undo_log: &mut UndoLog) -> Result<Ground, BuildError> {
        if let Some(volume) = self.volumes.build(spec, &self.permission, undo_log)? {
            let Volume { path, offset, size, shared, identity, origin } = volume;
            let block = DeviceArea { path, offset, size };
            return Ok(Ground { block, shared, identity, claim: None, origin });
        }
        let Some(path) = &spec.device else {
            unreachable!("Plan::check refuses a target without a bottom");
        };
        let node = self.permission.place(path);
        let held = self.claims.get(&node).and_then(Weak::upgrade);
        let claim = match held {
            Some(claim) => claim,
            None => Arc::new(device::claim(path, &self.permission)?),
        };
        self.claims.insert(node, Arc::downgrade(&claim));
        let (block, identity) = (claim.block.clone(), Some(Identity::Disk(claim.pin().disk)));
        Ok(Ground { block, shared: false, identity, claim: Some(claim), origin: None })
    }

    /// The part of a device that the workloads reach.
    fn reached(&self, length: Bytes) -> Bytes {
        self.reach.map_or(length, |reach| reach.min(length))
    }

    /// The target on a bare device.
    fn on(&self, ground: Ground) -> Built {
        let Ground { block, shared, identity, claim, origin } = ground;
        Built {
            path: block.path,
            offset: block.offset,
            format: Format::Raw,
            size: self.reached(block.size),
            writable: true,
            shared: shared || claim.is_some(),
            identity,
            held: None,
            claim,
            entry: None,
            snapshot: None,
            origin,
            warnings: Vec::new(),
        }
    }

    /// A new file of `length` guest-visible bytes; `stem` is its path without extension.
    fn file(
        &self,
        stem: &Path,
        length: Bytes,
        file: &FileSpec,
        undo_log: &mut UndoLog,
    ) -> Result<Built, BuildError> {
        let built = match file.format {
            Format::Raw => {
                // Its filesystem may have to be unmounted while this process still runs: do not keep it open.
                raw::build(&stem.with_added_extension("raw"), length, file.preallocation, undo_log)
                    .map(|built| Built { held: None, ..built })
            }
            Format::Qcow2 => qcow2::build(&stem.with_added_extension("qcow2"), length, file, undo_log),
        }?;
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
