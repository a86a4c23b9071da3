//! Converts points in time to and from text.

use std::time::{Duration, UNIX_EPOCH};

/// 9999-12-31T23:59:59Z, the last second that RFC 3339 can write, in milliseconds since 1970-01-01 UTC.
const LAST_MS: u64 = 253_402_300_799_000;

/// Formats milliseconds since 1970-01-01 UTC as `2026-01-31T12:00:00Z`. Times after the year 9999 become its last second.
#[must_use]
pub fn utc(ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS))).to_string()
}

/// Parses a UTC date or time, `2026-01-31` or `2026-01-31T12:00:00Z`, to milliseconds since 1970-01-01 UTC. `None` if malformed or before
/// 1970.
#[must_use]
pub fn parsed(text: &str) -> Option<u64> {
    let time = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let since = humantime::parse_rfc3339_weak(&time).ok()?.duration_since(UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

/// Returns the three-letter month of a text from [`utc`]; empty for other text.
pub fn month(utc: &str) -> &'static str {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let number = utc.get(5..7).and_then(|month| month.parse::<usize>().ok());
    number.and_then(|month| MONTHS.get(month.checked_sub(1)?)).copied().unwrap_or_default()
}
