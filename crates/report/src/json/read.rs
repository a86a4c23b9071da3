//! Reads the data that a comparison of runs needs from an `iotax/1` document.

use iotax_model::Workload;
use iotax_model::plan::Neighbour;
use iotax_model::record::{Environment, ImportSource, TargetRecord};
use iotax_model::target::TargetSpec;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::SCHEMA;
use iotax_analysis::compare::account::{Account, MeasurementFigures, subjects, unusable};
use iotax_analysis::compare::rates::{self, LocatedRate};
use iotax_analysis::curve::Located;
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::{Grade, Metric};

/// Reason why a document cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not JSON.
    #[error("it is not JSON: {0}; accepted: a file that --json wrote")]
    Json(serde_json::Error),
    /// The text is JSON with another schema than `iotax/1`.
    #[error(
        "its schema is {found}, not \"{SCHEMA}\"; accepted: a file that --json of bench, ladder, run, resume or report wrote"
    )]
    Schema {
        /// Value of the document's key `schema`.
        found: String,
    },
    /// An older version of iotax wrote the document, without the plan or without the figures of each measurement.
    #[error(
        "it was written by an iotax that did not yet write what comparing needs; write it again from its store: \
         iotax report {run} --json FILE"
    )]
    Older {
        /// Number of the run in its store.
        run: i64,
    },
    /// A part of the document differs from what iotax writes.
    #[error("{location}: {reason}")]
    Part {
        /// The key or the measurement that is wrong.
        location: String,
        /// Reason why this part is rejected.
        reason: String,
    },
}

/// Metadata of the run, reduced to the fields that a comparison needs.
#[derive(Deserialize)]
struct Head {
    id: i64,
    name: String,
    seed: u64,
    started_at: String,
    repeat: u32,
    environment: Environment,
    #[serde(default)]
    source: Option<ImportSource>,
}

/// Targets and neighbours in the plan.
#[derive(Deserialize)]
struct Planned {
    targets: Vec<TargetSpec>,
    #[serde(default)]
    neighbours: Vec<Neighbour>,
    curve: Option<Value>,
}

/// A curve, reduced to the fields that a comparison needs.
#[derive(Deserialize)]
struct ReadCurve {
    target: String,
    workload: String,
    knee: Option<Knee>,
}

#[derive(Deserialize)]
struct Knee {
    power: Option<ReadRate>,
}

#[derive(Deserialize)]
struct ReadRate {
    estimate: f64,
    low: Option<f64>,
    high: Option<f64>,
}

/// The result of a rate search, reduced to the fields that a comparison needs.
#[derive(Deserialize)]
struct ReadAnswer {
    target: String,
    workload: String,
    slo: Vec<String>,
    rate: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

/// A measurement, reduced to the fields that a comparison needs.
#[derive(Deserialize)]
struct Measured {
    target: String,
    workload: String,
    round: u32,
    metrics: Map<String, Value>,
    #[serde(default)]
    warnings: Vec<String>,
    grade: String,
}

/// Parses the run in a document. `label` is the run's name in sentences, usually the file name. Fails if the text is no `iotax/1` document,
/// if an older version wrote it without the data needed, or if a part of it is invalid.
pub fn account(text: &str, label: &str) -> Result<Account, ReadError> {
    let mut document: Value = serde_json::from_str(text).map_err(ReadError::Json)?;
    if document["schema"] != SCHEMA {
        let found = document.get("schema").map_or_else(|| "not given".into(), Value::to_string);
        return Err(ReadError::Schema { found });
    }
    let head: Head = part(&mut document, "run")?;
    let measured = |document: &Value| {
        document["measurements"].as_array().is_none_or(|all| all.iter().all(|m| m.get("metrics").is_some()))
    };
    if document.get("plan").is_none() || !measured(&document) {
        return Err(ReadError::Older { run: head.id });
    }
    let workloads: Vec<Workload> = part(&mut document, "workloads")?;
    let records: Vec<TargetRecord> = part(&mut document, "targets")?;
    let planned: Planned = part(&mut document, "plan")?;
    let measured: Vec<Measured> = part(&mut document, "measurements")?;
    let curves: Option<Vec<ReadCurve>> = part(&mut document, "curves")?;
    let answers: Option<Vec<ReadAnswer>> = part(&mut document, "answers")?;
    Ok(Account {
        label: label.to_owned(),
        id: head.id,
        seed: head.seed,
        started_at: head.started_at,
        repeat: head.repeat,
        environment: head.environment,
        subjects: subjects(&planned.targets, &planned.neighbours, &records),
        figures: measured.into_iter().map(figures).collect::<Result<_, _>>()?,
        rates: rates(curves.unwrap_or_default(), answers.unwrap_or_default()),
        has_own_rates: planned.curve.is_some(),
        more: None,
        name: head.name,
        source: head.source.into(),
        workloads,
    })
}

fn part<T: DeserializeOwned>(document: &mut Value, key: &str) -> Result<T, ReadError> {
    let value = document.get_mut(key).map(Value::take).unwrap_or_default();
    serde_json::from_value(value).map_err(|error| ReadError::Part {
        location: key.to_owned(),
        reason: format!("{error}; it was changed, or another version of iotax wrote it"),
    })
}

/// Collects the rates that curves and rate searches tried to locate, found or not.
fn rates(curves: Vec<ReadCurve>, answers: Vec<ReadAnswer>) -> Vec<LocatedRate> {
    let located = |at: f64, low: Option<f64>, high: Option<f64>| {
        let interval = low.zip(high).map(|(low, high)| Interval { low, high });
        (at > 0.0).then_some(Located { at, interval })
    };
    let knees = curves.into_iter().map(|curve| {
        let power = curve.knee.and_then(|knee| knee.power);
        LocatedRate {
            target: curve.target,
            workload: curve.workload,
            what: rates::KNEE.to_owned(),
            rate: power.and_then(|rate| located(rate.estimate, rate.low, rate.high)),
        }
    });
    let highest = answers.into_iter().map(|answer| LocatedRate {
        target: answer.target,
        workload: answer.workload,
        what: rates::highest(&answer.slo),
        rate: answer.rate.and_then(|rate| located(rate, answer.low, answer.high)),
    });
    knees.chain(highest).collect()
}

fn figures(measured: Measured) -> Result<MeasurementFigures, ReadError> {
    let wrong = |reason: String| ReadError::Part {
        location: format!(
            "measurement of {} on {}, round {}",
            measured.target, measured.workload, measured.round
        ),
        reason,
    };
    let grade = Grade::ALL
        .into_iter()
        .find(|grade| grade.word() == measured.grade)
        .ok_or_else(|| wrong(format!("grade {:?} is not known", measured.grade)))?;
    let mut metrics = Vec::new();
    // Metrics of a newer iotax are skipped.
    for metric in Metric::compared() {
        let Some(value) = measured.metrics.get(metric.word()) else { continue };
        let known = value.as_f64().filter(|value| *value >= 0.0);
        let known = known
            .ok_or_else(|| wrong(format!("{} = {value} is not a number of at least 0", metric.word())))?;
        // Comparisons use logarithms, so 0 is left out.
        if known > 0.0 {
            metrics.push((metric, known));
        }
    }
    let kinds: Vec<&str> = measured.warnings.iter().map(String::as_str).collect();
    Ok(MeasurementFigures {
        metrics,
        unusable: unusable(grade, &kinds),
        target: measured.target,
        workload: measured.workload,
        round: measured.round,
    })
}
