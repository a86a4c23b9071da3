//! The number of the newest run. Numbers have no gaps: a number without a row belongs to a lost run.

use crate::database::Database;
use crate::error::Fault;
use crate::head::seal;

/// The newest run's number, from the counter, or from the rows if the counter is damaged. 0 without runs.
pub(crate) fn last(database: &mut dyn Database) -> Result<i64, Fault> {
    read(database, "")
}

/// Creates the counter of a new store. In an existing store, tests whether writing is possible.
pub(crate) fn start(database: &mut dyn Database) -> Result<(), Fault> {
    let sql = "INSERT INTO store (one, last_run, seal) VALUES (1, 0, $1) ON CONFLICT (one) DO NOTHING";
    database.execute(sql, &[sealed(0).into()]).map(|_| ())
}

/// Makes others that add runs or change notes wait until this transaction ends.
pub(crate) fn lock(database: &mut dyn Database) -> Result<(), Fault> {
    let suffix = database.to_change();
    database.query(&format!("SELECT last_run FROM store WHERE one = 1{suffix}"), &[]).map(|_| ())
}

/// The number for a run added in this transaction. Others that add one wait.
pub(crate) fn next(database: &mut dyn Database) -> Result<i64, Fault> {
    let suffix = database.to_change();
    let next = read(database, suffix)?.checked_add(1);
    let next = next.ok_or_else(|| Fault::Damaged("table store", "no number is left for a run".into()))?;
    let sql = "UPDATE store SET last_run = $1, seal = $2 WHERE one = 1";
    database.execute(sql, &[next.into(), sealed(next).into()])?;
    Ok(next)
}

/// Releases the number of the newest run, whose row is gone.
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
