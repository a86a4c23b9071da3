//! The document `iotax-trend/1`, whose JSON Schema is `crates/report/schema/iotax-trend-1.schema.json`.

use iotax_analysis::Metric;
use iotax_analysis::compare::Difference;
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::time::utc;
use iotax_analysis::trend::{LEVEL, PastRun, Trend, TrendChange, TrendGate, TrendPoint, Trends};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{UTC, json};
use crate::mark::Mark;

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-trend/1";

/// Identifies a file as an `iotax-trend/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Changes over a history of runs, which are identified by their numbers in the store. Means are in the metric's unit: I/Os or bytes per second, else
/// nanoseconds. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Changes over a history of runs of iotax")]
pub(super) struct TrendDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    /// Probability of a false report of a change in one evaluation of a series.
    level: f64,
    /// The runs of the history, the oldest first.
    runs: Vec<PastRunEntry<'a>>,
    series: Vec<TrendEntry<'a>>,
    gates: Vec<TrendGateEntry>,
}

#[derive(Serialize, JsonSchema)]
struct PastRunEntry<'a> {
    id: i64,
    #[schemars(regex(pattern = UTC))]
    started_at: String,
    /// Name of the user who started the run; absent if unknown.
    user: Option<&'a str>,
    /// The machine's host name; absent if unknown.
    machine: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tags: &'a [String],
    note: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
struct TrendEntry<'a> {
    target: &'a str,
    workload: &'a str,
    metric: Metric,
    /// The control target, whose changes are those of the machine: the series is the ratio to it. Absent if the series is the target's own mean.
    control: Option<&'a str>,
    /// True if the target itself is the control, so that its changes are those of the machine.
    is_control: bool,
    /// Standard deviation between runs on the same level, as a share; absent for fewer than five points.
    noise: Option<f64>,
    /// False if the series has too few runs to detect a change.
    enough_runs: bool,
    points: Vec<TrendPointEntry>,
    changes: Vec<TrendChangeEntry<'a>>,
    pending: Option<PendingEntry>,
}

#[derive(Serialize, JsonSchema)]
struct TrendPointEntry {
    run: i64,
    rounds: u32,
    /// The target's geometric mean over the rounds, in the metric's unit.
    mean: f64,
    /// The control's geometric mean over the rounds, in the metric's unit; absent without a control.
    control: Option<f64>,
    /// The value that is searched for changes: `mean` divided by `control`, or `mean` without a control.
    followed: f64,
}

#[derive(Serialize, JsonSchema)]
struct TrendChangeEntry<'a> {
    /// The run that is most likely the first on the new level.
    run: i64,
    /// Last run that precedes the change with 95% confidence.
    last_run_before: i64,
    /// First run that follows the change with 95% confidence.
    first_run_after: i64,
    /// The new level divided by the old one.
    #[serde(flatten)]
    levels: LevelRatio,
    direction: Direction,
    /// Number of runs on the level before the change.
    runs_before: usize,
    /// Number of runs on the level after the change.
    runs_after: usize,
    /// False if the change precedes `--since`, so that gates ignore it.
    counts: bool,
    /// Change of the control target over the same runs, which the machine alone causes; absent without a control.
    machine: Option<LevelRatio>,
    /// Other differences between the last run before the change (a) and the first run after it (b).
    differences: &'a [Difference],
}

/// A ratio of two levels with its 95% interval.
#[derive(Serialize, JsonSchema)]
struct LevelRatio {
    /// The new level divided by the old one.
    ratio: f64,
    low_95: f64,
    high_95: f64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TrendDirection")]
enum Direction {
    Slower,
    Faster,
}

#[derive(Serialize, JsonSchema)]
struct PendingEntry {
    /// Number of newest runs that may be at a new level.
    runs: usize,
    ratio: f64,
    /// Number of further runs with the same shift that would confirm the change; absent if more than 12.
    needed_runs: Option<usize>,
}

#[derive(Serialize, JsonSchema)]
struct TrendGateEntry {
    gate: String,
    metric: Metric,
    /// Number of series with the gate's metric and enough runs, without those of the control.
    series_judged: usize,
    tripped: Vec<TrippedSeries>,
}

#[derive(Serialize, JsonSchema)]
struct TrippedSeries {
    /// Index of the series in `series`.
    series: usize,
    /// The first run of the new level.
    run: i64,
}

/// Builds the document of a trend over several runs.
#[must_use]
pub fn document(runs: &[PastRun], trends: &Trends) -> Value {
    json(&TrendDocument {
        schema: SCHEMA,
        level: LEVEL,
        runs: runs.iter().map(run).collect(),
        series: trends.trends.iter().map(|one| trend(runs, one)).collect(),
        gates: trends.gates.iter().map(|one| gate(runs, trends, one)).collect(),
    })
}

fn run(run: &PastRun) -> PastRunEntry<'_> {
    PastRunEntry {
        id: run.id,
        started_at: utc(run.started_at_ms),
        user: run.environment.user.as_deref(),
        machine: run.environment.hostname.as_deref(),
        tags: &run.tags,
        note: Some(run.note.as_str()).filter(|note| !note.is_empty()),
    }
}

fn id(runs: &[PastRun], trend: &Trend, point: usize) -> i64 {
    runs[trend.points[point].run].id
}

fn trend<'a>(runs: &[PastRun], trend: &'a Trend) -> TrendEntry<'a> {
    TrendEntry {
        target: &trend.target,
        workload: &trend.workload.name,
        metric: trend.metric,
        control: trend.control.as_deref(),
        is_control: trend.is_control,
        noise: trend.noise,
        enough_runs: !trend.is_short(),
        points: trend.points.iter().map(|one| point(runs, one)).collect(),
        changes: trend.changes.iter().map(|one| change(runs, trend, one)).collect(),
        pending: trend.pending.map(|pending| PendingEntry {
            runs: pending.points,
            ratio: pending.ratio,
            needed_runs: pending.needed,
        }),
    }
}

fn point(runs: &[PastRun], point: &TrendPoint) -> TrendPointEntry {
    TrendPointEntry {
        run: runs[point.run].id,
        rounds: point.rounds,
        mean: point.mean,
        control: point.control,
        followed: point.followed,
    }
}

fn change<'a>(runs: &[PastRun], trend: &Trend, change: &'a TrendChange) -> TrendChangeEntry<'a> {
    let levels =
        |ratio: f64, interval: Interval| LevelRatio { ratio, low_95: interval.low, high_95: interval.high };
    TrendChangeEntry {
        run: id(runs, trend, change.at),
        last_run_before: id(runs, trend, change.last_before),
        first_run_after: id(runs, trend, change.first_after),
        levels: levels(change.ratio, change.interval),
        direction: if change.is_worse { Direction::Slower } else { Direction::Faster },
        runs_before: change.points.0,
        runs_after: change.points.1,
        counts: change.is_new,
        machine: change.control.map(|(ratio, interval)| levels(ratio, interval)),
        differences: &change.causes,
    }
}

fn gate(runs: &[PastRun], trends: &Trends, gate: &TrendGate) -> TrendGateEntry {
    let tripped = gate.tripped.iter().map(|(series, change)| {
        let trend = &trends.trends[*series];
        TrippedSeries { series: *series, run: id(runs, trend, trend.changes[*change].at) }
    });
    TrendGateEntry {
        gate: gate.gate.to_string(),
        metric: gate.gate.metric,
        series_judged: gate.judged,
        tripped: tripped.collect(),
    }
}
