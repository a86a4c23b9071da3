//! Images that storage daemons of iotax export, and the end of these exports.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use iotax_model::threads;
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
const FUSERMOUNT: Program = Program { name: "fusermount3", package: "fuse3" };

/// A daemon that runs until its export is undone; the layers above must be removed first.
#[derive(Debug)]
pub struct StorageDaemon {
    child: Child,
    /// The name of the daemon's program.
    program: &'static str,
}

impl StorageDaemon {
    pub(crate) const fn new(child: Child, program: &'static str) -> Self {
        Self { child, program }
    }

    /// The daemon's process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The daemon's threads, for the monitor: by role for QEMU's programs, by program name for other servers.
    #[must_use]
    pub fn threads(&self) -> GuestThreads {
        let server = (!self.program.starts_with("qemu-")).then(|| self.program.to_owned());
        GuestThreads { pid: self.pid(), roles: BTreeMap::new(), server }
    }

    /// Ends the daemon so that the image is complete, and waits for its exit.
    pub(crate) fn end(mut self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("{} does not end", self.program)));
            }
            threads::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

/// Time for a daemon to flush its data and exit.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// An image that a daemon exposes as a file through FUSE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FuseExport {
    /// Marker that is unique to the daemon's command line.
    pub marker: String,
    /// The file that the export is mounted on, which iotax created.
    pub point: PathBuf,
}

impl FuseExport {
    /// The mount of the export; `None` if not mounted.
    pub(crate) fn mount(&self) -> io::Result<Option<Mount>> {
        let table = mount::table(Path::new("/proc/self"))?;
        let is_ours = |mount: &Mount| mount.point == self.point && mount.kind.starts_with("fuse");
        Ok(table.into_iter().rfind(is_ours))
    }

    /// Unmounts the export. Requires that the daemon has ended: the mount of a killed daemon remains, but serves no requests.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        while self.mount()?.is_some() {
            if rustix::process::geteuid().is_root() {
                until_free(|| unmount(&self.point, UnmountFlags::NOFOLLOW).map_err(Into::into))?;
            } else {
                FUSERMOUNT.run(["-u".as_ref(), self.point.as_os_str()]).map_err(io::Error::other)?;
            }
        }
        Ok(())
    }
}
