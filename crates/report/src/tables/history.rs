//! Table of a history: cells over several runs.

use iotax_analysis::Ratio;
use iotax_analysis::compare::{Account, History, HistoryPoint, Track};

use super::{high, low};
use crate::columns;
use crate::table::{Column, DataTable, column};

struct TrackRow<'a> {
    account: &'a Account,
    track: &'a Track,
    point: &'a HistoryPoint,
}

/// Builds a table with one row per target, workload, metric and run. Means of rates are in I/Os or bytes per second, all others in
/// nanoseconds.
#[must_use]
pub fn history(accounts: &[Account], history: &History) -> DataTable {
    let columns = columns!(TrackRow<'_>, |row|
        "target" => row.track.target.as_str(),
        "workload" => row.track.workload.as_str(),
        "metric" => row.track.metric.word(),
        "run" => u64::try_from(row.account.id).ok(),
        "started_at" => row.account.started_at.as_str(),
        "emulated" => row.point.emulated,
        "rounds" => row.point.rounds,
        "mean" => row.point.mean,
        "low_95" => low(row.point.band),
        "high_95" => high(row.point.band),
    );
    let first = change("against_first", |row: &TrackRow<'_>| row.point.since_first.as_ref());
    let previous = change("against_previous", |row: &TrackRow<'_>| row.point.since_previous.as_ref());
    let rows = history.tracks.iter().flat_map(|track| {
        track.points.iter().map(move |point| TrackRow { account: &accounts[point.run], track, point })
    });
    DataTable::new(columns.into_iter().chain(first).chain(previous), rows)
}

fn change<R>(name: &str, of: impl for<'r> Fn(&'r R) -> Option<&'r Ratio> + Copy + 'static) -> [Column<R>; 4] {
    [
        column(format!("{name}_ratio"), move |row| of(row).map(|change| change.mean)),
        column(format!("{name}_low"), move |row| low(of(row)?.interval)),
        column(format!("{name}_high"), move |row| high(of(row)?.interval)),
        column(format!("{name}_verdict"), move |row| of(row).map(|change| change.word().to_owned())),
    ]
}
