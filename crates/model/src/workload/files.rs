//! Tests that create files: number and sizes of the files, the space they need, and time estimates.

use std::fmt;
use std::str::FromStr;

use super::text::{TextError, text_form};
use super::{ASSUMED, DEFAULT_SIZE, Kind, Test, Workload, WorkloadError};
use crate::units::{Bytes, Nanos};

/// Maximum number of files that each job creates.
pub(super) const MOST_FILES: u64 = 1_000_000;
/// Maximum size of a file, from the limits of the archive format.
const LARGEST: Bytes = Bytes(1 << 31);
/// Default number of files in tests on single files.
const FILES: u64 = 1000;
/// Default number of files in tests on trees: a third of those in the Linux kernel's source.
const TREE_FILES: u64 = 24_000;
/// Default total bytes in a tree of [`TREE_FILES`] files; for another number of files, in proportion.
const TREE_BYTES: u64 = 320 << 20;
/// Minimum space assumed for a file. ext4 has one inode per 16 KiB of the device, so many small files need this much each.
const INODE: u64 = 16 << 10;
/// Assumed nanoseconds per byte, per seek and per file in tests that issue many system calls.
const BYTE_NS: u64 = 1_000;
const SEEK_NS: u64 = 1_000_000;
const FILE_NS: u64 = 100_000;
const BLOCK: u64 = 4 << 10;

/// File sizes, uniformly distributed between two limits. Text form: `4k`, or `0-16k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSize {
    min: Bytes,
    max: Bytes,
}

impl FileSize {
    /// Returns the lower limit of the file sizes.
    #[must_use]
    pub const fn min(&self) -> Bytes {
        self.min
    }

    /// Returns the upper limit of the file sizes.
    #[must_use]
    pub const fn max(&self) -> Bytes {
        self.max
    }

    fn parse(text: &str) -> Result<Self, String> {
        let size = |text: &str| -> Result<Bytes, String> {
            let size: Bytes = text.trim().parse().map_err(|_| format!("{text:?} is not a size"))?;
            if size > LARGEST { Err(format!("{size} is more than {LARGEST}")) } else { Ok(size) }
        };
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (size(min)?, size(max)?),
            None => (size(text)?, size(text)?),
        };
        if min > max { Err(format!("{min} is more than {max}")) } else { Ok(Self { min, max }) }
    }
}

impl fmt::Display for FileSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}-{}", self.min, self.max) }
    }
}

impl FromStr for FileSize {
    type Err = TextError;

    fn from_str(text: &str) -> Result<Self, TextError> {
        Self::parse(text).map_err(|reason| {
            TextError::new(
                "filesize",
                text,
                reason,
                "a size up to 2GiB or a range of them, such as 4k or 0-16k",
            )
        })
    }
}

text_form!(FileSize);

impl Workload {
    /// Returns the number of files of each job, or of directories in a test on directories; `None` unless the workload is a test of
    /// metadata operations.
    #[must_use]
    pub fn files(&self) -> Option<u64> {
        let test = self.kind.test().filter(|test| test.is_on_files())?;
        Some(self.nrfiles.unwrap_or(if test.is_on_trees() { TREE_FILES } else { FILES }))
    }

    /// Returns the total bytes in the files of each job's tree; `None` unless the workload is a test on trees.
    #[must_use]
    pub fn tree_bytes(&self) -> Option<Bytes> {
        self.kind.test().filter(|test| test.is_on_trees())?;
        let files = self.files()?;
        Some(self.size.unwrap_or(Bytes(files.saturating_mul(TREE_BYTES) / TREE_FILES)))
    }

    /// Returns the number of directories that hold each job's files; `None` unless the workload is a test of metadata operations.
    #[must_use]
    pub fn directories(&self) -> Option<u64> {
        let test = self.kind.test().filter(|test| test.is_on_files())?;
        // The kernel source has 14 files per directory.
        let usual = if test.is_on_trees() { (self.files()? / 14).max(1) } else { 1 };
        Some(self.nrdirs.unwrap_or(usual))
    }

    /// Returns the maximum space that the workload's files take on the target's filesystem, in addition to the area; 0 for workloads that
    /// create no files.
    #[must_use]
    pub fn room(&self) -> Bytes {
        let Some(test) = self.kind.test().filter(|_| self.needs_directory()) else { return Bytes(0) };
        match test {
            Test::Sqlite => return self.room_of_databases(),
            Test::Pgbench => return self.room_of_cluster(),
            _ => {}
        }
        let (Some(files), Some(directories)) = (self.files(), self.directories()) else {
            let files = if test == Test::Copy { 2 } else { 1 };
            return Bytes(self.size.unwrap_or(DEFAULT_SIZE).0.saturating_mul(files));
        };
        let each = if let Some(bytes) = self.tree_bytes() {
            // The last block of each file is half empty on average. The factor 2 is for the archive of the tree, which is written or exists next to
            // the tree.
            let blocks = bytes.0.saturating_add(files.saturating_mul(BLOCK));
            blocks.saturating_mul(2).max(files.saturating_mul(INODE))
        } else {
            let largest = self.filesize.map_or(0, |size| size.max().0.next_multiple_of(BLOCK));
            files.saturating_mul(largest.saturating_add(BLOCK).max(INODE))
        };
        let each = each.saturating_add(directories.saturating_mul(INODE));
        Bytes(each.saturating_mul(self.numjobs.into()))
    }

    /// Returns the maximum time to create or remove the workload's files, and to read a trace whose offsets are mapped, if storage is at least as fast as the assumed minimum.
    #[must_use]
    pub fn set_up_at_most(&self) -> Nanos {
        /// Assumed minimum speed of storage: bytes per second, and files per second.
        const SLOWEST: (u64, u64) = (10_000_000, 100);
        /// Seconds in which a trace is read: 100 GB at 30 MB/s.
        const READ_TRACE: u64 = 3600;
        let files = self.files().unwrap_or(0).saturating_mul(u64::from(self.numjobs));
        let reading = if self.maps_offsets() { READ_TRACE } else { 0 };
        Nanos::from_secs(reading + self.room().0 / SLOWEST.0 + files / SLOWEST.1)
    }

    /// Estimates the time in nanoseconds of a test whose duration depends on the number of system calls more than on bytes; `None` for
    /// other work.
    pub(super) fn time_of_calls(&self) -> Option<u64> {
        let test = self.kind.test()?;
        let passes = self.loops.unwrap_or(1);
        let bytes = self.io_size.or(self.size).unwrap_or(DEFAULT_SIZE).0;
        let (calls, each) = match test {
            Test::Putc | Test::Getc => (bytes, BYTE_NS),
            Test::Seeks => (bytes / self.bs.0.max(1), SEEK_NS),
            _ => (self.files()?, FILE_NS),
        };
        let content = self.tree_bytes().map_or(0, |bytes| bytes.0).saturating_mul(1_000_000_000 / ASSUMED);
        Some(calls.saturating_mul(each).saturating_add(content).saturating_mul(passes))
    }

    /// Estimates the time in nanoseconds to prepare a workload: to create its files or cluster, and to read the area into the page cache for
    /// `pre_read`.
    pub(super) fn time_of_set_up(&self) -> u64 {
        let files = self.files().unwrap_or(0).saturating_mul(u64::from(self.numjobs)).saturating_mul(FILE_NS);
        let ahead = if self.pre_read { self.size.unwrap_or(DEFAULT_SIZE).0 } else { 0 };
        let bytes = ahead.saturating_add(self.tree_bytes().map_or(0, |bytes| bytes.0));
        files
            .saturating_add(bytes.saturating_mul(1_000_000_000 / ASSUMED))
            .saturating_add(self.time_of_cluster())
    }

    /// Returns whether the workload works on files that it creates in a directory next to the area, instead of on the area.
    #[must_use]
    pub const fn needs_directory(&self) -> bool {
        matches!(self.kind, Kind::Files(test) if test.needs_directory())
    }

    /// Returns whether the caches of the whole machine are dropped before the workload. Metadata tests need this, because dentries and inodes
    /// cannot be dropped for single files.
    #[must_use]
    pub fn drops_machine_caches(&self) -> bool {
        self.invalidate && (self.invalidate_machine || self.kind.test().is_some_and(Test::is_on_files))
    }

    /// Rejects keys about files that have no effect in the workload's test, or that contradict each other.
    pub(super) fn check_files(&self) -> Result<(), WorkloadError> {
        let refuse = |key, value: &dyn fmt::Display, accepted: &str| Err(self.refusal(key, value, accepted));
        let Some(test) = self.kind.test().filter(|test| test.is_on_files()) else {
            const NEEDED: &str = "only a test of files has it, such as test = create";
            return match (self.nrfiles, self.nrdirs, self.filesize) {
                (Some(files), ..) => refuse("nrfiles", &files, NEEDED),
                (_, Some(directories), _) => refuse("nrdirs", &directories, NEEDED),
                (.., Some(size)) => refuse("filesize", &size, NEEDED),
                _ => Ok(()),
            };
        };
        let (files, directories) = (self.files().unwrap_or(0), self.directories().unwrap_or(0));
        if files == 0 || files > MOST_FILES {
            return refuse("nrfiles", &files, &format!("accepted: 1 to {MOST_FILES}"));
        }
        if directories == 0 || directories > files {
            return refuse("nrdirs", &directories, &format!("accepted: 1 to nrfiles = {files}"));
        }
        if self.rw.modifies() && !self.rw.writes() || self.rw.reads() && self.rw.writes() {
            let accepted =
                "of files it says whether they come in order (read, write) or not (randread, randwrite)";
            return refuse("rw", &self.rw, accepted);
        }
        let again = self.loops.filter(|times| *times > 1);
        let is_repeatable = matches!(test, Test::Open | Test::Stat | Test::StatDirectory | Test::Walk);
        if let (Some(times), false) = (again, is_repeatable) {
            return refuse("loops", &times, &format!("test = {test} can be done once; leave it out"));
        }
        if let (Some(size), true) = (self.filesize, test.is_on_directories()) {
            return refuse("filesize", &size, &format!("test = {test} has no content; leave it out"));
        }
        if let (Some(size), true) = (self.filesize, test.is_on_trees()) {
            return refuse(
                "filesize",
                &size,
                "a tree's files are of all sizes; size is that of the whole tree",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKeys;

    fn workload(keys: &[(&str, &str)]) -> Workload {
        let mut own = WorkloadKeys::default();
        let of_tests = [("direct", "0"), ("ramp_time", "0s")];
        of_tests.iter().chain(keys).for_each(|(key, text)| own.set(key, text).expect(text));
        own.complete(&WorkloadKeys::default())
    }

    #[test]
    fn a_size_is_read_back_from_its_text() {
        for (text, min, max) in [("4k", 4096, 4096), ("0", 0, 0), ("0-16k", 0, 16384)] {
            let size: FileSize = text.parse().expect(text);
            assert_eq!((size.min(), size.max(), size.to_string().as_str()), (Bytes(min), Bytes(max), text));
        }
        for (text, words) in [("k", "\"k\""), ("8k-4k", "8k is more than 4k"), ("3g", "3g"), ("4k-", "\"\"")]
        {
            let error = text.parse::<FileSize>().expect_err(text).to_string();
            assert!(error.contains(words) && error.contains("0-16k"), "{error}");
        }
    }

    #[test]
    fn files_that_no_test_can_make_are_refused() {
        for (keys, refusal) in [
            (&[("nrfiles", "5")][..], "nrfiles = 5: only a test of files"),
            (&[("test", "getc"), ("nrdirs", "5")], "nrdirs = 5: only a test of files"),
            (&[("test", "copy"), ("size", "1m"), ("filesize", "4k")], "filesize = 4k: only a test of files"),
            (&[("test", "stat"), ("nrfiles", "0")], "nrfiles = 0: accepted: 1 to 1000000"),
            (&[("test", "stat"), ("nrdirs", "1001")], "nrdirs = 1001: accepted: 1 to nrfiles = 1000"),
            (&[("test", "create"), ("rw", "rw")], "rw = rw: of files it says"),
            (&[("test", "delete"), ("loops", "2")], "loops = 2: test = delete can be done once"),
            (&[("test", "mkdir"), ("loops", "2")], "loops = 2: test = mkdir can be done once"),
            (&[("test", "rmdir"), ("filesize", "4k")], "filesize = 4k: test = rmdir has no content"),
            (&[("test", "pack"), ("filesize", "4k")], "filesize = 4k: a tree's files are of all sizes"),
        ] {
            let error = workload(keys).check().expect_err(refusal).to_string();
            assert!(error.contains(refusal), "{error}");
        }
        for keys in [
            &[("test", "create"), ("nrfiles", "5"), ("nrdirs", "5"), ("filesize", "0-4k")][..],
            &[("test", "walk"), ("size", "10m"), ("nrfiles", "700")],
        ] {
            assert_eq!(workload(keys).check(), Ok(()), "{keys:?}");
        }
    }

    #[test]
    fn the_room_of_files_is_that_of_all_jobs() {
        assert_eq!(workload(&[]).room(), Bytes(0));
        assert_eq!(workload(&[("test", "getc"), ("size", "1g")]).room(), Bytes(0));
        assert_eq!(workload(&[("test", "copy"), ("size", "1m")]).room(), Bytes(2 << 20));
        let files = [("test", "create"), ("nrfiles", "100"), ("filesize", "1-100k"), ("numjobs", "3")];
        assert_eq!(workload(&files).room(), Bytes(3 * (100 * (104 << 10) + (16 << 10))));
        // Empty files need inodes too.
        assert_eq!(workload(&files[..2]).room(), Bytes(101 * (16 << 10)));
        let tree = workload(&[("test", "pack")]);
        assert_eq!((tree.files(), tree.directories()), (Some(24_000), Some(1714)));
        assert_eq!(tree.tree_bytes(), Some(Bytes(320 << 20)));
        assert!(tree.room() > Bytes(640 << 20) && tree.room() < Bytes(1 << 30), "{}", tree.room());
        let small = workload(&[("test", "pack"), ("nrfiles", "240")]);
        assert_eq!(small.tree_bytes(), Some(Bytes((320 << 20) / 100)));
    }
}
