//! Measurements as rows of typed values, for every format that has tables.

use iotax_model::IoEngine;
use iotax_model::record::Measurement;

use crate::analysis::figures::{began, engine_cpu_per_io, lasted};
use crate::analysis::network::Packets;
use crate::analysis::{Judgement, Metric};
use crate::compare::account::{Kinds, metrics};
use crate::store::Run;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Number,
    Flag,
    /// Milliseconds since 1970-01-01 UTC.
    Instant,
}

/// One value, of its column's kind or not known.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Unknown,
    Text(String),
    Whole(u64),
    Number(f64),
    Flag(bool),
    Instant(u64),
}

impl Value {
    fn of<T>(value: Option<T>, kind: fn(T) -> Self) -> Self {
        value.map_or(Self::Unknown, kind)
    }
}

/// The columns of [`measurements`], units in their names.
pub(super) const MEASUREMENTS: &[(&str, Kind)] = &[
    ("run", Kind::Whole),
    ("target", Kind::Text),
    ("workload", Kind::Text),
    ("round", Kind::Whole),
    ("order", Kind::Whole),
    ("started_at", Kind::Instant),
    ("duration_s", Kind::Number),
    ("iops", Kind::Number),
    ("bytes_per_s", Kind::Number),
    ("latency_mean_ns", Kind::Number),
    ("latency_p50_ns", Kind::Number),
    ("latency_p90_ns", Kind::Number),
    ("latency_p99_ns", Kind::Number),
    ("latency_p99_9_ns", Kind::Number),
    ("host_cpu_ns_per_io", Kind::Number),
    ("host_cpu_ns_per_gib", Kind::Number),
    ("engine_cpu_ns_per_io", Kind::Number),
    ("read_ios", Kind::Whole),
    ("write_ios", Kind::Whole),
    ("trim_ios", Kind::Whole),
    ("sync_ios", Kind::Whole),
    ("meta_ios", Kind::Whole),
    ("lost", Kind::Whole),
    ("out_of_order", Kind::Whole),
    ("duplicates", Kind::Whole),
    ("retransmits", Kind::Whole),
    ("jitter_ns", Kind::Number),
    ("errors", Kind::Whole),
    ("ioengine", Kind::Text),
    ("emulated", Kind::Flag),
    ("grade", Kind::Text),
    ("warnings", Kind::Text),
    ("source", Kind::Text),
];

/// One row per measurement, a value for each of [`MEASUREMENTS`].
pub(super) fn measurements(run: &Run, judgement: &Judgement) -> Vec<Vec<Value>> {
    let kinds = Kinds::of(judgement);
    let row = |(i, m): (usize, &Measurement)| {
        let text = |text: &str| Value::Text(text.to_owned());
        let figures = metrics(m);
        let mut row = vec![
            Value::of(u64::try_from(run.id).ok(), Value::Whole),
            text(&m.target),
            text(&m.workload),
            Value::Whole(m.round.into()),
            Value::Whole(m.order.into()),
            Value::of(began(m), Value::Instant),
            Value::of(lasted(m).map(|ns| ns as f64 / 1e9), Value::Number),
        ];
        row.extend(Metric::ALL.map(|metric| {
            let figure = figures.iter().find(|(known, _)| *known == metric);
            Value::of(figure.map(|(_, value)| *value), Value::Number)
        }));
        row.push(Value::of(engine_cpu_per_io(m), Value::Number));
        let directions = m.outcome.tallies.each();
        row.extend(directions.map(|(_, tally)| Value::of(tally.map(|tally| tally.ios), Value::Whole)));
        let packets = Packets::of(m);
        let counts = [packets.lost, packets.out_of_order, packets.duplicates, packets.retransmits];
        row.extend(counts.map(|count| Value::of(count, Value::Whole)));
        row.extend([
            Value::of(packets.jitter_ns, Value::Number),
            // What another tool did not tell is not none.
            Value::of(
                m.stated.is_none().then(|| m.outcome.errors.iter().map(|error| error.count).sum()),
                Value::Whole,
            ),
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

/// Whether the target's CPU was emulated: its figures are then those of emulation. Absent if the target was never built.
pub(super) fn emulated(run: &Run, target: &str) -> Option<bool> {
    run.targets.iter().find(|record| record.name == target).map(|record| record.emulated)
}
