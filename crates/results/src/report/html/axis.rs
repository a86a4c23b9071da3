//! What axes of several charts share.

/// Widths in the charts' own units: half a page and a whole one.
pub(super) const HALF: f64 = 520.0;
pub(super) const WHOLE: f64 = 1072.0;

/// One unit for all ticks of an axis: its size in nanoseconds and its name.
pub(super) fn unit(most_ns: f64) -> (f64, &'static str) {
    match most_ns {
        v if v >= 1e9 => (1e9, "s"),
        v if v >= 1e6 => (1e6, "ms"),
        v if v >= 1e3 => (1e3, "us"),
        _ => (1.0, "ns"),
    }
}

/// A tick without needless zeros.
pub(super) fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
