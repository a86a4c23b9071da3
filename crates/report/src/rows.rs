//! Measurements as rows of typed values, for every format that has tables.

use iotax_model::IoEngine;
use iotax_model::record::Measurement;

use iotax_analysis::compare::account::Kinds;
use iotax_analysis::figures::{began, lasted};
use iotax_analysis::metric::Unit;
use iotax_analysis::{Judgement, Metric};
use iotax_model::Run;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// Yes or no.
    Flag,
    /// Milliseconds since 1970-01-01 UTC.
    Instant,
}

/// One value, of its column's kind or unknown.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Not known; never 0.
    Unknown,
    /// Text.
    Text(String),
    /// A whole number.
    Whole(u64),
    /// A number.
    Number(f64),
    /// Yes or no.
    Flag(bool),
    /// Milliseconds since 1970-01-01 UTC.
    Instant(u64),
}

impl Value {
    fn of<T>(value: Option<T>, kind: fn(T) -> Self) -> Self {
        value.map_or(Self::Unknown, kind)
    }
}

/// The columns that identify a measurement.
const PLACE: [(&str, Kind); 7] = [
    ("run", Kind::Whole),
    ("target", Kind::Text),
    ("workload", Kind::Text),
    ("round", Kind::Whole),
    ("order", Kind::Whole),
    ("started_at", Kind::Instant),
    ("duration_s", Kind::Number),
];

/// The columns that follow the metrics.
const ABOUT: [(&str, Kind); 10] = [
    ("read_ios", Kind::Whole),
    ("write_ios", Kind::Whole),
    ("trim_ios", Kind::Whole),
    ("sync_ios", Kind::Whole),
    ("meta_ios", Kind::Whole),
    ("ioengine", Kind::Text),
    ("emulated", Kind::Flag),
    ("grade", Kind::Text),
    ("warnings", Kind::Text),
    ("source", Kind::Text),
];

/// The metrics in tables of these runs: those they were judged by.
#[must_use]
pub fn figures(runs: &[(Run, Judgement)]) -> &[Metric] {
    runs.first().map_or(Metric::ALL, |(_, judgement)| &judgement.figures)
}

/// The columns of [`measurements`], units in their names.
#[must_use]
pub fn columns(figures: &[Metric]) -> Vec<(String, Kind)> {
    let kind =
        |metric: Metric| if metric.definition().unit == Unit::Count { Kind::Whole } else { Kind::Number };
    let named =
        |columns: &[(&str, Kind)]| columns.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
    let mut all: Vec<(String, Kind)> = named(&PLACE);
    all.extend(figures.iter().map(|metric| (metric.id_with_unit(), kind(*metric))));
    all.extend::<Vec<_>>(named(&ABOUT));
    all
}

/// One row per measurement, a value for each of [`columns`].
#[must_use]
pub fn measurements(run: &Run, judgement: &Judgement) -> Vec<Vec<Value>> {
    let kinds = Kinds::of(judgement);
    let row = |(i, m): (usize, &Measurement)| {
        let text = |text: &str| Value::Text(text.to_owned());
        let mut row = vec![
            Value::of(u64::try_from(run.id).ok(), Value::Whole),
            text(&m.target),
            text(&m.workload),
            Value::Whole(m.round.into()),
            Value::Whole(m.order.into()),
            Value::of(began(m), Value::Instant),
            Value::of(lasted(m).map(|ns| ns as f64 / 1e9), Value::Number),
        ];
        row.extend(judgement.figures.iter().map(|metric| {
            match (metric.value(m), metric.definition().unit) {
                (Some(count), Unit::Count) => Value::Whole(whole(count)),
                (value, _) => Value::of(value, Value::Number),
            }
        }));
        let directions = m.outcome.tallies.each();
        row.extend(directions.map(|(_, tally)| Value::of(tally.map(|tally| tally.ios), Value::Whole)));
        row.extend([
            Value::of(m.outcome.ioengine.map(IoEngine::word).map(str::to_owned), Value::Text),
            Value::of(emulated(run, &m.target), Value::Flag),
            Value::of(judgement.grades.get(i).map(|grade| grade.word().to_owned()), Value::Text),
            Value::Text(kinds.about(m).join(" ")),
            Value::of(run.source.as_ref().map(ToString::to_string), Value::Text),
        ]);
        row
    };
    run.measurements.iter().enumerate().map(row).collect()
}

/// A count that went through floating point, which is exact below 2^53.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
const fn whole(count: f64) -> u64 {
    count as u64
}

/// True if the target's CPU was emulated, so that its figures say nothing of real hardware. Absent if it was never built.
pub fn emulated(run: &Run, target: &str) -> Option<bool> {
    run.targets.iter().find(|record| record.name == target).map(|record| record.emulated)
}
