//! Undoes or commits only some effects of a log.

use std::path::Path;

use super::{Effect, NotUndone, UndoEntry, UndoLog, UndoLogError};

impl UndoLog {
    /// Drops the files and directories below `directory` from the log, because they are removed together with `directory`.
    pub fn commit_below(&mut self, directory: &Path) -> Result<(), UndoLogError> {
        let is_below = |effect: &Effect| {
            effect.path().is_some_and(|path| path != directory && path.starts_with(directory))
        };
        let below = self.pending.iter().filter(|(_, pending)| is_below(&pending.effect));
        let below: Vec<u64> = below.map(|(id, _)| *id).collect();
        below.into_iter().try_for_each(|id| self.commit(UndoEntry(id)))
    }

    /// Undoes all effects that were recorded after `entry`, in reverse order. Returns those that could not be undone.
    pub fn undo_after(&mut self, entry: UndoEntry) -> Vec<NotUndone> {
        let since: Vec<u64> = self.pending.keys().copied().filter(|id| *id > entry.0).collect();
        since.into_iter().rev().filter_map(|id| self.undo(UndoEntry(id)).err()).collect()
    }
}
