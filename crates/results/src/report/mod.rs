//! What people read: sentences, terminal tables, one HTML file.

mod beside;
mod course;
pub(crate) mod figure;
pub mod html;
pub mod markdown;
mod marks;
mod network;
pub mod page;
mod passed;
mod remarks;
pub mod terminal;
pub mod words;

use std::time::{Duration, UNIX_EPOCH};

use iotax_model::Plan;

use crate::store::Run;

/// 9999-12-31T23:59:59Z, the last second that RFC 3339 can write.
const LAST_MS: u64 = 253_402_300_799_000;

/// Milliseconds since 1970-01-01 UTC as `2026-01-31T12:00:00Z`.
#[must_use]
pub fn utc(ms: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms.min(LAST_MS))).to_string()
}

/// The month of what [`utc`] gives, in three letters.
pub(crate) fn month(utc: &str) -> &'static str {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let number = utc.get(5..7).and_then(|month| month.parse::<usize>().ok());
    number.and_then(|month| MONTHS.get(month.checked_sub(1)?)).copied().unwrap_or_default()
}

/// The run's plan as a file that `iotax run` reads, with the seed that the run used. A seed beyond TOML's integers
/// (2^63 - 1) is left out.
pub fn plan_toml(run: &Run) -> Result<String, toml::ser::Error> {
    let seed = Some(run.seed).filter(|seed| i64::try_from(*seed).is_ok());
    Plan { seed, ..run.plan.clone() }.to_toml()
}
