//! Removes a run without measurements.

use crate::database::{Purpose, insist};
use crate::error::StoreError;
use crate::{Store, counter};

impl Store {
    /// Removes a run from a SQLite store if it is the newest run and has no measurements. Returns whether it was removed.
    pub fn withdraw(&self, run: i64) -> Result<bool, StoreError> {
        if self.location().file().is_none() {
            // Others may have seen the run in a shared database.
            return Ok(false);
        }
        let gone = insist(self.database.borrow_mut().as_mut(), Purpose::Write, &mut |database| {
            counter::lock(database)?;
            let sql = "SELECT count(*) FROM measurement WHERE run = $1";
            let measured = database.query(sql, &[run.into()])?.pop().map_or(Ok(0), |mut row| row.int())?;
            if measured > 0 || counter::last(database)? != run {
                return Ok(false);
            }
            for table in ["run_figures", "note", "tag"] {
                database.execute(&format!("DELETE FROM {table} WHERE run = $1"), &[run.into()])?;
            }
            database.execute("DELETE FROM run WHERE id = $1", &[run.into()])?;
            counter::back(database, run)?;
            Ok(true)
        });
        gone.map_err(|fault| self.of_run(run, fault))
    }
}
