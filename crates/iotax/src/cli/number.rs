//! Parsers for numbers on the command line.

use std::ops::RangeInclusive;

use iotax_model::number;

/// Parses a whole number within a range: `1000`, `1k`, `1.27k`.
pub(super) fn whole<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| number::whole(text, &range)
}

/// Parses any whole number but 0.
pub(super) fn positive<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    number::whole(text, &(1..=u64::MAX))
}

/// Parses a seed: any whole number, including 0.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    number::whole(text, &(0..=u64::MAX))
}

/// Parses the number of a run.
pub(super) fn run(text: &str) -> Result<i64, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|run| *run > 0)
        .ok_or_else(|| format!("{text:?} is not the number of a run; iotax list shows them"))
}
