//! CPU time of kernel threads that serve the layers below a target.
//!
//! A thread is identified by the device in its name: `loop0`, `jbd2/vda-8`, `xfsaild/dm-0`, `md0_raid1`. A kworker's name shows its last
//! task, so only sums over a window are meaningful. High-priority workers (`kworker/1:0H`) handle block I/O of all devices and count as
//! `kworker`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::record::CpuTime;

use super::threads::{self, ThreadCounters};

/// PF_KTHREAD in the kernel's include/linux/sched.h.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Finds kernel threads and reads their CPU time. The first reading visits every process (about 5 us each), later ones only new processes
/// and kernel threads: use it at the ends of a window only.
#[derive(Debug)]
pub struct KernelThreads {
    proc: PathBuf,
    /// Names and numbers (`254:0`) of devices, and prefixes of filesystem thread names.
    devices: Vec<String>,
    filesystems: Vec<String>,
    /// Process ids of user programs, which are skipped.
    others: BTreeSet<u32>,
}

/// The counters of kernel threads at one moment, with the name that their time counts under.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelCounters {
    threads: Vec<(Option<String>, ThreadCounters)>,
}

impl KernelThreads {
    /// Selects threads that serve these `disks`, by kernel name, and these types of filesystem (`btrfs`). /proc is below `root`.
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

    /// Reads the counters.
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

    /// The name under which a thread's time is counted; `None` if it does not serve the target.
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

/// Returns whether `text` contains `word` without a letter or digit next to it: `dm-1` is not in `dm-10`.
fn has_word(text: &str, word: &str) -> bool {
    let apart = |c: Option<char>| c.is_none_or(|c| !c.is_ascii_alphanumeric());
    !word.is_empty()
        && text.match_indices(word).any(|(at, _)| {
            apart(text[..at].chars().next_back()) && apart(text[at + word.len()..].chars().next())
        })
}

/// The name and the flags, field 9, of stat (proc_pid_stat(5)).
fn name_and_flags(stat: &str) -> Option<(&str, u64)> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    Some((name, after.split_ascii_whitespace().nth(6)?.parse().ok()?))
}

/// The CPU time by name between two readings. Leaves out a name if one of its threads ended, because its time is unknown.
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

/// The CPU time of all kernel threads between two readings, in nanoseconds, including those without a device in their name, such as
/// `kswapd0`. Ended threads are left out. `None` if there are no kernel threads.
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
