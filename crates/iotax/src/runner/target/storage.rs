//! Targets that are storage on this host or on another machine.

use std::path::{Path, PathBuf};

use iotax_model::units::Bytes;
use iotax_model::wire::ByteRange;
use iotax_testbed::agent_client::AgentClient;
use iotax_testbed::target::{Built, FoundFiles};
use iotax_testbed::undo::{UndoEntry, UndoLog};

use crate::runner::remote_agent::RemoteAgent;

/// Storage that is measured from this host.
pub(in crate::runner) struct HostSite {
    pub(in crate::runner) storage: LocalStorage,
    /// An agent for this target only; `None` if the run's shared agent measures the target.
    pub(in crate::runner) agent: Option<AgentClient>,
    /// The directory for the files that the current workload creates; `None` if it creates none.
    directory: Option<(PathBuf, UndoEntry)>,
}

/// Storage on another machine.
pub(in crate::runner) struct RemoteSite {
    pub(in crate::runner) agent: RemoteAgent,
    pub(in crate::runner) size: Bytes,
    /// True if iotax created the file or disk, because only such storage may be written.
    pub(in crate::runner) writable: bool,
}

/// Storage on this host, with the undo entry of its snapshot.
pub(in crate::runner) struct LocalStorage {
    pub(in crate::runner) built: Built,
    /// The user's files that the target reads.
    found: FoundFiles,
    snapshot: Option<UndoEntry>,
}

impl HostSite {
    pub(in crate::runner) fn new(built: Built) -> Self {
        Self { storage: LocalStorage::new(built), agent: None, directory: None }
    }

    pub(super) fn directory(&self) -> Option<&Path> {
        self.directory.as_ref().map(|(path, _)| path.as_path())
    }

    pub(super) fn make_directory(&mut self, name: &str, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        // A directory that could not be removed earlier is removed at the end.
        self.directory = None;
        let path = self.storage.built.path.with_file_name(name);
        let entry = undo_log.make_tree(&path)?;
        self.directory = Some((path, entry));
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, undo_log: &mut UndoLog) {
        if let Some((_, entry)) = self.directory.take() {
            // If it cannot be removed now, it stays in the undo log.
            let _ = undo_log.undo(entry);
        }
    }
}

impl RemoteSite {
    pub(super) fn area(&self) -> ByteRange {
        ByteRange {
            path: Some(self.agent.path().display().to_string()),
            offset: Bytes(0),
            size: self.size,
            shared: false,
            identity: self.agent.identity(),
        }
    }
}

impl LocalStorage {
    pub(super) fn new(built: Built) -> Self {
        Self { found: FoundFiles::of(&built), built, snapshot: None }
    }

    /// Describes each of the user's files that has changed since the last call.
    pub(super) fn changes(&mut self) -> Vec<String> {
        self.found.changes()
    }

    pub(super) fn area(&self) -> ByteRange {
        let Built { path, offset, size, shared, identity, .. } = &self.built;
        ByteRange {
            path: Some(path.display().to_string()),
            offset: *offset,
            size: *size,
            shared: *shared,
            identity: *identity,
        }
    }

    /// Replaces the snapshot of the image or of the origin volume with a new one. Does nothing without snapshots.
    pub(super) fn renew_snapshot(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        if let Some(image) = &mut self.built.exported
            && let Some(identity) = image.renew_snapshot(undo_log)?
        {
            self.built.identity = Some(identity);
        }
        if let Some(origin) = &mut self.built.origin {
            // Remove the old snapshot first: with two, each write would be copied twice.
            if let Some(old) = self.snapshot {
                undo(old, undo_log)?;
            }
            self.snapshot = Some(origin.snapshot(undo_log)?);
        }
        Ok(())
    }

    pub(super) fn keep(&mut self, undo_log: &mut UndoLog) -> anyhow::Result<()> {
        self.built.entry.take().map_or(Ok(()), |entry| Ok(undo_log.commit(entry)?))
    }
}

pub(super) fn undo(entry: UndoEntry, undo_log: &mut UndoLog) -> anyhow::Result<()> {
    undo_log.undo(entry).map_err(|failure| anyhow::anyhow!("{}: {}", failure.effect, failure.reason))
}
