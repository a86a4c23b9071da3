//! Computes UnixBench's index for a run of the suite `filecopy`.
//!
//! Each copy's index is KiB copied per second divided by that of a SPARCstation 20, times 10; the overall index is their
//! geometric mean. Over several rounds the worst third is dropped and the geometric mean of the others taken, as UnixBench does
//! with its passes.

use schemars::JsonSchema;
use serde::Serialize;

use iotax_model::{CellKey, Run};

use crate::stats::geometric_mean;

/// The copy tests: name, UnixBench's title, baseline in KiB/s.
const BASELINES: [(&str, &str, f64); 3] = [
    ("fstime", "File Copy 1024 bufsize 2000 maxblocks", 3960.0),
    ("fsbuffer", "File Copy 256 bufsize 500 maxblocks", 1655.0),
    ("fsdisk", "File Copy 4096 bufsize 8000 maxblocks", 5800.0),
];

/// UnixBench's file copy index of one target.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Index {
    /// Name of the target.
    pub target: String,
    /// The measured copy tests, in UnixBench's order.
    pub copies: Vec<Copy>,
    /// The geometric mean of the indexes of the three copy tests; absent if one was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<f64>,
}

/// The result of one copy test.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Copy {
    /// Name of the workload.
    pub workload: &'static str,
    /// UnixBench's name of the copy test.
    pub title: &'static str,
    /// KiB copied per second by the target.
    pub kib_per_s: f64,
    /// KiB copied per second by the SPARCstation 20 that is the baseline of the index.
    pub baseline_kib_per_s: f64,
    /// Index of the copy test: ten times `kib_per_s` divided by `baseline_kib_per_s`.
    pub index: f64,
    /// Number of rounds that `kib_per_s` is the geometric mean of; the slowest third is left out.
    pub rounds: usize,
}

/// Computes the indexes of all targets with a measured copy; empty for other suites.
#[must_use]
pub fn indexes(run: &Run) -> Vec<Index> {
    if run.plan.suite.as_deref() != Some("filecopy") {
        return Vec::new();
    }
    let of = |target: &str| {
        let copies: Vec<Copy> = BASELINES.iter().filter_map(|copy| measured(run, target, copy)).collect();
        let all = (copies.len() == BASELINES.len()).then(|| {
            let indexes: Vec<f64> = copies.iter().map(|copy| copy.index).collect();
            mean_of(&indexes)
        });
        let index = all.flatten();
        (!copies.is_empty()).then(|| Index { target: target.to_owned(), copies, index })
    };
    run.plan.targets.iter().filter_map(|target| of(&target.name)).collect()
}

fn measured(
    run: &Run,
    target: &str,
    &(workload, title, baseline_kib_per_s): &(&'static str, &'static str, f64),
) -> Option<Copy> {
    let ours = run.measured().filter(|m| m.cell() == CellKey { workload, target });
    let mut rates: Vec<f64> = ours
        .filter_map(|measured| {
            let seconds = measured.outcome.duration_ns as f64 / 1e9;
            let copied = measured.outcome.tallies.write.as_ref()?.bytes;
            (seconds > 0.0 && copied > 0).then(|| copied as f64 / 1024.0 / seconds)
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    // The lowest are the worst.
    let kept = &rates[rates.len() / 3..];
    let kib_per_s = mean_of(kept)?;
    let index = kib_per_s / baseline_kib_per_s * 10.0;
    Some(Copy { workload, title, kib_per_s, baseline_kib_per_s, index, rounds: kept.len() })
}

/// Returns the geometric mean; `None` for an empty slice.
fn mean_of(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| geometric_mean(values))
}
