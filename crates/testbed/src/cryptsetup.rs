//! The tools cryptsetup(8) and integritysetup(8), and LUKS headers that iotax created.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::device::{RecordedDisk, SignedDevice};
use crate::lock::ProcessLock;
use crate::program::Program;

/// The tool that formats and opens LUKS containers.
pub(crate) const CRYPTSETUP: Program = Program { name: "cryptsetup", package: "cryptsetup-bin" };
/// The tool that formats and opens dm-integrity devices.
pub(crate) const INTEGRITYSETUP: Program = Program { name: "integritysetup", package: "cryptsetup-bin" };

/// A LUKS2 header that iotax created on a user's device, as recorded in the undo log; identified by its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LuksHeader {
    /// Path of the device node when iotax created the header.
    pub device: PathBuf,
    /// The disk that had that device node when iotax created the header; `None` if it could not be identified.
    pub disk: Option<Box<RecordedDisk>>,
    /// The header's UUID, which iotax passed to cryptsetup.
    pub uuid: String,
}

impl LuksHeader {
    /// Wipes the LUKS header, if a device still carries its UUID.
    pub(crate) fn wipe(&self, lock: &ProcessLock) -> io::Result<()> {
        let Self { device, disk, uuid } = self;
        SignedDevice { device, disk: disk.as_deref(), kind: "crypto_LUKS", uuid }.wipe(lock)
    }
}
