//! Locates created files and directories, whose parent may have been renamed, replaced or unmounted.
//!
//! Nothing at a path does not mean that the file is gone. It is gone only if its parent directory is known to be the same: this process
//! keeps it open, and later processes compare its recorded identity.

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

/// Time for which a workload that is being stopped may still add files to a directory that is being removed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The directory in which an effect created a file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParentDirectory {
    id: FileId,
    /// The boot id of a directory in memory, which does not survive a reboot.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    boot_id: Option<String>,
}

/// The state of a parent directory.
pub(super) enum ParentState {
    /// The directory exists, and is open.
    Directory(File),
    /// The directory was removed, with its contents.
    Gone,
    /// The directory was not found, for the given reason.
    Lost(String),
}

impl ParentDirectory {
    /// The parent directory of a path, and an open handle to it.
    pub(super) fn of(path: &Path) -> io::Result<(Self, File)> {
        let directory = open(parent(path))?;
        let id = FileId::of(&directory.metadata()?);
        let boot_id = if is_in_memory(&fstatfs(&directory)?) { boot_id() } else { None };
        Ok((Self { id, boot_id }, directory))
    }

    /// Finds the directory through the open handle, or as the parent of `path`.
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

/// Opens a directory as a handle (O_PATH) that survives renames and does not allow reading.
pub(super) fn open(directory: &Path) -> io::Result<File> {
    let flags = (OFlags::PATH | OFlags::DIRECTORY).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(directory)
}

/// The metadata at a path; `None` if nothing exists there. Fails if it cannot be read.
fn standing(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        // Nothing can have a name that is too long.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// A file or directory that was created in a directory.
pub(super) struct CreatedFile<'a> {
    pub(super) effect: &'a Effect,
    pub(super) path: &'a Path,
    /// This process's open handle, if it has one.
    pub(super) own: Option<&'a File>,
    /// True if the start of its removal was recorded.
    pub(super) removing: bool,
}

impl CreatedFile<'_> {
    /// Removes the file or directory. Calls `begin` first if this removes the last name.
    pub(super) fn remove(&self, directory: &File, begin: impl FnOnce()) -> io::Result<()> {
        let Some(there) = self.look(directory)? else { return Ok(()) };
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

    /// The metadata of the file to remove; `None` if it is gone. Fails if it may be elsewhere.
    pub(super) fn look(&self, directory: &File) -> io::Result<Option<fs::Metadata>> {
        let there = standing(&self.at(directory))?;
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

    /// The file's path, even if the directory was renamed.
    fn at(&self, directory: &File) -> PathBuf {
        through(directory).join(self.path.file_name().unwrap_or_default())
    }

    /// The number of hard links to the file besides this name and those with their own entries.
    fn other_names(&self, directory: &File, there: &fs::Metadata) -> io::Result<u64> {
        if there.is_dir() || there.nlink() < 2 || self.path.file_name().is_some_and(is_scratch) {
            return Ok(0);
        }
        let names = names(directory, FileId::of(there))?;
        let ours = names.iter().filter(|name| is_scratch(name)).count();
        Ok((there.nlink() - 1).saturating_sub(ours as u64))
    }
}

/// A path to an open file or directory that survives renames.
fn through(open: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// The names of a file in a directory.
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

/// A shell command that finds all names of a file on the directory's filesystem.
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

/// Removes a directory with its contents, even if a workload that is being stopped still adds files.
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
