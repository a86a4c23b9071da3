//! What is written: data that no layer can compress or recognize.

use crate::random::SplitMix64;

/// Makes the content of writes from a seed.
///
/// A random block is made once; every write gets it exclusive-ored with a fresh 64-bit key. That costs little more than
/// copying, and no byte string recurs within a block or between two: neither compression nor deduplication finds anything.
#[derive(Debug)]
pub(crate) struct Payload {
    base: Vec<u64>,
    keys: SplitMix64,
    seed: u64,
}

impl Payload {
    /// For writes of up to `bytes`, a multiple of 8. `stream` tells apart those who write with the same seed.
    pub(crate) fn new(bytes: usize, seed: u64, stream: u64) -> Self {
        let mut random = SplitMix64::new(seed, stream << 8 | 2);
        let base = (0..bytes.div_ceil(8)).map(|_| random.next()).collect();
        Self { base, keys: SplitMix64::new(seed, stream << 8 | 3), seed }
    }

    /// Fills `buffer` with content that was not there before.
    #[inline]
    pub(crate) fn refresh(&mut self, buffer: &mut [u8]) {
        let key = self.keys.next();
        self.fill(key, buffer);
    }

    /// Fills `buffer` with the content number `number`, which depends on the seed alone.
    pub(crate) fn numbered(&self, number: u64, buffer: &mut [u8]) {
        self.fill(SplitMix64::new(self.seed, number).next(), buffer);
    }

    #[inline]
    fn fill(&self, key: u64, buffer: &mut [u8]) {
        let (words, tail) = buffer.as_chunks_mut::<8>();
        for (word, base) in words.iter_mut().zip(&self.base) {
            *word = (base ^ key).to_ne_bytes();
        }
        tail.fill(0xA5);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn nothing_is_left_to_compress_or_to_deduplicate() {
        let mut payload = Payload::new(4096, 7, 0);
        let mut written = vec![0; 4096 * 512];
        written.chunks_mut(4096).for_each(|block| payload.refresh(block));
        let compressed = zstd::bulk::compress(&written, 19).expect("compresses").len();
        assert!(compressed >= written.len(), "{compressed} of {}", written.len());
        // Not even at the granularity of 32 bytes does anything recur.
        let distinct: HashSet<&[u8]> = written.chunks(32).collect();
        assert_eq!(distinct.len(), written.len() / 32);
    }

    #[test]
    fn seed_stream_and_number_decide() {
        let content = |seed, stream, number| {
            let mut block = [0; 512];
            Payload::new(512, seed, stream).numbered(number, &mut block);
            block
        };
        assert_eq!(content(1, 0, 5), content(1, 0, 5));
        for other in [content(2, 0, 5), content(1, 1, 5), content(1, 0, 6)] {
            assert_ne!(content(1, 0, 5), other);
        }
    }
}
