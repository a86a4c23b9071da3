//! One target against another, on one workload, by one metric.

use crate::metric::Metric;
use crate::stats::paired::Interval;
use crate::stats::verdict::Verdict;

/// What a target costs in absolute terms: the ratio and its interval, applied to the baseline's geometric mean. So it
/// never disagrees with the verdict, as an interval of plain differences would where the noise grows with the value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tax {
    /// Nanoseconds per I/O above the baseline; negative if it costs less.
    pub ns: f64,
    /// At the comparison's confidence; absent for fewer than two rounds, or where the ratio's interval spans more than a
    /// factor of 100, which says nothing.
    pub interval: Option<Interval>,
}

/// The widest interval of a ratio that is given in absolute terms too.
const WIDEST: f64 = 100.0;

impl Tax {
    /// Of a ratio and its interval over a baseline of so many nanoseconds.
    pub fn of(baseline_ns: f64, ratio: f64, interval: Option<Interval>) -> Self {
        let above = |ratio: f64| baseline_ns * (ratio - 1.0);
        let telling = interval.filter(|i| i.high <= i.low * WIDEST);
        Self { ns: above(ratio), interval: telling.map(|i| i.map(above)) }
    }
}

/// One target against another, on one workload, by one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The workload's name.
    pub workload: String,
    /// What is compared.
    pub metric: Metric,
    /// The target's name.
    pub target: String,
    /// The name of the target that it is compared with.
    pub baseline: String,
    /// Geometric mean over the rounds of target / baseline.
    pub ratio: f64,
    /// The interval of the ratio that the verdict rests on: its level is Holm's, so it is wider than
    /// [`Self::interval_95`] wherever several comparisons are made. Absent for fewer than two rounds.
    pub interval: Option<Interval>,
    /// The confidence of `interval`, 0.95 or more. Absent as `interval` is.
    pub confidence: Option<f64>,
    /// The plain 95% interval of the ratio, for this comparison taken alone.
    pub interval_95: Option<Interval>,
    /// The sign-flip permutation p-value of "no difference at all", from six rounds on: beside Student's t, which
    /// assumes that log ratios are roughly normal, it assumes only that their signs are chance.
    pub sign_flip_p: Option<f64>,
    /// What it comes to, with the plan's margin.
    pub verdict: Verdict,
    /// Rounds in which both targets were measured.
    pub rounds: u32,
    /// If undecided: how many rounds in all would decide, at this variance.
    pub needed_rounds: Option<u32>,
    /// In a run that adds rounds: after how many of the plan's rounds it was decided. All figures are those of that look.
    pub decided_at: Option<u32>,
    /// Why no verdict is given whatever the figures say: which measurement it rests on cannot be used, and why. The verdict
    /// then is undecided.
    pub withheld: Option<String>,
    /// The same in absolute terms, for metrics that are times.
    pub tax: Option<Tax>,
}

impl Comparison {
    /// What it comes to in one word: the verdict, or that none is given.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        self.verdict.word_or_withheld(self.withheld.is_some())
    }
}
