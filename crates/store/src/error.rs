//! The errors of the store, internal and public ones.

use std::fmt;
use std::io;

use iotax_model::run::command;
use rusqlite::ErrorCode;

use crate::Location;
use crate::schema::OLDEST;

/// The reason why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file of the store cannot be opened, created or locked.
    #[error("cannot open the store {location}: {source}; name another one with --db")]
    Open {
        /// Location of the store.
        location: Location,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file or database is not an iotax store, or the file to read is missing or empty. Nothing was changed.
    #[error("{location} is not an iotax store and was left untouched; name another one with --db")]
    Foreign {
        /// Location of the file or database.
        location: Location,
    },
    /// The file is empty. It was not changed.
    #[error(
        "{location} is an empty file, such as a command leaves that was killed at its start; no run is stored there: remove it, or name \
         another store with --db"
    )]
    Empty {
        /// The empty file.
        location: Location,
    },
    /// The database does not contain an iotax store yet.
    #[error("{location} holds no iotax store yet; make one: iotax store init {location}")]
    Absent {
        /// Location of the database.
        location: Location,
    },
    /// The store has a schema version that this iotax cannot read, or only after a migration. It was not changed.
    #[error(
        "the store {location} has version {found}, this iotax reads version {known}, so it was left untouched; {remedy}",
        remedy = remedy(location, *found, *known)
    )]
    Version {
        /// Location of the store.
        location: Location,
        /// Schema version of the store.
        found: i64,
        /// Newest schema version that this iotax can read.
        known: i64,
    },
    /// The store cannot be written, for example because this user lacks the permission.
    #[error("the store {location} cannot be written: {reason}; name another one with --db")]
    Unwritable {
        /// Location of the store.
        location: Location,
        /// The reason why it cannot be written.
        reason: String,
    },
    /// A process was killed while it wrote, and this process cannot write the file, so that the unfinished write cannot be rolled back.
    #[error(
        "the store {location} is in the middle of a write that its file of the same name with -journal takes back, and it cannot be \
         written; copy both files to a place that can be written and name the copy with --db"
    )]
    HalfWritten {
        /// The store's file.
        location: Location,
    },
    /// A journal next to the store belongs to another user, could be created by one, or is not from iotax; or there is a write-ahead log,
    /// which iotax never creates.
    #[error("the store {location} was left untouched: {reason}; or name another one with --db")]
    Planted {
        /// The store's file.
        location: Location,
        /// The reason why the store is not opened.
        reason: String,
    },
    /// Stored data does not match its checksum or structure: it has changed since it was written.
    #[error(
        "{}the store {location} is damaged ({table}): {reason}; put back an earlier copy of it, or go on with another one: \
         --db FILE{}",
        run.map_or(String::new(), |run| format!("run {run} cannot be shown: ")),
        run.map_or(String::new(), |_| format!(". The other runs: {}", command("list", "", "", Some(&location.to_string()))))
    )]
    Damaged {
        /// Location of the store.
        location: Location,
        /// Number of the affected run; `None` if unknown or if no run is affected.
        run: Option<i64>,
        /// The damaged part: `structure`, or `table` and the name of a table, such as `table run`.
        table: &'static str,
        /// A description of the damage.
        reason: String,
    },
    /// The database server cannot be reached, or a lost connection could not be restored in time.
    #[error(
        "the store {location} does not answer: {reason}; what it acknowledged is kept: see that the server runs, then repeat the command \
         (a run goes on with iotax resume)"
    )]
    Unreachable {
        /// Location of the database.
        location: Location,
        /// The reason that the client or server gives.
        reason: String,
    },
    /// A process has claimed the run and is working on it.
    #[error("run {run} is still going on in another process")]
    Claimed {
        /// Number of the claimed run.
        run: i64,
    },
    /// The run was stored by another user, and only that user may change it.
    #[error(
        "run {run} of {location} was stored by {writer}, and nobody else changes it; copy it with iotax pull, or name another store with --db"
    )]
    OfAnother {
        /// Number of the other user's run.
        run: i64,
        /// Location of the database.
        location: Location,
        /// The database role that stored the run.
        writer: String,
    },
    /// The store has no run with this number.
    #[error("there is no run {run}: {}; see: {list}", known_runs(*.last))]
    UnknownRun {
        /// The requested number.
        run: i64,
        /// Number of the store's newest run; 0 if the store is empty.
        last: i64,
        /// The command that lists the store's runs.
        list: String,
    },
    /// The run and its copy in another store were both continued, and each has measurements that the other lacks.
    #[error(
        "run {run} and its copy, run {copy} of {location}, both went on since they were one: each has measurements that the other lacks; \
         neither was changed"
    )]
    Diverged {
        /// Number of the run to be copied.
        run: i64,
        /// Number of the copy in the other store.
        copy: i64,
        /// Location of the other store.
        location: Location,
    },
    /// The database rejected a statement, or reported another error.
    #[error("the store {location}: {reason}")]
    Sql {
        /// Location of the store.
        location: Location,
        /// The database's error message.
        reason: String,
    },
    /// A value cannot be stored, a store's URL is invalid, or roles were given for a file.
    #[error("the store {location}: {what}: {reason}")]
    Value {
        /// Location of the store.
        location: Location,
        /// Name of the invalid value, such as `plan`.
        what: &'static str,
        /// The reason why the value is invalid.
        reason: String,
    },
}

fn known_runs(last: i64) -> String {
    match last {
        0 => "the store is empty".into(),
        1 => "the store holds only run 1".into(),
        last => format!("the store holds runs 1 to {last}"),
    }
}

/// An internal error, which does not name the store yet.
#[derive(Debug)]
pub(crate) enum Fault {
    Sqlite(rusqlite::Error),
    /// An error of the PostgreSQL server.
    Postgres(::postgres::Error),
    /// The connection was lost or could not be opened. The transaction must be repeated.
    Lost(String),
    /// The damaged part, `structure` or a table such as `table run`, and a description of the damage.
    Damaged(&'static str, String),
    Value(&'static str, String),
    /// The database has no row for the run.
    Unknown,
    /// A public error, which is reported without changes.
    Store(StoreError),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    pub(crate) fn value(what: &'static str, reason: &dyn fmt::Display) -> Self {
        Self::Value(what, reason.to_string())
    }
    /// Converts to a public error with the store's location and, if given, the run's number. Returns a [`Fault::Store`] unchanged.
    pub(crate) fn into_public(self, location: Location, run: Option<i64>) -> StoreError {
        let damaged = |location, table, reason| StoreError::Damaged { location, run, table, reason };
        match self {
            Self::Sqlite(error) => StoreError::Sql { location, reason: with_remedy(&error) },
            Self::Postgres(error) => StoreError::Sql { location, reason: error.to_string() },
            Self::Lost(reason) => StoreError::Unreachable { location, reason },
            Self::Damaged(table, reason) => damaged(location, table, reason),
            Self::Value(what, reason) => StoreError::Value { location, what, reason },
            Self::Unknown => damaged(location, "table run", "its row is gone".into()),
            Self::Store(error) => error,
        }
    }
}

/// Returns the remedy for a store whose schema version is not supported.
fn remedy(location: &Location, found: i64, known: i64) -> String {
    if (OLDEST..known).contains(&found) {
        return format!("bring it up to date: iotax store init {location}");
    }
    let age = if found > known { "newer" } else { "older" };
    format!("use the {age} iotax that wrote it, or name another store with --db")
}

/// Returns SQLite's message, with a remedy if the error is a known one.
fn with_remedy(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!(
                "{error}: another program has held it for a minute; fuser(1) names it, or name another store with --db"
            )
        }
        Some(ErrorCode::DiskFull) => format!("{error}; make room, or name another store with --db"),
        _ => error.to_string(),
    }
}
