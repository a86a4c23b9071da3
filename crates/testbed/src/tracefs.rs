//! Instances of the kernel's tracing, each with separate buffers and events.
//!
//! The tracing filesystem is a detached mount (fsmount(2)): only its holder sees it, and it is gone when its holder exits.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use serde::{Deserialize, Serialize};

/// A trace instance that iotax created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceInstance {
    /// The instance's name, which contains the run's tag.
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
    /// Removes the instance with its buffers. Succeeds if it is missing.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let tracing = TraceFs::open()?;
        match fs::remove_dir(tracing.instance(self)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
