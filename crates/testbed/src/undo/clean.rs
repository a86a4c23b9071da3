//! Lists and undoes what dead processes of iotax left on this machine.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{
    Effect, LOCK, NAMED, NEW, NOT_BELIEVED, NotUndone, Patience, PendingEffect, Record, UndoLog,
    UndoLogError, abandoned, failed, goes_along, open, own_file,
};

/// The results of `iotax clean`.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Effects that were undone, in order.
    pub undone: Vec<Effect>,
    /// Effects that could not be undone. They stay in their undo logs unless `forget` was given.
    pub failed: Vec<NotUndone>,
    /// Number of undo logs of processes that are still running, which were skipped.
    pub in_use: usize,
    /// Errors of undo logs that could not be read or locked, which were skipped.
    pub unreadable: Vec<UndoLogError>,
}

impl Cleaned {
    fn add(&mut self, other: Self) {
        self.undone.extend(other.undone);
        self.failed.extend(other.failed);
        self.in_use += other.in_use;
        self.unreadable.extend(other.unreadable);
    }
}

/// Returns the path of the directory of undo logs without symbolic links; `None` if it is missing. Fails if another user may change it.
pub(super) fn believed(dir: &Path) -> Result<Option<PathBuf>, UndoLogError> {
    own_file::existing(dir).map_err(failed(NOT_BELIEVED, dir))
}

pub(super) fn log_files(dir: &Path, ending: &str) -> Result<Vec<PathBuf>, UndoLogError> {
    let entries = fs::read_dir(dir).map_err(failed("cannot read the directory", dir))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    files.sort();
    Ok(files)
}

/// Undoes the effects of all dead processes in a directory of undo logs. With `forget`, effects that cannot be undone are removed from the
/// logs.
pub fn clean(dir: &Path, forget: bool) -> Result<Cleaned, UndoLogError> {
    clean_within(dir, forget, Patience::begin())
}

fn clean_within(dir: &Path, forget: bool, patience: Patience) -> Result<Cleaned, UndoLogError> {
    let mut cleaned = Cleaned::default();
    let Some(dir) = &believed(dir)? else { return Ok(cleaned) };
    for path in log_files(dir, NEW)? {
        // A log that never got its final name recorded nothing.
        if let Ok(Some(_locked)) = abandoned(&path, patience) {
            let _ = [path.with_extension(LOCK), path].map(fs::remove_file);
        }
    }
    for path in log_files(dir, NAMED)? {
        match clean_log(dir, &path, forget, patience) {
            Ok(Some(one)) => cleaned.add(one),
            Ok(None) => cleaned.in_use += 1,
            Err(error) => cleaned.unreadable.push(error),
        }
    }
    Ok(cleaned)
}

/// Undoes the effects of the dead process with this tag; `None` if the process is still running. The result is empty if there is no log
/// with this tag.
///
/// # Errors
/// The log cannot be read or locked, or processes that the dead process started do not exit.
pub fn clean_tag(dir: &Path, tag: &str) -> Result<Option<Cleaned>, UndoLogError> {
    let Some(dir) = &believed(dir)? else { return Ok(Some(Cleaned::default())) };
    let path = dir.join(format!("{tag}.{NAMED}"));
    if path.try_exists().map_err(failed("cannot look for", &path))? {
        clean_log(dir, &path, false, Patience::begin())
    } else {
        Ok(Some(Cleaned::default()))
    }
}

/// Undoes the effects in one log; first, those of the fleet members that the dead process started, whose logs are in one of its
/// directories. Keeps this log if a member is still running or has effects that cannot be undone. `None` if the log's process is still
/// running.
fn clean_log(
    dir: &Path,
    path: &Path,
    forget: bool,
    patience: Patience,
) -> Result<Option<Cleaned>, UndoLogError> {
    let mut cleaned = Cleaned::default();
    let mut undo_log = match UndoLog::adopt(path, patience) {
        Ok(Some(undo_log)) => undo_log,
        Ok(None) => return Ok(None),
        // The process has just ended and undone everything.
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => return Ok(Some(cleaned)),
        Err(error) => return Err(error),
    };
    for members in undo_log.pending.values().filter_map(|pending| member_state_dir(dir, &pending.effect)) {
        for state in subdirectories(&members)? {
            cleaned.add(clean_within(&undo_dir(&state), forget, patience)?);
        }
    }
    if cleaned.in_use > 0 || !cleaned.unreadable.is_empty() || !(forget || cleaned.failed.is_empty()) {
        return Ok(Some(cleaned));
    }
    let (undone, not_undone) = undo_log.undo_all();
    if forget && !not_undone.is_empty() {
        undo_log.remove().map_err(failed("cannot remove", path))?;
    }
    cleaned.undone.extend(undone);
    cleaned.failed.extend(not_undone);
    Ok(Some(cleaned))
}

/// Returns the state directory of fleet members, if this effect created it next to the directory of undo logs; `None` otherwise. Logs
/// elsewhere are not trusted, because other users may have written them.
fn member_state_dir(dir: &Path, effect: &Effect) -> Option<PathBuf> {
    match effect {
        Effect::Tree { path, .. } => {
            let parent = fs::canonicalize(path.parent()?).ok();
            (parent.as_deref() == dir.parent()).then(|| path.clone())
        }
        _ => None,
    }
}

/// Returns the directory of undo logs of a process whose XDG_STATE_HOME is `state`.
fn undo_dir(state: &Path) -> PathBuf {
    state.join("iotax").join("undo")
}

fn subdirectories(dir: &Path) -> Result<Vec<PathBuf>, UndoLogError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("cannot read the directory", dir)(error)),
    };
    let entries = entries.filter_map(Result::ok);
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(directories.map(|entry| entry.path()).collect())
}

/// An effect of a dead process that has not been undone.
#[derive(Debug)]
pub struct Leftover {
    pending: PendingEffect,
    goes_along: bool,
    /// True for a mount point whose mount still exists. The mount is removed first.
    is_covered: bool,
}

impl Leftover {
    /// Returns the reason why a file or directory cannot be removed now; `None` if none is known, and for other
    /// effects. Accesses the filesystem, which may take long.
    #[must_use]
    pub fn hindrance(&self) -> Option<String> {
        if self.is_covered {
            return None;
        }
        let (made, within) = self.pending.made()?;
        let directory = made.directory(within, None, self.goes_along);
        let found_there =
            directory.and_then(|directory| directory.map_or(Ok(None), |there| made.find_in(&there)));
        Some(found_there.err()?.to_string())
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pending.effect.fmt(f)?;
        self.hindrance().map_or(Ok(()), |reason| write!(f, ", but not as things are: {reason}"))
    }
}

/// Lists the effects of dead processes in the order in which they would be undone, without undoing them or waiting. A process that was
/// killed a moment ago may count as running.
pub fn leftovers(dir: &Path) -> Result<Vec<Leftover>, UndoLogError> {
    let mut left = Vec::new();
    let Some(dir) = &believed(dir)? else { return Ok(left) };
    for path in log_files(dir, NAMED)? {
        // `unreadable` reports the logs that cannot be read.
        if let Ok(log) = open(&path)
            // A shared lock, so that two readers do not take each other for the log's process.
            && log.try_lock_shared().is_ok()
            && let Ok(record) = Record::read(&log, &path)
        {
            let covers = |other: &PendingEffect, path: &Path| match &other.effect {
                Effect::Mount(mounted) => mounted.point == path,
                Effect::FuseExport(export) => export.point == path,
                _ => false,
            };
            let is_covered = |effect: &Effect| {
                effect.path().is_some_and(|path| record.pending.values().any(|other| covers(other, path)))
            };
            let known: Vec<(bool, bool)> = record
                .pending
                .values()
                .map(|pending| (goes_along(&pending.effect, &record.pending), is_covered(&pending.effect)))
                .collect();
            for members in
                record.pending.values().filter_map(|pending| member_state_dir(dir, &pending.effect))
            {
                for state in subdirectories(&members)? {
                    left.extend(leftovers(&undo_dir(&state))?);
                }
            }
            let pending = record.pending.into_values().zip(known);
            left.extend(pending.rev().map(|(pending, (goes_along, is_covered))| Leftover {
                pending,
                goes_along,
                is_covered,
            }));
        }
    }
    Ok(left)
}

/// Returns one error for each unreadable undo log in a directory; its effects cannot be undone. Does not wait for locks.
pub fn unreadable(dir: &Path) -> Result<Vec<UndoLogError>, UndoLogError> {
    let Some(dir) = &believed(dir)? else { return Ok(Vec::new()) };
    let damage_of = |path: PathBuf| open(&path).and_then(|log| Record::read(&log, &path)).err();
    Ok(log_files(dir, NAMED)?.into_iter().filter_map(damage_of).collect())
}

/// Lists the kernel settings in all undo logs, including those of running processes, whose changes may still be in effect. Reads the logs
/// without locking them.
pub fn settings_in_force(dir: &Path) -> Result<Vec<Effect>, UndoLogError> {
    let Some(dir) = &believed(dir)? else { return Ok(Vec::new()) };
    let records = log_files(dir, NAMED)?.into_iter().filter_map(|path| {
        let log = open(&path).ok()?;
        Record::read(&log, &path).ok()
    });
    let effects = records.flat_map(|record| record.pending.into_values()).map(|pending| pending.effect);
    Ok(effects.filter(|effect| matches!(effect, Effect::Setting(_))).collect())
}
