//! I/O priorities that depend on the I/O's length.

use std::fmt;
use std::str::FromStr;

use super::lengths::ByDirection;
use super::text::{TextError, text_form};
use crate::units::Bytes;

/// Highest I/O hint; the kernel's encoding has ten bits for hints.
const MOST_HINT: u16 = 1023;

/// An I/O priority, as in ioprio_set(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// Priority class: 1 (real time), 2 (best effort) or 3 (idle).
    pub class: u16,
    /// Level within the class: 0 (highest) to 7.
    pub level: u16,
    /// I/O hint: 0 for none; 1 to 7 select a command duration limit of the drive.
    pub hint: u16,
}

impl Priority {
    /// Encodes the priority as a number, as ioprio_set(2) expects it.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.class << 13 | self.hint << 3 | self.level
    }
}

/// A share of the I/Os of one length, with a separate priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityShareOfLength {
    /// Length of the I/Os in bytes.
    pub length: Bytes,
    /// Percentage of the I/Os of this length, 0 to 100.
    pub percent: u8,
    /// Priority of these I/Os; `None` for the priority that `cmdprio_class` and `cmdprio` set.
    pub priority: Option<Priority>,
}

/// Shares of I/Os with their own priority, by I/O length. Text form: `LENGTH/PERCENT[/CLASS/LEVEL[/HINT]]`, such as `64k/25/1/1:64k/75/3/2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrioritySplit(Vec<PriorityShareOfLength>);

impl PrioritySplit {
    /// Returns all shares. Shares of the same length add up to at most 100 percent.
    #[must_use]
    pub fn shares(&self) -> &[PriorityShareOfLength] {
        &self.0
    }

    fn parse(text: &str) -> Result<Self, String> {
        let shares = text.split(':').map(Self::share).collect::<Result<Vec<_>, _>>()?;
        for one in &shares {
            let alike = shares.iter().filter(|other| other.length == one.length);
            let sum: u32 = alike.map(|other| u32::from(other.percent)).sum();
            if sum > 100 {
                return Err(format!("the shares of {} add up to {sum}", one.length));
            }
        }
        Ok(Self(shares))
    }

    fn share(text: &str) -> Result<PriorityShareOfLength, String> {
        let parts: Vec<&str> = text.split('/').map(str::trim).collect();
        let (length, percent, priority) = match *parts.as_slice() {
            [length, percent] => (length, percent, None),
            [length, percent, class, level] => (length, percent, Some((class, level, "0"))),
            [length, percent, class, level, hint] => (length, percent, Some((class, level, hint))),
            _ => return Err(format!("{text:?} has {} parts", parts.len())),
        };
        let number = |what: &str, text: &str, least: u16, most: u16| match text.parse() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            _ => Err(format!("{text:?} is not a {what} of {least} to {most}")),
        };
        let priority = match priority {
            None => None,
            Some((class, level, hint)) => Some(Priority {
                class: number("class", class, 1, 3)?,
                level: number("level", level, 0, 7)?,
                hint: number("hint", hint, 0, MOST_HINT)?,
            }),
        };
        let length: Bytes = length.parse().map_err(|_| format!("{length:?} is not a size"))?;
        let percent = number("percentage", percent, 0, 100)?;
        Ok(PriorityShareOfLength { length, percent: u8::try_from(percent).unwrap_or(100), priority })
    }
}

impl fmt::Display for PrioritySplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, PriorityShareOfLength { length, percent, priority }) in self.0.iter().enumerate() {
            write!(f, "{}{length}/{percent}", if n > 0 { ":" } else { "" })?;
            if let Some(Priority { class, level, hint }) = priority {
                write!(f, "/{class}/{level}")?;
                if *hint > 0 {
                    write!(f, "/{hint}")?;
                }
            }
        }
        Ok(())
    }
}

impl FromStr for ByDirection<PrioritySplit> {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let accepted = "LENGTH/PERCENT, LENGTH/PERCENT/CLASS/LEVEL or LENGTH/PERCENT/CLASS/LEVEL/HINT with colons between them, such \
                        as 64k/25/1/1:64k/75/3/2, for reads and writes apart by commas";
        Self::parse(text, PrioritySplit::parse)
            .map_err(|reason| TextError::new("a split of priorities", text, reason, accepted))
    }
}

text_form!(ByDirection<PrioritySplit>);

#[cfg(test)]
mod tests {
    use super::*;

    type Split = ByDirection<PrioritySplit>;

    #[test]
    fn all_three_forms_of_fio_are_read_and_printed_back() {
        for text in [
            "64k/100:1m/0,1m/0",
            "64k/25/1/1:64k/75/3/2:1m/0",
            "1m/10/2/0/1:1m/30/2/0/2:1m/60/2/0:2m/10/2/0/3",
        ] {
            assert_eq!(text.parse::<Split>().expect(text).to_string(), text);
        }
        let split: Split = "64k/25/3/2/1".parse().expect("a split");
        let numbers = split.read.shares().iter().filter_map(|share| Some(share.priority?.number()));
        assert_eq!(numbers.collect::<Vec<_>>(), [3 << 13 | 1 << 3 | 2]);
    }

    #[test]
    fn what_is_none_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "\"\" has 1 parts"),
            ("64k", "\"64k\" has 1 parts"),
            ("64k/1/1", "has 3 parts"),
            ("64k/", "\"\" is not a percentage of 0 to 100"),
            ("64k/101", "\"101\" is not a percentage"),
            ("64k/50/0/0", "\"0\" is not a class of 1 to 3"),
            ("64k/50/1/8", "\"8\" is not a level of 0 to 7"),
            ("64k/50/1/7/1024", "\"1024\" is not a hint of 0 to 1023"),
            ("x/50", "\"x\" is not a size"),
            ("64k/60:64k/50", "the shares of 64k add up to 110"),
            ("64k/1,64k/1,64k/1,64k/1", "4 values for 3 directions"),
        ] {
            let error = text.parse::<Split>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("64k/25/1/1"), "{text}: {error}");
        }
    }
}
