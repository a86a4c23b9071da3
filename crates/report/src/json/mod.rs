//! The document `iotax/1`, whose JSON Schema is `crates/report/schema/iotax-1.schema.json`.
//!
//! A figure that is unknown has no key. There is no null, NaN or infinity.

mod ask;
mod cell;
mod certainty;
pub mod comparison;
mod curve;
mod demands;
pub mod doctor;
mod durability;
pub mod fleet;
mod grid;
pub mod history;
mod parts;
pub mod read;
mod suite;
pub mod trend;
pub mod tune;
mod watch;

use iotax_model::record::Measurement;
use iotax_model::{Nanos, Plan};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::mark::Mark;
use crate::sentences::conclusions;
use iotax_analysis::compare::account::Kinds;
use iotax_analysis::fairness::fairness;
use iotax_analysis::figures::{began, done, lasted};
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::series::series;
use iotax_analysis::time::utc;
use iotax_analysis::{Comparison, Grade, Judgement, Metric, Ratio, Standing, Tax};
use iotax_model::Run;

/// The value of `schema`. Its number rises when a key changes its meaning or goes; new keys come with a new edition of
/// the schema's file.
pub const SCHEMA: &str = "iotax/1";

/// Marks a file as such a document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// A run with its judgement.
///
/// `comparisons` are those with the baseline; `low` and `high` are the ends of the interval that the verdict rests on,
/// at the given `confidence` (Holm's level), `low_95` and `high_95` those of the plain 95% interval. `needed_rounds` is
/// a total, not an addition. `steps` have the same form, plus a name: the layer or setting in which two targets differ.
/// A measurement's `metrics` are the figures that comparing needs, by the ids of [`Metric`]; [`read`] reads them back.
/// `cells` hold the figures of one target and workload over all rounds.
#[must_use]
pub fn document(run: &Run, judgement: &Judgement) -> Value {
    object([
        ("schema", Some(SCHEMA.into())),
        ("run", Some(head(run, judgement))),
        ("figures", Some(definitions(&judgement.figures))),
        ("targets", any(&run.targets)),
        ("workloads", any(&run.plan.workloads)),
        ("plan", Some(plan(&run.plan))),
        ("measurements", Some(measurements(run, judgement))),
        ("comparisons", Some(judgement.comparisons.iter().map(comparison).collect())),
        ("steps", Some(judgement.steps.iter().map(|c| step(judgement, c)).collect())),
        ("cells", Some(judgement.cells.iter().map(|one| cell::cell(judgement, one)).collect())),
        ("suite", suite::suite(run)),
        ("demands", demands::all(run, judgement)),
        ("durable_writes", durability::all(run, judgement)),
        ("curves", curve::all(run)),
        ("grids", grid::all(run)),
        ("watch", watch::all(run)),
        ("prices", watch::all_prices(run)),
        ("price_comparisons", watch::all_price_comparisons(run)),
        ("answers", ask::all(run)),
        ("effects", Some(judgement.effects.iter().map(certainty::effects).collect())),
        ("timing", judgement.timing.as_ref().map(cell::timing)),
        ("conclusions", any(&conclusions(run, judgement))),
        ("warnings", any(&judgement.warnings)),
    ])
}

fn head(run: &Run, judgement: &Judgement) -> Value {
    object([
        ("id", Some(run.id.into())),
        ("name", Some(run.plan.name.as_str().into())),
        ("state", Some(run.state.word().into())),
        ("seed", Some(run.seed.into())),
        ("started_at", Some(utc(run.started_at_ms).into())),
        ("repeat", Some(run.plan.repeat.into())),
        ("design", Some(design(&run.plan, judgement.standing.as_ref()))),
        ("baseline", Some(run.plan.baseline.as_str().into())),
        ("environment", any(&run.environment)),
        ("source", run.source.as_ref().and_then(any)),
    ])
}

fn design(plan: &Plan, standing: Option<&Standing>) -> Value {
    let until = plan.until_decided();
    object([
        ("margin", number(Some(plan.margin.share()))),
        ("looks", any(&plan.looks())),
        ("taken", standing.map(|standing| standing.taken.into())),
        ("max_rounds", until.map(|until| until.max_rounds.into())),
        ("max_time_s", number(until.and_then(|until| until.max_time).map(Nanos::as_secs_f64))),
        ("comparisons", standing.map(|standing| standing.comparisons.into())),
        ("open", standing.map(|standing| standing.open.into())),
        ("stopped", standing.and_then(|standing| standing.stopped).map(|stopped| stopped.word().into())),
    ])
}

/// The targets as planned: they may differ in settings that their recorded layers do not show.
fn plan(plan: &Plan) -> Value {
    object([
        ("targets", any(&plan.targets)),
        ("neighbours", any(&plan.neighbours).filter(|_| !plan.neighbours.is_empty())),
        ("curve", plan.curve().and_then(any)),
    ])
}

fn measurements(run: &Run, judgement: &Judgement) -> Value {
    let kinds = Kinds::of(judgement);
    run.measurements
        .iter()
        .zip(&judgement.grades)
        .map(|(m, grade)| measurement(run, &judgement.figures, m, *grade, kinds.about(m)))
        .collect()
}

fn measurement(run: &Run, figures: &[Metric], m: &Measurement, grade: Grade, kinds: &[&str]) -> Value {
    let duration_s = lasted(m).map(|ns| ns as f64 / 1e9);
    let host = m.host.as_ref();
    let mut told = object([
        ("target", Some(m.target.as_str().into())),
        ("workload", Some(m.workload.as_str().into())),
        ("round", Some(m.round.into())),
        ("order", Some(m.order.into())),
        ("started_at", began(m).map(|ms| utc(ms).into())),
        ("duration_s", number(duration_s)),
        ("rate_s", number(duration_s.map(|_| m.outcome.rate_ns() as f64 / 1e9))),
        ("ioengine", m.outcome.ioengine.map(|engine| engine.word().into())),
        ("pacing", m.outcome.pacing.as_ref().and_then(any)),
        ("verify", m.outcome.verify.as_ref().and_then(any)),
        ("stop", m.outcome.stop.map(|stop| stop.word().into())),
        ("series", series(&m.samples, |tallies| done(m, tallies)).as_ref().map(certainty::series)),
        ("errors", any(&m.outcome.errors)),
        ("notes", any(&m.outcome.notes)),
        ("grade", Some(grade.word().into())),
        ("flush", parts::flush(run, m)),
        ("page_cache", m.outcome.page_cache.as_ref().and_then(any)),
        ("programs_ns", host.and_then(|host| host.programs_ns).map(Value::from)),
        ("watching_ns", host.and_then(|host| host.watching_ns).map(Value::from)),
        ("pace", host.and_then(|host| any(host.pace.as_ref()?))),
        ("warnings", Some(kinds.into())),
        ("metrics", Some(metrics(figures, |metric| metric.value(m)))),
        ("stated", m.stated.as_ref().and_then(any)),
        ("shares", filled(m.shares.iter().map(parts::share).collect())),
        ("jobs", filled(m.outcome.jobs.iter().map(parts::share).collect())),
        ("fairness", number(fairness(m))),
        ("neighbour", m.neighbour.as_ref().map(parts::share)),
        ("carried", m.outcome.carried.as_ref().and_then(any)),
        ("nics", host.filter(|host| !host.nics.is_empty()).and_then(|host| any(&host.nics))),
        ("qemu", m.qemu.as_ref().map(parts::block_stats)),
        ("inside", m.outcome.inside.as_ref().and_then(any)),
        (
            "guest_threads",
            host.filter(|host| !host.guest_threads.is_empty()).and_then(|host| any(&host.guest_threads)),
        ),
        (
            "kernel_threads",
            host.filter(|host| !host.kernel_threads.is_empty()).and_then(|host| any(&host.kernel_threads)),
        ),
    ]);
    parts::add_directions(&mut told, &m.outcome.tallies, m.outcome.rate_ns());
    told
}

/// The known values, by the metrics' ids.
fn metrics(figures: &[Metric], value: impl Fn(Metric) -> Option<f64>) -> Value {
    let told = figures.iter().filter_map(|metric| Some((metric.word().to_owned(), number(value(*metric))?)));
    Value::Object(told.collect())
}

/// The definitions of the keys of every `metrics`.
fn definitions(figures: &[Metric]) -> Value {
    let told = |metric: &Metric| {
        let definition = metric.definition();
        object([
            ("id", Some(definition.id.into())),
            ("unit", Some(definition.unit.word().into())),
            ("better", Some(definition.better.word().into())),
            ("help", Some(definition.help.into())),
        ])
    };
    figures.iter().map(told).collect()
}

fn step(judgement: &Judgement, c: &Comparison) -> Value {
    let mut told = comparison(c);
    told["name"] = judgement.edge(c).map(|edge| edge.name.as_str()).into();
    told
}

fn comparison(c: &Comparison) -> Value {
    let told = object([
        ("workload", Some(c.workload.as_str().into())),
        ("metric", Some(c.metric.word().into())),
        ("target", Some(c.target.as_str().into())),
        ("baseline", Some(c.baseline.as_str().into())),
        ("sign_flip_p", number(c.ratio.sign_flip_p)),
        ("rounds", Some(c.rounds.into())),
        ("decided_at", c.decided_at.map(Value::from)),
    ]);
    merged([told, ratio(&c.ratio)])
}

/// A ratio with its certainty and what it comes to.
fn ratio(ratio: &Ratio) -> Value {
    object([
        ("ratio", number(Some(ratio.mean))),
        ("low", low(ratio.interval)),
        ("high", high(ratio.interval)),
        ("confidence", number(ratio.confidence)),
        ("low_95", low(ratio.interval_95)),
        ("high_95", high(ratio.interval_95)),
        ("tax_ns", ratio.tax.map(tax)),
        ("verdict", Some(ratio.verdict.word().into())),
        ("needed_rounds", ratio.needed_rounds.map(Value::from)),
        ("withheld", ratio.withheld.as_deref().map(Value::from)),
    ])
}

/// The keys of several objects in one.
fn merged<const N: usize>(parts: [Value; N]) -> Value {
    let maps =
        parts.into_iter().filter_map(|part| if let Value::Object(map) = part { Some(map) } else { None });
    Value::Object(maps.flatten().collect())
}

/// An object of the entries that have a value.
fn object<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    Value::Object(
        entries.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect::<Map<_, _>>(),
    )
}

/// An array; absent if empty.
fn filled(items: Vec<Value>) -> Option<Value> {
    (!items.is_empty()).then_some(Value::Array(items))
}

/// A number; absent if it is unknown, NaN or infinite.
fn number(value: Option<f64>) -> Option<Value> {
    serde_json::Number::from_f64(value?).map(Value::Number)
}

fn any(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok().map(without_null)
}

fn low(interval: Option<Interval>) -> Option<Value> {
    number(interval.map(|interval| interval.low))
}

fn high(interval: Option<Interval>) -> Option<Value> {
    number(interval.map(|interval| interval.high))
}

fn tax(tax: Tax) -> Value {
    object([("mean", number(Some(tax.ns))), ("low", low(tax.interval)), ("high", high(tax.interval))])
}

/// Drops nulls: the record has them for facts of the environment that could not be read.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_null(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        other => other,
    }
}
