//! A run in the format of fio 3.33, for programs that read fio's output.
//!
//! A workload on a target is one job, its rounds together. Values that iotax does not measure look like fio's without samples:
//! latencies with an `N` of 0, shares that are all 0. Values without such a form are left out. `docs/formats.md` lists both.

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

/// Takes the place of fio's version: readers take the figures before the second dash for the version of the format.
pub const VERSION: &str = concat!("fio-3.33-iotax-", env!("CARGO_PKG_VERSION"));

/// Marks the JSON as not written by fio, in its version.
pub(super) const JSON_MARK: Mark = Mark {
    format: "fio-json",
    place: MarkPosition::Member(&["fio version"], Value::Begins("fio-3.33-iotax-")),
};

/// Marks each terse line likewise.
pub(super) const TERSE_MARK: Mark =
    Mark { format: "fio-terse", place: MarkPosition::EveryLine(&["3;fio-3.33-iotax-"]) };

/// fio's `--output-format=json`.
///
/// # Errors
/// Something of the run has no place in fio's formats.
pub fn json(run: &Run) -> Result<String, Unfit> {
    json::text(run, false)
}

/// fio's `--output-format=json+`: with the bins of the histograms.
///
/// # Errors
/// As [`json()`].
pub fn json_plus(run: &Run) -> Result<String, Unfit> {
    json::text(run, true)
}

/// fio's `--output-format=terse`, version 3.
///
/// # Errors
/// As [`json()`].
pub fn terse(run: &Run) -> Result<String, Unfit> {
    terse::text(run)
}

/// fio's `--output-format=normal`.
///
/// # Errors
/// As [`json()`].
pub fn normal(run: &Run) -> Result<String, Unfit> {
    normal::text(run)
}

/// A percentage rounded for two decimals, but never to 0 if it is above 0.
fn shown_share(percent: f64) -> f64 {
    if percent > 0.0 { percent.max(0.01) } else { 0.0 }
}

/// A time in the format of C's `ctime`, in UTC: `Sun Nov 22 03:51:33 2026`.
fn ctime(ms: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    // 2026-11-22T03:51:33Z; 1970 began on a Thursday.
    let utc = utc(ms);
    let weekday = usize::try_from(ms / 86_400_000 % 7).map_or("", |day| DAYS[day]);
    let month = month(&utc);
    let day = utc[8..10].trim_start_matches('0');
    format!("{weekday} {month} {day:>2} {} {}", &utc[11..19], &utc[..4])
}
