//! Control groups that iotax creates to limit a target's I/O, in cgroup v2 or v1.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::target::CgroupSpec;
use iotax_model::threads;
use serde::{Deserialize, Serialize};

use crate::host_info::{boot_id, text};
use crate::stack::mount;

/// Directory below which all cgroup hierarchies are mounted.
pub(crate) const CGROUPS: &str = "/sys/fs/cgroup";
/// Name prefix of the cgroups that iotax creates.
const OURS: &str = "iotax-";
/// File that lists the process ids of a cgroup.
const PROCESSES: &str = "cgroup.procs";
/// File that lists the controllers that a v2 cgroup enables for its children.
const PASSED_ON: &str = "cgroup.subtree_control";
/// Maximum time for a cgroup to become removable after its processes have been moved out.
const PATIENCE: Duration = Duration::from_secs(10);

/// The cgroup version, which determines the names of the limit files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
}

/// A mounted cgroup hierarchy whose I/O controller can limit I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) version: Version,
    pub(crate) root: PathBuf,
}

impl Hierarchy {
    /// Finds a mounted hierarchy with the I/O controller; `None` if there is none.
    pub(crate) fn find(root: &Path) -> io::Result<Option<Self>> {
        let mounts = mount::table(&root.join("proc/self"))?;
        let found = mounts.into_iter().filter_map(|mount| {
            let at = root.join(mount.point.strip_prefix("/").ok()?);
            let version = match mount.kind.as_str() {
                "cgroup2" => words_of(&at.join("cgroup.controllers"), "io").then_some(Version::V2),
                "cgroup" => at.join("blkio.throttle.read_iops_device").exists().then_some(Version::V1),
                _ => None,
            };
            let version = version.filter(|_| mount.point.starts_with(CGROUPS))?;
            Some(Self { version, root: at })
        });
        Ok(found.into_iter().next())
    }

    /// Returns the undo log's entry for enabling the I/O controller; `None` with cgroup v1, or if other software has
    /// enabled the controller.
    pub(crate) fn controller(&self) -> Option<IoController> {
        let is_off = self.version == Version::V2
            && (!words_of(&self.root.join(PASSED_ON), "io") || has_groups(&self.root));
        is_off.then(|| IoController { root: self.root.clone(), boot_id: boot_id() })
    }

    /// Describes a cgroup `name` directly below the hierarchy's root. Its processes are moved back to this process's cgroup later.
    pub(crate) fn group(&self, name: &str) -> io::Result<RunCgroup> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let home = own_group(&own, self.version).trim_start_matches('/');
        Ok(RunCgroup { path: self.root.join(name), home: self.root.join(home) })
    }
}

/// Returns the path of a process's cgroup, from the text of /proc/PID/cgroup; `/` if the hierarchy is not listed.
fn own_group(text: &str, version: Version) -> &str {
    let groups = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let is_wanted = |controllers: &str| match version {
        Version::V1 => controllers.split(',').any(|controller| controller == "blkio"),
        Version::V2 => controllers.is_empty(),
    };
    groups.into_iter().find(|(controllers, _)| is_wanted(controllers)).map_or("/", |(_, path)| path)
}

/// Returns whether a file contains a word, separated by white space.
fn words_of(file: &Path, word: &str) -> bool {
    text(file).is_some_and(|text| text.split_whitespace().any(|one| one == word))
}

/// Returns whether the hierarchy has a cgroup of any iotax run.
fn has_groups(root: &Path) -> bool {
    let names = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with(OURS))
}

/// The I/O controller of a cgroup v2 hierarchy, which iotax enabled for the root's children.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoController {
    /// Directory of the hierarchy's root.
    pub root: PathBuf,
    /// Boot id when iotax enabled the controller; `None` if it could not be read. A reboot disables the controller again.
    pub boot_id: Option<String>,
}

impl IoController {
    pub(crate) fn turn_on(&self) -> io::Result<()> {
        fs::write(self.root.join(PASSED_ON), "+io")
    }

    /// Disables the controller. Does nothing if the machine has or may have rebooted, or while another run has cgroups: that run disables
    /// it.
    pub(crate) fn turn_off(&self) -> io::Result<()> {
        if self.boot_id.is_none() || self.boot_id != boot_id() || has_groups(&self.root) {
            return Ok(());
        }
        fs::write(self.root.join(PASSED_ON), "-io")
    }
}

/// A cgroup that iotax created, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunCgroup {
    /// The cgroup's directory, whose name contains the run's tag.
    pub path: PathBuf,
    /// The cgroup that the processes are moved back to before this cgroup is removed.
    pub home: PathBuf,
}

impl RunCgroup {
    /// Moves a process with all its threads into this cgroup. Ignores a process that has exited.
    fn take(&self, pid: u32) -> io::Result<()> {
        move_to(&self.path, pid)
    }

    /// Moves the remaining processes back, or to the root if their earlier cgroup is gone, and removes the cgroup; does nothing if it is
    /// missing. Retries for up to 10 s while the cgroup is busy. Fails if the cgroup hierarchy is not mounted.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let root = self.path.parent().unwrap_or(Path::new("/"));
        if !root.join(PROCESSES).exists() {
            let words =
                format!("{}: no control groups are mounted here; clean again where they are", root.display());
            return Err(io::Error::other(words));
        }
        let home = if self.home.exists() { &self.home } else { root };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let processes = fs::read_to_string(self.path.join(PROCESSES)).unwrap_or_default();
            for pid in processes.lines().filter_map(|line| line.parse().ok()) {
                move_to(home, pid)?;
            }
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => threads::sleep(Duration::from_millis(20)),
                Ok(()) => return Ok(()),
            }
        }
    }
}

fn move_to(group: &Path, pid: u32) -> io::Result<()> {
    match fs::write(group.join(PROCESSES), pid.to_string()) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
        result => result,
    }
}

/// The I/O limits of a cgroup on one disk. They apply to the processes that generate a target's load, while the target is
/// measured.
#[derive(Debug)]
pub struct IoLimit {
    cgroup: RunCgroup,
    /// The limit files: path, text that sets the limit, and text that removes it.
    files: Vec<(PathBuf, String, String)>,
}

impl IoLimit {
    /// Prepares the limits of a plan on the disk `disk` (`major:minor`). Nothing is written yet.
    pub(crate) fn new(cgroup: RunCgroup, version: Version, spec: &CgroupSpec, disk: &str) -> Self {
        let limits = spec.limits().into_iter().filter_map(|(key, limit)| Some((key, limit?)));
        let files = match version {
            Version::V2 => {
                let words: Vec<(String, String)> =
                    limits.map(|(key, limit)| (format!("{key}={limit}"), format!("{key}=max"))).collect();
                let (set, lifted): (Vec<String>, Vec<String>) = words.into_iter().unzip();
                let line = |words: Vec<String>| format!("{disk} {}", words.join(" "));
                vec![("io.max", line(set), line(lifted))]
            }
            Version::V1 => {
                let file = |key| match key {
                    "riops" => "blkio.throttle.read_iops_device",
                    "wiops" => "blkio.throttle.write_iops_device",
                    "rbps" => "blkio.throttle.read_bps_device",
                    _ => "blkio.throttle.write_bps_device",
                };
                limits
                    .map(|(key, limit)| (file(key), format!("{disk} {limit}"), format!("{disk} 0")))
                    .collect()
            }
        };
        let files =
            files.into_iter().map(|(name, set, lifted)| (cgroup.path.join(name), set, lifted)).collect();
        Self { cgroup, files }
    }

    /// Moves processes into the cgroup and sets its limits.
    ///
    /// # Errors
    /// The kernel rejects a process or a limit.
    pub fn set(&self, processes: &[u32]) -> io::Result<()> {
        processes.iter().try_for_each(|pid| self.cgroup.take(*pid))?;
        self.files.iter().try_for_each(|(file, set, _)| fs::write(file, set))
    }

    /// Removes the limits, so that the target can be filled at full speed. The processes stay in the cgroup.
    ///
    /// # Errors
    /// The kernel rejects a write.
    pub fn lift(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|(file, _, lifted)| fs::write(file, lifted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str =
        "7:blkio:/system.slice/ssh\n6:cpu,cpuacct:/x\n1:name=systemd:/user\n0::/session.scope\n";

    #[test]
    fn a_process_goes_back_to_the_group_of_the_same_hierarchy() {
        assert_eq!(own_group(OWN, Version::V1), "/system.slice/ssh");
        assert_eq!(own_group(OWN, Version::V2), "/session.scope");
        assert_eq!(own_group("", Version::V2), "/");
    }

    #[test]
    fn each_version_has_its_own_files_for_the_same_limits() {
        let spec = CgroupSpec {
            riops: Some(500),
            wbps: Some(iotax_model::units::Bytes(4096)),
            ..CgroupSpec::default()
        };
        let cgroup = RunCgroup { path: "/c/iotax-1a2b-t".into(), home: "/c".into() };
        let files = |version| IoLimit::new(cgroup.clone(), version, &spec, "8:0").files;
        let line = |name: &str, set: &str, lifted: &str| {
            (Path::new("/c/iotax-1a2b-t").join(name), set.to_owned(), lifted.to_owned())
        };
        assert_eq!(files(Version::V2), [line("io.max", "8:0 riops=500 wbps=4096", "8:0 riops=max wbps=max")]);
        assert_eq!(
            files(Version::V1),
            [
                line("blkio.throttle.read_iops_device", "8:0 500", "8:0 0"),
                line("blkio.throttle.write_bps_device", "8:0 4096", "8:0 0")
            ]
        );
    }

    #[test]
    fn the_hierarchy_is_the_one_with_the_controller_of_io() {
        let temp = tempfile::tempdir().expect("temp dir");
        let put = |path: &str, content: &str| {
            let path = temp.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, content).expect("written");
        };
        let line = |number, point: &str, kind: &str| {
            format!("{number} 1 0:{number} / {point} rw - {kind} {kind} rw\n")
        };
        let mounts = [
            line(20, "/sys/fs/cgroup/unified", "cgroup2"),
            line(21, "/sys/fs/cgroup/cpu", "cgroup"),
            line(22, "/sys/fs/cgroup/blkio", "cgroup"),
        ];
        put("proc/self/mountinfo", &mounts.concat());
        put("sys/fs/cgroup/unified/cgroup.controllers", "\n");
        assert_eq!(Hierarchy::find(temp.path()).expect("read"), None);
        put("sys/fs/cgroup/blkio/blkio.throttle.read_iops_device", "");
        let found = Hierarchy::find(temp.path()).expect("read").expect("one");
        assert_eq!((found.version, found.controller()), (Version::V1, None));
        put("sys/fs/cgroup/unified/cgroup.controllers", "cpu io memory\n");
        let found = Hierarchy::find(temp.path()).expect("read").expect("one");
        assert_eq!((found.version, found.root.ends_with("unified")), (Version::V2, true));
        assert!(found.controller().is_some());
        put("sys/fs/cgroup/unified/cgroup.subtree_control", "io\n");
        assert_eq!(found.controller(), None);
        // Another run enabled the controller.
        fs::create_dir(found.root.join("iotax-1a2b-t")).expect("made");
        assert!(found.controller().is_some());
    }
}
