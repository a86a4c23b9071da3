//! The store's file: how it is recognized and opened.
//!
//! Its rollback journal makes it a single file while nobody writes, which can be read on a read-only mount; a log would need a
//! second file.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::{Fault, StoreError, sealed};

/// SQLite's application id of an iotax store: "iotx".
const APPLICATION_ID: u32 = u32::from_be_bytes(*b"iotx");
/// The schema's version.
const VERSION: u32 = 1;
/// Longest wait for another process that reads or writes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Opens a store to read it. It need not be writable, and neither need its directory.
pub(super) fn to_read(path: &Path) -> Result<Connection, StoreError> {
    if is_new(path)? {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let prepared = || -> Result<u32, Fault> {
        connection.pragma_update(None, "query_only", true)?;
        version(&connection)
    };
    check_version(path, prepared().map_err(|fault| located(path, None, fault))?)?;
    Ok(connection)
}

/// Opens a store to write it, or makes one where there is no file or an empty one.
///
/// A damaged file is refused: new rows could overwrite intact ones.
pub(super) fn to_write(path: &Path) -> Result<Connection, StoreError> {
    let is_new = is_new(path)?;
    let mut connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    let fault = |fault| located(path, None, fault);
    if !is_new {
        check_version(path, version(&connection).map_err(fault)?)?;
        check_pages(&connection).map_err(fault)?;
    }
    make(&mut connection).map_err(|error| match error {
        Fault::Sql(source) if is_refusal(&source) => StoreError::Unwritable { path: path.to_owned(), source },
        other => fault(other),
    })?;
    Ok(connection)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let in_file = |source| StoreError::Sql { path: path.to_owned(), source };
    let connection =
        Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(in_file)?;
    connection.busy_timeout(PATIENCE).map_err(in_file)?;
    Ok(connection)
}

fn version(connection: &Connection) -> Result<u32, Fault> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

fn check_version(path: &Path, found: u32) -> Result<(), StoreError> {
    if found == VERSION {
        return Ok(());
    }
    Err(StoreError::Version { path: path.to_owned(), found, known: VERSION })
}

/// Looks at the structure of the whole file: 0.05 s for 100 MB, once they are read.
fn check_pages(connection: &Connection) -> Result<(), Fault> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(Fault::Damaged("structure", found.replace('\n', " "))) }
}

/// Makes the tables if there are none. Writes in any case, so that what cannot be written is noticed before anything is measured.
fn make(connection: &mut Connection) -> Result<(), Fault> {
    // A commit that returned survives a power cut: the journal's end is synced with its directory.
    connection.pragma_update(None, "synchronous", "extra")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if version(&transaction)? == 0 {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.execute_batch(sealed::SCHEMA)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    Ok(transaction.commit()?)
}

/// Reads only the file's first bytes, so that a foreign file is never opened as a database. Returns whether the file is new:
/// absent or empty.
fn is_new(path: &Path) -> Result<bool, StoreError> {
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
    check_version(path, number(60).unwrap_or(0))?;
    Ok(false)
}

/// Adds the file, and the run if it is about one, to what went wrong. An error of SQLite that a sound file does not cause is damage.
pub(super) fn located(path: &Path, run: Option<i64>, fault: Fault) -> StoreError {
    let path = path.to_owned();
    match fault {
        Fault::Sql(source) if is_refusal(&source) && journal(&path).exists() => {
            StoreError::HalfWritten { path }
        }
        Fault::Sql(source) if is_damage(&source) => {
            StoreError::Damaged { path, run, table: "structure", reason: source.to_string() }
        }
        Fault::Sql(source) => StoreError::Sql { path, source },
        Fault::Damaged(table, reason) => StoreError::Damaged { path, run, table, reason },
        Fault::Value(what, reason) => StoreError::Value { path, what, reason },
        Fault::Unknown => {
            StoreError::Damaged { path, run, table: "table run", reason: "its row is gone".into() }
        }
    }
}

fn journal(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    name.into()
}

/// The place lets nobody write.
fn is_refusal(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::PermissionDenied
                | ErrorCode::SystemIoFailure
        )
    )
}

fn is_damage(error: &rusqlite::Error) -> bool {
    let by_code = matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::Unknown
                | ErrorCode::TooBig
                | ErrorCode::OutOfMemory
                | ErrorCode::TypeMismatch
        )
    );
    let by_value = matches!(
        error,
        rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::SqlInputError { .. }
            | rusqlite::Error::Utf8Error(..)
    );
    by_code || by_value
}
