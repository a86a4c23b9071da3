//! Measures CPU time of kernel threads that serve the layers below a target.
//!
//! A thread is recognised by the device or the filesystem type in its name: `loop0`, `jbd2/vda-8`, `md0_raid1`, `btrfs-cleaner`. The name
//! of a kworker shows only its last task, so single readings mean little, and only sums over a window are used. High-priority workers
//! (`kworker/1:0H`) handle block I/O of all devices and count as `kworker`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::record::CpuTime;

use super::threads::{self, ThreadCounters};

/// Process flag of kernel threads: PF_KTHREAD in the kernel's include/linux/sched.h.
pub(crate) const KERNEL_THREAD: u64 = 0x0020_0000;

/// A reader of the CPU time of kernel threads. The first reading visits every process (about 5 us each), later readings only kernel threads
/// and new processes. Use it only at the start and end of a window.
#[derive(Debug)]
pub struct KernelThreads {
    proc: PathBuf,
    /// Kernel names and numbers (`254:0`) of the devices below the target.
    devices: Vec<String>,
    filesystems: Vec<String>,
    /// Ids of processes that are no kernel threads, which later readings skip.
    others: BTreeSet<u32>,
}

/// CPU time counters of all kernel threads at one moment, each with the name under which its time is summed; `None` for threads that do not
/// serve the target.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelCounters {
    threads: Vec<(Option<String>, ThreadCounters)>,
}

impl KernelThreads {
    /// Selects threads that serve the block devices `disks`, given by kernel names, or filesystems of these types, such as `btrfs`. /proc
    /// is below `root`.
    #[must_use]
    pub fn new(root: &Path, disks: &[String], filesystems: &[String]) -> Self {
        let proc = root.join("proc");
        let table = fs::read_to_string(proc.join("diskstats")).unwrap_or_default();
        let numbers = table.lines().filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (major, minor, name) = (fields.next()?, fields.next()?, fields.next()?);
            disks.iter().any(|disk| disk == name).then(|| format!("{major}:{minor}"))
        });
        let devices = disks.iter().cloned().chain(numbers).collect();
        Self { proc, devices, filesystems: filesystems.to_vec(), others: BTreeSet::new() }
    }

    /// Reads the CPU time of every kernel thread.
    pub fn read(&mut self) -> KernelCounters {
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let ids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let mut counters = KernelCounters::default();
        for id in ids {
            if self.others.contains(&id) {
                continue;
            }
            let directory = self.proc.join(id.to_string());
            let Ok(stat) = fs::read_to_string(directory.join("stat")) else { continue };
            let Some((name, flags)) = name_and_flags(&stat) else { continue };
            let role = self.role(name);
            if flags & KERNEL_THREAD == 0 {
                self.others.insert(id);
                continue;
            }
            let schedstat = fs::read_to_string(directory.join("schedstat")).unwrap_or_default();
            counters
                .threads
                .extend(ThreadCounters::parse("", id, &stat, &schedstat).map(|thread| (role, thread)));
        }
        counters
    }

    /// Returns the name under which a thread's CPU time is counted; `None` if the thread does not serve the target.
    fn role(&self, name: &str) -> Option<String> {
        let Some(worker) = name.strip_prefix("kworker/") else {
            return self.serves(name).then(|| name.to_owned());
        };
        // kworker/u8:2-loop0, and with a plus while it is working: kworker/0:1H+kblockd.
        let (pool, task) = worker.split_once(['-', '+']).unwrap_or((worker, ""));
        if self.serves(task) {
            return Some(format!("kworker/{task}"));
        }
        pool.ends_with('H').then(|| "kworker".to_owned())
    }

    fn serves(&self, name: &str) -> bool {
        self.devices.iter().any(|device| has_word(name, device))
            || self.filesystems.iter().any(|filesystem| {
                name.strip_prefix(filesystem.as_str()).is_some_and(|rest| rest.starts_with('-'))
            })
    }
}

/// Returns whether `text` contains `word` with no letter or digit next to it: `dm-10` does not contain `dm-1`.
fn has_word(text: &str, word: &str) -> bool {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            apart(text[..at].chars().next_back()) && apart(text[at + word.len()..].chars().next())
        })
}

/// Returns the name and flags (field 9) of a process, from the text of its stat (proc_pid_stat(5)).
pub(crate) fn name_and_flags(stat: &str) -> Option<(&str, u64)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name, after.split_ascii_whitespace().nth(6)?.parse().ok()?))
}

/// Returns the CPU time by name between two readings. Leaves out a name if the time of one of its threads is unknown, because the thread
/// ended or a counter ran backwards.
#[must_use]
pub fn between(earlier: &KernelCounters, later: &KernelCounters) -> BTreeMap<String, CpuTime> {
    let before: BTreeMap<_, _> =
        earlier.threads.iter().map(|(_, thread)| (thread.identity(), thread)).collect();
    let after: BTreeSet<_> = later.threads.iter().map(|(_, thread)| thread.identity()).collect();
    let mut names: BTreeMap<&str, Option<CpuTime>> = BTreeMap::new();
    for (role, thread) in &later.threads {
        let Some(role) = role else { continue };
        let spent = thread.since(before.get(&thread.identity()).copied());
        let name = names.entry(role).or_insert(Some(CpuTime::default()));
        *name = threads::sum(*name, spent);
    }
    let ended = earlier.threads.iter().filter(|(_, thread)| !after.contains(&thread.identity()));
    names.extend(ended.filter_map(|(role, _)| Some((role.as_deref()?, None))));
    names.into_iter().filter_map(|(name, spent)| Some((name.to_owned(), spent?))).collect()
}

/// Returns the CPU time of all kernel threads between two readings, in nanoseconds. Includes threads without a device in their name, such
/// as `kswapd0`; leaves out threads that ended. `None` if there are no kernel threads, as in a container.
#[must_use]
pub fn total_ns(earlier: &KernelCounters, later: &KernelCounters) -> Option<u64> {
    let before: BTreeMap<_, _> =
        earlier.threads.iter().map(|(_, thread)| (thread.identity(), thread)).collect();
    let spent = later
        .threads
        .iter()
        .filter_map(|(_, thread)| Some(thread.since(before.get(&thread.identity()).copied())?.total_ns()));
    (!later.threads.is_empty()).then(|| spent.sum())
}
