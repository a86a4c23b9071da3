//! The content of writes: by default, data that no layer can compress or deduplicate.

mod keys;
mod shape;

use iotax_load::random::SplitMix64;
use iotax_model::workload::Content;

use self::keys::Keys;
use self::shape::Shape;

/// Sector size in bytes; contents are generated in whole sectors.
pub(crate) const SECTOR: u32 = 512;

/// Length in bytes of a write that is longer than any layer's compression unit and deduplication window.
const LONG: usize = 1 << 20;

/// An endless sequence of contents. Each is determined by its number, so that it can be generated again.
#[derive(Debug)]
pub(crate) struct Source {
    keys: Keys,
    shape: Shape,
}

impl Source {
    /// Creates a sequence of contents; `random` seeds it.
    pub(crate) fn new(content: &Content, mut random: SplitMix64) -> Self {
        Self {
            keys: Keys::new(random.next(), content.dedupe_percentage, content.working_set),
            shape: Shape::new(content, random),
        }
    }

    /// Fills `buffer`, a multiple of 512 bytes, with content number `number`.
    #[inline]
    pub(crate) fn put(&self, number: u64, buffer: &mut [u8]) {
        self.shape.put(self.keys.key(number), buffer);
    }
}

/// Generator of the content of one worker's writes.
///
/// Random content is a short random block, which stays in the CPU's cache, XORed with 64-bit keys that are never used twice. That costs
/// little more than copying. No string of bytes recurs within a write or in another write, so neither compression nor deduplication finds
/// anything. For long writes the buffer is filled only once; each later write only puts a new number into each sector. That costs almost
/// nothing, all sectors differ, and the bytes that they share are too far apart for compression.
#[derive(Debug)]
pub(crate) struct Payload {
    source: Source,
    /// Number of writes so far.
    count: u64,
    /// Length in bytes from which writes reuse the buffer's content and only get a new number in each sector.
    keep_from: usize,
    /// For each slot, the number of bytes of its buffer that hold content that can be reused.
    kept: Vec<usize>,
}

impl Payload {
    /// Creates the generator for a worker with `slots` slots. `reads` is true if the worker also reads, into the same buffers.
    pub(crate) fn new(content: &Content, slots: usize, reads: bool, random: SplitMix64) -> Self {
        let source = Source::new(content, random);
        let keep_from = match source.shape.is_constant() {
            _ if reads => usize::MAX,
            true => 0,
            // An earlier content can only be regenerated from its key.
            false if content.dedupe_percentage > 0 => usize::MAX,
            false => LONG,
        };
        Self { source, count: 0, keep_from, kept: vec![0; slots] }
    }

    /// Fills `buffer`, which is the slot's buffer cut to the I/O's length, with the content of the next write.
    pub(crate) fn refresh(&mut self, slot: usize, buffer: &mut [u8]) {
        let number = self.count;
        self.count += 1;
        if buffer.len() >= self.keep_from && self.kept[slot] >= buffer.len() {
            self.source.shape.stamp(self.source.keys.key(number), buffer);
        } else {
            self.source.put(number, buffer);
            self.kept[slot] = self.kept[slot].max(buffer.len());
        }
    }
}

#[cfg(test)]
mod tests;
