//! Samples of a target and its baseline by one metric, and families of comparisons that are decided together.

use std::collections::HashSet;
use std::hash::Hash;

use crate::metric::Metric;
use crate::stats::moderated::prior;
use crate::stats::paired::{Differences, Interval};
use crate::stats::quantization::Coarse;
use crate::stats::unpaired::Unpaired;
use crate::stats::verdict::{Decision, decide};
use crate::stats::{ALPHA, Estimate};

/// A figure by which a target and its baseline can be compared.
pub(crate) trait ComparedFigure: Copy + Eq + Hash {
    /// Returns a bound on the systematic error of a log ratio of two values, which averaging over rounds does not reduce.
    fn coarseness(self) -> f64;

    /// Returns whether a larger value is better.
    fn more_is_better(self) -> bool;

    /// Returns whether the figure is in nanoseconds.
    fn is_time(self) -> bool;
}

impl ComparedFigure for Metric {
    fn coarseness(self) -> f64 {
        Self::coarseness(self)
    }

    fn more_is_better(self) -> bool {
        Self::more_is_better(self)
    }

    fn is_time(self) -> bool {
        Self::is_time(self)
    }
}

/// A sample from which the log ratio of a target to its baseline is estimated.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sample {
    /// Log ratios within the rounds in which both were measured.
    Paired(Coarse<Differences>),
    /// Logarithms of the figures of two runs, which have no round in common.
    Unpaired(Coarse<Unpaired>),
}

impl Sample {
    /// Builds a paired sample; `None` without any pair, or if a figure is not positive.
    pub(crate) fn paired(pairs: &[(f64, f64)], figure: impl ComparedFigure) -> Option<Self> {
        Some(Self::Paired(Coarse::new(Differences::of_log_ratios(pairs)?, figure.coarseness())))
    }

    /// Builds an unpaired sample; `None` if a side is empty, or if a figure is not positive.
    pub(crate) fn unpaired(target: &[f64], baseline: &[f64], metric: Metric) -> Option<Self> {
        Some(Self::Unpaired(Coarse::new(Unpaired::of_logs(target, baseline)?, metric.coarseness())))
    }

    /// Returns [`Differences::sign_flip_p`]; `None` for an unpaired sample.
    pub(crate) fn sign_flip_p(&self) -> Option<f64> {
        self.differences()?.sign_flip_p()
    }

    fn differences(&self) -> Option<&Differences> {
        match self {
            Self::Paired(sample) => Some(sample.fine()),
            Self::Unpaired(_) => None,
        }
    }

    fn estimate(&self) -> &dyn Estimate {
        match self {
            Self::Paired(sample) => sample,
            Self::Unpaired(sample) => sample,
        }
    }
}

impl Estimate for Sample {
    fn mean(&self) -> f64 {
        self.estimate().mean()
    }

    fn interval(&self, alpha: f64) -> Option<Interval> {
        self.estimate().interval(alpha)
    }

    fn p_value(&self, point: f64) -> Option<f64> {
        self.estimate().p_value(point)
    }

    fn rounds(&self) -> usize {
        self.estimate().rounds()
    }

    fn half_width(&self, rounds: usize, alpha: f64) -> Option<f64> {
        self.estimate().half_width(rounds, alpha)
    }
}

/// Shrinks the variances of paired samples of the same figure towards a common variance (Smyth's moderated t, see
/// [`crate::stats::moderated`]). Unpaired samples keep their own variance.
pub(crate) fn share_variances<F: ComparedFigure>(family: &mut [(F, Sample)]) {
    let figures: HashSet<F> = family.iter().map(|(figure, _)| *figure).collect();
    for figure in figures {
        let members = family.iter().filter(|(of, _)| *of == figure);
        let prior = prior(members.filter_map(|(_, sample)| sample.differences()));
        for (_, sample) in family.iter_mut().filter(|(of, _)| *of == figure) {
            if let Sample::Paired(paired) = sample {
                *paired = paired.clone().map(|differences| differences.with(prior));
            }
        }
    }
}

/// Decides a family of comparisons once, by Holm's procedure at 5%, with all rounds. `margin` is a fraction, such as 0.02. The result is in
/// the family's order.
pub(crate) fn decide_family<F: ComparedFigure>(mut family: Vec<(F, Sample)>, margin: f64) -> Vec<Decision> {
    share_variances(&mut family);
    let asked: Vec<_> = family.iter().map(|(figure, sample)| (sample, figure.more_is_better())).collect();
    decide(&asked, ALPHA, margin)
}
