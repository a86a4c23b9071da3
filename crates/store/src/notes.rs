//! The notes on runs, which are text and tags, in separate tables.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::Notes;
use crate::counter;
use crate::database::Database;
use crate::error::Fault;
use crate::head::seal;
use crate::summary::searchable;

/// Returns the notes on a run and the time of their last change in milliseconds since 1970-01-01 UTC; `None` if the run has none.
pub(crate) fn read(database: &mut dyn Database, run: i64) -> Result<Option<(Notes, i64)>, Fault> {
    let found =
        database.query("SELECT text, words, changed_at_ms, seal FROM note WHERE run = $1", &[run.into()])?;
    let tags = database.query("SELECT tag FROM tag WHERE run = $1", &[run.into()])?;
    let mut tags = tags.into_iter().map(|mut row| row.text()).collect::<Result<Vec<_>, _>>()?;
    tags.sort();
    let damaged = |reason: &str| Fault::Damaged("table note", reason.to_owned());
    let Some(mut row) = found.into_iter().next() else {
        return if tags.is_empty() { Ok(None) } else { Err(damaged("there are tags without a note")) };
    };
    let (text, words, changed_at_ms, sealed) = (row.text()?, row.text()?, row.int()?, row.int()?);
    let notes = Notes { tags, text };
    if words == words_of(&notes) && sealed == seal_of(run, &notes, changed_at_ms) {
        Ok(Some((notes, changed_at_ms)))
    } else {
        Err(damaged("its checksum does not fit"))
    }
}

/// Waits for other processes that change notes, and makes later ones wait until this transaction ends. Locks the counter of runs, because
/// only the owner of a run may lock the run's row. Fails if the run does not exist.
pub(crate) fn lock(database: &mut dyn Database, run: i64) -> Result<(), Fault> {
    counter::lock(database)?;
    let there = database.query("SELECT id FROM run WHERE id = $1", &[run.into()])?;
    if there.is_empty() { Err(Fault::Unknown) } else { Ok(()) }
}

/// Replaces the notes on a run.
pub(crate) fn put(
    database: &mut dyn Database,
    run: i64,
    notes: &Notes,
    changed_at_ms: i64,
) -> Result<(), Fault> {
    let mut notes = notes.clone();
    notes.tags.sort();
    notes.tags.dedup();
    if notes.text.contains('\0') || notes.tags.iter().any(|tag| tag.contains('\0') || tag.is_empty()) {
        return Err(Fault::value(
            "note",
            &"a note has no NUL character, and a tag has at least one character",
        ));
    }
    lock(database, run)?;
    database.execute("DELETE FROM tag WHERE run = $1", &[run.into()])?;
    for tag in &notes.tags {
        database.execute("INSERT INTO tag (run, tag) VALUES ($1, $2)", &[run.into(), tag.as_str().into()])?;
    }
    let sql = "INSERT INTO note (run, text, words, changed_at_ms, seal) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (run) DO UPDATE SET text = excluded.text, words = excluded.words, \
               changed_at_ms = excluded.changed_at_ms, seal = excluded.seal";
    let seal = seal_of(run, &notes, changed_at_ms);
    let values =
        [run.into(), notes.text.as_str().into(), words_of(&notes).into(), changed_at_ms.into(), seal.into()];
    database.execute(sql, &values)?;
    Ok(())
}

/// Returns the current time in milliseconds since 1970-01-01 UTC.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn words_of(notes: &Notes) -> String {
    let texts: Vec<&str> = notes.tags.iter().map(String::as_str).chain([notes.text.as_str()]).collect();
    searchable(&texts)
}

fn seal_of(run: i64, notes: &Notes, changed_at_ms: i64) -> i64 {
    let changed = changed_at_ms.to_le_bytes();
    let tags = notes.tags.iter().map(String::as_bytes);
    let parts: Vec<&[u8]> = [notes.text.as_bytes(), &changed].into_iter().chain(tags).collect();
    seal(run, &parts)
}
