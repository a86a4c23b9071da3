//! The interface between the store and its database, SQLite or PostgreSQL. The SQL of the store's rows is the same for both.

use std::collections::BTreeSet;
use std::fmt::Debug;

use crate::error::{Fault, StoreError};
use crate::{Claim, Location};

/// Maximum number of consecutive lost connections for one piece of work, because it may be their cause.
const MOST_LOSSES: u32 = 5;

/// A column's value. The schema has no other types.
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

/// A row of a result, read from its first column.
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

/// The purpose of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All reads see one snapshot.
    Read,
    /// A writer, whose commits are on the disk when they return.
    Write,
}

/// A database that stores runs. Parameters are `$1`, `$2` and so on.
pub(crate) trait Database: Debug + Send {
    /// The store's location.
    fn place(&self) -> &Location;

    /// Carries out one statement. Returns the number of rows that it changed.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault>;

    /// All rows of a query.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Columns>, Fault>;

    fn begin(&mut self, purpose: Purpose) -> Result<(), Fault>;

    fn commit(&mut self) -> Result<(), Fault>;

    /// Rolls back everything since [`Self::begin`].
    fn roll_back(&mut self);

    /// The clause of a SELECT that locks the rows against changes by others until the commit.
    fn to_change(&self) -> &'static str;

    /// Reconnects after [`Fault::Lost`], for as long as a user may be expected to wait. Claims are renewed.
    fn reconnect(&mut self, lost: Fault) -> Result<(), Fault>;

    /// The owner of a run that this user cannot change.
    fn other_writer(&mut self, run: i64) -> Result<Option<String>, Fault>;

    /// Claims a run for this process.
    fn claim(&mut self, run: i64) -> Result<Claim, Fault>;

    /// The subset of these runs that a process has claimed.
    fn claimed(&mut self, runs: &[i64]) -> Result<BTreeSet<i64>, Fault>;

    /// Shows how far a run is, without a write to a disk.
    fn put_live(&mut self, run: i64, state: &str) -> Result<(), Fault>;

    /// The progress of a run, if it was shown.
    fn live(&mut self, run: i64) -> Result<Option<String>, Fault>;

    /// Removes what was shown of a run.
    fn end_live(&mut self, run: i64);

    /// Adds the place, and the run if it is about one, to what went wrong.
    fn told(&self, run: Option<i64>, fault: Fault) -> StoreError;
}

/// Runs a function in one transaction: completely or not at all.
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

/// Like [`transact`], but starts over after a lost connection. `work` must find out whether an earlier attempt was committed, because its
/// answer may have been lost.
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
