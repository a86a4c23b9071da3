//! Parses values of vdbench keys: numbers, sizes, times and lists.

use super::lines::VdbenchKey;
use iotax_model::units::{Bytes, Nanos};

/// Maximum number of values to which a list expands.
const MOST: usize = 1000;

/// Returns the value of a key that must have exactly one.
pub(super) fn one(key: &VdbenchKey) -> Result<&str, String> {
    match key.values.as_slice() {
        [one] => Ok(one),
        _ => Err("accepted: one value".to_owned()),
    }
}

/// Parses a whole number of at most `most`.
pub(super) fn number(text: &str, most: u64) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number <= most => Ok(number),
        _ => Err(format!("{text:?} is not a whole number from 0 to {most}")),
    }
}

/// A share in ten-thousandths of a percent; 1,000,000 is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share(pub(super) u64);

impl Share {
    /// A share of 100%.
    pub(super) const WHOLE: u64 = 1_000_000;
}

/// Parses a percentage with up to four decimals.
pub(super) fn share(text: &str) -> Result<Share, String> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let parts = format!("{whole}{decimals:0<4}");
    let is_number =
        parts.len() < 10 && decimals.len() <= 4 && parts.bytes().all(|digit| digit.is_ascii_digit());
    let parts = parts.parse().ok().filter(|parts| is_number && *parts <= Share::WHOLE);
    parts.map(Share).ok_or_else(|| format!("{text:?} is not a percentage from 0 to 100 such as 40 or 62.5"))
}

/// Parses a size in bytes; suffixes k, m, g and t are powers of 1024.
pub(super) fn size(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|_| format!("{text:?} is not a size such as 4k, 1m or 10g"))
}

/// Parses a time in seconds; suffix m is minutes, h is hours.
pub(super) fn time(text: &str) -> Result<Nanos, String> {
    let lower = text.to_lowercase();
    let (digits, unit) = match lower.strip_suffix(['s', 'm', 'h']) {
        Some(digits) => (digits, &lower[digits.len()..]),
        None => (lower.as_str(), "s"),
    };
    let scale = match unit {
        "h" => 3600,
        "m" => 60,
        _ => 1,
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    let ns = seconds.and_then(|seconds| seconds.checked_mul(1_000_000_000));
    ns.map(Nanos).ok_or_else(|| format!("{text:?} is not a time: seconds, or 5m, 2h"))
}

/// Expands a list of numbers: `1,2,4`, `1-10,1` (from, to, step) or `1-64,d` (doubling).
pub(super) fn list(values: &[String]) -> Result<Vec<String>, String> {
    let range = values.first().and_then(|first| first.split_once('-'));
    let (Some((from, to)), [_, step]) = (range, values) else { return Ok(values.to_vec()) };
    let (from, to) = (size(from)?.0, size(to)?.0);
    let next: Box<dyn Fn(u64) -> u64> = match step.as_str() {
        "d" | "D" if from > 0 => Box::new(|value| value.saturating_mul(2)),
        step => {
            let step = size(step)?.0;
            if step == 0 {
                return Err("a step of 0 leads nowhere".to_owned());
            }
            Box::new(move |value: u64| value.saturating_add(step))
        }
    };
    let all: Vec<u64> = std::iter::successors(Some(from), |value| Some(next(*value)))
        .take_while(|value| *value <= to && *value < u64::MAX)
        .take(MOST + 1)
        .collect();
    if all.len() > MOST || all.is_empty() {
        return Err(format!("accepted: from 1 to {MOST} values, from the lower to the higher"));
    }
    Ok(all.iter().map(ToString::to_string).collect())
}

/// Returns the known names that match any of the patterns: a name, or a prefix with `*`.
pub(super) fn names<'a>(patterns: &[String], known: &[&'a str]) -> Result<Vec<&'a str>, String> {
    let mut found: Vec<&str> = Vec::new();
    for pattern in patterns {
        let is_meant = |name: &&str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        let matching: Vec<&str> = known.iter().copied().filter(is_meant).collect();
        found.extend(matching.iter().filter(|name| !found.contains(*name)).collect::<Vec<_>>());
        if matching.is_empty() {
            return Err(match known {
                [] => format!("{pattern:?} is not defined, nor is any other above it"),
                known => format!("{pattern:?} is not defined above; accepted: {}", known.join(", ")),
            });
        }
    }
    Ok(found)
}
