//! Creates network namespaces and interfaces, recorded in the undo log.

use std::io;
use std::path::Path;

use crate::build_error::BuildError;
use crate::netns::{IP, NAMES, NameDirectory, Namespace, NetnsInterface};
use crate::undo::{Effect, UndoLog};

impl Namespace {
    /// Creates a namespace with an active loopback interface.
    pub(crate) fn make(name: String, undo_log: &mut UndoLog) -> Result<Self, BuildError> {
        let missing = NameDirectory::missing().map_err(BuildError::file(Path::new(NAMES)))?;
        let made = Self { name, made: missing };
        let path = made.path();
        let is_there = path.try_exists().map_err(BuildError::file(&path))?;
        if is_there {
            let source = io::ErrorKind::AlreadyExists.into();
            return Err(BuildError::File { path, source });
        }
        undo_log.record(Effect::Namespace(made.clone()))?;
        undo_log.run(IP, ["netns", "add", &made.name])?;
        made.ip(undo_log, &["link", "set", "lo", "up"])?;
        Ok(made)
    }

    /// Runs ip(8) in the namespace.
    pub(super) fn ip(&self, undo_log: &UndoLog, arguments: &[&str]) -> Result<(), BuildError> {
        undo_log.run(IP, ["-n", &self.name].iter().chain(arguments))?;
        Ok(())
    }

    /// Creates an interface in the namespace, with these arguments for ip(8).
    pub(super) fn add(
        &self,
        undo_log: &mut UndoLog,
        name: &str,
        kind: &str,
        words: &[&str],
    ) -> Result<(), BuildError> {
        let made =
            NetnsInterface { namespace: self.name.clone(), name: name.to_owned(), kind: kind.to_owned() };
        undo_log.record(Effect::Interface(made))?;
        self.ip(undo_log, words)
    }
}
