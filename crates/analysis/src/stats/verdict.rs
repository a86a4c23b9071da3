//! Verdicts: a family of comparisons decided together.
//!
//! For each comparison, p is the smallest alpha at which the t interval of its log ratio lies entirely on one side of an edge of the
//! margin: outside the margin (slower or faster) or inside (the same). Holm's step-down procedure (Scandinavian Journal of Statistics 6,
//! 1979) goes through the m comparisons of the family from the smallest p: the k-th is tested at `alpha / (m - k + 1)`. The first that
//! fails and all after it stay undecided, with the level of that first failure. Each comparison has the interval at the level of its test,
//! so that interval and margin always agree with the verdict.
//!
//! A comparison with fewer than two rounds is not tested: it is undecided, has no interval and does not count in m.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Estimate;
use super::paired::Interval;

/// Maximum number of rounds in a plan; larger numbers are not suggested.
const MOST_ROUNDS: usize = 1000;

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Worse than the baseline by more than the margin; for CPU time, the target needs more.
    Slower,
    /// Better than the baseline by more than the margin; for CPU time, the target needs less.
    Faster,
    /// The whole interval lies within the margin.
    Same,
    /// The interval contains an end of the margin, so that more rounds may decide, or there is no interval.
    Undecided,
}

impl Verdict {
    /// Returns the verdict's word in reports and documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Undecided => "undecided",
        }
    }

    /// Returns whether the target is worse than the baseline.
    #[must_use]
    pub const fn is_worse(self) -> bool {
        matches!(self, Self::Slower)
    }
}

/// The decision on a comparison, with the level at which it was tested.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Slower, faster, same or undecided.
    pub verdict: Verdict,
    /// The alpha at which the comparison was tested; the interval's confidence is 1 - alpha. Absent for fewer than two rounds.
    pub alpha: Option<f64>,
    /// The interval of the mean log ratio on which the verdict rests. Absent for fewer than two rounds.
    pub interval: Option<Interval>,
    /// Total rounds that would decide an undecided comparison, at the same mean and variance. Absent if unknown (fewer than two rounds, no
    /// variance) or above 1000.
    pub needed_rounds: Option<u32>,
}

impl Decision {
    /// Returns the decision for a comparison that was not tested: undecided, without an interval.
    #[must_use]
    pub const fn none() -> Self {
        Self { verdict: Verdict::Undecided, alpha: None, interval: None, needed_rounds: None }
    }
}

/// Decides a family of comparisons. Each is an estimate of the log ratio of target to baseline, with true if more is better.
///
/// `alpha` bounds the probability of any false statement in the family; `margin` is a share, such as 0.02. The result has
/// the family's order.
#[must_use]
pub fn decide<E: Estimate + ?Sized>(family: &[(&E, bool)], alpha: f64, margin: f64) -> Vec<Decision> {
    let mut decided = decide_by(family, margin, |left| alpha / left as f64);
    for ((estimate, _), decision) in family.iter().zip(&mut decided) {
        decision.needed_rounds = needed_rounds(*estimate, margin, decision);
    }
    decided
}

/// Returns the total number of rounds that would decide an undecided comparison at the level of its test, at the same mean and variance.
/// `None` if unknown, or above 1000.
#[must_use]
pub fn needed_rounds<E: Estimate + ?Sized>(estimate: &E, margin: f64, decision: &Decision) -> Option<u32> {
    let alpha = decision.alpha.filter(|_| decision.verdict == Verdict::Undecided)?;
    needed(estimate, margin.ln_1p(), alpha)
}

/// Quarters of the undecided comparisons that the suggested number of rounds should decide: 3 of 4, because the last quarter may take many
/// times longer than the rest.
const QUARTERS: usize = 3;

/// Returns the number of rounds that decides three quarters of the comparisons, given the number that each comparison needs; `None` for an
/// empty slice.
#[must_use]
pub fn rounds_for_most(needed: &[u32]) -> Option<u32> {
    let mut sorted = needed.to_vec();
    sorted.sort_unstable();
    sorted.get((sorted.len() * QUARTERS).div_ceil(4).saturating_sub(1)).copied()
}

/// Decides like [`decide`], but with a given significance level for each test, and without the number of needed rounds.
/// `level` gets the number of comparisons left to test, including the next one. A smaller number must not give a
/// smaller level.
#[must_use]
pub fn decide_by<E: Estimate + ?Sized>(
    family: &[(&E, bool)],
    margin: f64,
    mut level: impl FnMut(usize) -> f64,
) -> Vec<Decision> {
    let edge = margin.ln_1p();
    let mut tested: Vec<(usize, f64)> = family
        .iter()
        .enumerate()
        .filter_map(|(i, (d, _))| Some((i, d.p_value(nearest_edge(d.mean(), edge))?)))
        .collect();
    tested.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut levels = vec![None; family.len()];
    let mut stopped_at = None;
    for (done, (index, p)) in tested.iter().enumerate() {
        let level = stopped_at.unwrap_or_else(|| level(tested.len() - done));
        if *p >= level {
            stopped_at = Some(level);
        }
        levels[*index] = Some((level, stopped_at.is_none()));
    }
    family
        .iter()
        .zip(levels)
        .map(|((d, more_is_better), level)| decision(*d, *more_is_better, edge, level))
        .collect()
}

/// Returns the end of the margin that lies on the same side of 0 as the mean: `edge` or `-edge`.
fn nearest_edge(mean: f64, edge: f64) -> f64 {
    edge.copysign(mean)
}

fn decision(
    d: &(impl Estimate + ?Sized),
    more_is_better: bool,
    edge: f64,
    level: Option<(f64, bool)>,
) -> Decision {
    let Some((alpha, decided)) = level else {
        return Decision::none();
    };
    let verdict = match (decided, d.mean().abs() < edge) {
        (false, _) => Verdict::Undecided,
        (true, true) => Verdict::Same,
        (true, false) if (d.mean() > 0.0) == more_is_better => Verdict::Faster,
        (true, false) => Verdict::Slower,
    };
    Decision { verdict, alpha: Some(alpha), interval: d.interval(alpha), needed_rounds: None }
}

/// Returns the smallest number of rounds, above the present one, at which the interval excludes the nearer end of the margin; `None` if
/// unknown, or above 1000.
fn needed(d: &(impl Estimate + ?Sized), edge: f64, alpha: f64) -> Option<u32> {
    let distance = (d.mean() - nearest_edge(d.mean(), edge)).abs();
    // Without variance, more rounds change nothing.
    d.half_width(d.rounds() + 1, alpha).filter(|half| *half > 0.0)?;
    let decides = |rounds| d.half_width(rounds, alpha).is_some_and(|half| half < distance);
    // The interval narrows with every round: halve the range until the first number that decides is left.
    let (mut first, mut beyond) = (d.rounds() + 1, MOST_ROUNDS + 1);
    while first < beyond {
        let middle = usize::midpoint(first, beyond);
        if decides(middle) { beyond = middle } else { first = middle + 1 }
    }
    (first <= MOST_ROUNDS).then(|| u32::try_from(first).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::paired::Differences;
    use crate::stats::{ALPHA, MARGIN, normal};
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn sample(values: &[f64]) -> Differences {
        Differences::new(values.to_vec()).expect("finite")
    }

    fn alone(values: &[f64], more_is_better: bool) -> Decision {
        decide(&[(&sample(values), more_is_better)], ALPHA, MARGIN).remove(0)
    }

    #[test]
    fn each_verdict_has_its_case() {
        assert_eq!(alone(&[0.5, 0.51, 0.49], true).verdict, Verdict::Faster);
        assert_eq!(alone(&[0.5, 0.51, 0.49], false).verdict, Verdict::Slower);
        assert_eq!(alone(&[-0.5, -0.51, -0.49], true).verdict, Verdict::Slower);
        assert_eq!(alone(&[0.001, -0.001, 0.0], true).verdict, Verdict::Same);
        assert_eq!(alone(&[0.1, -0.1, 0.03], true).verdict, Verdict::Undecided);
        // Certainly different from 1, but inside the margin: the same for all practical purposes.
        assert_eq!(alone(&[0.010, 0.0101, 0.0099], true).verdict, Verdict::Same);
    }

    #[test]
    fn fewer_than_two_rounds_decide_nothing() {
        let one = alone(&[5.0], true);
        assert_eq!(one.verdict, Verdict::Undecided);
        assert_eq!((one.alpha, one.interval, one.needed_rounds), (None, None, None));
    }

    #[test]
    fn without_variance_the_point_decides() {
        assert_eq!(alone(&[0.3, 0.3], true).verdict, Verdict::Faster);
        assert_eq!(alone(&[0.0, 0.0], true).verdict, Verdict::Same);
        let on_the_edge = alone(&[MARGIN.ln_1p(); 2], true);
        assert_eq!((on_the_edge.verdict, on_the_edge.needed_rounds), (Verdict::Undecided, None));
    }

    #[test]
    fn the_rounds_said_to_be_needed_do_decide() {
        let undecided = [0.05, 0.01, 0.09, 0.03];
        let needed = alone(&undecided, true).needed_rounds.expect("variance is known") as usize;
        assert!(needed > 4);
        // A sample of that size with the same mean and standard deviation is decided, one smaller is not.
        let d = sample(&undecided);
        let alike = |n: usize| {
            let raw: Vec<f64> = (0..n).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
            let raw = sample(&raw);
            let scale = d.sd().expect("n = 4") / raw.sd().expect("n >= 2");
            let values: Vec<f64> = (0..n)
                .map(|i| d.mean() + scale * (if i % 2 == 0 { 1.0 } else { -1.0 } - raw.mean()))
                .collect();
            alone(&values, true).verdict
        };
        assert_eq!((alike(needed - 1), alike(needed)), (Verdict::Undecided, Verdict::Faster));
    }

    #[test]
    fn advice_is_for_most_and_not_for_the_last() {
        assert_eq!(rounds_for_most(&[]), None);
        assert_eq!(rounds_for_most(&[7]), Some(7));
        assert_eq!(rounds_for_most(&[900, 5, 8, 12]), Some(12));
    }

    #[test]
    fn holm_asks_more_of_a_family_than_of_one_alone() {
        let marginal = sample(&[0.07, 0.10, 0.13]);
        assert_eq!(alone(&[0.07, 0.10, 0.13], true).verdict, Verdict::Faster);
        let noise = sample(&[0.2, -0.2, 0.1]);
        let family = decide(&[(&marginal, true), (&noise, true), (&noise, true)], ALPHA, MARGIN);
        assert_eq!(family[0].verdict, Verdict::Undecided);
        assert_eq!(family[0].alpha, Some(ALPHA / 3.0));
        // After a clear win, the next is tested at alpha / 2.
        let clear = sample(&[1.0, 1.0001, 0.9999]);
        let family = decide(&[(&noise, true), (&clear, true)], ALPHA, MARGIN);
        assert_eq!(family[1].verdict, Verdict::Faster);
        assert_eq!((family[1].alpha, family[0].alpha), (Some(ALPHA / 2.0), Some(ALPHA)));
    }

    fn noisy(random: &mut impl Rng, n: usize, mean: f64, sd: f64) -> Differences {
        let values = (0..n).map(|_| mean + sd * normal(random)).collect();
        Differences::new(values).expect("finite")
    }

    #[test]
    fn the_verdict_can_be_read_off_its_interval() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let edge = MARGIN.ln_1p();
        for round in 0..2000 {
            let sd = [0.001, 0.01, 0.05][round % 3];
            let family: Vec<Differences> =
                (0..4).map(|i| noisy(&mut random, 3 + round % 4, 0.02 * f64::from(i), sd)).collect();
            let asked: Vec<_> = family.iter().map(|d| (d, true)).collect();
            for decision in decide(&asked, ALPHA, MARGIN) {
                let Interval { low, high } = decision.interval.expect("n >= 3");
                let read = if low > edge {
                    Verdict::Faster
                } else if high < -edge {
                    Verdict::Slower
                } else if low > -edge && high < edge {
                    Verdict::Same
                } else {
                    Verdict::Undecided
                };
                assert_eq!(read, decision.verdict, "[{low}, {high}]");
            }
        }
    }

    /// Compares A with A: nothing differs, so every "slower" or "faster" is false. A margin of 0 gives the test no slack.
    #[test]
    fn a_against_a_is_called_different_no_more_often_than_stated() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(71_823);
        let rounds = 10_000;
        for n in [3, 5, 10] {
            let mut wrong = 0;
            for _ in 0..rounds {
                let family: Vec<Differences> = (0..5)
                    .map(|_| {
                        // Both sides noisy: 5% lognormal around the same speed.
                        let values = (0..n)
                            .map(|_| ((0.05 * normal(&mut random)).exp(), (0.05 * normal(&mut random)).exp()))
                            .collect::<Vec<_>>();
                        Differences::of_log_ratios(&values).expect("positive")
                    })
                    .collect();
                let asked: Vec<_> = family.iter().map(|d| (d, true)).collect();
                let decided = decide(&asked, ALPHA, 0.0);
                wrong += u32::from(decided.iter().any(|d| d.verdict != Verdict::Undecided));
            }
            // Three standard errors of a share of 5% in 10,000 rounds are 0.65%.
            let share = f64::from(wrong) / f64::from(rounds);
            assert!(share <= ALPHA + 0.0065, "n = {n}: {share}");
            assert!(share > 0.03, "n = {n}: {share}: the test would have no power");
        }
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(12);
        let truth = 0.3;
        for n in [3, 5, 10] {
            let covered = (0..10_000)
                .filter(|_| {
                    let interval = noisy(&mut random, n, truth, 0.08).interval(ALPHA).expect("n >= 3");
                    (interval.low..=interval.high).contains(&truth)
                })
                .count();
            assert!((9_300..=9_700).contains(&covered), "n = {n}: {covered}");
        }
    }
}
