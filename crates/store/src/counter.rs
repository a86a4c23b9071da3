//! The counter of run numbers. Numbers are assigned without gaps, so a number without a row means a lost run.

use crate::database::Database;
use crate::error::Fault;
use crate::head::seal;

/// Returns the number of the newest run, from the counter; if the counter is damaged, from the rows. 0 without runs.
pub(crate) fn last(database: &mut dyn Database) -> Result<i64, Fault> {
    read(database, "")
}

/// Creates the counter of a new store. In an existing store, only tests that the counter can be written.
pub(crate) fn start(database: &mut dyn Database) -> Result<(), Fault> {
    let sql = "INSERT INTO store (one, last_run, seal) VALUES (1, 0, $1) ON CONFLICT (one) DO NOTHING";
    database.execute(sql, &[sealed(0).into()]).map(|_| ())
}

/// Locks the counter: other processes that add runs or change notes wait until this transaction ends.
pub(crate) fn lock(database: &mut dyn Database) -> Result<(), Fault> {
    let suffix = database.to_change();
    database.query(&format!("SELECT last_run FROM store WHERE one = 1{suffix}"), &[]).map(|_| ())
}

/// Increments the counter and returns the new run's number. Other processes that add runs wait until this transaction ends.
pub(crate) fn next(database: &mut dyn Database) -> Result<i64, Fault> {
    let suffix = database.to_change();
    let next = read(database, suffix)?.checked_add(1);
    let next = next.ok_or_else(|| Fault::Damaged("table store", "no number is left for a run".into()))?;
    let sql = "UPDATE store SET last_run = $1, seal = $2 WHERE one = 1";
    database.execute(sql, &[next.into(), sealed(next).into()])?;
    Ok(next)
}

/// Decrements the counter, after the row of the newest run, number `run`, was removed.
pub(crate) fn back(database: &mut dyn Database, run: i64) -> Result<(), Fault> {
    let sql = "UPDATE store SET last_run = $1, seal = $2 WHERE one = 1";
    database.execute(sql, &[(run - 1).into(), sealed(run - 1).into()]).map(|_| ())
}

fn read(database: &mut dyn Database, suffix: &str) -> Result<i64, Fault> {
    let counter =
        database.query(&format!("SELECT last_run, seal FROM store WHERE one = 1{suffix}"), &[])?.pop();
    let counter = counter.map(|mut row| Ok::<_, Fault>((row.int()?, row.int()?))).transpose()?;
    let counter = counter.and_then(|(last, seal)| (seal == sealed(last)).then_some(last));
    if let Some(last) = counter {
        return Ok(last);
    }
    let rows = database.query("SELECT max(id) FROM run", &[])?.pop();
    Ok(rows.map_or(Ok(None), |mut row| row.maybe_int())?.unwrap_or(0).max(0))
}

fn sealed(last: i64) -> i64 {
    seal(0, &[&last.to_le_bytes()])
}
