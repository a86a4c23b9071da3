//! Tells which threads belong to a process or a cgroup, to record only what these issue to a disk.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::monitor::kernel::{KERNEL_THREAD, name_and_flags};

/// The threads whose I/O is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Issuer {
    /// All threads of the process with this id.
    Process(u32),
    /// The threads of all processes of a cgroup and of those below it.
    Cgroup(Cgroup),
}

/// A cgroup as /proc/PID/cgroup names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// A controller of its hierarchy; `None` for cgroup v2.
    controller: Option<String>,
    /// Path from the root of the hierarchy, with a leading `/`; empty for the root.
    path: String,
}

/// Verdict on a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuedBy {
    /// The thread belongs to the issuer.
    Issuer,
    /// A thread of another process.
    Other,
    /// A thread of the kernel, such as one that writes back the page cache; the owner of that data is unknown.
    Kernel,
    /// The thread has ended, so that its process is unknown.
    Ended,
}

/// A cache of verdicts on threads.
#[derive(Debug)]
pub struct Issuers {
    issuer: Issuer,
    proc: PathBuf,
    known: HashMap<u32, IssuedBy>,
}

impl Issuer {
    /// Finds a process below /proc under `root`, with the name of its program. Fails with a reason if it does not exist, or if the id is that
    /// of a thread.
    pub fn process(root: &Path, id: u32) -> Result<(Self, String), String> {
        let proc = root.join("proc").join(id.to_string());
        match group_leader(&proc) {
            None => Err("there is no such process".into()),
            Some(leader) if leader != id => Err(format!("it is a thread of process {leader}; name that")),
            Some(_) => {
                let name = fs::read_to_string(proc.join("comm")).unwrap_or_default();
                Ok((Self::Process(id), name.trim().to_owned()))
            }
        }
    }

    /// Finds a cgroup by its directory. Fails with a reason if it is none.
    pub fn cgroup(path: &Path) -> Result<Self, String> {
        let is_cgroup = |path: &Path| path.join("cgroup.procs").is_file();
        let path = path.canonicalize().map_err(|error| error.to_string())?;
        let root = path.ancestors().take_while(|ancestor| is_cgroup(ancestor)).last();
        let Some(root) = root else {
            return Err("it is no cgroup; accepted: a directory with cgroup.procs, such as /sys/fs/cgroup/system.slice".into());
        };
        let below = path.strip_prefix(root).unwrap_or(Path::new(""));
        let below = below.to_str().ok_or("its name is not UTF-8")?;
        let is_v2 = root.join("cgroup.controllers").is_file();
        let name = root.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let controller = name.split(',').next().unwrap_or_default().to_owned();
        Ok(Self::Cgroup(Cgroup {
            controller: (!is_v2).then_some(controller),
            path: if below.is_empty() { String::new() } else { format!("/{below}") },
        }))
    }
}

impl Cgroup {
    /// Returns whether a process whose /proc/PID/cgroup is `text` is in this cgroup or below it.
    fn holds(&self, text: &str) -> bool {
        text.lines().any(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { return false };
            let is_meant = match &self.controller {
                None => controllers.is_empty(),
                Some(wanted) => controllers.split(',').any(|one| one.trim_start_matches("name=") == wanted),
            };
            let below = path.strip_prefix(&*self.path);
            is_meant && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl Issuers {
    /// Creates a cache; /proc is below `root`.
    #[must_use]
    pub fn new(root: &Path, issuer: Issuer) -> Self {
        Self { issuer, proc: root.join("proc"), known: HashMap::new() }
    }

    /// Returns whether the process to record has ended; false for a cgroup.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self.issuer {
            Issuer::Process(id) => group_leader(&self.proc.join(id.to_string())).is_none(),
            Issuer::Cgroup(_) => false,
        }
    }

    /// Forgets all verdicts. Call it now and then: the ids of threads that ended are given to others, and processes change their cgroup.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    /// Returns to whom a thread belongs. Reads /proc for a thread that was not asked for before.
    pub fn of(&mut self, thread: u32) -> IssuedBy {
        if let Some(known) = self.known.get(&thread) {
            return *known;
        }
        let found = self.issuer_of(thread);
        self.known.insert(thread, found);
        found
    }

    fn issuer_of(&self, thread: u32) -> IssuedBy {
        let at = self.proc.join(thread.to_string());
        let belongs = match &self.issuer {
            Issuer::Process(id) => group_leader(&at).map(|leader| leader == *id),
            Issuer::Cgroup(cgroup) => {
                fs::read_to_string(at.join("cgroup")).ok().map(|text| cgroup.holds(&text))
            }
        };
        match belongs {
            // The idle thread, whose id is 0, has no directory: interrupts issue I/O in its place.
            None if thread == 0 => IssuedBy::Kernel,
            None => IssuedBy::Ended,
            Some(_) if is_kernel_thread(&at) => IssuedBy::Kernel,
            Some(true) => IssuedBy::Issuer,
            Some(false) => IssuedBy::Other,
        }
    }
}

/// Returns the id of the process that a thread belongs to, from its directory in /proc; `None` if the thread does not exist.
fn group_leader(thread: &Path) -> Option<u32> {
    let status = fs::read_to_string(thread.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
}

/// Returns whether a thread, given by its directory in /proc, is one of the kernel's; false if it does not exist.
fn is_kernel_thread(thread: &Path) -> bool {
    let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
    name_and_flags(&stat).is_some_and(|(_, flags)| flags & KERNEL_THREAD != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_testkit::tree;

    fn thread(root: &Path, id: u32, leader: u32, flags: u64, cgroup: &str) {
        let at = format!("proc/{id}");
        tree::write(root, &format!("{at}/status"), &format!("Name:\tx\nTgid:\t{leader}\n"));
        tree::write(root, &format!("{at}/stat"), &format!("{id} (a) b) S 1 1 1 0 -1 {flags} 9 9\n"));
        tree::write(root, &format!("{at}/comm"), "fio\n");
        tree::write(root, &format!("{at}/cgroup"), cgroup);
    }

    #[test]
    fn threads_are_told_by_process_and_by_cgroup() {
        use IssuedBy::{Ended, Issuer as Own, Kernel, Other};
        let root = tempfile::tempdir().expect("directory");
        let root = root.path();
        thread(root, 10, 10, 0, "3:blkio:/a\n0::/a\n");
        thread(root, 11, 10, 0, "3:blkio:/a/b\n0::/a/b\n");
        thread(root, 12, 12, 0, "3:blkio:/ab\n0::/ab\n");
        thread(root, 13, 13, KERNEL_THREAD, "3:blkio:/\n0::/\n");
        let (process, name) = Issuer::process(root, 10).expect("a process");
        assert_eq!(name, "fio");
        assert!(Issuer::process(root, 11).expect_err("a thread").contains("process 10"));
        assert_eq!(Issuer::process(root, 99), Err("there is no such process".into()));
        let of = |issuer: Issuer| {
            let mut issuers = Issuers::new(root, issuer);
            [10, 11, 12, 13, 99].map(|id| issuers.of(id))
        };
        assert_eq!(of(process.clone()), [Own, Own, Other, Kernel, Ended]);
        let cgroup = |controller: Option<&str>, path: &str| {
            Issuer::Cgroup(Cgroup { controller: controller.map(str::to_owned), path: path.to_owned() })
        };
        assert_eq!(of(cgroup(None, "/a")), [Own, Own, Other, Kernel, Ended]);
        assert_eq!(of(cgroup(Some("blkio"), "/a/b")), [Other, Own, Other, Kernel, Ended]);
        assert_eq!(of(cgroup(None, "")), [Own, Own, Own, Kernel, Ended]);
        assert!(!Issuers::new(root, process).has_ended());
        assert!(Issuers::new(root, Issuer::Process(99)).has_ended());
    }

    #[test]
    fn a_cgroup_is_known_by_its_directory_in_either_hierarchy() {
        let root = tempfile::tempdir().expect("directory");
        let root = root.path();
        for file in ["v2/cgroup.controllers", "v2/cgroup.procs", "v2/x/y/cgroup.procs", "v2/x/cgroup.procs"] {
            tree::write(root, file, "");
        }
        for file in ["cpu,cpuacct/cgroup.procs", "cpu,cpuacct/x/cgroup.procs", "plain/file"] {
            tree::write(root, file, "");
        }
        let found = |path: &str| Issuer::cgroup(&root.join(path));
        let of = |controller: Option<&str>, path: &str| {
            Ok(Issuer::Cgroup(Cgroup { controller: controller.map(str::to_owned), path: path.to_owned() }))
        };
        assert_eq!(found("v2/x/y"), of(None, "/x/y"));
        assert_eq!(found("v2"), of(None, ""));
        assert_eq!(found("cpu,cpuacct/x"), of(Some("cpu"), "/x"));
        assert!(found("plain").expect_err("none").contains("it is no cgroup"));
        assert!(found("missing").is_err());
    }
}
