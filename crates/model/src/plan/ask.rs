//! A plan that searches for the highest rate at which a target meets conditions on its I/Os. The rates are chosen during the run.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rates::at_rate;
use super::{BETWEEN, Plan, PlanError};
use crate::units::Nanos;
use crate::words::WordError;
use crate::workload::Workload;

/// Default total time of the search.
const TIME: Nanos = Nanos::from_secs(180);
/// Trials of each workload on each target before the search narrows: two in a closed loop, then six at rates from 5% to 95% of the
/// capacity.
const COARSE: u64 = 8;
/// Length of a window while the target runs at the rate found. Windows last one second if `sustain` is below two minutes.
const MINUTE: Nanos = Nanos::from_secs(60);
const SECOND: Nanos = Nanos::from_secs(1);
const DAY: Nanos = Nanos::from_secs(86_400);
/// Suffix of the names of workloads that run at the rate found by the search.
const HELD: &str = "-held";
/// Number of pairs of trials for which a search must have time, so that it can give a confidence interval. One trial of a pair is below the
/// estimated rate, the other above.
const FEWEST_PAIRS: u64 = 6;

/// Searches for the highest rate at which each target meets the conditions, in place of rounds of fixed workloads.
///
/// Each rate to try depends on the results so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskSpec {
    /// Conditions that must all be met: `p99 <= 0.5ms`, `mean <= 2ms`, `errors = 0`
    pub slo: Vec<Slo>,
    /// Time for the search [default: 3m]
    #[serde(default = "time")]
    pub time: Nanos,
    /// Answer whether this many I/Os per second are possible [default: only search]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub iops: Option<u64>,
    /// After the search, hold the rate found on each target for this long [default: do not hold it]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sustain: Option<Nanos>,
}

fn time() -> Nanos {
    TIME
}

/// A condition on I/Os. In a search, latency is the response time: from when an I/O was due to its completion. Demands limit the latencies
/// that [`Keep::Latency`](super::Keep::Latency) describes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Slo {
    /// A limit on a percentile of the latency. In a search, a failed I/O counts as later than the limit.
    Percentile {
        /// The percentile, above 0 and below 100.
        percent: f64,
        /// The highest latency that meets the condition.
        most: Nanos,
    },
    /// A limit on the mean latency.
    Mean {
        /// The highest latency that meets the condition.
        most: Nanos,
    },
    /// No I/O fails at the rate that a search tries. Demands reject this condition.
    NoErrors,
}

/// Figures that conditions can limit, listed in error messages. Other percentiles are accepted too.
const FIGURES: [&str; 7] = ["mean", "p50", "p90", "p95", "p99", "p99.9", "errors"];

/// A text that cannot be parsed as a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{input:?} is not a condition: {reason}; accepted: pN <= TIME, mean <= TIME, errors = 0, such as \"p99 <= 0.5ms\" or \"p99.9 <= 2ms\""
)]
pub struct SloError {
    input: String,
    pub(super) reason: String,
}

impl Slo {
    /// Returns the name of the figure that the condition limits: `p99`, `mean`, `errors`.
    #[must_use]
    pub fn figure(&self) -> String {
        match self {
            Self::Percentile { percent, .. } => format!("p{percent}"),
            Self::Mean { .. } => "mean".into(),
            Self::NoErrors => "errors".into(),
        }
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percentile { most, .. } | Self::Mean { most } => {
                f.pad(&format!("{} <= {}", self.figure(), most))
            }
            Self::NoErrors => f.pad("errors = 0"),
        }
    }
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        let refuse = |reason: String| SloError { input: text.to_owned(), reason };
        let at = text.find(['<', '=', '>']).ok_or_else(|| refuse("it has no <=".into()))?;
        let (named, rest) = (text[..at].trim(), &text[at..]);
        // Reports name the same metrics differently: latency_p99_9.
        let figure = named.strip_prefix("latency_").unwrap_or(named).replace('_', ".");
        let sign_len = rest.find(|c| !"<=>".contains(c)).unwrap_or(rest.len());
        let (sign, limit) = (&rest[..sign_len], rest[sign_len..].trim());
        if figure == "errors" {
            let none = matches!(sign, "=" | "==" | "<=") && limit == "0";
            return if none {
                Ok(Self::NoErrors)
            } else {
                Err(refuse("errors can only be asked to be none: errors = 0".into()))
            };
        }
        if !matches!(sign, "<=" | "<") {
            return Err(refuse(format!(
                "{sign:?} between a latency and its limit; a latency has a most: <="
            )));
        }
        let most: Nanos = limit.parse().map_err(|error| refuse(format!("{error}")))?;
        if most == Nanos(0) {
            return Err(refuse("no I/O takes no time".into()));
        }
        if figure == "mean" {
            return Ok(Self::Mean { most });
        }
        let percent: Option<f64> = figure.strip_prefix('p').and_then(|number| number.parse().ok());
        match percent {
            Some(percent) if percent > 0.0 && percent < 100.0 => Ok(Self::Percentile { percent, most }),
            Some(_) => Err(refuse(format!("{named:?}: a percentile is above 0 and below 100"))),
            None => Err(refuse(WordError::new("figure", named, &FIGURES).to_string())),
        }
    }
}

impl TryFrom<String> for Slo {
    type Error = SloError;

    fn try_from(text: String) -> Result<Self, SloError> {
        text.parse()
    }
}

impl From<Slo> for String {
    fn from(slo: Slo) -> Self {
        slo.to_string()
    }
}

impl JsonSchema for Slo {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Slo".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A condition: `pN <= TIME`, `mean <= TIME` or `errors = 0`",
            "examples": ["p99 <= 0.5ms", "p99.9 <= 2ms", "mean <= 1ms", "errors = 0"]
        })
    }
}

impl AskSpec {
    /// Creates a search for the highest rate that meets these conditions, with default settings.
    #[must_use]
    pub fn new(slo: Vec<Slo>) -> Self {
        Self { slo, time: TIME, iops: None, sustain: None }
    }

    /// Returns the length and number of the windows at the rate that the search found; `None` without [`Self::sustain`].
    #[must_use]
    pub fn held(&self) -> Option<(Nanos, u32)> {
        let sustain = self.sustain?;
        let window = if sustain.0 < 2 * MINUTE.0 { SECOND } else { MINUTE };
        Some((window, u32::try_from(sustain.0 / window.0).unwrap_or(u32::MAX)))
    }

    pub(super) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(format!("ask: {text}")));
        if self.slo.iter().all(|slo| *slo == Slo::NoErrors) {
            return refuse("slo: no condition on the latency; add one such as \"p99 <= 1ms\"".into());
        }
        for (number, slo) in self.slo.iter().enumerate() {
            for other in &self.slo[..number] {
                if let Some(why) = clash(other, slo) {
                    return refuse(format!("slo: {other} and {slo}: {why}"));
                }
            }
        }
        if let Some(sustain) = self.sustain.filter(|sustain| !(SECOND..=DAY).contains(sustain)) {
            return refuse(format!("sustain = {sustain}: accepted: 1s to 24h"));
        }
        if self.iops == Some(0) {
            return refuse("iops = 0: accepted: 1 and more".into());
        }
        if let Some(open) = plan.asked().find(|workload| workload.is_open_loop()) {
            return refuse(format!(
                "workload {:?}: it has a rate, which is what is asked for; leave it out",
                open.name
            ));
        }
        plan.check_can_have_rates().or_else(refuse)?;
        let least = plan.least_search();
        if self.time < least {
            return refuse(format!(
                "time = {}: accepted: {least} or more, for enough windows of this runtime on all targets",
                self.time
            ));
        }
        Ok(())
    }
}

/// Returns the reason for rejecting two conditions together: both limit the same figure, or one implies the other (`p99 <= 1ms` implies
/// `p90 <= 2ms`). `None` if they can be combined.
fn clash(one: &Slo, other: &Slo) -> Option<&'static str> {
    if one.figure() == other.figure() {
        return Some("one figure has one limit; leave one out");
    }
    let (Slo::Percentile { percent: a, most: a_most }, Slo::Percentile { percent: b, most: b_most }) =
        (one, other)
    else {
        return None;
    };
    let never = (a < b && a_most >= b_most) || (b < a && b_most >= a_most);
    never.then_some("the limit of the higher percentile implies the other; leave that out")
}

impl Plan {
    /// Returns the workloads whose highest rate is searched for, without the fixed-rate copies that the search adds.
    pub fn asked(&self) -> impl Iterator<Item = &Workload> {
        let is_added = |workload: &&Workload| {
            workload.is_open_loop()
                && workload
                    .name
                    .rsplit_once('@')
                    .is_some_and(|(name, _)| self.workloads.iter().any(|other| other.name == name))
        };
        self.workloads.iter().filter(move |workload| !is_added(workload))
    }

    /// Returns the minimum time of a search: the trials needed for a confidence interval, for all workloads on all targets.
    #[must_use]
    pub fn least_search(&self) -> Nanos {
        let each = self.asked().map(Self::trial_time).fold(0, u64::saturating_add);
        Nanos(each.saturating_mul((COARSE + 2 * FEWEST_PAIRS) * self.targets.len() as u64))
    }

    /// Returns the expected time of one trial in nanoseconds: warm-up, window, and the pause before the next trial.
    #[must_use]
    pub fn trial_time(workload: &Workload) -> u64 {
        workload.expected_time().0.saturating_add(BETWEEN.0)
    }

    /// Adds a copy of the workload at index `workload` with `rate` I/Os per second, unless the plan already has it. Returns the copy's index.
    pub fn add_rate(&mut self, workload: usize, rate: u64) -> usize {
        self.add(at_rate(&self.workloads[workload], rate))
    }

    /// Adds a copy of the workload at index `workload` that holds `rate` I/Os per second without warm-up, unless the plan already has it. Returns
    /// the copy's index.
    pub fn add_held(&mut self, workload: usize, rate: u64, window: Nanos) -> usize {
        let held = at_rate(&self.workloads[workload], rate);
        self.add(Workload { name: held.name.clone() + HELD, runtime: window, ramp_time: Nanos(0), ..held })
    }

    /// Returns whether the workload is a copy that runs at the rate found by the search.
    #[must_use]
    pub fn is_held(&self, workload: &Workload) -> bool {
        self.ask().is_some() && workload.is_open_loop() && workload.name.ends_with(HELD)
    }

    fn add(&mut self, added: Workload) -> usize {
        self.workloads.iter().position(|known| known.name == added.name).unwrap_or_else(|| {
            self.workloads.push(added);
            self.workloads.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_read_and_are_said_alike() {
        for (text, said) in [
            ("p99 <= 0.5ms", "p99 <= 500us"),
            ("p99.9<2ms", "p99.9 <= 2ms"),
            (" mean <= 1.5ms", "mean <= 1500us"),
            ("errors=0", "errors = 0"),
        ] {
            let slo: Slo = text.parse().expect(text);
            assert_eq!(slo.to_string(), said);
            assert_eq!(said.parse::<Slo>().expect(said), slo);
        }
        for (id, short) in [
            ("latency_p99 <= 1ms", "p99 <= 1ms"),
            ("latency_p99_9 <= 1ms", "p99.9 <= 1ms"),
            ("latency_mean <= 1ms", "mean <= 1ms"),
        ] {
            assert_eq!(id.parse::<Slo>(), short.parse(), "{id}");
        }
    }

    #[test]
    fn what_is_no_condition_is_quoted_with_the_accepted_form() {
        for (text, reason) in [
            ("", "no <="),
            ("p99", "no <="),
            ("p99 <= 5", "\"5\" is not a time"),
            ("p99 >= 5ms", "\">=\""),
            ("p100 <= 5ms", "below 100"),
            ("p0 <= 5ms", "above 0"),
            ("latency <= 5ms", "\"latency\" is not a known figure"),
            ("meen <= 5ms", "(did you mean \"mean\"?)"),
            ("errors <= 3", "errors = 0"),
            ("p99 <= 0ms", "no I/O takes no time"),
        ] {
            let error = text.parse::<Slo>().expect_err(text).to_string();
            assert!(error.contains(reason) && error.contains("accepted: pN <= TIME"), "{text}: {error}");
        }
    }

    fn plan(ask: &str) -> Result<Plan, PlanError> {
        Plan::from_toml(&format!(
            "[ask]\n{ask}\n[[target]]\nname = \"t\"\nfile = {{ dir = \"/srv\" }}\n\
             [[workload]]\nname = \"w\"\nrw = \"randread\"\nruntime = \"1s\"\nramp_time = \"200ms\"\n"
        ))
    }

    #[test]
    fn a_question_reads_back_with_the_rates_that_were_tried() {
        let mut asked = plan("slo = [\"p99 <= 1ms\", \"mean <= 500us\"]\niops = 500").expect("a plan");
        assert_eq!((asked.add_rate(0, 500), asked.add_rate(0, 800), asked.add_rate(0, 500)), (1, 2, 1));
        assert_eq!(asked.asked().count(), 1);
        let again = Plan::from_toml(&asked.to_toml().expect("TOML")).expect("reads back");
        assert_eq!(again, asked);
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        for (ask, words) in [
            ("slo = []", "no condition on the latency"),
            ("slo = [\"errors = 0\"]", "no condition on the latency"),
            ("slo = [\"p99 <= 1ms\", \"p99 <= 2ms\"]", "leave one out"),
            ("slo = [\"p99 <= 2ms\", \"p99.9 <= 1ms\"]", "leave that out"),
            ("slo = [\"p99 <= 1ms\"]\ntime = \"5s\"", "accepted: 26s or more"),
            ("slo = [\"p99 <= 1ms\"]\niops = 0", "iops = 0"),
            ("slo = [\"p99 <= 1\"]", "is not a time"),
        ] {
            let error = plan(ask).expect_err(ask).to_string();
            assert!(error.contains(words), "{ask}: {error}");
        }
    }
}
