//! Network namespaces of iotax's own and the interfaces in them: how they are removed, by ip(8), and programs that run in them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::lock::ProcessLock;
use crate::program::Program;

/// Makes namespaces and interfaces.
pub(crate) const IP: Program = Program { name: "ip", package: "iproute2" };
/// passt(1), which may outlive a run in a namespace of its own.
pub(crate) const PASST: Program = Program { name: "passt", package: "passt" };
/// Where ip(8) keeps the names of namespaces.
const NAMES: &str = "/run/netns";
/// How the names of iotax's own begin.
const OURS: &str = "iotax-";
/// By which a process names its own program.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A network namespace that iotax made, known by its name, which holds the run's tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// As ip(8) knows it.
    pub name: String,
}

impl Namespace {
    pub(crate) fn path(&self) -> PathBuf {
        Path::new(NAMES).join(&self.name)
    }

    /// Kills a passt(1) that waits in it for a QEMU that never came: nothing else tells whose it is. Agents end with
    /// their conductor, and guests are on record themselves.
    fn end_passt(&self) {
        // None is known in a namespace that was made by halves.
        let pids = IP.run(["netns", "pids", &self.name]).unwrap_or_default();
        for pid in String::from_utf8_lossy(&pids).split_whitespace() {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let pid = pid.parse().ok().and_then(Pid::from_raw).filter(|_| name.starts_with(PASST.name));
            // It may have ended meanwhile.
            let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        }
    }

    /// Removes it with all that is in it. It ends for good when the last process in it does.
    pub(crate) fn remove(&self, lock: &ProcessLock) -> io::Result<()> {
        if !self.name.starts_with(OURS) || self.name.contains('/') {
            return Err(io::Error::other("this is not a namespace that iotax made; left alone"));
        }
        if self.path().try_exists()? {
            self.end_passt();
            lock.run(IP, ["netns", "delete", &self.name]).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// An interface in a namespace that iotax made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The namespace's name.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// What it is: `veth`, `bridge`, `tap`.
    pub kind: String,
}

impl Interface {
    /// Removes it. The other end of a pair goes with it.
    pub(crate) fn remove(&self, lock: &ProcessLock) -> io::Result<()> {
        let namespace = Namespace { name: self.namespace.clone() };
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

/// The interface's name in a line of `ip -o link show`: `2: veth0@if3: <BROADCAST,...`.
fn listed_name(line: &str) -> Option<&str> {
    line.split(": ").nth(1)?.split('@').next()
}

/// A program that is to run in a network namespace, or in this process's if none is named.
///
/// It runs in the very process that is started: ip(8) becomes it. It also sees the namespace's interfaces in /sys.
#[must_use]
pub fn command_in(namespace: Option<&str>, program: &Path) -> Command {
    let Some(namespace) = namespace else { return Command::new(program) };
    let mut command = Command::new(IP.path().unwrap_or_else(|_| IP.name.into()));
    command.args(["netns", "exec", namespace]);
    if program == Path::new(OWN_PROGRAM) {
        // By then it would be ip(8).
        command.arg(format!("/proc/{}/exe", std::process::id()));
    } else {
        command.arg(program);
    }
    command
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
            let error = Namespace { name: name.into() }.remove(&lock).expect_err("not ours").to_string();
            assert!(error.contains("left alone"), "{error}");
        }
        Namespace { name: "iotax-none-near".into() }.remove(&lock).expect("it is not there");
        let (namespace, name, kind) = ("iotax-none-near".into(), "veth0".into(), "veth".into());
        Interface { namespace, name, kind }.remove(&lock).expect("it is not there");
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
