//! Gates: differences that make a script fail, such as `latency_p99 slower > 5%`.

use std::fmt;
use std::str::FromStr;

use iotax_model::words::WordError;

use crate::metric::Metric;

/// The metric of a gate that names no metric.
const DEFAULT: Metric = Metric::LATENCY_MEAN;
/// Largest threshold accepted, in percent.
const MOST: f64 = 100_000.0;

/// Direction of a difference that trips a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateDirection {
    /// The figure is worse than the baseline's.
    Slower,
    /// The figure is better than the baseline's.
    Faster,
    /// The figure is worse or better than the baseline's.
    Different,
}

impl GateDirection {
    const ALL: [Self; 3] = [Self::Slower, Self::Faster, Self::Different];

    /// Returns `slower`, `faster` or `different`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Different => "different",
        }
    }
}

/// A difference that fails a comparison: `[METRIC] slower|faster|different > N%`.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The metric that is compared.
    pub metric: Metric,
    /// Direction of the difference that trips the gate.
    pub direction: GateDirection,
    /// The threshold as a fraction: 0.05 for 5%. The gate trips if the ratio's whole confidence interval lies above `1 + threshold` or
    /// below `1 / (1 + threshold)`, in the gate's direction.
    pub threshold: f64,
    /// The gate as text, with its metric spelled out: `latency_mean slower > 5%`.
    text: String,
}

/// Error for a text that is not a valid gate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{input:?} is not a gate: {reason}; accepted: [METRIC] slower|faster|different > N%, such as \"slower > 5%\" or \
     \"latency_p99 slower > 10%\""
)]
pub struct GateError {
    input: String,
    reason: String,
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Gate {
    type Err = GateError;

    fn from_str(text: &str) -> Result<Self, GateError> {
        let refuse = |reason: String| GateError { input: text.to_owned(), reason };
        let (condition, limit) =
            text.split_once('>').ok_or_else(|| refuse("it has no \">\" with a limit".into()))?;
        let threshold = share(limit).map_err(&refuse)?;
        let words: Vec<&str> = condition.split_whitespace().collect();
        let (metric, direction) = match words.as_slice() {
            [direction] => (DEFAULT, *direction),
            [metric, direction] => (metric.parse().map_err(|error| refuse(format!("{error}")))?, *direction),
            _ => return Err(refuse("before \">\" stand a metric, which may be left out, and a word".into())),
        };
        let direction =
            GateDirection::ALL.into_iter().find(|known| known.word() == direction).ok_or_else(|| {
                refuse(
                    WordError::new("direction", direction, &GateDirection::ALL.map(GateDirection::word))
                        .to_string(),
                )
            })?;
        let text = format!("{} {} > {}", metric.word(), direction.word(), limit.trim());
        Ok(Self { metric, direction, threshold, text })
    }
}

impl Gate {
    /// Parses several gates, separated by commas. Fails at the first part that is not a valid gate.
    pub fn list(text: &str) -> Result<Vec<Self>, GateError> {
        text.split(',').map(str::parse).collect()
    }
}

/// Parses a percentage: `5%` is 0.05.
fn share(text: &str) -> Result<f64, String> {
    let refuse = || format!("{:?} is not a percentage such as 5% or 0.5%", text.trim());
    let number = text.trim().strip_suffix('%').ok_or_else(refuse)?.trim_end();
    // Other notations of a float (inf, 1e3, -1) are not accepted.
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(refuse());
    }
    let percent: f64 = number.parse().map_err(|_| refuse())?;
    if percent > MOST { Err(refuse()) } else { Ok(percent / 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_reads_as_it_is_meant() {
        for (text, metric, direction, threshold, said) in [
            ("slower > 5%", Metric::LATENCY_MEAN, GateDirection::Slower, 0.05, "latency_mean slower > 5%"),
            ("iops slower>0.5 %", Metric::IOPS, GateDirection::Slower, 0.005, "iops slower > 0.5 %"),
            (
                " latency_p99_9  different > 150%",
                Metric::LATENCY_P99_9,
                GateDirection::Different,
                1.5,
                "latency_p99_9 different > 150%",
            ),
            (
                "p99.9 slower > 5%",
                Metric::LATENCY_P99_9,
                GateDirection::Slower,
                0.05,
                "latency_p99_9 slower > 5%",
            ),
            (
                "mean faster > 0%",
                Metric::LATENCY_MEAN,
                GateDirection::Faster,
                0.0,
                "latency_mean faster > 0%",
            ),
            ("faster > 0%", Metric::LATENCY_MEAN, GateDirection::Faster, 0.0, "latency_mean faster > 0%"),
        ] {
            let gate: Gate = text.parse().expect(text);
            assert_eq!((gate.metric, gate.direction, gate.to_string().as_str()), (metric, direction, said));
            assert!((gate.threshold - threshold).abs() < 1e-12, "{text}: {}", gate.threshold);
        }
        assert_eq!(Gate::list("slower > 5%, iops slower > 3%").expect("two").len(), 2);
    }

    #[test]
    fn what_is_no_gate_is_quoted_with_the_accepted_form() {
        for (text, reason) in [
            ("", "no \">\""),
            ("slower", "no \">\""),
            ("slower > 5", "\"5\" is not a percentage such as 5%"),
            ("slower > -5%", "\"-5%\""),
            ("slower > inf%", "\"inf%\""),
            ("slower > %", "\"%\""),
            ("slower > 1e3%", "\"1e3%\""),
            ("slower > 1.2.3%", "\"1.2.3%\""),
            ("slower > 1000000%", "\"1000000%\""),
            ("> 5%", "a metric, which may be left out"),
            ("a b c > 5%", "a metric, which may be left out"),
            ("slowr > 5%", "(did you mean \"slower\"?)"),
            ("latency_p9 slower > 5%", "(did you mean \"latency_p99\"?)"),
            ("latency slower > 5%", "\"latency\" is not a known metric"),
            ("slower < 5%", "no \">\""),
        ] {
            let error = text.parse::<Gate>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains(&format!("{text:?}")), "{text}: {error}");
            assert!(error.contains("accepted: [METRIC] slower|faster|different > N%"), "{error}");
        }
        assert!(Gate::list("slower > 5%,").is_err());
    }
}
