//! A store in one SQLite file: how it is recognized, opened and asked.
//!
//! Its rollback journal makes it a single file while nobody writes, which can be read on a read-only mount; a log would need a
//! second file.

mod claim;
mod live;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, TransactionBehavior, params_from_iter};

use crate::database::{Columns, Database, Purpose, Value};
use crate::error::{Fault, StoreError};
use crate::schema::{self, Step};
use crate::{Claim, Location};

/// SQLite's application id of an iotax store: "iotx".
const APPLICATION_ID: u32 = u32::from_be_bytes(*b"iotx");
/// Longest wait for another process that reads or writes.
const PATIENCE: Duration = Duration::from_mins(1);

/// An open file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    place: Location,
    connection: Connection,
    /// Shown states of runs that ended without a word were looked for.
    is_swept: bool,
}

impl Sqlite {
    /// Opens a store to read it. It need not be writable, and neither need its directory.
    pub(crate) fn to_read(path: &Path) -> Result<Self, StoreError> {
        if is_new(path, schema::version())? {
            return Err(StoreError::Foreign { place: path.into() });
        }
        let store = Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let prepared = || -> Result<i64, Fault> {
            store.connection.pragma_update(None, "query_only", true)?;
            version(&store.connection)
        };
        let found = prepared().map_err(|fault| store.told(None, fault))?;
        let known = schema::version();
        if found != known {
            return Err(StoreError::Version { place: path.into(), found, known });
        }
        Ok(store)
    }

    /// Opens a store to write it, or makes one where there is no file or an empty one.
    ///
    /// A damaged file is refused: new rows could overwrite intact ones.
    pub(crate) fn to_write(path: &Path) -> Result<Self, StoreError> {
        Self::to_write_by(path, schema::STEPS)
    }

    /// Like [`Self::to_write`], with the schema that these steps make.
    pub(crate) fn to_write_by(path: &Path, steps: &'static [Step]) -> Result<Self, StoreError> {
        let is_new = is_new(path, schema::newest(steps))?;
        let mut store = Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        if !is_new {
            check_pages(&store.connection).map_err(|fault| store.told(None, fault))?;
        }
        make(&mut store.connection, steps).map_err(|fault| match fault {
            Fault::Sqlite(error) if is_refusal(&error) => {
                StoreError::Unwritable { place: path.into(), reason: error.to_string() }
            }
            other => store.told(None, other),
        })?;
        Ok(store)
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let place: Location = path.into();
        let opened = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let opened = opened.and_then(|connection| {
            connection.busy_timeout(PATIENCE)?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => Ok(Self { path: path.to_owned(), place, connection, is_swept: false }),
            Err(error) => Err(StoreError::Sql { place, reason: error.to_string() }),
        }
    }

    fn file_fault(&self, source: io::Error) -> Fault {
        Fault::Told(StoreError::Open { place: self.place.clone(), source })
    }

    fn prepared(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, Fault> {
        Ok(self.connection.prepare_cached(&sql.replace('$', "?"))?)
    }
}

impl Database for Sqlite {
    fn place(&self) -> &Location {
        &self.place
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        Ok(self.prepared(sql)?.execute(params_from_iter(values))? as u64)
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Columns>, Fault> {
        let mut statement = self.prepared(sql)?;
        let count = Statement::column_count(&statement);
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..count).map(|index| value(row.get_ref(index)?));
            found.push(Columns::new(values.collect::<Result<_, Fault>>()?));
        }
        Ok(found)
    }

    fn begin(&mut self, purpose: Purpose) -> Result<(), Fault> {
        let sql = match purpose {
            Purpose::Read => "BEGIN",
            Purpose::Write => "BEGIN IMMEDIATE",
        };
        Ok(self.connection.execute_batch(sql)?)
    }

    fn commit(&mut self) -> Result<(), Fault> {
        let committed = self.connection.execute_batch("COMMIT");
        if committed.is_err() {
            self.roll_back();
        }
        Ok(committed?)
    }

    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn to_change(&self) -> &'static str {
        ""
    }

    fn reconnect(&mut self, lost: Fault) -> Result<(), Fault> {
        Err(lost)
    }

    fn claim(&mut self, run: i64) -> Result<Claim, Fault> {
        match claim::claim(&self.path, run) {
            Ok(socket) => Ok(Claim::new(socket)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                Err(Fault::Told(StoreError::Claimed { run }))
            }
            Err(error) => Err(self.file_fault(error)),
        }
    }

    fn claimed(&mut self, runs: &[i64]) -> Result<BTreeSet<i64>, Fault> {
        Ok(runs.iter().copied().filter(|run| claim::is_claimed(&self.path, *run)).collect())
    }

    fn put_live(&mut self, run: i64, state: &str) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.is_swept, true) {
            live::sweep();
        }
        live::put(&self.path, run, state).map_err(|error| self.file_fault(error))
    }

    fn live(&mut self, run: i64) -> Result<Option<String>, Fault> {
        Ok(live::get(&self.path, run))
    }

    fn end_live(&mut self, run: i64) {
        live::end(&self.path, run);
    }

    /// An error of SQLite that a sound file does not cause is damage.
    fn told(&self, run: Option<i64>, fault: Fault) -> StoreError {
        let place = self.place.clone();
        match fault {
            Fault::Sqlite(error) if is_refusal(&error) && journal(&self.path).exists() => {
                StoreError::HalfWritten { place }
            }
            Fault::Sqlite(error) if is_damage(&error) => {
                StoreError::Damaged { place, run, table: "structure", reason: error.to_string() }
            }
            other => other.told(place, run),
        }
    }
}

impl rusqlite::ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(value) => ValueRef::Integer(*value),
            Self::Text(value) => ValueRef::Text(value.as_bytes()),
            Self::Bytes(value) => ValueRef::Blob(value),
        }))
    }
}

fn value(read: ValueRef<'_>) -> Result<Value, Fault> {
    let damaged = |reason: &str| Fault::Damaged("structure", reason.to_owned());
    Ok(match read {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(_) => return Err(damaged("a fraction where none belongs")),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text).map_err(|_| damaged("a text that is none"))?;
            Value::Text(text.to_owned())
        }
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_owned()),
    })
}

fn version(connection: &Connection) -> Result<i64, Fault> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Looks at the structure of the whole file: 0.05 s for 100 MB, once they are read.
fn check_pages(connection: &Connection) -> Result<(), Fault> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(Fault::Damaged("structure", found.replace('\n', " "))) }
}

/// Makes the tables if there are none, and brings older ones up to date. Writes in any case, so that what cannot be written is noticed
/// before anything is measured.
fn make(connection: &mut Connection, steps: &'static [Step]) -> Result<(), Fault> {
    // A commit that returned survives a power cut: the journal's end is synced with its directory.
    connection.pragma_update(None, "synchronous", "extra")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = version(&transaction)?;
    if found == 0 {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    for step in schema::steps(found, steps) {
        transaction.execute_batch(&schema::of_sqlite(step))?;
    }
    transaction.pragma_update(None, "user_version", schema::newest(steps))?;
    Ok(transaction.commit()?)
}

/// Reads only the file's first bytes, so that a foreign file is never opened as a database. Returns whether the file is new:
/// absent or empty.
fn is_new(path: &Path, known: i64) -> Result<bool, StoreError> {
    let fail = |source| StoreError::Open { place: path.into(), source };
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
        return Err(StoreError::Foreign { place: path.into() });
    }
    let found = i64::from(number(60).unwrap_or(0));
    if !schema::is_known(found, known) {
        return Err(StoreError::Version { place: path.into(), found, known });
    }
    Ok(false)
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
