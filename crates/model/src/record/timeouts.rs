//! Timeouts and error policies of the layers below a target.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The kind of a timeout.
    TimeoutKind, "timeout" {
        /// A command to a SCSI or SATA disk.
        ScsiCommand = "SCSI command timeout",
        /// A command to an NVMe namespace.
        NvmeCommand = "NVMe command timeout",
        /// A request to a virtio-blk disk.
        VirtioRequest = "virtio-blk request timeout",
        /// NVMe over fabrics: for which a lost controller is kept (`ctrl_loss_tmo`).
        NvmeControllerLoss = "NVMe controller loss timeout",
        /// NVMe over fabrics: for which I/O waits for a lost controller (`fast_io_fail_tmo`).
        NvmeFastIoFail = "NVMe fast I/O fail timeout",
        /// For which I/O waits for a lost iSCSI session (`replacement_timeout` of open-iscsi).
        IscsiReplacement = "iSCSI replacement timeout",
        /// Fibre Channel: for which I/O waits for a lost port (`fast_io_fail_tmo`).
        FcFastIoFail = "FC fast I/O fail timeout",
        /// Fibre Channel: for which a lost port is kept (`dev_loss_tmo`).
        FcDeviceLoss = "FC device loss timeout",
        /// Ext4 goes on after an error.
        ErrorsContinue = "errors=continue",
        /// Ext4 becomes read-only after an error.
        ErrorsRemountReadOnly = "errors=remount-ro",
        /// Ext4 panics after an error.
        ErrorsPanic = "errors=panic",
    }
}

/// The time that I/O may hang in a layer, or the layer's policy after an I/O error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeout {
    /// The layer: `sda`, `nvme0`, the mount point of a filesystem.
    pub layer: String,
    /// The kind.
    pub kind: TimeoutKind,
    /// Absent if the layer waits without a limit, or acts on an error and not on a time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_ns: Option<u64>,
    /// The file that it was read from.
    pub source: String,
}

impl TimeoutKind {
    /// Returns whether this is a policy for I/O errors rather than a time limit.
    #[must_use]
    pub const fn is_on_error(self) -> bool {
        matches!(self, Self::ErrorsContinue | Self::ErrorsRemountReadOnly | Self::ErrorsPanic)
    }
}

impl Timeout {
    /// Describes the effect when the limit expires. For a layer without a limit, describes its behaviour instead; for an error policy, the effect
    /// of an I/O error.
    #[must_use]
    pub const fn then(&self) -> &'static str {
        match (self.kind, self.limit_ns) {
            (TimeoutKind::ScsiCommand, Some(_)) => {
                "the command is aborted and tried again, up to 5 times by default; if aborting fails, the device is reset, and in the end taken offline"
            }
            (TimeoutKind::ScsiCommand, None) | (TimeoutKind::VirtioRequest, _) => {
                "the driver waits until the hypervisor answers"
            }
            (TimeoutKind::NvmeCommand, _) => {
                "the command is aborted or the controller reset, over fabrics reconnected; then it is tried again, up to 5 times by default"
            }
            (TimeoutKind::NvmeControllerLoss, Some(_)) => {
                "with the connection lost for so long, the controller is removed and I/O fails"
            }
            (TimeoutKind::NvmeControllerLoss, None) => "it reconnects without end",
            (TimeoutKind::NvmeFastIoFail, _) => "with the connection lost for so long, I/O fails",
            (TimeoutKind::IscsiReplacement, Some(_)) => "with the session lost for so long, I/O fails",
            (TimeoutKind::IscsiReplacement, None) => "I/O waits until the session is back",
            (TimeoutKind::FcFastIoFail, _) => "with the port lost for so long, I/O fails",
            (TimeoutKind::FcDeviceLoss, _) => {
                "with the port lost for so long, its disks are removed and I/O fails"
            }
            (TimeoutKind::ErrorsContinue, _) => {
                "an error in its metadata is only noted; a failed write of its journal makes it read-only"
            }
            (TimeoutKind::ErrorsRemountReadOnly, _) => {
                "an error in its metadata or journal makes it read-only"
            }
            (TimeoutKind::ErrorsPanic, _) => "an error in its metadata or journal makes the kernel panic",
        }
    }
}
