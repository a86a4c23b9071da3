//! Parses numbers and units as tools write them.

/// Parses a plain number: digits with at most one point, optionally a sign and an exponent. Rejects `inf`, `nan`, and `1,234`, whose meaning
/// depends on the locale.
pub(super) fn number(text: &str) -> Option<f64> {
    let allowed = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    let is_number =
        text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')) && text.chars().all(allowed);
    is_number.then(|| text.parse::<f64>().ok()).flatten().filter(|value| value.is_finite())
}

/// Returns the largest plausible value in a unit; a larger one must have been read wrongly.
fn most(unit: &str) -> f64 {
    match unit {
        // The largest systems reach at most a hundredth of this.
        "IOPS" | "1/s" | "/s" => 1e12,
        "B/s" => 1e18,
        "bit/s" => 8e18,
        // Nothing has run for a hundred years.
        "ns" => CENTURY_NS,
        "us" => CENTURY_NS / 1e3,
        "ms" => CENTURY_NS / 1e6,
        "s" => CENTURY_NS / 1e9,
        // 100,000 fully used CPUs.
        "%" => 1e7,
        // The maximum byte rate for the maximum time.
        "B" => 1e18 * CENTURY_NS / 1e9,
        // No counter has more than 64 bits.
        _ => 2e19,
    }
}

/// A hundred years in nanoseconds.
const CENTURY_NS: f64 = 3.156e18;

/// Explains why a figure is impossible: negative, or larger than any machine can reach. `None` if it is possible; temperatures may be
/// negative.
pub(super) fn impossible(value: f64, unit: &str) -> Option<String> {
    if value < 0.0 && unit != "\u{b0}C" {
        return Some("it is below 0".to_owned());
    }
    let most = most(unit);
    (value > most)
        .then(|| format!("it is more than any machine has: {most:.0e} {unit}").trim_end().to_owned())
}

/// Splits `12.5MiB/s` or `404 usec` into number and unit.
pub(super) fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    Some((number(&text[..end])?, text[end..].trim_start()))
}

/// Returns the bytes per unit: `B`, `kB` and `KB` (1000), `KiB` (1024) and so on up to `P`. Only `k` may be in either case; `b`, which means bits,
/// is rejected.
pub(super) fn bytes_in(unit: &str) -> Option<f64> {
    let base: f64 = match unit.strip_suffix("iB") {
        Some(letter) if letter.len() == 1 => 1024.0,
        _ => 1000.0,
    };
    let letter = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B'))?;
    let power = match letter {
        "" => 0,
        "k" | "K" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        _ => return None,
    };
    Some(base.powi(power))
}

/// Returns the nanoseconds per unit of time, by the abbreviations of fio, ping and others; `None` for other words.
pub(super) fn nanos_in(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" | "nsec" => 1.0,
        "us" | "usec" => 1e3,
        "ms" | "msec" => 1e6,
        "s" | "sec" | "secs" | "seconds" => 1e9,
        "m" | "min" => 60e9,
        _ => return None,
    })
}
