//! Differences between two samples without common rounds, from two runs.
//!
//! A cause that affects both targets of one run alike, such as other load at that hour, does not cancel here. So the same difference takes
//! more rounds to show than within one run, and every other difference between the runs adds to the difference of the targets.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Estimate;
use super::paired::{Differences, Interval};

/// The difference of two means, by Welch's t test (Biometrika 34, 1947): the two variances need not be equal. The degrees of
/// freedom are Satterthwaite's (Biometrics Bulletin 2, 1946) and are seldom whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Unpaired {
    target: Differences,
    baseline: Differences,
}

impl Unpaired {
    /// Compares the positive figures of target and baseline, one per round, by the difference of their logarithms: `exp` of the mean is the
    /// ratio of geometric means. `None` if either has no figures, or if a figure is not positive.
    #[must_use]
    pub fn of_logs(target: &[f64], baseline: &[f64]) -> Option<Self> {
        let logs = |figures: &[f64]| Differences::new(figures.iter().map(|figure| figure.ln()).collect());
        Some(Self { target: logs(target)?, baseline: logs(baseline)? })
    }

    /// Returns the number of rounds of the target and of the baseline.
    #[must_use]
    pub fn each(&self) -> (usize, usize) {
        (self.target.n(), self.baseline.n())
    }

    /// Returns standard error and degrees of freedom for these numbers of rounds; `None` if either number is below two. If both variances
    /// are 0, the degrees of freedom do not matter.
    fn error(&self, target: usize, baseline: usize) -> Option<(f64, f64)> {
        let part = |side: &Differences, n: usize| Some((side.sd()?.powi(2) / n as f64, n as f64 - 1.0));
        let ((one, one_free), (other, other_free)) =
            (part(&self.target, target)?, part(&self.baseline, baseline)?);
        let both = one + other;
        let free = both.powi(2) / (one.powi(2) / one_free + other.powi(2) / other_free);
        Some((both.sqrt(), if free.is_finite() { free } else { one_free + other_free }))
    }
}

impl Estimate for Unpaired {
    fn mean(&self) -> f64 {
        self.target.mean() - self.baseline.mean()
    }

    fn interval(&self, alpha: f64) -> Option<Interval> {
        let half = self.half_width(self.rounds(), alpha)?;
        Some(Interval { low: self.mean() - half, high: self.mean() + half })
    }

    fn p_value(&self, point: f64) -> Option<f64> {
        let (target, baseline) = self.each();
        let (error, free) = self.error(target, baseline)?;
        let distance = (self.mean() - point).abs();
        if error == 0.0 {
            return Some(if distance > 0.0 { 0.0 } else { 1.0 });
        }
        Some(2.0 * StudentsT::new(0.0, 1.0, free).ok()?.sf(distance / error))
    }

    fn rounds(&self) -> usize {
        self.target.n().min(self.baseline.n())
    }

    /// Returns the half-width of the interval if each of the two runs had at least `rounds` rounds.
    fn half_width(&self, rounds: usize, alpha: f64) -> Option<f64> {
        let (error, free) = self.error(self.target.n().max(rounds), self.baseline.n().max(rounds))?;
        Some(StudentsT::new(0.0, 1.0, free).ok()?.inverse_cdf(1.0 - alpha / 2.0) * error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::verdict::{Verdict, decide};
    use crate::stats::{ALPHA, MARGIN, normal};
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn of(target: &[f64], baseline: &[f64]) -> Unpaired {
        let exp = |logs: &[f64]| logs.iter().map(|log| log.exp()).collect::<Vec<_>>();
        Unpaired::of_logs(&exp(target), &exp(baseline)).expect("finite")
    }

    #[test]
    fn it_is_welchs() {
        // Means 3 and 3.9; variances 10/4 and 2.02/3; n = 5 and 4.
        let sample = of(&[1.0, 2.0, 3.0, 4.0, 5.0], &[3.1, 3.5, 4.0, 5.0]);
        let (one, other): (f64, f64) = (2.5 / 5.0, 2.02 / 3.0 / 4.0);
        let (error, free) = sample.error(5, 4).expect("enough");
        assert!((error - (one + other).sqrt()).abs() < 1e-9, "{error}");
        let satterthwaite = (one + other).powi(2) / (one.powi(2) / 4.0 + other.powi(2) / 3.0);
        assert!((free - satterthwaite).abs() < 1e-9 && (6.0..6.5).contains(&free), "{free}");
        assert!((sample.mean() + 0.9).abs() < 1e-9);
        // t = -1.101 with 6.2 degrees of freedom.
        let p = sample.p_value(0.0).expect("enough");
        assert!((0.30..0.32).contains(&p), "{p}");
    }

    #[test]
    fn one_round_on_a_side_says_nothing() {
        for sample in [of(&[1.0], &[1.0, 2.0]), of(&[1.0, 2.0], &[1.0]), of(&[1.0], &[2.0])] {
            assert_eq!((sample.interval(0.05), sample.p_value(0.0)), (None, None));
            assert_eq!(decide(&[(&sample, true)], ALPHA, MARGIN)[0].verdict, Verdict::Undecided);
        }
        assert_eq!(Unpaired::of_logs(&[], &[1.0]), None);
        assert_eq!(Unpaired::of_logs(&[1.0, 0.0], &[1.0]), None);
    }

    #[test]
    fn without_variance_the_point_decides() {
        let equal = of(&[0.5, 0.5], &[0.5, 0.5]);
        assert_eq!((equal.p_value(0.0), equal.p_value(0.1)), (Some(1.0), Some(0.0)));
        assert_eq!(decide(&[(&equal, true)], ALPHA, MARGIN)[0].verdict, Verdict::Same);
    }

    #[test]
    fn the_rounds_said_to_be_needed_are_in_each_run() {
        let sample = of(&[0.05, 0.01, 0.09], &[0.0, 0.04, -0.04, 0.01, -0.01]);
        let decision = decide(&[(&sample, true)], ALPHA, MARGIN).remove(0);
        assert_eq!(decision.verdict, Verdict::Undecided);
        let needed = decision.needed_rounds.expect("variance is known") as usize;
        let distance = sample.mean() - MARGIN.ln_1p();
        assert!(needed > 3 && sample.half_width(needed, ALPHA).expect("known") < distance);
        assert!(sample.half_width(needed - 1, ALPHA).expect("known") >= distance);
    }

    /// Checks the coverage of Welch's interval. It is an approximation, so with very few rounds the coverage is slightly off.
    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_it_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        for (n, m, sd) in [(3, 3, 0.04), (5, 5, 0.04), (5, 5, 0.12), (5, 10, 0.12), (10, 10, 0.04)] {
            let covered = (0..10_000)
                .filter(|_| {
                    let target: Vec<f64> = (0..n).map(|_| 0.3 + 0.04 * normal(&mut random)).collect();
                    let baseline: Vec<f64> = (0..m).map(|_| sd * normal(&mut random)).collect();
                    let interval = of(&target, &baseline).interval(ALPHA).expect("n >= 3");
                    (interval.low..=interval.high).contains(&0.3)
                })
                .count();
            assert!((9_300..=9_700).contains(&covered), "{n} and {m} at {sd}: {covered}");
        }
    }

    proptest! {
        #[test]
        fn the_p_value_is_where_the_interval_ends(
            target in prop::collection::vec(-1.0_f64..1.0, 2..9),
            baseline in prop::collection::vec(-1.0_f64..1.0, 2..9),
            point in -1.0_f64..1.0,
        ) {
            let sample = of(&target, &baseline);
            let p = sample.p_value(point).expect("n >= 2");
            prop_assume!(p > 1e-6 && p < 0.999);
            let interval = sample.interval(p).expect("n >= 2");
            let nearest = if point < sample.mean() { interval.low } else { interval.high };
            prop_assert!((nearest - point).abs() < 1e-5 * (1.0 + (interval.high - interval.low)), "{nearest} {point}");
        }
    }
}
