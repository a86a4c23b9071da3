//! The document `iotax-history/1`, whose JSON Schema is `crates/report/schema/iotax-history-1.schema.json`.

use iotax_analysis::compare::{Account, Compared, Difference, History, HistoryPoint, Track};
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Metric, Ratio};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::ratio::Interval95;
use super::{UTC, json};
use crate::mark::Mark;

/// Value of the key `schema`; see [`super::SCHEMA`] for when its number rises.
pub const SCHEMA: &str = "iotax-history/1";

/// Identifies a file as an `iotax-history/1` document.
pub const MARK: Mark = Mark::schema(SCHEMA, &["schema"]);

/// Several runs side by side. Unknown values have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "Several runs of iotax side by side")]
pub(super) struct HistoryDocument<'a> {
    #[schemars(extend("const" = SCHEMA))]
    schema: &'static str,
    runs: Vec<AccountEntry<'a>>,
    /// One entry per target, workload and metric, over all runs that measured it, under the names in the first of these runs.
    tracks: Vec<TrackEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct AccountEntry<'a> {
    id: i64,
    name: &'a str,
    #[schemars(regex(pattern = UTC))]
    started_at: &'a str,
    /// Differences in setup from the previous run (a) to this run (b); absent for the first run, and if the two runs cannot be compared.
    against_previous: Option<PreviousDifferences<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct PreviousDifferences<'a> {
    machines: &'a [Difference],
    targets: Vec<TargetDifferences<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct TargetDifferences<'a> {
    target: &'a str,
    differences: &'a [Difference],
}

#[derive(Serialize, JsonSchema)]
struct TrackEntry<'a> {
    target: &'a str,
    workload: &'a str,
    metric: Metric,
    points: Vec<TrackPoint<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct TrackPoint<'a> {
    /// Index of the run in `runs`.
    run: usize,
    emulated: bool,
    rounds: u32,
    /// Geometric mean over the rounds: I/Os or bytes per second, else nanoseconds.
    mean: f64,
    #[serde(flatten)]
    band: Interval95,
    against_first: Option<ChangeEntry<'a>>,
    against_previous: Option<ChangeEntry<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct ChangeEntry<'a> {
    ratio: f64,
    #[serde(flatten)]
    interval: Option<Interval>,
    /// Verdict on the change. For cpu_per_io and cpu_per_gib, `slower` means more CPU time.
    verdict: Verdict,
    withheld: Option<&'a str>,
}

/// Builds the document of a history: several runs side by side.
#[must_use]
pub fn document(accounts: &[Account], history: &History) -> Value {
    json(&HistoryDocument {
        schema: SCHEMA,
        runs: accounts.iter().zip(0..).map(|(account, i)| run(account, i, history)).collect(),
        tracks: history.tracks.iter().map(track).collect(),
    })
}

fn run<'a>(account: &'a Account, index: usize, history: &'a History) -> AccountEntry<'a> {
    let before = index.checked_sub(1).and_then(|i| history.neighbours.get(i)?.as_ref());
    AccountEntry {
        id: account.id,
        name: &account.name,
        started_at: &account.started_at,
        against_previous: before.map(differences),
    }
}

fn differences(compared: &Compared) -> PreviousDifferences<'_> {
    let targets = compared.targets.iter().filter(|pair| !pair.differences.is_empty());
    PreviousDifferences {
        machines: &compared.machines,
        targets: targets
            .map(|pair| TargetDifferences { target: &pair.b, differences: &pair.differences })
            .collect(),
    }
}

fn track(track: &Track) -> TrackEntry<'_> {
    TrackEntry {
        target: &track.target,
        workload: &track.workload,
        metric: track.metric,
        points: track.points.iter().map(point).collect(),
    }
}

fn point(point: &HistoryPoint) -> TrackPoint<'_> {
    TrackPoint {
        run: point.run,
        emulated: point.emulated,
        rounds: point.rounds,
        mean: point.mean,
        band: point.band.into(),
        against_first: point.since_first.as_ref().map(change),
        against_previous: point.since_previous.as_ref().map(change),
    }
}

fn change(change: &Ratio) -> ChangeEntry<'_> {
    ChangeEntry {
        ratio: change.mean,
        interval: change.interval,
        verdict: change.verdict,
        withheld: change.withheld.as_deref(),
    }
}
