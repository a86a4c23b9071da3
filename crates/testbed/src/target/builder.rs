//! Builds the storage of targets from their layers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use iotax_model::Plan;
use iotax_model::plan::{Operation, WatchSpec};
use iotax_model::target::{Format, Preallocation, RequiredSpace, TargetSpec};
use iotax_model::units::Bytes;

use super::ground::{BlockGround, Ground};
use super::layer::{self, LayerSite};
use super::lvm::Volumes;
use super::purge::purge;
use super::{Built, Survivor, existing, raw};
use crate::build_error::BuildError;
use crate::device::{self, DeviceClaim, OverwrittenDevice, Permission};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};

/// A builder of the targets of one run. Directories and device claims that several targets share are created once.
#[derive(Debug)]
pub struct Builder {
    pub(super) tag: String,
    /// The space that the workloads need on targets that iotax creates.
    pub(super) space: RequiredSpace,
    /// Highest end of any workload's area in bytes, which limits how much of a device is used; `None` to use whole devices.
    reach: Option<Bytes>,
    /// Bytes of a target that are filled before the first round.
    filled: Bytes,
    /// Maximum number of concurrent workers of any workload, from which the number of a virtio export's queues follows.
    pub(super) workers: u32,
    /// Operations on images (snapshot, resize) that the plan performs during measurements.
    pub(super) operations: Vec<Operation>,
    pub(super) permission: Permission,
    pub(super) volumes: Volumes,
    /// The directories that iotax created for its files, by parent directory.
    folders: BTreeMap<PathBuf, PathBuf>,
    /// The directory that survived a power cut, whose files are opened instead of created; `None` outside of a rebuild.
    pub(super) survivor: Option<Survivor>,
    /// Devices that targets of this run have claimed, by the kernel's device node.
    claims: BTreeMap<PathBuf, Weak<DeviceClaim>>,
    /// True to purge devices once they are claimed: the run waits for a steady state.
    purges: bool,
    /// Outcomes of purges, by the kernel's device node.
    purged: BTreeMap<PathBuf, String>,
}

impl Builder {
    /// Returns a builder for the targets of a plan. `tag` is part of the names of all directories and devices.
    #[must_use]
    pub fn new(tag: &str, plan: &Plan, permission: Permission) -> Self {
        Self {
            tag: tag.to_owned(),
            space: plan.space(),
            reach: plan.reach(),
            filled: plan.filled(),
            workers: plan.workers(),
            operations: plan.watch().into_iter().flat_map(WatchSpec::operations).collect(),
            volumes: Volumes::new(tag, plan, &permission),
            permission,
            folders: BTreeMap::new(),
            survivor: None,
            claims: BTreeMap::new(),
            purges: plan.preconditions(),
            purged: BTreeMap::new(),
        }
    }

    /// Opens the file or device at a path read-only; creates a new file if nothing exists there.
    pub fn open_or_create(&self, path: &Path, undo_log: &mut UndoLog) -> Result<Built, BuildError> {
        if path.exists() {
            return existing::open(path);
        }
        raw::build(path, self.space.area, Preallocation::Off, undo_log).map(Into::into)
    }

    /// Builds a target's storage again after a power cut, on the directory that survived.
    pub fn rebuild(
        &mut self,
        target: &TargetSpec,
        survivor: Survivor,
        undo_log: &mut UndoLog,
    ) -> Result<Built, BuildError> {
        self.survivor = Some(survivor);
        let built = self.build(target, undo_log);
        self.survivor = None;
        built
    }

    /// Builds the storage of a target layer by layer. The target must have passed [`super::preflight::check`].
    pub fn build(&mut self, target: &TargetSpec, undo_log: &mut UndoLog) -> Result<Built, BuildError> {
        let (mut origin, mut warnings, mut exported, mut volatile) = (None, Vec::new(), None, None);
        let (mut servers, mut counters, mut limit) = (Vec::new(), Vec::new(), None);
        let layers = target.stack.layers();
        let mut ground = Ground::Machine;
        for (height, layer) in layers.iter().enumerate() {
            let Some(kind) = layer::build(layer) else { continue };
            let (below, above) = (&layers[..height], &layers[height + 1..]);
            let (origin, warnings) = (&mut origin, &mut warnings);
            let (exported, volatile) = (&mut exported, &mut volatile);
            let mut site = LayerSite {
                builder: &mut *self,
                undo_log: &mut *undo_log,
                target,
                below,
                above,
                origin,
                warnings,
                exported,
                servers: &mut servers,
                volatile,
                counters: &mut counters,
                limit: &mut limit,
            };
            ground = kind.build(ground, &mut site)?;
        }
        let built = match ground {
            Ground::Block(block) => self.on(block),
            // The filesystem below the file may have to be unmounted while this process still runs: do not keep the file open.
            Ground::Raw(file) => Built { held: None, ..file.into() },
            Ground::Built(built) => *built,
            Ground::Machine | Ground::Directory(_) | Ground::Node(_) => {
                return Err(Refusal::input("a target ends with what can be measured").into());
            }
        };
        // A filesystem in the guest takes space beyond the area, and so does one on a file.
        let is_made = target.file().is_some() || target.filesystem_in_guest().is_some();
        // Reads beyond what is filled would meet unwritten blocks. Until a steady state, the whole device is filled.
        let is_overwritten = target.device().is_some_and(|device| self.permission.allows(device));
        let is_partly_filled = is_overwritten && self.reach.is_none() && self.filled.0 > 0 && !self.purges;
        let size = match is_made {
            true => self.space.area,
            false if is_partly_filled => built.size.min(self.filled),
            false => built.size,
        };
        let purged =
            target.device().and_then(|path| self.purged.get(&self.permission.kernel_path(path)).cloned());
        let purged = purged.or_else(|| self.volumes.purged(target));
        Ok(Built { size, origin, warnings, exported, servers, volatile, counters, limit, purged, ..built })
    }

    /// Returns the number of bytes of a device with this length that the workloads use.
    pub(super) fn reached(&self, length: Bytes) -> Bytes {
        self.reach.map_or(length, |reach| reach.min(length))
    }

    /// Converts a block device without further layers into a target's storage.
    fn on(&self, ground: BlockGround) -> Built {
        let BlockGround { area, shared, identity, claim, .. } = ground;
        let built = Built::at(area.path, Format::Raw, self.reached(area.size));
        let (offset, shared) = (area.offset, shared || claim.is_some());
        Built { offset, writable: true, shared, identity, claim, ..built }
    }

    /// Claims a device exclusively. All targets on it share the claim.
    pub(super) fn claim(
        &mut self,
        path: &Path,
        undo_log: &mut UndoLog,
    ) -> Result<Arc<DeviceClaim>, BuildError> {
        let node = self.permission.kernel_path(path);
        if let Some(held) = self.claims.get(&node).and_then(Weak::upgrade) {
            return Ok(held);
        }
        let claim = device::claim(path, &self.permission)?;
        undo_log.record(Effect::Overwritten(OverwrittenDevice::new(claim.block.path.clone())))?;
        if self.purges {
            self.purged.insert(node.clone(), purge(&claim.block.path, undo_log));
        }
        let claim = Arc::new(claim);
        self.claims.insert(node, Arc::downgrade(&claim));
        Ok(claim)
    }

    /// Returns iotax's own directory within `dir`, which is created on first use.
    pub(super) fn folder(&mut self, dir: &Path, undo_log: &mut UndoLog) -> Result<PathBuf, BuildError> {
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
