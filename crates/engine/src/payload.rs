//! What is written: data that no layer can compress or recognize.

use crate::random::SplitMix64;

/// Makes the content of writes.
///
/// A random block is made once; every write gets it exclusive-ored with a 64-bit key of its own. That costs little more
/// than copying, and no byte string recurs within a block or between two: neither compression nor deduplication finds
/// anything.
#[derive(Debug)]
pub(crate) struct Payload {
    base: Vec<u64>,
    keys: SplitMix64,
}

impl Payload {
    /// For writes of up to `bytes`. All lengths are multiples of 8.
    pub(crate) fn new(bytes: usize, mut random: SplitMix64) -> Self {
        let base = (0..bytes / 8).map(|_| random.next()).collect();
        Self { base, keys: random }
    }

    /// Fills `buffer` with content that was not there before.
    #[inline]
    pub(crate) fn refresh(&mut self, buffer: &mut [u8]) {
        let key = self.keys.next();
        self.keyed(key, buffer);
    }

    /// Fills `buffer` with the content of that key, from 64 random bits.
    #[inline]
    pub(crate) fn keyed(&self, key: u64, buffer: &mut [u8]) {
        let (words, _) = buffer.as_chunks_mut::<8>();
        for (word, base) in words.iter_mut().zip(&self.base) {
            *word = (base ^ key).to_ne_bytes();
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
        let mut payload = Payload::new(4096, SplitMix64::new(7, Purpose::Payload, 0));
        let mut written = vec![0; 4096 * 512];
        written.chunks_mut(4096).for_each(|block| payload.refresh(block));
        let compressed = zstd::bulk::compress(&written, 19).expect("compresses").len();
        assert!(compressed >= written.len(), "{compressed} of {}", written.len());
        // Not even at the granularity of 32 bytes does anything recur.
        let distinct: HashSet<&[u8]> = written.chunks(32).collect();
        assert_eq!(distinct.len(), written.len() / 32);
    }

    #[test]
    fn generator_and_key_decide() {
        let content = |worker, key| {
            let mut block = [0; 512];
            Payload::new(512, SplitMix64::new(1, Purpose::Payload, worker)).keyed(key, &mut block);
            block
        };
        assert_eq!(content(0, 5), content(0, 5));
        assert_ne!(content(0, 5), content(1, 5));
        assert_ne!(content(0, 5), content(0, 6));
    }
}
