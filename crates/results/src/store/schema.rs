//! The tables, their versions, and how a file is known to be ours.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use super::StoreError;

/// SQLite's application id of an iotax store: "iotx".
const APPLICATION_ID: u32 = u32::from_be_bytes(*b"iotx");

/// One entry per version of the schema, in order; an entry that was released never changes.
const MIGRATIONS: &[M<'static>] = &[M::up(VERSION_1), M::up(VERSION_2), M::up(VERSION_3), M::up(VERSION_4)];

/// The newest version.
#[expect(clippy::cast_possible_truncation, reason = "a handful of migrations")]
const NEWEST: u32 = MIGRATIONS.len() as u32;

/// Times are nanoseconds unless the name says ms; histograms are `model::Histogram`'s JSON form under zstd.
/// A direction that a workload does not have is NULL.
const VERSION_1: &str = "
CREATE TABLE run (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    name          TEXT    NOT NULL,
    started_at_ms INTEGER NOT NULL,
    seed          TEXT    NOT NULL,  -- decimal: it may exceed SQLite's integers
    plan          TEXT    NOT NULL,  -- JSON
    state         TEXT    NOT NULL CHECK (state IN ('running', 'complete', 'interrupted', 'failed')),
    environment   TEXT    NOT NULL   -- JSON
) STRICT;

CREATE TABLE target (
    run    INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    name   TEXT    NOT NULL,
    record TEXT    NOT NULL,         -- JSON: layers, emulated, command line ...
    PRIMARY KEY (run, name)
) STRICT;

CREATE TABLE measurement (
    id               INTEGER PRIMARY KEY,
    run              INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    target           TEXT    NOT NULL,
    workload         TEXT    NOT NULL,
    block            INTEGER NOT NULL,
    place            INTEGER NOT NULL,  -- within the run's order, from 1
    started_at_ms    INTEGER NOT NULL,
    duration_ns      INTEGER NOT NULL,
    host_duration_ns INTEGER,
    ramp_ios         INTEGER NOT NULL,
    cpu_user_ns      INTEGER NOT NULL,
    cpu_system_ns    INTEGER NOT NULL,
    errors           TEXT    NOT NULL,  -- JSON
    notes            TEXT    NOT NULL,  -- JSON
    host_cache       TEXT,              -- JSON
    guest_cache      TEXT,              -- JSON
    UNIQUE (run, target, workload, block)
) STRICT;

-- The totals of the measured window.
CREATE TABLE histogram (
    measurement INTEGER NOT NULL REFERENCES measurement (id) ON DELETE CASCADE,
    direction   TEXT    NOT NULL CHECK (direction IN ('read', 'write')),
    ios         INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    latency     BLOB    NOT NULL,
    PRIMARY KEY (measurement, direction)
) STRICT;

CREATE TABLE sample (
    measurement   INTEGER NOT NULL REFERENCES measurement (id) ON DELETE CASCADE,
    place         INTEGER NOT NULL,
    at_ns         INTEGER NOT NULL,
    duration_ns   INTEGER NOT NULL,
    read_ios      INTEGER,
    read_bytes    INTEGER,
    read_latency  BLOB,
    write_ios     INTEGER,
    write_bytes   INTEGER,
    write_latency BLOB,
    PRIMARY KEY (measurement, place)
) STRICT;

-- What the machine did: place 0 is the whole window, the intervals count from 1.
CREATE TABLE host_activity (
    measurement INTEGER NOT NULL REFERENCES measurement (id) ON DELETE CASCADE,
    place       INTEGER NOT NULL,
    activity    TEXT    NOT NULL,  -- JSON
    PRIMARY KEY (measurement, place)
) STRICT;

CREATE TABLE warning (
    id      INTEGER PRIMARY KEY,
    run     INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    warning TEXT    NOT NULL,      -- JSON
    UNIQUE (run, warning)
) STRICT;
";

/// Every direction of I/O and its response times; the rest of an outcome in one piece.
const VERSION_2: &str = "
-- Place 0 is the whole window, the intervals count from 1. A direction that the workload does not have has no row.
CREATE TABLE tally (
    measurement INTEGER NOT NULL REFERENCES measurement (id) ON DELETE CASCADE,
    place       INTEGER NOT NULL,
    direction   TEXT    NOT NULL CHECK (direction IN ('read', 'write', 'trim', 'sync')),
    ios         INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    latency     BLOB    NOT NULL,
    response    BLOB,
    PRIMARY KEY (measurement, place, direction)
) STRICT;
INSERT INTO tally SELECT measurement, 0, direction, ios, bytes, latency, NULL FROM histogram;
INSERT INTO tally SELECT measurement, place, 'read', read_ios, read_bytes, read_latency, NULL
    FROM sample WHERE read_ios IS NOT NULL;
INSERT INTO tally SELECT measurement, place, 'write', write_ios, write_bytes, write_latency, NULL
    FROM sample WHERE write_ios IS NOT NULL;
DROP TABLE histogram;
ALTER TABLE sample DROP COLUMN read_ios;
ALTER TABLE sample DROP COLUMN read_bytes;
ALTER TABLE sample DROP COLUMN read_latency;
ALTER TABLE sample DROP COLUMN write_ios;
ALTER TABLE sample DROP COLUMN write_bytes;
ALTER TABLE sample DROP COLUMN write_latency;
ALTER TABLE sample ADD COLUMN oldest_ns INTEGER;

-- JSON, with empty tallies.
ALTER TABLE measurement ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
UPDATE measurement SET outcome = json_object(
    'duration_ns', duration_ns, 'tallies', json('{}'), 'ramp_ios', ramp_ios,
    'cpu', json_object('user_ns', cpu_user_ns, 'system_ns', cpu_system_ns),
    'errors', json(errors), 'notes', json(notes));
ALTER TABLE measurement DROP COLUMN duration_ns;
ALTER TABLE measurement DROP COLUMN ramp_ios;
ALTER TABLE measurement DROP COLUMN cpu_user_ns;
ALTER TABLE measurement DROP COLUMN cpu_system_ns;
ALTER TABLE measurement DROP COLUMN errors;
ALTER TABLE measurement DROP COLUMN notes;
";

/// What ran beside one another, what QEMU saw, and where a run's time went; all JSON.
const VERSION_3: &str = "
ALTER TABLE measurement ADD COLUMN shares TEXT NOT NULL DEFAULT '[]';
ALTER TABLE measurement ADD COLUMN neighbour TEXT;
ALTER TABLE measurement ADD COLUMN qemu TEXT;
ALTER TABLE run ADD COLUMN phases TEXT NOT NULL DEFAULT '[]';
";

/// Operations on files, and what other tools measured. A table's CHECK can only be changed with the table.
const VERSION_4: &str = "
CREATE TABLE tally_4 (
    measurement INTEGER NOT NULL REFERENCES measurement (id) ON DELETE CASCADE,
    place       INTEGER NOT NULL,
    direction   TEXT    NOT NULL CHECK (direction IN ('read', 'write', 'trim', 'sync', 'meta')),
    ios         INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    latency     BLOB    NOT NULL,
    response    BLOB,
    PRIMARY KEY (measurement, place, direction)
) STRICT;
INSERT INTO tally_4 SELECT measurement, place, direction, ios, bytes, latency, response FROM tally;
DROP TABLE tally;
ALTER TABLE tally_4 RENAME TO tally;
ALTER TABLE measurement ADD COLUMN stated TEXT;  -- JSON
ALTER TABLE run ADD COLUMN source TEXT;          -- JSON; NULL: measured by iotax
";

/// Looks at the file's first bytes alone, so that what is not ours is not even opened as a database. Tells whether
/// the file is new: absent or empty.
pub(super) fn check_file(path: &Path) -> Result<bool, StoreError> {
    let fail = |source| StoreError::Open { path: path.to_owned(), source };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(fail(error)),
    };
    // https://www.sqlite.org/fileformat.html#the_database_header
    let mut header = Vec::new();
    file.by_ref().take(100).read_to_end(&mut header).map_err(fail)?;
    if header.is_empty() {
        return Ok(true);
    }
    let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    if !header.starts_with(b"SQLite format 3\0") || number(68) != Some(APPLICATION_ID) {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    refuse_newer(path, number(60).unwrap_or(0))?;
    Ok(false)
}

fn refuse_newer(path: &Path, found: u32) -> Result<(), StoreError> {
    if found > NEWEST {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: NEWEST });
    }
    Ok(())
}

/// Brings an open connection and its schema into the state that the store relies on.
pub(super) fn prepare(path: &Path, connection: &mut Connection, is_new: bool) -> Result<(), StoreError> {
    let in_file = |source| StoreError::Sql { path: path.to_owned(), source };
    if is_new {
        // Before the journal becomes a log: from its first byte on the file itself says whose it is.
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(in_file)?;
    }
    // A newer version may still be in the log only.
    let version: u32 =
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(in_file)?;
    refuse_newer(path, version)?;
    connection.pragma_update(None, "journal_mode", "wal").map_err(in_file)?;
    connection.pragma_update(None, "synchronous", "full").map_err(in_file)?;
    connection.pragma_update(None, "foreign_keys", true).map_err(in_file)?;
    Migrations::from_slice(MIGRATIONS)
        .to_latest(connection)
        .map_err(|source| StoreError::Migration { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_applies() {
        assert_eq!(Migrations::from_slice(MIGRATIONS).validate(), Ok(()));
    }

    #[test]
    fn what_an_earlier_version_stored_is_read() {
        let mut connection = Connection::open_in_memory().expect("opened");
        let migrations = Migrations::from_slice(MIGRATIONS);
        migrations.to_version(&mut connection, 1).expect("version 1");
        let histogram = {
            let mut latency = iotax_model::Histogram::new();
            latency.add(1000);
            let text = serde_json::to_string(&latency).expect("serializes");
            zstd::bulk::compress(text.as_bytes(), 3).expect("compresses")
        };
        let plan = iotax_model::Plan::from_toml(
            "[[target]]\nname = \"t\"\npath = \"/t\"\n[[workload]]\nname = \"w\"\n",
        )
        .expect("a plan");
        let plan = serde_json::to_string(&plan).expect("serializes");
        connection
            .execute("INSERT INTO run VALUES (1, 'r', 5, '7', ?, 'complete', '{}')", [plan])
            .expect("run");
        connection
            .execute_batch(
                "INSERT INTO measurement VALUES (1, 1, 't', 'w', 1, 1, 5, 2000, 2100, 3, 40, 50,
                 '[{\"error\":\"EIO\",\"direction\":\"read\",\"count\":2,\"first_offset\":512}]', '[\"odd\"]', NULL, NULL)",
            )
            .expect("measurement");
        connection
            .execute("INSERT INTO histogram VALUES (1, 'read', 1, 4096, ?)", [&histogram])
            .expect("histogram");
        connection
            .execute(
                "INSERT INTO sample VALUES (1, 1, 2000, 2000, 1, 4096, ?, NULL, NULL, NULL)",
                [&histogram],
            )
            .expect("sample");
        migrations.to_latest(&mut connection).expect("migrated");
        let run =
            super::super::read::run(&connection, 1).unwrap_or_else(|_| panic!("not read")).expect("there");
        let [m] = run.measurements.as_slice() else { panic!("{:?}", run.measurements) };
        assert_eq!((m.outcome.duration_ns, m.outcome.ramp_ios, m.outcome.cpu.total_ns()), (2000, 3, 90));
        assert_eq!((m.outcome.errors[0].count, m.outcome.errors[0].last_offset), (2, None));
        assert_eq!(m.outcome.notes, ["odd"]);
        assert_eq!((m.outcome.tallies.ios(), m.outcome.tallies.write.is_none()), (1, true));
        assert_eq!((m.shares.len(), &m.neighbour, &m.qemu, run.phases.len()), (0, &None, &None, 0));
        assert_eq!(m.samples.len(), 1);
        assert_eq!(m.samples[0].tallies, m.outcome.tallies);
    }
}
