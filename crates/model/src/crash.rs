//! Results of simulated and real power cuts: which writes each storage stack lost.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::verify_errors::{FaultKind, Findings, Recovery};
use crate::words::words;

/// Value of [`CrashDocument::format`]: name and version of the document's format.
pub const CRASH_FORMAT: &str = "iotax-crash/1";

/// The results of `iotax crash` and `iotax powercut check`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrashDocument {
    /// Name and version of the document's format: `iotax-crash/1`.
    pub format: String,
    /// Version of the iotax that wrote the document.
    pub tool: String,
    /// Seed of the random choices: the order and times of cuts, offsets, and the writes that a cut keeps; absent if the plug was pulled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seed: Option<u64>,
    /// Number of writes between two flushes of the load; absent if a database decides when to flush, or if the plug was pulled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub writes_per_flush: Option<u32>,
    /// Number of power cuts that were asked for, over all targets; absent if all were made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub planned_cuts: Option<u64>,
    /// The targets, in the order of the command line.
    pub targets: Vec<CrashedTarget>,
}

/// A stack whose power was cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrashedTarget {
    /// The target's name.
    pub name: String,
    /// The target's layers on one line, from the bottom up.
    pub stack: String,
    /// The database that wrote; absent for iotax's own writes. With a database, a write is the commit of one row, and a block is a row.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub database: Option<DatabaseMode>,
    /// The target's power cuts, in the order in which they were made.
    pub cuts: Vec<PowerCut>,
}

/// A database and its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DatabaseMode {
    /// SQLite, with its journal mode and flush points.
    Sqlite(SqliteMode),
    /// PostgreSQL, with the setting that decides when it flushes.
    Postgresql(PostgresqlMode),
}

impl DatabaseMode {
    /// Returns whether the database's settings guarantee that an acknowledged commit survives a power cut.
    #[must_use]
    pub fn promises_commits(self) -> bool {
        match self {
            // <https://sqlite.org/pragma.html#pragma_synchronous>
            Self::Sqlite(mode) => mode.synchronous == Synchronous::Full,
            // <https://www.postgresql.org/docs/15/runtime-config-wal.html>
            Self::Postgresql(mode) => {
                matches!(mode, PostgresqlMode::Fdatasync | PostgresqlMode::OpenDatasync)
            }
        }
    }

    /// Returns whether the database's settings guarantee that it is not corrupt after a power cut, even if the last commits are lost. They
    /// do not if the database never flushes, or if SQLite uses a rollback journal with `synchronous=normal`.
    #[must_use]
    pub fn promises_a_whole_database(self) -> bool {
        self.promises_commits()
            || match self {
                Self::Sqlite(mode) => {
                    mode.journal_mode == JournalMode::Wal && mode.synchronous == Synchronous::Normal
                }
                Self::Postgresql(mode) => mode == PostgresqlMode::Asynchronous,
            }
    }
}

/// Prints the settings as `wal/normal` (SQLite) or `open_datasync` (PostgreSQL).
impl fmt::Display for DatabaseMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(mode) => write!(f, "{}/{}", mode.journal_mode, mode.synchronous),
            Self::Postgresql(mode) => write!(f, "{mode}"),
        }
    }
}

words! {
    /// The PostgreSQL setting that decides which commits a power cut can lose; all other settings are defaults.
    PostgresqlMode, "PostgreSQL mode" {
        /// `wal_sync_method = fdatasync`, Linux's default.
        Fdatasync = "fdatasync",
        /// `wal_sync_method = open_datasync`: the WAL is opened with `O_DSYNC`.
        OpenDatasync = "open_datasync",
        /// A commit is acknowledged before it is flushed, and may be lost.
        Asynchronous = "synchronous_commit=off",
        /// PostgreSQL flushes nothing.
        Unsynced = "fsync=off",
    }
}

impl PostgresqlMode {
    /// All PostgreSQL modes, the default first.
    pub const ALL: [Self; 4] = [Self::Fdatasync, Self::OpenDatasync, Self::Asynchronous, Self::Unsynced];

    /// Returns the setting that selects this mode, as a line of postgresql.conf; all other settings are PostgreSQL's defaults.
    #[must_use]
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Fdatasync => "wal_sync_method=fdatasync",
            Self::OpenDatasync => "wal_sync_method=open_datasync",
            Self::Asynchronous => "synchronous_commit=off",
            Self::Unsynced => "fsync=off",
        }
    }
}

words! {
    /// The journal that makes SQLite's transactions atomic (`PRAGMA journal_mode`).
    JournalMode, "journal mode" {
        /// A rollback journal, which a commit deletes.
        Delete = "delete",
        /// A rollback journal, which a commit truncates.
        Truncate = "truncate",
        /// A write-ahead log.
        Wal = "wal",
    }
}

words! {
    /// The points at which SQLite flushes (`PRAGMA synchronous`).
    Synchronous, "synchronous" {
        /// Before each commit is acknowledged.
        Full = "full",
        /// Fewer flushes than with `full`: a power cut may lose the last commits of a write-ahead log, or corrupt a database with a
        /// rollback journal.
        Normal = "normal",
        /// SQLite never flushes.
        Off = "off",
    }
}

/// The settings of a SQLite database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqliteMode {
    /// Journal that makes transactions atomic (`PRAGMA journal_mode`).
    pub journal_mode: JournalMode,
    /// Points at which SQLite flushes (`PRAGMA synchronous`).
    pub synchronous: Synchronous,
}

impl SqliteMode {
    /// Returns all nine combinations of SQLite's journal mode and synchronous setting.
    pub fn all() -> impl Iterator<Item = Self> {
        let each = [Synchronous::Full, Synchronous::Normal, Synchronous::Off];
        [JournalMode::Delete, JournalMode::Truncate, JournalMode::Wal]
            .into_iter()
            .flat_map(move |journal_mode| each.map(|synchronous| Self { journal_mode, synchronous }))
    }
}

/// A power cut and its consequences.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PowerCut {
    /// Time from the first write to the cut, in seconds. If the plug was pulled: from the start of recording to the last recorded flush;
    /// absent without a flush.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seconds: Option<f64>,
    /// Recorded writes that were acknowledged; absent if nothing was read back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub writes: Option<u64>,
    /// Acknowledged writes that are covered by an acknowledged flush. With a database: all commits if its settings guarantee
    /// that they survive, else 0. Absent if nothing was read back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flushed_writes: Option<u64>,
    /// Counts of the volatile layer, which simulated the cut; absent if the plug was pulled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub volatile: Option<VolatileCut>,
    /// The condition of the image or database after the cut.
    pub image: ImageCondition,
    /// Reason why the stack could not be used after the cut; absent if it could be used. With a database, all acknowledged commits then
    /// count as lost; without one, nothing was read back, and the amount that was lost is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unusable: Option<String>,
    /// Blocks compared with their last flushed write; absent if nothing was read back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub flushed: Option<LostBlocks>,
    /// Blocks compared with their last acknowledged write, flushed or not; absent if nothing was read back.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acknowledged: Option<LostBlocks>,
    /// Stale blocks in `acknowledged` whose missing write was acknowledged before a surviving write began; absent if nothing was read back. A
    /// count above 0 shows that the stack reorders writes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reordered: Option<u64>,
    /// Age of the oldest missing write at the time of the cut, in seconds, estimated from evenly spaced writes; absent if none is missing
    /// or the age is unknown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_seconds: Option<f64>,
    /// Reason why some missing acknowledged writes may have gone undetected; absent if the record of writes is complete.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub incomplete: Option<String>,
}

impl PowerCut {
    /// Computes the result of a power cut from the check of the surviving data. `seconds` is the time from the first write to the cut; `None` if
    /// unknown. The age of the oldest lost write assumes that writes were evenly spaced.
    #[must_use]
    pub fn found(seconds: Option<f64>, recovery: &Recovery) -> Self {
        // The load writes evenly.
        let age = |before: u64, seconds: f64| {
            seconds * (recovery.writes - before) as f64 / recovery.writes.max(1) as f64
        };
        Self {
            seconds,
            writes: Some(recovery.writes),
            flushed_writes: Some(recovery.durable_writes),
            flushed: Some(LostBlocks::of(&recovery.durable)),
            acknowledged: Some(LostBlocks::of(&recovery.findings)),
            reordered: Some(recovery.reordered),
            lost_seconds: recovery.lost_from.zip(seconds).map(|(before, seconds)| age(before, seconds)),
            incomplete: recovery.incomplete(),
            ..Self::default()
        }
    }
}

/// Blocks of a target that were read back after a power cut, by fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LostBlocks {
    /// Blocks read back.
    pub checked: u64,
    /// Blocks with an earlier content, otherwise intact.
    pub stale: u64,
    /// Blocks that mix data of two writes.
    pub torn: u64,
    /// Blocks with any other fault: wrong bytes, data of a write to another offset, data that the load did not write, or unreadable.
    pub damaged: u64,
}

impl LostBlocks {
    /// Counts the faults that a check found: a lost write counts as stale, a mixture of two writes as torn, and every other fault as damaged.
    #[must_use]
    pub fn of(findings: &Findings) -> Self {
        let mut lost = Self { checked: findings.checked, ..Self::default() };
        for fault in &findings.faults {
            *match fault.kind {
                FaultKind::LostWrite => &mut lost.stale,
                FaultKind::Torn => &mut lost.torn,
                FaultKind::Corrupt | FaultKind::Misdirected | FaultKind::Foreign | FaultKind::Unreadable => {
                    &mut lost.damaged
                }
            } += fault.count;
        }
        lost
    }

    /// Returns the number of stale, torn and damaged blocks together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.stale + self.torn + self.damaged
    }
}

/// Counts of the volatile layer, which simulates power cuts by losing unflushed writes, at one cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolatileCut {
    /// Flushes that the layer acknowledged since it was mounted.
    pub flushes: u64,
    /// Acknowledged flushes that the layer did not perform, because of `drop_flush`.
    pub dropped_flushes: u64,
    /// Unflushed writes that reached the disk completely.
    pub kept: u64,
    /// Unflushed writes that reached the disk in part: some sectors are new, others old.
    pub torn: u64,
    /// Unflushed writes that did not reach the disk.
    pub lost: u64,
}

/// The condition of an image after a power cut according to `qemu-img check`, or of a database according to its own check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ImageCondition {
    /// No check was made, for example because a raw file has no metadata to check.
    #[default]
    Unchecked,
    /// The check found no error.
    Sound,
    /// Number of leaked clusters: they waste space, but no data is lost.
    Leaks(u64),
    /// Number of errors that the check found; 1 if it could not read the image.
    Damaged(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_that_of_the_types() {
        let schema = schemars::schema_for!(CrashDocument).to_value();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/crash.schema.json");
        if std::env::var_os("IOTAX_UPDATE_DOCS").is_some() {
            std::fs::write(path, format!("{schema:#}\n")).expect("written");
        }
        let published = std::fs::read_to_string(path).expect("readable");
        let published: serde_json::Value = serde_json::from_str(&published).expect("JSON");
        assert!(published == schema, "IOTAX_UPDATE_DOCS=1 updates it");
    }
}
