//! The levels of a rate within one measurement: the sustained rate, and an initial burst if the rate fell.

use iotax_model::plan::RateUnit;
use iotax_model::record::{Measurement, Sample};

use crate::checks::step::{self, Step};
use crate::figures::whole_intervals;
use crate::stats::{MAD_TO_SD, median};

/// Minimum number of intervals for a sustained rate.
const LEVEL: usize = 3;

/// An initial rate that was higher than the sustained rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstLevel {
    /// The rate, in I/Os or bytes per second.
    pub rate: f64,
    /// Time from the start of the measured window to the end of the burst, in seconds.
    pub seconds: f64,
}

/// Burst and sustained rate within one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// The higher rate before the fall; absent if the rate did not fall.
    pub burst: Option<BurstLevel>,
    /// The median rate of the intervals after the fall, or of all intervals, in I/Os or bytes per second.
    pub sustained: f64,
    /// Scatter of the rate over the same intervals, as a share of its median: the median absolute deviation, scaled to a standard
    /// deviation.
    pub scatter: f64,
}

impl Levels {
    /// Finds the levels in a measurement's intervals; `None` for fewer than three intervals, or if the sustained rate is 0.
    #[must_use]
    pub fn of(m: &Measurement, unit: RateUnit) -> Option<Self> {
        let samples = whole_intervals(m);
        let rates: Vec<f64> = samples.iter().map(|sample| rate(sample, unit)).collect();
        let fall = fall(&rates);
        let held = &rates[fall.map_or(0, |(_, begin)| begin)..];
        let middle = median(held).filter(|middle| *middle > 0.0 && held.len() >= LEVEL)?;
        let away: Vec<f64> = held.iter().map(|rate| (rate - middle).abs()).collect();
        let burst = fall.map(|(fall, _)| BurstLevel {
            rate: fall.before,
            seconds: samples[fall.at - 1].at_ns as f64 / 1e9,
        });
        Some(Self { burst, sustained: middle, scatter: median(&away)? * MAD_TO_SD / middle })
    }
}

/// Returns the intervals of a measurement, each as its end in seconds from the start of the measured window, and the rate in I/Os or bytes
/// per second. Leaves out short intervals, such as the last.
#[must_use]
pub fn rates(m: &Measurement, unit: RateUnit) -> Vec<(f64, f64)> {
    whole_intervals(m).into_iter().map(|sample| (sample.at_ns as f64 / 1e9, rate(sample, unit))).collect()
}

/// Finds the fall of a rate and the first interval after it; `None` if the rate did not fall. An interval during which the rate fell
/// belongs to neither level.
fn fall(rates: &[f64]) -> Option<(Step, usize)> {
    let between = |at: usize| {
        let others = [&rates[..at], &rates[at + 1..]].concat();
        step::down(&others).filter(|fall| fall.at == at).map(|fall| (fall, at + 1))
    };
    let clean = step::down(rates).map(|fall| (fall, fall.at));
    clean.or_else(|| (0..rates.len()).find_map(between)).filter(|(_, begin)| rates.len() - begin >= LEVEL)
}

fn rate(sample: &Sample, unit: RateUnit) -> f64 {
    let amount = match unit {
        RateUnit::Ios => sample.tallies.ios(),
        RateUnit::Bytes => sample.tallies.bytes(),
    };
    amount as f64 / (sample.duration_ns as f64 / 1e9)
}
