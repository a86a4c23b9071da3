//! Functions that several readers share: decimal commas, percentiles, lines that were not understood.

use super::quantity::number;
use super::{Entry, Line};
use iotax_analysis::Metric;

/// Parses a number with a decimal point or comma, for tools that never group thousands.
pub(super) fn decimal(text: &str) -> Option<f64> {
    match text.matches(',').count() {
        0 => number(text),
        1 if !text.contains('.') && !text.ends_with(',') => number(&text.replace(',', ".")),
        _ => None,
    }
}

/// Returns whether two figures of the same quantity differ by at most `share` of the larger one.
pub(super) fn agree(a: f64, b: f64, share: f64) -> bool {
    (a - b).abs() <= share * a.abs().max(b.abs())
}

/// Returns the largest rounding error of a printed number: half a unit of its last digit.
pub(super) fn half_a_digit(text: &str) -> f64 {
    let digits = text.trim_start_matches('-').split(['.', ',']).nth(1).map_or(0, str::len);
    0.5 / 10f64.powi(i32::try_from(digits).unwrap_or(i32::MAX))
}

/// Rounds a time to whole nanoseconds; `None` if negative or longer than a year.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be above 0 and less than a year"
)]
pub(super) fn whole_nanos(ns: f64) -> Option<u64> {
    (0.0..3.2e16).contains(&ns).then_some(ns.round() as u64)
}

/// Creates a [`Line`] that reports why a line was not understood.
pub(super) fn not_understood(number: usize, text: &str, reason: &str) -> Line {
    Line { number, text: text.trim().to_owned(), reason: reason.to_owned() }
}

/// Adds a latency percentile: as an iotax metric if it is of all directions and iotax has this percentile, else as the tool's figure.
/// `before` is `"read "` or `"write "` for a single direction, else empty.
pub(super) fn add_percentile(entry: &mut Entry, before: &str, percent: &str, ns: Option<f64>) {
    let metric = match percent {
        "50" => Some(Metric::LATENCY_P50),
        "90" => Some(Metric::LATENCY_P90),
        "99" => Some(Metric::LATENCY_P99),
        "99.9" => Some(Metric::LATENCY_P99_9),
        _ => None,
    };
    match metric.filter(|_| before.is_empty()) {
        Some(metric) => entry.state(metric, ns),
        None => entry.add(format!("{before}latency_p{}", percent.replace('.', "_")), ns, "ns"),
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
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
}
