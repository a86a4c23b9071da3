//! Timeouts and error policies of the layers below a target.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// The kind of a timeout or error policy.
    TimeoutKind, "timeout" {
        /// Time limit of a command to a SCSI or SATA disk.
        ScsiCommand = "SCSI command timeout",
        /// Time limit of a command to an NVMe namespace.
        NvmeCommand = "NVMe command timeout",
        /// Time limit of a request to a virtio-blk disk.
        VirtioRequest = "virtio-blk request timeout",
        /// NVMe over fabrics: time for which the host tries to reconnect to a lost controller (`ctrl_loss_tmo`).
        NvmeControllerLoss = "NVMe controller loss timeout",
        /// NVMe over fabrics: time for which I/O waits for a lost controller before it fails (`fast_io_fail_tmo`).
        NvmeFastIoFail = "NVMe fast I/O fail timeout",
        /// iSCSI: time for which I/O waits for a lost session before it fails (`replacement_timeout` of open-iscsi).
        IscsiReplacement = "iSCSI replacement timeout",
        /// Fibre Channel: time for which I/O waits for a lost port before it fails (`fast_io_fail_tmo`).
        FcFastIoFail = "FC fast I/O fail timeout",
        /// Fibre Channel: time after which a lost port is removed (`dev_loss_tmo`).
        FcDeviceLoss = "FC device loss timeout",
        /// ext4: the filesystem continues after an error.
        ErrorsContinue = "errors=continue",
        /// ext4: the filesystem becomes read-only after an error.
        ErrorsRemountReadOnly = "errors=remount-ro",
        /// ext4: the kernel panics after an error.
        ErrorsPanic = "errors=panic",
    }
}

/// The time that I/O may hang in a layer, or the layer's policy after an I/O error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Timeout {
    /// The layer with the timeout: `sda`, `nvme0`, the mount point of a filesystem.
    pub layer: String,
    /// The kind of timeout or error policy.
    pub kind: TimeoutKind,
    /// Length of the timeout in nanoseconds; absent if the layer waits without a limit, and for an error policy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit_ns: Option<u64>,
    /// The file that the setting was read from, or the missing file that shows that there is no limit.
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
