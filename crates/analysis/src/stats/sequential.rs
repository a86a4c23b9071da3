//! Repeated looks (interim tests): the significance level of each look that keeps the error probability over all looks.
//!
//! A run that adds rounds until its comparisons are decided tests the same hypothesis several times. [`Looks`] spreads the error over the
//! looks by a spending function (Lan and DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70, 1983), half of it on
//! each side; the argument is the share of the maximum number of rounds. The choice of function trades early detection of large effects
//! against detection of small ones; [`Spending::CHOSEN`] was chosen by simulation (docs/statistics.md). Boundaries come from recursive
//! numerical integration (Armitage, McPherson and Rowe, Journal of the Royal Statistical Society A 132, 1969; Jennison and Turnbull, Group
//! Sequential Methods, 1999, chapter 19).
//!
//! The boundaries hold for a normal statistic with known variance. For Student's t they serve as significance levels: a look rejects if its
//! p-value is below that of the boundary (Jennison and Turnbull, section 3.8). With few rounds this alone exceeds the level, because
//! estimated variances make the looks less correlated. With more than one look, therefore, only [`SPENT`] of the error is spent.
//! docs/statistics.md has the simulated error rates.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// Distance in standard deviations beyond which a density is negligible (below 1e-18).
const FAR: u32 = 9;
/// Share of the error that several looks spend, chosen so that Student's t with at least three rounds keeps the level.
pub const SPENT: f64 = 0.86;
/// Bisection steps for a boundary, enough for the precision of `f64`.
const HALVINGS: u32 = 60;

/// Spending functions: the part of the error that may be spent up to the fraction `t` of the maximum number of rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Spending {
    /// Spends hardly anything early: `2 - 2 Phi(z / sqrt(t))` on each side, with z the normal quantile of `1 - alpha / 4`, which resembles
    /// O'Brien and Fleming's boundary (Lan and DeMets, 1983).
    OBrienFleming,
    /// Spends about the same at each look: the share `ln(1 + (e - 1) t)` of the error, which resembles Pocock's boundary (Lan and DeMets,
    /// 1983).
    Pocock,
    /// Spends `(1 - exp(-gamma t)) / (1 - exp(-gamma))` of the error. A larger gamma spends earlier: -4 is about
    /// O'Brien and Fleming's boundary, 1 about Pocock's (Hwang, Shih and DeCani, Statistics in Medicine 9, 1990). Gamma
    /// must not be 0.
    HwangShihDeCani(f64),
}

impl Spending {
    /// The spending function used for runs: large effects are decided early, and small effects take hardly longer.
    pub const CHOSEN: Self = Self::HwangShihDeCani(-1.0);

    /// Returns the part of `alpha`, over both sides, that may be spent up to the information fraction `t`.
    fn spent(self, t: f64, alpha: f64) -> f64 {
        if t >= 1.0 {
            return alpha;
        }
        match self {
            Self::OBrienFleming => 2.0 * two_sided(normal().inverse_cdf(alpha / 4.0) / t.sqrt()),
            Self::Pocock => alpha * (std::f64::consts::E - 1.0).mul_add(t, 1.0).ln(),
            Self::HwangShihDeCani(gamma) => alpha * (-gamma * t).exp_m1() / (-gamma).exp_m1(),
        }
    }
}

/// A group-sequential design: the numbers of rounds after which interim tests (looks) happen.
#[derive(Debug, Clone, PartialEq)]
pub struct Looks {
    spending: Spending,
    rounds: Vec<u32>,
    /// Points and weights of the Gauss-Legendre rule on 0 to 1; the number of points suffices for the two closest looks.
    rule: Vec<(f64, f64)>,
}

impl Looks {
    /// Creates a design with looks after these numbers of rounds; the last is the maximum. `None` if the list is empty, or not strictly
    /// ascending from 1 or more.
    #[must_use]
    pub fn new(rounds: &[u32]) -> Option<Self> {
        Self::with(rounds, Spending::CHOSEN)
    }

    /// Creates a design like [`Self::new`], with a given spending function.
    #[must_use]
    pub fn with(rounds: &[u32], spending: Spending) -> Option<Self> {
        let rising = rounds.windows(2).all(|pair| pair[0] < pair[1]);
        if !rising || *rounds.first()? == 0 {
            return None;
        }
        // The widest range of integration, in standard deviations of the step that follows it. The rule needs
        // a few points per standard deviation.
        let widest =
            rounds.windows(2).map(|pair| FAR.pow(2).saturating_mul(pair[0]) / (pair[1] - pair[0])).max();
        let points = 24 + widest.unwrap_or_default().isqrt() as usize;
        Some(Self { spending, rounds: rounds.to_vec(), rule: gauss_legendre(points) })
    }

    /// Returns the numbers of rounds after which looks happen.
    #[must_use]
    pub fn rounds(&self) -> &[u32] {
        &self.rounds
    }

    /// Returns the two-sided significance level for a look (from 0), such that the probability of a false rejection at any look is at most
    /// `alpha`. Looks beyond the last use its level. Returns 0 for a look too early to reject anything.
    #[must_use]
    pub fn nominal(&self, look: usize, alpha: f64) -> f64 {
        if self.rounds.len() == 1 { alpha.max(0.0) } else { self.of_normal(look, SPENT * alpha) }
    }

    /// Returns the level for a normal test with known variance, with all of `alpha` spent.
    fn of_normal(&self, look: usize, alpha: f64) -> f64 {
        let look = look.min(self.rounds.len() - 1);
        if alpha <= 0.0 {
            return 0.0;
        }
        let mut walk = Walk::default();
        let mut level = 0.0;
        for index in 0..=look {
            let t = self.fraction(index);
            let spent = self.spending.spent(t, alpha);
            let boundary = walk.boundary(t, spent - walk.spent);
            level = two_sided(boundary / t.sqrt());
            if index < look {
                walk = walk.step(t, boundary, spent, &self.rule);
            }
        }
        level
    }

    fn fraction(&self, look: usize) -> f64 {
        f64::from(self.rounds[look]) / f64::from(self.rounds[self.rounds.len() - 1])
    }
}

/// Distribution of a Brownian motion over the paths that stayed within all boundaries so far. By symmetry only the upper half is stored.
#[derive(Default)]
struct Walk {
    time: f64,
    /// The error spent up to the current time, as a share of all paths.
    spent: f64,
    /// Positions and their probabilities (density times weight of the rule). Empty at time 0, where all paths are at 0.
    mass: Vec<(f64, f64)>,
}

impl Walk {
    /// Finds the two-sided boundary at time `t` that a share `spend` of all paths crosses for the first time.
    fn boundary(&self, t: f64, spend: f64) -> f64 {
        let (mut low, mut high) = (0.0, 60.0 * t.sqrt());
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            if self.beyond(t, middle) > spend { low = middle } else { high = middle }
        }
        high
    }

    /// Returns the share of all paths that stayed within earlier boundaries and are outside of `boundary` at time `t`.
    fn beyond(&self, t: f64, boundary: f64) -> f64 {
        let scale = (t - self.time).sqrt();
        let outside = |position: f64| {
            let (above, below) = ((boundary - position) / scale, (boundary + position) / scale);
            normal().sf(above) + normal().sf(below)
        };
        if self.mass.is_empty() {
            return outside(0.0);
        }
        self.mass.iter().map(|(position, mass)| 2.0 * mass * outside(*position)).sum()
    }

    /// Advances to time `t` and keeps the paths within `boundary`.
    fn step(&self, t: f64, boundary: f64, spent: f64, rule: &[(f64, f64)]) -> Self {
        let scale = (t - self.time).sqrt();
        let kernel = |distance: f64| {
            let z = distance / scale;
            if z.abs() > f64::from(FAR) { 0.0 } else { normal().pdf(z) / scale }
        };
        let density = |to: f64| {
            if self.mass.is_empty() {
                return kernel(to);
            }
            self.mass.iter().map(|(from, mass)| mass * (kernel(to - from) + kernel(to + from))).sum()
        };
        let end = boundary.min(f64::from(FAR) * t.sqrt());
        let mass = rule.iter().map(|(x, weight)| (x * end, weight * end * density(x * end))).collect();
        Self { time: t, spent, mass }
    }
}

fn normal() -> Normal {
    Normal::standard()
}

/// Returns the probability that a normal statistic is at least this far from 0.
fn two_sided(z: f64) -> f64 {
    2.0 * normal().sf(z.abs())
}

/// Computes points and weights of the Gauss-Legendre rule of `n` points on 0 to 1: roots of the Legendre polynomial by Newton's
/// method (Abramowitz and Stegun, Handbook of Mathematical Functions, 25.4.30).
fn gauss_legendre(n: usize) -> Vec<(f64, f64)> {
    let value_and_slope = |x: f64| {
        let (mut before, mut value) = (1.0, x);
        for k in 2..=n {
            let k = k as f64;
            (before, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k);
        }
        (value, n as f64 * (x * value - before) / (x * x - 1.0))
    };
    (1..=n)
        .map(|i| {
            let mut x = (std::f64::consts::PI * (i as f64 - 0.25) / (n as f64 + 0.5)).cos();
            for _ in 0..8 {
                let (value, slope) = value_and_slope(x);
                x -= value / slope;
            }
            let slope = value_and_slope(x).1;
            (f64::midpoint(x, 1.0), 1.0 / ((1.0 - x * x) * slope * slope))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn z(looks: &Looks, alpha: f64) -> Vec<f64> {
        (0..looks.rounds().len()).map(|k| -normal().inverse_cdf(looks.of_normal(k, alpha) / 2.0)).collect()
    }

    fn assert_near(found: &[f64], table: &[f64], within: f64) {
        assert_eq!(found.len(), table.len());
        let close = found.iter().zip(table).all(|(a, b)| (a - b).abs() < within);
        assert!(close, "{found:?} is not {table:?}");
    }

    #[test]
    fn boundaries_are_those_of_published_tables() {
        let spread = |k: u32, spending| Looks::with(&(1..=k).collect::<Vec<_>>(), spending).expect("rising");
        let equal = |k| spread(k, Spending::OBrienFleming);
        assert_near(&z(&equal(5), 0.05), &[4.877, 3.357, 2.680, 2.290, 2.031], 6e-4);
        assert_near(&z(&equal(4), 0.05), &[4.333, 2.963, 2.359, 2.014], 6e-4);
        assert_near(&z(&equal(3), 0.05), &[3.710, 2.511, 1.993], 6e-4);
        assert_near(&z(&equal(2), 0.05), &[2.963, 1.969], 6e-4);
        // The default design of R's gsDesign: three looks, gamma -4.
        assert_near(&z(&spread(3, Spending::HwangShihDeCani(-4.0)), 0.05), &[3.0107, 2.5465, 1.9992], 6e-4);
        assert_near(&z(&spread(2, Spending::Pocock), 0.05), &[2.157, 2.201], 2e-3);
    }

    #[test]
    fn one_look_is_the_test_itself() {
        let once = Looks::new(&[7]).expect("one");
        for alpha in [0.05, 0.05 / 40.0, 1e-9] {
            assert!((once.nominal(0, alpha) / alpha - 1.0).abs() < 1e-12);
            assert!((once.of_normal(0, alpha) / alpha - 1.0).abs() < 1e-9);
        }
        assert_eq!(once.nominal(3, 0.05).to_bits(), once.nominal(0, 0.05).to_bits());
        assert!(once.nominal(0, 0.0) <= 0.0);
    }

    #[test]
    fn looks_rise() {
        for bad in [&[][..], &[0], &[0, 3], &[3, 3], &[5, 4]] {
            assert_eq!(Looks::new(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_rule_integrates_polynomials_exactly() {
        for n in [2, 5, 24, 61] {
            let rule = gauss_legendre(n);
            for power in 0..i32::try_from(2 * n).expect("small").min(40) {
                let sum: f64 = rule.iter().map(|(x, w)| w * x.powi(power)).sum();
                assert!((sum - 1.0 / f64::from(power + 1)).abs() < 1e-13, "{n} {power}: {sum}");
            }
        }
    }

    /// Compares the rule with one of many more points, which shows the integration error.
    #[test]
    fn the_rule_is_fine_enough() {
        let designs: [&[u32]; 5] = [
            &[3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20],
            &[1, 500, 501, 1000],
            &[2, 999, 1000],
            &[3, 6],
            &[30, 31, 32, 33],
        ];
        for rounds in designs {
            let looks = Looks::new(rounds).expect("rising");
            let finer = Looks { rule: gauss_legendre(4 * looks.rule.len()), ..looks.clone() };
            for alpha in [0.05, 0.05 / 40.0, 1e-6] {
                for look in 0..rounds.len() {
                    let (one, other) = (looks.nominal(look, alpha), finer.nominal(look, alpha));
                    assert!(
                        (one - other).abs() <= 1e-6 * other + 1e-16,
                        "{rounds:?} {alpha} {look}: {one} {other}"
                    );
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Checks a requirement of Holm's procedure: a hypothesis that is rejected at one alpha is rejected at any larger one.
        #[test]
        fn levels_rise_with_alpha_and_stay_below_it(
            first in 1_u32..5, steps in prop::collection::vec(1_u32..6, 0..8), alpha in 1e-6_f64..0.2, less in 0.1_f64..0.99,
        ) {
            let mut rounds = vec![first];
            for step in steps {
                rounds.push(rounds[rounds.len() - 1] + step);
            }
            let looks = Looks::new(&rounds).expect("rising");
            let levels: Vec<f64> = (0..rounds.len()).map(|look| looks.nominal(look, alpha)).collect();
            prop_assert!(levels.iter().all(|level| *level <= alpha * (1.0 + 1e-9)), "{levels:?}");
            for (look, level) in levels.iter().enumerate() {
                prop_assert!(looks.nominal(look, alpha * less) <= *level, "{look}");
            }
        }
    }

    /// Checks the levels that docs/sequential.md names.
    #[test]
    fn the_levels_that_the_page_names() {
        let looks = Looks::new(&[5, 6, 7, 9, 11, 13, 15]).expect("they rise");
        let level = |look, family: f64| looks.nominal(look, 0.05 / family);
        for (found, named) in [
            (level(0, 1.0), 9.9e-3),
            (level(0, 15.0), 6.6e-4),
            (level(2, 15.0), 3.7e-4),
            (level(6, 15.0), 1.2e-3),
        ] {
            assert!((found / named - 1.0).abs() < 0.03, "{found:.3e} {named:.1e}");
        }
    }
}
