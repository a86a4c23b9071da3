//! Network namespaces that iotax creates with ip(8), their interfaces, and programs that run in them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use iotax_model::threads;
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, rmdir, statx};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::lock::ProcessLock;
use crate::program::Program;

/// The tool that creates namespaces and interfaces.
pub(crate) const IP: Program = Program { name: "ip", package: "iproute2" };
/// passt(1), which keeps running in the run's namespace if iotax is killed.
pub(crate) const PASST: Program = Program { name: "passt", package: "passt" };
/// The tool that executes a program in an existing namespace.
pub(crate) const NSENTER: Program = Program { name: "nsenter", package: "util-linux" };
/// Directory in which ip(8) keeps a file for each namespace.
pub(crate) const NAMES: &str = "/run/netns";
/// Programs that may outlive a run in the run's namespace.
const HELPERS: [&str; 2] = [PASST.name, "rpcbind"];
/// Name prefix of the network namespaces that iotax creates.
const OURS: &str = "iotax-";
/// The link in /proc to this process's executable.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A network namespace that iotax created, as recorded in the undo log. Its name contains the run's tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// Name of the namespace for ip(8).
    pub name: String,
    /// The part of /run/netns that was missing before this run, and that this run removes, because ip(8) never does.
    /// `None` if nothing was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<NameDirectory>,
}

/// The part of ip(8)'s directory /run/netns that was missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameDirectory {
    /// Only the mount was missing: ip(8) mounts the existing directory on itself.
    Mounted,
    /// Directory and mount were missing: ip(8) creates the directory and mounts it on itself.
    Made,
}

impl NameDirectory {
    /// Returns the part that ip(8) will create with the next namespace; `None` if nothing is missing, or if that is unknown (before Linux
    /// 5.8).
    pub(crate) fn missing() -> io::Result<Option<Self>> {
        match statx(CWD, NAMES, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()) {
            Err(Errno::NOENT) => Ok(Some(Self::Made)),
            Err(errno) => Err(errno.into()),
            // Before Linux 5.8 the kernel does not report mount points; the directory is then left in place.
            Ok(found) if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) => Ok(None),
            Ok(found) => {
                Ok((!found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)).then_some(Self::Mounted))
            }
        }
    }

    /// Unmounts the directory and removes it, if iotax caused its creation. Does nothing while other namespaces use it.
    fn remove(self) -> io::Result<()> {
        let is_used =
            |errno: Errno| matches!(errno, Errno::BUSY | Errno::INVAL | Errno::NOTEMPTY | Errno::NOENT);
        let done = |result: Result<(), Errno>| match result {
            Err(errno) if !is_used(errno) => Err(io::Error::from(errno)),
            _ => Ok(()),
        };
        done(unmount(NAMES, UnmountFlags::NOFOLLOW))?;
        if self == Self::Made {
            done(rmdir(NAMES))?;
        }
        Ok(())
    }
}

impl Namespace {
    pub(crate) fn path(&self) -> PathBuf {
        Path::new(NAMES).join(&self.name)
    }

    /// Kills programs that may still run in the namespace: a passt(1) whose QEMU never started, and rpcbind. Agents exit with the runner;
    /// guests and daemons have their own entries in the undo log.
    fn end_helpers(&self) {
        // In a namespace that is only partly created, no processes run.
        let pids = IP.run(["netns", "pids", &self.name]).unwrap_or_default();
        for pid in String::from_utf8_lossy(&pids).split_whitespace() {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let pid = pid
                .parse()
                .ok()
                .and_then(Pid::from_raw)
                .filter(|_| HELPERS.iter().any(|helper| name.starts_with(helper)));
            // The process may have exited meanwhile.
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
    }

    /// Removes the namespace and everything in it. The kernel keeps the namespace until its last process exits. Rejects a namespace without
    /// iotax's prefix.
    pub(crate) fn remove(&self, lock: &ProcessLock) -> io::Result<()> {
        if !self.name.starts_with(OURS) || self.name.contains('/') {
            return Err(io::Error::other("this is not a namespace that iotax made; left alone"));
        }
        if self.path().try_exists()? {
            self.end_helpers();
            lock.run(IP, ["netns", "delete", &self.name]).map_err(io::Error::other)?;
        }
        self.made.map_or(Ok(()), NameDirectory::remove)
    }
}

/// An interface that iotax created in one of its network namespaces, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetnsInterface {
    /// Name of the network namespace, for ip(8).
    pub namespace: String,
    /// Name of the interface in that namespace.
    pub name: String,
    /// Type of the interface: `veth`, `bridge` or `tap`.
    pub kind: String,
}

impl NetnsInterface {
    /// Removes the interface; does nothing if it or its namespace is missing, or if iotax did not create the namespace. A veth is removed
    /// together with its peer.
    pub(crate) fn remove(&self, lock: &ProcessLock) -> io::Result<()> {
        let namespace = Namespace { name: self.namespace.clone(), made: None };
        if !namespace.name.starts_with(OURS) || !namespace.path().try_exists()? {
            return Ok(());
        }
        let listed = IP.run(["-n", &self.namespace, "-o", "link", "show"]).map_err(io::Error::other)?;
        let there =
            String::from_utf8_lossy(&listed).lines().any(|line| listed_name(line) == Some(&self.name));
        if there {
            let words = ["-n", &self.namespace, "link", "delete", &self.name];
            lock.run(IP, words).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Returns the name of the interface in a line of `ip -o link show`, such as `2: veth0@if3: <BROADCAST,...`.
fn listed_name(line: &str) -> Option<&str> {
    line.split(": ").nth(1)?.split('@').next()
}

/// Prepares a command that runs in the network namespace `namespace`; `None` for this process's.
///
/// The program replaces ip(8) in the same process, so the child's pid is the program's. The program sees the namespace's interfaces in
/// /sys.
#[must_use]
pub fn command_in(namespace: Option<&str>, program: &Path) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new(IP.path().unwrap_or_else(|_| IP.name.into()));
    command.args(["netns", "exec", namespace]);
    if program == Path::new(OWN_PROGRAM) {
        // /proc/self would be ip(8) by then.
        command.arg(format!("/proc/{}/exe", std::process::id()));
    } else {
        command.arg(program);
    }
    command
}

/// Prepares a command that runs in the network namespace that the file `namespace` refers to; `None` for this
/// process's. Unlike with [`command_in`], the program stays in this process's mount namespace.
pub(crate) fn command_at(namespace: Option<&Path>, program: &Path) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new(NSENTER.path().unwrap_or_else(|_| NSENTER.name.into()));
    command.arg(format!("--net={}", namespace.display())).arg("--").arg(program);
    command
}

/// Runs an action on a new thread, in the network namespace that the file `namespace` refers to. The thread stays in
/// this process's mount namespace.
pub(crate) fn within<T: Send>(
    namespace: &Path,
    action: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let file = File::open(namespace)?;
    thread::scope(|scope| {
        let moved = threads::spawn_scoped(scope, "namespace", move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
            action()
        })?;
        moved.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_a_listing() {
        assert_eq!(listed_name("1: lo: <LOOPBACK,UP> mtu 65536 qdisc noqueue"), Some("lo"));
        assert_eq!(listed_name("2: veth0@if3: <BROADCAST,UP> mtu 1500"), Some("veth0"));
        assert_eq!(listed_name("nonsense"), None);
    }

    #[test]
    fn only_a_namespace_of_our_own_is_removed() {
        let temp = tempfile::tempdir().expect("temp dir");
        let lock = ProcessLock::take(&temp.path().join("lock")).expect("a lock").expect("free");
        for name in ["users", "iotax-/../users"] {
            let error =
                Namespace { name: name.into(), made: None }.remove(&lock).expect_err("not ours").to_string();
            assert!(error.contains("left alone"), "{error}");
        }
        Namespace { name: "iotax-none-near".into(), made: None }.remove(&lock).expect("it is not there");
        let (namespace, name, kind) = ("iotax-none-near".into(), "veth0".into(), "veth".into());
        NetnsInterface { namespace, name, kind }.remove(&lock).expect("it is not there");
    }

    #[test]
    fn a_program_in_a_namespace_is_this_very_one() {
        let words = |command: Command| {
            let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
            words.collect::<Vec<_>>().join(" ")
        };
        let own = command_in(Some("iotax-a-near"), Path::new(OWN_PROGRAM));
        assert_eq!(words(own), format!("netns exec iotax-a-near /proc/{}/exe", std::process::id()));
        assert_eq!(command_in(None, Path::new(OWN_PROGRAM)).get_program(), OWN_PROGRAM);
    }
}
