//! Finds files and directories that iotax created, although their parent directory may have been renamed, replaced or unmounted.
//!
//! If nothing exists at the recorded path, the file is gone only if the parent directory is still the same: either this process keeps it
//! open, or its recorded identity matches.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fstatfs};
use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::file_id::FileId;
use super::is_scratch;
use crate::device::number_text;
use crate::host_info::{boot_id, is_in_memory};
use crate::stack::mount;

/// Maximum time for which a workload that is being stopped may add files to a directory that is being removed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parent directory of a file or directory that iotax created, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParentDirectory {
    id: FileId,
    /// Boot id, for a directory in memory, which does not survive a reboot; `None` for others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    boot_id: Option<String>,
}

/// Result of looking for a parent directory.
pub(super) enum ParentState {
    /// The directory exists; holds an open handle.
    Directory(File),
    /// The directory was removed with its contents.
    Gone,
    /// The directory was not found and may exist elsewhere; holds the reason.
    Lost(String),
}

impl ParentDirectory {
    /// Identifies the parent directory of a path and opens it.
    pub(super) fn of(path: &Path) -> io::Result<(Self, File)> {
        let directory = open(parent(path))?;
        let id = FileId::of(&directory.metadata()?);
        let boot_id = if is_in_memory(&fstatfs(&directory)?) { boot_id() } else { None };
        Ok((Self { id, boot_id }, directory))
    }

    /// Finds the directory through the open handle `held`; if there is none, or the directory was removed, as the parent of `path`.
    pub(super) fn find(&self, path: &Path, held: Option<&File>) -> io::Result<ParentState> {
        if let Some(held) = held
            && held.metadata()?.nlink() > 0
        {
            return Ok(ParentState::Directory(held.try_clone()?));
        }
        let nothing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        match open(parent(path)) {
            Ok(there) if self.id.is(FileId::of(&there.metadata()?)) => {
                return Ok(ParentState::Directory(there));
            }
            Err(error) if !nothing.contains(&error.kind()) => return Err(error),
            _ => {}
        }
        // An open directory without a name was removed.
        let restarted = self.boot_id.is_some() && self.boot_id != boot_id();
        if held.is_some() || restarted {
            return Ok(ParentState::Gone);
        }
        Ok(ParentState::Lost(format!(
            "it cannot be found: {} is no longer the directory that it was made in (inode {} on device {}), which was renamed, \
             removed or unmounted; put it back and clean again",
            parent(path).display(),
            self.id.inode,
            number_text(self.id.device)
        )))
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Opens a directory with O_PATH. The handle survives renames and does not allow reading.
pub(super) fn open(directory: &Path) -> io::Result<File> {
    let flags = (OFlags::PATH | OFlags::DIRECTORY).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(directory)
}

/// Returns the metadata of a path; `None` if nothing exists there.
fn metadata_if_any(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        // Nothing can have a name that is too long.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A file or directory that iotax created.
pub(super) struct CreatedFile<'a> {
    pub(super) effect: &'a Effect,
    pub(super) path: &'a Path,
    /// Open handle to the file; `None` if this process did not create it through the undo log.
    pub(super) own: Option<&'a File>,
    /// True if the undo log shows that the removal had begun.
    pub(super) removing: bool,
}

impl CreatedFile<'_> {
    /// Removes the file or directory. Calls `begin` first, unless other hard links to the file exist; in that case, removes this name and
    /// fails.
    pub(super) fn remove(&self, directory: &File, begin: impl FnOnce()) -> io::Result<()> {
        let Some(there) = self.find_in(directory)? else { return Ok(()) };
        let others = self.other_names(directory, &there)?;
        if others == 0 {
            begin();
        }
        remove_at(self.effect, &self.at(directory), &there)?;
        if others == 0 {
            return Ok(());
        }
        let names = if others == 1 { "name keeps" } else { "names keep" };
        let search = search(directory, there.ino());
        Err(io::Error::other(format!(
            "it is removed there, but {others} other {names} its data; find with: {search}"
        )))
    }

    /// Returns the metadata of the file or directory to remove. `None` if it is known to be removed, even if another file is at its path
    /// now, or if it has only a temporary name, which has its own entry in the log. Fails if it has another name or may exist elsewhere,
    /// and if something else is at the path of a directory. If no identity is recorded, takes whatever is at the path.
    pub(super) fn find_in(&self, directory: &File) -> io::Result<Option<fs::Metadata>> {
        let there = metadata_if_any(&self.at(directory))?;
        let Some(identity) = self.effect.identity() else { return Ok(there) };
        if there.as_ref().is_some_and(|there| identity.is(FileId::of(there))) {
            return Ok(there);
        }
        let names = names(directory, identity)?;
        if let Some(name) = names.iter().find(|name| !is_scratch(name)) {
            let name = name.display();
            return Err(io::Error::other(format!("it is called {name} there now; left alone")));
        }
        if let Some(own) = self.own
            && own.metadata()?.nlink() > 0
        {
            // A temporary name has its own entry.
            if !names.is_empty() {
                return Ok(None);
            }
            let now = fs::read_link(through(own))?;
            return Err(io::Error::other(format!("it is at {} now; left alone", now.display())));
        }
        if there.is_some() && !matches!(self.effect, Effect::File { .. }) {
            return Err(io::Error::other("this is not the directory that iotax made; left alone"));
        }
        // Another file may be at this path now; it is not iotax's.
        if self.own.is_some() || self.removing || !names.is_empty() {
            return Ok(None);
        }
        let search = search(directory, identity.inode);
        Err(io::Error::other(format!(
            "it is not there any more: somebody removed it or moved it elsewhere; if it still exists it is found with: {search}"
        )))
    }

    /// Returns the path of the file below the open parent directory, which is valid even if that was renamed.
    fn at(&self, directory: &File) -> PathBuf {
        through(directory).join(self.path.file_name().unwrap_or_default())
    }

    /// Returns the number of hard links to the file besides this name and iotax's temporary names; 0 for a directory.
    fn other_names(&self, directory: &File, there: &fs::Metadata) -> io::Result<u64> {
        if there.is_dir() || there.nlink() < 2 || self.path.file_name().is_some_and(is_scratch) {
            return Ok(0);
        }
        let names = names(directory, FileId::of(there))?;
        let ours = names.iter().filter(|name| is_scratch(name)).count();
        Ok((there.nlink() - 1).saturating_sub(ours as u64))
    }
}

/// Returns a path in /proc to an open file or directory, valid even if it was renamed.
fn through(open: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// Returns the names under which a directory contains the file with this identity.
fn names(directory: &File, identity: FileId) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(through(directory))? {
        let entry = entry?;
        if entry.ino() == identity.inode
            && entry.metadata().is_ok_and(|found| identity.is(FileId::of(&found)))
        {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

/// Returns the shell command that finds all names of an inode on the directory's filesystem, for an error message.
fn search(directory: &File, inode: u64) -> String {
    let place = fs::read_link(through(directory)).unwrap_or_else(|_| "/".into());
    let point = mount::of(Path::new("/"), &place).map_or(place, |mount| mount.point);
    format!("find {} -xdev -inum {inode}", point.display())
}

fn remove_at(effect: &Effect, at: &Path, there: &fs::Metadata) -> io::Result<()> {
    match effect {
        Effect::Tree { .. } => remove_tree(at),
        Effect::Directory { .. } => gone_is_fine(fs::remove_dir(at)),
        _ if there.file_type().is_block_device() || there.is_dir() => {
            Err(io::Error::other("this is no longer the file that iotax made; left alone"))
        }
        _ => gone_is_fine(fs::remove_file(at)),
    }
}

/// Removes a directory with its contents. Retries for up to 10 s while a workload that is being stopped adds files.
fn remove_tree(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match gone_is_fine(fs::remove_dir_all(path)) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && Instant::now() < deadline => {}
            result => return result,
        }
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
