//! Decides which writes get new content and which repeat an earlier content (`dedupe_percentage`).

use iotax_load::random::nth;
use iotax_model::workload::WorkingSet;

/// Assignment of a key to each write by the write's number; equal keys produce equal contents.
///
/// A write's number alone determines which earlier write it repeats, if any. So no record of written contents is needed, and duplicates can lie any
/// distance apart.
#[derive(Debug)]
pub(super) struct Keys {
    seed: u64,
    /// Percentage of the writes that repeat an earlier content.
    dedupe_percentage: u64,
    /// Seed and size, in contents, of the working set that duplicates are taken from; `None` to repeat any earlier write.
    working_set: Option<(u64, u64)>,
}

/// Seed of the working set if all jobs share it.
const SHARED: u64 = 0x5EED_0F5E_75EE_D0F5;

impl Keys {
    pub(super) fn new(seed: u64, dedupe_percentage: u8, working_set: Option<WorkingSet>) -> Self {
        let working_set =
            working_set.map(|set| (if set.is_shared { SHARED } else { !seed }, set.contents.max(1)));
        Self { seed, dedupe_percentage: dedupe_percentage.into(), working_set }
    }

    #[inline]
    pub(super) fn key(&self, number: u64) -> u64 {
        match self.working_set {
            _ if self.dedupe_percentage == 0 => nth(self.seed, number),
            Some((seed, contents)) if self.repeats(number) => nth(seed, nth(!self.seed, number) % contents),
            Some(_) => nth(self.seed, number),
            None => nth(self.seed, self.original(number)),
        }
    }

    /// Returns the number of the first write with the same content as write `number`; `number` itself if its content is new.
    fn original(&self, number: u64) -> u64 {
        let mut number = number;
        // The earlier one may itself be a repeat; the chain ends at 0 at the latest.
        while self.repeats(number) {
            number = nth(!self.seed, number) % number;
        }
        number
    }

    /// Returns whether this write repeats an earlier content. Repeats are evenly spaced, so that the percentage is exact even over few writes.
    const fn repeats(&self, number: u64) -> bool {
        let index = number % 100;
        number > 0 && (index + 1) * self.dedupe_percentage / 100 > index * self.dedupe_percentage / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_asked_share_repeats_an_earlier_one() {
        for percent in 0..=100 {
            let keys = Keys::new(7, percent, None);
            let distinct: HashSet<u64> = (0..1000).map(|number| keys.key(number)).collect();
            let share = 100.0 - distinct.len() as f64 / 10.0;
            // The first cannot repeat.
            assert!((share - f64::from(percent)).abs() <= 0.1, "{share} for {percent}");
        }
    }

    #[test]
    fn duplicates_of_a_fixed_set_are_no_more_than_it_has() {
        let keys = |seed, is_shared| Keys::new(seed, 50, Some(WorkingSet { contents: 20, is_shared }));
        let duplicates = |keys: &Keys| -> HashSet<u64> {
            (0..1000).filter(|number| keys.repeats(*number)).map(|number| keys.key(number)).collect()
        };
        let [one, other] = [keys(7, false), keys(8, false)].map(|keys| duplicates(&keys));
        assert_eq!((one.len(), other.len(), one.intersection(&other).count()), (20, 20, 0));
        assert_eq!(duplicates(&keys(7, true)), duplicates(&keys(8, true)));
        let all: HashSet<u64> = (0..1000).map(|number| keys(7, false).key(number)).collect();
        assert_eq!(all.len(), 500 + 20);
    }
}
