//! Writes that were acknowledged and not flushed yet.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};

/// Bytes that a disk writes atomically: the sector size.
const SECTOR: u64 = 512;

/// The unflushed writes of a file. Where writes overlap, only the newest data is kept, as in a disk's cache.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Unflushed writes by offset, without overlaps.
    writes: BTreeMap<u64, Write>,
    /// Age and offset of each unflushed write, oldest first.
    ages: BTreeSet<(u64, u64)>,
    bytes: u64,
}

#[derive(Debug)]
struct Write {
    /// Sequence number of the write; lower numbers are older.
    age: u64,
    data: Vec<u8>,
}

/// Options of the random choice of writes that survive a power cut; see [`super::Faults`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Draw {
    pub(super) reorder: bool,
    pub(super) tear: bool,
}

/// Numbers of writes that a power cut kept, tore and lost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fates {
    pub(super) kept: u64,
    pub(super) torn: u64,
    pub(super) lost: u64,
}

/// Callback that writes bytes at an offset of the file on disk.
pub(super) type Down<'a> = &'a mut dyn FnMut(u64, &[u8]) -> io::Result<()>;

impl Pending {
    /// Returns the total bytes of all unflushed writes.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the end offset in bytes of the last unflushed write; 0 if there is none.
    pub(super) fn end(&self) -> u64 {
        self.writes.last_key_value().map_or(0, |(start, write)| start + write.data.len() as u64)
    }

    /// Returns whether an unflushed write overlaps the bytes from `start` to `end`.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        let last = self.writes.range(..end).next_back();
        last.is_some_and(|(offset, write)| offset + write.data.len() as u64 > start)
    }

    /// Adds a write, which replaces older unflushed data at the same offsets.
    pub(super) fn put(&mut self, offset: u64, data: Vec<u8>, age: u64) {
        if data.is_empty() {
            return;
        }
        self.forget(offset, offset + data.len() as u64);
        self.add(offset, Write { age, data });
    }

    /// Discards unflushed data from `start` to `end`; writes that extend beyond are truncated.
    pub(super) fn forget(&mut self, start: u64, end: u64) {
        let before = self.writes.range(..start).next_back().map(|(offset, _)| *offset);
        let within = self.writes.range(start..end.max(start)).map(|(offset, _)| *offset);
        let touched: Vec<u64> = before.into_iter().chain(within).collect();
        for offset in touched {
            let ends = offset + self.writes.get(&offset).map_or(0, |write| write.data.len() as u64);
            if ends <= start {
                continue;
            }
            let Some(Write { age, mut data }) = self.take(offset) else { continue };
            if ends > end {
                self.add(end, Write { age, data: data.split_off(at(end - offset)) });
            }
            if offset < start {
                data.truncate(at(start - offset));
                self.add(offset, Write { age, data });
            }
        }
    }

    /// Overlays unflushed data on the bytes `read`, which were read at `offset` from the file on disk.
    pub(super) fn lay_over(&self, offset: u64, read: &mut [u8]) {
        let end = offset + read.len() as u64;
        let before = self.writes.range(..offset).next_back();
        for (start, Write { data, .. }) in before.into_iter().chain(self.writes.range(offset..end)) {
            let (from, to) = (offset.max(*start), end.min(start + data.len() as u64));
            if from < to {
                read[at(from - offset)..at(to - offset)]
                    .copy_from_slice(&data[at(from - start)..at(to - start)]);
            }
        }
    }

    /// Writes all unflushed data to disk, and keeps it as unflushed until [`Self::clear`].
    pub(super) fn write_down(&self, down: Down<'_>) -> io::Result<()> {
        self.writes.iter().try_for_each(|(offset, write)| down(*offset, &write.data))
    }

    /// Discards all unflushed writes.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes the oldest unflushed write to disk. Returns its length in bytes; 0 if there is none.
    pub(super) fn evict(&mut self, down: Down<'_>) -> io::Result<u64> {
        let Some((_, offset)) = self.ages.first().copied() else { return Ok(0) };
        let Some(write) = self.take(offset) else { return Ok(0) };
        down(offset, &write.data)?;
        Ok(write.data.len() as u64)
    }

    /// Chooses at random which unflushed writes survive a power cut, writes those to disk, and discards the others.
    pub(super) fn cut(&mut self, draw: Draw, random: &mut impl Rng, down: Down<'_>) -> io::Result<Fates> {
        let mut fates = Fates::default();
        let oldest: Vec<u64> = std::mem::take(&mut self.ages).into_iter().map(|(_, offset)| offset).collect();
        let writes = std::mem::take(&mut self.writes);
        self.bytes = 0;
        // Without reordering a number of the oldest are kept, and the next one may be torn.
        let keeps = random.random_range(0..=oldest.len());
        for (number, offset) in oldest.into_iter().enumerate() {
            let Some(Write { data, .. }) = writes.get(&offset) else { continue };
            let tear = draw.tear.then(|| torn(offset, data.len() as u64, random)).flatten();
            let is_kept = if draw.reorder { random.random() } else { number < keeps };
            let may_tear = if draw.reorder { random.random_range(0..4) == 0 } else { number == keeps };
            match tear.filter(|_| may_tear) {
                Some((from, to)) => {
                    fates.torn += 1;
                    down(from, &data[at(from - offset)..at(to - offset)])?;
                }
                None if is_kept => {
                    fates.kept += 1;
                    down(offset, data)?;
                }
                None => fates.lost += 1,
            }
        }
        Ok(fates)
    }

    fn add(&mut self, offset: u64, write: Write) {
        self.bytes += write.data.len() as u64;
        self.ages.insert((write.age, offset));
        self.writes.insert(offset, write);
    }

    fn take(&mut self, offset: u64) -> Option<Write> {
        let write = self.writes.remove(&offset)?;
        self.bytes -= write.data.len() as u64;
        self.ages.remove(&(write.age, offset));
        Some(write)
    }
}

/// Returns the start and end of the part of a torn write that survives: its first or its last sectors. `None` if the write is within a
/// single sector.
fn torn(offset: u64, length: u64, random: &mut impl Rng) -> Option<(u64, u64)> {
    let end = offset + length;
    let first = offset / SECTOR + 1;
    let borders: Vec<u64> = (first..end.div_ceil(SECTOR)).map(|sector| sector * SECTOR).collect();
    let border = *borders.choose(random)?;
    Some(if random.random() { (offset, border) } else { (border, end) })
}

#[expect(clippy::cast_possible_truncation, reason = "a place within a write, which is in memory")]
const fn at(bytes: u64) -> usize {
    bytes as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Returns a file in memory, and the function that writes to it.
    fn down(file: &mut Vec<u8>) -> impl FnMut(u64, &[u8]) -> io::Result<()> {
        |offset, data| {
            let end = at(offset) + data.len();
            file.resize(file.len().max(end), 0);
            file[at(offset)..end].copy_from_slice(data);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn reads_and_flushes_give_the_newest_bytes(
            steps in prop::collection::vec((0_u64..300, 0_usize..80, 0..4), 1..40),
        ) {
            let (mut pending, mut below, mut expected) = (Pending::default(), vec![0; 400], vec![0; 400]);
            for (age, (offset, length, kind)) in (1_u8..).zip(steps) {
                match kind {
                    0 => { pending.evict(&mut down(&mut below)).expect("written"); }
                    1 => {
                        // Punching a hole takes effect on disk immediately.
                        pending.forget(offset, offset + length as u64);
                        for file in [&mut below, &mut expected] { file[at(offset)..][..length].fill(0); }
                    }
                    _ => {
                        let end = offset + length as u64;
                        let within = |start: u64, write: &Write| start < end && start + write.data.len() as u64 > offset;
                        let overlaps = pending.writes.iter().any(|(start, write)| within(*start, write));
                        prop_assert_eq!(pending.overlaps(offset, end), overlaps);
                        pending.put(offset, vec![age; length], age.into());
                        expected[at(offset)..][..length].fill(age);
                    }
                }
                let mut read = below.clone();
                pending.lay_over(0, &mut read);
                prop_assert_eq!(&read, &expected);
                prop_assert_eq!(pending.bytes(), pending.writes.values().map(|one| one.data.len() as u64).sum::<u64>());
            }
            pending.write_down(&mut down(&mut below)).expect("written");
            pending.clear();
            prop_assert_eq!((below, pending.bytes(), pending.end()), (expected, 0, 0));
        }
    }

    /// Returns a file of 100 blocks of 4096 bytes after a cut of 100 writes, and the fates of the writes.
    fn cut(draw: Draw, seed: u64) -> (Vec<u8>, Fates) {
        let (mut pending, mut file) = (Pending::default(), vec![0; 100 * 4096]);
        for block in 0..100 {
            pending.put(block * 4096, vec![1; 4096], block);
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let fates = pending.cut(draw, &mut random, &mut down(&mut file)).expect("written");
        assert_eq!((pending.bytes(), pending.end()), (0, 0));
        (file, fates)
    }

    #[test]
    fn a_cut_keeps_drops_and_tears_between_sectors_and_repeats_itself() {
        let all = Draw { reorder: true, tear: true };
        let (file, fates) = cut(all, 7);
        assert_eq!((file.clone(), fates), cut(all, 7));
        assert_ne!(file, cut(all, 8).0);
        assert!(fates.kept > 10 && fates.torn > 10 && fates.lost > 10, "{fates:?}");
        let (blocks, _) = file.as_chunks::<4096>();
        let sums: Vec<usize> =
            blocks.iter().map(|block| block.iter().map(|byte| usize::from(*byte)).sum()).collect();
        assert_eq!(sums.iter().filter(|sum| **sum == 4096).count() as u64, fates.kept);
        assert_eq!(sums.iter().filter(|sum| **sum == 0).count() as u64, fates.lost);
        assert!(sums.iter().all(|sum| sum % 512 == 0), "{sums:?}");
    }

    #[test]
    fn without_reordering_the_oldest_survive() {
        let (file, fates) = cut(Draw { reorder: false, tear: false }, 3);
        assert_eq!((fates.torn, fates.kept + fates.lost), (0, 100));
        let kept = at(fates.kept) * 4096;
        assert!(file[..kept].iter().all(|byte| *byte == 1) && file[kept..].iter().all(|byte| *byte == 0));
        let torn = (0..20).map(|seed| cut(Draw { reorder: false, tear: true }, seed).1.torn);
        assert!(torn.clone().all(|torn| torn <= 1) && torn.sum::<u64>() > 10);
    }

    #[test]
    fn what_lies_within_a_sector_is_not_torn() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        assert_eq!(torn(512, 512, &mut random), None);
        assert_eq!(torn(100, 300, &mut random), None);
        assert!([Some((500, 512)), Some((512, 520))].contains(&torn(500, 20, &mut random)));
    }
}
