//! What is written: data that no layer can compress or recognize.

use crate::random::SplitMix64;

/// From this length on a write is longer than what any layer compresses as a unit or looks back over for repeats.
const LONG: usize = 1 << 20;
/// The smallest unit in which any layer looks for duplicates.
const SECTOR: usize = 512;

/// Makes the content of writes.
///
/// A random block is made once. A short write gets it exclusive-ored with a 64-bit key of its own: that costs little more
/// than copying, and no byte string recurs within a block or between two, so that neither compression nor deduplication
/// finds anything, however many writes they look at together. A long write gets it once for each buffer, and from then
/// on a new number in each sector: that costs next to nothing, no two sectors are alike, and what they share is too far
/// apart for compression.
#[derive(Debug)]
pub(crate) struct Payload {
    base: Vec<u64>,
    keys: SplitMix64,
    /// Which buffers hold the block already, by slot.
    prepared: Vec<bool>,
}

impl Payload {
    /// For writes of up to `bytes` from so many slots. All lengths are multiples of 512.
    pub(crate) fn new(bytes: usize, slots: usize, mut random: SplitMix64) -> Self {
        let base = (0..bytes / 8).map(|_| random.next()).collect();
        Self { base, keys: random, prepared: vec![false; slots] }
    }

    /// Fills a slot's `buffer` with content that was not there before.
    #[inline]
    pub(crate) fn refresh(&mut self, slot: usize, buffer: &mut [u8]) {
        let key = self.keys.next();
        if buffer.len() < LONG || !self.prepared[slot] {
            self.keyed(key, buffer);
            self.prepared[slot] = true;
        } else {
            self.stamp(buffer);
        }
    }

    /// Fills `buffer` with the content of that key, from 64 random bits.
    #[inline]
    pub(crate) fn keyed(&self, key: u64, buffer: &mut [u8]) {
        let (words, _) = buffer.as_chunks_mut::<8>();
        for (word, base) in words.iter_mut().zip(&self.base) {
            *word = (base ^ key).to_ne_bytes();
        }
    }

    fn stamp(&mut self, buffer: &mut [u8]) {
        let (sectors, _) = buffer.as_chunks_mut::<SECTOR>();
        for sector in sectors {
            sector[..8].copy_from_slice(&self.keys.next().to_ne_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;
    use std::collections::HashSet;

    #[test]
    fn nothing_is_left_to_compress_or_to_deduplicate() {
        let mut payload = Payload::new(4096, 1, SplitMix64::new(7, Purpose::Payload, 0));
        let mut written = vec![0; 4096 * 512];
        written.chunks_mut(4096).for_each(|block| payload.refresh(0, block));
        let compressed = zstd::bulk::compress(&written, 19).expect("compresses").len();
        assert!(compressed >= written.len(), "{compressed} of {}", written.len());
        // Not even at the granularity of 32 bytes does anything recur.
        let distinct: HashSet<&[u8]> = written.chunks(32).collect();
        assert_eq!(distinct.len(), written.len() / 32);
    }

    #[test]
    fn long_writes_share_no_sector_and_do_not_compress() {
        let mut payload = Payload::new(LONG, 1, SplitMix64::new(7, Purpose::Payload, 0));
        let mut buffer = vec![0; LONG];
        let mut sectors = HashSet::new();
        for _ in 0..4 {
            payload.refresh(0, &mut buffer);
            let compressed = zstd::bulk::compress(&buffer, 3).expect("compresses").len();
            assert!(compressed >= LONG, "{compressed}");
            sectors.extend(buffer.chunks(SECTOR).map(<[u8]>::to_vec));
        }
        assert_eq!(sectors.len(), 4 * LONG / SECTOR);
    }

    #[test]
    fn generator_and_key_decide() {
        let content = |worker, key| {
            let mut block = [0; 512];
            Payload::new(512, 1, SplitMix64::new(1, Purpose::Payload, worker)).keyed(key, &mut block);
            block
        };
        assert_eq!(content(0, 5), content(0, 5));
        assert_ne!(content(0, 5), content(1, 5));
        assert_ne!(content(0, 5), content(0, 6));
    }
}
