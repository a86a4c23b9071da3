//! Child processes that end with the thread that started them, and the CPU time of all their descendants.
#![expect(unsafe_code, reason = "what is called between fork and exec")]

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use iotax_model::record::CpuTime;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Prepares a program that the kernel ends by `signal` when the calling thread ends, however that ends.
pub(super) fn bound(program: &Path, signal: Signal) -> Command {
    let mut command = Command::new(program);
    // A process group of its own, so that Ctrl-C reaches only the runner.
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let parent = getpid();
    // SAFETY: between fork and exec the closure makes system calls only, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal))?;
            // The parent may have ended before the signal was set.
            if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        });
    }
    command
}

/// Runs a program and waits for its exit.
///
/// # Errors
/// It could not be started, or failed; the text is what it wrote to stderr.
pub(super) fn finish(command: &mut Command) -> Result<(), String> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().display().to_string();
    let output = command.stderr(Stdio::piped()).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{name}: {} ({})", said, output.status))
}

/// The standard error output of a program, in memory.
#[derive(Debug)]
pub(super) struct ErrorOutput(File);

impl ErrorOutput {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(memfd_create("stderr", MemfdFlags::CLOEXEC)?.into()))
    }

    /// Returns the output as a program's standard error.
    pub(super) fn stdio(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// Returns what was written so far, without surrounding white space.
    pub(super) fn text(&self) -> String {
        let mut bytes = Vec::new();
        let length = self.0.metadata().map_or(0, |found| found.len());
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        let length = self.0.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..length]).trim().to_owned()
    }
}

/// Processes with all their descendants.
#[derive(Debug)]
pub(super) struct ProcessTree {
    roots: Vec<u32>,
    /// The roots and their descendants when they were last looked for.
    members: BTreeSet<u32>,
}

impl ProcessTree {
    pub(super) const fn new(roots: Vec<u32>) -> Self {
        Self { roots, members: BTreeSet::new() }
    }

    /// Searches for the descendants again. Returns the CPU time of all, including those of descendants that have ended.
    pub(super) fn cpu(&mut self) -> io::Result<CpuTime> {
        let all = processes()?;
        self.members = self.roots.iter().copied().collect();
        loop {
            let children = all.iter().filter(|(_, process)| self.members.contains(&process.parent));
            let found: Vec<u32> =
                children.map(|(id, _)| *id).filter(|id| !self.members.contains(id)).collect();
            if found.is_empty() {
                break;
            }
            self.members.extend(found);
        }
        let mut sum = CpuTime::default();
        for process in self.members.iter().filter_map(|id| all.get(id)) {
            sum.user_ns += process.cpu.user_ns;
            sum.system_ns += process.cpu.system_ns;
        }
        Ok(sum)
    }

    /// Returns the bytes that system calls of the processes have read and written, by the kernel's count; `None` if it cannot be read.
    pub(super) fn moved(&self) -> Option<u64> {
        // A member that has ended counts in its parent.
        let texts = self.members.iter().filter_map(|id| match fs::read_to_string(format!("/proc/{id}/io")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.ok()),
        });
        let moved = texts.map(|text| {
            let text = text?;
            let of = |key| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
            Some(of("rchar:")? + of("wchar:")?)
        });
        moved.sum()
    }
}

/// Returns the id of a child of the process `parent`; `None` if it has none.
pub(super) fn child_of(parent: u32) -> Option<u32> {
    processes().ok()?.into_iter().find(|(_, process)| process.parent == parent).map(|(id, _)| id)
}

/// A process with its CPU time and that of its children that have ended.
struct Process {
    parent: u32,
    cpu: CpuTime,
}

/// Reads all processes of the machine that are visible in /proc, by id.
fn processes() -> io::Result<HashMap<u32, Process>> {
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended since.
        let text = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        all.extend(process(&text, tick_ns).map(|process| (id, process)));
    }
    Ok(all)
}

/// Parses /proc/PID/stat.
fn process(text: &str, tick_ns: u64) -> Option<Process> {
    // The name, in parentheses, may contain anything.
    let (_, rest) = text.rsplit_once(") ")?;
    let words: Vec<&str> = rest.split(' ').collect();
    let ticks = |index: usize| words.get(index)?.parse::<u64>().ok();
    let both = |one, other| Some((ticks(one)? + ticks(other)?) * tick_ns);
    let cpu = CpuTime { user_ns: both(11, 13)?, system_ns: both(12, 14)? };
    Some(Process { parent: words.get(1)?.parse().ok()?, cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_ended_children_are_their_parents() {
        let line = "17 (a ) b) S 1 17 17 0 -1 4194560 1 2 3 4 5 6 70 80 20 0 1 0 99 0 0";
        let process = process(line, 10).expect("a process");
        assert_eq!((process.parent, process.cpu), (1, CpuTime { user_ns: 750, system_ns: 860 }));
        assert!(super::process("17 (a) S 1", 10).is_none());
    }

    #[test]
    fn a_tree_has_its_descendants() {
        let mut shell = bound(Path::new("/bin/sh"), Signal::KILL);
        let mut child = shell.args(["-c", "sh -c 'sleep 60; true'; true"]).spawn().expect("started");
        let mut tree = ProcessTree::new(vec![child.id()]);
        let is_whole = (0..1000).any(|_| {
            iotax_model::threads::sleep(std::time::Duration::from_millis(10));
            tree.cpu().expect("read");
            tree.members.len() == 3
        });
        assert!(is_whole && tree.moved().is_some_and(|moved| moved > 0), "{:?}", tree.members);
        for id in tree.members.iter().filter_map(|id| rustix::process::Pid::from_raw(id.cast_signed())) {
            let _ = rustix::process::kill_process(id, Signal::KILL);
        }
        child.wait().expect("ended");
    }

    #[test]
    fn a_failure_is_quoted() {
        let mut shell = bound(Path::new("/bin/sh"), Signal::KILL);
        let said = finish(shell.args(["-c", "echo broken >&2; exit 3"])).expect_err("failed");
        assert_eq!(said, "sh: broken (exit status: 3)");
    }
}
