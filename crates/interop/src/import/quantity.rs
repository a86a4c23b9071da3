//! Numbers and units as tools write them.

/// A plain number: digits with at most one point, perhaps a sign and an exponent. `inf` and `nan` are none, nor is `1,234`,
/// which is one number in one country and another in the next.
pub(super) fn number(text: &str) -> Option<f64> {
    let allowed = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    let looks =
        text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-')) && text.chars().all(allowed);
    looks.then(|| text.parse::<f64>().ok()).flatten().filter(|value| value.is_finite())
}

/// A number and the unit that is written with it: `12.5MiB/s`, `404 usec`.
pub(super) fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(text.len());
    Some((number(&text[..end])?, text[end..].trim_start()))
}

/// Bytes in a unit of bytes: `B`, `kB` and `KB` (1000), `KiB` (1024) and so on. Case does not matter, except for `b`, a bit,
/// which is no unit of bytes.
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

/// Nanoseconds in a unit of time, as fio, ping and others abbreviate it.
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
