//! The levels of a rate within one measurement: a burst at its beginning, if the rate then fell, and what holds behind it.

use iotax_model::plan::RateUnit;
use iotax_model::record::{Measurement, Tallies};

use crate::checks::step::{self, Step};
use crate::figures::whole_intervals;
use crate::stats::{MAD_TO_SD, median};

/// Fewest intervals behind a fall that make a level.
const LEVEL: usize = 3;

/// A rate that was higher at first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstLevel {
    /// The rate, in I/Os or bytes per second.
    pub rate: f64,
    /// Length from the start of the measured window, in seconds.
    pub seconds: f64,
}

/// The levels of a rate within one measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// The higher rate before the fall; absent if the rate did not fall.
    pub burst: Option<BurstLevel>,
    /// The median rate of the intervals behind the fall, or of all, in I/Os or bytes per second.
    pub sustained: f64,
    /// Spread of the intervals about their median there, as a share of it: the median absolute deviation, scaled to a standard deviation.
    pub scatter: f64,
}

impl Levels {
    /// The levels of a measurement by its intervals; `None` for fewer than three of them, or without I/O in any.
    #[must_use]
    pub fn of(m: &Measurement, unit: RateUnit) -> Option<Self> {
        let samples = whole_intervals(m);
        let rates: Vec<f64> = samples
            .iter()
            .map(|sample| amount(&sample.tallies, unit) as f64 / (sample.duration_ns as f64 / 1e9))
            .collect();
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

/// The fall of a rate, and the first interval behind it. The interval in which it fell belongs to neither level, if that makes two of them.
fn fall(rates: &[f64]) -> Option<(Step, usize)> {
    let between = |at: usize| {
        let others = [&rates[..at], &rates[at + 1..]].concat();
        step::down(&others).filter(|fall| fall.at == at).map(|fall| (fall, at + 1))
    };
    let clean = step::down(rates).map(|fall| (fall, fall.at));
    clean.or_else(|| (0..rates.len()).find_map(between)).filter(|(_, begin)| rates.len() - begin >= LEVEL)
}

fn amount(tallies: &Tallies, unit: RateUnit) -> u64 {
    match unit {
        RateUnit::Ios => tallies.ios(),
        RateUnit::Bytes => tallies.bytes(),
    }
}
