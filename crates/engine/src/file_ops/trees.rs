//! Tests that stat or delete every entry of a tree.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use iotax_load::error::EngineError;
use iotax_load::request::{Io, IoKind};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};

use super::Routine;
use super::meter::{Meter, Over};
use super::setup::{OwnDirectory, WorkerSetup};
use super::tree::{self, Entry, Filler};

/// The kind of I/O under which a failed directory listing is counted.
const LISTING: Io = Io { direction: IoKind::Read, offset: 0, length: 0 };

/// Plans the entries of a worker's tree.
pub(super) fn planned(setup: &WorkerSetup) -> Vec<Entry> {
    let workload = &setup.workload;
    let (files, directories) = (workload.files().unwrap_or(0), workload.directories().unwrap_or(1));
    let bytes = workload.tree_bytes().map_or(0, |bytes| bytes.0);
    tree::plan(files, directories, bytes, setup.seed ^ u64::from(setup.number))
}

/// Creates the content generator for a worker's tree.
pub(super) fn filler(setup: &WorkerSetup) -> Filler {
    let record = usize::try_from(setup.workload.bs.0).unwrap_or(usize::MAX);
    Filler::new(&setup.workload.content(), record, setup.seed, setup.number)
}

/// Creates a directory with a worker's tree and flushes the directory. If the workload's `invalidate` is set, also drops caches as far as
/// permitted.
pub(super) fn made(setup: &WorkerSetup) -> Result<OwnDirectory, EngineError> {
    let own = setup.own_directory()?;
    let entries = planned(setup);
    tree::make(own.root.as_fd(), &entries, &mut filler(setup))
        .map_err(EngineError::system("making a tree of files"))?;
    let files = entries.iter().filter(|entry| entry.size.is_some());
    own.settle(setup.workload.invalidate, files.map(|entry| entry.path.as_ref()))?;
    Ok(own)
}

/// Lists a directory. Returns each entry's path from the tree's root, and true if the entry is a directory.
pub(super) fn list(root: &File, folder: &str) -> io::Result<Vec<(String, bool)>> {
    let path = if folder.is_empty() { "." } else { folder };
    let opened = openat(root, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::new(opened)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy();
        if name == "." || name == ".." {
            continue;
        }
        let path = if folder.is_empty() { name.into_owned() } else { format!("{folder}/{name}") };
        let kind = match entry.file_type() {
            // Not every filesystem reports the type.
            FileType::Unknown => {
                FileType::from_raw_mode(statat(root, &path, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)
            }
            other => other,
        };
        found.push((path, kind == FileType::Directory));
    }
    Ok(found)
}

/// Lists a directory like [`list`], but as part of the test: the time passes in the window, but no operation is counted.
pub(super) fn listed(root: &File, folder: &str, meter: &mut Meter) -> ControlFlow<Over, Vec<(String, bool)>> {
    meter.aside(LISTING, || list(root, folder))
}

/// The test that walks a tree and stats every entry.
struct Walk {
    own: OwnDirectory,
    passes: u64,
}

pub(super) fn walk(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    Ok(Box::new(Walk { own: made(setup)?, passes: setup.workload.loops.unwrap_or(1) }))
}

impl Routine for Walk {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let root = &self.own.root;
        for _ in 0..self.passes {
            let mut folders = vec![String::new()];
            while let Some(folder) = folders.pop() {
                for (path, is_directory) in listed(root, &folder, meter)? {
                    meter.operation(0, || Ok(statat(root, &path, AtFlags::SYMLINK_NOFOLLOW)?))?;
                    if is_directory {
                        folders.push(path);
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// The test that deletes every entry, directories after their contents.
struct Remove(OwnDirectory);

pub(super) fn remove(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    Ok(Box::new(Remove(made(setup)?)))
}

impl Routine for Remove {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        remove_below(&self.0.root, "", meter)
    }
}

fn remove_below(root: &File, folder: &str, meter: &mut Meter) -> ControlFlow<Over> {
    for (path, is_directory) in listed(root, folder, meter)? {
        let mut flags = AtFlags::empty();
        if is_directory {
            remove_below(root, &path, meter)?;
            flags = AtFlags::REMOVEDIR;
        }
        meter.operation(0, || Ok(unlinkat(root, &path, flags)?))?;
    }
    ControlFlow::Continue(())
}
