//! What the tables do not show, and what is behind their figures.

use iotax_model::record::Tally;

use crate::judge::percentile::{name, needed};
use crate::report::figure::{grouped, listed};

/// Names the percentiles of a table's rows that had too few I/Os: `Not given for too few I/Os: p99.9 of 500 reads (10,000 are
/// needed)`. Absent if all are there; a row without I/O is no row.
pub(super) fn left_out(rows: &[(&str, &Tally)], quantiles: &[f64]) -> Option<String> {
    let mut missing: Vec<String> = Vec::new();
    for (row, tally) in rows {
        let ios = tally.latency.count();
        missing.extend(quantiles.iter().filter(|q| ios > 0 && ios < needed(**q)).map(|q| {
            format!("{} of {} {row} I/Os ({} are needed)", name(*q), grouped(ios), grouped(needed(*q)))
        }));
    }
    (!missing.is_empty()).then(|| format!("Not given: {}.", listed(&missing)))
}
