//! Creates network namespaces and interfaces, each recorded in the undo log first.

use std::io;
use std::path::Path;

use crate::build_error::BuildError;
use crate::netns::{IP, NAMES, NameDirectory, Namespace, NetnsInterface};
use crate::undo::{Effect, UndoLog};

impl Namespace {
    /// Creates a network namespace and brings its loopback interface up. Fails if the name is in use.
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

    /// Runs ip(8) with these arguments in the namespace.
    pub(super) fn ip(&self, undo_log: &UndoLog, arguments: &[&str]) -> Result<(), BuildError> {
        undo_log.run(IP, ["-n", &self.name].iter().chain(arguments))?;
        Ok(())
    }

    /// Creates the interface `name` of type `kind` in the namespace, by running ip(8) with the arguments `words`.
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
