//! Changes that a run makes to this machine, and the way to undo each.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::commands;
use super::file_id::FileId;
use crate::cgroup::{IoController, RunCgroup};
use crate::cryptsetup::LuksHeader;
use crate::device::OverwrittenDevice;
use crate::export::FuseExport;
use crate::filesystem::{CreatedFilesystem, Mounted};
use crate::holders;
use crate::kernel_file::KernelFile;
use crate::lock::ProcessLock;
use crate::losetup::Attached;
use crate::lvm::{Group, Physical};
use crate::mapper::Mapping;
use crate::mdadm::CreatedArray;
use crate::netns::{Namespace, NetnsInterface};
use crate::nvme_tcp::{NvmeConnection, NvmeTarget};
use crate::remote;
use crate::tracefs::TraceInstance;
use crate::virsh::AttachedDevice;
use crate::xen::CreatedDomain;
use crate::zfs::CreatedPool;
use iotax_model::threads;

/// A change to this machine that must be undone: an object that iotax created, or a value that it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// A directory; undoing removes it if it is empty.
    Directory {
        /// Absolute path of the directory.
        path: PathBuf,
        /// Identity of the directory, so that another directory at this path is not removed; `None` before the directory has its final
        /// name.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        identity: Option<FileId>,
    },
    /// A directory whose contents iotax and its workloads create, such as sockets or test files; undoing removes it with its contents.
    Tree {
        /// Absolute path of the directory.
        path: PathBuf,
        /// Identity of the directory, so that another directory at this path is not removed.
        identity: FileId,
    },
    /// A file that iotax or one of its tools creates; undoing removes it.
    File {
        /// Absolute path of the file.
        path: PathBuf,
        /// Identity of the file, so that another file at this path is not removed; `None` while it is unknown, for example before the tool
        /// that creates the file has exited.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        identity: Option<FileId>,
    },
    /// The QEMU process of a guest; undoing kills it.
    Guest {
        /// A string that appears in the command line of this process and of no other.
        marker: String,
    },
    /// A Xen domain; undoing destroys it.
    Domain(CreatedDomain),
    /// A storage daemon, storage server or database server; undoing kills it, and the tools that wait for its answer, such as ceph(1).
    Daemon {
        /// A string that appears in the command lines of these processes and of no others.
        marker: String,
    },
    /// An agent on another machine or in a container; undoing ends it and removes its directory and files.
    Agent(Box<remote::RecordedAgent>),
    /// A physical volume; undoing wipes its LVM label and zeroes the first and last MiB of the device.
    PhysicalVolume(Physical),
    /// A volume group; undoing removes it if it has no volumes left.
    VolumeGroup {
        /// Name of the group, which contains the run's tag.
        name: String,
        /// The only physical volume of the group.
        physical: Physical,
    },
    /// A logical volume; undoing removes it.
    LogicalVolume {
        /// The volume group that contains the volume.
        group: Group,
        /// Name of the group when the volume was created.
        group_name: String,
        /// Name of the volume. Contains the run's tag, unless the group's name does.
        name: String,
    },
    /// An overwritten device; undoing zeroes its first and last MiB.
    Overwritten(OverwrittenDevice),
    /// A filesystem on a device; undoing wipes its signature and zeroes the first and last MiB of the device.
    Filesystem(CreatedFilesystem),
    /// A LUKS header on a user's device; undoing wipes it and zeroes the first and last MiB of the device.
    Luks(LuksHeader),
    /// A device-mapper device; undoing removes it.
    Mapping(Mapping),
    /// A subsystem of the kernel's NVMe target, with its port; undoing removes both.
    NvmeTarget(NvmeTarget),
    /// A connection of this machine to an NVMe subsystem that iotax created; undoing disconnects it.
    NvmeConnection(NvmeConnection),
    /// An md array; undoing stops it and wipes its members' superblocks.
    Array(CreatedArray),
    /// A ZFS pool; undoing destroys it.
    ZfsPool(CreatedPool),
    /// A mount; undoing unmounts it.
    Mount(Mounted),
    /// A loop device; undoing detaches it.
    Loop(Attached),
    /// A FUSE mount, of a storage daemon's image or a volatile directory; undoing kills the process that serves it and unmounts it.
    FuseExport(FuseExport),
    /// A network namespace; undoing removes it with its interfaces.
    Namespace(Namespace),
    /// A network interface in a namespace that iotax created; undoing removes it.
    Interface(NetnsInterface),
    /// Commands that the events of a measurement window started; undoing kills them with their children.
    Commands {
        /// Value of the environment variable `IOTAX_EVENT_OF` in these processes.
        marker: String,
    },
    /// A cgroup; undoing moves its processes back and removes it.
    Cgroup(RunCgroup),
    /// The I/O controller of a cgroup v2 hierarchy, which iotax enabled; undoing disables it, unless another run still uses it.
    IoController(IoController),
    /// A kernel setting; undoing restores its former value.
    Setting(Box<KernelFile>),
    /// A trace instance of the kernel; undoing removes it.
    TraceInstance(TraceInstance),
    /// A device attached to a running libvirt domain; undoing detaches it.
    AttachedDevice(AttachedDevice),
}

impl Effect {
    /// Returns the path of a file or directory effect; `None` for other effects.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Directory { path, .. } | Self::Tree { path, .. } | Self::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Returns whether a path is on a filesystem that this effect mounted; false for the mount point itself.
    pub(super) fn holds(&self, path: &Path) -> bool {
        let (Self::Mount(Mounted { point, .. }) | Self::FuseExport(FuseExport { point, .. })) = self else {
            return false;
        };
        path != point && path.starts_with(point)
    }

    /// Returns the identity of a file or directory; `None` if it is not recorded, and for other effects.
    pub(super) fn identity(&self) -> Option<FileId> {
        match self {
            Self::Directory { identity, .. } | Self::File { identity, .. } => *identity,
            Self::Tree { identity, .. } => Some(*identity),
            _ => None,
        }
    }
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory { path, .. } | Self::Tree { path, .. } => {
                write!(f, "directory {}", path.display())
            }
            Self::File { path, .. } => write!(f, "file {}", path.display()),
            Self::Guest { marker } => write!(f, "guest {marker}"),
            Self::Domain(domain) => write!(f, "Xen domain {}", domain.name),
            Self::Daemon { marker } => write!(f, "daemon {marker}"),
            Self::Agent(agent) => {
                write!(f, "agent {} on {} for {}", agent.tag, agent.host, agent.target)
            }
            Self::PhysicalVolume(physical) => write!(f, "physical volume on {}", physical.device.display()),
            Self::VolumeGroup { name, .. } => write!(f, "volume group {name}"),
            Self::LogicalVolume { group_name, name, .. } => write!(f, "logical volume {group_name}/{name}"),
            Self::Filesystem(made) => write!(f, "{} on {}", made.kind, made.device.display()),
            Self::Luks(header) => write!(f, "LUKS header on {}", header.device.display()),
            Self::Mapping(mapping) => write!(f, "mapping {}", mapping.name),
            Self::NvmeTarget(target) => write!(f, "NVMe subsystem {}", target.nqn),
            Self::NvmeConnection(connection) => write!(f, "connection to NVMe subsystem {}", connection.nqn),
            Self::Array(array) => write!(f, "array {}", array.uuid),
            Self::ZfsPool(pool) => write!(f, "ZFS pool {}", pool.name),
            Self::Overwritten(device) => write!(f, "what was written to {}", device.node.display()),
            Self::Mount(mounted) => write!(f, "mount on {}", mounted.point.display()),
            Self::Loop(attached) => write!(f, "loop device over {}", attached.file.display()),
            Self::FuseExport(export) => write!(f, "FUSE mount on {}", export.point.display()),
            Self::Namespace(namespace) => write!(f, "network namespace {}", namespace.name),
            Self::Interface(interface) => {
                write!(f, "{} {} in {}", interface.kind, interface.name, interface.namespace)
            }
            Self::Commands { marker } => write!(f, "commands of events ({marker})"),
            Self::Cgroup(cgroup) => write!(f, "control group {}", cgroup.path.display()),
            Self::IoController(controller) => write!(f, "controller io of {}", controller.root.display()),
            Self::TraceInstance(instance) => write!(f, "tracing instance {}", instance.name),
            Self::AttachedDevice(device) => write!(f, "device {} of domain {}", device.alias, device.name),
            Self::Setting(file) => write!(f, "setting {} (was {})", file.path.display(), file.was),
        }
    }
}

/// Undoes an effect other than a file or directory. Does nothing if the object is already gone. If the object no longer belongs to iotax,
/// leaves it alone and fails. Tools hold the run's lock.
pub(super) fn undo(effect: &Effect, lock: &ProcessLock) -> io::Result<()> {
    match effect {
        Effect::Directory { .. } | Effect::Tree { .. } | Effect::File { .. } => {
            Err(io::Error::other("it is not on record which directory it was made in; left alone"))
        }
        Effect::Guest { marker } | Effect::Daemon { marker } => until_none(|| kill_marked(marker)),
        Effect::Domain(domain) => domain.destroy(lock),
        Effect::Agent(agent) => remote::leave(agent, io::stdin().is_terminal()).map_err(io::Error::other),
        Effect::PhysicalVolume(physical) => physical.remove(lock),
        Effect::VolumeGroup { name, physical } => physical.remove_group(name, lock),
        Effect::LogicalVolume { group, group_name, name } => group.remove_volume(group_name, name, lock),
        Effect::Overwritten(device) => device.blank(),
        Effect::Filesystem(made) => made.wipe(lock),
        Effect::Luks(header) => header.wipe(lock),
        Effect::Mapping(mapping) => mapping.close(lock),
        Effect::NvmeTarget(target) => target.remove(),
        Effect::NvmeConnection(connection) => connection.end(),
        Effect::Array(array) => array.stop(lock),
        Effect::ZfsPool(pool) => pool.destroy(lock),
        Effect::Mount(mounted) => mounted.unmount(),
        Effect::Loop(attached) => attached.detach(lock),
        Effect::FuseExport(export) => {
            until_none(|| kill_marked(&export.marker)).and_then(|()| export.unmount())
        }
        Effect::Namespace(namespace) => namespace.remove(lock),
        Effect::Interface(interface) => interface.remove(lock),
        Effect::Commands { marker } => until_none(|| commands::kill(marker)),
        Effect::Cgroup(cgroup) => cgroup.remove(),
        Effect::IoController(controller) => controller.turn_off(),
        Effect::Setting(file) => file.restore(),
        Effect::TraceInstance(instance) => instance.remove(),
        Effect::AttachedDevice(device) => device.detach(lock),
    }
}

/// Maximum time for the processes of a run to exit.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// Kills the guests and daemons of a dead run, waits up to 10 s for all its processes to exit, and takes the lock at `path`.
///
/// Searches for them repeatedly: a process that has just started does not show its marker yet.
pub(super) fn end_processes(pending: &[&Effect], path: &Path) -> io::Result<ProcessLock> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(lock) = ProcessLock::take(path)? {
            return Ok(lock);
        }
        for effect in pending {
            if let Effect::Guest { marker }
            | Effect::Daemon { marker }
            | Effect::FuseExport(FuseExport { marker, .. }) = effect
            {
                kill_marked(marker)?;
            }
        }
        if Instant::now() > deadline {
            let users = holders::of_file(path);
            let users = if users.is_empty() { "a process".into() } else { users.join(", ") };
            return Err(io::Error::other(format!(
                "{users} of that run does not end; run iotax clean again when it has ended"
            )));
        }
        threads::sleep(POLL);
    }
}

/// Calls `kill` until it finds no more processes; fails after 10 s.
fn until_none(kill: impl Fn() -> io::Result<Vec<u32>>) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pids = kill()?;
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("process {pids:?} does not end")));
        }
        threads::sleep(POLL);
    }
}

/// Kills the guests and daemons with this marker in their command line. Returns their process ids.
fn kill_marked(marker: &str) -> io::Result<Vec<u32>> {
    let pids = guests_marked(Path::new("/proc"), marker)?;
    for pid in &pids {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    Ok(pids)
}

/// Returns the process ids of QEMU, of other servers and of their tools whose arguments contain the marker. Finds no zombies, which have no
/// arguments.
fn guests_marked(proc: &Path, marker: &str) -> io::Result<Vec<u32>> {
    let marked = fs::read_dir(proc)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let Ok(line) = fs::read(proc.join(pid.to_string()).join("cmdline")) else { return false };
            let mut arguments = line.split(|byte| *byte == 0);
            let program = arguments.next().unwrap_or_default();
            let program = String::from_utf8_lossy(program);
            // Until ip(8), nsenter(1) or a shell has executed the program in a network namespace, its name is one of their arguments.
            let line = String::from_utf8_lossy(&line);
            let becomes = ["/ip", "/nsenter", "/sh"].iter().any(|end| program.ends_with(end))
                && ["qemu", "/ganesha.nfsd", "/smbd", "/ceph-"].iter().any(|name| line.contains(name));
            // ceph(1) is a script; it and rbd(8) wait for daemons that may be gone.
            let asks = program.ends_with("/rbd") || program.ends_with("/python3") && line.contains("/ceph\0");
            let servers = [
                "/nbdkit",
                "/virtiofsd",
                "/tgtd",
                "/ganesha.nfsd",
                "/smbd",
                "/postgres",
                "/ceph-mon",
                "/ceph-osd",
                "/nbd-client",
            ];
            let serves = program.contains("qemu")
                || program == crate::volatile::PROGRAM
                || servers.iter().any(|end| program.ends_with(end));
            // PostgreSQL's processes have the name of their cluster in a title, and no arguments.
            let is_titled = program.starts_with("postgres: ") && program.contains(marker);
            is_titled
                || (serves || becomes || asks)
                    && arguments.any(|argument| String::from_utf8_lossy(argument).contains(marker))
        })
        .collect();
    Ok(marked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_with_the_marker_is_marked() {
        let temp = tempfile::tempdir().expect("temp dir");
        for (pid, line) in [
            (10, "/usr/bin/qemu-system-x86_64\0-name\0iotax-abc-vm\0"),
            (11, "/usr/bin/qemu-system-x86_64\0-name\0other\0"),
            (12, "vim\0iotax-abc-vm.txt\0"),
            (14, "/usr/sbin/ip\0netns\0exec\0iotax-abc\0/usr/bin/qemu-system-x86_64\0-name\0iotax-abc-vm\0"),
            (15, "/usr/sbin/ip\0netns\0exec\0iotax-abc-vm\0sh\0"),
            (16, "iotax-volatile\0volatile\0/srv\0--marker\0iotax-abc-vm\0"),
            (17, "/usr/lib/postgresql/15/bin/postgres\0-D\0/srv\0-c\0cluster_name=iotax-abc-vm\0"),
            (18, "postgres: iotax-abc-vm: walwriter \0"),
            (19, "postgres: 15/main: iotax-abc walwriter \0"),
            (20, "/usr/bin/python3\0/usr/bin/ceph\0--cluster\0iotax-abc-vm\0osd\0new\0"),
            (21, "/usr/bin/python3\0/usr/bin/cephalopod\0iotax-abc-vm\0"),
            (22, "/usr/bin/ceph-osd\0--cluster\0iotax-abc-vm\0"),
            (23, "/bin/sh\0-c\0set -e\0sh\0/usr/sbin/smbd\0iotax-abc-vm\0"),
            (24, "/usr/sbin/smbd\0-F\0-s\0/run/iotax-abc-vm.conf\0"),
            (26, "/usr/sbin/nbd-client\0-unix\0disk.nbd\0/dev/nbd0\0-name\0iotax-abc-vm\0"),
            (25, "/usr/sbin/smbd\0--foreground\0--no-process-group\0"),
            (27, "/usr/libexec/virtiofsd\0--shared-dir=/srv/iotax-abc/iotax-abc-vm-virtiofs\0"),
            (13, ""),
        ] {
            let dir = temp.path().join(pid.to_string());
            fs::create_dir(&dir).expect("dir");
            fs::write(dir.join("cmdline"), line).expect("written");
        }
        let mut marked = guests_marked(temp.path(), "iotax-abc-vm").expect("there");
        marked.sort_unstable();
        assert_eq!(marked, [10, 14, 16, 17, 18, 20, 22, 23, 24, 26, 27]);
    }
}
