//! What is done to this machine, and how each of it is undone.

use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::file_id::FileId;
use crate::filesystem::{Made, Mounted};
use crate::holders;
use crate::lock::ProcessLock;
use crate::losetup::Attached;
use crate::lvm::{Group, Physical};
use crate::netns::{Interface, Namespace};
use crate::remote;

/// Something done to this machine that must be undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// A directory was made; it is removed if it is empty.
    Directory {
        /// Absolute.
        path: PathBuf,
        /// Another directory there is left alone. Absent before its name is its own.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        identity: Option<FileId>,
    },
    /// A directory for sockets, or for a test's files beside a target, was made; it is removed with all that is in it.
    Tree {
        /// Absolute.
        path: PathBuf,
        /// Another directory there is left alone.
        identity: FileId,
    },
    /// A file was made; it is removed.
    File {
        /// Absolute.
        path: PathBuf,
        /// Where the name was not of iotax's own choosing: another file there is left alone.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        identity: Option<FileId>,
    },
    /// A QEMU process was started; it is killed.
    Guest {
        /// Stands in its command line and in no other's.
        marker: String,
    },
    /// An agent was started on another machine, in a place of its own; both go, and what it made.
    Agent(Box<remote::Agent>),
    /// A device became a physical volume; its label is removed.
    PhysicalVolume(Physical),
    /// A volume group was made; it is removed once it is empty.
    VolumeGroup {
        /// Holds the run's tag.
        name: String,
        /// All that it consists of.
        physical: Physical,
    },
    /// A logical volume was made; it is removed.
    LogicalVolume {
        /// Where.
        group: Group,
        /// The group's name when it was made.
        group_name: String,
        /// Holds the run's tag, or its group's name does.
        name: String,
    },
    /// A filesystem was made on a device; its signature is wiped.
    Filesystem(Made),
    /// It was mounted; it is unmounted.
    Mount(Mounted),
    /// A loop device was attached to a file; it is detached.
    Loop(Attached),
    /// A network namespace was made; it is removed with what is in it.
    Namespace(Namespace),
    /// A network interface was made in a namespace of iotax's own; it is removed.
    Interface(Interface),
}

impl Effect {
    /// Where a file or directory was made; absent for everything else.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Directory { path, .. } | Self::Tree { path, .. } | Self::File { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether what is at a path is on a filesystem that this mounted.
    pub(super) fn holds(&self, path: &Path) -> bool {
        matches!(self, Self::Mount(mounted) if path != mounted.point && path.starts_with(&mounted.point))
    }

    /// What tells that file or directory from others.
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
            Self::Agent(agent) => {
                write!(f, "agent {} on {} for {}", agent.tag, agent.host.destination, agent.target)
            }
            Self::PhysicalVolume(physical) => write!(f, "physical volume on {}", physical.device.display()),
            Self::VolumeGroup { name, .. } => write!(f, "volume group {name}"),
            Self::LogicalVolume { group_name, name, .. } => write!(f, "logical volume {group_name}/{name}"),
            Self::Filesystem(made) => write!(f, "{} on {}", made.kind, made.device.display()),
            Self::Mount(mounted) => write!(f, "mount on {}", mounted.point.display()),
            Self::Loop(attached) => write!(f, "loop device over {}", attached.file.display()),
            Self::Namespace(namespace) => write!(f, "network namespace {}", namespace.name),
            Self::Interface(interface) => {
                write!(f, "{} {} in {}", interface.kind, interface.name, interface.namespace)
            }
        }
    }
}

/// Undoes an effect on anything but a path of a filesystem. What is not there is fine; what is not ours any more is left alone and
/// said. Tools hold the lock.
pub(super) fn undo(effect: &Effect, lock: &ProcessLock) -> io::Result<()> {
    match effect {
        Effect::Directory { .. } | Effect::Tree { .. } | Effect::File { .. } => {
            Err(io::Error::other("it is not on record which directory it was made in; left alone"))
        }
        Effect::Guest { marker } => kill_guest(marker),
        Effect::Agent(agent) => remote::leave(agent, io::stdin().is_terminal()).map_err(io::Error::other),
        Effect::PhysicalVolume(physical) => physical.remove(lock),
        Effect::VolumeGroup { name, physical } => physical.remove_group(name, lock),
        Effect::LogicalVolume { group, group_name, name } => group.remove_volume(group_name, name, lock),
        Effect::Filesystem(made) => made.wipe(lock),
        Effect::Mount(mounted) => mounted.unmount(),
        Effect::Loop(attached) => attached.detach(lock),
        Effect::Namespace(namespace) => namespace.remove(lock),
        Effect::Interface(interface) => interface.remove(lock),
    }
}

/// How long a process of a run may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Takes the lock at `path` once all processes have ended that a run left: its guests are killed, a tool is waited for.
///
/// Guests are looked for again each time: a process that has just been started does not show its marker yet.
pub(super) fn end_processes(standing: &[&Effect], path: &Path) -> io::Result<ProcessLock> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(lock) = ProcessLock::take(path)? {
            return Ok(lock);
        }
        for effect in standing {
            if let Effect::Guest { marker } = effect {
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
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Kills the QEMU process with this marker in its command line, if there is one, and waits until it is gone.
fn kill_guest(marker: &str) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pids = kill_marked(marker)?;
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("process {pids:?} does not end")));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Kills the QEMU processes with this marker in their command line, and returns which these were.
fn kill_marked(marker: &str) -> io::Result<Vec<u32>> {
    let pids = guests_marked(Path::new("/proc"), marker)?;
    for pid in &pids {
        if let Some(pid) = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    Ok(pids)
}

/// Processes whose program is a QEMU and one of whose arguments contains the marker; zombies have no arguments.
fn guests_marked(proc: &Path, marker: &str) -> io::Result<Vec<u32>> {
    let marked = fs::read_dir(proc)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let Ok(line) = fs::read(proc.join(pid.to_string()).join("cmdline")) else { return false };
            let mut arguments = line.split(|byte| *byte == 0);
            let program = arguments.next().unwrap_or_default();
            let program = String::from_utf8_lossy(program);
            // Until ip(8) has become it, in a network namespace, QEMU is one of its arguments.
            let becomes = program.ends_with("/ip") && String::from_utf8_lossy(&line).contains("qemu");
            (program.contains("qemu") || becomes)
                && arguments.any(|argument| String::from_utf8_lossy(argument).contains(marker))
        })
        .collect();
    Ok(marked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_qemu_with_the_marker_is_a_marked_guest() {
        let temp = tempfile::tempdir().expect("temp dir");
        for (pid, line) in [
            (10, "/usr/bin/qemu-system-x86_64\0-name\0iotax-abc-vm\0"),
            (11, "/usr/bin/qemu-system-x86_64\0-name\0other\0"),
            (12, "vim\0iotax-abc-vm.txt\0"),
            (14, "/usr/sbin/ip\0netns\0exec\0iotax-abc\0/usr/bin/qemu-system-x86_64\0-name\0iotax-abc-vm\0"),
            (15, "/usr/sbin/ip\0netns\0exec\0iotax-abc-vm\0sh\0"),
            (13, ""),
        ] {
            let dir = temp.path().join(pid.to_string());
            fs::create_dir(&dir).expect("dir");
            fs::write(dir.join("cmdline"), line).expect("written");
        }
        let mut marked = guests_marked(temp.path(), "iotax-abc-vm").expect("there");
        marked.sort_unstable();
        assert_eq!(marked, [10, 14]);
    }
}
