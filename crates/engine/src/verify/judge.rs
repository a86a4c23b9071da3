//! Determines whether a block has the expected content, and otherwise what kind of fault it has.

use iotax_model::verify_errors::FaultKind;

use super::stamp::{self, Found, Mark, SECTOR, Stamp};

/// The content that a block should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Exactly this write, which is the block's last one.
    This(Mark),
    /// This write, or any later writes of the same measurement over it.
    Since(Mark),
    /// The fill with this mark, possibly overwritten by any later write.
    SinceFill(Mark),
    /// Any complete write: only the consistency of the block's sectors is checked.
    Anything,
}

/// Checks a block that was read from byte `offset` and has a multiple of 512 bytes. Fails with the kind of fault. A specific write
/// ([`Expected::This`], [`Expected::Since`]) may only be expected if every write covers the block entirely or not at all.
pub(crate) fn judge(block: &[u8], offset: u64, expected: Expected) -> Result<(), FaultKind> {
    let (sectors, _) = block.as_chunks::<SECTOR>();
    let mut sums = Sums::default();
    for (sector_offset, sector) in (offset..).step_by(SECTOR).zip(sectors) {
        sums.add(sector_offset, stamp::read(sector, sector_offset), expected);
    }
    sums.verdict(sectors.len(), expected)
}

/// Returns the generation of the oldest write of measurement `run` that a sector of the block holds; 0 if any sector holds no write of that
/// measurement to its place.
pub(crate) fn oldest_generation(block: &[u8], offset: u64, run: u64) -> u64 {
    let (sectors, _) = block.as_chunks::<SECTOR>();
    let generation = |(sector_offset, sector)| match stamp::read(sector, sector_offset) {
        Found::Whole(stamp) if stamp.offset == sector_offset && stamp.mark.run == run => {
            stamp.mark.generation
        }
        _ => 0,
    };
    (offset..).step_by(SECTOR).zip(sectors).map(generation).min().unwrap_or(0)
}

/// Number of a block's sectors in each state.
#[derive(Debug, Default)]
struct Sums {
    /// Number of sectors with a valid stamp of an expected write.
    good: usize,
    /// Number of sectors with a valid stamp of an unexpected write, such as an older one.
    old: usize,
    damaged: usize,
    astray: usize,
    zeros: usize,
    foreign: usize,
    /// True if two sectors cannot both be right, such as sectors of two writes that each cover the whole block.
    torn: bool,
    /// True if a sector without a stamp lies between the bounds of a write that other sectors belong to.
    gap: bool,
    last_stamp: Option<Stamp>,
    last_bare: Option<u64>,
    covered_to: u64,
}

impl Sums {
    fn add(&mut self, sector_offset: u64, found: Found, expected: Expected) {
        match found {
            Found::Damaged => self.damaged += 1,
            Found::Whole(stamp) if stamp.offset != sector_offset => self.astray += 1,
            Found::Whole(stamp) => self.add_whole(stamp, expected),
            Found::Zeros | Found::Foreign => {
                *(if found == Found::Zeros { &mut self.zeros } else { &mut self.foreign }) += 1;
                self.gap |= sector_offset < self.covered_to;
                self.last_bare = Some(sector_offset);
            }
        }
    }

    fn add_whole(&mut self, stamp: Stamp, expected: Expected) {
        let met = match expected {
            Expected::This(mark) => stamp.mark == mark,
            Expected::Since(mark) => stamp.mark.run == mark.run && stamp.mark.generation >= mark.generation,
            Expected::SinceFill(mark) => stamp.mark.generation > mark.generation || stamp.mark == mark,
            Expected::Anything => true,
        };
        *(if met { &mut self.good } else { &mut self.old }) += 1;
        if let Some(last) = self.last_stamp {
            // The later of two writes of the same extent covers the earlier one wholly. Writes of different extents prove
            // nothing, unless every write covers the block.
            let same_extent = (last.start, last.length) == (stamp.start, stamp.length);
            let each_covers = matches!(expected, Expected::This(_) | Expected::Since(_));
            self.torn |= last.mark != stamp.mark && (same_extent || each_covers);
        }
        self.gap |= self.last_bare.is_some_and(|bare| bare >= stamp.start);
        self.covered_to = self.covered_to.max(stamp.start.saturating_add(stamp.length.into()));
        self.last_stamp = Some(stamp);
    }

    fn verdict(&self, sectors: usize, expected: Expected) -> Result<(), FaultKind> {
        let torn = self.torn && !matches!(expected, Expected::Since(_) if self.old == 0);
        if self.damaged > 0 {
            return Err(FaultKind::Corrupt);
        }
        if self.astray > 0 {
            return Err(FaultKind::Misdirected);
        }
        if self.good == sectors && !torn {
            return Ok(());
        }
        let bare = self.zeros + self.foreign;
        if expected == Expected::Anything {
            return Err(match () {
                () if torn => FaultKind::Torn,
                () if !self.gap => FaultKind::Foreign,
                () if self.foreign > 0 => FaultKind::Corrupt,
                () => FaultKind::Torn,
            });
        }
        Err(match () {
            () if self.foreign > 0 && bare == sectors => FaultKind::Foreign,
            // A whole sector that belongs to no write.
            () if self.foreign > 0 => FaultKind::Corrupt,
            () if torn || (self.zeros > 0 && self.zeros < sectors) => FaultKind::Torn,
            () => FaultKind::LostWrite,
        })
    }
}

#[cfg(test)]
mod tests;
