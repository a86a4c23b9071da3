//! Zones of the area with different shares of the accesses.

use iotax_load::random::SplitMix64;
use iotax_model::workload::{AbsoluteZone, Zone};

use crate::pattern::hundred::Hundred;

/// First block of a zone, and its number of blocks.
type Extent = (u64, u64);

/// Random choice of a zone by its percentage of the accesses, then of a block in the zone, uniformly.
#[derive(Debug, Clone)]
pub(in crate::pattern) struct Zoned(Hundred<Extent>);

impl Zoned {
    /// Creates the zones over `count` blocks, at least 1. Each zone gets at least one block.
    pub(super) fn new(count: u64, zones: &[Zone]) -> Self {
        // Cannot overflow: blocks have at least 512 bytes, so no file has enough of them.
        let block_at = |percent: u64| count * percent / 100;
        let mut percent = 0;
        Self(Hundred::new(zones.iter().map(|zone| {
            let first = block_at(percent).min(count - 1);
            percent += u64::from(zone.size);
            ((first, block_at(percent).saturating_sub(first).max(1)), zone.access)
        })))
    }

    /// Creates zones like [`Self::new`], from sizes in bytes; a block has `unit` bytes. A zone beyond the area consists of the area's last
    /// block.
    pub(super) fn absolute(count: u64, unit: u64, zones: &[AbsoluteZone]) -> Self {
        let mut end = 0_u64;
        Self(Hundred::new(zones.iter().map(|zone| {
            let first = (end / unit).min(count - 1);
            end = end.saturating_add(zone.size.0);
            ((first, (end / unit).min(count).saturating_sub(first).max(1)), zone.access)
        })))
    }

    #[inline]
    pub(super) fn next(&self, random: &mut SplitMix64) -> u64 {
        let (first, blocks) = self.0.draw(random);
        first + random.below(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chi_square_at_most, random};
    use super::*;
    use iotax_model::units::Bytes;
    use proptest::prelude::*;

    fn zones(zones: &[(u8, u8)]) -> Vec<Zone> {
        zones.iter().map(|&(access, size)| Zone { access, size }).collect()
    }

    #[test]
    fn every_zone_gets_its_share_and_spreads_it_evenly() {
        let zoned = Zoned::new(200, &zones(&[(50, 5), (30, 15), (0, 10), (20, 70)]));
        let weight = |block| match block {
            0..10 => 0.5 / 10.0,
            10..40 => 0.3 / 30.0,
            40..60 => 0.0,
            _ => 0.2 / 140.0,
        };
        let weights: Vec<f64> = (0..200).map(weight).collect();
        let mut random = random(8);
        chi_square_at_most(&weights, || zoned.next(&mut random));
    }

    #[test]
    fn zones_in_bytes_are_those_blocks() {
        let zone = |access, size| AbsoluteZone { access, size: Bytes(size) };
        let zoned = Zoned::absolute(200, 4096, &[zone(50, 10 * 4096), zone(50, 40 * 4096)]);
        let weight = |block| match block {
            0..10 => 0.5 / 10.0,
            10..50 => 0.5 / 40.0,
            _ => 0.0,
        };
        let weights: Vec<f64> = (0..200).map(weight).collect();
        let mut random = random(8);
        chi_square_at_most(&weights, || zoned.next(&mut random));
        let beyond = Zoned::absolute(3, 4096, &[zone(50, 1 << 40), zone(50, 1 << 40)]);
        assert!((0..100).all(|_| beyond.next(&mut random) < 3));
    }

    proptest! {
        #[test]
        fn no_zone_leaves_the_area(count in 1_u64..300, first in 1_u8..=99, seed: u64) {
            let zoned = Zoned::new(count, &zones(&[(50, first), (50, 100 - first)]));
            let mut random = random(seed);
            for _ in 0..200 {
                prop_assert!(zoned.next(&mut random) < count);
            }
        }
    }
}
