//! Where files and directories are made: in a directory that may be renamed, replaced or unmounted before they are to go.
//!
//! That nothing is at a path does not mean that it is gone. It is if the directory that it was made in is known to be the same:
//! as long as this process lives it has that directory open, and afterwards it is known by what is on record of it.

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
use crate::host_info::boot_id;
use crate::stack::mount;

/// `f_type` of statfs(2), of filesystems in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// How long a test that is being stopped may still put files into a directory that is being removed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The directory that something was made in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Within {
    id: FileId,
    /// The kernel's, of a directory in memory, which does not outlive it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    boot_id: Option<String>,
}

/// What has become of it.
pub(super) enum Found {
    /// It is this one.
    Directory(File),
    /// It was removed, with all that was in it.
    Gone,
    /// It may be anywhere, for this reason.
    Lost(String),
}

impl Within {
    /// The directory that a path is in, and that directory, open.
    pub(super) fn of(path: &Path) -> io::Result<(Self, File)> {
        let directory = open(parent(path))?;
        let id = FileId::of(&directory.metadata()?);
        let kind = fstatfs(&directory)?.f_type;
        let in_memory = u64::try_from(kind).is_ok_and(|kind| IN_MEMORY.contains(&kind));
        let boot_id = if in_memory { boot_id() } else { None };
        Ok((Self { id, boot_id }, directory))
    }

    /// Finds it: the one that is still open, or the one that `path`, which was made in it, leads to.
    pub(super) fn find(&self, path: &Path, held: Option<&File>) -> io::Result<Found> {
        if let Some(held) = held
            && held.metadata()?.nlink() > 0
        {
            return Ok(Found::Directory(held.try_clone()?));
        }
        let nothing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        match open(parent(path)) {
            Ok(there) if self.id.is(FileId::of(&there.metadata()?)) => return Ok(Found::Directory(there)),
            Err(error) if !nothing.contains(&error.kind()) => return Err(error),
            _ => {}
        }
        // What is open and has no name any more was removed.
        let restarted = self.boot_id.is_some() && self.boot_id != boot_id();
        if held.is_some() || restarted {
            return Ok(Found::Gone);
        }
        Ok(Found::Lost(format!(
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

/// Opens a directory so that it can be gone back to wherever it is by then, and not read or listed by that alone.
pub(super) fn open(directory: &Path) -> io::Result<File> {
    let flags = (OFlags::PATH | OFlags::DIRECTORY).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(directory)
}

/// What stands at a path; absent if nothing does. Not to be able to look is not the same as nothing.
fn standing(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Something that was made in a directory.
pub(super) struct Made<'a> {
    pub(super) effect: &'a Effect,
    pub(super) path: &'a Path,
    /// What was made, if it is open here.
    pub(super) own: Option<&'a File>,
    /// It is on record that its removal was begun.
    pub(super) removing: bool,
}

impl Made<'_> {
    /// Removes it from the directory that it was made in, after `begin` if nothing of it will be left.
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

    /// What is to be removed from that directory; absent if it is gone. Fails if it may be elsewhere.
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
            // A name of our own choosing is on record itself.
            if !names.is_empty() {
                return Ok(None);
            }
            let now = fs::read_link(through(own))?;
            return Err(io::Error::other(format!("it is at {} now; left alone", now.display())));
        }
        if there.is_some() && !matches!(self.effect, Effect::File { .. }) {
            return Err(io::Error::other("this is not the directory that iotax made; left alone"));
        }
        // Another file may have come to stand here: it is not ours.
        if self.own.is_some() || self.removing || !names.is_empty() {
            return Ok(None);
        }
        let search = search(directory, identity.inode);
        Err(io::Error::other(format!(
            "it is not there any more: somebody removed it or moved it elsewhere; if it still exists it is found with: {search}"
        )))
    }

    /// Where it was made, whatever the directory is called now.
    fn at(&self, directory: &File) -> PathBuf {
        through(directory).join(self.path.file_name().unwrap_or_default())
    }

    /// The number of names that a file has beside this one and those that are on record themselves.
    fn other_names(&self, directory: &File, there: &fs::Metadata) -> io::Result<u64> {
        if there.is_dir() || there.nlink() < 2 || self.path.file_name().is_some_and(is_scratch) {
            return Ok(0);
        }
        let names = names(directory, FileId::of(there))?;
        let ours = names.iter().filter(|name| is_scratch(name)).count();
        Ok((there.nlink() - 1).saturating_sub(ours as u64))
    }
}

/// The path of an open file or directory that leads to it whatever it is called.
fn through(open: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// The names by which a file is in a directory.
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

/// A command that finds a file of a directory's filesystem under all its names.
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

/// Removes a directory with all that is in it, though a test that is being stopped may still put files there.
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
