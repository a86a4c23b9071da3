//! cryptsetup(8), integritysetup(8), and the headers of LUKS.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::device::{RecordedDisk, SignedDevice};
use crate::lock::ProcessLock;
use crate::program::Program;

/// Formats and opens LUKS.
pub(crate) const CRYPTSETUP: Program = Program { name: "cryptsetup", package: "cryptsetup-bin" };
/// Formats and opens dm-integrity.
pub(crate) const INTEGRITYSETUP: Program = Program { name: "integritysetup", package: "cryptsetup-bin" };

/// A header of LUKS2 on a device of the user's, identified by its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LuksHeader {
    /// The device node.
    pub device: PathBuf,
    /// The disk at that node when it was formatted.
    pub disk: Option<Box<RecordedDisk>>,
    /// The UUID passed to cryptsetup.
    pub uuid: String,
}

impl LuksHeader {
    /// Wipes it, if the device still carries this UUID.
    pub(crate) fn wipe(&self, lock: &ProcessLock) -> io::Result<()> {
        let Self { device, disk, uuid } = self;
        SignedDevice { device, disk: disk.as_deref(), kind: "crypto_LUKS", uuid }.wipe(lock)
    }
}
