//! CPU time of a guest process's threads, by what each is for.
//!
//! /proc/PID/task/TID/schedstat has the time on a CPU in nanoseconds and no division into user and kernel; stat has that
//! division in ticks of 10 ms. Where both are there the total is schedstat's and stat's ticks divide it, as the kernel
//! itself does for getrusage(2). Where the kernel keeps no schedstat, both are stat's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::record::CpuTime;

use super::Source;
use super::counters::{since, tick_ns};

/// A guest process and what its threads are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestThreads {
    /// The process.
    pub pid: u32,
    /// Thread ids by role, such as `vcpu` and `iothread`. Of the threads that are not named, now and later, the
    /// process's first is `main` and the others are `worker`.
    pub roles: BTreeMap<String, Vec<u32>>,
}

/// One thread's counters since it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ThreadCounters {
    role: String,
    tid: u32,
    /// In ticks after boot: tells a thread from a later one with the same id.
    started: u64,
    /// Time on a CPU; absent where the kernel does not keep it.
    run_ns: Option<u64>,
    user_ticks: u64,
    system_ticks: u64,
}

/// The threads of one process, found anew at each reading.
#[derive(Debug)]
pub(super) struct Threads {
    guest: GuestThreads,
    task: PathBuf,
    open: BTreeMap<u32, Thread>,
}

#[derive(Debug)]
struct Thread {
    role: String,
    stat: Source,
    schedstat: Source,
}

impl Threads {
    pub(super) fn new(proc: &Path, guest: GuestThreads) -> Self {
        let task = proc.join(guest.pid.to_string()).join("task");
        Self { guest, task, open: BTreeMap::new() }
    }

    /// The counters of every thread that lives now.
    pub(super) fn read(&mut self) -> Vec<ThreadCounters> {
        let entries = fs::read_dir(&self.task).into_iter().flatten().flatten();
        let alive: BTreeSet<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        for tid in &alive {
            if !self.open.contains_key(tid) {
                self.open.insert(*tid, self.find(*tid));
            }
        }
        // An open file of a thread that has ended fails even if its id lives again: forgotten here, it is opened
        // anew next time.
        let mut counters = Vec::with_capacity(alive.len());
        self.open.retain(|tid, thread| {
            let read = if alive.contains(tid) { thread.read(*tid) } else { None };
            counters.extend(read.clone());
            read.is_some()
        });
        counters
    }

    fn find(&self, tid: u32) -> Thread {
        let named =
            self.guest.roles.iter().find(|(_, tids)| tids.contains(&tid)).map(|(role, _)| role.as_str());
        let role = named.unwrap_or(if tid == self.guest.pid { "main" } else { "worker" }).to_owned();
        let directory = self.task.join(tid.to_string());
        Thread {
            role,
            stat: Source::new(directory.join("stat")),
            schedstat: Source::new(directory.join("schedstat")),
        }
    }
}

impl Thread {
    fn read(&mut self, tid: u32) -> Option<ThreadCounters> {
        let (user_ticks, system_ticks, started) = ticks(self.stat.read()?)?;
        let run_ns = self.schedstat.read().and_then(run_time);
        Some(ThreadCounters { role: self.role.clone(), tid, started, run_ns, user_ticks, system_ticks })
    }
}

/// utime, stime and starttime of stat (proc_pid_stat(5)), fields 14, 15 and 22. The name before them, in parentheses, may
/// contain anything.
fn ticks(stat: &str) -> Option<(u64, u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let user = fields.nth(11)?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    let started = fields.nth(6)?.parse().ok()?;
    Some((user, system, started))
}

/// The first figure of schedstat. A kernel that does not keep it writes zeros, the count of runs included.
fn run_time(schedstat: &str) -> Option<u64> {
    let mut fields = schedstat.split_ascii_whitespace();
    let run = fields.next()?.parse().ok()?;
    let runs: u64 = fields.nth(1)?.parse().ok()?;
    (runs > 0).then_some(run)
}

/// The CPU time of each role between two readings. A thread that is new began after the first of them, so all of its time
/// counts. A role of which a thread ended in between is absent: what that thread used until then is not known.
pub(super) fn between(earlier: &[ThreadCounters], later: &[ThreadCounters]) -> BTreeMap<String, CpuTime> {
    let same = |thread: &ThreadCounters| (thread.tid, thread.started);
    let before: BTreeMap<_, _> = earlier.iter().map(|thread| (same(thread), thread)).collect();
    let after: BTreeSet<_> = later.iter().map(same).collect();
    let mut roles: BTreeMap<&str, Option<CpuTime>> = BTreeMap::new();
    for thread in later {
        let spent = thread.since(before.get(&same(thread)).copied());
        let role = roles.entry(&thread.role).or_insert(Some(CpuTime::default()));
        *role = role.zip(spent).and_then(|(sum, spent)| {
            Some(CpuTime {
                user_ns: sum.user_ns.checked_add(spent.user_ns)?,
                system_ns: sum.system_ns.checked_add(spent.system_ns)?,
            })
        });
    }
    for ended in earlier.iter().filter(|thread| !after.contains(&same(thread))) {
        roles.insert(&ended.role, None);
    }
    roles.into_iter().filter_map(|(role, spent)| Some((role.to_owned(), spent?))).collect()
}

impl ThreadCounters {
    /// The CPU time since the earlier reading, or since the thread began.
    fn since(&self, earlier: Option<&Self>) -> Option<CpuTime> {
        let (user, system) = earlier.map_or((0, 0), |earlier| (earlier.user_ticks, earlier.system_ticks));
        let user_ns = since(user, self.user_ticks, tick_ns())?;
        let system_ns = since(system, self.system_ticks, tick_ns())?;
        let run_before = earlier.map_or(Some(0), |earlier| earlier.run_ns);
        let (Some(before), Some(after)) = (run_before, self.run_ns) else {
            return Some(CpuTime { user_ns, system_ns });
        };
        let total = since(before, after, 1)?;
        // Within less than a tick the thread's whole life tells how it divides its time.
        let system_ns = share(total, system_ns, user_ns)
            .or_else(|| share(total, self.system_ticks, self.user_ticks))
            .unwrap_or(0);
        Some(CpuTime { user_ns: total - system_ns, system_ns })
    }
}

/// The part of `total` that `part` is of `part` and `rest` together; absent if these are nothing.
fn share(total: u64, part: u64, rest: u64) -> Option<u64> {
    let whole = u128::from(part) + u128::from(rest);
    u64::try_from((u128::from(total) * u128::from(part)).checked_div(whole)?).ok()
}
