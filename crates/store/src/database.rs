//! The interface to a store's database, SQLite or PostgreSQL. Both use the same SQL for rows.

use std::collections::BTreeSet;
use std::fmt::Debug;

use crate::error::{Fault, StoreError};
use crate::{Claim, Location};

/// Maximum number of times that a transaction is repeated after a lost connection. A limit is needed because the transaction itself may
/// break the connection.
const MOST_LOSSES: u32 = 5;

/// A value of a column, in one of the types that the schema uses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Bytes(value.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The columns of one result row, which are taken from first to last.
#[derive(Debug)]
pub(crate) struct Columns(std::vec::IntoIter<Value>);

impl Columns {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    pub(crate) fn int(&mut self) -> Result<i64, Fault> {
        self.maybe_int()?.ok_or_else(|| unexpected("a number", &Value::Null))
    }

    pub(crate) fn maybe_int(&mut self) -> Result<Option<i64>, Fault> {
        match self.take() {
            Value::Int(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            other => Err(unexpected("a number", &other)),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Fault> {
        self.maybe_text()?.ok_or_else(|| unexpected("a text", &Value::Null))
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>, Fault> {
        match self.take() {
            Value::Text(value) => Ok(Some(value)),
            Value::Null => Ok(None),
            other => Err(unexpected("a text", &other)),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Fault> {
        match self.take() {
            Value::Bytes(value) => Ok(value),
            other => Err(unexpected("bytes", &other)),
        }
    }

    fn take(&mut self) -> Value {
        self.0.next().unwrap_or(Value::Null)
    }
}

fn unexpected(expected: &str, found: &Value) -> Fault {
    let found = match found {
        Value::Null => "nothing",
        Value::Int(_) => "a number",
        Value::Text(_) => "a text",
        Value::Bytes(_) => "bytes",
    };
    Fault::Damaged("structure", format!("{found} where {expected} belongs"))
}

/// The access mode of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reads one snapshot of the data, without writing.
    Read,
    /// Reads and writes. Committed data is on disk when the commit returns.
    Write,
}

/// A database that holds a store. Parameters in SQL are `$1`, `$2` and so on.
pub(crate) trait Database: Debug + Send {
    /// Returns the location of the store.
    fn location(&self) -> &Location;

    /// Executes one statement. Returns the number of changed rows.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault>;

    /// Returns all rows of a query.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Columns>, Fault>;

    fn begin(&mut self, purpose: Purpose) -> Result<(), Fault>;

    fn commit(&mut self) -> Result<(), Fault>;

    /// Rolls back the transaction that [`Self::begin`] started.
    fn roll_back(&mut self);

    /// Returns the suffix of a SELECT that locks its rows until the commit, so that others cannot change them; empty for SQLite, where a
    /// write transaction locks the whole file.
    fn to_change(&self) -> &'static str;

    /// Reconnects after [`Fault::Lost`] and renews the claims. Fails if this does not succeed within a minute, or within 5 s in a store
    /// that is open only for reading: the server does not answer, or another process has claimed one of the runs meanwhile. Always fails
    /// for SQLite.
    fn reconnect(&mut self, lost: Fault) -> Result<(), Fault>;

    /// Returns the owner of a run that this user may not change; `None` if the user may.
    fn other_writer(&mut self, run: i64) -> Result<Option<String>, Fault>;

    /// Claims a run for this process. Fails if the run is already claimed, also by this process, or belongs to another user.
    fn claim(&mut self, run: i64) -> Result<Claim, Fault>;

    /// Returns the subset of `runs` that any process has claimed.
    fn claimed(&mut self, runs: &[i64]) -> Result<BTreeSet<i64>, Fault>;

    /// Publishes the progress of a run as JSON text. Does not wait for a disk.
    fn put_live(&mut self, run: i64, state: &str) -> Result<(), Fault>;

    /// Returns the published progress of a run as JSON text; `None` if there is none.
    fn live(&mut self, run: i64) -> Result<Option<String>, Fault>;

    /// Removes the published progress of a run.
    fn end_live(&mut self, run: i64);

    /// Converts an internal error to a public one, with the store's location and, if given, the run's number.
    fn public_error(&self, run: Option<i64>, fault: Fault) -> StoreError;
}

/// Runs `work` in a transaction. Commits if `work` succeeds, rolls back if it fails.
pub(crate) fn transact<T>(
    database: &mut dyn Database,
    purpose: Purpose,
    work: &mut dyn FnMut(&mut dyn Database) -> Result<T, Fault>,
) -> Result<T, Fault> {
    database.begin(purpose)?;
    let done = work(database);
    match done {
        Ok(value) => database.commit().map(|()| value),
        Err(fault) => {
            database.roll_back();
            Err(fault)
        }
    }
}

/// Runs `work` in a transaction as [`transact`] does, but repeats it after a lost connection. The connection may be lost after the commit,
/// so `work` must recognize that an earlier attempt was committed.
pub(crate) fn insist<T>(
    database: &mut dyn Database,
    purpose: Purpose,
    work: &mut dyn FnMut(&mut dyn Database) -> Result<T, Fault>,
) -> Result<T, Fault> {
    for _ in 0..MOST_LOSSES {
        match transact(database, purpose, work) {
            Err(lost @ Fault::Lost(_)) => database.reconnect(lost)?,
            other => return other,
        }
    }
    transact(database, purpose, work)
}
