//! Random offsets.

use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

use super::distribution::Draw;
use super::sizes::Size;

/// Draws random offsets within an area.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    draw: Draw,
    /// Distance in bytes between possible offsets: the shortest I/O, unless `blockalign` is set.
    unit: u64,
    /// The area's first byte.
    start: u64,
    /// Length of the area rounded down to whole units; it may be shorter than the longest I/O.
    pub(super) bytes: u64,
    /// Bytes of the whole area, which holds the longest I/O.
    size: u64,
    /// True if all I/Os are one unit long.
    is_uniform: bool,
    /// The alignment of offsets, if different from that of lengths.
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

    /// Offset for an I/O of this size that contains the drawn offset, moved back if the I/O would leave the area.
    #[inline(never)]
    fn fit(&self, place: u64, size: Size) -> u64 {
        let (length, align) = (u64::from(size.length), self.align.unwrap_or(u64::from(size.align)));
        let place = place - place % align;
        // One that would leave the area keeps its length and moves back as far as necessary.
        place - (place + length).saturating_sub(self.size).next_multiple_of(align)
    }
}
