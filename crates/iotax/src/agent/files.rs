//! Files and directories that the agent creates. They are removed when the agent ends, unless the runner keeps them.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use iotax_model::target::Preallocation;
use iotax_model::units::Bytes;
use iotax_model::wire::Identity;
use iotax_testbed::target::{preflight, raw};
use iotax_testbed::undo::{UndoEntry, UndoLog};

use crate::say::say;

/// Files and directories that this agent created. An undo log on this machine records them, so that `iotax clean` can remove them if
/// the agent is killed.
pub(super) struct Files {
    /// The directory of undo logs; `None` if unknown, in which case no file is created.
    dir: Option<PathBuf>,
    undo_log: Option<UndoLog>,
    made: HashMap<PathBuf, Made>,
}

/// A file or directory that the agent created, with its undo entry.
struct Made {
    entry: UndoEntry,
    /// The file's identity, `None` for a directory. The file stays open so that its inode number is not reused.
    identity: Option<Identity>,
    _held: Option<File>,
}

impl Files {
    pub(super) fn new(undo_dir: Option<PathBuf>) -> Self {
        Self { dir: undo_dir, undo_log: None, made: HashMap::new() }
    }

    /// Creates a file. Fails if the path exists, if too little free space would remain on the filesystem, or if the file cannot be created.
    pub(super) fn create(&mut self, path: &Path, size: Bytes) -> Result<(), String> {
        if preflight::check_agent_path(path, size).map_err(|refusal| refusal.to_string())?.is_some() {
            return Err(format!("{}: something else is there now; it is left alone", path.display()));
        }
        let file = raw::build(path, size, Preallocation::Off, self.undo_log()?);
        let file = file.map_err(|error| error.to_string())?;
        let made = Made { entry: file.entry, identity: Some(file.identity()), _held: Some(file.held) };
        self.made.insert(path.to_owned(), made);
        Ok(())
    }

    /// Returns the identity of a file that this agent created; `None` for directories and other paths.
    pub(super) fn identity(&self, path: &Path) -> Option<Identity> {
        self.made.get(path)?.identity
    }

    /// Creates an empty directory next to `beside`. Fails if that is not a regular file or the directory cannot be created. Chooses an
    /// unused name, because after a guest's reboot the directories of its last boot still exist.
    pub(super) fn make_directory(&mut self, beside: &Path) -> Result<PathBuf, String> {
        if !beside.is_file() {
            let reason = "no filesystem lies on it for files to be made on; in a guest give it one (filesystem = \"ext4\")";
            return Err(format!("{}: {reason}", beside.display()));
        }
        let mut names =
            (1_u32..).map(|n| beside.with_file_name(format!("iotax-{}-{n}.d", std::process::id())));
        let path = names.find(|path| !path.exists()).ok_or("no name is free")?;
        let entry = self.undo_log()?.make_tree(&path).map_err(|error| error.to_string())?;
        self.made.insert(path.clone(), Made { entry, identity: None, _held: None });
        Ok(path)
    }

    /// Removes a directory and its contents. If that fails, the directory stays in the undo log.
    pub(super) fn remove_directory(&mut self, path: &Path) {
        if let (Some(made), Some(undo_log)) = (self.made.remove(path), &mut self.undo_log) {
            let _ = undo_log.undo(made.entry);
        }
    }

    fn undo_log(&mut self) -> Result<&mut UndoLog, String> {
        let undo_log = if let Some(undo_log) = self.undo_log.take() {
            undo_log
        } else {
            let dir = self.dir.as_ref().ok_or("no place for an undo log is known: set HOME")?;
            let tag = format!("agent-{}", std::process::id());
            UndoLog::create(dir, &tag).map_err(|error| error.to_string())?
        };
        Ok(self.undo_log.insert(undo_log))
    }

    /// Keeps a created file: removes it from the undo log, so that it is not deleted when the agent ends. Fails for any other path, or if
    /// the undo log cannot be written.
    pub(super) fn keep(&mut self, path: &Path) -> Result<(), String> {
        match (self.made.remove(path), &mut self.undo_log) {
            (Some(made), Some(undo_log)) => undo_log.commit(made.entry).map_err(|error| error.to_string()),
            _ => Err(format!("{}: this agent did not make it", path.display())),
        }
    }

    /// Removes everything that was created and not kept. Returns true if nothing is left; failures are reported on stderr.
    pub(super) fn undo(&mut self) -> bool {
        let Some(mut undo_log) = self.undo_log.take() else { return true };
        let (_, failures) = undo_log.undo_all();
        for failure in &failures {
            say!("iotax agent: not undone: {}: {}", failure.effect, failure.reason);
        }
        failures.is_empty()
    }
}
