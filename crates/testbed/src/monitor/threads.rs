//! Measures the CPU time of the threads of guests and storage servers, by role.
//!
//! A thread's total is the nanosecond counter in /proc/PID/task/TID/schedstat. It is split into user and system time in proportion to the
//! ticks in stat, as getrusage(2) does. Without schedstat, both times come from stat.
//!
//! Threads of QEMU's thread pool and io_uring workers end after seconds without work. Their time is the process's total, in ticks, minus
//! that of the living threads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::record::CpuTime;

use super::ProcFile;
use super::counters::{since, tick_ns};

/// Role of QEMU's threads that are neither virtual CPU, I/O thread nor main thread.
const WORKER: &str = "worker";

/// Accepted difference in ticks between a process's CPU time and the sum over its threads. User and system time are
/// rounded at both ends of a window, and threads run while they are read.
const ROUNDING: u64 = 3;

/// A guest or storage server process, and the roles of its threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestThreads {
    /// Process id of QEMU or of the storage server.
    pub pid: u32,
    /// Thread ids by role, such as `vcpu` and `iothread`. QEMU's other threads, including later ones, have the role `main` (the main
    /// thread) or `worker`.
    pub roles: BTreeMap<String, Vec<u32>>,
    /// Role of all threads of a storage server, such as `ceph-osd`; `None` for QEMU's programs.
    pub server: Option<String>,
}

impl GuestThreads {
    /// Returns the role of threads that have none in `roles`, and of threads that ended.
    fn unnamed(&self) -> &str {
        self.server.as_deref().unwrap_or(WORKER)
    }
}

/// CPU time counters of a process and its threads at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GuestCounters {
    /// User and system time of the process in ticks, including threads that ended; `None` if the process is gone.
    process: Option<(u64, u64)>,
    threads: Vec<ThreadCounters>,
    /// The role under which the time of ended threads counts.
    unnamed: String,
}

/// CPU time of a thread since its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ThreadCounters {
    role: String,
    tid: u32,
    /// Start time in ticks after boot, which distinguishes threads if the kernel reuses a thread id.
    started: u64,
    /// Time on a CPU in nanoseconds; `None` without schedstat.
    run_ns: Option<u64>,
    user_ticks: u64,
    system_ticks: u64,
}

/// A reader of the threads of a process. Each reading looks for new and ended threads.
#[derive(Debug)]
pub(super) struct Threads {
    guest: GuestThreads,
    task: PathBuf,
    process: ProcFile,
    open: BTreeMap<u32, Thread>,
}

#[derive(Debug)]
struct Thread {
    role: String,
    stat: ProcFile,
    schedstat: ProcFile,
}

impl Threads {
    pub(super) fn new(proc: &Path, guest: GuestThreads) -> Self {
        let directory = proc.join(guest.pid.to_string());
        let process = ProcFile::new(directory.join("stat"));
        Self { guest, task: directory.join("task"), process, open: BTreeMap::new() }
    }

    /// Reads the CPU time of the process and of every living thread.
    pub(super) fn read(&mut self) -> GuestCounters {
        let process = self.process.read().and_then(ticks).map(|(user, system, _)| (user, system));
        let entries = fs::read_dir(&self.task).into_iter().flatten().flatten();
        let alive: BTreeSet<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        for tid in &alive {
            if !self.open.contains_key(tid) {
                self.open.insert(*tid, self.find(*tid));
            }
        }
        // The open file of an ended thread fails even if its id is reused: drop it here, and open a new one next time.
        let mut threads = Vec::with_capacity(alive.len());
        self.open.retain(|tid, thread| {
            let read = if alive.contains(tid) { thread.read(*tid) } else { None };
            threads.extend(read.clone());
            read.is_some()
        });
        GuestCounters { process, threads, unnamed: self.guest.unnamed().to_owned() }
    }

    fn find(&self, tid: u32) -> Thread {
        let named =
            self.guest.roles.iter().find(|(_, tids)| tids.contains(&tid)).map(|(role, _)| role.as_str());
        let is_main = tid == self.guest.pid && self.guest.server.is_none();
        let role = named.unwrap_or(if is_main { "main" } else { self.guest.unnamed() }).to_owned();
        let directory = self.task.join(tid.to_string());
        Thread {
            role,
            stat: ProcFile::new(directory.join("stat")),
            schedstat: ProcFile::new(directory.join("schedstat")),
        }
    }
}

impl Thread {
    fn read(&mut self, tid: u32) -> Option<ThreadCounters> {
        let stat = self.stat.read()?;
        ThreadCounters::parse(&self.role, tid, stat, self.schedstat.read().unwrap_or_default())
    }
}

/// Returns the user time, system time and start time in ticks, from the text of stat (proc_pid_stat(5)): fields 14,
/// 15 and 22; `None` if one is missing. The process name before them may contain any characters.
fn ticks(stat: &str) -> Option<(u64, u64, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let user = fields.nth(11)?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    let started = fields.nth(6)?.parse().ok()?;
    Some((user, system, started))
}

/// Returns the time on a CPU in nanoseconds, from the text of schedstat. `None` if the text is empty or malformed, or if its number of runs
/// is zero, because the kernel then does not keep these counters.
fn run_time(schedstat: &str) -> Option<u64> {
    let mut fields = schedstat.split_ascii_whitespace();
    let run = fields.next()?.parse().ok()?;
    let runs: u64 = fields.nth(1)?.parse().ok()?;
    (runs > 0).then_some(run)
}

/// Returns the CPU time of each role between two readings, summed over all processes. Leaves out a role whose time is unknown in any
/// process.
pub(super) fn between(earlier: &[GuestCounters], later: &[GuestCounters]) -> BTreeMap<String, CpuTime> {
    let mut roles: BTreeMap<String, Option<CpuTime>> = BTreeMap::new();
    for (earlier, later) in earlier.iter().zip(later) {
        for (role, spent) in of_process(earlier, later) {
            let all = roles.entry(role).or_insert(Some(CpuTime::default()));
            *all = sum(*all, spent);
        }
    }
    roles.into_iter().filter_map(|(role, spent)| Some((role, spent?))).collect()
}

/// Returns the CPU time of each role in one process between two readings; `None` for a role whose time is unknown. A new thread counts in
/// full. Threads that ended count under the role of unnamed threads. The time of a named role is unknown if one of its threads ended; so is
/// that of the unnamed role then, unless the ended threads used no CPU time. If the process's total is unknown, the end of any thread makes
/// the time of the unnamed role unknown.
fn of_process(earlier: &GuestCounters, later: &GuestCounters) -> BTreeMap<String, Option<CpuTime>> {
    let unnamed = later.unnamed.as_str();
    let before: BTreeMap<_, _> = earlier.threads.iter().map(|thread| (thread.identity(), thread)).collect();
    let after: BTreeSet<_> = later.threads.iter().map(ThreadCounters::identity).collect();
    let mut roles: BTreeMap<&str, Option<CpuTime>> = BTreeMap::new();
    let mut living = Some(CpuTime::default());
    for thread in &later.threads {
        let spent = thread.since(before.get(&thread.identity()).copied());
        let role = roles.entry(&thread.role).or_insert(Some(CpuTime::default()));
        *role = sum(*role, spent);
        living = sum(living, spent);
    }
    let lost = earlier.threads.iter().filter(|thread| !after.contains(&thread.identity()));
    let lost: BTreeSet<&str> = lost.map(|thread| thread.role.as_str()).collect();
    match living.and_then(|living| ended(earlier, later, living)) {
        Some(time) if time.total_ns() == 0 => {}
        Some(time) if lost.iter().all(|role| *role == unnamed) => {
            let others = roles.entry(unnamed).or_insert(Some(CpuTime::default()));
            *others = sum(*others, Some(time));
        }
        None if lost.is_empty() => {}
        _ => {
            roles.insert(unnamed, None);
        }
    }
    roles.extend(lost.into_iter().filter(|role| *role != unnamed).map(|role| (role, None)));
    roles.into_iter().map(|(role, spent)| (role.to_owned(), spent)).collect()
}

/// Returns the CPU time of threads that ended between two readings: the process's total minus that of the `living`
/// threads, or zero within the rounding error. `None` if the total is unknown or less than the threads' sum.
fn ended(earlier: &GuestCounters, later: &GuestCounters, living: CpuTime) -> Option<CpuTime> {
    let ((user, system), (later_user, later_system)) = earlier.process.zip(later.process)?;
    let user_ns = since(user, later_user, tick_ns())?;
    let system_ns = since(system, later_system, tick_ns())?;
    // A thread without schedstat is rounded like the process: user and system time at each end.
    let rounded = later.threads.iter().filter(|thread| thread.run_ns.is_none()).count() as u64;
    let rounding_ns = (ROUNDING + 2 * rounded) * tick_ns();
    let process_ns = user_ns.checked_add(system_ns)?;
    if process_ns.abs_diff(living.total_ns()) <= rounding_ns {
        return Some(CpuTime::default());
    }
    let total = process_ns.checked_sub(living.total_ns())?;
    let (user_ns, system_ns) =
        (user_ns.saturating_sub(living.user_ns), system_ns.saturating_sub(living.system_ns));
    let system_ns = share(total, system_ns, user_ns)?;
    Some(CpuTime { user_ns: total - system_ns, system_ns })
}

/// Returns the sum of two CPU times; `None` if either is unknown.
pub(super) fn sum(one: Option<CpuTime>, other: Option<CpuTime>) -> Option<CpuTime> {
    let (one, other) = one.zip(other)?;
    Some(CpuTime {
        user_ns: one.user_ns.checked_add(other.user_ns)?,
        system_ns: one.system_ns.checked_add(other.system_ns)?,
    })
}

impl ThreadCounters {
    /// Parses a thread's stat and schedstat; `schedstat` is empty if the kernel does not provide it.
    pub(super) fn parse(role: &str, tid: u32, stat: &str, schedstat: &str) -> Option<Self> {
        let (user_ticks, system_ticks, started) = ticks(stat)?;
        let run_ns = run_time(schedstat);
        Some(Self { role: role.to_owned(), tid, started, run_ns, user_ticks, system_ticks })
    }

    /// Returns the thread id and start time, which together are unique.
    pub(super) const fn identity(&self) -> (u32, u64) {
        (self.tid, self.started)
    }

    /// Returns the CPU time since the earlier reading or, without one, since the thread's start. `None` if a counter ran backwards.
    pub(super) fn since(&self, earlier: Option<&Self>) -> Option<CpuTime> {
        let (user, system) = earlier.map_or((0, 0), |earlier| (earlier.user_ticks, earlier.system_ticks));
        let user_ns = since(user, self.user_ticks, tick_ns())?;
        let system_ns = since(system, self.system_ticks, tick_ns())?;
        let run_before = earlier.map_or(Some(0), |earlier| earlier.run_ns);
        let (Some(before), Some(after)) = (run_before, self.run_ns) else {
            return Some(CpuTime { user_ns, system_ns });
        };
        let total = since(before, after, 1)?;
        // Within less than a tick, split by the thread's lifetime ratio.
        let system_ns = share(total, system_ns, user_ns)
            .or_else(|| share(total, self.system_ticks, self.user_ticks))
            .unwrap_or(0);
        Some(CpuTime { user_ns: total - system_ns, system_ns })
    }
}

/// Returns the fraction `part` / (`part` + `rest`) of `total`; `None` if `part` and `rest` are zero.
fn share(total: u64, part: u64, rest: u64) -> Option<u64> {
    let whole = u128::from(part) + u128::from(rest);
    u64::try_from((u128::from(total) * u128::from(part)).checked_div(whole)?).ok()
}
