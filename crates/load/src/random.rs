//! A small seeded random number generator for offsets, choices and content. Not cryptographically secure.

use std::convert::Infallible;

use rand::TryRng;

/// The SplitMix64 generator (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

/// The use that random numbers are drawn for. Each purpose has separate streams, so that two uses never share a sequence.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    /// The order in which a worker accesses its blocks.
    Offsets,
    /// The choice of each I/O's direction: read, write or trim.
    Mix,
    /// The content of a worker's writes.
    Payload,
    /// The initial content of an area.
    Fill,
    /// The unique number of a measurement.
    Run,
    /// The due times of a worker's I/Os.
    Arrivals,
    /// The lengths of a worker's I/Os, if they vary.
    Sizes,
    /// The decision for each I/O between a random and a sequential offset.
    Coin,
    /// The positions of the frequently accessed blocks in the area.
    Permutation,
    /// The names and sizes of a worker's files, and their order.
    Files,
    /// The files and directories of a generated tree.
    Tree,
    /// The choice of the I/Os whose priority differs from their thread's (`cmdprio`).
    Priorities,
}

impl SplitMix64 {
    /// Creates the generator for stream `number` of a purpose; streams of one seed are unrelated.
    pub const fn new(seed: u64, purpose: Purpose, number: u64) -> Self {
        Self(scramble(seed ^ scramble(number << 8 | purpose as u64)))
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        scramble(self.0)
    }

    /// Returns a random number below `end`; some numbers are more likely than others by at most `end` / 2^64.
    #[inline]
    pub const fn below(&mut self, end: u64) -> u64 {
        ((self.next() as u128 * end as u128) >> 64) as u64
    }

    /// Returns a uniform random number of at least 0 and less than 1.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Lets the distributions of other crates draw from this generator.
impl TryRng for SplitMix64 {
    type Error = Infallible;

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "half of the bits are asked for")]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.next() as u32)
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes
            .chunks_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&self.next().to_ne_bytes()[..chunk.len()]));
        Ok(())
    }
}

/// Increment of the generator's state per step.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns number `number` of the sequence for this seed without computing those before it.
#[inline]
pub const fn nth(seed: u64, number: u64) -> u64 {
    scramble(seed.wrapping_add(number.wrapping_mul(STEP)))
}

/// Applies SplitMix64's finalizer: a bijection of 64 bits in which every input bit changes about half of the output bits.
#[inline]
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
        let first = |seed, purpose, number| SplitMix64::new(seed, purpose, number).next();
        assert_eq!(first(1, Purpose::Mix, 2), first(1, Purpose::Mix, 2));
        for other in [first(2, Purpose::Mix, 2), first(1, Purpose::Fill, 2), first(1, Purpose::Mix, 3)] {
            assert_ne!(first(1, Purpose::Mix, 2), other);
        }
        // Swapping seed and number must not meet the same sequence.
        assert_ne!(first(1, Purpose::Mix, 2), first(2, Purpose::Mix, 1));
    }
}
