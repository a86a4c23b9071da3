//! Writes files atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

/// Extended attribute with a file's POSIX access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Size in bytes of the buffer for an access control list, larger than any list.
const ACCESS_LIST_BYTES: usize = 64 << 10;

/// Prefix of a draft's temporary name; the process id and a number follow.
const NAME: &str = ".iotax-";

/// A file that gets its final name only when it is published. Dropping an unpublished draft removes the file.
pub(super) struct Draft {
    file: File,
    dir: PathBuf,
    /// The temporary name. `None` as long as the file has no name, on filesystems with unnamed files (`O_TMPFILE`): a killed process then
    /// leaves no file behind.
    name: Option<PathBuf>,
}

impl Draft {
    pub(super) fn new(dir: &Path) -> io::Result<Self> {
        let nameless = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(dir, nameless, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok(Self::begun(file.into(), dir, None)),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Self::named(dir),
            Err(error) => Err(error.into()),
        }
    }

    fn named(dir: &Path) -> io::Result<Self> {
        let create = |name: &Path| OpenOptions::new().write(true).create_new(true).open(name);
        let (file, name) = under_a_new_name(dir, create)?;
        Ok(Self::begun(file, dir, Some(name)))
    }

    /// Locks the draft, because a named draft without a lock counts as a leftover. If locking fails, leftovers are never removed.
    fn begun(file: File, dir: &Path, name: Option<PathBuf>) -> Self {
        let _ = file.try_lock();
        Self { file, dir: dir.to_path_buf(), name }
    }

    /// Copies owner, mode and access list from the file to be replaced; the owner only as far as permitted.
    pub(super) fn take_after(&self, old: &File) -> io::Result<()> {
        let metadata = old.metadata()?;
        if fchown(&self.file, Some(metadata.uid()), Some(metadata.gid())).is_err() {
            let _ = fchown(&self.file, None, Some(metadata.gid()));
        }
        let mut list = vec![0; ACCESS_LIST_BYTES];
        match rustix::fs::fgetxattr(old, ACCESS_LIST, &mut list[..]) {
            Ok(length) => {
                rustix::fs::fsetxattr(&self.file, ACCESS_LIST, &list[..length], XattrFlags::empty())?;
            }
            // The directory's default access list may have been applied.
            Err(_) => drop(rustix::fs::fremovexattr(&self.file, ACCESS_LIST)),
        }
        self.file.set_permissions(metadata.permissions())
    }

    /// Writes the contents and syncs them.
    pub(super) fn fill(&mut self, contents: &[u8]) -> io::Result<()> {
        self.file.write_all(contents)?;
        self.file.sync_all()
    }

    /// Moves the draft to its final name. With `replaces`, replaces an existing file of that name; otherwise fails if there is one.
    pub(super) fn publish(mut self, to: &Path, replaces: bool) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let link = |name: &Path| Ok(rustix::fs::linkat(CWD, &*own, CWD, name, AtFlags::SYMLINK_FOLLOW)?);
        match (&self.name, replaces) {
            // Links directly: a kill cannot leave a temporary name.
            (None, false) => link(to)?,
            (None, true) => {
                let name = under_a_new_name(&self.dir, link)?.1;
                fs::rename(self.name.insert(name), to)?;
            }
            (Some(name), true) => fs::rename(name, to)?,
            (Some(name), false) => {
                match rustix::fs::renameat_with(CWD, name, CWD, to, RenameFlags::NOREPLACE) {
                    // A hard link does not replace a file either; the drop removes the temporary name.
                    Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(name, to)?,
                    renamed => renamed?,
                }
            }
        }
        File::open(&self.dir)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = fs::remove_file(name);
        }
    }
}

/// Removes drafts that killed processes left in a directory: unlocked files with a draft's name and at most `largest` bytes, whose contents
/// `is_result` accepts. Leaves drafts that cannot be read.
pub(super) fn remove_leftovers(dir: &Path, largest: u64, is_result: impl Fn(&[u8]) -> bool) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for name in entries.flatten().map(|entry| entry.path()).filter(|name| is_drafts(name)) {
        if is_leftover(&name, largest, &is_result).unwrap_or(false) {
            let _ = fs::remove_file(&name);
        }
    }
}

/// Returns true for names made by [`under_a_new_name`].
fn is_drafts(name: &Path) -> bool {
    let numbers = name.file_name().and_then(|name| name.to_str()?.strip_prefix(NAME)?.split_once('-'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(process, number)| is_number(process) && is_number(number))
}

fn is_leftover(name: &Path, largest: u64, is_result: impl Fn(&[u8]) -> bool) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > largest || file.try_lock().is_err() {
        return Ok(false);
    }
    let mut contents = Vec::new();
    (&file).take(largest).read_to_end(&mut contents)?;
    // The writer may have published the draft meanwhile, and another draft may have its name now.
    let still = fs::symlink_metadata(name)?;
    Ok(is_result(&contents) && (still.dev(), still.ino()) == (metadata.dev(), metadata.ino()))
}

/// Calls `make` with new names in `dir` until it finds one that does not exist. Returns the result and the name.
fn under_a_new_name<T>(dir: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(T, PathBuf)> {
    let mut number = 0;
    loop {
        let name = dir.join(format!("{NAME}{}-{number}", std::process::id()));
        match make(&name) {
            Ok(made) => return Ok((made, name)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use rustix::fs::inotify;

    use super::*;

    #[test]
    fn a_new_file_has_no_other_name_that_a_kill_could_leave() {
        let temp = tempfile::tempdir().expect("directory");
        let watched = inotify::init(inotify::CreateFlags::NONBLOCK).expect("watched");
        let names = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVE;
        let mut draft = Draft::new(temp.path()).expect("made");
        if draft.name.is_some() {
            // This filesystem does not support unnamed files.
            return;
        }
        draft.fill(b"whole").expect("written");
        inotify::add_watch(&watched, temp.path(), names).expect("watched");
        draft.publish(&temp.path().join("result"), false).expect("published");
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&watched, &mut buffer);
        let mut seen = Vec::new();
        while let Ok(event) = events.next() {
            seen.push(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        assert_eq!(seen, [Some("result".to_owned())]);
    }

    #[test]
    fn with_a_name_or_without_one_it_is_there_as_a_whole_or_not_at_all() {
        for new in [Draft::new, Draft::named] {
            let temp = tempfile::tempdir().expect("directory");
            let (dir, to) = (temp.path(), temp.path().join("result"));
            let draft = |contents: &str| {
                let mut draft = new(dir).expect("made");
                draft.fill(contents.as_bytes()).expect("written");
                draft
            };
            let there = || {
                let names = std::fs::read_dir(dir).expect("listed").count();
                (names, std::fs::read_to_string(&to).unwrap_or_default())
            };
            drop(draft("dropped"));
            assert_eq!(there(), (0, String::new()));
            draft("first").publish(&to, false).expect("new");
            assert_eq!(there(), (1, "first".into()));
            let taken = draft("second").publish(&to, false).expect_err("somebody was faster");
            assert_eq!((taken.kind(), there()), (io::ErrorKind::AlreadyExists, (1, "first".into())));
            draft("third").publish(&to, true).expect("replaced");
            assert_eq!(there(), (1, "third".into()));
        }
    }
}
