//! The directories in which a plan of an untrusted author may create files.

use std::path::Path;

/// A set of directories on a machine.
pub trait Area {
    /// Returns whether a directory lies in the area after symbolic links are resolved.
    fn holds(&self, directory: Option<&Path>) -> bool;

    /// Returns whether a file or directory exists at a path.
    fn exists(&self, path: &Path) -> bool;

    /// Rejects a directory outside the area in which `key` would create files.
    ///
    /// # Errors
    /// The message names the key and the directory.
    fn takes_files(&self, key: &str, directory: Option<&Path>) -> Result<(), String> {
        match directory.filter(|directory| !self.holds(Some(directory))) {
            Some(directory) => Err(format!("{key} = {}: a file would be made there", directory.display())),
            None => Ok(()),
        }
    }
}
