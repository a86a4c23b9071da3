//! Random orders in which every number occurs once, without a record of the numbers already used.

use iotax_load::random::SplitMix64;

/// Rounds of the mixing function: with three, the results of neighbouring counters are unrelated.
const ROUNDS: usize = 3;

/// A keyed bijection of the numbers below a power of two. Each round multiplies by an odd number, adds a number, and XORs the result with
/// its upper bits shifted down; all of these are reversible (as in xorshift-multiply finalizers).
#[derive(Debug, Clone)]
pub(super) struct Bijection {
    mask: u64,
    shift: u32,
    keys: [(u64, u64); ROUNDS],
}

impl Bijection {
    /// Creates a random bijection of the numbers below `count` rounded up to a power of two. `count` is 1 to 2^63.
    pub(super) fn new(count: u64, random: &mut SplitMix64) -> Self {
        let mask = count.next_power_of_two() - 1;
        let mut bijection = Self { mask, shift: (mask.count_ones() / 2).max(1), keys: [(1, 0); ROUNDS] };
        bijection.draw_keys(random);
        bijection
    }

    #[cold]
    fn draw_keys(&mut self, random: &mut SplitMix64) {
        for (factor, summand) in &mut self.keys {
            *factor = random.next() | 1;
            *summand = random.next();
        }
    }

    #[inline]
    fn apply(&self, mut value: u64) -> u64 {
        for (factor, summand) in self.keys {
            value = value.wrapping_mul(factor).wrapping_add(summand) & self.mask;
            value ^= value >> self.shift;
        }
        value
    }

    /// Maps a number below `count` to a number below `count`; different numbers have different results. Pass the same `count` as to
    /// [`Self::new`]. A result of `count` or more is mapped again until it is below ("cycle walking"; Black and Rogaway, "Ciphers with
    /// arbitrary finite domains", CT-RSA 2002).
    #[inline]
    pub(super) fn scatter(&self, mut value: u64, count: u64) -> u64 {
        loop {
            value = self.apply(value);
            if value < count {
                return value;
            }
        }
    }
}

/// The numbers 0 to `count - 1` in random order, each exactly once per pass, and in a different order in each pass. Needs no record of the
/// numbers already used.
///
/// A counter runs over the next power of two and is mapped by a bijection of that many bits. Results that are not below `count` are skipped,
/// which costs less than one further step on average.
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    count: u64,
    counter: u64,
    bijection: Bijection,
    random: SplitMix64,
}

impl Permutation {
    /// Creates a random permutation of `count` numbers; `count` is 1 to 2^63.
    pub(crate) fn new(count: u64, mut random: SplitMix64) -> Self {
        let bijection = Bijection::new(count, &mut random);
        Self { count, counter: 0, bijection, random }
    }

    /// Returns the next number.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "left to itself the compiler calls it, for 2 ns more per I/O")]
    pub(crate) fn next(&mut self) -> u64 {
        loop {
            if self.counter > self.bijection.mask {
                self.counter = 0;
                self.bijection.draw_keys(&mut self.random);
            }
            let value = self.bijection.apply(self.counter);
            self.counter += 1;
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_load::random::Purpose;
    use proptest::prelude::*;

    fn pass(permutation: &mut Permutation, count: u64) -> Vec<u64> {
        (0..count).map(|_| permutation.next()).collect()
    }

    fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
        numbers.sort_unstable();
        numbers
    }

    proptest! {
        #[test]
        fn every_pass_visits_every_number_once(count in 1_u64..5000, seed: u64) {
            let mut permutation = Permutation::new(count, SplitMix64::new(seed, Purpose::Offsets, 0));
            for _ in 0..3 {
                prop_assert_eq!(sorted(pass(&mut permutation, count)), (0..count).collect::<Vec<_>>());
            }
        }

        #[test]
        fn scattering_gives_every_number_once(count in 1_u64..5000, seed: u64) {
            let bijection = Bijection::new(count, &mut SplitMix64::new(seed, Purpose::Offsets, 0));
            let scattered = (0..count).map(|number| bijection.scatter(number, count)).collect();
            prop_assert_eq!(sorted(scattered), (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn passes_and_seeds_differ_and_order_has_no_grain() {
        let count = 1 << 16;
        let mut permutation = Permutation::new(count, SplitMix64::new(1, Purpose::Offsets, 0));
        let (first, second) = (pass(&mut permutation, count), pass(&mut permutation, count));
        assert_ne!(first, second);
        assert_ne!(first, pass(&mut Permutation::new(count, SplitMix64::new(2, Purpose::Offsets, 0)), count));
        // In a random order a block follows its neighbour about once in a pass, and the mean distance of successive
        // blocks is a third of the range.
        let steps: Vec<u64> = first.windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
        assert!(steps.iter().filter(|step| **step == 1).count() < 20);
        let mean = steps.iter().sum::<u64>() as f64 / steps.len() as f64;
        assert!((mean / count as f64 - 1.0 / 3.0).abs() < 0.02, "{mean}");
    }
}
