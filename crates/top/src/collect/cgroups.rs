//! Reads the I/O counters of control groups (version 2) from `io.stat`, which exists only if the io controller is enabled.

use std::fs;
use std::path::{Path, PathBuf};

use iotax_testbed::monitor::ProcFile;

use crate::raw::CgroupIo;

/// Maximum number of groups read; more suggest a program that leaks groups.
const MOST: usize = 4096;

/// Control groups of a machine, with their `io.stat` files held open.
#[derive(Debug)]
pub(super) struct Cgroups {
    top: PathBuf,
    /// Path and `io.stat` of each group without child groups; a parent's counters would count their I/O twice.
    groups: Vec<(String, ProcFile)>,
}

impl Cgroups {
    pub(super) fn new(root: &Path) -> Self {
        let mounted = root.join("sys/fs/cgroup");
        // On a machine with both cgroup versions, version 2 is mounted below.
        let unified = mounted.join("unified");
        let top = if unified.is_dir() { unified } else { mounted };
        Self { top, groups: Vec::new() }
    }

    /// Scans the cgroup hierarchy for new and removed groups.
    pub(super) fn refresh(&mut self) {
        let mut found = Vec::new();
        let mut open = vec![self.top.clone()];
        while let Some(directory) = open.pop() {
            if found.len() >= MOST {
                break;
            }
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            open.extend(
                entries
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
            // The root covers the whole machine and is not a group.
            if directory != self.top && directory.join("io.stat").exists() {
                found.push(format!("/{}", directory.strip_prefix(&self.top).unwrap_or(&directory).display()));
            }
        }
        found.sort();
        // A group's counters include those of its child groups, and only groups without children have processes.
        let leaves: Vec<String> =
            found.iter().filter(|path| !found.iter().any(|other| is_within(other, path))).cloned().collect();
        let mut known = std::mem::take(&mut self.groups);
        for path in leaves {
            let at = known.iter().position(|(name, _)| *name == path);
            let source = match at {
                Some(at) => known.swap_remove(at).1,
                None => ProcFile::new(self.top.join(&path[1..]).join("io.stat")),
            };
            self.groups.push((path, source));
        }
    }

    /// Reads the counters of all groups; removed groups are left out.
    pub(super) fn read(&mut self) -> Vec<CgroupIo> {
        let mut found = Vec::new();
        for (path, source) in &mut self.groups {
            let text = source.read().unwrap_or_default();
            found.extend(text.lines().filter_map(|line| parse(path, line)));
        }
        found
    }
}

fn is_within(path: &str, group: &str) -> bool {
    path.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'))
}

/// Parses a line of `io.stat`, such as `8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0`; `None` if a counter of reads or writes is
/// missing.
fn parse(path: &str, line: &str) -> Option<CgroupIo> {
    let (device, rest) = line.split_once(' ')?;
    let value = |key: &str| {
        let found = rest.split_ascii_whitespace().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
        found?.parse().ok()
    };
    Some(CgroupIo {
        path: path.to_owned(),
        device: device.to_owned(),
        read_bytes: value("rbytes")?,
        write_bytes: value("wbytes")?,
        reads: value("rios")?,
        writes: value("wios")?,
    })
}
