//! The contents of the tables, with checksums.
//!
//! SQLite does not detect flipped bits in its file. So each row has a checksum over itself and its run, and the row of a run
//! holds the number of its measurements and the sum of their checksums, so that a missing one is detected.

use iotax_model::record::{Environment, FleetMember, ImportSource, Measurement, RunPhase, TargetRecord};
use iotax_model::{Plan, RunState, Warning};
use rusqlite::{Connection, OptionalExtension, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Fault;

/// Contents are JSON under zstd, seals are [`Row::seal`].
pub(super) const SCHEMA: &str = "
CREATE TABLE run (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    content BLOB    NOT NULL,  -- Head
    seal    INTEGER NOT NULL
) STRICT;

CREATE TABLE measurement (
    run      INTEGER NOT NULL REFERENCES run (id),
    target   TEXT    NOT NULL,
    workload TEXT    NOT NULL,
    round    INTEGER NOT NULL,
    content  BLOB    NOT NULL,  -- model::record::Measurement
    seal     INTEGER NOT NULL,
    PRIMARY KEY (run, target, workload, round)
) STRICT;

CREATE TABLE note (
    run  INTEGER PRIMARY KEY REFERENCES run (id),
    tags TEXT NOT NULL,  -- one a line
    text TEXT NOT NULL
) STRICT;
";

/// Fast, and within a few percent of the best.
const ZSTD_LEVEL: i32 = 3;
/// A row of the table `run` with its key takes more bytes than this.
const SMALLEST_RUN: u64 = 64;

/// Everything of a run but its measurements.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    pub(super) plan: Plan,
    pub(super) seed: u64,
    pub(super) started_at_ms: u64,
    pub(super) state: RunState,
    pub(super) environment: Environment,
    pub(super) targets: Vec<TargetRecord>,
    pub(super) warnings: Vec<Warning>,
    pub(super) phases: Vec<RunPhase>,
    pub(super) source: Option<ImportSource>,
    pub(super) fleet: Option<FleetMember>,
    pub(super) measured: Measured,
}

/// Number and checksums of a run's measurements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Measured {
    pub(super) count: u64,
    /// Sum of their checksums.
    seals: u64,
}

impl Measured {
    fn add(&mut self, row: &Row) {
        self.count += 1;
        self.seals = self.seals.wrapping_add(row.seal.cast_unsigned());
    }
}

/// A row's content and its seal as they are stored.
struct Row {
    content: Vec<u8>,
    seal: i64,
}

impl Row {
    fn new<T: Serialize>(run: i64, what: &'static str, value: &T) -> Result<Self, Fault> {
        let text = serde_json::to_vec(value).map_err(|error| Fault::value(what, &error))?;
        let content = zstd::bulk::compress(&text, ZSTD_LEVEL).map_err(|error| Fault::value(what, &error))?;
        Ok(Self { seal: Self::seal(run, &content), content })
    }

    /// The content's checksum, another one in each run.
    fn seal(run: i64, content: &[u8]) -> i64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(content, run.cast_unsigned()).cast_signed()
    }

    fn is_sound(&self, run: i64) -> bool {
        self.seal == Self::seal(run, &self.content)
    }

    fn open<T: DeserializeOwned>(&self, run: i64) -> Result<T, String> {
        if !self.is_sound(run) {
            return Err("its checksum does not fit".into());
        }
        let text = zstd::stream::decode_all(self.content.as_slice()).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

/// The newest run's number: by the rows, or by SQLite's own count if the last row is gone, limited to the runs that fit into a
/// file of `bytes` bytes.
pub(super) fn last(connection: &Connection, bytes: u64) -> Result<i64, Fault> {
    let (rows, count): (Option<i64>, Option<i64>) = connection.query_row(
        "SELECT (SELECT max(id) FROM run), (SELECT max(seq) FROM sqlite_sequence WHERE name = 'run')",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let most = i64::try_from(bytes / SMALLEST_RUN).unwrap_or(i64::MAX);
    Ok([rows, count].into_iter().flatten().filter(|last| (0..=most).contains(last)).max().unwrap_or(0))
}

/// A run's head; none if its row is not there.
pub(super) fn head(connection: &Connection, run: i64) -> Result<Option<Head>, Fault> {
    let row = connection
        .query_row("SELECT content, seal FROM run WHERE id = ?", [run], |row| {
            Ok(Row { content: row.get(0)?, seal: row.get(1)? })
        })
        .optional()?;
    row.map(|row| row.open(run).map_err(|reason| Fault::Damaged("table run", reason))).transpose()
}

/// Adds a run with this head. Its number.
pub(super) fn add_head(connection: &Connection, head: &Head) -> Result<i64, Fault> {
    connection.execute("INSERT INTO run (content, seal) VALUES (x'', 0)", [])?;
    let run = connection.last_insert_rowid();
    put_head(connection, run, head)?;
    Ok(run)
}

pub(super) fn put_head(connection: &Connection, run: i64, head: &Head) -> Result<(), Fault> {
    let row = Row::new(run, "run", head)?;
    connection
        .execute("UPDATE run SET content = ?, seal = ? WHERE id = ?", params![row.content, row.seal, run])?;
    Ok(())
}

/// Adds a measurement, also to the head, which is then to be put.
pub(super) fn add_measurement(
    connection: &Connection,
    run: i64,
    head: &mut Head,
    m: &Measurement,
) -> Result<(), Fault> {
    let row = Row::new(run, "measurement", m)?;
    connection.execute(
        "INSERT INTO measurement (run, target, workload, round, content, seal) VALUES (?, ?, ?, ?, ?, ?)",
        params![run, m.target, m.workload, m.round, row.content, row.seal],
    )?;
    head.measured.add(&row);
    Ok(())
}

/// Compares a run's measurements with their checksums and with what its head says of them, without unpacking one.
pub(super) fn check(connection: &Connection, run: i64, head: &Head) -> Result<(), Fault> {
    let mut query = connection.prepare_cached("SELECT content, seal FROM measurement WHERE run = ?")?;
    let mut rows = query.query([run])?;
    let (mut measured, mut sound) = (Measured::default(), 0);
    while let Some(row) = rows.next()? {
        let row = Row { content: row.get(0)?, seal: row.get(1)? };
        sound += u64::from(row.is_sound(run));
        measured.add(&row);
    }
    if measured == head.measured && sound == measured.count {
        return Ok(());
    }
    let count = head.measured.count;
    Err(Fault::Damaged("table measurement", format!("{sound} of {count} measurements are sound")))
}

/// A run at one moment, still sealed, so that a writer waits only while it is read.
pub(super) struct Sealed {
    run: i64,
    head: Head,
    rows: Vec<Row>,
}

impl Sealed {
    /// None if the run's row is not there.
    pub(super) fn read(connection: &Connection, run: i64) -> Result<Option<Self>, Fault> {
        let snapshot = connection.unchecked_transaction()?;
        let Some(head) = head(&snapshot, run)? else { return Ok(None) };
        let mut query = snapshot.prepare("SELECT content, seal FROM measurement WHERE run = ?")?;
        let rows = query.query_map([run], |row| Ok(Row { content: row.get(0)?, seal: row.get(1)? }))?;
        let rows = rows.collect::<Result<Vec<Row>, _>>()?;
        Ok(Some(Self { run, head, rows }))
    }

    /// The run's head and all its measurements in the order of measuring.
    pub(super) fn open(self) -> Result<(Head, Vec<Measurement>), Fault> {
        let damaged = |reason| Fault::Damaged("table measurement", reason);
        let (mut measured, mut measurements) = (Measured::default(), Vec::with_capacity(self.rows.len()));
        for row in &self.rows {
            measured.add(row);
            measurements.push(row.open::<Measurement>(self.run));
        }
        let (sound, count) =
            (measurements.iter().filter(|one| one.is_ok()).count(), self.head.measured.count);
        let all = || format!("{sound} of {count} measurements are sound");
        let mut measurements = measurements
            .into_iter()
            .collect::<Result<Vec<_>, String>>()
            .map_err(|reason| damaged(format!("{}; of one {reason}", all())))?;
        if measured != self.head.measured {
            return Err(damaged(format!("{}; of the others no row is found", all())));
        }
        measurements.sort_by_key(|m| (m.order, m.started_at_ms));
        Ok((self.head, measurements))
    }
}
