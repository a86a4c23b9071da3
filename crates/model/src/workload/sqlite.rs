//! Transactions of SQLite as a workload: its settings, and the checks of its keys.

use std::fmt::Display;

use super::{DEFAULT_SIZE, Kind, Test, Workload, WorkloadError};
use crate::crash::{JournalMode, SqliteMode, Synchronous};
use crate::units::Bytes;

/// Default length of the databases: about that of pgbench at scale 1, which has 100,000 accounts.
const SIZE: Bytes = Bytes(16 << 20);
/// Minimum length of one job's database.
const LEAST: Bytes = Bytes(64 << 10);
/// Error text for keys that ask for flushes.
const FLUSHES: &str = "SQLite flushes by itself; set synchronous = full, normal or off instead";
/// Error text for keys that end a workload.
const ENDLESS: &str = "transactions are committed until runtime is over; leave it out";
/// Space for the history and the journal of one job's database, in addition to its accounts.
const JOURNALS: Bytes = Bytes(32 << 20);

impl Workload {
    /// Returns the settings with which `test = sqlite` opens its databases, by default `wal` and `full`.
    #[must_use]
    pub fn sqlite_mode(&self) -> SqliteMode {
        let journal_mode = self.journal_mode.unwrap_or(JournalMode::Wal);
        let synchronous = self.synchronous.unwrap_or(Synchronous::Full);
        SqliteMode { journal_mode, synchronous }
    }

    /// Returns the length of the data that a test in a directory works on if the workload names none.
    #[must_use]
    pub fn default_size(&self) -> Bytes {
        match self.kind.test() {
            Some(Test::Sqlite) => SIZE,
            Some(Test::Pgbench) => self.size_of_accounts(),
            _ => DEFAULT_SIZE,
        }
    }

    /// Returns the space that the databases of all jobs take at most.
    pub(super) fn room_of_databases(&self) -> Bytes {
        // A rollback journal holds at most a copy of what a transaction changes, and the b-trees are not full.
        let accounts = self.size.unwrap_or(SIZE).0.saturating_mul(2);
        Bytes(accounts.saturating_add(JOURNALS.0.saturating_mul(self.numjobs.into())))
    }

    /// Rejects keys that have no effect on the transactions of any database. `flushes` and `cached` are the error texts for keys that ask for
    /// flushes, and for direct I/O.
    pub(super) fn check_transactions(&self, flushes: &str, cached: &str) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn Display, accepted: &str| Err(self.refusal(key, value, accepted));
        match (self.fsync, self.fdatasync, self.end_fsync) {
            (Some(writes), ..) => return refuse("fsync", &writes, flushes),
            (_, Some(writes), _) => return refuse("fdatasync", &writes, flushes),
            (.., true) => return refuse("end_fsync", &true, flushes),
            _ => {}
        }
        match (self.io_size, self.loops) {
            (Some(size), _) => return refuse("io_size", &size, ENDLESS),
            (_, Some(loops)) => return refuse("loops", &loops, ENDLESS),
            _ => {}
        }
        if self.direct {
            return refuse("direct", &true, cached);
        }
        Ok(())
    }

    /// Rejects SQLite's keys in other workloads, and keys that have no effect on SQLite.
    pub(super) fn check_sqlite(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn Display, accepted: &str| Err(self.refusal(key, value, accepted));
        if self.kind != Kind::Files(Test::Sqlite) {
            const NEEDED: &str = "only test = sqlite has it; leave it out";
            return match (self.journal_mode, self.synchronous) {
                (Some(mode), _) => refuse("journal_mode", &mode, NEEDED),
                (_, Some(when)) => refuse("synchronous", &when, NEEDED),
                _ => Ok(()),
            };
        }
        self.check_transactions(FLUSHES, "SQLite goes through the page cache; use direct = false")?;
        if !self.bs.0.is_power_of_two() || !(512..=65536).contains(&self.bs.0) {
            return refuse(
                "bs",
                &self.bs,
                "it is SQLite's page size; accepted: a power of two from 512 to 64k",
            );
        }
        match self.size {
            Some(size) if size.0 / u64::from(self.numjobs) < LEAST.0 => refuse(
                "size",
                &size,
                &format!("each job has a database of its own; accepted: {LEAST} for each and more"),
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKeys;

    fn workload(keys: &[(&str, &str)]) -> Workload {
        let mut own = WorkloadKeys::default();
        let all = [("direct", "0")];
        all.iter().chain(keys).for_each(|(key, text)| own.set(key, text).expect(text));
        own.complete(&WorkloadKeys::default())
    }

    #[test]
    fn keys_that_mean_nothing_to_sqlite_are_refused() {
        for (keys, refusal) in [
            (&[("journal_mode", "wal")][..], "journal_mode = wal: only test = sqlite"),
            (
                &[("test", "putc"), ("ramp_time", "0s"), ("synchronous", "off")],
                "synchronous = off: only test",
            ),
            (&[("test", "sqlite"), ("fdatasync", "1")], "fdatasync = 1: SQLite flushes by itself"),
            (&[("test", "sqlite"), ("end_fsync", "1")], "end_fsync = true: SQLite flushes by itself"),
            (&[("test", "sqlite"), ("loops", "2")], "loops = 2: transactions are committed until"),
            (&[("test", "sqlite"), ("direct", "1")], "direct = true: SQLite goes through"),
            (&[("test", "sqlite"), ("bs", "3k")], "bs = 3k: it is SQLite's page size"),
            (&[("test", "sqlite"), ("bs", "128k")], "bs = 128k: it is SQLite's page size"),
            (
                &[("test", "sqlite"), ("size", "100k"), ("numjobs", "2")],
                "size = 100k: each job has a database",
            ),
            (&[("test", "sqlite"), ("rate_iops", "5")], "rate_iops = 5: means nothing in a test"),
        ] {
            let error = workload(keys).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
        let taken =
            workload(&[("test", "sqlite"), ("numjobs", "2"), ("size", "1m"), ("journal_mode", "delete")]);
        assert_eq!(taken.check(), Ok(()), "a warm-up too, because it goes on with the same database");
        assert_eq!(taken.room(), Bytes((2 << 20) + (64 << 20)));
        let mode = SqliteMode { journal_mode: JournalMode::Delete, synchronous: Synchronous::Full };
        assert_eq!((taken.sqlite_mode(), taken.default_size()), (mode, SIZE));
    }
}
