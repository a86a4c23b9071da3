//! Parses option values: numbers, sizes and times in fio's syntax.

use std::str::FromStr;

use super::expression::evaluate;
use super::suffix::suffix;
use iotax_model::units::{Bytes, Nanos};

/// Value of an option as text, with the meaning of its size suffixes.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionValue<'a> {
    pub(super) text: &'a str,
    /// Factor of the suffix `k`: 1024 or 1000.
    pub(super) kb_base: u64,
}

const SIZES: &str = "a whole number with k, m, g, t or p behind it (powers of 1024, unless kb_base = 1000), or an expression of \
                     such numbers in parentheses";
const TIMES: &str = "a whole number with us, ms, s, m, h or d behind it";

impl<'a> OptionValue<'a> {
    fn with(self, text: &'a str) -> Self {
        Self { text: text.trim(), ..self }
    }

    /// Parses a boolean: `1` or `0`.
    pub(super) fn bool(self) -> Result<bool, String> {
        match self.text {
            "1" => Ok(true),
            "0" => Ok(false),
            _ => Err("accepted: 1 or 0".into()),
        }
    }

    /// Like [`Self::bool`]; an option without a value means 1.
    pub(super) fn flag(self) -> Result<bool, String> {
        if self.text.is_empty() { Ok(true) } else { self.bool() }
    }

    /// Parses a whole number: decimal with an optional suffix, hexadecimal after `0x`, or an expression in parentheses.
    pub(super) fn whole(self) -> Result<u64, String> {
        let refuse = || format!("accepted: {SIZES}");
        if let Some(value) = self.expression() {
            let value = value.map_err(|why| format!("{why}; {}", refuse()))?;
            return u64::try_from(value).map_err(|_| refuse());
        }
        if let Some(digits) = self.text.strip_prefix("0x").or_else(|| self.text.strip_prefix("0X")) {
            return u64::from_str_radix(digits, 16).map_err(|_| refuse());
        }
        let end = self.text.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.text.len());
        let (digits, letters) = self.text.split_at(end);
        let number: u64 = digits.parse().map_err(|_| refuse())?;
        suffix(letters.trim(), self.kb_base).and_then(|unit| number.checked_mul(unit)).ok_or_else(refuse)
    }

    /// Evaluates an expression in parentheses; `None` if the value has no parentheses.
    fn expression(self) -> Option<Result<i128, String>> {
        let inner = self.text.strip_prefix('(')?;
        inner.ends_with(')').then(|| evaluate(self.text, self.kb_base))
    }

    /// Parses a whole number into type `T`; fails if the number is out of its range.
    pub(super) fn number<T: TryFrom<u64>>(self) -> Result<T, String> {
        let value = self.whole()?;
        T::try_from(value).map_err(|_| format!("{value} is too large"))
    }

    /// Parses a whole number; `None` for 0, which selects fio's default.
    pub(super) fn unless_zero<T: TryFrom<u64> + PartialEq + Default>(self) -> Result<Option<T>, String> {
        self.number().map(|value| Some(value).filter(|value| *value != T::default()))
    }

    /// Parses a size. Rejects percentages and numbers of zones, because the target is unknown here.
    pub(super) fn bytes(self) -> Result<Bytes, String> {
        if self.text.ends_with('%') {
            return Err("a share of what exists is not known here; accepted: a size such as 1g".into());
        }
        if self.text.ends_with(['z', 'Z']) {
            return Err("zones of a zoned device are not known here; accepted: a size such as 256m".into());
        }
        self.whole().map(Bytes)
    }

    /// Parses a percentage from 0 to 100, with or without a percent sign.
    pub(super) fn percent(self) -> Result<u8, String> {
        match self.with(self.text.strip_suffix('%').unwrap_or(self.text)).whole() {
            Ok(percent @ 0..=100) => Ok(u8::try_from(percent).unwrap_or(100)),
            _ => Err("accepted: 0 to 100 (percent)".into()),
        }
    }

    /// Parses a time. A number without a unit is in seconds, but the value of an expression in parentheses is in microseconds.
    pub(super) fn seconds(self) -> Result<Nanos, String> {
        self.time(1_000_000_000)
    }

    /// Parses a time; a number without a unit is in microseconds.
    pub(super) fn microseconds(self) -> Result<Nanos, String> {
        self.time(1000)
    }

    fn time(self, default: u64) -> Result<Nanos, String> {
        let refuse = || format!("accepted: {TIMES}");
        if let Some(value) = self.expression() {
            // In an expression, a number without a unit is in microseconds, as in fio.
            let value = value.map_err(|why| format!("{why}; {}", refuse()))?;
            let nanos = u64::try_from(value).ok().and_then(|value| value.checked_mul(1000));
            return nanos.map(Nanos).ok_or_else(refuse);
        }
        let end = self.text.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.text.len());
        let (digits, letters) = self.text.split_at(end);
        let number: u64 = digits.parse().map_err(|_| refuse())?;
        let unit = match letters.trim().to_ascii_lowercase().as_str() {
            "" => default,
            "us" | "usec" => 1000,
            "ms" | "msec" => 1_000_000,
            "s" | "sec" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(refuse()),
        };
        number.checked_mul(unit).map(Nanos).ok_or_else(refuse)
    }

    /// Parses values for reads, writes and trims, separated by commas. A single value applies to all; of two values, the second applies to
    /// writes and trims. An empty value gives `None`.
    pub(super) fn triple<T: Clone>(
        self,
        one: impl Fn(Self) -> Result<T, String>,
    ) -> Result<[Option<T>; 3], String> {
        let parts = self.text.split(',').map(|part| self.with(part));
        let parts = parts.map(|part| if part.text.is_empty() { Ok(None) } else { one(part).map(Some) });
        match parts.collect::<Result<Vec<_>, _>>()?.as_slice() {
            [all] => Ok([all.clone(), all.clone(), all.clone()]),
            [read, others] => Ok([read.clone(), others.clone(), others.clone()]),
            [read, write, trim] => Ok([read.clone(), write.clone(), trim.clone()]),
            more => Err(format!("{} values; accepted: up to 3, for reads, writes and trims", more.len())),
        }
    }

    /// Parses a range, whose bounds may have either order; a single size is both bounds. Returns the smaller bound first.
    pub(super) fn range(self) -> Result<(Bytes, Bytes), String> {
        let (one, other) = self.text.split_once(['-', ':']).unwrap_or((self.text, self.text));
        let (one, other) = (self.with(one).bytes()?, self.with(other).bytes()?);
        Ok((one.min(other), one.max(other)))
    }

    /// Parses a word that has the same meaning in fio and iotax.
    pub(super) fn word<T: FromStr<Err: std::fmt::Display>>(self) -> Result<T, String> {
        self.text.parse().map_err(|error: T::Err| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> OptionValue<'_> {
        OptionValue { text, kb_base: 1024 }
    }

    #[test]
    fn sizes_are_read_as_fio_3_33_reads_them() {
        for (text, bytes, bytes_of_1000) in [
            ("512", 512, 512),
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            ("4ki", 4096, 4000),
            ("4KiB", 4000, 4096),
            ("1m", 1 << 20, 1_000_000),
            ("2G", 2 << 30, 2_000_000_000),
            ("0x10", 16, 16),
            ("(4 * 8k)", 32768, 32000),
            ("((1k+2)*-2 + 10k)", 8188, 7996),
            ("(2^10 % 1000)", 24, 24),
            ("(7/2)", 3, 3),
        ] {
            assert_eq!(value(text).bytes(), Ok(Bytes(bytes)), "{text}");
            let value = OptionValue { kb_base: 1000, ..value(text) };
            assert_eq!(value.bytes(), Ok(Bytes(bytes_of_1000)), "{text}");
        }
    }

    #[test]
    fn what_fio_would_guess_at_is_refused() {
        for (text, why) in [
            ("", "accepted: a whole number"),
            ("1.5m", "accepted: a whole number"),
            ("1q", "accepted: a whole number"),
            ("-1m", "accepted: a whole number"),
            ("8*1024", "in parentheses"),
            ("50%", "a share of what exists"),
            ("2z", "zones"),
            ("99999999999p", "accepted"),
            ("(1/0)", "it divides by 0"),
            ("(1+)", "\"\" is not a number"),
            ("(1+(2)", "a parenthesis is not closed"),
            ("(1 2)", "not closed"),
            ("(1)(2)", "one too many"),
            ("(1-2)", "accepted"),
            ("(9^99999)", "larger than any number"),
            (&format!("({}1)", "-".repeat(9999)), "deeper than 64"),
            (&format!("({}1)", "2^".repeat(9999)), "deeper than 64"),
        ] {
            let error = value(text).bytes().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn times_have_the_unit_of_their_option() {
        for (text, seconds, microseconds) in [
            ("5", 5_000_000_000, 5_000),
            ("5ms", 5_000_000, 5_000_000),
            ("2m", 120_000_000_000, 120_000_000_000),
            ("3 usec", 3_000, 3_000),
            ("1H", 3_600_000_000_000, 3_600_000_000_000),
            ("(5*2)", 10_000, 10_000),
        ] {
            assert_eq!(value(text).seconds(), Ok(Nanos(seconds)), "{text}");
            assert_eq!(value(text).microseconds(), Ok(Nanos(microseconds)), "{text}");
        }
        for text in ["", "1:30", "10x", "5ns", "99999999999999999999"] {
            assert!(value(text).seconds().expect_err(text).contains("accepted: a whole number with us"));
        }
    }

    #[test]
    fn a_blank_direction_keeps_its_default() {
        let triple = |text| value(text).triple(OptionValue::whole);
        assert_eq!(triple("4k"), Ok([Some(4096); 3]));
        assert_eq!(triple("4k,8k"), Ok([Some(4096), Some(8192), Some(8192)]));
        assert_eq!(triple(",8k,"), Ok([None, Some(8192), None]));
        assert!(triple("1,2,3,4").is_err() && triple("1,x").is_err());
        assert_eq!(value("8k-4k").range(), Ok((Bytes(4096), Bytes(8192))));
        assert_eq!(value("4k:8k").range(), Ok((Bytes(4096), Bytes(8192))));
    }
}
