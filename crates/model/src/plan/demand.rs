//! Demands: an application's requirements on its storage, such as a maximum fsync latency. A plan lists them under `require`.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Plan, PlanError, Slo};
use crate::number;
use crate::units::{Bytes, human};

/// A limit on a figure of a workload that every target must meet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Name of the workload; optional if the plan has only one
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workload: Option<String>,
    /// The figure and its limit: `sync p99 <= 10ms`, `write mean <= 10ms`, `p99.9 <= 50ms`, `iops >= 500`, `sustained bytes >= 125m`
    pub keep: Keep,
    /// Publication that states the limit [default: none]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<String>,
}

/// A figure of a workload and the limit that it must meet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Keep {
    /// A limit on the latency of I/Os, measured from submission to completion. For flushes with direct I/O, the commit time is limited if
    /// it was recorded: from the first write after a flush to the end of the next flush.
    Latency {
        /// The kind of I/O whose latency is limited; `None` for all I/Os together except flushes.
        of: Option<DemandOn>,
        /// The limit on the latency; never [`Slo::NoErrors`].
        slo: Slo,
    },
    /// Minimum number of I/Os per second.
    Iops(u64),
    /// Minimum sustained rate: the median rate of the intervals of a measurement after an initial burst, or of all intervals without a burst.
    Sustained {
        /// The unit of the rate: I/Os or bytes.
        of: RateUnit,
        /// The minimum number of I/Os or bytes per second.
        least: u64,
    },
}

/// The unit in which a rate is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RateUnit {
    /// I/Os per second.
    Ios,
    /// Bytes per second.
    Bytes,
}

/// The kind of I/O that a demand applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DemandOn {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes: fsync, fdatasync and sync_file_range.
    Sync,
}

impl DemandOn {
    /// Returns the word for this kind of I/O in the text of a demand, which is also the name of its direction in
    /// [`Tallies`](crate::record::Tallies).
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
        }
    }
}

/// A text that cannot be parsed as a demand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{input:?} is not a demand: {reason}; accepted: [read|write|sync] pN <= TIME, [read|write|sync] mean <= TIME, [sustained] iops >= N or sustained bytes >= SIZE, such as \"sync p99 <= 10ms\""
)]
pub struct DemandError {
    input: String,
    reason: String,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latency { of: Some(of), slo } => write!(f, "{} {slo}", of.word()),
            Self::Latency { of: None, slo } => write!(f, "{slo}"),
            Self::Iops(least) => write!(f, "iops >= {least}"),
            Self::Sustained { of: RateUnit::Ios, least } => write!(f, "sustained iops >= {least}"),
            Self::Sustained { of: RateUnit::Bytes, least } => {
                write!(f, "sustained bytes >= {}", Bytes(*least))
            }
        }
    }
}

impl Keep {
    /// Formats the limited figure: `p99 of sync`, `IOPS`.
    #[must_use]
    pub fn figure(&self) -> String {
        match self {
            Self::Latency { of: Some(of), slo } => format!("{} of {}", slo.figure(), of.word()),
            Self::Latency { of: None, slo } => slo.figure(),
            Self::Iops(_) => "IOPS".into(),
            Self::Sustained { of: RateUnit::Ios, .. } => "sustained IOPS".into(),
            Self::Sustained { of: RateUnit::Bytes, .. } => "sustained bytes a second".into(),
        }
    }

    /// Returns whether the figure is a rate, for which higher is better.
    #[must_use]
    pub const fn is_rate(&self) -> bool {
        match self {
            Self::Iops(_) | Self::Sustained { .. } => true,
            Self::Latency { .. } => false,
        }
    }

    /// Formats the limit: `at most 10 ms`.
    #[must_use]
    pub fn limit(&self) -> String {
        match self {
            Self::Latency { slo: Slo::Percentile { most, .. } | Slo::Mean { most }, .. } => {
                format!("at most {}", human::time(most.0 as f64))
            }
            Self::Latency { slo: Slo::NoErrors, .. } => "none".into(),
            Self::Iops(least) | Self::Sustained { of: RateUnit::Ios, least } => {
                format!("at least {}", human::count(*least as f64))
            }
            Self::Sustained { of: RateUnit::Bytes, least } => {
                format!("at least {}", human::rate(*least as f64))
            }
        }
    }
}

impl FromStr for Keep {
    type Err = DemandError;

    fn from_str(text: &str) -> Result<Self, DemandError> {
        let refuse = |reason: String| DemandError { input: text.to_owned(), reason };
        if let Some((figure, least)) = text.split_once(">=") {
            let ios = || number::whole(least.trim(), &(1..=u64::MAX)).map_err(&refuse);
            return match figure.split_whitespace().collect::<Vec<_>>()[..] {
                ["iops"] => Ok(Self::Iops(ios()?)),
                ["sustained", "iops"] => Ok(Self::Sustained { of: RateUnit::Ios, least: ios()? }),
                ["sustained", "bytes"] => match least.trim().parse::<Bytes>() {
                    Ok(Bytes(0)) => Err(refuse("no bytes are no limit".into())),
                    Ok(Bytes(least)) => Ok(Self::Sustained { of: RateUnit::Bytes, least }),
                    Err(error) => Err(refuse(error.to_string())),
                },
                _ => Err(refuse(format!(
                    "{:?} has no least; iops, sustained iops and sustained bytes have",
                    figure.trim()
                ))),
            };
        }
        let all = [DemandOn::Read, DemandOn::Write, DemandOn::Sync];
        let (word, rest) = text.trim().split_once(' ').unwrap_or(("", ""));
        let of = all.into_iter().find(|of| of.word() == word);
        let slo: Slo = match of {
            Some(_) => rest.parse(),
            None => text.parse(),
        }
        .map_err(|error: super::SloError| refuse(error.reason))?;
        if slo == Slo::NoErrors {
            return Err(refuse("failed I/Os are reported for every run".into()));
        }
        Ok(Self::Latency { of, slo })
    }
}

impl TryFrom<String> for Keep {
    type Error = DemandError;

    fn try_from(text: String) -> Result<Self, DemandError> {
        text.parse()
    }
}

impl From<Keep> for String {
    fn from(keep: Keep) -> Self {
        keep.to_string()
    }
}

impl JsonSchema for Keep {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Keep".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "`[read|write|sync] pN <= TIME`, `[read|write|sync] mean <= TIME`, `[sustained] iops >= N` or `sustained bytes >= SIZE`",
            "examples": ["sync p99 <= 10ms", "write mean <= 10ms", "iops >= 500", "sustained bytes >= 125m"]
        })
    }
}

/// Rejects a demand on an unknown workload or on a kind of I/O that the workload does not issue, and a demand without a workload if the plan has
/// several.
pub(super) fn check(plan: &Plan) -> Result<(), PlanError> {
    for demand in &plan.require {
        let refuse = |why: String| Err(PlanError::Content(format!("require: {}: {why}", demand.keep)));
        let workload = match &demand.workload {
            Some(name) => plan.workloads.iter().find(|workload| workload.name == *name),
            None if plan.workloads.len() == 1 => plan.workloads.first(),
            None => return refuse("workload is needed where there are several".into()),
        };
        let Some(workload) = workload else {
            return refuse(format!(
                "workload = {:?} is not in the plan",
                demand.workload.as_deref().unwrap_or("")
            ));
        };
        let Keep::Latency { of: Some(of), .. } = demand.keep else { continue };
        let has = match of {
            DemandOn::Read => workload.reads(),
            DemandOn::Write => workload.writes(),
            DemandOn::Sync => workload.jobs().any(crate::Workload::flushes),
        };
        if !has {
            return refuse(format!("workload {:?} has no {}", workload.name, of.word()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    #[test]
    fn a_demand_reads_back() {
        for text in [
            "sync p99 <= 10ms",
            "write mean <= 10ms",
            "p99.9 <= 50ms",
            "iops >= 500",
            "sustained iops >= 3000",
            "sustained bytes >= 125m",
        ] {
            let keep: Keep = text.parse().expect(text);
            assert_eq!(keep.to_string(), text);
        }
        let keep: Keep = "sync p99 <= 10ms".parse().expect("a demand");
        let slo = Slo::Percentile { percent: 99.0, most: Nanos::from_millis(10) };
        assert_eq!(keep, Keep::Latency { of: Some(DemandOn::Sync), slo });
        assert_eq!((keep.figure(), keep.limit()), ("p99 of sync".into(), "at most 10.0 ms".into()));
    }

    #[test]
    fn others_are_refused_in_words() {
        for (text, reason) in [
            ("iops >= 0", "iops >= 0"),
            ("sustained bytes >= 0", "no limit"),
            ("sustained bytes >= much", "much"),
            ("bytes >= 125m", "has no least"),
            ("p99 >= 10ms", "has no least"),
            ("fsync p99 <= 10ms", "accepted: [read|write|sync] pN"),
            ("sync p99", "it has no <="),
            ("errors = 0", "reported for every run"),
        ] {
            let error = text.parse::<Keep>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
