//! Reads /proc/PID/io of processes through files that stay open. An open file belongs to one process: reads fail once
//! that process has ended, even if its PID is reused.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::numbers;
use crate::raw::{Process, ProcessIo};

/// Size in bytes of the buffer for /proc/PID/io, which has seven lines of a name and a number.
const LONGEST: usize = 512;
/// Maximum number of attempts to read a process's counters. An attempt is repeated if the kernel added an ended child's counters meanwhile.
const TRIES: u32 = 3;
/// Index of `cminflt` among the fields after the name in /proc/PID/stat (proc_pid_stat(5)).
const CHILDREN_FAULTS: usize = 8;

/// Processes of a machine, with their counter files held open.
#[derive(Debug)]
pub(super) struct Processes {
    proc: PathBuf,
    known: HashMap<u32, Known>,
    denied: usize,
}

/// A process with its counters at the last reading.
#[derive(Debug)]
struct Known {
    /// The open /proc/PID/io; `None` if this user may not read it.
    file: Option<File>,
    process: Process,
}

impl Processes {
    pub(super) fn new(root: &Path) -> Self {
        Self { proc: root.join("proc"), known: HashMap::new(), denied: 0 }
    }

    /// Returns the number of processes whose counters this user may not read.
    pub(super) fn denied(&self) -> usize {
        self.denied
    }

    /// Reads the counters of all processes that this user may read.
    pub(super) fn read(&mut self) -> Vec<Process> {
        let mut known = std::mem::take(&mut self.known);
        self.denied = 0;
        let mut found = Vec::new();
        for pid in numbers(&self.proc) {
            let current =
                known.remove(&pid).and_then(|known| self.again(pid, known)).or_else(|| self.open(pid));
            let Some(current) = current else { continue };
            if current.file.is_some() {
                found.push(current.process.clone());
            } else {
                self.denied += 1;
            }
            self.known.insert(pid, current);
        }
        found.sort_by_key(|process| process.pid);
        found
    }

    /// Reads a known process again; `None` if the process has ended.
    fn again(&self, pid: u32, mut known: Known) -> Option<Known> {
        let Some(file) = &known.file else { return Some(known) };
        let io = read(file).ok()?;
        if io != known.process.io {
            // The process may have executed another program since.
            (known.process.name, known.process.cgroup) = self.names(pid)?;
            (known.process.io, known.process.children_faults) = self.counters(pid, file)?;
        }
        Some(known)
    }

    /// Reads a process's counters together with the page faults of the ended children that they include; `None` if the process has ended.
    fn counters(&self, pid: u32, file: &File) -> Option<(ProcessIo, u64)> {
        let stat = self.directory(pid).join("stat");
        let faults = || children_faults(&fs::read_to_string(&stat).ok()?);
        let (mut io, mut before) = (ProcessIo::default(), faults()?);
        // The parent may wait for a child between the two reads.
        for _ in 0..TRIES {
            io = read(file).ok()?;
            let after = faults()?;
            if std::mem::replace(&mut before, after) == after {
                break;
            }
        }
        Some((io, before))
    }

    fn open(&self, pid: u32) -> Option<Known> {
        let opened = File::open(self.directory(pid).join("io")).and_then(|file| read(&file).map(|_| file));
        let file = match opened {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(_) => return None,
        };
        let (io, children_faults) = match &file {
            Some(file) => self.counters(pid, file)?,
            None => Default::default(),
        };
        let (name, cgroup) = self.names(pid)?;
        Some(Known { file, process: Process { pid, name, cgroup, io, children_faults } })
    }

    fn directory(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// Reads the name and the control group of a process; `None` if the process has ended.
    fn names(&self, pid: u32) -> Option<(String, Option<String>)> {
        let directory = self.directory(pid);
        let name = fs::read(directory.join("comm")).ok()?;
        let mut name = String::from_utf8_lossy(&name).trim_end().to_owned();
        // A program started through /proc/self/exe, such as iotax's agent, has the name `exe`.
        if name == "exe"
            && let Ok(program) = fs::read_link(directory.join("exe"))
            && let Some(program) = program.file_name()
        {
            program.to_string_lossy().trim_end_matches(" (deleted)").clone_into(&mut name);
        }
        let groups = fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
        let group = groups.lines().find_map(|line| line.strip_prefix("0::"));
        Some((name, group.map(str::to_owned)))
    }
}

fn read(file: &File) -> io::Result<ProcessIo> {
    let mut text = [0; LONGEST];
    let length = file.read_at(&mut text, 0)?;
    let text = String::from_utf8_lossy(&text[..length]);
    parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn children_faults(stat: &str) -> Option<u64> {
    // A process name may contain parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(CHILDREN_FAULTS)?.parse().ok()
}

fn parse(text: &str) -> Option<ProcessIo> {
    let value = |key: &str| {
        text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))?.trim().parse().ok()
    };
    Some(ProcessIo {
        read_calls: value("syscr")?,
        write_calls: value("syscw")?,
        read_bytes: value("read_bytes")?,
        write_bytes: value("write_bytes")?,
    })
}
