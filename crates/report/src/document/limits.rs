//! Shows rate limits in front of a storage target, and the measured rates that reveal them.

use iotax_analysis::limits::{LimitsOnTarget, limits};
use iotax_model::Run;
use iotax_model::units::human;

use super::{Grid, Page, Part, figure, words};
use crate::figure::{megabytes, share};
use crate::limits::sentences;

/// Adds the rate limits found by the suite `audit` to the page. Returns whether there is anything to show: false for other runs, and
/// without a sustained rate.
pub(super) fn add(page: &mut Page, run: &Run) -> bool {
    let all = limits(run);
    if all.is_empty() {
        return false;
    }
    page.add(Part::Head("Which rate limit is in front of it?".into()));
    page.add_lines(all.iter().flat_map(|found| sentences(run, found)).collect());
    page.add(Part::Table(table(&all)));
    true
}

/// Returns the page section on rate limits for HTML; empty for a run of another suite, and without a sustained rate.
pub(crate) fn section(run: &Run) -> Page {
    let mut page = Page::default();
    add(&mut page, run);
    page
}

/// Builds the table of sustained rates and initial bursts, with one row per workload and target.
fn table(all: &[LimitsOnTarget<'_>]) -> Grid {
    let several = all.len() > 1;
    let mut head = vec![words("")];
    head.extend(several.then(|| words("target")));
    head.extend(["sustained IOPS", "MB/s", "scatter", "at first", "for"].map(figure));
    let mut rows = Vec::new();
    for of_target in all {
        for rate in &of_target.rates {
            let burst = |text: &dyn Fn(f64, f64) -> String| {
                rate.burst.map(|burst| text(burst.rate, burst.seconds)).unwrap_or_default()
            };
            let mut row = vec![words(rate.workload.name.as_str())];
            row.extend(several.then(|| words(of_target.target)));
            row.extend(
                [
                    human::count(rate.ios),
                    megabytes(rate.ios * rate.workload.bs.0 as f64),
                    share(rate.scatter),
                    burst(&|rate, _| human::count(rate)),
                    burst(&|_, seconds| human::time(seconds * 1e9)),
                ]
                .map(figure),
            );
            rows.push(row);
        }
    }
    Grid { head, rows }
}
