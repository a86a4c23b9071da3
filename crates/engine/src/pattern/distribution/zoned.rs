//! Blocks by zones.

use iotax_model::workload::Zone;

use crate::pattern::hundred::Hundred;
use crate::random::SplitMix64;

/// First block of a zone, and how many it has.
type Extent = (u64, u64);

/// Draws a zone by its share, and in it any block.
#[derive(Debug, Clone)]
pub(in crate::pattern) struct Zoned(Hundred<Extent>);

impl Zoned {
    /// For blocks below `count`, at least 1. A zone that is smaller than a block has one.
    pub(super) fn new(count: u64, zones: &[Zone]) -> Self {
        // No file has so many blocks that this overflows: they are 512 bytes at least.
        let block_at = |percent: u64| count * percent / 100;
        let mut percent = 0;
        Self(Hundred::new(zones.iter().map(|zone| {
            let first = block_at(percent).min(count - 1);
            percent += u64::from(zone.size);
            ((first, block_at(percent).saturating_sub(first).max(1)), zone.access)
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
