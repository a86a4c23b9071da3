//! A SQLite database of rows whose content follows from their number: written commit by commit, and checked against what was acknowledged.

use std::io::{self, Write};
use std::path::Path;

use iotax_model::crash::{JournalMode, LostBlocks, SqliteMode};
use rusqlite::{Connection, OpenFlags};

/// Says that the next commit is the first that counts.
pub(crate) const BEGINS: &str = "begins";
/// Bytes of a row's content.
const CONTENT: usize = 100;

/// The state of a database after a cut.
#[derive(Debug)]
pub(crate) struct DatabaseCheck {
    /// Lines of `PRAGMA integrity_check` other than `ok`.
    pub(crate) errors: u64,
    /// The rows whose commit was acknowledged.
    pub(crate) rows: LostBlocks,
    /// The number of the first row that is missing or wrong.
    pub(crate) first_lost: Option<u64>,
}

/// Commits rows from 1 on until it is killed, and says each number once SQLite has acknowledged it.
pub(crate) fn commit_rows(path: &Path, mode: SqliteMode, said: &mut impl Write) -> anyhow::Result<()> {
    let database = Connection::open(path)?;
    // There is one client. So a write-ahead log needs no shared memory, which not every filesystem has.
    database.pragma_update(None, "locking_mode", "exclusive")?;
    database.pragma_update(None, "synchronous", "full")?;
    database.pragma_update(None, "journal_mode", mode.journal_mode.word())?;
    // The table itself is not at stake.
    database.execute_batch("CREATE TABLE item (number INTEGER PRIMARY KEY, content BLOB NOT NULL)")?;
    if mode.journal_mode == JournalMode::Wal {
        database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    database.pragma_update(None, "synchronous", mode.synchronous.word())?;
    writeln!(said, "{BEGINS}")?;
    said.flush()?;
    let mut insert = database.prepare("INSERT INTO item VALUES (?1, ?2)")?;
    for number in 1_u64.. {
        insert.execute((number, content(number)))?;
        // In one write, so that no part of a number is left by a kill.
        said.write_all(format!("{number}\n").as_bytes())?;
        said.flush()?;
    }
    Ok(())
}

/// Opens what a cut left, which has SQLite recover it, and compares it with the rows from 1 to `acknowledged`.
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
    let mut rows = LostBlocks { checked: acknowledged, ..LostBlocks::default() };
    let (mut next, mut first_lost) = (1, None);
    while let Some(row) = found.next()? {
        let (number, bytes): (u64, Vec<u8>) = (row.get(0)?, row.get(1)?);
        let missing = number.saturating_sub(next);
        rows.stale += missing;
        let is_wrong = bytes != content(number);
        rows.damaged += u64::from(is_wrong);
        if missing > 0 || is_wrong {
            first_lost = first_lost.or(Some(next));
        }
        next = number + 1;
    }
    if next <= acknowledged {
        rows.stale += acknowledged + 1 - next;
        first_lost = first_lost.or(Some(next));
    }
    Ok(DatabaseCheck { errors, rows, first_lost })
}

/// The content of a row.
fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(CONTENT).collect()
}

/// Reads the numbers that were acknowledged up to the last whole one.
pub(crate) fn acknowledged(said: &mut impl io::BufRead) -> io::Result<u64> {
    let (mut last, mut line) = (0, String::new());
    while said.read_line(&mut line)? > 0 {
        if let Some(number) = line.strip_suffix('\n').and_then(|number| number.parse().ok()) {
            last = number;
        }
        line.clear();
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use iotax_model::crash::Synchronous;

    use super::*;

    /// A reader that has heard enough ends the client.
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
            let path = dir.path().join(mode.to_string().replace('/', "-"));
            commit_rows(&path, mode, &mut Until(50)).expect_err("nobody listens any more");
            let sound = check(&path, 50).expect("a database");
            assert_eq!((sound.errors, sound.rows.total(), sound.first_lost), (0, 0, None), "{mode}");
            let more = check(&path, 60).expect("a database");
            assert_eq!((more.rows.stale, more.first_lost), (9, Some(52)), "{mode}");
            let database = Connection::open(&path).expect("opened");
            database.execute_batch("DELETE FROM item WHERE number IN (7, 8)").expect("deleted");
            database.execute_batch("UPDATE item SET content = x'00' WHERE number = 20").expect("updated");
            drop(database);
            let lost = check(&path, 50).expect("a database");
            assert_eq!((lost.rows.stale, lost.rows.damaged, lost.first_lost), (2, 1, Some(7)), "{mode}");
            let promises = (mode.promises_commits(), mode.promises_a_whole_database());
            assert_eq!(promises.0, mode.synchronous == Synchronous::Full);
            assert!(promises.1 || !promises.0);
        }
        assert!(check(&dir.path().join("none"), 1).is_err());
    }

    #[test]
    fn a_number_that_was_cut_off_is_not_acknowledged() {
        let last = |text: &str| acknowledged(&mut text.as_bytes()).expect("read");
        assert_eq!([last(""), last("1\n2\n"), last("8\n9\n10")], [0, 2, 9]);
    }
}
