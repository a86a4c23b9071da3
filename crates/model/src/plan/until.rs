//! The margin within which results count as equal, and the rule for adding rounds until comparisons are decided.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::PlanError;
use crate::units::Nanos;

/// The margin of practical equivalence: ratios from `1 / (1 + margin)` to `1 + margin` count as equal. Text form: `2%` or `0.5%`, from 0.01% to
/// 50%.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Margin {
    millionths: u32,
}

/// A text that cannot be parsed as a margin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not a margin; accepted: a percentage such as 2% or 0.5%, from 0.01% to 50%")]
pub struct MarginError {
    input: String,
}

impl Margin {
    /// Returns the margin as a fraction: 0.02 for 2%.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.millionths) / 1e6
    }
}

impl Default for Margin {
    /// Returns the default margin, 2%.
    fn default() -> Self {
        Self { millionths: 20_000 }
    }
}

impl FromStr for Margin {
    type Err = MarginError;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "range and sign are checked before the cast"
    )]
    fn from_str(text: &str) -> Result<Self, MarginError> {
        let refuse = || MarginError { input: text.to_owned() };
        let number = text.trim().strip_suffix('%').ok_or_else(refuse)?.trim_end();
        if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(refuse());
        }
        let millionths = (number.parse::<f64>().map_err(|_| refuse())? * 1e4).round();
        if !(100.0..=500_000.0).contains(&millionths) {
            return Err(refuse());
        }
        Ok(Self { millionths: millionths as u32 })
    }
}

/// Prints a percentage that parses back to the same margin.
impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.millionths / 10_000, self.millionths % 10_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        write!(f, "{whole}.{}%", format!("{rest:04}").trim_end_matches('0'))
    }
}

impl JsonSchema for Margin {
    fn schema_name() -> Cow<'static, str> {
        "Margin".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": r"^\s*(\d+\.?\d*|\.\d+)\s*%\s*$", "default": "2%" })
    }
}

impl Serialize for Margin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Margin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Default maximum number of rounds of a run that adds rounds until comparisons are decided.
pub const DEFAULT_MAX_ROUNDS: u32 = 15;

/// Maximum number of times that results are evaluated during a run: each evaluation raises the false-positive rate.
pub const MOST_LOOKS: usize = 10;

/// Minimum number of rounds before results are evaluated: a spread estimated from two values is not reliable.
pub const FIRST_LOOK: u32 = 3;

/// Measuring time before the first evaluation in a plan with a time limit.
pub const FIRST_LOOK_AFTER: Nanos = Nanos::from_secs(30);

/// Largest accepted value of `max_rounds`.
pub(super) const MOST_ROUNDS: u32 = 1000;

/// Adds rounds until every comparison is decided or a limit is reached. Results are evaluated for the first time after the plan's `repeat`
/// rounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UntilDecided {
    /// Maximum number of rounds, decided or not
    #[serde(default = "default_max_rounds")]
    pub max_rounds: u32,
    /// Stops before the next evaluation of results if the rounds up to it would exceed this time [default: no limit]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_time: Option<Nanos>,
}

fn default_max_rounds() -> u32 {
    DEFAULT_MAX_ROUNDS
}

impl Default for UntilDecided {
    fn default() -> Self {
        Self { max_rounds: DEFAULT_MAX_ROUNDS, max_time: None }
    }
}

impl UntilDecided {
    /// Returns the numbers of rounds after which results are evaluated, ascending: `first`, then 15% more each time, and finally the
    /// maximum. The step grows if there would be more than 10 evaluations. The numbers depend only on the plan, never on results.
    #[must_use]
    pub fn looks(&self, first: u32) -> Vec<u32> {
        // Rounds at an evaluation, in percent of those at the previous one.
        let mut step = 115;
        loop {
            let looks = spaced(first, self.max_rounds, step);
            if looks.len() <= MOST_LOOKS {
                return looks;
            }
            step += 5;
        }
    }

    /// Rejects a single target, a first evaluation before [`FIRST_LOOK`] rounds, a `max_rounds` without a second evaluation or above 1000,
    /// and a `max_time` shorter than the rounds before the first evaluation.
    pub(super) fn check(&self, repeat: u32, targets: usize, round: Nanos) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(text));
        if targets < 2 {
            return refuse(
                "until_decided: one target alone leaves nothing to decide; add a [[target]]".into(),
            );
        }
        if repeat < FIRST_LOOK {
            return refuse(format!(
                "repeat = {repeat}: with until_decided it is the first look; accepted: {FIRST_LOOK} or more"
            ));
        }
        if self.max_rounds <= repeat || self.max_rounds > MOST_ROUNDS {
            return refuse(format!(
                "max_rounds = {}: accepted: {} to {MOST_ROUNDS}, which is more than repeat",
                self.max_rounds,
                repeat + 1
            ));
        }
        let first = Nanos(round.0.saturating_mul(u64::from(repeat)));
        match self.max_time {
            Some(time) if time < first => {
                refuse(format!("max_time = {time}: too short; the first {repeat} rounds take {first}"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns numbers from `first` to `last`, each `percent` percent of the previous one and at least 1 higher. If the last step would be less
/// than half as long as usual, it is merged with the step before.
fn spaced(first: u32, last: u32, percent: u32) -> Vec<u32> {
    let mut looks = vec![first];
    let mut next = first;
    while next < last {
        next = (next * percent).div_ceil(100).max(next + 1);
        if next * (100 + percent) / 2 >= last * 100 {
            next = last;
        }
        looks.push(next);
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn margins_read_both_ways() {
        for (text, share, shown) in [
            ("2%", 0.02, "2%"),
            ("0.5 %", 0.005, "0.5%"),
            (" 12.50% ", 0.125, "12.5%"),
            (".25%", 0.0025, "0.25%"),
        ] {
            let margin: Margin = text.parse().expect(text);
            assert_eq!((margin.share(), margin.to_string().as_str()), (share, shown), "{text}");
            assert_eq!(shown.parse(), Ok(margin));
        }
        for text in ["2", "", "%", "0%", "0.001%", "51%", "-2%", "2%%", "1e0%", "inf%", "two%", "2 percent"] {
            let error = text.parse::<Margin>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("such as 2%"), "{error}");
        }
    }

    #[test]
    fn looks_are_close_and_ten_at_most() {
        let looks = |first, max_rounds| UntilDecided { max_rounds, max_time: None }.looks(first);
        assert_eq!(looks(5, 30), [5, 6, 8, 10, 12, 15, 18, 22, 27, 30]);
        assert_eq!(looks(3, 30), [3, 4, 5, 7, 9, 12, 15, 19, 24, 30]);
        assert_eq!(looks(3, 12), [3, 4, 5, 6, 7, 9, 11, 12]);
        assert_eq!(looks(10, 12), [10, 12]);
        assert_eq!(looks(3, 1000).len(), 10);
    }

    proptest! {
        #[test]
        fn looks_rise_from_the_first_to_the_last(first in 3_u32..900, more in 1_u32..100) {
            let last = (first + more * 7).min(1000).max(first + 1);
            let looks = UntilDecided { max_rounds: last, max_time: None }.looks(first);
            prop_assert!(looks.len() <= MOST_LOOKS && looks.is_sorted_by(|a, b| a < b), "{:?}", looks);
            prop_assert_eq!((looks.first(), looks.last()), (Some(&first), Some(&last)));
        }

        #[test]
        fn margins_read_back(millionths in 100_u32..=500_000) {
            let margin = Margin { millionths };
            prop_assert_eq!(margin.to_string().parse(), Ok(margin));
        }
    }
}
