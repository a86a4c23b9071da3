//! Chooses the offset of the next I/O.

use iotax_load::random::{Purpose, SplitMix64};
use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use super::blocks::Blocks;
use super::sizes::Size;
use super::walk::Walk;
use super::zones::Zones;

/// The order of a pattern's offsets. Offsets are in bytes from the start of the target.
#[derive(Debug, Clone)]
pub(super) enum Order {
    Sequential(Walk),
    Random(Blocks),
    /// `percent` percent of the I/Os have random offsets; each of the others starts where the previous I/O ended.
    Partly(Box<Partly>),
    /// I/O in one zone of the area after another.
    Zones(Box<Zones>),
}

/// The state of [`Order::Partly`].
#[derive(Debug, Clone)]
pub(super) struct Partly {
    percent: u64,
    coin: SplitMix64,
    blocks: Blocks,
    walk: Walk,
}

impl Order {
    /// Creates the order of worker number `job`. Sequential workers divide the area, unless `offset_increment` gives each its own part;
    /// random workers cover the whole area, each in a different order. With zones, every worker goes through all zones.
    pub(super) fn new(workload: &Workload, size: Bytes, job: u32, seed: u64) -> Self {
        let (start, of) = match workload.offset_increment {
            Some(increment) => (workload.offset.0 + increment.0 * u64::from(job), None),
            None => (workload.offset.0, Some((job, workload.numjobs))),
        };
        if let Some(zones) = Zones::new(workload, start, size.0, job, seed) {
            return Self::Zones(Box::new(zones));
        }
        if !workload.rw.is_random() {
            let longest = workload.max_bs().0;
            let (number, numjobs) = of.unwrap_or((0, 1));
            let (first, end) = slice(size.0 / longest, number, numjobs);
            let stride = workload.stride.map(|stride| stride.0);
            return Self::Sequential(Walk::new(start + first * longest, start + end * longest, stride));
        }
        let blocks = Blocks::new(workload, start, size, job, seed);
        match workload.percentage_random {
            100.. => Self::Random(blocks),
            percent => Self::Partly(Box::new(Partly {
                percent: percent.into(),
                coin: SplitMix64::new(seed, Purpose::Coin, job.into()),
                walk: Walk::new(start, start + blocks.bytes, None),
                blocks,
            })),
        }
    }

    /// Returns the bytes that one pass covers.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Sequential(walk) => walk.end - walk.first,
            Self::Random(blocks) => blocks.bytes,
            Self::Partly(partly) => partly.blocks.bytes,
            Self::Zones(zones) => zones.bytes(),
        }
    }

    #[inline]
    pub(super) fn next(&mut self, size: Size) -> u64 {
        match self {
            Self::Sequential(walk) => walk.next(size.length),
            Self::Random(blocks) => blocks.next(size),
            Self::Partly(partly) => partly.next(size),
            Self::Zones(zones) => zones.next(size),
        }
    }
}

impl Partly {
    #[inline(never)]
    fn next(&mut self, size: Size) -> u64 {
        if self.coin.below(100) >= self.percent {
            return self.walk.next(size.length);
        }
        let offset = self.blocks.next(size);
        self.walk.next = offset + u64::from(size.length);
        offset
    }
}

/// Returns the first block of one worker's slice, and the end of the slice. The slices cover the area and differ in length by at most one
/// block.
fn slice(blocks: u64, job: u32, jobs: u32) -> (u64, u64) {
    let share = blocks / u64::from(jobs);
    let longer = blocks % u64::from(jobs);
    let first = |job: u64| job * share + job.min(longer);
    (first(job.into()), first(u64::from(job) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn slices_tile_the_area(jobs in 1_u32..64, extra in 0_u64..10_000) {
            let blocks = u64::from(jobs) + extra;
            let slices: Vec<_> = (0..jobs).map(|job| slice(blocks, job, jobs)).collect();
            prop_assert_eq!((slices[0].0, slices[slices.len() - 1].1), (0, blocks));
            prop_assert!(slices.windows(2).all(|pair| pair[0].1 == pair[1].0));
            let lengths: HashSet<u64> = slices.iter().map(|(first, end)| end - first).collect();
            prop_assert!(lengths.len() <= 2 && !lengths.contains(&0));
        }
    }
}
