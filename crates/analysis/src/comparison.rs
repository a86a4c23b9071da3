//! Comparison of one target with another, on one workload, by one metric.

use iotax_model::CellKey;

use crate::metric::Metric;
use crate::sample::{ComparedFigure, Sample};
use crate::stats::paired::Interval;
use crate::stats::verdict::{Decision, Verdict};
use crate::stats::{ALPHA, Estimate};

/// Cost of a target over the baseline in nanoseconds: the ratio and its interval, applied to the baseline's geometric mean. So the cost
/// always agrees with the verdict; an interval of absolute differences might not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tax {
    /// Nanoseconds above the baseline, per I/O, or per GiB for the CPU time of streams; negative if the target takes less time than the
    /// baseline.
    pub ns: f64,
    /// The interval at the comparison's confidence; absent if the ratio has no interval, or if its ends differ by a factor of more than
    /// 100.
    pub interval: Option<Interval>,
}

/// Largest ratio of an interval's upper end to its lower end at which the interval is still converted to nanoseconds.
const WIDEST: f64 = 100.0;

impl Tax {
    /// Applies a ratio and its interval to a baseline in nanoseconds.
    pub fn of(baseline_ns: f64, ratio: f64, interval: Option<Interval>) -> Self {
        let above = |ratio: f64| baseline_ns * (ratio - 1.0);
        let telling = interval.filter(|i| i.high <= i.low * WIDEST);
        Self { ns: above(ratio), interval: telling.map(|i| i.map(above)) }
    }
}

/// The ratio of a target to its baseline by one metric, with the verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    /// Ratio of the target's figure to the baseline's, each over all its rounds.
    pub mean: f64,
    /// The interval on which the verdict rests. Holm's procedure sets its confidence, so with several comparisons it may be wider than
    /// [`Self::interval_95`]. Absent if the comparison was not tested (fewer than two rounds, an unusable measurement, before the first
    /// interim test), if its confidence would be 1, or if an end is not finite.
    pub interval: Option<Interval>,
    /// The confidence of `interval`, 0.95 or more; absent without `interval`.
    pub confidence: Option<f64>,
    /// The plain 95% interval, for this comparison taken alone; absent for fewer than two rounds, or if an end is not finite.
    pub interval_95: Option<Interval>,
    /// Two-sided sign-flip permutation p-value for the hypothesis of no difference; absent for fewer than six common rounds. Student's t
    /// assumes roughly normal log ratios; this test assumes only that each sign is equally likely under the hypothesis.
    pub sign_flip_p: Option<f64>,
    /// Faster, slower, same or undecided, at the requested margin.
    pub verdict: Verdict,
    /// Total number of rounds that would decide an undecided comparison if mean and variance stay the same; absent if decided, unknown, or
    /// above 1000.
    pub needed_rounds: Option<u32>,
    /// The unusable measurement and the reason, as text; the verdict is then undecided, whatever the figures. Absent if all measurements
    /// are usable.
    pub withheld: Option<String>,
    /// The difference in nanoseconds; absent for metrics that are not times.
    pub tax: Option<Tax>,
}

impl Ratio {
    /// Combines the ratio `mean` and the `baseline` mean with the sample and the decision on it.
    pub(crate) fn new(
        figure: impl ComparedFigure,
        (mean, baseline): (f64, f64),
        sample: &Sample,
        decision: &Decision,
        withheld: Option<String>,
    ) -> Self {
        // An early look may demand near certainty, and two rounds far apart leave almost no degree of freedom: then the
        // confidence is 1 or an end of the interval is not finite.
        let confidence = decision.alpha.map(|alpha| 1.0 - alpha).filter(|confidence| *confidence < 1.0);
        let interval = decision.interval.and_then(as_ratios).filter(|_| confidence.is_some());
        Self {
            mean,
            interval,
            confidence: confidence.filter(|_| interval.is_some()),
            interval_95: sample.interval(ALPHA).and_then(as_ratios),
            sign_flip_p: sample.sign_flip_p(),
            verdict: decision.verdict,
            needed_rounds: decision.needed_rounds,
            withheld,
            tax: figure.is_time().then(|| Tax::of(baseline, mean, interval)),
        }
    }

    /// Returns `faster`, `slower`, `same` or `undecided`, or `withheld` if a measurement is unusable.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        if self.withheld.is_some() { "withheld" } else { self.verdict.word() }
    }
}

/// Converts log ratios to ratios; `None` if the upper end is not finite.
pub(crate) fn as_ratios(logs: Interval) -> Option<Interval> {
    Some(logs.map(f64::exp)).filter(|ratios| ratios.high.is_finite())
}

/// Comparison of one target with another, on one workload, by one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The workload's name.
    pub workload: String,
    /// The compared metric.
    pub metric: Metric,
    /// The target's name.
    pub target: String,
    /// Name of the target that `target` is compared with.
    pub baseline: String,
    /// Ratio of the target's figure to the baseline's.
    pub ratio: Ratio,
    /// Number of compared rounds: those in which both targets have a value of the metric, without late replays.
    pub rounds: u32,
    /// In a run that adds rounds: the number of rounds at the interim test that decided the comparison. Verdict and interval are from that
    /// test, figures from all rounds. Absent in other runs, and if no interim test decided the comparison.
    pub decided_at: Option<u32>,
}

impl Comparison {
    /// Returns the workload on the compared target.
    #[must_use]
    pub fn cell(&self) -> CellKey<'_> {
        CellKey { target: &self.target, workload: &self.workload }
    }
}
