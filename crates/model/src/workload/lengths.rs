//! Variable block sizes: uniform ranges and weighted lists, separately for reads, writes and trims.

use std::fmt;
use std::str::FromStr;

use super::Workload;
use super::text::{TextError, text_form};
use crate::units::Bytes;

/// Maximum block size of a workload.
const LONGEST: Bytes = Bytes(64 << 20);
/// Size of a sector in bytes: block sizes of direct I/O are multiples of it.
const SECTOR: u64 = 512;

/// Accepted block sizes of direct or verified I/O, for error messages.
pub(super) const LENGTH: &str = "a multiple of 512 from 512 to 64MiB";

/// Returns whether this is a valid block size for direct or verified I/O.
pub(super) fn is_length(bytes: Bytes) -> bool {
    (SECTOR..=LONGEST.0).contains(&bytes.0) && bytes.0.is_multiple_of(SECTOR)
}

/// Returns whether this is a valid block size for unverified buffered I/O: any number of bytes up to the maximum.
pub(super) fn is_buffered_length(bytes: Bytes) -> bool {
    (1..=LONGEST.0).contains(&bytes.0)
}

fn length(text: &str) -> Result<Bytes, String> {
    let bytes: Bytes = text.parse().map_err(|_| format!("{text:?} is not a size"))?;
    if is_length(bytes) { Ok(bytes) } else { Err(format!("{text} is not {LENGTH}")) }
}

/// One value each for reads, writes and trims. Text form: one to three values separated by commas, in this order; the last value also applies to
/// the remaining directions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByDirection<T> {
    /// Value for reads.
    pub read: T,
    /// Value for writes.
    pub write: T,
    /// Value for trims.
    pub trim: T,
}

impl<T: Clone> ByDirection<T> {
    pub(super) fn parse(text: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Self, String> {
        let values = text.split(',').map(|value| one(value.trim())).collect::<Result<Vec<_>, _>>()?;
        match values.as_slice() {
            [all] => Ok(Self { read: all.clone(), write: all.clone(), trim: all.clone() }),
            [read, rest] => Ok(Self { read: read.clone(), write: rest.clone(), trim: rest.clone() }),
            [read, write, trim] => Ok(Self { read: read.clone(), write: write.clone(), trim: trim.clone() }),
            more => Err(format!("{} values for 3 directions", more.len())),
        }
    }
}

impl<T: fmt::Display + PartialEq> fmt::Display for ByDirection<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.read)?;
        if self.write != self.read || self.trim != self.read {
            write!(f, ",{}", self.write)?;
        }
        if self.trim != self.write {
            write!(f, ",{}", self.trim)?;
        }
        Ok(())
    }
}

/// Block sizes that are uniformly distributed, in steps of the smallest. Text form: `4k-16k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthRange {
    min: Bytes,
    max: Bytes,
}

impl LengthRange {
    /// Returns the smallest block size, which is also the step.
    #[must_use]
    pub const fn min(&self) -> Bytes {
        self.min
    }

    /// Returns the largest block size, a multiple of the smallest.
    #[must_use]
    pub const fn max(&self) -> Bytes {
        self.max
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (min, max) = text.split_once('-').ok_or_else(|| format!("{text:?} has no '-'"))?;
        let (min, max) = (length(min)?, length(max)?);
        if min > max || !max.0.is_multiple_of(min.0) {
            return Err(format!("{max} is not a multiple of {min}"));
        }
        Ok(Self { min, max })
    }
}

impl fmt::Display for LengthRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

/// Block sizes with percentages. Text form: `4k/10:64k/50:32k/40`. Sizes without a percentage share the rest of 100 in whole percents; if it does
/// not divide evenly, the first of them get one percent more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LengthSplit {
    parts: Vec<(Bytes, Option<u8>)>,
}

impl LengthSplit {
    /// Returns the block sizes with their percentages, which are above 0 and add up to 100.
    pub fn shares(&self) -> impl Iterator<Item = (Bytes, u8)> {
        let given: u8 = self.parts.iter().filter_map(|(_, share)| *share).sum();
        let blank = self.parts.iter().filter(|(_, share)| share.is_none()).count();
        let mut left = 100 - given;
        let mut blank = u8::try_from(blank).unwrap_or(u8::MAX);
        self.parts.iter().map(move |(length, share)| {
            let share = share.unwrap_or_else(|| {
                let even = left.div_ceil(blank);
                left -= even;
                blank -= 1;
                even
            });
            (*length, share)
        })
    }

    /// Returns the smallest block size; the others are multiples of it.
    #[must_use]
    pub fn min(&self) -> Bytes {
        self.parts.iter().map(|(length, _)| *length).min().unwrap_or_default()
    }

    /// Returns the largest block size.
    #[must_use]
    pub fn max(&self) -> Bytes {
        self.parts.iter().map(|(length, _)| *length).max().unwrap_or_default()
    }

    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(':').map(Self::parse_part).collect::<Result<Vec<_>, _>>()?;
        let given: u32 = parts.iter().filter_map(|(_, share)| share.map(u32::from)).sum();
        let blank = parts.iter().filter(|(_, share)| share.is_none()).count();
        if given > 100 || (blank == 0 && given < 100) {
            return Err(format!("the shares add up to {given}, not 100"));
        }
        if blank > (100 - given) as usize {
            return Err(format!("{} percent are left for {blank} blank shares", 100 - given));
        }
        let split = Self { parts };
        let min = split.min();
        match split.parts.iter().find(|(length, _)| !length.0.is_multiple_of(min.0)) {
            Some((length, _)) => Err(format!("{length} is not a multiple of the shortest, {min}")),
            None => Ok(split),
        }
    }

    fn parse_part(text: &str) -> Result<(Bytes, Option<u8>), String> {
        let (bytes, share) = text.split_once('/').unwrap_or((text, ""));
        let share = match share.trim() {
            "" => None,
            share => match share.parse() {
                Ok(percent @ 1..=100) => Some(percent),
                _ => return Err(format!("{share:?} is not a share of 1 to 100 percent")),
            },
        };
        Ok((length(bytes)?, share))
    }
}

impl fmt::Display for LengthSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (length, share)) in self.parts.iter().enumerate() {
            write!(f, "{}{length}", if n > 0 { ":" } else { "" })?;
            if let Some(share) = share {
                write!(f, "/{share}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for ByDirection<LengthRange> {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let accepted = "SHORTEST-LONGEST such as 4k-16k, for reads, writes and trims apart by commas (4k-16k,8k-32k); the \
                        longest is a multiple of the shortest, and that of 512, up to 64MiB";
        Self::parse(text, LengthRange::parse)
            .map_err(|reason| TextError::new("a range of lengths", text, reason, accepted))
    }
}

impl FromStr for ByDirection<LengthSplit> {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let accepted = "LENGTH/PERCENT:LENGTH/PERCENT... such as 4k/10:64k/50:32k/40, for reads, writes and trims apart by \
                        commas; shares may be blank; lengths are multiples of the shortest, and that of 512, up to 64MiB";
        Self::parse(text, LengthSplit::parse)
            .map_err(|reason| TextError::new("a split of lengths", text, reason, accepted))
    }
}

text_form!(ByDirection<LengthRange>);
text_form!(ByDirection<LengthSplit>);

impl Workload {
    /// Returns the smallest and largest block size of each direction that the workload uses, in bytes. All sizes of a direction are
    /// multiples of its smallest.
    fn extremes(&self) -> impl Iterator<Item = (u64, u64)> {
        let extremes = match (&self.bsrange, &self.bssplit) {
            (Some(ranges), _) => {
                [&ranges.read, &ranges.write, &ranges.trim].map(|range| (range.min(), range.max()))
            }
            (None, Some(splits)) => {
                [&splits.read, &splits.write, &splits.trim].map(|split| (split.min(), split.max()))
            }
            (None, None) => [(self.bs, self.bs); 3],
        };
        let has = [self.rw.reads(), self.rw.writes(), self.rw.trims()];
        extremes.into_iter().zip(has).filter(|(_, has)| *has).map(|((min, max), _)| (min.0, max.0))
    }

    /// Returns the smallest block size in any direction that the workload uses.
    #[must_use]
    pub fn min_bs(&self) -> Bytes {
        Bytes(self.extremes().map(|(min, _)| min).min().unwrap_or(self.bs.0))
    }

    /// Returns the largest block size in any direction that the workload uses.
    #[must_use]
    pub fn max_bs(&self) -> Bytes {
        Bytes(self.extremes().map(|(_, max)| max).max().unwrap_or(self.bs.0))
    }

    /// Returns the greatest common divisor of all block sizes that the workload uses.
    #[must_use]
    pub fn bs_unit(&self) -> Bytes {
        Bytes(self.extremes().map(|(min, _)| min).fold(0, greatest_common_divisor))
    }

    /// Returns the greatest common divisor of the block sizes, the area's offset, the stride and `io_size`: every I/O consists of whole
    /// blocks of this size.
    #[must_use]
    pub fn unit(&self) -> Bytes {
        let stride = self.stride.map_or(0, |stride| stride.0.unsigned_abs());
        let last = self.io_size.map_or(0, |bytes| bytes.0);
        Bytes([self.offset.0, stride, last].into_iter().fold(self.bs_unit().0, greatest_common_divisor))
    }

    /// Formats the block sizes for a name: `4k`, or `4k-64k` for the smallest and largest.
    #[must_use]
    pub fn lengths(&self) -> String {
        let (min, max) = (self.min_bs(), self.max_bs());
        if min == max { min.to_string() } else { format!("{min}-{max}") }
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKeys;
    use proptest::prelude::*;

    type Range = ByDirection<LengthRange>;
    type Split = ByDirection<LengthSplit>;

    fn shares(text: &str) -> Vec<(u64, u8)> {
        let split: Split = text.parse().expect(text);
        split.read.shares().map(|(length, share)| (length.0 / 1024, share)).collect()
    }

    #[test]
    fn splits_read_as_fio_reads_them() {
        assert_eq!(shares("4k/10:64k/50:32k/40"), [(4, 10), (64, 50), (32, 40)]);
        assert_eq!(shares("4k/50:1k/:32k/"), [(4, 50), (1, 25), (32, 25)]);
        assert_eq!(shares("4k:8k:16k"), [(4, 34), (8, 33), (16, 33)]);
        assert_eq!(shares("8k"), [(8, 100)]);
        let both: Split = "2k/50:4k/50,4k/90:8k/10".parse().expect("two directions");
        assert_eq!(
            (both.read.max(), both.write.min(), both.trim.max()),
            (Bytes(4096), Bytes(4096), Bytes(8192))
        );
    }

    #[test]
    fn only_the_lengths_of_what_is_done_count() {
        let facts = |rw: &str, key: &str, text: &str| {
            let mut keys = WorkloadKeys { rw: rw.parse().ok(), ..WorkloadKeys::default() };
            keys.set(key, text).expect(text);
            let workload = keys.complete(&WorkloadKeys::default());
            (workload.min_bs().0, workload.max_bs().0, workload.bs_unit().0, workload.lengths())
        };
        assert_eq!(facts("randrw", "bs", "8k"), (8192, 8192, 8192, "8k".into()));
        assert_eq!(facts("read", "bsrange", "4k-16k,8k-32k"), (4096, 16384, 4096, "4k-16k".into()));
        assert_eq!(facts("write", "bsrange", "4k-16k,8k-32k"), (8192, 32768, 8192, "8k-32k".into()));
        assert_eq!(facts("rw", "bssplit", "6k,4k:8k"), (4096, 8192, 2048, "4k-8k".into()));
    }

    #[test]
    fn no_io_covers_a_part_of_a_unit() {
        let unit = |keys: &[(&str, &str)]| {
            let mut own = WorkloadKeys::default();
            keys.iter().for_each(|(key, text)| own.set(key, text).expect(text));
            own.complete(&WorkloadKeys::default()).unit().0
        };
        assert_eq!(unit(&[]), 4096);
        assert_eq!(unit(&[("bssplit", "16k:48k")]), 16384);
        assert_eq!(unit(&[("bs", "64k"), ("offset", "24k")]), 8192);
        assert_eq!(unit(&[("bs", "64k"), ("stride", "-96k")]), 32768);
        assert_eq!(unit(&[("bs", "64k"), ("stride", "0"), ("io_size", "1025k")]), 1024);
    }

    #[test]
    fn the_last_value_holds_for_the_directions_after_it() {
        for (text, printed) in [
            ("4k-16k", "4k-16k"),
            ("4k-16k,4096-16384", "4k-16k"),
            ("4k-16k,8k-32k", "4k-16k,8k-32k"),
            ("4k-8k,4k-8k,8k-8k", "4k-8k,4k-8k,8k-8k"),
        ] {
            assert_eq!(text.parse::<Range>().expect(text).to_string(), printed);
        }
    }

    #[test]
    fn what_is_neither_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "\"\" has no '-'"),
            ("4k", "\"4k\" has no '-'"),
            ("16k-4k", "4k is not a multiple of 16k"),
            ("4k-10k", "10k is not a multiple of 4k"),
            ("100-4k", "100 is not a multiple of 512"),
            ("4k-128m", "128m is not a multiple of 512 from 512 to 64MiB"),
            ("4k-8k,", "\"\" has no '-'"),
            ("4k-8k,4k-8k,4k-8k,4k-8k", "4 values for 3 directions"),
            ("0-0", "0 is not"),
        ] {
            let error = text.parse::<Range>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("such as 4k-16k"), "{text}: {error}");
        }
        for (text, reason) in [
            ("", "\"\" is not a size"),
            ("4k/50", "add up to 50, not 100"),
            ("4k/60:8k/50", "add up to 110, not 100"),
            ("4k/100:8k", "0 percent are left for 1 blank"),
            ("4k/0:8k/100", "\"0\" is not a share"),
            ("4k/101", "\"101\" is not a share"),
            ("4k/x", "\"x\" is not a share"),
            ("4k/50/50", "\"50/50\" is not a share"),
            ("4k/50:6k/50", "6k is not a multiple of the shortest, 4k"),
            ("4k/50:100/50", "100 is not a multiple of 512"),
            (&vec!["512"; 101].join(":"), "100 percent are left for 101 blank"),
        ] {
            let error = text.parse::<Split>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("4k/10:64k/50:32k/40"), "{text}: {error}");
        }
    }

    fn part() -> impl Strategy<Value = (u64, Option<u8>)> {
        (1_u64..=131_072, proptest::option::of(1_u8..=40))
    }

    proptest! {
        #[test]
        fn ranges_read_back(min in 1_u64..=512, steps in prop::array::uniform3(1_u64..=256)) {
            let text = steps.map(|steps| format!("{}-{}", min * 512, min * 512 * steps)).join(",");
            let range: Range = text.parse().expect("within limits");
            prop_assert_eq!(range.trim.max(), Bytes(min * 512 * steps[2]));
            prop_assert_eq!(range.to_string().parse::<Range>(), Ok(range));
        }

        #[test]
        fn splits_read_back_and_add_up(parts in prop::collection::vec(part(), 1..6)) {
            let text = parts.iter().map(|(length, share)| {
                format!("{}/{}", length * 512, share.map_or(String::new(), |share| share.to_string()))
            }).collect::<Vec<_>>().join(":");
            if let Ok(split) = text.parse::<Split>() {
                prop_assert_eq!(split.read.shares().map(|(_, share)| u32::from(share)).sum::<u32>(), 100);
                prop_assert!(split.read.shares().all(|(length, share)| share > 0 && length.0.is_multiple_of(split.read.min().0)));
                prop_assert_eq!(split.to_string().parse::<Split>(), Ok(split));
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9kmKi/:,. -]{0,24}|.{0,12}") {
            if let Ok(range) = text.parse::<Range>() {
                prop_assert_eq!(range.to_string().parse::<Range>(), Ok(range));
            }
            if let Ok(split) = text.parse::<Split>() {
                prop_assert_eq!(split.to_string().parse::<Split>(), Ok(split));
            }
        }
    }
}
