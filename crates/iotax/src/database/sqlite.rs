//! A SQLite database: its client, and its check after a cut.

use std::io::Write;
use std::path::Path;

use iotax_model::crash::{JournalMode, SqliteMode};
use rusqlite::{Connection, OpenFlags};

use super::{DatabaseCheck, RowCheck};

/// Commits rows to a new database until it is killed.
pub(crate) fn commit_rows(path: &Path, mode: SqliteMode, said: &mut impl Write) -> anyhow::Result<()> {
    let database = Connection::open(path)?;
    // With a single client, the write-ahead log needs no shared memory, which some filesystems lack.
    database.pragma_update(None, "locking_mode", "exclusive")?;
    database.pragma_update(None, "synchronous", "full")?;
    database.pragma_update(None, "journal_mode", mode.journal_mode.word())?;
    // Make the table durable: only the rows are tested.
    database.execute_batch("CREATE TABLE item (number INTEGER PRIMARY KEY, content BLOB NOT NULL)")?;
    if mode.journal_mode == JournalMode::Wal {
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    database.pragma_update(None, "synchronous", mode.synchronous.word())?;
    let mut insert = database.prepare("INSERT INTO item VALUES (?1, ?2)")?;
    super::commit_rows(said, |number, content| {
        insert.execute((number, content))?;
        Ok(())
    })
}

/// Opens the database after a cut, which makes SQLite recover it, and compares it with the rows from 1 to `acknowledged`.
pub(crate) fn check(path: &Path, acknowledged: u64) -> rusqlite::Result<DatabaseCheck> {
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    database.pragma_update(None, "locking_mode", "exclusive")?;
    let mut integrity = database.prepare("PRAGMA integrity_check")?;
    let lines = integrity.query_map([], |row| row.get::<_, String>(0))?;
    let lines: Vec<String> = lines.collect::<Result<_, _>>()?;
    let errors = lines.iter().filter(|line| *line != "ok").count() as u64;
    let mut select =
        database.prepare("SELECT number, content FROM item WHERE number <= ?1 ORDER BY number")?;
    let mut found = select.query([acknowledged])?;
    let mut rows = RowCheck::new(acknowledged);
    while let Some(row) = found.next()? {
        let content: Vec<u8> = row.get(1)?;
        rows.add(row.get(0)?, &content);
    }
    Ok(DatabaseCheck { errors, rows: rows.finish() })
}

#[cfg(test)]
mod tests {
    use std::io;

    use iotax_model::crash::{DatabaseMode, Synchronous};

    use super::*;

    /// A writer that ends the client after a number of rows.
    struct Until(u64);

    impl Write for Until {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let line = std::str::from_utf8(bytes).map_err(io::Error::other)?;
            let is_last = line.trim().parse::<u64>().is_ok_and(|number| number > self.0);
            if is_last { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn rows_that_were_acknowledged_are_found_missing_and_wrong() {
        let dir = tempfile::tempdir().expect("a directory");
        for mode in SqliteMode::all() {
            let path = dir.path().join(DatabaseMode::Sqlite(mode).to_string().replace('/', "-"));
            commit_rows(&path, mode, &mut Until(50)).expect_err("nobody listens any more");
            let sound = check(&path, 50).expect("a database");
            assert_eq!(
                (sound.errors, sound.rows.lost.total(), sound.rows.first_lost),
                (0, 0, None),
                "{mode:?}"
            );
            let more = check(&path, 60).expect("a database");
            assert_eq!((more.rows.lost.stale, more.rows.first_lost), (9, Some(52)), "{mode:?}");
            let database = Connection::open(&path).expect("opened");
            database.execute_batch("DELETE FROM item WHERE number IN (7, 8)").expect("deleted");
            database.execute_batch("UPDATE item SET content = x'00' WHERE number = 20").expect("updated");
            drop(database);
            let lost = check(&path, 50).expect("a database");
            let rows = lost.rows;
            assert_eq!((rows.lost.stale, rows.lost.damaged, rows.first_lost), (2, 1, Some(7)), "{mode:?}");
            let promised = DatabaseMode::Sqlite(mode);
            assert_eq!(promised.promises_commits(), mode.synchronous == Synchronous::Full);
            assert!(promised.promises_a_whole_database() || !promised.promises_commits());
        }
        assert!(check(&dir.path().join("none"), 1).is_err());
    }
}
