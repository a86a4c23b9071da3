//! Tests that do one operation on each of many files or empty directories: create, open, stat, rename or delete.
//!
//! As in bonnie++, a name is a number and up to 12 random letters. The letters come first if rw is random, so that the order of names is not
//! the order of creation. Files are always created one after the other. The other operations follow the directory's listing order (renames: the
//! order of names), or a random order if rw is random.

use std::ffi::{CStr, CString, OsStr};
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

use iotax_load::error::EngineError;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::{Io, IoKind};
use iotax_model::units::Bytes;
use iotax_model::workload::{FileSize, Test, Workload};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, renameat, statat, syncfs, unlinkat};

use super::Routine;
use super::meter::{Meter, Over};
use super::setup::{OwnDirectory, WorkerSetup};
use super::tree::{Filler, make_file};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Maximum number of letters in a name.
const MOST_LETTERS: u64 = 12;

/// The files of one worker and the operation to do on each.
struct Files {
    test: Test,
    own: OwnDirectory,
    /// Names of the files in the order of the operations.
    names: Vec<CString>,
    /// Names after the renames; empty in other tests.
    new_names: Vec<CString>,
    /// Sizes in bytes of the files to create.
    sizes: Vec<u64>,
    filler: Filler,
    passes: u64,
    /// Number of files created before each flush; `None` for no flushes in between.
    fsync: Option<u64>,
    end_fsync: bool,
}

/// Permissions of a new directory.
const DIRECTORY: Mode = Mode::from_raw_mode(0o755);

/// Creates the worker's directories, and its files unless creating them is the test.
pub(super) fn prepare(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let workload = &setup.workload;
    let test = setup.test;
    let creates = matches!(test, Test::Create | Test::MakeDirectory);
    let own = setup.own_directory()?;
    let mut random = SplitMix64::new(setup.seed, Purpose::Files, setup.number.into());
    let directories = workload.directories().unwrap_or(1);
    let mut names = names(workload, directories, &mut random);
    let mut sizes: Vec<u64> = names.iter().map(|_| size(workload.filesize, &mut random)).collect();
    let record = usize::try_from(workload.bs.0).unwrap_or(usize::MAX);
    let mut filler = Filler::new(&workload.content(), record, setup.seed, setup.number);
    let mut made = || -> io::Result<()> {
        for folder in (0..directories).filter(|_| directories > 1) {
            mkdirat(&own.root, format!("{folder:05}"), DIRECTORY)?;
        }
        if !creates {
            for (name, size) in names.iter().zip(sizes.drain(..)) {
                if test.is_on_directories() {
                    mkdirat(&own.root, name, DIRECTORY)?;
                } else {
                    make_file(own.root.as_fd(), name.as_c_str(), size, &mut filler)?;
                }
            }
            if workload.rw.is_random() {
                shuffle(&mut names, &mut random);
            } else if test != Test::Rename {
                names = listed(&own.root, directories)?;
            }
        }
        Ok(())
    };
    made().map_err(EngineError::system("making the files of a test"))?;
    own.settle(workload.invalidate, names.iter().filter(|_| !creates).map(|name| os(name)))?;
    let new_names = names.iter().filter(|_| test == Test::Rename).map(|name| renamed(name)).collect();
    Ok(Box::new(Files {
        test,
        names,
        new_names,
        sizes,
        filler,
        passes: workload.loops.unwrap_or(1),
        fsync: workload.fsync,
        end_fsync: workload.end_fsync,
        own,
    }))
}

fn os(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// Converts text without zero bytes to a C string.
fn c_name(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap_or_default()
}

/// Returns the names of a worker's files. With several directories, each gets the same number of files.
fn names(workload: &Workload, directories: u64, random: &mut SplitMix64) -> Vec<CString> {
    let files = workload.files().unwrap_or(0);
    let mut text = String::new();
    let name = |number: u64| {
        text.clear();
        if directories > 1 {
            let _ = write!(text, "{:05}/", number * directories / files);
        }
        let count = random.below(MOST_LETTERS + 1);
        let letters = |_| LETTERS[usize::try_from(random.below(LETTERS.len() as u64)).unwrap_or(0)] as char;
        let letters: String = (0..count).map(letters).collect();
        let _ = if workload.rw.is_random() {
            write!(text, "{letters}{number:07}")
        } else {
            write!(text, "{number:07}{letters}")
        };
        c_name(text.as_str())
    };
    (0..files).map(name).collect()
}

fn renamed(name: &CStr) -> CString {
    c_name([name.to_bytes(), b".new"].concat())
}

fn size(sizes: Option<FileSize>, random: &mut SplitMix64) -> u64 {
    sizes.map_or(0, |sizes| {
        let (Bytes(min), Bytes(max)) = (sizes.min(), sizes.max());
        min + random.below(max - min + 1)
    })
}

/// Shuffles names (Durstenfeld, "Random permutation", CACM 7(7), 1964).
fn shuffle(names: &mut [CString], random: &mut SplitMix64) {
    for last in (1..names.len()).rev() {
        names.swap(last, usize::try_from(random.below(last as u64 + 1)).unwrap_or(0));
    }
}

/// Lists the names of all files in the order in which readdir(3) returns them.
fn listed(root: &File, directories: u64) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for folder in 0..directories {
        let prefix = if directories > 1 { format!("{folder:05}/") } else { String::new() };
        let path = if directories > 1 { prefix.as_str() } else { "." };
        let directory =
            openat(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for entry in Dir::new(directory)? {
            let entry = entry?;
            if !entry.file_name().to_bytes().starts_with(b".") {
                names.push(c_name([prefix.as_bytes(), entry.file_name().to_bytes()].concat()));
            }
        }
    }
    Ok(names)
}

impl Files {
    fn create(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let flush = Io { direction: IoKind::Sync, offset: 0, length: 0 };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        for (number, (name, size)) in (1..).zip(self.names.iter().zip(&self.sizes)) {
            let mode = Mode::from_raw_mode(0o644);
            let made = meter.operation(0, || Ok(File::from(openat(&self.own.root, name, flags, mode)?)))?;
            let Some(file) = made else { continue };
            self.filler.each(*size, |offset, record| write(&file, offset, record, meter))?;
            if self.fsync.is_some_and(|files| number % files == 0) {
                meter.io(flush, || file.sync_all().map(|()| 0))?;
            }
        }
        if self.end_fsync {
            meter.io(flush, || Ok(syncfs(&self.own.root).map(|()| 0)?))?;
        }
        ControlFlow::Continue(())
    }

    fn each(
        &self,
        meter: &mut Meter,
        call: impl Fn(&File, &CStr) -> rustix::io::Result<()>,
    ) -> ControlFlow<Over> {
        for name in &self.names {
            meter.operation(0, || Ok(call(&self.own.root, name)?))?;
        }
        ControlFlow::Continue(())
    }
}

/// Writes one record of a file through the meter; a failure counts but does not end the test.
pub(super) fn write(file: &File, offset: u64, record: &[u8], meter: &mut Meter) -> ControlFlow<Over> {
    let length = u32::try_from(record.len()).unwrap_or(u32::MAX);
    let io = Io { direction: IoKind::Write, offset, length };
    meter.io(io, || io::Write::write(&mut &*file, record))?;
    ControlFlow::Continue(())
}

impl Routine for Files {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let readable = OFlags::RDONLY | OFlags::CLOEXEC;
        match self.test {
            Test::Open => {
                for _ in 0..self.passes {
                    self.each(meter, |root, name| openat(root, name, readable, Mode::empty()).map(drop))?;
                }
            }
            Test::Stat | Test::StatDirectory => {
                for _ in 0..self.passes {
                    self.each(meter, |root, name| statat(root, name, AtFlags::SYMLINK_NOFOLLOW).map(drop))?;
                }
            }
            Test::Rename => {
                for (name, new) in self.names.iter().zip(&self.new_names) {
                    let root = &self.own.root;
                    meter.operation(0, || Ok(renameat(root, name, root, new)?))?;
                }
            }
            Test::Delete => self.each(meter, |root, name| unlinkat(root, name, AtFlags::empty()))?,
            Test::MakeDirectory => self.each(meter, |root, name| mkdirat(root, name, DIRECTORY))?,
            Test::RemoveDirectory => {
                self.each(meter, |root, name| unlinkat(root, name, AtFlags::REMOVEDIR))?;
            }
            _ => self.create(meter)?,
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::workload::{Rw, WorkloadKeys};
    use std::collections::HashSet;

    fn named(rw: Rw, directories: u64) -> Vec<String> {
        let keys = WorkloadKeys {
            rw: Some(rw),
            test: Some(Test::Create),
            nrfiles: Some(1000),
            ..WorkloadKeys::default()
        };
        let workload = keys.complete(&WorkloadKeys::default());
        let names = names(&workload, directories, &mut SplitMix64::new(1, Purpose::Files, 0));
        names.iter().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn names_follow_the_order_of_their_making_or_do_not() {
        let (ordered, mixed) = (named(Rw::Write, 1), named(Rw::RandWrite, 1));
        assert!(ordered.is_sorted() && !mixed.is_sorted());
        for names in [ordered, mixed] {
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 1000);
            assert!(names.iter().all(|name| (7..=19).contains(&name.len())));
        }
        let spread = named(Rw::Write, 3);
        for (folder, files) in [("00000/", 334), ("00001/", 333), ("00002/", 333)] {
            assert_eq!(spread.iter().filter(|name| name.starts_with(folder)).count(), files, "{folder}");
        }
    }

    #[test]
    fn a_shuffle_keeps_all_and_leaves_hardly_one_in_its_place() {
        let all: Vec<CString> = (0..1000).map(|n| c_name(n.to_string())).collect();
        let mut shuffled = all.clone();
        shuffle(&mut shuffled, &mut SplitMix64::new(1, Purpose::Files, 0));
        let kept = all.iter().zip(&shuffled).filter(|(one, other)| one == other).count();
        assert!(kept < 10, "{kept}");
        shuffled.sort_by_key(|name| name.to_string_lossy().parse::<u32>().ok());
        assert_eq!(shuffled, all);
    }

    #[test]
    fn sizes_are_spread_over_their_range() {
        let range = "1-4".parse().ok();
        let mut random = SplitMix64::new(1, Purpose::Files, 0);
        let sizes: HashSet<u64> = (0..100).map(|_| size(range, &mut random)).collect();
        assert_eq!((sizes, size(None, &mut random)), (HashSet::from([1, 2, 3, 4]), 0));
    }
}
