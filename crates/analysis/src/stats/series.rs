//! The intervals of one measurement: an apparent warm-up, and the effective number of independent values.
//!
//! Both are only reported: no interval is removed from the measurement.

use iotax_model::record::{Sample, Tallies};

use super::steady;

/// Number of intervals averaged into a batch before the end of the warm-up is searched for: the 5 of MSER-5.
const BATCH: usize = 5;
/// Minimum number of batches in which a warm-up is searched for.
const FEWEST_BATCHES: usize = 4;
/// Minimum number of intervals for an autocorrelation.
const FEWEST: usize = 10;

/// Statistics of one measurement's I/O rates by interval: autocorrelation and apparent warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Number of whole intervals, without a shorter one at the end.
    pub intervals: usize,
    /// Correlation of each interval's rate with the next one's, -1 to 1.
    pub autocorrelation: f64,
    /// Number of independent values that would estimate the mean rate equally well: n over the integrated autocorrelation time, summed
    /// over the initial positive sequence (Geyer, Practical Markov chain Monte Carlo, Statistical Science 7, 1992, section 3.3).
    /// At most n.
    pub effective: f64,
    /// The apparent warm-up; absent for fewer than 20 intervals, or if none is visible.
    pub warm_up: Option<WarmUp>,
}

/// An initial part of a measurement whose rate differs from the later rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmUp {
    /// Length of the warm-up in nanoseconds.
    pub ns: u64,
    /// Mean rate of the warm-up divided by the mean rate after it.
    pub ratio: f64,
    /// True if the end of the warm-up was found at the last position tried, the middle of the window: the rate may never have settled.
    pub unsettled: bool,
}

/// Analyses a measurement's intervals; `None` for fewer than ten whole intervals, or if all have the same rate.
#[must_use]
pub fn series(samples: &[Sample], count: impl Fn(&Tallies) -> u64) -> Option<Series> {
    let whole = steady::whole(samples);
    let rates: Vec<f64> =
        whole.iter().map(|s| count(&s.tallies) as f64 / (s.duration_ns as f64 / 1e9)).collect();
    let (autocorrelation, effective) = correlation(&rates)?;
    let warm_up = cut(&rates).map(|(intervals, ratio)| WarmUp {
        ns: whole[..intervals].iter().map(|s| s.duration_ns).sum(),
        ratio,
        unsettled: intervals / BATCH == rates.len() / BATCH / 2,
    });
    Some(Series { intervals: rates.len(), autocorrelation, effective, warm_up })
}

/// Returns the correlation of each value with the next, and the effective number of values; `None` for fewer than ten values, or if all are
/// equal.
fn correlation(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len();
    if n < FEWEST {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    let covariance =
        |lag: usize| values.iter().zip(&values[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let variance = covariance(0);
    if variance <= f64::EPSILON * mean * mean * n as f64 {
        return None;
    }
    let rho = |lag: usize| if lag < n { covariance(lag) / variance } else { 0.0 };
    // Sums of adjacent pairs are positive in theory: the first one that is not positive is noise.
    let pairs = (0..n.div_ceil(2)).map(|m| rho(2 * m) + rho(2 * m + 1)).take_while(|pair| *pair > 0.0);
    let time = 2.0 * pairs.sum::<f64>() - 1.0;
    Some((rho(1), n as f64 / time.max(1.0)))
}

/// Finds the cut in the first half after which the standard error of the batch means is least: the marginal standard error rule on means of
/// five (White, An effective truncation heuristic for bias reduction in simulation output, Simulation 69, 1997; White, Cobb and Spratt,
/// Winter Simulation Conference 2000). Returns the number of intervals before the cut, and the ratio of their mean to that of the others.
/// `None` if no cut helps, or for fewer than 20 intervals.
fn cut(rates: &[f64]) -> Option<(usize, f64)> {
    let batches: Vec<f64> = rates.chunks_exact(BATCH).map(mean).collect();
    let k = batches.len();
    if k < FEWEST_BATCHES {
        return None;
    }
    let error = |from: usize| {
        let rest = &batches[from..];
        let middle = mean(rest);
        rest.iter().map(|z| (z - middle).powi(2)).sum::<f64>() / (rest.len() as f64).powi(2)
    };
    let errors: Vec<f64> = (0..=k / 2).map(error).collect();
    let least = errors.iter().enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(from, _)| from)?;
    let rest = mean(&batches[least..]);
    (least > 0 && rest > 0.0).then(|| (least * BATCH, mean(&batches[..least]) / rest))
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::{Tallies, Tally};

    fn samples(rates: &[u64]) -> Vec<Sample> {
        let tally = |ios| Tally { ios, ..Tally::default() };
        let sample = |ios| Sample {
            at_ns: 0,
            duration_ns: 1_000_000_000,
            tallies: Tallies { read: Some(tally(ios)), ..Tallies::default() },
            oldest_ns: None,
            failed: 0,
            directions: Vec::new(),
        };
        rates.iter().map(|ios| sample(*ios)).collect()
    }

    /// Returns the `i`th value of a fixed pseudo-random sequence around 1000.
    fn noise(i: u64) -> u64 {
        1000 + (i * 7919 + 13).pow(2) % 41 - 20
    }

    #[test]
    fn a_fast_beginning_is_found() {
        let rates: Vec<u64> = (0..40).map(|i| if i < 8 { 2 * noise(i) } else { noise(i) }).collect();
        let found = series(&samples(&rates), Tallies::ios).expect("40 intervals");
        let warm_up = found.warm_up.expect("there is one");
        // The cut is at a whole batch.
        assert_eq!((warm_up.ns, warm_up.unsettled), (10_000_000_000, false), "{found:?}");
        assert!((1.7..2.0).contains(&warm_up.ratio), "{found:?}");
    }

    #[test]
    fn what_never_settles_is_said_to_be_so() {
        let rates: Vec<u64> = (0..40).map(|i| 4000 - 80 * i).collect();
        let found = series(&samples(&rates), Tallies::ios).expect("40 intervals");
        assert!(found.warm_up.is_some_and(|w| w.unsettled && w.ratio > 1.5), "{found:?}");
        assert!(found.autocorrelation > 0.8 && found.effective < 10.0, "{found:?}");
    }

    #[test]
    fn independent_values_count_as_many_as_they_are() {
        let rates: Vec<u64> = (0..60).map(noise).collect();
        let found = series(&samples(&rates), Tallies::ios).expect("60 intervals");
        assert!(found.autocorrelation.abs() < 0.3 && found.effective > 30.0, "{found:?}");
        // Alternating rates average out faster than chance, but never count as more values than there are.
        let turns: Vec<u64> = (0..20).map(|i| if i % 2 == 0 { 900 } else { 1100 }).collect();
        let found = series(&samples(&turns), Tallies::ios).expect("20 intervals");
        assert!((found.effective - 20.0).abs() < 1e-9 && found.autocorrelation < -0.9, "{found:?}");
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(series(&[], Tallies::ios), None);
        assert_eq!(
            series(&samples(&[1000, 1100, 900, 1000, 1000, 1000, 1000, 1000, 1000]), Tallies::ios),
            None
        );
        assert_eq!(series(&samples(&[1000; 30]), Tallies::ios), None, "all the same");
        let found =
            series(&samples(&[3000, 900, 1000, 1100, 1000, 900, 1000, 1000, 1100, 1000]), Tallies::ios)
                .expect("ten");
        assert_eq!(found.warm_up, None);
    }
}
