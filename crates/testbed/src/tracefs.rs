//! Instances of the kernel's tracing, each with its own buffers and events.
//!
//! The tracing filesystem is mounted detached (fsmount(2)): only the process that holds it sees it, and it is unmounted when that process
//! exits.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use serde::{Deserialize, Serialize};

/// A trace instance that iotax created, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceInstance {
    /// Name of the instance, which contains the run's tag.
    pub name: String,
}

/// A detached mount of the tracing filesystem.
#[derive(Debug)]
pub(crate) struct TraceFs(OwnedFd);

impl TraceFs {
    pub(crate) fn open() -> io::Result<Self> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        Ok(Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }

    /// Returns the path of an instance's directory.
    pub(crate) fn instance(&self, instance: &TraceInstance) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/instances/{}", self.0.as_raw_fd(), instance.name))
    }
}

impl TraceInstance {
    /// Removes the instance with its buffers; does nothing if it is missing.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let tracing = TraceFs::open()?;
        match fs::remove_dir(tracing.instance(self)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
