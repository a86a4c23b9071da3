//! The interface between store and database, SQLite or PostgreSQL. Both use the same SQL for the rows.

use std::collections::BTreeSet;
use std::fmt::Debug;

use crate::error::{Fault, StoreError};
use crate::{Claim, Location};

/// Maximum number of times that work is restarted after a lost connection, because the work may be what breaks it.
const MOST_LOSSES: u32 = 5;

/// A column's value, of one of the types in the schema.
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

/// A row of a result, whose columns are taken from first to last.
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

/// Access mode of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Reads only, from one snapshot.
    Read,
    /// Reads and writes; commits are on disk when they return.
    Write,
}

/// A database with a store. SQL parameters are `$1`, `$2` and so on.
pub(crate) trait Database: Debug + Send {
    /// Location of the store.
    fn place(&self) -> &Location;

    /// Executes one statement. Returns the number of changed rows.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault>;

    /// Returns all rows of a query.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Columns>, Fault>;

    fn begin(&mut self, purpose: Purpose) -> Result<(), Fault>;

    fn commit(&mut self) -> Result<(), Fault>;

    /// Rolls back everything since [`Self::begin`].
    fn roll_back(&mut self);

    /// Suffix of a SELECT that locks its rows against changes by others until the commit.
    fn to_change(&self) -> &'static str;

    /// Reconnects after [`Fault::Lost`] and renews claims. Gives up after the time that a user can be expected to wait.
    fn reconnect(&mut self, lost: Fault) -> Result<(), Fault>;

    /// Owner of the run, if this user may not change it; `None` otherwise.
    fn other_writer(&mut self, run: i64) -> Result<Option<String>, Fault>;

    /// Claims a run for this process.
    fn claim(&mut self, run: i64) -> Result<Claim, Fault>;

    /// Returns those of the runs that any process has claimed.
    fn claimed(&mut self, runs: &[i64]) -> Result<BTreeSet<i64>, Fault>;

    /// Publishes the progress of a run without writing to a disk.
    fn put_live(&mut self, run: i64, state: &str) -> Result<(), Fault>;

    /// The published progress of a run, if any.
    fn live(&mut self, run: i64) -> Result<Option<String>, Fault>;

    /// Removes the published progress of a run.
    fn end_live(&mut self, run: i64);

    /// Converts an internal error to a reported one with the store's location, and the run if it concerns one.
    fn told(&self, run: Option<i64>, fault: Fault) -> StoreError;
}

/// Runs `work` in one transaction, which is rolled back if `work` fails.
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

/// Like [`transact`], but restarts after a lost connection. The reply to a commit may be lost, so `work` must check whether an earlier
/// attempt was committed.
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
