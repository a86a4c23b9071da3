//! Computes the length that each layer must have for the layers above it.

use iotax_model::target::{DeviceSpec, LayerSpec, LvmSpec, PlannedLayer, RequiredSpace, TargetSpec};
use iotax_model::units::Bytes;

/// Returns the layers of a target above its device and logical volume.
pub(super) fn on_block(target: &TargetSpec) -> &[PlannedLayer] {
    let layers = target.stack.layers();
    let is_block = |layer: &PlannedLayer| DeviceSpec::of(layer).is_some() || LvmSpec::of(layer).is_some();
    let below = layers.iter().take_while(|layer| is_block(layer)).count();
    &layers[below..]
}

/// Returns the length in bytes that a layer must have so that the layers `above` it can provide `space` to the workloads.
pub(super) fn size_on(above: &[PlannedLayer], space: RequiredSpace) -> Bytes {
    let mut files = Some(space.files);
    above.iter().rev().fold(space.area, |size, layer| layer.kind().size_below(size, &mut files))
}
