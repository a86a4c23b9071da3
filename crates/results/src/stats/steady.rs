//! Whether a measurement settled.

use iotax_model::record::Sample;

use super::median;

/// Fewer intervals say nothing.
const FEWEST: usize = 5;
/// The spread that a steady window keeps within, as a share of the mean.
const RANGE: f64 = 0.20;
/// What the fitted line may rise or fall over the window, as a share of the mean.
const DRIFT: f64 = 0.10;

/// How the I/O rate of a measurement moved, interval by interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steadiness {
    /// Largest less smallest rate, as a share of the mean.
    pub range: f64,
    /// Rise (or fall, if negative) of the least-squares line from the first interval to the last, as a share of the mean.
    pub drift: f64,
}

impl Steadiness {
    /// The SNIA Solid State Storage Performance Test Specification's window: range at most 20% of the mean and slope
    /// times window at most 10%. The specification applies it to five rounds; here it is the intervals of one
    /// measurement.
    #[must_use]
    pub fn is_steady(self) -> bool {
        self.range <= RANGE && self.drift.abs() <= DRIFT
    }
}

/// The I/O rate over the intervals of one measurement; absent for fewer than five whole intervals or without I/O.
#[must_use]
pub fn steadiness(samples: &[Sample]) -> Option<Steadiness> {
    let lengths: Vec<f64> = samples.iter().map(|s| s.duration_ns as f64).collect();
    // The last interval is often a stub, whose rate is mostly chance.
    let whole = median(&lengths)? / 2.0;
    let rates: Vec<f64> = samples
        .iter()
        .filter(|s| s.duration_ns as f64 >= whole && s.duration_ns > 0)
        .map(|s| {
            let ios: u64 = s.read.iter().chain(&s.write).map(|tally| tally.ios).sum();
            ios as f64 / (s.duration_ns as f64 / 1e9)
        })
        .collect();
    of_rates(&rates)
}

fn of_rates(rates: &[f64]) -> Option<Steadiness> {
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    if rates.len() < FEWEST || mean <= 0.0 {
        return None;
    }
    let (low, high) = rates.iter().fold((f64::MAX, f64::MIN), |(l, h), r| (l.min(*r), h.max(*r)));
    let middle = (n - 1.0) / 2.0;
    let across: f64 = rates.iter().enumerate().map(|(i, r)| (i as f64 - middle) * (r - mean)).sum();
    let along: f64 = (0..rates.len()).map(|i| (i as f64 - middle).powi(2)).sum();
    Some(Steadiness { range: (high - low) / mean, drift: across / along * (n - 1.0) / mean })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::Tally;

    #[test]
    fn the_window_is_snias() {
        let flat = of_rates(&[100.0, 101.0, 99.0, 100.0, 100.0]).expect("five");
        assert!(flat.is_steady(), "{flat:?}");
        let spread = of_rates(&[100.0, 125.0, 100.0, 100.0, 100.0]).expect("five");
        assert!(!spread.is_steady() && spread.range > RANGE, "{spread:?}");
        // A range of 16% is fine, a steady fall of 16% is not.
        let falling = of_rates(&[108.0, 104.0, 100.0, 96.0, 92.0]).expect("five");
        assert!(falling.range <= RANGE && (falling.drift + 0.16).abs() < 1e-9, "{falling:?}");
        assert!(!falling.is_steady());
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(of_rates(&[1.0; 4]), None);
        assert_eq!(of_rates(&[0.0; 9]), None);
        assert_eq!(steadiness(&[]), None);
    }

    #[test]
    fn a_stub_at_the_end_is_left_out() {
        let sample = |duration_ns, ios| Sample {
            at_ns: 0,
            duration_ns,
            read: Some(Tally { ios, ..Tally::default() }),
            write: None,
        };
        let mut samples = vec![sample(1_000_000_000, 500); 6];
        samples.push(sample(1_000_000, 3));
        assert_eq!(steadiness(&samples), Some(Steadiness { range: 0.0, drift: 0.0 }));
    }
}
