//! JSON of comparisons: ratio, interval and verdict.

use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Comparison, Judgement, Metric, Ratio};
use schemars::JsonSchema;
use serde::Serialize;

/// A ratio and its certainty. The interval from `low` to `high` is the one that the verdict rests on.
#[derive(Serialize, JsonSchema)]
pub(super) struct RatioEntry<'a> {
    /// Geometric mean over the rounds of the target over the baseline.
    ratio: f64,
    #[serde(flatten)]
    interval: Option<Interval>,
    /// Confidence of the interval: 0.95, or more where several comparisons are made (Holm's procedure).
    confidence: Option<f64>,
    #[serde(flatten)]
    interval_95: Interval95,
    /// The difference in nanoseconds per I/O; of metrics that are times.
    tax_ns: Option<TaxEntry>,
    /// For cpu_per_io and cpu_per_gib slower costs more, faster costs less.
    verdict: Verdict,
    /// Rounds in all, of each side, that would decide at this variance.
    needed_rounds: Option<u32>,
    /// Why no verdict is given: the measurement that cannot be used, and the reason.
    withheld: Option<&'a str>,
}

/// The plain 95% interval.
#[derive(Serialize, JsonSchema)]
pub(super) struct Interval95 {
    /// Lower end of the plain 95% interval.
    low_95: Option<f64>,
    /// Upper end of it.
    high_95: Option<f64>,
}

#[derive(Serialize, JsonSchema)]
struct TaxEntry {
    /// Nanoseconds above the baseline; negative if it costs less.
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
    /// Two-sided p-value of no difference by flipping signs; from six rounds on.
    sign_flip_p: Option<f64>,
    /// Rounds in which both were measured.
    rounds: u32,
    /// Where rounds are added until all is decided: the look that decided, in rounds of the plan. Verdict and interval are those of that
    /// look, ratios those of all rounds.
    decided_at: Option<u32>,
    #[serde(flatten)]
    ratio: RatioEntry<'a>,
}

/// A target against one that lacks a layer of it, or has another value of one setting.
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

/// Builds the entry of a comparison along a step of the ladder, with the step's name; `None` if the targets are not adjacent in the ladder.
pub(super) fn step<'a>(judgement: &'a Judgement, c: &'a Comparison) -> Option<StepEntry<'a>> {
    Some(StepEntry { name: &judgement.edge(c)?.name, comparison: c.into() })
}
