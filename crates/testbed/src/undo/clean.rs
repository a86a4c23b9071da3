//! Lists and undoes what dead processes left behind.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{
    Effect, LOCK, NAMED, NEW, NotUndone, PendingEffect, Record, UndoLog, UndoLogError, abandoned, failed,
    goes_along,
};

/// The result of `iotax clean`.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Undone effects, in order.
    pub undone: Vec<Effect>,
    /// Effects that could not be undone; still recorded unless `forget` was given.
    pub failed: Vec<NotUndone>,
    /// Number of undo logs of running processes, which were skipped.
    pub in_use: usize,
    /// Unreadable undo logs, which were skipped.
    pub unreadable: Vec<UndoLogError>,
}

fn log_files(dir: &Path, ending: &str) -> Result<Vec<PathBuf>, UndoLogError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("cannot read the directory", dir)(error)),
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    files.sort();
    Ok(files)
}

/// Undoes what dead processes left behind. With `forget`, effects that cannot be undone are dropped from the log.
pub fn clean(dir: &Path, forget: bool) -> Result<Cleaned, UndoLogError> {
    let mut cleaned = Cleaned::default();
    for path in log_files(dir, NEW)? {
        // A log that never got its final name recorded nothing.
        if let Ok(Some(_locked)) = abandoned(&path) {
            let _ = [path.with_extension(LOCK), path].map(fs::remove_file);
        }
    }
    for path in log_files(dir, NAMED)? {
        match UndoLog::adopt(&path) {
            Ok(Some(mut undo_log)) => {
                let (undone, not_undone) = undo_log.undo_all();
                if forget && !not_undone.is_empty() {
                    undo_log.remove().map_err(failed("cannot remove", &path))?;
                }
                cleaned.undone.extend(undone);
                cleaned.failed.extend(not_undone);
            }
            Ok(None) => cleaned.in_use += 1,
            Err(error) => cleaned.unreadable.push(error),
        }
    }
    Ok(cleaned)
}

/// An effect that a dead process left behind.
#[derive(Debug)]
pub struct Leftover {
    standing: PendingEffect,
    goes_along: bool,
}

impl Leftover {
    /// True if it is a changed setting of the kernel.
    #[must_use]
    pub const fn is_setting(&self) -> bool {
        matches!(self.standing.effect, Effect::Setting(_))
    }

    /// The reason why it cannot be undone at the moment. Accesses its filesystem, which may take long.
    #[must_use]
    pub fn hindrance(&self) -> Option<String> {
        let (made, within) = self.standing.made()?;
        let directory = made.directory(within, None, self.goes_along);
        let looked = directory.and_then(|directory| directory.map_or(Ok(None), |there| made.look(&there)));
        Some(looked.err()?.to_string())
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.standing.effect.fmt(f)?;
        self.hindrance().map_or(Ok(()), |reason| write!(f, ", but not as things are: {reason}"))
    }
}

/// Lists what dead processes left behind, without touching it.
pub fn leftovers(dir: &Path) -> Result<Vec<Leftover>, UndoLogError> {
    let mut left = Vec::new();
    for path in log_files(dir, NAMED)? {
        // `clean` reports unreadable logs.
        if let Ok(Some(_locked)) = abandoned(&path)
            && let Ok(record) = Record::read(&path)
        {
            let along: Vec<bool> = record
                .standing
                .values()
                .map(|standing| goes_along(&standing.effect, &record.standing))
                .collect();
            let standing = record.standing.into_values().zip(along);
            left.extend(standing.map(|(standing, goes_along)| Leftover { standing, goes_along }));
        }
    }
    Ok(left)
}
