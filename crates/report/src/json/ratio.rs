//! JSON of comparisons: ratio, interval and verdict.

use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, Metric, Ratio};
use schemars::JsonSchema;
use serde::Serialize;

/// A ratio with its confidence interval. The verdict is based on the interval from `low` to `high`.
#[derive(Serialize, JsonSchema)]
pub(super) struct RatioEntry<'a> {
    /// The compared value divided by the baseline's: a ratio of geometric means over the rounds.
    ratio: f64,
    #[serde(flatten)]
    interval: Option<Interval>,
    /// Confidence level of the interval: 0.95, or more for several comparisons (Holm's procedure). Absent without an interval.
    confidence: Option<f64>,
    #[serde(flatten)]
    interval_95: Interval95,
    /// Difference from the baseline in nanoseconds; only for metrics that are times.
    tax_ns: Option<TaxEntry>,
    /// Verdict on the ratio. For cpu_per_io and cpu_per_gib, `slower` means that it costs more CPU time, `faster` less.
    verdict: Verdict,
    /// Total number of rounds of each side that would decide the comparison, if the variance stays the same. Absent if decided, unknown, or
    /// above 1000.
    needed_rounds: Option<u32>,
    /// Reason why the verdict is withheld: the unusable measurement, and its problem. Absent if all measurements are usable.
    withheld: Option<&'a str>,
}

/// The 95% interval, without correction for multiple comparisons.
#[derive(Serialize, JsonSchema)]
pub(super) struct Interval95 {
    /// Lower end of the 95% interval, without correction for multiple comparisons.
    low_95: Option<f64>,
    /// Upper end of the 95% interval, without correction for multiple comparisons.
    high_95: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct TaxEntry {
    /// Mean difference from the baseline in nanoseconds; negative if less than the baseline.
    mean: f64,
    #[serde(flatten)]
    interval: Option<Interval>,
}

/// One target against another, on one workload, by one metric.
#[derive(Serialize, JsonSchema)]
pub(super) struct ComparisonEntry<'a> {
    workload: &'a str,
    metric: Metric,
    target: &'a str,
    baseline: &'a str,
    /// Two-sided p-value of a sign-flip permutation test for no difference; absent for fewer than six common rounds.
    sign_flip_p: Option<f64>,
    /// Number of rounds in which both targets have a value of the metric, without late replays.
    rounds: u32,
    /// Number of rounds at the interim look that decided the comparison, in a run that adds rounds until all is decided. Verdict and interval are
    /// those at that look; the ratio covers all rounds.
    decided_at: Option<u32>,
    #[serde(flatten)]
    ratio: RatioEntry<'a>,
}

/// A target compared with one that lacks one of its layers, differs in one setting, or has a virtio device in place of its guest.
#[derive(Serialize, JsonSchema)]
pub(super) struct StepEntry<'a> {
    /// The layer or setting: `LVM`, `virtio-blk + guest`, `cache=writeback instead of none`.
    name: &'a str,
    #[serde(flatten)]
    comparison: ComparisonEntry<'a>,
}

impl<'a> From<&'a Ratio> for RatioEntry<'a> {
    fn from(ratio: &'a Ratio) -> Self {
        Self {
            ratio: ratio.mean,
            interval: ratio.interval,
            confidence: ratio.confidence,
            interval_95: ratio.interval_95.into(),
            tax_ns: ratio.tax.map(|tax| TaxEntry { mean: tax.ns, interval: tax.interval }),
            verdict: ratio.verdict,
            needed_rounds: ratio.needed_rounds,
            withheld: ratio.withheld.as_deref(),
        }
    }
}

impl From<Option<Interval>> for Interval95 {
    fn from(interval: Option<Interval>) -> Self {
        Self { low_95: interval.map(|ends| ends.low), high_95: interval.map(|ends| ends.high) }
    }
}

impl<'a> From<&'a Comparison> for ComparisonEntry<'a> {
    fn from(c: &'a Comparison) -> Self {
        Self {
            workload: &c.workload,
            metric: c.metric,
            target: &c.target,
            baseline: &c.baseline,
            sign_flip_p: c.ratio.sign_flip_p,
            rounds: c.rounds,
            decided_at: c.decided_at,
            ratio: (&c.ratio).into(),
        }
    }
}

/// Builds the entry of a comparison along a ladder step, with the step's name; `None` if the targets differ by more than one layer or setting.
pub(super) fn step<'a>(judgement: &'a Judgement, c: &'a Comparison) -> Option<StepEntry<'a>> {
    Some(StepEntry { name: &judgement.edge(c)?.name, comparison: c.into() })
}
