//! Instances of the kernel's tracing: separate buffers and events, apart from other users'.
//!
//! The filesystem is mounted nowhere: a detached mount (fsmount(2)) is seen by its holder alone and is gone with it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use serde::{Deserialize, Serialize};

/// An instance that iotax made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceInstance {
    /// Contains the run's tag.
    pub name: String,
}

/// The tracing filesystem.
#[derive(Debug)]
pub(crate) struct TraceFs(OwnedFd);

impl TraceFs {
    pub(crate) fn open() -> io::Result<Self> {
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        Ok(Self(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?))
    }

    /// The directory of an instance.
    pub(crate) fn instance(&self, instance: &TraceInstance) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/instances/{}", self.0.as_raw_fd(), instance.name))
    }
}

impl TraceInstance {
    /// Removes it with its buffers; missing is fine.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let tracing = TraceFs::open()?;
        match fs::remove_dir(tracing.instance(self)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
