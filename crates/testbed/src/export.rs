//! Processes that export images and directories, and the removal of FUSE exports.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use iotax_model::threads;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::device::until_free;
use crate::monitor::GuestThreads;
use crate::program::Program;
use crate::stack::mount::{self, Mount};

/// QEMU's storage daemon.
pub(crate) const DAEMON: Program = Program { name: "qemu-storage-daemon", package: "qemu-utils" };
/// The tool that unmounts FUSE filesystems of unprivileged users.
pub(crate) const FUSERMOUNT: Program = Program { name: "fusermount3", package: "fuse3" };

/// A running process that exports an image or a directory, or connects a device to an export. Stop it only after the layers above it have
/// been removed.
#[derive(Debug)]
pub struct StorageDaemon {
    child: Child,
    /// Name of the program, such as `qemu-storage-daemon`.
    program: &'static str,
}

impl StorageDaemon {
    pub(crate) const fn new(child: Child, program: &'static str) -> Self {
        Self { child, program }
    }

    /// Returns the process id of the daemon.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process ids of the daemon and of its direct child processes. smbd, for example, starts one for each client.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let daemon = self.pid();
        let children = fs::read_to_string(format!("/proc/{daemon}/task/{daemon}/children"));
        let children = children.unwrap_or_default();
        let children: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
        iter::once(daemon).chain(children)
    }

    /// Returns the daemon and its child processes for CPU accounting. Threads of QEMU's programs count by role (`main` or `worker`), those
    /// of other programs under the program's name.
    pub fn threads(&self) -> impl Iterator<Item = GuestThreads> {
        let server = (!self.program.starts_with("qemu-")).then(|| self.program.to_owned());
        self.pids().map(move |pid| GuestThreads { pid, roles: BTreeMap::new(), server: server.clone() })
    }

    /// Waits up to a second for the daemon to exit by itself, as its client is gone. Then kills it and its child processes.
    pub(crate) fn finish(&mut self) {
        if self.exits_within(BY_ITSELF).unwrap_or(true) {
            return;
        }
        for pid in self.pids().collect::<Vec<_>>() {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            // An error means that it has exited already.
            let _ = pid.map(|pid| rustix::process::kill_process(pid, Signal::KILL));
        }
        // A process with I/O on a hung disk cannot be reaped.
        let _ = self.exits_within(PATIENCE);
    }

    /// Returns whether the daemon has exited, after waiting up to `patience` for it.
    fn exits_within(&mut self, patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let is_over = self.child.try_wait()?.is_some();
            if is_over || Instant::now() > deadline {
                return Ok(is_over);
            }
            threads::sleep(POLL);
        }
    }

    /// Sends SIGTERM and waits up to 15 s for the daemon to write its data and exit.
    pub(crate) fn end(mut self) -> io::Result<()> {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        if self.exits_within(PATIENCE)? {
            return Ok(());
        }
        Err(io::Error::other(format!("{} does not end", self.program)))
    }
}

/// Maximum time for a daemon to exit once its client is gone.
const BY_ITSELF: Duration = Duration::from_secs(1);
/// Maximum time for a daemon to write its data and exit.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(2);

/// An image that a daemon exposes as a file through FUSE, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FuseExport {
    /// A string that appears in the daemon's command line and in no other process's.
    pub marker: String,
    /// Path of the file on which the export is mounted; iotax created that file.
    pub point: PathBuf,
}

impl FuseExport {
    /// Finds the topmost FUSE mount at the mount point; `None` if there is none.
    pub(crate) fn mount(&self) -> io::Result<Option<Mount>> {
        let table = mount::table(Path::new("/proc/self"))?;
        let is_ours = |mount: &Mount| mount.point == self.point && mount.kind.starts_with("fuse");
        Ok(table.into_iter().rfind(is_ours))
    }

    /// Unmounts the export. The daemon must have exited: the mount of a killed daemon remains, but serves no requests.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        while self.mount()?.is_some() {
            if rustix::process::geteuid().is_root() {
                until_free(|| unmount(&self.point, UnmountFlags::NOFOLLOW).map_err(Into::into))?;
            } else {
                unmount_as_user(&self.point)?;
            }
        }
        Ok(())
    }
}

/// Unmounts a FUSE filesystem by fusermount3(1). A killed process that has files open in the filesystem keeps it busy until it is gone.
fn unmount_as_user(point: &Path) -> io::Result<()> {
    let mut reason = None;
    let unmounted = until_free(|| {
        FUSERMOUNT.run(["-u".as_ref(), point.as_os_str()]).map(drop).map_err(|error| {
            let is_busy = error.to_string().contains("Device or resource busy");
            reason = Some(error);
            if is_busy { Errno::BUSY.into() } else { io::Error::other("not unmounted") }
        })
    });
    unmounted.map_err(|error| reason.map_or(error, io::Error::other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unprivileged_unmount_waits_for_files_that_are_still_open() {
        iotax_testkit::require!(program "fusermount3", "mount", "umount");
        iotax_testkit::require!(root);
        let dir = tempfile::tempdir().expect("a directory");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "tmpfs"])
            .arg(dir.path())
            .status()
            .expect("mount starts");
        assert!(mounted.success());
        let file = fs::File::create_new(dir.path().join("open")).expect("created");
        // fusermount3 does for root what it does for a user whose mount it is.
        let closing = std::thread::spawn(|| {
            threads::sleep(Duration::from_millis(500));
            drop(file);
        });
        let began = Instant::now();
        let unmounted = unmount_as_user(dir.path());
        closing.join().expect("closed");
        let _ = unmount(dir.path(), UnmountFlags::DETACH);
        unmounted.expect("once the file is closed");
        assert!(began.elapsed() >= Duration::from_millis(400), "{:?}", began.elapsed());
        let error = unmount_as_user(dir.path()).expect_err("nothing is mounted").to_string();
        assert!(error.contains("fusermount3"), "{error}");
    }
}
