//! The offset of each next I/O.

use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use super::distribution::Draw;
use super::sizes::Size;
use super::zones::Zones;
use crate::random::{Purpose, SplitMix64};

/// The order of a pattern's offsets, all in bytes from the target's start.
#[derive(Debug, Clone)]
pub(super) enum Order {
    Sequential(Walk),
    Random(Blocks),
    /// `percent` of the I/Os are random, and the others follow their predecessor.
    Partly(Box<Partly>),
    /// In one zone after the other.
    Zones(Box<Zones>),
}

/// See [`Order::Partly`].
#[derive(Debug, Clone)]
pub(super) struct Partly {
    percent: u64,
    coin: SplitMix64,
    blocks: Blocks,
    walk: Walk,
}

impl Order {
    /// The order of worker number `job`. Sequential workers divide the area among them, unless `offset_increment` gives each its
    /// own; random workers roam over all of it, each in a different order.
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

    /// Bytes of the area that one pass goes through.
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

/// One I/O after the other from `first` to `end`, and over again. Where an I/O would leave the area, it starts over.
#[derive(Debug, Clone)]
pub(super) struct Walk {
    first: u64,
    end: u64,
    next: u64,
    /// From the start of one I/O to the start of the next; `None`: each begins where the last one ended.
    stride: Option<i64>,
}

impl Walk {
    /// The area must hold the longest I/O.
    pub(super) fn new(first: u64, end: u64, stride: Option<i64>) -> Self {
        // Backwards it starts over at once, which is at the end.
        let next = if stride.is_some_and(i64::is_negative) { end } else { first };
        Self { first, end, next, stride }
    }

    #[inline]
    pub(super) fn next(&mut self, length: u32) -> u64 {
        let length = u64::from(length);
        match self.stride {
            None => {
                let offset = if self.next + length > self.end { self.first } else { self.next };
                self.next = offset + length;
                offset
            }
            Some(stride) => self.stride(length, stride),
        }
    }

    #[inline(never)]
    fn stride(&mut self, length: u64, stride: i64) -> u64 {
        let is_inside = self.next >= self.first && self.next.saturating_add(length) <= self.end;
        let offset = match is_inside {
            true => self.next,
            false if stride < 0 => self.end - length,
            false => self.first,
        };
        // Below 0 it becomes a number beyond any end.
        self.next = offset.wrapping_add_signed(stride);
        offset
    }
}

/// Random places.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    draw: Draw,
    /// Bytes from one place to the next: the shortest I/O, unless offsets are aligned otherwise.
    unit: u64,
    /// The area's first byte.
    start: u64,
    /// Bytes of the area, whole units. The longest I/O may be longer.
    bytes: u64,
    /// Bytes of the whole area, which holds the longest I/O.
    size: u64,
    /// True if all I/Os are as long as a unit.
    is_uniform: bool,
    /// The alignment of all offsets, if it is not that of the lengths.
    align: Option<u64>,
}

impl Blocks {
    pub(super) fn new(workload: &Workload, start: u64, size: Bytes, job: u32, seed: u64) -> Self {
        let unit = workload.blockalign.unwrap_or(workload.min_bs()).0;
        let count = size.0 / unit;
        Self {
            draw: Draw::new(workload, count, job, seed),
            unit,
            start,
            bytes: count * unit,
            size: size.0,
            is_uniform: workload.max_bs().0 == unit,
            align: workload.blockalign.map(|align| align.0),
        }
    }

    #[inline]
    pub(super) fn next(&mut self, size: Size) -> u64 {
        let place = self.draw.next() * self.unit;
        self.start + if self.is_uniform { place } else { self.fit(place, size) }
    }

    /// The place for an I/O of that size which contains the one that was drawn.
    #[inline(never)]
    fn fit(&self, place: u64, size: Size) -> u64 {
        let (length, align) = (u64::from(size.length), self.align.unwrap_or(u64::from(size.align)));
        let place = place - place % align;
        // One that would leave the area keeps its length and moves back as far as necessary.
        place - (place + length).saturating_sub(self.size).next_multiple_of(align)
    }
}

/// First and end block of one worker's slice. Slices tile the area and differ in length by at most one block.
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
