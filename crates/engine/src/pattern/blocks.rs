//! Random offsets within an area.

use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use super::distribution::Draw;
use super::sizes::Size;

/// Generator of random offsets within an area.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    draw: Draw,
    /// Distance in bytes between possible offsets: `blockalign`, or the length of the shortest I/O.
    unit: u64,
    /// Offset of the area's first byte.
    start: u64,
    /// Bytes of the area, rounded down to whole units.
    pub(super) bytes: u64,
    /// Bytes of the whole area, which no I/O may exceed.
    size: u64,
    /// True if all I/Os have the length of one unit, so that every drawn offset fits.
    is_uniform: bool,
    /// The workload's `blockalign`; `None` to align each offset to the shortest length of the I/O's direction.
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
        let offset = self.draw.next() * self.unit;
        self.start + if self.is_uniform { offset } else { self.fit(offset, size) }
    }

    /// Aligns a drawn offset for an I/O of this size; moves it back if the I/O would exceed the area.
    #[inline(never)]
    fn fit(&self, offset: u64, size: Size) -> u64 {
        let (length, align) = (u64::from(size.length), self.align.unwrap_or(u64::from(size.align)));
        let offset = offset - offset % align;
        // One that would leave the area keeps its length and moves back as far as necessary.
        offset - (offset + length).saturating_sub(self.size).next_multiple_of(align)
    }
}
