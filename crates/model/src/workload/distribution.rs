//! Distributions of random I/Os over the area.

use std::fmt;
use std::str::FromStr;

use super::text::{TextError, text_form};
use crate::units::Bytes;

/// The distribution of random offsets over the area, under fio's names.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Uniform: all blocks of the area are equally likely.
    Random,
    /// Zipf with exponent theta, above 0 and at most 100: the n-th most frequent block gets I/Os in proportion to `n^-theta`. Frequent blocks are
    /// scattered over the area.
    Zipf(f64),
    /// Pareto with h between 0 and 1: a fraction h of the blocks gets a fraction 1-h of the I/Os, and so on within these blocks. Frequent blocks
    /// are scattered over the area.
    Pareto(f64),
    /// Normal around the middle of the area. The value is the standard deviation in percent of the area, above 0 and at most 100.
    Normal(f64),
    /// Consecutive zones from the start of the area, each with a percentage of the I/Os. The percentages add up to 100.
    Zoned(Vec<Zone>),
    /// Like [`Self::Zoned`], with the length of each zone in bytes. Space after the last zone gets no I/O.
    ZonedAbs(Vec<AbsoluteZone>),
    /// A given sequence of blocks, repeated until the workload ends.
    Sequence(BlockSequence),
}

/// A fixed sequence of blocks to access. Text form: `sequence:2,0,1`, or `sequence_stride:2,0,1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSequence {
    /// Up to 64 block numbers, counted from the start of the area.
    pub blocks: Vec<u32>,
    /// True if each repetition is shifted by the number of blocks in the sequence, until the end of the area.
    pub is_strided: bool,
}

impl BlockSequence {
    /// Maximum number of blocks in a sequence.
    pub const MOST: usize = 64;

    /// Returns the minimum number of blocks in the area, so that one repetition of the sequence fits.
    #[must_use]
    pub fn blocks_needed(&self) -> u64 {
        self.blocks.iter().max().map_or(0, |last| u64::from(*last) + 1)
    }

    fn parse(text: &str, is_strided: bool) -> Result<Self, String> {
        let block =
            |text: &str| text.trim().parse().map_err(|_| format!("{text:?} is not the number of a block"));
        let blocks = text.split(',').map(block).collect::<Result<Vec<u32>, _>>()?;
        if blocks.len() > Self::MOST {
            return Err(format!("{} blocks are more than {}", blocks.len(), Self::MOST));
        }
        Ok(Self { blocks, is_strided })
    }
}

/// A zone with its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbsoluteZone {
    /// Percentage of the I/Os that access the zone.
    pub access: u8,
    /// Length of the zone, above 0.
    pub size: Bytes,
}

/// A zone with its length as a percentage of the area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Percentage of the I/Os that access the zone.
    pub access: u8,
    /// Length of the zone in percent of the area, at least 1.
    pub size: u8,
}

fn number(text: &str, fits: impl Fn(f64) -> bool, range: &str) -> Result<f64, String> {
    match text.parse() {
        // Rust also parses inf and NaN as numbers; no range accepts them.
        Ok(value) if fits(value) => Ok(value),
        _ => Err(format!("{text:?} is not a number {range}")),
    }
}

fn zones(text: &str) -> Result<Vec<Zone>, String> {
    let mut zones = text.split(':').map(zone).collect::<Result<Vec<_>, _>>()?;
    // As in fio, zones without a size share the rest of the area.
    let left = 100_u32.saturating_sub(zones.iter().map(|zone| u32::from(zone.size)).sum());
    let without = zones.iter().filter(|zone| zone.size == 0).count();
    let share = left.checked_div(u32::try_from(without).unwrap_or(u32::MAX)).unwrap_or(0);
    if without > 0 && share == 0 {
        return Err("nothing of the area is left for zones without a size".into());
    }
    for zone in zones.iter_mut().filter(|zone| zone.size == 0) {
        zone.size = u8::try_from(share).unwrap_or(100);
    }
    let sum = |part: fn(&Zone) -> u8| zones.iter().map(|zone| u32::from(part(zone))).sum::<u32>();
    match (sum(|zone| zone.access), sum(|zone| zone.size)) {
        (100, ..=100) => Ok(zones),
        (100, sizes) => Err(format!("the zones take {sizes} percent of the area")),
        (accesses, _) => Err(format!("the shares of I/O add up to {accesses}, not 100")),
    }
}

/// Parses one zone of the form `IO/SIZE`, both percentages. Without a size, the zone's size is 0, for the caller to fill in.
fn zone(text: &str) -> Result<Zone, String> {
    let refuse = || format!("{text:?} is not a zone");
    let (access, size) = text.split_once('/').unwrap_or((text, ""));
    match (access.trim().parse(), size.trim()) {
        (Ok(access @ 0..=100), "") => Ok(Zone { access, size: 0 }),
        (Ok(access @ 0..=100), size) => match size.parse() {
            Ok(size @ 1..=100) => Ok(Zone { access, size }),
            _ => Err(refuse()),
        },
        _ => Err(refuse()),
    }
}

/// Parses zones of the form `IO/SIZE:IO/SIZE...`: percentages of the I/Os, which must add up to 100, and sizes in bytes.
fn absolute_zones(text: &str) -> Result<Vec<AbsoluteZone>, String> {
    let zone = |text: &str| -> Result<AbsoluteZone, String> {
        let refuse = || format!("{text:?} is not a zone");
        let (access, size) = text.split_once('/').ok_or_else(refuse)?;
        match (access.trim().parse(), size.trim().parse::<Bytes>()) {
            (Ok(access @ 0..=100), Ok(size)) if size.0 > 0 => Ok(AbsoluteZone { access, size }),
            _ => Err(refuse()),
        }
    };
    let zones = text.split(':').map(zone).collect::<Result<Vec<_>, _>>()?;
    match zones.iter().map(|zone| u32::from(zone.access)).sum() {
        100 => Ok(zones),
        sum => Err(format!("the shares of I/O add up to {sum}, not 100")),
    }
}

impl FromStr for Distribution {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let (kind, value) = text.split_once(':').unwrap_or((text, ""));
        let read = match kind {
            "random" if !text.contains(':') => Ok(Self::Random),
            "zipf" => {
                number(value, |theta| theta > 0.0 && theta <= 100.0, "above 0, up to 100").map(Self::Zipf)
            }
            "pareto" => number(value, |h| h > 0.0 && h < 1.0, "between 0 and 1").map(Self::Pareto),
            "normal" => {
                number(value, |dev| dev > 0.0 && dev <= 100.0, "above 0, up to 100").map(Self::Normal)
            }
            "zoned" => zones(value).map(Self::Zoned),
            "zoned_abs" => absolute_zones(value).map(Self::ZonedAbs),
            "sequence" => BlockSequence::parse(value, false).map(Self::Sequence),
            "sequence_stride" => BlockSequence::parse(value, true).map(Self::Sequence),
            _ => Err(format!("{kind:?} is not one that is known")),
        };
        read.map_err(|reason| {
            let accepted = "random, zipf:THETA, pareto:H, normal:DEVIATION (percent of the area), \
                            zoned:IO/SIZE:IO/SIZE... (percent) such as zoned:50/5:30/15:20/80, zoned_abs:IO/BYTES... such as \
                            zoned_abs:90/1GiB:10/9GiB, or sequence:BLOCK,BLOCK... such as sequence:2,0,1";
            TextError::new("a distribution", text, reason, accepted)
        })
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random => f.write_str("random"),
            Self::Zipf(theta) => write!(f, "zipf:{theta}"),
            Self::Pareto(h) => write!(f, "pareto:{h}"),
            Self::Normal(deviation) => write!(f, "normal:{deviation}"),
            Self::Zoned(zones) => {
                f.write_str("zoned")?;
                zones.iter().try_for_each(|zone| write!(f, ":{}/{}", zone.access, zone.size))
            }
            Self::ZonedAbs(zones) => {
                f.write_str("zoned_abs")?;
                zones.iter().try_for_each(|zone| write!(f, ":{}/{}", zone.access, zone.size))
            }
            Self::Sequence(sequence) => {
                f.write_str(if sequence.is_strided { "sequence_stride" } else { "sequence" })?;
                let mut sign = ':';
                sequence.blocks.iter().try_for_each(|block| {
                    write!(f, "{sign}{block}")?;
                    sign = ',';
                    Ok(())
                })
            }
        }
    }
}

text_form!(Distribution);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_fio_reads() {
        let zones = |zones: &[(u8, u8)]| {
            Distribution::Zoned(zones.iter().map(|&(access, size)| Zone { access, size }).collect())
        };
        for (text, distribution) in [
            ("random", Distribution::Random),
            ("zipf:1.2", Distribution::Zipf(1.2)),
            ("zipf:1", Distribution::Zipf(1.0)),
            ("pareto:0.2", Distribution::Pareto(0.2)),
            ("normal:20", Distribution::Normal(20.0)),
            ("zoned:50/5:30/15:20/80", zones(&[(50, 5), (30, 15), (20, 80)])),
            ("zoned:0/50:100/10", zones(&[(0, 50), (100, 10)])),
            (
                "sequence:2,0,1",
                Distribution::Sequence(BlockSequence { blocks: vec![2, 0, 1], is_strided: false }),
            ),
            (
                "sequence_stride:0",
                Distribution::Sequence(BlockSequence { blocks: vec![0], is_strided: true }),
            ),
        ] {
            assert_eq!(text.parse(), Ok(distribution), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "\"\" is not one that is known"),
            ("random:1", "\"random\" is not one"),
            ("zipff:1", "\"zipff\" is not one"),
            ("zipf", "\"\" is not a number above 0"),
            ("zipf:0", "\"0\" is not a number above 0"),
            ("zipf:inf", "\"inf\" is not a number above 0"),
            ("zipf:nan", "\"nan\" is not a number above 0"),
            ("zipf:1.2,1.3", "\"1.2,1.3\" is not a number"),
            ("pareto:1", "\"1\" is not a number between 0 and 1"),
            ("normal:-1", "\"-1\" is not a number above 0"),
            ("zoned", "\"\" is not a zone"),
            ("zoned:50/5", "add up to 50, not 100"),
            ("zoned:50/60:50/50", "take 110 percent"),
            ("zoned:100/0", "\"100/0\" is not a zone"),
            ("zoned:100/5/5", "\"100/5/5\" is not a zone"),
            ("zoned:256/5", "\"256/5\" is not a zone"),
            ("sequence", "\"\" is not the number of a block"),
            ("sequence:1,-2", "\"-2\" is not the number of a block"),
            (&format!("sequence:0{}", ",0".repeat(64)), "65 blocks are more than 64"),
        ] {
            let error = text.parse::<Distribution>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("zipf:THETA"), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_and_printed_back_or_refused(
            text in "(zipf|pareto|normal|zoned|random|sequence):[0-9./:,e-]{0,20}|sequence_stride:[0-9]{1,3},[0-9]|zoned:100/[1-9]{1,2}|.{0,12}",
        ) {
            if let Ok(distribution) = text.parse::<Distribution>() {
                prop_assert_eq!(distribution.to_string().parse(), Ok(distribution));
            }
        }
    }
}
