//! A criterion for ending a measurement once its load is steady, with fio's syntax and meaning.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{TextError, text_form};
use super::{Workload, WorkloadError};
use crate::units::{Bytes, Nanos, human};
use crate::words::words;

/// Default time between two values of the figure.
const CHECK_INTERVAL: Nanos = Nanos::from_secs(1);

words! {
    /// The figure that must become steady.
    SteadyFigure, "steadystate" {
        /// I/Os per second.
        Iops = "iops",
        /// Bytes per second.
        Bw = "bw",
        /// Mean latency.
        Lat = "lat",
    }
}

/// The largest deviation or slope of a steady load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SteadyLimit {
    /// A percentage of the mean.
    Percent(f64),
    /// A value in the figure's unit: I/Os per second, or bytes per second.
    Absolute(f64),
}

/// A criterion on the values of a figure over `steadystate_duration`. Text form: `iops:2%`, `bw_slope:1m`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyCriterion {
    /// The figure that must become steady.
    pub figure: SteadyFigure,
    /// True for the slope of the values' least-squares line, from one value to the next; false for the largest deviation of a value from
    /// their mean.
    pub is_slope: bool,
    /// The deviation or slope must be below this.
    pub limit: SteadyLimit,
}

impl SteadyCriterion {
    /// Returns the deviation or slope of these values in the unit of the limit, negative for a falling line; `None` for fewer than two values, or
    /// for a share of a mean that is not positive.
    #[must_use]
    pub fn of(&self, values: &[f64]) -> Option<f64> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let is_known = values.len() > 1 && (mean > 0.0 || matches!(self.limit, SteadyLimit::Absolute(_)));
        let value = if self.is_slope {
            let middle = (count - 1.0) / 2.0;
            let centered = || values.iter().enumerate().map(|(index, value)| (index as f64 - middle, value));
            let squares: f64 = centered().map(|(at, _)| at.powi(2)).sum();
            centered().map(|(at, value)| at * value).sum::<f64>() / squares
        } else {
            values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max)
        };
        is_known.then_some(match self.limit {
            SteadyLimit::Percent(_) => 100.0 * value / mean,
            SteadyLimit::Absolute(_) => value,
        })
    }

    /// Returns whether a deviation or slope from [`Self::of`] is below the limit.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        let (SteadyLimit::Percent(limit) | SteadyLimit::Absolute(limit)) = self.limit;
        value.abs() < limit
    }
}

impl FromStr for SteadyCriterion {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        let refuse = |reason: String| {
            let accepted = "iops, iops_slope, bw, bw_slope, lat or lat_slope and a limit: iops:2%, bw:10m or, for lat, a percentage";
            TextError::new("a steadystate", text, reason, accepted)
        };
        let (word, limit) = text.split_once(':').ok_or_else(|| refuse("a limit is missing".into()))?;
        let (figure, is_slope) =
            word.trim().strip_suffix("_slope").map_or((word.trim(), false), |it| (it, true));
        let figure = figure.parse().map_err(|_| refuse(format!("{word:?} is no figure")))?;
        let limit = limit.trim();
        let (percent, number) =
            limit.strip_suffix('%').map_or((false, limit), |share| (true, share.trim_end()));
        let value = match figure {
            SteadyFigure::Bw if !percent => number.parse::<Bytes>().ok().map(|bytes| bytes.0 as f64),
            SteadyFigure::Lat if !percent => None,
            _ => number.parse::<f64>().ok(),
        };
        let value = value.filter(|value| *value > 0.0 && value.is_finite());
        let value = value.ok_or_else(|| refuse(format!("{limit:?} is no limit of {word}")))?;
        let limit = if percent { SteadyLimit::Percent(value) } else { SteadyLimit::Absolute(value) };
        Ok(Self { figure, is_slope, limit })
    }
}

impl fmt::Display for SteadyCriterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slope = if self.is_slope { "_slope" } else { "" };
        write!(f, "{}{slope}:", self.figure)?;
        match (self.limit, self.figure) {
            (SteadyLimit::Percent(limit), _) => write!(f, "{limit}%"),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it was a number of bytes"
            )]
            (SteadyLimit::Absolute(limit), SteadyFigure::Bw) => write!(f, "{}", Bytes(limit as u64)),
            (SteadyLimit::Absolute(limit), _) => write!(f, "{limit}"),
        }
    }
}

text_form!(SteadyCriterion);

/// Result of a load with a `steadystate`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SteadyResult {
    /// Nanoseconds from the start of the window until the criterion held, which ended the load; absent if it never held.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub attained_ns: Option<u64>,
    /// Deviation or slope over the last `steadystate_duration`, in percent of the mean or in the figure's unit, as in the criterion. Absent if
    /// the load was shorter.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
}

impl fmt::Display for SteadyResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attained_ns {
            Some(ns) => write!(f, "steadystate was reached after {}", human::duration(ns as f64 / 1e9)),
            None => write!(f, "steadystate was not reached"),
        }
    }
}

impl Workload {
    /// Returns the time between two values of the figure that must become steady.
    #[must_use]
    pub fn steady_interval(&self) -> Nanos {
        self.steadystate_check_interval.unwrap_or(CHECK_INTERVAL)
    }

    /// Rejects a criterion without a duration of at least two values, settings without a criterion, and work other than plain I/O.
    pub(super) fn check_steady(&self) -> Result<(), WorkloadError> {
        let Some(criterion) = &self.steadystate else {
            let settings = [
                ("steadystate_duration", self.steadystate_duration),
                ("steadystate_ramp_time", self.steadystate_ramp_time),
                ("steadystate_check_interval", self.steadystate_check_interval),
            ];
            return match settings.into_iter().find_map(|(key, time)| Some((key, time?))) {
                Some((key, time)) => Err(self.refusal(key, &time, "needs a steadystate, such as iops:2%")),
                None => Ok(()),
            };
        };
        if self.kind.test().is_some() || self.read_iolog.is_some() {
            return Err(self.refusal(
                "steadystate",
                criterion,
                "a test or a replay ends by itself; leave it out",
            ));
        }
        let interval = self.steady_interval();
        if interval < Nanos::from_millis(100) {
            return Err(self.refusal("steadystate_check_interval", &interval, "accepted: 100ms and more"));
        }
        match self.steadystate_duration {
            None => Err(self.refusal("steadystate", criterion, "needs a steadystate_duration, such as 30s")),
            Some(duration) if duration.0 / interval.0 < 2 => {
                let accepted =
                    format!("accepted: {} and more, twice steadystate_check_interval", Nanos(2 * interval.0));
                Err(self.refusal("steadystate_duration", &duration, &accepted))
            }
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_read_back_or_are_refused() {
        for text in
            ["iops:2%", "iops:100", "iops_slope:0.01%", "bw:10m", "bw_slope:1.5%", "lat:5%", "lat_slope:1%"]
        {
            assert_eq!(text.parse::<SteadyCriterion>().expect(text).to_string(), text.to_owned());
        }
        for (text, reason) in [
            ("iops", "a limit is missing"),
            ("iops:", "\"\" is no limit of iops"),
            ("iops:0%", "\"0%\" is no limit"),
            ("iops:-2", "\"-2\" is no limit"),
            ("iops:NaN%", "\"NaN%\" is no limit"),
            ("lat:5us", "\"5us\" is no limit of lat"),
            ("clat:5%", "\"clat\" is no figure"),
            ("bw_slope_slope:5%", "\"bw_slope_slope\" is no figure"),
        ] {
            let error = text.parse::<SteadyCriterion>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("iops:2%"), "{error}");
        }
    }

    #[test]
    fn deviation_and_slope_are_those_of_fio() {
        let of = |text: &str, values: &[f64]| text.parse::<SteadyCriterion>().expect(text).of(values);
        let line = [90.0, 95.0, 100.0, 105.0, 110.0];
        // The largest difference from the mean, and the slope from one value to the next.
        assert_eq!(of("iops:1%", &line), Some(10.0));
        assert_eq!(of("iops_slope:1%", &line), Some(5.0));
        let falling: Vec<f64> = line.iter().rev().map(|value| 2.0 * value).collect();
        assert_eq!((of("iops:1", &falling), of("iops_slope:1", &falling)), (Some(20.0), Some(-10.0)));
        assert_eq!((of("iops:1%", &[0.0; 3]), of("iops:1", &[0.0; 3])), (None, Some(0.0)));
        assert_eq!(of("iops:1%", &[1.0]), None);
        let criterion: SteadyCriterion = "bw:10".parse().expect("one");
        assert!(criterion.holds(9.9) && criterion.holds(-9.9) && !criterion.holds(10.0), "below the limit");
    }
}
