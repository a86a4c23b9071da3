//! Locks that show to runs of other users which disks are in use. A run takes a shared lock on a sysfs file of each disk, which anyone may
//! read and no one can replace. The kernel lists the locks in /proc/locks and drops them when the process ends. This module creates no
//! file, and opens no file of another user.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use rustix::process::{geteuid, getpid};

/// Name of the processes that count as runs of iotax.
const PROGRAM: &str = "iotax";

/// A disk that a run marks as in use.
pub(super) struct DiskMark {
    /// The kernel's name of the disk.
    pub(super) disk: String,
    file: File,
    /// The locked file as /proc/locks identifies it: device numbers and inode.
    inode_key: String,
}

/// A process of another user that marked a disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) pid: u32,
    pub(super) user: u32,
}

impl DiskMark {
    /// Opens the sysfs file whose lock marks the disk; `None` if the disk is not in sysfs.
    pub(super) fn of(disk: &str) -> Option<Self> {
        let path: PathBuf = ["/sys/class/block", disk, "dev"].iter().collect();
        Self::at(disk, &path)
    }

    fn at(disk: &str, path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let found = file.metadata().ok()?;
        let inode_key = format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino());
        Some(Self { disk: disk.to_owned(), file, inode_key })
    }

    /// Takes the shared lock that marks the disk, until this value is dropped. Ignores a failure, which means that another process holds an
    /// exclusive lock: /proc/locks lists that lock too.
    pub(super) fn show(&self) {
        let _ = self.file.try_lock_shared();
    }

    /// Returns the iotax processes of other users that marked the disk. `locks` is the content of /proc/locks.
    pub(super) fn holders(&self, locks: &str) -> Vec<Holder> {
        let of_others = holders_of(locks, &self.inode_key).filter_map(|pid| {
            let process = Path::new("/proc").join(pid.to_string());
            let is_run =
                fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim_end() == PROGRAM);
            let user = fs::metadata(process).ok()?.uid();
            (is_run && user != geteuid().as_raw()).then_some(Holder { pid, user })
        });
        of_others.collect()
    }
}

/// Reads /proc/locks; empty if it cannot be read.
pub(super) fn locks() -> String {
    fs::read_to_string("/proc/locks").unwrap_or_default()
}

/// Returns the other processes that hold a flock(2) lock on the file identified by `inode_key`.
fn holders_of<'a>(locks: &'a str, inode_key: &'a str) -> impl Iterator<Item = u32> + 'a {
    let own = getpid().as_raw_nonzero().get().unsigned_abs();
    locks.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            [_, "FLOCK", _, _, pid, at, ..] if at == inode_key => pid.parse().ok().filter(|pid| *pid != own),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_locks_names_who_holds_a_file() {
        let locks = "1: FLOCK  ADVISORY  READ 18104 00:16:5563 0 EOF\n2: POSIX  ADVISORY  READ 5433 00:16:5563 128 128\n\
                     3: FLOCK  ADVISORY  WRITE 77 fe:00:5563 0 EOF\n4: FLOCK  ADVISORY  READ 12 00:16:5563 0 EOF\n\
                     4: -> FLOCK  ADVISORY  WRITE 13 00:16:5563 0 EOF\n";
        assert_eq!(holders_of(locks, "00:16:5563").collect::<Vec<_>>(), [18104, 12]);
        assert_eq!(holders_of("", "00:16:5563").count(), 0);
    }

    #[test]
    fn a_mark_is_in_the_list_until_it_is_dropped() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let mark = DiskMark::at("vda", file.path()).expect("opened");
        let is_listed =
            |inode_key: &str| locks().lines().any(|line| line.contains("FLOCK") && line.contains(inode_key));
        let inode_key = mark.inode_key.clone();
        assert!(!is_listed(&inode_key));
        mark.show();
        if !is_listed(&inode_key) {
            iotax_testkit::skip!("the list of locks here has no locks of this process");
        }
        assert_eq!(mark.holders(&locks()), [], "its own are none of another user");
        drop(mark);
        assert!(!is_listed(&inode_key));
    }
}
