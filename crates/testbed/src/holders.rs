//! Finds processes that use a device, file or directory, through /proc.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, statx};

use crate::host_info::text;

/// The identity of a file, independent of its name.
///
/// A stacked filesystem (overlayfs, FUSE) shows the underlying file with another device number and often another inode number, but with the
/// same length and the same birth time to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BackingFile {
    /// Device and inode number of the file.
    pub(crate) number: (u64, u64),
    /// Length and, if the filesystem records it, birth time in seconds and nanoseconds. `None` if the file cannot be reached by a path.
    pub(crate) content: Option<(u64, Option<(i64, u32)>)>,
}

impl BackingFile {
    pub(crate) fn of(found: &fs::Metadata) -> Self {
        let born = found.created().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let born = born.and_then(|born| Some((i64::try_from(born.as_secs()).ok()?, born.subsec_nanos())));
        Self { number: (found.dev(), found.ino()), content: Some((found.len(), born)) }
    }

    /// Returns whether both may be the same file: their numbers are equal or, on different filesystems, their lengths and birth times are.
    /// If a birth time is unknown, equal lengths above 0 suffice.
    pub(crate) fn may_be(self, other: Self) -> bool {
        let same = self.content.zip(other.content).is_some_and(|(one, other)| match (one, other) {
            ((length, Some(born)), (other, Some(other_born))) => length == other && born == other_born,
            ((length, _), (other, _)) => length == other && length > 0,
        });
        self.number == other.number || (self.is_apart(other) && same)
    }

    /// Returns whether both are certainly the same file: their numbers are equal or, on different filesystems, their lengths and birth
    /// times.
    pub(crate) fn is(self, other: Self) -> bool {
        let born = |file: Self| file.content.is_some_and(|(_, born)| born.is_some());
        self.may_be(other) && (self.number == other.number || (born(self) && born(other)))
    }

    /// Returns whether the two files are on different filesystems.
    pub(crate) const fn is_apart(self, other: Self) -> bool {
        self.number.0 != other.number.0
    }
}

/// Lists processes that have one of these block devices, or what may be one of these files, open for writing. `devices` are device numbers
/// (`rdev`).
pub(crate) fn writers(devices: &[u64], files: &[BackingFile]) -> Vec<String> {
    if devices.is_empty() && files.is_empty() {
        return Vec::new();
    }
    writers_of(devices, |open| files.iter().any(|file| file.may_be(open)))
}

/// Lists processes that certainly have one of these files open for writing.
pub(crate) fn writers_of_files(files: &[BackingFile]) -> Vec<String> {
    writers_of(&[], |open| files.iter().any(|file| file.is(open)))
}

fn writers_of(devices: &[u64], is_wanted: impl Fn(BackingFile) -> bool) -> Vec<String> {
    users(|task| {
        entries(&task.join("fd")).iter().any(|descriptor| {
            is_one(descriptor, devices, &is_wanted) && is_for_writing(task, descriptor).unwrap_or(true)
        })
    })
}

fn is_one(descriptor: &Path, devices: &[u64], is_wanted: &impl Fn(BackingFile) -> bool) -> bool {
    // Does not query network filesystems, which could block forever.
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::BTIME;
    let Ok(found) = statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, wanted) else { return false };
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::BlockDevice => devices.contains(&makedev(found.stx_rdev_major, found.stx_rdev_minor)),
        FileType::RegularFile => {
            let number = (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino);
            let is_known = found.stx_mask & StatxFlags::BTIME.bits() != 0;
            let born = is_known.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec));
            let open = BackingFile { number, content: Some((found.stx_size, born)) };
            is_wanted(open)
        }
        _ => false,
    }
}

/// Returns the directory in /proc of one thread in each mount namespace other than this process's. /proc is below `root`.
pub(crate) fn namespaces(root: &Path) -> Vec<PathBuf> {
    let proc = root.join("proc");
    let namespace = |task: &Path| fs::read_link(task.join("ns/mnt")).ok();
    let Some(own) = namespace(&proc.join("self")) else { return Vec::new() };
    let mut seen = BTreeSet::from([own]);
    let mut all: Vec<PathBuf> = processes(&proc).iter().flat_map(|(_, process)| tasks(process)).collect();
    all.retain(|task| namespace(task).is_some_and(|namespace| seen.insert(namespace)));
    all
}

/// Lists processes whose working directory, root or program is in `directory`, or that have a file in it open.
pub(crate) fn below(directory: &Path) -> Vec<String> {
    users(|task| {
        let places = ["cwd", "root", "exe"].map(|name| task.join(name));
        let mut links = places.into_iter().chain(entries(&task.join("fd")));
        links.any(|link| fs::read_link(link).is_ok_and(|path| path.starts_with(directory)))
    })
}

/// Lists processes that have the file at `path` open.
pub(crate) fn of_file(path: &Path) -> Vec<String> {
    users(|task| {
        let descriptors = entries(&task.join("fd"));
        descriptors.iter().any(|link| fs::read_link(link).is_ok_and(|open| open == path))
    })
}

/// Lists other processes with a thread for which `uses` returns true, such as `qemu-system-x86 (process 1234)`. Leaves out processes that
/// this user may not inspect.
fn users(uses: impl Fn(&Path) -> bool) -> Vec<String> {
    let others =
        processes(Path::new("/proc")).into_iter().filter(|(number, _)| *number != std::process::id());
    let using = others.filter(|(_, process)| tasks(process).iter().any(|task| uses(task)));
    using.map(|(_, process)| title(&process)).collect()
}

fn processes(proc: &Path) -> Vec<(u32, PathBuf)> {
    let number = |process: &Path| process.file_name()?.to_str()?.parse().ok();
    entries(proc).into_iter().filter_map(|process| Some((number(&process)?, process))).collect()
}

/// Lists a process's threads as directories in /proc. Threads can have separate descriptors, roots and mounts; the process's own directory
/// shows only those of its first thread, and nothing after that thread has ended.
fn tasks(process: &Path) -> Vec<PathBuf> {
    entries(&process.join(TASKS))
}

const TASKS: &str = "task";

/// Returns the name and id of a process, given by its directory in /proc or by that of one of its threads.
pub(crate) fn title(process: &Path) -> String {
    let process = match process.parent() {
        Some(tasks) if tasks.ends_with(TASKS) => tasks.parent().unwrap_or(process),
        _ => process,
    };
    let name = text(&process.join("comm")).unwrap_or_else(|| "?".to_owned());
    let number = process.file_name().unwrap_or_default().to_string_lossy();
    format!("{name} (process {number})")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Returns whether a file descriptor is open for writing, from the octal flags in fdinfo; `None` if they cannot be read.
fn is_for_writing(task: &Path, descriptor: &Path) -> Option<bool> {
    let info = fs::read_to_string(task.join("fdinfo").join(descriptor.file_name()?)).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    Some(u32::from_str_radix(flags.trim(), 8).ok()? & 3 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::process::{Command, Stdio};

    #[test]
    fn a_file_without_a_birth_time_may_be_another_of_its_length_and_is_not_taken_for_it() {
        let file = |device, born| BackingFile { number: (device, 1), content: Some((4096, born)) };
        let (known, elsewhere, unknown) = (file(1, Some((7, 8))), file(2, Some((7, 8))), file(3, None));
        assert!(known.is(elsewhere) && unknown.is(unknown));
        assert!(known.may_be(unknown) && !known.is(unknown));
    }

    #[test]
    fn a_process_in_a_directory_is_named() {
        let temp = tempfile::tempdir().expect("temp dir");
        let directory = temp.path().canonicalize().expect("there");
        assert_eq!(below(&directory), Vec::<String>::new());
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line"])
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("started");
        assert_eq!(below(&directory), [format!("sh (process {})", child.id())]);
        drop(child.stdin.take());
        child.wait().expect("ended");
    }
}
