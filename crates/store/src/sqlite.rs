//! A store in one SQLite file.
//!
//! Uses a rollback journal: the store is then a single file while nobody writes, and can be read on a read-only mount. A write-ahead log
//! would need more files.

mod claim;
mod live;
mod neighbours;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, Statement, TransactionBehavior, ffi, params_from_iter};
use rustix::fs::OFlags;

use crate::database::{Columns, Database, Purpose, Value};
use crate::error::{Fault, StoreError};
use crate::schema::{self, Step};
use crate::{Claim, Location};

/// The application id in the header of a store's file: "iotx".
const APPLICATION_ID: u32 = u32::from_be_bytes(*b"iotx");
/// Maximum time to wait for another process that reads or writes the file.
const PATIENCE: Duration = Duration::from_mins(1);

/// An open SQLite store.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    location: Location,
    connection: Connection,
    is_read_only: bool,
    /// True if the progress files of killed processes have been removed.
    is_swept: bool,
}

impl Sqlite {
    /// Opens a store for reading. The file and its directory may be read-only. Fails if there is a write-ahead log, or a journal that is
    /// not a regular file of this user; waits up to 5 s for another user's write to end.
    pub(crate) fn to_read(path: &Path) -> Result<Self, StoreError> {
        if is_new(path, schema::version())? {
            return Err(match path.metadata() {
                Ok(_) => StoreError::Empty { location: path.into() },
                Err(source) => StoreError::Open { location: path.into(), source },
            });
        }
        let mut store = Self::open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let (known, steps) = (schema::version(), schema::STEPS);
        let found = store.begin(Purpose::Read).and_then(|()| {
            let found = version(&store.connection)?;
            if found == known {
                check_tables(&store.connection, found, steps)?;
            }
            Ok(found)
        });
        store.roll_back();
        match found.map_err(|fault| store.public_error(None, fault))? {
            found if found == known => Ok(store),
            found => Err(StoreError::Version { location: path.into(), found, known }),
        }
    }

    /// Opens a store for writing; creates it if the file is missing or empty.
    ///
    /// Refuses a damaged file, because new rows could overwrite intact ones.
    pub(crate) fn to_write(path: &Path) -> Result<Self, StoreError> {
        Self::to_write_by(path, schema::STEPS)
    }

    /// Opens a store as [`Self::to_write`] does, with the schema that the migrations `steps` create.
    pub(crate) fn to_write_by(path: &Path, steps: &'static [Step]) -> Result<Self, StoreError> {
        let is_new = is_new(path, schema::newest(steps))?;
        neighbours::refuse_planted(path).map_err(|reason| planted(path, reason))?;
        let file = is_new.then(|| NewFile::create(path)).flatten();
        let store = Self::to_write_checked(path, is_new, steps)?;
        file.into_iter().for_each(NewFile::keep);
        Ok(store)
    }

    fn to_write_checked(path: &Path, is_new: bool, steps: &'static [Step]) -> Result<Self, StoreError> {
        let mut store = Self::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        if !is_new {
            let checked = version(&store.connection)
                .and_then(|found| check_tables(&store.connection, found, steps))
                .and_then(|()| check_pages(&store.connection));
            checked.map_err(|fault| store.public_error(None, fault))?;
        }
        make(&mut store.connection, steps).map_err(|fault| match fault {
            Fault::Sqlite(error) if is_refusal(&error) => {
                StoreError::Unwritable { location: path.into(), reason: error.to_string() }
            }
            other => store.public_error(None, other),
        })?;
        Ok(store)
    }

    fn open(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let location: Location = path.into();
        let opened = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let opened = opened.and_then(|connection| {
            connection.busy_timeout(PATIENCE)?;
            Ok(connection)
        });
        let is_read_only = flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY);
        match opened {
            Ok(connection) => {
                Ok(Self { path: path.to_owned(), location, connection, is_read_only, is_swept: false })
            }
            Err(error) => Err(StoreError::Sql { location, reason: error.to_string() }),
        }
    }

    /// Rolls back a write that a killed process of this user did not finish.
    fn put_right(&self) -> Result<(), Fault> {
        neighbours::refuse_planted(&self.path).map_err(|reason| Fault::Store(planted(&self.path, reason)))?;
        let writer = Self::open(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(Fault::Store)?;
        version(&writer.connection).map(|_| ())
    }

    fn file_fault(&self, source: io::Error) -> Fault {
        Fault::Store(StoreError::Open { location: self.location.clone(), source })
    }

    fn prepared(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, Fault> {
        Ok(self.connection.prepare_cached(&sql.replace('$', "?"))?)
    }
}

impl Database for Sqlite {
    fn location(&self) -> &Location {
        &self.location
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
        if purpose == Purpose::Write {
            return Ok(self.connection.execute_batch("BEGIN IMMEDIATE")?);
        }
        if self.is_read_only {
            neighbours::refuse_foreign(&self.path)
                .map_err(|reason| Fault::Store(planted(&self.path, reason)))?;
        }
        self.connection.execute_batch("BEGIN")?;
        // The first query shows whether a write was interrupted, which only a writer can roll back.
        match version(&self.connection) {
            Err(Fault::Sqlite(error)) if self.is_read_only && is_half_written(&error) => {
                self.roll_back();
                self.put_right()?;
                Ok(self.connection.execute_batch("BEGIN")?)
            }
            found => found.map(|_| ()),
        }
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

    fn other_writer(&mut self, _: i64) -> Result<Option<String>, Fault> {
        Ok(None)
    }

    fn claim(&mut self, run: i64) -> Result<Claim, Fault> {
        match claim::claim(&self.path, run) {
            Ok(held) => Ok(Claim::new(held)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                Err(Fault::Store(StoreError::Claimed { run }))
            }
            Err(error) => Err(self.file_fault(error)),
        }
    }

    fn claimed(&mut self, runs: &[i64]) -> Result<BTreeSet<i64>, Fault> {
        let is_claimed = |run: &i64| claim::path(&self.path, *run).is_ok_and(|path| claim::is_held(&path));
        Ok(runs.iter().copied().filter(is_claimed).collect())
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

    /// Converts an internal error to a public one. SQLite errors that cannot occur with an intact file are reported as damage.
    fn public_error(&self, run: Option<i64>, fault: Fault) -> StoreError {
        let location = self.location.clone();
        match fault {
            Fault::Sqlite(error) if is_refusal(&error) && journal(&self.path).exists() => {
                StoreError::HalfWritten { location }
            }
            Fault::Sqlite(error) if is_damage(&error) => {
                StoreError::Damaged { location, run, table: "structure", reason: error.to_string() }
            }
            other => other.into_public(location, run),
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

/// Checks the structure of the whole file, which takes 0.05 s for 100 MB in the page cache.
fn check_pages(connection: &Connection) -> Result<(), Fault> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" { Ok(()) } else { Err(Fault::Damaged("structure", found.replace('\n', " "))) }
}

/// Rejects a file whose tables, views, indexes and triggers are not exactly those of its schema version, because the SQL of foreign ones
/// would run with queries.
fn check_tables(connection: &Connection, version: i64, steps: &'static [Step]) -> Result<(), Fault> {
    let ours = Connection::open_in_memory()?;
    for step in steps.iter().filter(|step| step.to <= version) {
        ours.execute_batch(&schema::of_sqlite(step))?;
    }
    if tables(connection)? == tables(&ours)? {
        return Ok(());
    }
    Err(Fault::Damaged("structure", format!("its tables are not those of version {version}")))
}

/// Returns the type, name and SQL of all tables, views, indexes and triggers of a file.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<(String, String, Option<String>)>> {
    let sql = "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name";
    let mut statement = connection.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// Creates or migrates the tables. Always writes, so that a read-only store is noticed before a measurement starts.
fn make(connection: &mut Connection, steps: &'static [Step]) -> Result<(), Fault> {
    // `extra` also syncs the directory after the journal is deleted, so that a commit that returned survives a power failure.
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

/// Returns whether the store is new: its file is missing or empty. Reads only the first bytes of an existing file; a file that is not an
/// iotax store is rejected without opening it as a database.
fn is_new(path: &Path, known: i64) -> Result<bool, StoreError> {
    let fail = |source| StoreError::Open { location: path.into(), source };
    // Without this flag, opening a FIFO would block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(fail(error)),
    };
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(fail(io::Error::other("it is not a file")));
    }
    // https://www.sqlite.org/fileformat.html#the_database_header
    let mut header = Vec::new();
    file.by_ref().take(100).read_to_end(&mut header).map_err(fail)?;
    if header.is_empty() {
        return Ok(true);
    }
    let number = |at: usize| Some(u32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    if !header.starts_with(b"SQLite format 3\0") || number(68) != Some(APPLICATION_ID) {
        return Err(StoreError::Foreign { location: path.into() });
    }
    if header.get(18..20).is_some_and(|versions| versions != [1, 1]) {
        return Err(planted(path, "it has a write-ahead log, which iotax never makes".to_owned()));
    }
    let found = i64::from(number(60).unwrap_or(0));
    if !schema::is_known(found, known) {
        return Err(StoreError::Version { location: path.into(), found, known });
    }
    Ok(false)
}

/// A file that this process has just created for a store; removed when dropped if nothing was written, as on a full disk.
struct NewFile<'a>(Option<&'a Path>);

impl<'a> NewFile<'a> {
    /// Creates the file; `None` if it exists or cannot be created, which SQLite then reports.
    fn create(path: &'a Path) -> Option<Self> {
        // SQLite creates its files with this mode.
        let created = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path);
        created.ok().map(|_| Self(Some(path)))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        let empty = self.0.filter(|path| path.metadata().is_ok_and(|file| file.len() == 0));
        let _ = empty.map(fs::remove_file);
    }
}

fn journal(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-journal");
    name.into()
}

fn planted(path: &Path, reason: String) -> StoreError {
    StoreError::Planted { location: path.into(), reason }
}

/// Returns whether the error means that a write was interrupted and this read-only connection cannot roll it back.
fn is_half_written(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_READONLY_ROLLBACK)
}

/// Returns whether the error means that the store cannot be written.
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
