//! The device through which a guest's I/O is measured.

use super::{NetworkSpec, TargetSpec};

/// The protocol by which a guest mounts a directory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryProtocol {
    /// 9p, served by QEMU.
    NineP,
    /// virtiofs, served by virtiofsd.
    Virtiofs,
}

impl DirectoryProtocol {
    /// Returns the protocol's name, which is also its filesystem type in the guest.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NineP => "9p",
            Self::Virtiofs => "virtiofs",
        }
    }

    /// Returns the name of the program on the host that serves the directory.
    #[must_use]
    pub const fn server(self) -> &'static str {
        match self {
            Self::NineP => "QEMU",
            Self::Virtiofs => "virtiofsd",
        }
    }
}

/// The device through which a guest's I/O is measured, as planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlannedDevice<'a> {
    /// A disk on the guest's bus.
    Disk,
    /// A card on a network.
    Card(&'a NetworkSpec),
    /// A directory of the host.
    Directory(DirectoryProtocol),
}

impl TargetSpec {
    /// Returns the protocol by which the guest mounts a directory of the host; `None` without a guest, and for a guest with a disk or network.
    #[must_use]
    pub fn shared_directory(&self) -> Option<DirectoryProtocol> {
        self.stack.shared_directory()
    }

    /// Returns the device through which the I/O of the target's guest is measured; a disk if the target has no guest.
    #[must_use]
    pub fn planned_device(&self) -> PlannedDevice<'_> {
        match (self.network(), self.shared_directory()) {
            (Some(network), _) => PlannedDevice::Card(network),
            (None, Some(protocol)) => PlannedDevice::Directory(protocol),
            (None, None) => PlannedDevice::Disk,
        }
    }
}
