//! Where files and directories are made: in a directory that may be renamed, replaced or unmounted before they are to go.
//!
//! That nothing is at a path does not mean that it is gone. It is if the directory that it was made in is known to be the same:
//! as long as this process lives it has that directory open, and afterwards it is known by what is on record of it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use rustix::fs::{OFlags, fstatfs};
use serde::{Deserialize, Serialize};

use super::effect::Effect;
use super::is_scratch;
use crate::facts::boot_id;
use crate::target::device::number_text;

/// `f_type` of statfs(2), of filesystems in memory: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// How long a test that is being stopped may still put files into a directory that is being removed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What tells a file or directory from every other that may come to have its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileId {
    /// As stat(2) has it. After a restart of the machine, for some filesystems after each mount, it may be another.
    pub device: u64,
    /// As stat(2) has it. It may be a later file's once this one is removed.
    pub inode: u64,
    /// When the file was made, in nanoseconds since 1970: another for a later file with the same inode. Absent where the
    /// filesystem does not keep it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub born_ns: Option<u64>,
}

impl FileId {
    /// Of the file that these are of.
    #[must_use]
    pub fn of(metadata: &fs::Metadata) -> Self {
        let born = metadata.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born_ns = born.and_then(|time| u64::try_from(time.as_nanos()).ok());
        Self { device: metadata.dev(), inode: metadata.ino(), born_ns }
    }

    /// Whether they are of the same file.
    fn is(self, other: Self) -> bool {
        let same = match (self.born_ns, other.born_ns) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.device == other.device,
        };
        same && self.inode == other.inode
    }
}

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

/// Removes what an effect made at a path, from the directory that it was made in. `own` is what was made, if it is open here.
/// False: it is gone already.
pub(super) fn remove(effect: &Effect, path: &Path, directory: &File, own: Option<&File>) -> io::Result<bool> {
    let identity = effect.identity();
    let place = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let at = place.join(path.file_name().unwrap_or_default());
    let there = standing(&at)?;
    if let Some(there) = &there
        && identity.is_none_or(|identity| identity.is(FileId::of(there)))
    {
        return remove_at(effect, &at, there).map(|()| true);
    }
    if let Some(identity) = identity
        && let Some(name) = named(&place, identity)?
    {
        return Err(io::Error::other(format!("it is called {} there now; left alone", name.display())));
    }
    if let Some(own) = own
        && own.metadata()?.nlink() > 0
    {
        let now = fs::read_link(format!("/proc/self/fd/{}", own.as_raw_fd()))?;
        return Err(io::Error::other(format!("it is at {} now; left alone", now.display())));
    }
    match there {
        Some(_) if !matches!(effect, Effect::File { .. }) => {
            Err(io::Error::other("this is not the directory that iotax made; left alone"))
        }
        // Another file may have come to stand here: it is not ours, and ours is gone.
        _ => Ok(false),
    }
}

/// The name by which a file is in a directory. One of our own choosing is on record itself.
fn named(directory: &Path, identity: FileId) -> io::Result<Option<PathBuf>> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.ino() == identity.inode
            && !is_scratch(&entry.file_name())
            && entry.metadata().is_ok_and(|found| identity.is(FileId::of(&found)))
        {
            return Ok(Some(entry.file_name().into()));
        }
    }
    Ok(None)
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
