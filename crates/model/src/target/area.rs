//! The directories in which a plan from an untrusted author may create files.

use std::path::Path;

/// A set of directories on a machine in which files may be created.
pub trait Area {
    /// Returns whether a directory lies within one of the set's directories, after symbolic links are resolved. False for `None`.
    fn holds(&self, directory: Option<&Path>) -> bool;

    /// Returns whether a file or directory exists at a path.
    fn exists(&self, path: &Path) -> bool;

    /// Rejects a directory outside the set; accepts `None`. `key` is the plan's key that names the directory.
    ///
    /// # Errors
    /// The directory lies outside the set. The message names the key and the directory.
    fn takes_files(&self, key: &str, directory: Option<&Path>) -> Result<(), String> {
        match directory.filter(|directory| !self.holds(Some(directory))) {
            Some(directory) => Err(format!("{key} = {}: a file would be made there", directory.display())),
            None => Ok(()),
        }
    }
}
