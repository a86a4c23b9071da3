//! Computes the length that each layer must have for the layers above it.

use iotax_model::target::{PlannedLayer, RequiredSpace};
use iotax_model::units::Bytes;

/// Returns the length in bytes that a layer must have so that the layers `above` it can provide `space` to the workloads.
pub(super) fn size_on(above: &[PlannedLayer], space: RequiredSpace) -> Bytes {
    let mut files = Some(space.files);
    above.iter().rev().fold(space.area, |size, layer| layer.kind().size_below(size, &mut files))
}
