//! Random choice between values with given percentages.

use iotax_load::random::SplitMix64;

/// A table of 100 entries, in which each value occurs as often as its percentage.
#[derive(Debug, Clone)]
pub(super) struct Hundred<T>(Box<[T; 100]>);

impl<T: Copy> Hundred<T> {
    /// Creates the table from values with percentages, which must add up to 100.
    pub(super) fn new(shares: impl IntoIterator<Item = (T, u8)>) -> Self {
        let values: Vec<T> = shares
            .into_iter()
            .flat_map(|(value, percent)| std::iter::repeat_n(value, percent.into()))
            .collect();
        Self(values.try_into().ok().expect("shares add up to 100: their parsers see to it"))
    }

    /// Draws one of the values with the probability of its percentage.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "below 100")]
    pub(super) fn draw(&self, random: &mut SplitMix64) -> T {
        self.0[random.below(100) as usize]
    }
}
