//! Writes a run in the format of fio 3.33, for programs that read fio's output.
//!
//! A workload on a target is one job with its rounds merged. Values that iotax does not measure look like fio's without samples: an `N` of 0 for
//! latencies, 0 for all shares. Values for which fio has no such form are left out. `docs/formats.md` lists both kinds.

mod job;
mod json;
mod latency;
mod normal;
mod rounds;
mod terse;

use super::Unfit;
use iotax_analysis::time::{month, utc};
use iotax_model::Run;
use iotax_report::mark::{Mark, MarkPosition, Value};

/// Text in fio's version field. Readers take the digits before the second dash as the version of the format.
pub const VERSION: &str = concat!("fio-3.33-iotax-", env!("CARGO_PKG_VERSION"));

/// Mark that identifies JSON output as iotax's by its version field.
pub(super) const JSON_MARK: Mark = Mark {
    format: "fio-json",
    position: MarkPosition::Member(&["fio version"], Value::Begins("fio-3.33-iotax-")),
};

/// Mark that identifies each terse line as iotax's by its version field.
pub(super) const TERSE_MARK: Mark =
    Mark { format: "fio-terse", position: MarkPosition::EveryLine(&["3;fio-3.33-iotax-"]) };

/// Writes a run as fio's `--output-format=json`.
///
/// # Errors
/// The run has no measurement, or a result that fio's formats cannot express.
pub fn json(run: &Run) -> Result<String, Unfit> {
    json::text(run, false)
}

/// Writes a run as fio's `--output-format=json+`, which adds histogram bins.
///
/// # Errors
/// Same as [`json()`].
pub fn json_plus(run: &Run) -> Result<String, Unfit> {
    json::text(run, true)
}

/// Writes a run as fio's `--output-format=terse`, version 3.
///
/// # Errors
/// Same as [`json()`].
pub fn terse(run: &Run) -> Result<String, Unfit> {
    terse::text(run)
}

/// Writes a run as fio's `--output-format=normal`.
///
/// # Errors
/// Same as [`json()`].
pub fn normal(run: &Run) -> Result<String, Unfit> {
    normal::text(run)
}

/// Raises a percentage above 0 to at least 0.01, so that it is never shown as 0.00.
fn shown_share(percent: f64) -> f64 {
    if percent > 0.0 { percent.max(0.01) } else { 0.0 }
}

/// Formats a time like C's `ctime`, in UTC: `Sun Nov 22 03:51:33 2026`.
fn ctime(ms: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    // 2026-11-22T03:51:33Z; 1970 began on a Thursday.
    let utc = utc(ms);
    let weekday = usize::try_from(ms / 86_400_000 % 7).map_or("", |day| DAYS[day]);
    let month = month(&utc);
    let day = utc[8..10].trim_start_matches('0');
    format!("{weekday} {month} {day:>2} {} {}", &utc[11..19], &utc[..4])
}
