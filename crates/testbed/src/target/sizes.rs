//! The bytes that layers take of those below them.

use iotax_model::target::{
    DeviceSpec, FsType, GuestSpec, LayerSpec, LvmSpec, PlannedLayer, RequiredSpace, TargetSpec,
};
use iotax_model::units::Bytes;

/// The layers of a target on its device or volume.
pub(super) fn on_block(target: &TargetSpec) -> &[PlannedLayer] {
    let layers = target.stack.layers();
    let is_block = |layer: &PlannedLayer| DeviceSpec::of(layer).is_some() || LvmSpec::of(layer).is_some();
    let below = layers.iter().take_while(|layer| is_block(layer)).count();
    &layers[below..]
}

/// The bytes that a layer has to offer so that those above it offer `space` to the workloads.
pub(super) fn size_on(above: &[PlannedLayer], space: RequiredSpace) -> Bytes {
    // Files of the workloads lie beside the area, on the topmost filesystem.
    let mut files = Some(space.files.0);
    above.iter().rev().fold(space.area, |size, layer| match layer {
        PlannedLayer::Guest(guest @ GuestSpec { filesystem: Some(_), .. }) => {
            guest.disk_size(Bytes(size.0.saturating_add(files.take().unwrap_or_default())))
        }
        PlannedLayer::Guest(_) => {
            files = None;
            size
        }
        PlannedLayer::Filesystem(spec) => {
            let beside = files.take().unwrap_or_default();
            room(spec.kind, Bytes(size.0.saturating_add(beside)))
        }
        PlannedLayer::Path(_)
        | PlannedLayer::Network(_)
        | PlannedLayer::Device(_)
        | PlannedLayer::Lvm(_)
        | PlannedLayer::Overlay(_)
        | PlannedLayer::File(_)
        | PlannedLayer::Image(_)
        | PlannedLayer::NbdExport(_)
        | PlannedLayer::Filter(_)
        | PlannedLayer::Nbd(_)
        | PlannedLayer::Fuse(_)
        | PlannedLayer::Virtio(_)
        | PlannedLayer::Loop(_) => size,
    })
}

/// Device size needed for a file of this size, above the largest overhead observed in any filesystem.
pub(super) fn room(kind: FsType, file: Bytes) -> Bytes {
    const MIB: u64 = 1 << 20;
    // The fixed overhead, and the smallest size that mkfs accepts.
    let (fixed, least) = match kind {
        FsType::Ext4 => (8 * MIB, 16 * MIB),
        FsType::Xfs => (90 * MIB, 300 * MIB),
        FsType::Btrfs => (80 * MIB, 110 * MIB),
    };
    let spare = (file.0 / 7).min(2560 * MIB + file.0 / 50);
    Bytes(file.0.saturating_add(fixed + spare).max(least))
}
