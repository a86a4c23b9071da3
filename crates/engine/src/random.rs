//! A small seeded generator for offsets, choices and payload. Not for secrets.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator of one seed and one purpose: streams of one seed are independent of each other.
    pub(crate) const fn new(seed: u64, stream: u64) -> Self {
        Self(scramble(seed ^ scramble(stream)))
    }

    /// The next 64 bits.
    #[inline]
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        scramble(self.0)
    }
}

/// SplitMix64's finalizer: a bijection of 64 bits in which every input bit moves about half of the output.
const fn scramble(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_and_its_streams_differ() {
        let first = |seed, stream| SplitMix64::new(seed, stream).next();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(1, 2), first(2, 2));
        // Swapping seed and stream must not meet the same sequence.
        assert_ne!(first(1, 2), first(2, 1));
    }
}
