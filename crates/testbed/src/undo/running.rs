//! Publishes the disks that a run measures to other runs, in a file next to the run's undo log.

use std::fs::{OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::clean::{believed, log_files};
use super::{NAMED, UndoLog, UndoLogError, failed, open};
use crate::own_file;

/// Extension of the file next to the undo log that describes the run.
pub(super) const RUNNING: &str = "run";

/// A run that is in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningRun {
    /// Number of the run in its store.
    pub run: i64,
    /// Name of the store that holds the run.
    pub store: String,
    /// Kernel names of the block devices below the run's targets, from the bottom up.
    pub disks: Vec<String>,
}

impl UndoLog {
    /// Publishes this run to other runs of the same user, until the undo log is removed.
    pub fn announce(&self, run: &RunningRun) -> Result<(), UndoLogError> {
        let path = self.path.with_extension(RUNNING);
        let write = || {
            let mut options = OpenOptions::new();
            let options = options.create(true).truncate(true).write(true).mode(0o600);
            // A reader that sees half of the file reads it again.
            own_file::open(options, &path)?.write_all(&serde_json::to_vec(run)?)
        };
        write().map_err(failed("cannot write", &path))
    }
}

/// Lists the runs in progress of this user that have been published. Files that cannot be read are left out.
#[must_use]
pub fn running(dir: &Path) -> Vec<RunningRun> {
    let files = believed(dir).ok().flatten().and_then(|dir| log_files(&dir, RUNNING).ok());
    let lives = |path: &Path| {
        // A shared lock, so that two readers do not take each other for the log's process.
        open(&path.with_extension(NAMED))
            .is_ok_and(|log| matches!(log.try_lock_shared(), Err(TryLockError::WouldBlock)))
    };
    let read = |path: &Path| -> io::Result<RunningRun> {
        let mut text = String::new();
        own_file::open(OpenOptions::new().read(true), path)?.read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    };
    files.into_iter().flatten().filter(|path| lives(path)).filter_map(|path| read(&path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_known_to_others_while_it_lives() {
        let temp = tempfile::tempdir().expect("temp dir");
        let dir = temp.path().join("undo");
        assert_eq!(running(&dir), []);
        let mut first = UndoLog::create(&dir, "first").expect("undo log");
        let second = UndoLog::create(&dir, "second").expect("undo log");
        let of = |run| RunningRun { run, store: "/srv/a.db".into(), disks: vec!["vda".into()] };
        first.announce(&of(1)).expect("written");
        second.announce(&of(2)).expect("written");
        assert_eq!(running(&dir), [of(1), of(2)]);
        assert!(first.undo_all().1.is_empty());
        assert_eq!(running(&dir), [of(2)]);
        drop(second); // as a killed process does
        assert_eq!(running(&dir), []);
        assert!(super::super::clean(&dir, false).expect("cleaned").failed.is_empty());
        assert_eq!(std::fs::read_dir(&dir).expect("there").count(), 0);
    }
}
