//! Undoes or commits only some effects of a log.

use std::path::Path;

use super::{Effect, NotUndone, UndoEntry, UndoLog, UndoLogError};

impl UndoLog {
    /// Drops the files and directories on filesystems that were mounted after `entry` from the log, because they are removed with what stores
    /// them.
    pub fn commit_mounted_after(&mut self, entry: UndoEntry) -> Result<(), UndoLogError> {
        let since = || self.pending.iter().filter(|(id, _)| **id > entry.0);
        let is_mounted = |path: &Path| since().any(|(_, pending)| pending.effect.holds(path));
        let is_within = |effect: &Effect| effect.path().is_some_and(is_mounted);
        let within = since().filter(|(_, pending)| is_within(&pending.effect));
        let within: Vec<u64> = within.map(|(id, _)| *id).collect();
        within.into_iter().try_for_each(|id| self.commit(UndoEntry(id)))
    }

    /// Returns the mount points of the filesystems on devices that were mounted after `entry`.
    pub fn mounted_after(&self, entry: UndoEntry) -> impl Iterator<Item = &Path> {
        let since = self.pending.iter().filter(move |(id, _)| **id > entry.0);
        since.filter_map(|(_, pending)| match &pending.effect {
            Effect::Mount(mounted) => Some(mounted.point.as_path()),
            _ => None,
        })
    }

    /// Undoes all effects that were recorded after `entry`, in reverse order. Returns those that could not be undone.
    pub fn undo_after(&mut self, entry: UndoEntry) -> Vec<NotUndone> {
        let since: Vec<u64> = self.pending.keys().copied().filter(|id| *id > entry.0).collect();
        since.into_iter().rev().filter_map(|id| self.undo(UndoEntry(id)).err()).collect()
    }
}
