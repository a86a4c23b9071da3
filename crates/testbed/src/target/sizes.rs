//! Computes the length that each layer must have for the layers above it.

use iotax_model::target::{PlannedLayer, RequiredSpace};
use iotax_model::units::Bytes;

/// Largest sector of a device in bytes: what ends within one is cut off by loop devices and mappings, and refused by QEMU's storage daemon.
const SECTOR: u64 = 4096;

/// Returns the length in bytes that a layer must have so that the layers `above` it can provide `space` to the workloads, rounded up to
/// whole sectors under each layer.
pub(super) fn size_on(above: &[PlannedLayer], space: RequiredSpace) -> Bytes {
    let mut files = Some(space.files);
    above.iter().rev().fold(space.area, |size, layer| {
        let size = layer.kind().size_below(size, &mut files).0;
        Bytes(size.checked_next_multiple_of(SECTOR).unwrap_or(size))
    })
}

#[cfg(test)]
mod tests {
    use iotax_model::target::Stack;

    use super::*;

    #[test]
    fn a_device_under_any_layer_holds_what_it_says_to_the_last_sector() {
        for line in [
            "/srv > raw file > loop > delay read=1ms > ext4 > raw file > loop > ext4 > raw file",
            "/srv > raw file > loop > luks > thick LVM volume > luks > xfs > qcow2 file > fuse > loop > ext4 > raw file",
            "/srv > raid5 raid_devices=3 > luks > zvol > integrity > btrfs > raw file > nvme-tcp > ext4 > raw file > virtio",
        ] {
            let stack = Stack::parse(line).expect(line);
            assert_eq!(stack.check(), Ok(()), "{line}");
            for area in [1_000_003, 8 << 20, (1 << 30) + 1] {
                let space = RequiredSpace { area: Bytes(area), files: Bytes(77) };
                let mut above = size_on(&[], space);
                for index in (1..stack.layers().len()).rev() {
                    let size = size_on(&stack.layers()[index..], space);
                    assert!(size.0.is_multiple_of(SECTOR) && size >= above, "{line}: {index}: {size}");
                    above = size;
                }
            }
        }
    }
}
