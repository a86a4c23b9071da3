//! What several readers need: numbers with a comma, JSON among other text.

use serde_json::Value;

use super::Line;
use super::quantity::number;

/// A number of a tool that groups no digits, so that a comma is the decimal point of somebody's country.
pub(super) fn decimal(text: &str) -> Option<f64> {
    match text.matches(',').count() {
        0 => number(text),
        1 if !text.contains('.') && !text.ends_with(',') => number(&text.replace(',', ".")),
        _ => None,
    }
}

/// Whether two figures that say the same of one thing agree, as far as `share` of the larger one.
pub(super) fn agree(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * a.abs().max(b.abs())
}

/// By how much at most the value of a printed number was rounded: half a unit of its last digit.
pub(super) fn half_a_digit(text: &str) -> f64 {
    let digits = text.trim_start_matches('-').split(['.', ',']).nth(1).map_or(0, str::len);
    0.5 / 10f64.powi(i32::try_from(digits).unwrap_or(i32::MAX))
}

/// A time in whole nanoseconds; absent if it is none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be above 0 and less than a year"
)]
pub(super) fn whole_nanos(ns: f64) -> Option<u64> {
    (0.0..3.2e16).contains(&ns).then_some(ns.round() as u64)
}

/// A line with its number as not understood.
pub(super) fn not_understood(number: usize, text: &str, reason: &str) -> Line {
    Line { number, text: text.trim().to_owned(), reason: reason.to_owned() }
}

/// The JSON objects that begin a line of a text, each with the line's number from 1. `nan` and `inf`, which some tools write
/// though JSON has no word for them, are read as null: not known. An object within an object is not given by itself.
pub(super) fn json_objects(text: &str) -> Vec<(usize, Value)> {
    let text = with_nulls(text);
    let mut found = Vec::new();
    let (mut offset, mut line) = (0, 1);
    while offset < text.len() {
        let rest = &text[offset..];
        let end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        let mut used = end;
        if rest.trim_start_matches([' ', '\t']).starts_with('{') {
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            match values.next() {
                Some(Ok(value)) => {
                    found.push((line, value));
                    used = end_of_line(rest, values.byte_offset());
                }
                // What is cut off has no complete object after it; what is broken ends where it is broken.
                Some(Err(error)) if error.is_eof() => break,
                Some(Err(error)) => used = start_of_line(rest, error.line()).max(end),
                None => {}
            }
        }
        line += rest[..used].matches('\n').count();
        offset += used;
    }
    found
}

fn end_of_line(text: &str, from: usize) -> usize {
    text[from..].find('\n').map_or(text.len(), |at| from + at + 1)
}

/// Where a line begins, its number from 1.
fn start_of_line(text: &str, number: usize) -> usize {
    text.split_inclusive('\n').take(number.saturating_sub(1)).map(str::len).sum()
}

/// The text with `nan`, `-nan`, `inf` and `-inf` outside of quotes as null; lines stay where they are.
fn with_nulls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (mut rest, mut quoted) = (line, false);
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !c.is_ascii_alphabetic() && c != '-').unwrap_or(rest.len());
            let used = match rest[..word].trim_start_matches('-') {
                "nan" | "NaN" | "inf" | "Infinity" if !quoted => {
                    out.push_str("null");
                    word
                }
                _ => {
                    quoted ^= first == '"';
                    // What a backslash stands before ends nothing.
                    let used = if first == '\\' { rest.len().min(2) } else { word.max(first.len_utf8()) };
                    let used =
                        (used..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
                    out.push_str(&rest[..used]);
                    used
                }
            };
            rest = &rest[used..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_is_a_point_where_no_digits_are_grouped() {
        for (text, value) in [
            ("1.5", Some(1.5)),
            ("1,5", Some(1.5)),
            ("12", Some(12.0)),
            ("1.234,5", None),
            ("1,", None),
            ("nan", None),
        ] {
            assert_eq!(decimal(text), value, "{text}");
        }
        assert_eq!([half_a_digit("12"), half_a_digit("1.5"), half_a_digit("-1,25")], [0.5, 0.05, 0.005]);
    }

    #[test]
    fn objects_are_found_between_other_text_broken_ones_and_without_figures() {
        let text = "hello {\n{\"a\": 1}\nwords\n  {\"b\": nan,\n\"c\": -nan\n}\n{\"broken\": ]\n{\"d\": {\n\"e\": 2}} after\n{\"cut\": [";
        let objects = json_objects(text);
        assert_eq!(objects.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 4, 8]);
        assert!(objects[1].1["b"].is_null() && objects[1].1["c"].is_null());
        assert_eq!(objects[2].1["d"]["e"], 2);
    }

    #[test]
    fn broken_text_is_read_in_time_that_grows_with_it_and_no_faster() {
        let deep = "{\"a\":\n".repeat(20_000);
        let start = std::time::Instant::now();
        assert!(json_objects(&deep).is_empty() && json_objects(&"{\n".repeat(20_000)).is_empty());
        assert!(start.elapsed().as_secs() < 20);
    }
}
