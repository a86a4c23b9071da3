//! Parses numbers in the fields of a line.

use super::lines::quoted;

/// Parses a whole number; `name` is the field's name for errors.
pub(super) fn whole(name: &str, text: Option<&str>) -> Result<u64, String> {
    let text = text.unwrap_or_default().trim();
    text.parse().map_err(|_| format!("{name} is {}; accepted: a whole number below 2^64", quoted(text)))
}

/// Multiplies a value by a factor; fails if the product does not fit into 64 bits.
pub(super) fn times(name: &str, value: u64, factor: u64) -> Result<u64, String> {
    value
        .checked_mul(factor)
        .ok_or_else(|| format!("{name} is {value}: too large to be in bytes or nanoseconds"))
}

/// Parses seconds with decimals into nanoseconds.
pub(super) fn seconds(name: &str, text: &str) -> Result<u64, String> {
    let refused = || format!("{name} is {}; accepted: seconds, such as 0.004321", quoted(text));
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(refused());
    }
    let fraction = &fraction[..fraction.len().min(9)];
    let nanos: u64 = format!("{fraction:0<9}").parse().map_err(|_| refused())?;
    let whole: u64 = whole.parse().map_err(|_| refused())?;
    times(name, whole, 1_000_000_000)?.checked_add(nanos).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact_to_the_nanosecond() {
        for (text, ns) in [
            ("0.000000001", 1),
            ("1.5", 1_500_000_000),
            ("12", 12_000_000_000),
            ("0.1234567899", 123_456_789),
        ] {
            assert_eq!(seconds("time", text), Ok(ns), "{text}");
        }
        for text in ["", ".5", "-1.0", "1e3", "nan", "99999999999999999999"] {
            assert!(seconds("time", text).is_err(), "{text}");
        }
    }
}
