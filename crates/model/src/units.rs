//! Sizes, times and bit rates with their text forms, and numbers rounded for reports.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes. Text form: `4k`, `8GiB`, `512` (bytes). `k`, `m`, `g`, `t`, `p` (as in fio) and `KiB`, `MiB` ... are powers of 1024;
/// `KB`, `MB` ... are powers of 1000, unlike fio's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A span of time in nanoseconds. Text form: `10ns`, `250us`, `500ms`, `30s`, `2m` (minutes), `1h`, `1d`; the unit is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

/// Bits per second. Text form as in iperf3: `10M`, `1.5G`, `500K`, `64000`, in powers of 1000, optionally with `bit/s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BitRate(pub u64);

/// A text that cannot be parsed as a size, time or bit rate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} is not {what}; accepted: {accepted}")]
pub struct UnitError {
    input: String,
    what: &'static str,
    accepted: &'static str,
}

const BYTES_ACCEPTED: &str =
    "a number with a unit such as 512, 4k, 64KiB, 1m, 8GiB (powers of 1024) or 1GB (powers of 1000)";
const NANOS_ACCEPTED: &str = "a number with a unit such as 250us, 500ms, 30s, 5m, 1h";

const BIT_RATE_ACCEPTED: &str = "bits a second such as 64000, 500K, 10M, 2.5G (powers of 1000)";

fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then_some((number, text[end..].trim()))
}

/// Returns `number * unit`, rounded to a whole number; `None` if the result is negative or at least 9.2e18.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "range and sign are checked before the cast"
)]
fn scale(number: f64, unit: u64) -> Option<u64> {
    let value = number * unit as f64;
    // About 2^63: far above any size or time in use, and below 2^64, where f64 -> u64 saturates.
    (0.0..9.2e18).contains(&value).then(|| value.round() as u64)
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = || UnitError { input: text.to_owned(), what: "a size", accepted: BYTES_ACCEPTED };
        let (number, unit) = split_number(text).ok_or_else(refuse)?;
        let lower = unit.to_ascii_lowercase();
        let (letter, base) = match lower.as_str() {
            "" | "b" => return scale(number, 1).map(Bytes).ok_or_else(refuse),
            l if l.len() == 1 => (l.chars().next(), 1024_u64),
            l if l.len() == 3 && l.ends_with("ib") => (l.chars().next(), 1024),
            l if l.len() == 2 && l.ends_with('b') => (l.chars().next(), 1000),
            _ => return Err(refuse()),
        };
        let power = letter.and_then(|c| "kmgtp".find(c)).ok_or_else(refuse)?;
        let unit = (0..=power).fold(1_u64, |unit, _| unit * base);
        scale(number, unit).map(Bytes).ok_or_else(refuse)
    }
}

impl FromStr for BitRate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = || UnitError { input: text.to_owned(), what: "a bitrate", accepted: BIT_RATE_ACCEPTED };
        let (number, unit) = split_number(text).ok_or_else(refuse)?;
        let unit = unit.strip_suffix("bit/s").unwrap_or(unit).trim_end().to_ascii_lowercase();
        let power = ["", "k", "m", "g", "t"].iter().position(|known| *known == unit).ok_or_else(refuse)?;
        let unit = (0..power).fold(1_u64, |unit, _| unit * 1000);
        scale(number, unit).map(Self).ok_or_else(refuse)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] =
            [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1000, "K")];
        match UNITS.iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Nanos {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = || UnitError { input: text.to_owned(), what: "a time", accepted: NANOS_ACCEPTED };
        let (number, unit) = split_number(text).ok_or_else(refuse)?;
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(refuse()),
        };
        scale(number, unit).map(Nanos).ok_or_else(refuse)
    }
}

/// Prints in the largest unit that divides the size without remainder: `4k`, `1m`, `2GiB`; other sizes in bytes without a unit.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] =
            [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "m"), (1 << 10, "k")];
        match UNITS.iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
        ];
        match UNITS.iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}ns", self.0),
        }
    }
}

impl Bytes {
    /// Formats the size like `Display`, but with a unit for plain bytes too: `256 bytes`, which cannot be mistaken for 256 MiB.
    #[must_use]
    pub fn with_unit(self) -> String {
        let text = self.to_string();
        if text.ends_with(|c: char| c.is_ascii_digit()) { format!("{text} bytes") } else { text }
    }
}

impl Nanos {
    /// Creates a time of this many whole seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// Creates a time of this many whole milliseconds.
    #[must_use]
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds * 1_000_000)
    }

    /// Converts the time to seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl From<Nanos> for std::time::Duration {
    fn from(time: Nanos) -> Self {
        Self::from_nanos(time.0)
    }
}

macro_rules! serde_as_text {
    ($type:ty, $accepted:literal, $pattern:literal) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text($accepted))?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Serde visitor that accepts text, and rejects other values with the accepted form.
struct Text(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}

serde_as_text!(
    Bytes,
    "a size such as \"4k\"",
    r"^\s*(\d+\.?\d*|\.\d+)\s*([bB]|[kKmMgGtTpP]([iI]?[bB])?)?\s*$"
);
serde_as_text!(BitRate, "a rate such as \"100M\"", r"^\s*(\d+\.?\d*|\.\d+)\s*[kKmMgGtT]?(\s*bit/s)?\s*$");
serde_as_text!(Nanos, "a time such as \"30s\"", r"^\s*(\d+\.?\d*|\.\d+)\s*(ns|us|µs|ms|s|m|min|h|d)\s*$");

/// Formats numbers for reports, mostly with three significant digits and a unit.
pub mod human {
    /// Joins items for a sentence: `a`, `a and b`, `a, b and c`.
    #[must_use]
    pub fn listed(items: &[String]) -> String {
        match items {
            [] => String::new(),
            [one] => one.clone(),
            [first @ .., last] => format!("{} and {last}", first.join(", ")),
        }
    }

    /// Formats a number with its digits grouped by thousands: `1,234,567`.
    #[must_use]
    pub fn grouped(n: u64) -> String {
        let digits = n.to_string();
        let mut text = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text
    }

    fn three_digits(value: f64) -> String {
        match value.abs() {
            v if v >= 99.95 || v == 0.0 => format!("{value:.0}"),
            v if v >= 9.995 => format!("{value:.1}"),
            _ => format!("{value:.2}"),
        }
    }

    fn scaled(value: f64, step: f64, units: &[&str], separator: &str) -> String {
        let mut value = value;
        let mut index = 0;
        // 999.5 would print as 1000 of this unit: move up first.
        while value.abs() >= step * 0.9995 && index + 1 < units.len() {
            value /= step;
            index += 1;
        }
        if units[index].is_empty() {
            three_digits(value)
        } else {
            format!("{}{separator}{}", three_digits(value), units[index])
        }
    }

    /// Formats a time given in nanoseconds: `84.1 us`, `1.20 ms`, `3.00 s`.
    #[must_use]
    pub fn time(ns: f64) -> String {
        scaled(ns, 1000.0, &["ns", "us", "ms", "s"], " ")
    }

    /// Formats a count or a rate of I/Os: `950`, `41.2k`, `1.30M`.
    #[must_use]
    pub fn count(value: f64) -> String {
        scaled(value, 1000.0, &["", "k", "M", "G"], "")
    }

    /// Formats a number of bytes in powers of 1024: `4.00 KiB`, `1.25 GiB`.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    pub fn bytes(value: u64) -> String {
        scaled(value as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"], " ")
    }

    /// Formats bytes per second in powers of 1000, as on data sheets and in fio: `512 MB/s`.
    #[must_use]
    pub fn rate(bytes_per_s: f64) -> String {
        scaled(bytes_per_s, 1000.0, &["B/s", "kB/s", "MB/s", "GB/s"], " ")
    }

    /// Formats bytes per second as bits per second in powers of 1000, as networks are specified: `9.41 Gbit/s`.
    #[must_use]
    pub fn bits(bytes_per_s: f64) -> String {
        scaled(bytes_per_s * 8.0, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], " ")
    }

    /// Formats a duration given in seconds: `45 s`, `2 min 05 s`, `1 h 12 min`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 .. 1e9 s")]
    pub fn duration(seconds: f64) -> String {
        let total = seconds.clamp(0.0, 1e9).round() as u64;
        match total {
            0..60 => format!("{total} s"),
            60..3600 => format!("{} min {:02} s", total / 60, total % 60),
            _ => format!("{} h {:02} min", total / 3600, total % 3600 / 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_read_as_fio_reads_them() {
        for (text, bytes) in [
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("64KiB", 65536),
            ("1m", 1 << 20),
            ("8GiB", 8 << 30),
            ("1.5g", 3 << 29),
            ("1GB", 1_000_000_000),
            (" 2 MiB ", 2 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "k", "4x", "4kk", "-1k", "1e3", "4 k b", "99999999999p", "NaN", "4kib4", "0x10"] {
            let error = text.parse::<Bytes>().expect_err(text).to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("64KiB"), "{error}");
        }
    }

    #[test]
    fn times_need_their_unit() {
        for (text, ns) in [
            ("30s", 30_000_000_000),
            ("500ms", 500_000_000),
            ("1.5h", 5_400_000_000_000),
            ("2m", 120_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Nanos(ns)), "{text}");
        }
        for text in ["30", "", "s", "1w", "-5s", "5 s s"] {
            assert!(text.parse::<Nanos>().is_err(), "{text}");
        }
    }

    #[test]
    fn people_read_three_digits() {
        assert_eq!(human::time(84_123.0), "84.1 us");
        assert_eq!(human::time(999_960.0), "1.00 ms");
        assert_eq!(human::count(41_234.0), "41.2k");
        assert_eq!(human::count(0.0), "0");
        assert_eq!(human::bytes(1 << 30), "1.00 GiB");
        assert_eq!(human::rate(1.5e9), "1.50 GB/s");
        assert_eq!(human::duration(125.4), "2 min 05 s");
        let counts = [0, 999, 1000, 1_234_567].map(human::grouped);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
    }

    proptest! {
        #[test]
        fn text_forms_read_back(value in 0_u64..1 << 52) {
            prop_assert_eq!(Bytes(value).to_string().parse(), Ok(Bytes(value)));
            prop_assert_eq!(Nanos(value).to_string().parse(), Ok(Nanos(value)));
        }
    }
}
