//! Finds the changes of level in one series of logarithms, and forecasts if the newest points will become a change.

use super::energy::{self, LEAST_SIDE};
use crate::stats::paired::Interval;
use crate::stats::{MAD_TO_SD, median};
use statrs::distribution::{ContinuousCDF, Normal};

/// Largest drop in log likelihood below the best position at which a position still belongs to the interval. In
/// simulations (docs/trend.md) the interval then contains the true position of at least 95% of changes.
const LIKELIHOOD: f64 = 3.0;

/// Distance of the newest points from the earlier points of their level, in standard errors, above which a possible change is reported.
const SUSPICIOUS: f64 = 4.0;

/// Maximum number of further points that a forecast considers.
const AHEAD: usize = 12;

/// A lasting change of level in a series.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelChange {
    /// Index of the first point of the new level, as estimated.
    pub at: usize,
    /// Earliest and latest index of the first point of the new level, at 95% confidence.
    pub between: (usize, usize),
    /// Index of the first point of the level before the change.
    pub from: usize,
    /// Index one past the last point of the level after the change.
    pub to: usize,
    /// The log ratio of the new level to the old: the Hodges-Lehmann estimate, the median of all pairwise differences.
    pub shift: f64,
    /// 95% interval of `shift`, from the ordered pairwise differences as in Mann and Whitney's test.
    pub interval: Interval,
}

/// A possible new level: the newest points stand out, but are too few to decide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pending {
    /// Number of newest points that stand out.
    pub points: usize,
    /// Log ratio of the median of these points to the median of the level before them.
    pub shift: f64,
    /// Number of further points like these after which a change would be detected; absent if 12 would not suffice.
    pub needed: Option<usize>,
}

/// Finds all changes of level in a series by dividing it repeatedly. Returns the changes in the order of the series.
#[must_use]
pub fn changes(values: &[f64]) -> Vec<LevelChange> {
    let mut starts = Vec::new();
    divide(values, 0, &mut starts);
    starts.sort_unstable();
    let bounds = |starts: &[usize], i: usize| {
        let from = if i == 0 { 0 } else { starts[i - 1] };
        (from, starts.get(i + 1).copied().unwrap_or(values.len()))
    };
    // A position was found while its part held other changes, so it is located again between its neighbours.
    for i in 0..starts.len() {
        let (from, to) = bounds(&starts, i);
        starts[i] = from + most_likely(&values[from..to]).0;
    }
    let each = (0..starts.len()).map(|i| {
        let (from, to) = bounds(&starts, i);
        let (at, (earliest, latest)) = (starts[i], most_likely(&values[from..to]).1);
        let (shift, interval) = shift(&values[from..at], &values[at..to]);
        LevelChange { at, between: (from + earliest, from + latest), from, to, shift, interval }
    });
    each.collect()
}

fn divide(values: &[f64], offset: usize, starts: &mut Vec<usize>) {
    if let Some(at) = energy::division(values) {
        starts.push(offset + at);
        divide(&values[..at], offset, starts);
        divide(&values[at..], offset + at, starts);
    }
}

/// Returns the most likely position of one change in a part, and the earliest and latest positions that are likely. The noise is assumed to
/// be Laplacian, whose likelihood depends on absolute distances from medians, so that a single outlier is not taken for a new level.
fn most_likely(part: &[f64]) -> (usize, (usize, usize)) {
    let starts = LEAST_SIDE..=part.len() - LEAST_SIDE;
    let distance = |at: usize| spread(&part[..at]) + spread(&part[at..]);
    let distances: Vec<f64> = starts.clone().map(distance).collect();
    let least = distances.iter().copied().fold(f64::INFINITY, f64::min);
    let at = distances.iter().position(|distance| *distance <= least).unwrap_or_default();
    // Both medians were fitted, which takes two degrees of freedom.
    let scale = least / (part.len() as f64 - 2.0);
    let is_likely = |distance: &f64| *distance - least <= LIKELIHOOD * scale;
    let first = distances.iter().position(is_likely).unwrap_or(at);
    let last = distances.iter().rposition(is_likely).unwrap_or(at);
    (at + LEAST_SIDE, (first + LEAST_SIDE, last + LEAST_SIDE))
}

/// Returns the sum of the absolute deviations from the median.
fn spread(values: &[f64]) -> f64 {
    let middle = median(values).unwrap_or_default();
    values.iter().map(|value| (value - middle).abs()).sum()
}

/// Computes the Hodges-Lehmann estimate of the shift from one sample to the other, and its 95% interval (Hollander,
/// Wolfe and Chicken, Nonparametric Statistical Methods, 3rd edition, 2014, sections 4.2 and 4.3, with the normal
/// approximation).
pub(super) fn shift(before: &[f64], after: &[f64]) -> (f64, Interval) {
    let mut all: Vec<f64> = after.iter().flat_map(|y| before.iter().map(move |x| y - x)).collect();
    all.sort_by(f64::total_cmp);
    let (m, k) = (before.len() as f64, after.len() as f64);
    let quantile = Normal::standard().inverse_cdf(0.975);
    let outside = (m * k / 2.0 - quantile * (m * k * (m + k + 1.0) / 12.0).sqrt()).floor().max(0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, below the number of pairs"
    )]
    let low = (outside as usize).saturating_sub(1).min(all.len().saturating_sub(1) / 2);
    let middle = median(&all).unwrap_or_default();
    (middle, Interval { low: all[low], high: all[all.len() - 1 - low] })
}

/// Estimates the standard deviation of a series about its levels, from the median absolute deviation; `None` for fewer than five points.
pub(super) fn noise(values: &[f64], changes: &[LevelChange]) -> Option<f64> {
    let ends = changes.iter().map(|change| change.at).chain([values.len()]);
    let mut from = 0;
    let mut deviations = Vec::new();
    for to in ends {
        let level = median(&values[from..to])?;
        deviations.extend(values[from..to].iter().map(|value| (value - level).abs()));
        from = to;
    }
    median(&deviations).filter(|_| values.len() > LEAST_SIDE).map(|deviation| deviation * MAD_TO_SD)
}

/// Checks whether the newest points of the last level stand out; `None` if they do not, or if the level has fewer than nine points.
#[must_use]
pub fn pending(values: &[f64], changes: &[LevelChange]) -> Option<Pending> {
    let level = &values[changes.last().map_or(0, |change| change.at)..];
    let most = AHEAD.min(level.len().checked_sub(2 * LEAST_SIDE)?);
    // Tries the largest number of points first.
    (1..=most).rev().find_map(|points| {
        let (rest, newest) = level.split_at(level.len() - points);
        let (before, now) = (median(rest)?, median(newest)?);
        let spread = noise(rest, &[])?;
        let is_above = |value: &f64| *value > before;
        let are_together = newest.iter().all(is_above) || !newest.iter().any(is_above);
        let stands_out = |value: &f64| (value - before).abs() > spread * 1.5;
        let far = (now - before).abs() > SUSPICIOUS * spread / (points as f64).sqrt();
        (far && are_together && newest.iter().all(stands_out)).then(|| Pending {
            points,
            shift: now - before,
            needed: (1..=AHEAD).find(|more| {
                let mut ahead = level.to_vec();
                ahead.extend(newest.iter().cycle().take(*more));
                energy::division(&ahead).is_some()
            }),
        })
    })
}
