//! The interface for checking and building each kind of layer on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use iotax_model::Plan;
use iotax_model::target::{Layer, LayerSpec, LvmSpec, NbdSpec, PlannedLayer, TargetSpec};
use iotax_model::units::{Bytes, human};
use iotax_model::warning::Warning;

use super::counters::Counters;
use super::ground::{BlockGround, Ground};
use super::needs::Needs;
use super::node::{BlockNode, NodeBase};
use super::origin::Origin;
use super::sizes::size_on;
use super::{Builder, Built};
use super::{ExportedImage, Volatile};
use crate::build_error::BuildError;
use crate::cgroup::IoLimit;
use crate::device::Permission;
use crate::export::StorageDaemon;
use crate::mapper::{DMSETUP, Mapping, VERIFY_UDEV};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};

/// A kind of layer that can be built on this machine.
pub(super) trait Build {
    /// Rejects a layer that cannot be built here, before anything is changed. Adds the space that the layer needs to `needs`.
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal>;

    /// Builds the layer on the storage `below`. Returns the storage that the layer provides.
    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError>;

    /// Returns the layers to list in the run's record, from the bottom up. Layers that /sys shows anyway are left out. `exported` is the
    /// image that the run's daemons export; `None` without an export.
    fn recorded(&self, exported: Option<&ExportedImage>) -> Vec<Layer> {
        let _ = exported;
        Vec::new()
    }
}

/// Returns the layers of a target for the run's record that /sys does not show. If a client presents an NBD export as a block device, ends
/// with that export, because /sys shows the layers above it.
#[must_use]
pub fn recorded(target: &TargetSpec, built: &Built) -> Vec<Layer> {
    let all = target.stack.layers();
    // /sys shows what stands on a block device.
    let is_device = built.exported.as_ref().is_some_and(|image| image.is_device);
    let export = all.iter().rposition(|layer| NbdSpec::of(layer).is_some()).filter(|_| is_device);
    let layers = all[..export.map_or(all.len(), |place| place + 1)].iter().filter_map(build);
    layers.flat_map(|layer| layer.recorded(built.exported.as_deref())).collect()
}

/// Returns the implementation that builds a layer. `None` for layers that are not built here: an existing path, networks and guests.
pub(super) fn build(layer: &PlannedLayer) -> Option<&dyn Build> {
    match layer {
        PlannedLayer::Device(spec) => Some(spec),
        PlannedLayer::Lvm(spec) => Some(spec),
        PlannedLayer::Md(spec) => Some(spec),
        PlannedLayer::Delay(spec) => Some(spec),
        PlannedLayer::Integrity(spec) => Some(spec),
        PlannedLayer::Cache(spec) => Some(spec),
        PlannedLayer::Luks(spec) => Some(spec),
        PlannedLayer::Zfs(spec) => Some(spec),
        PlannedLayer::Filesystem(spec) => Some(spec),
        PlannedLayer::Tmpfs(spec) => Some(spec),
        PlannedLayer::Volatile(spec) => Some(spec),
        PlannedLayer::Overlay(spec) => Some(spec),
        PlannedLayer::Share(spec) => Some(spec),
        PlannedLayer::File(spec) => Some(spec),
        PlannedLayer::Image(spec) => Some(spec),
        PlannedLayer::NbdExport(spec) => Some(spec),
        PlannedLayer::Filter(spec) => Some(spec),
        PlannedLayer::Nbd(spec) => Some(spec),
        PlannedLayer::Iscsi(spec) => Some(spec),
        PlannedLayer::Nfs(spec) => Some(spec),
        PlannedLayer::Rbd(spec) => Some(spec),
        PlannedLayer::Fuse(spec) => Some(spec),
        PlannedLayer::NineP(spec) => Some(spec),
        PlannedLayer::Virtiofs(spec) => Some(spec),
        PlannedLayer::Virtio(spec) => Some(spec),
        PlannedLayer::Loop(spec) => Some(spec),
        PlannedLayer::NvmeTcp(spec) => Some(spec),
        PlannedLayer::Xen(spec) => Some(spec),
        PlannedLayer::Cgroup(spec) => Some(spec),
        PlannedLayer::Path(_) | PlannedLayer::Network(_) | PlannedLayer::Guest(_) => None,
    }
}

/// A layer to check, with its plan and target.
pub(super) struct Check<'a> {
    pub(super) plan: &'a Plan,
    pub(super) permission: &'a Permission,
    pub(super) target: &'a TargetSpec,
    /// The layers above the one to check.
    pub(super) above: &'a [PlannedLayer],
}

/// The state of a target under construction, passed to each layer.
pub(super) struct LayerSite<'a> {
    pub(super) builder: &'a mut Builder,
    pub(super) undo_log: &'a mut UndoLog,
    pub(super) target: &'a TargetSpec,
    /// The layers below the one to build.
    pub(super) below: &'a [PlannedLayer],
    /// The layers above the one to build.
    pub(super) above: &'a [PlannedLayer],
    /// The logical volume that is created for the target, to take snapshots of; `None` without snapshots.
    pub(super) origin: &'a mut Option<Origin>,
    /// Warnings about settings that did not take effect.
    pub(super) warnings: &'a mut Vec<Warning>,
    /// The image that daemons export; `None` until a layer exports one.
    pub(super) exported: &'a mut Option<Box<ExportedImage>>,
    /// The daemons that export a directory.
    pub(super) servers: &'a mut Vec<StorageDaemon>,
    /// The volatile directory; `None` until a layer mounts one.
    pub(super) volatile: &'a mut Option<Box<Volatile>>,
    /// The counters of the layers that keep some, from the bottom up.
    pub(super) counters: &'a mut Vec<Arc<dyn Counters>>,
    /// The I/O limit on the processes that generate the target's load; `None` until a layer sets one.
    pub(super) limit: &'a mut Option<IoLimit>,
}

impl LayerSite<'_> {
    /// Returns the length in bytes that this layer must have for the layers above it.
    pub(super) fn size(&self) -> Bytes {
        size_on(self.above, self.builder.space)
    }

    /// Rejects a block device that is smaller than the layers on it need. Accepts any length of a user's device if no LVM, file or guest
    /// filesystem is on it.
    pub(super) fn check_holds(&self, ground: &Ground) -> Result<(), Refusal> {
        let Ground::Block(BlockGround { area, .. }) = ground else { return Ok(()) };
        let target = self.target;
        let is_sized = target.device().is_none()
            || target.stack.has::<LvmSpec>()
            || target.file().is_some()
            || target.filesystem_in_guest().is_some();
        if !is_sized || area.size >= self.size() {
            return Ok(());
        }
        Err(Refusal::environment(format!(
            "{}: it holds {}, and {} are needed on it; use another --size",
            area.path.display(),
            human::bytes(area.size.0),
            human::bytes(self.size().0)
        )))
    }

    /// Returns the directory for this layer's files: the run's own directory in the one that the plan names or, if it names none, the
    /// directory that the layer below provides.
    pub(super) fn directory(&mut self, named: Option<&Path>, below: Ground) -> Result<PathBuf, BuildError> {
        match named {
            Some(dir) => self.builder.folder(dir, self.undo_log),
            None => below.directory(),
        }
    }

    /// Creates a layer's device-mapper device with dmsetup(8). `target` is the word for the device-mapper target in the device's UUID.
    /// Returns the device's name, and the storage that it provides.
    pub(super) fn map<L: LayerSpec>(
        &mut self,
        layer: &L,
        target: &str,
        table: &str,
    ) -> Result<(String, Ground), BuildError> {
        let name = format!("iotax-{}-{}-{}", self.builder.tag, self.name::<L>(), layer.key());
        let mapping = Mapping::of_target(target, name);
        self.undo_log.record(Effect::Mapping(mapping.clone()))?;
        let Mapping { name, uuid } = &mapping;
        self.undo_log.run(DMSETUP, ["create", VERIFY_UDEV, name, "--uuid", uuid, "--table", table])?;
        let ground = Ground::made(mapping.node())?;
        self.check_holds(&ground)?;
        Ok((mapping.name, ground))
    }

    /// Returns the path for the socket of this layer's export. The socket is next to the image, or in the directory of the server below. If
    /// the image is a device, belongs to the user or is in a volatile directory, or if the server is not iotax's, the socket is in iotax's
    /// directory for temporary files.
    pub(super) fn socket<L: LayerSpec>(
        &mut self,
        node: &BlockNode,
        extension: &str,
    ) -> Result<PathBuf, BuildError> {
        let name = format!("{}.{extension}", self.name::<L>());
        let beside = match &node.base {
            NodeBase::Image { path, part: None, read_only: false, .. } => path.parent(),
            NodeBase::Client(client) => client.directory.as_deref(),
            NodeBase::Image { .. } => None,
        };
        // A volatile directory holds data that survives a power cut, so a socket does not belong there.
        if let Some(directory) = beside.filter(|_| self.volatile.is_none()) {
            return Ok(directory.join(name));
        }
        let folder = self.builder.folder(&std::env::temp_dir(), self.undo_log)?;
        Ok(folder.join(name))
    }

    /// Returns the name for the files and devices of this layer: the target's name, with a number if the target has another layer of this
    /// kind below.
    pub(super) fn name<L: LayerSpec>(&self) -> String {
        match self.below.iter().filter_map(L::of).count() {
            0 => self.target.name.clone(),
            more => format!("{}-{}", self.target.name, more + 1),
        }
    }
}
