//! Parses whole numbers and percentages from text, with errors that name the accepted range.

use std::ops::RangeInclusive;

use schemars::Schema;
use serde_json::{Value, json};

/// Parses a whole number within a range: `1000`, `1_000`, `1k`, `1.27k`, `3M` (powers of 1000).
///
/// # Errors
/// The text is no whole number or lies outside the range. The message quotes the text and names the range.
pub fn whole<T: TryFrom<u64>>(text: &str, range: &RangeInclusive<u64>) -> Result<T, String> {
    let refuse = |why| format!("{text:?} is {why}; accepted: {}", accepted(range));
    let value = value(text.trim()).ok_or_else(|| refuse("not a whole number"))?;
    let value = Some(value).filter(|value| range.contains(value)).and_then(|value| T::try_from(value).ok());
    value.ok_or_else(|| refuse("out of range"))
}

/// Parses a whole percentage within a range: `70` or `70%`.
///
/// # Errors
/// The text is no whole percentage or lies outside the range. The message quotes the text and names the range.
pub fn percentage<T: TryFrom<u64>>(text: &str, range: &RangeInclusive<u64>) -> Result<T, String> {
    let number = text.trim();
    let number = number.strip_suffix('%').unwrap_or(number);
    whole(number, range).map_err(|_| {
        format!("{text:?} is not a whole percentage; accepted: {}, such as 70%", accepted(range))
    })
}

/// JSON Schema pattern of a number in quotes.
const QUOTED: &str = r"^\s*\d[\d_]*(\.\d+)?\s*[kKmMgG]?\s*$";
/// JSON Schema pattern of a percentage in quotes.
const QUOTED_PERCENTAGE: &str = r"^\s*\d+\s*%?\s*$";

/// Extends the JSON Schema of a table, so that numbers may also be quoted text, as [`whole`] and [`percentage`] parse it.
pub(crate) fn or_text(table: &mut Schema) {
    let properties = table.get_mut("properties").and_then(Value::as_object_mut);
    for form in properties.into_iter().flatten().map(|(_, form)| form) {
        let has = |form: &Value, kind: &str| {
            form["type"].as_array().is_some_and(|kinds| kinds.contains(&json!(kind)))
        };
        if has(form, "integer") {
            let is_percentage = form["format"] == "uint8";
            form["pattern"] = json!(if is_percentage { QUOTED_PERCENTAGE } else { QUOTED });
            if let Some(kinds) = form["type"].as_array_mut() {
                kinds.push(json!("string"));
            }
        }
    }
}

/// Formats a range for an error message: `1 to 4096`; without an upper limit `1 and more, such as 500 or 10k`.
#[must_use]
pub fn accepted(range: &RangeInclusive<u64>) -> String {
    match (range.start(), range.end()) {
        (least, &u64::MAX) => format!("{least} and more, such as 500 or 10k"),
        (least, most) => format!("{least} to {most}"),
    }
}

fn value(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let unit: u64 = match text[end..].trim_start() {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return None,
    };
    let digits = text[..end].replace('_', "");
    let (whole, decimals) = digits.split_once('.').unwrap_or((&digits, ""));
    if decimals.len() > 9 || (digits.contains('.') && decimals.is_empty()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if decimals.is_empty() {
        return Some(whole);
    }
    let parts = decimals.parse::<u64>().ok()?.checked_mul(unit)?;
    let scale = 10_u64.pow(u32::try_from(decimals.len()).ok()?);
    parts.is_multiple_of(scale).then(|| whole.checked_add(parts / scale))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::human;

    const ANY: RangeInclusive<u64> = 0..=u64::MAX;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, number) in [
            ("0", 0),
            ("1000", 1000),
            ("1_000_000", 1_000_000),
            ("1k", 1000),
            ("10K", 10_000),
            ("1.27k", 1270),
            ("3M", 3_000_000),
            (" 2.5 m ", 2_500_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(whole(text, &ANY), Ok(number), "{text}");
        }
        for text in
            ["", "k", "-1", "1.5", "1.2345k", "1e3", "10kk", "1,000", "0x10", "99999999999G", "1.", "10 %"]
        {
            let error = whole::<u64>(text, &ANY).expect_err(text);
            assert!(error.contains(&format!("{text:?}")) && error.contains("0 and more"), "{error}");
        }
    }

    #[test]
    fn a_refusal_names_the_range_of_the_option() {
        assert_eq!(whole::<u32>("0", &(1..=4096)), Err("\"0\" is out of range; accepted: 1 to 4096".into()));
        assert_eq!(percentage("70%", &(0..=100)), Ok(70_u8));
        assert_eq!(percentage(" 70 % ", &(0..=100)), Ok(70_u8));
        for text in ["101%", "300", "7.5%", "%", "-1%"] {
            let error = percentage::<u8>(text, &(0..=100)).expect_err(text);
            assert!(
                error.contains(&format!("{text:?}")) && error.contains("0 to 100, such as 70%"),
                "{error}"
            );
        }
    }

    #[test]
    fn every_count_that_is_printed_reads_back() {
        for number in [1_u64, 950, 1270, 41_200, 999_000, 1_300_000, 72_000_000] {
            assert_eq!(whole(&human::count(number as f64), &ANY), Ok(number));
        }
    }
}
