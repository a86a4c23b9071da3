//! The directories in which another person's plan may create files.

use std::path::Path;

/// An area of a machine.
pub trait Area {
    /// Returns whether a directory is in it, wherever links on the way lead.
    fn holds(&self, directory: Option<&Path>) -> bool;

    /// Returns whether there is something at a path.
    fn exists(&self, path: &Path) -> bool;

    /// Rejects a directory outside it, which a key gives for new files.
    ///
    /// # Errors
    /// The key and the directory.
    fn takes_files(&self, key: &str, directory: Option<&Path>) -> Result<(), String> {
        match directory.filter(|directory| !self.holds(Some(directory))) {
            Some(directory) => Err(format!("{key} = {}: a file would be made there", directory.display())),
            None => Ok(()),
        }
    }
}
