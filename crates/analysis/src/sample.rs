//! The rounds of two sides by one metric, and families of such samples decided together.

use std::collections::HashSet;

use crate::metric::Metric;
use crate::stats::moderated::prior;
use crate::stats::paired::{Differences, Interval};
use crate::stats::quantization::Coarse;
use crate::stats::unpaired::Unpaired;
use crate::stats::verdict::{Decision, decide};
use crate::stats::{ALPHA, Estimate};

/// The logarithm of the ratio of one side to the other.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sample {
    /// From rounds that both sides were measured in.
    Paired(Coarse<Differences>),
    /// From two runs, which have no round in common.
    Unpaired(Coarse<Unpaired>),
}

impl Sample {
    /// Absent without any pair, or if a figure has no logarithm.
    pub(crate) fn paired(pairs: &[(f64, f64)], metric: Metric) -> Option<Self> {
        Some(Self::Paired(Coarse::new(Differences::of_log_ratios(pairs)?, metric.coarseness())))
    }

    /// Absent if a side is empty, or if a figure has no logarithm.
    pub(crate) fn unpaired(target: &[f64], baseline: &[f64], metric: Metric) -> Option<Self> {
        Some(Self::Unpaired(Coarse::new(Unpaired::of_logs(target, baseline)?, metric.coarseness())))
    }

    /// As [`Differences::sign_flip_p`]; absent for two runs.
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

/// Draws the variances of comparisons by one metric towards what they have in common. Samples without rounds in common keep their
/// own.
pub(crate) fn share_variances(family: &mut [(Metric, Sample)]) {
    let metrics: HashSet<Metric> = family.iter().map(|(metric, _)| *metric).collect();
    for metric in metrics {
        let members = family.iter().filter(|(of, _)| *of == metric);
        let prior = prior(members.filter_map(|(_, sample)| sample.differences()));
        for (_, sample) in family.iter_mut().filter(|(of, _)| *of == metric) {
            if let Sample::Paired(paired) = sample {
                *paired = paired.clone().map(|differences| differences.with(prior));
            }
        }
    }
}

/// Decides a family once, with all its rounds. The result has the family's order.
pub(crate) fn decide_family(mut family: Vec<(Metric, Sample)>, margin: f64) -> Vec<Decision> {
    share_variances(&mut family);
    let asked: Vec<_> = family.iter().map(|(metric, sample)| (sample, metric.more_is_better())).collect();
    decide(&asked, ALPHA, margin)
}
