//! Makes ext4 place new files next to each other on the disk.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Maximum number of unnamed files to hold open; a process may have 1,024 open files by default.
const MOST_HELD: u64 = 256;
/// ext4's magic number in statfs(2).
const EXT4: i64 = 0xEF53;

/// Occupies inode numbers, so that the next file in `dir` gets one that is a multiple of the number of CPUs. Keep the
/// returned files open until that file is created. From Linux 6.17 on, ext4 spreads new files over as many regions of
/// the disk as there are CPUs, by inode number, and regions differ in speed. Returns no files on other filesystems.
pub(super) fn hold_inodes(dir: &Path) -> Vec<File> {
    let is_ext4 = rustix::fs::statfs(dir).is_ok_and(|found| found.f_type == EXT4);
    let cpus = possible_cpus().filter(|_| is_ext4).unwrap_or(1);
    let mut held = Vec::new();
    if cpus < 2 {
        return held;
    }
    for _ in 0..MOST_HELD {
        let file = OpenOptions::new()
            .write(true)
            .mode(0o600)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(dir);
        let Ok(file) = file else { break };
        match file.metadata() {
            // This is the lowest free number, which the next file gets.
            Ok(found) if found.ino() % cpus == 0 => break,
            _ => held.push(file),
        }
    }
    held
}

/// Returns the number of CPUs that the kernel may ever use; `None` if it cannot be read. The kernel's list is `0-7`, or `0` for one.
fn possible_cpus() -> Option<u64> {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    let last = list.trim().rsplit(['-', ',']).next()?;
    Some(last.parse::<u64>().ok()? + 1)
}
