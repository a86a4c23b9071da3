//! Transactions of SQLite: each changes a random account and adds a line to a history, like pgbench's `simple-update`.
//!
//! Each worker has a separate database, because SQLite commits one transaction at a time. The history is a ring, so that the database does
//! not grow during a measurement.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iotax_load::error::EngineError;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_model::crash::{JournalMode, SqliteMode, Synchronous};
use rusqlite::{Connection, ErrorCode};

use super::Routine;
use super::meter::{Meter, Over};
use super::setup::WorkerSetup;

/// Bytes of an account in the database, about as many as in pgbench.
const ACCOUNT: u64 = 128;
/// Bytes of an account's filler, which brings its row to [`ACCOUNT`] bytes.
const FILLER: usize = 112;
/// Number of lines that the history keeps.
const HISTORY: u64 = 100_000;
/// File name of the database.
const NAME: &str = "accounts.db";
/// Number of transactions whose bytes are counted together: the kernel's counters are a file, and reading it takes time.
const COUNTED_TOGETHER: u64 = 32;

/// The transactions of one worker.
struct Transactions {
    database: Connection,
    /// Number of accounts, at least 1.
    accounts: u64,
    /// Number of transactions so far, committed or failed.
    count: u64,
    random: SplitMix64,
    /// The kernel's counters of the worker's thread; `None` if they cannot be opened.
    counters: Option<File>,
    /// Bytes that system calls of the worker's thread had moved when the counters were last read.
    moved: u64,
}

/// Creates the worker's database with its accounts, flushed.
pub(super) fn prepare(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let own = setup.own_directory()?;
    let path = own.path().join(NAME);
    let accounts = (setup.length() / ACCOUNT).max(1);
    let made = database(&path, setup.workload.bs.0, setup.workload.sqlite_mode(), accounts);
    let doing = || format!("making a SQLite database in {}", path.display());
    let database = made.map_err(|error| EngineError::system(doing())(in_system(&error)))?;
    own.settle(setup.workload.invalidate, [NAME.as_ref()].into_iter())?;
    let random = SplitMix64::new(setup.seed, Purpose::Offsets, setup.number.into());
    let counters = File::open("/proc/thread-self/io").ok();
    let moved = counters.as_ref().and_then(moved).unwrap_or(0);
    Ok(Box::new(Transactions { database, accounts, count: 0, random, counters, moved }))
}

/// Reads the bytes that the thread's system calls have read and written, from its /proc/PID/task/TID/io; `None` if they cannot be read.
fn moved(counters: &File) -> Option<u64> {
    let mut text = [0; 256];
    let length = counters.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    let of = |key| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
    Some(of("rchar:")? + of("wchar:")?)
}

/// Creates a database at `path` with pages of `page` bytes and `accounts` accounts, and leaves it in the wanted mode.
fn database(path: &Path, page: u64, mode: SqliteMode, accounts: u64) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.pragma_update(None, "page_size", page)?;
    // The accounts are flushed after all of them are there.
    database.pragma_update(None, "synchronous", Synchronous::Off.word())?;
    if mode.journal_mode == JournalMode::Wal {
        // With a single client, the write-ahead log needs no shared memory, which some filesystems lack.
        database.pragma_update(None, "locking_mode", "exclusive")?;
    }
    let mut journal = database.prepare(&format!("PRAGMA journal_mode = {}", mode.journal_mode))?;
    journal.query_row([], |_| Ok(()))?;
    drop(journal);
    database.execute_batch(
        "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, filler BLOB NOT NULL);
         CREATE TABLE history (line INTEGER PRIMARY KEY, account INTEGER NOT NULL, delta INTEGER NOT NULL);
         BEGIN",
    )?;
    let mut insert = database.prepare("INSERT INTO account VALUES (?1, 0, ?2)")?;
    for id in 0..accounts {
        insert.execute((id, [0_u8; FILLER].as_slice()))?;
    }
    drop(insert);
    database.execute_batch("COMMIT")?;
    database.pragma_update(None, "synchronous", mode.synchronous.word())?;
    if mode.journal_mode == JournalMode::Wal {
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    Ok(database)
}

/// Commits one transaction: adds `delta` to an account, reads its balance, and writes a line of the history.
fn commit(database: &Connection, account: u64, line: u64, delta: i64) -> rusqlite::Result<()> {
    database.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    database
        .prepare_cached("UPDATE account SET balance = balance + ?1 WHERE id = ?2")?
        .execute((delta, account))?;
    database
        .prepare_cached("SELECT balance FROM account WHERE id = ?1")?
        .query_row([account], |row| row.get::<_, i64>(0))?;
    database
        .prepare_cached("INSERT OR REPLACE INTO history VALUES (?1, ?2, ?3)")?
        .execute((line, account, delta))?;
    database.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}

/// Converts SQLite's error to an error with an errno; EIO if no other errno fits.
fn in_system(error: &rusqlite::Error) -> io::Error {
    let errno = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => libc::ENOSPC,
        Some(ErrorCode::ReadOnly) => libc::EROFS,
        Some(ErrorCode::PermissionDenied) => libc::EACCES,
        Some(ErrorCode::OutOfMemory) => libc::ENOMEM,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => libc::EBUSY,
        _ => libc::EIO,
    };
    io::Error::from_raw_os_error(errno)
}

impl Transactions {
    /// Returns the bytes that the worker's system calls have moved since this method was last called, or since the worker was set up; 0 if
    /// the kernel does not count them.
    fn newly_moved(&mut self) -> u64 {
        let all = self.counters.as_ref().and_then(moved).unwrap_or(self.moved);
        all.saturating_sub(std::mem::replace(&mut self.moved, all))
    }
}

impl Routine for Transactions {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        loop {
            let account = self.random.below(self.accounts);
            // As in pgbench: between -5,000 and 5,000.
            let delta = self.random.below(10_001).cast_signed() - 5_000;
            let line = self.count % HISTORY;
            self.count += 1;
            let bytes = if line.is_multiple_of(COUNTED_TOGETHER) { self.newly_moved() } else { 0 };
            let done = meter.operation(bytes, || {
                commit(&self.database, account, line, delta).map_err(|error| in_system(&error))
            })?;
            if done.is_none() && !self.database.is_autocommit() {
                // If this fails too, so do all further transactions, which are counted as failed.
                let _ = self.database.execute_batch("ROLLBACK");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_changes_one_account_and_the_history_is_a_ring() {
        let dir = tempfile::tempdir().expect("a directory");
        for mode in SqliteMode::all() {
            let path = dir.path().join(format!("{}-{}", mode.journal_mode, mode.synchronous));
            let made = database(&path, 8192, mode, 1000).expect("a database");
            let word =
                |pragma: &str| made.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, String>(0));
            assert_eq!(word("journal_mode").as_deref(), Ok(mode.journal_mode.word()));
            let number = |sql: &str| made.query_row(sql, [], |row| row.get::<_, i64>(0)).expect(sql);
            let level = match mode.synchronous {
                Synchronous::Off => 0,
                Synchronous::Normal => 1,
                Synchronous::Full => 2,
            };
            assert_eq!((number("PRAGMA synchronous"), number("PRAGMA page_size")), (level, 8192));
            commit(&made, 7, 3, 40).expect("committed");
            commit(&made, 7, 3, -10).expect("committed");
            assert_eq!(number("SELECT balance FROM account WHERE id = 7"), 30);
            assert_eq!(number("SELECT sum(balance) FROM account"), 30);
            assert_eq!(
                (number("SELECT count(*) FROM history"), number("SELECT delta FROM history")),
                (1, -10)
            );
            assert!(made.is_autocommit());
        }
        let bytes = path_length(dir.path(), "delete-full") / 1000;
        assert!((ACCOUNT..2 * ACCOUNT).contains(&bytes), "{bytes} bytes an account");
        let none = database(&dir.path().join("none/x"), 4096, SqliteMode::all().next().expect("one"), 1);
        assert_eq!(none.map_err(|error| in_system(&error).raw_os_error()).err(), Some(Some(libc::EIO)));
    }

    fn path_length(dir: &Path, name: &str) -> u64 {
        std::fs::metadata(dir.join(name)).expect("a database").len()
    }
}
