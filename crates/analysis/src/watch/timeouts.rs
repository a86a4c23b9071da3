//! Compares timeouts with the longest time that I/O hung: timeouts of the target's layers, and defaults of common guests.

use iotax_model::Nanos;
use iotax_model::record::{TargetRecord, Timeout};
use schemars::JsonSchema;
use serde::Serialize;

/// A timeout compared with the longest time that I/O hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JudgedTimeout<'a> {
    /// The machine on which the timeout is set.
    pub owner: TimeoutOwner,
    /// Name of the layer: `sda`, `/srv`. For a default, the guest system: `Linux`.
    pub layer: &'a str,
    /// Name of the timeout: `SCSI command timeout`. For a default, the kind of disks.
    pub what: &'a str,
    /// Length of the timeout; absent if the layer has no time limit.
    pub limit: Option<Nanos>,
    /// Result of comparing the timeout with the longest time that I/O hung.
    pub verdict: TimeoutVerdict,
    /// Consequence when the timeout expires, as text.
    pub then: &'a str,
    /// File from which the timeout was read; for a default, the documentation that states it.
    pub source: &'a str,
}

/// The machine that a timeout belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeoutOwner {
    /// The machine with the target.
    Target,
    /// The measured guest.
    Guest,
    /// A guest with default settings, such as could run on this storage.
    GuestDefault,
}

/// The result of comparing a timeout with the longest time that I/O hung.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutVerdict {
    /// I/O hung for the timeout or longer.
    Exceeded,
    /// I/O hung for less than the timeout, by this many nanoseconds.
    Spare(u64),
    /// Undecided: the observed time is unknown, or a lower bound that is below the timeout.
    Unknown,
    /// The layer waits without limit.
    Unlimited,
    /// The layer acts on an error, not on a timeout.
    OnError,
}

/// The longest time that I/O hung, if known.
#[derive(Debug, Clone, Copy)]
pub(super) struct LongestHang {
    /// The longest hang in nanoseconds; `None` if unknown.
    pub(super) ns: Option<u64>,
    /// False if the time is a lower bound.
    pub(super) is_whole: bool,
}

impl LongestHang {
    fn verdict(self, limit: Option<Nanos>) -> TimeoutVerdict {
        match (limit, self.ns) {
            (None, _) => TimeoutVerdict::Unlimited,
            (Some(limit), Some(ns)) if ns >= limit.0 => TimeoutVerdict::Exceeded,
            (Some(limit), Some(ns)) if self.is_whole => TimeoutVerdict::Spare(limit.0 - ns),
            (Some(_), _) => TimeoutVerdict::Unknown,
        }
    }
}

/// The default timeout of a guest operating system.
struct GuestDefault {
    guest: &'static str,
    disks: &'static str,
    limit: Option<Nanos>,
    then: &'static str,
    source: &'static str,
}

/// Default timeouts of guest operating systems.
///
/// - Linux: `SD_TIMEOUT` is 30 s, and so is `nvme_core.io_timeout`. virtio_blk has no timeout handler; that of virtio_scsi restarts the
///   timer.
/// - Linux on VMware: open-vm-tools installs a udev rule for disks of this hypervisor.
/// - Windows: the Amazon EBS User Guide states 60 s as the default of `TimeoutValue` ("NVMe I/O operation timeout for Amazon EBS volumes").
///   Microsoft's storage team states 8 retries ("The Windows Disk timeout value: Less is better").
const GUEST_DEFAULTS: [GuestDefault; 4] = [
    GuestDefault {
        guest: "Linux",
        disks: "SCSI, SATA and NVMe disks",
        limit: Some(Nanos::from_secs(30)),
        then: "the command is aborted and tried again, up to 5 times by default",
        source: "SD_TIMEOUT in the kernel's sd.h, nvme_core.io_timeout",
    },
    GuestDefault {
        guest: "Windows",
        disks: "disks",
        limit: Some(Nanos::from_secs(60)),
        then: "the request is tried again, up to 8 times",
        source: r"TimeoutValue in HKLM\SYSTEM\CurrentControlSet\Services\Disk",
    },
    GuestDefault {
        guest: "Linux with open-vm-tools",
        disks: "SCSI disks of VMware",
        limit: Some(Nanos::from_secs(180)),
        then: "the command is aborted and tried again, up to 5 times by default",
        source: "99-vmware-scsi-udev.rules",
    },
    GuestDefault {
        guest: "Linux",
        disks: "virtio-blk and virtio-scsi disks",
        limit: None,
        then: "the driver waits until the hypervisor answers",
        source: "virtio_blk.c and virtio_scsi.c of the kernel",
    },
];

/// Compares the timeouts of a target's layers from the bottom up, then of its guest, then the defaults of common guests.
pub(super) fn judged(record: Option<&TargetRecord>, hang: LongestHang) -> Vec<JudgedTimeout<'_>> {
    let recorded = |owner: TimeoutOwner| move |timeout| of_layer(owner, timeout, hang);
    let (target, guest) = record.map_or((&[][..], &[][..]), |r| (&r.timeouts, &r.guest_timeouts));
    let defaults = GUEST_DEFAULTS.iter().map(|default| JudgedTimeout {
        owner: TimeoutOwner::GuestDefault,
        layer: default.guest,
        what: default.disks,
        limit: default.limit,
        verdict: hang.verdict(default.limit),
        then: default.then,
        source: default.source,
    });
    let target = target.iter().map(recorded(TimeoutOwner::Target));
    target.chain(guest.iter().map(recorded(TimeoutOwner::Guest))).chain(defaults).collect()
}

fn of_layer(owner: TimeoutOwner, timeout: &Timeout, hang: LongestHang) -> JudgedTimeout<'_> {
    let Timeout { layer, kind, limit_ns, source } = timeout;
    let limit = limit_ns.map(Nanos);
    let verdict = if kind.is_on_error() { TimeoutVerdict::OnError } else { hang.verdict(limit) };
    JudgedTimeout { owner, layer, what: kind.word(), limit, verdict, then: timeout.then(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::record::TimeoutKind;

    const SECOND: u64 = 1_000_000_000;

    fn record() -> TargetRecord {
        let timeout = |layer: &str, kind, seconds: Option<u64>| Timeout {
            layer: layer.into(),
            kind,
            limit_ns: seconds.map(|seconds| seconds * SECOND),
            source: "/sys/it".into(),
        };
        TargetRecord {
            timeouts: vec![
                timeout("sda", TimeoutKind::ScsiCommand, Some(30)),
                timeout("sda", TimeoutKind::IscsiReplacement, Some(120)),
                timeout("/srv", TimeoutKind::ErrorsRemountReadOnly, None),
            ],
            guest_timeouts: vec![timeout("vda", TimeoutKind::VirtioRequest, None)],
            ..TargetRecord::default()
        }
    }

    fn verdicts(ns: Option<u64>, is_whole: bool) -> Vec<TimeoutVerdict> {
        let record = record();
        judged(Some(&record), LongestHang { ns, is_whole }).iter().map(|one| one.verdict).collect()
    }

    use TimeoutVerdict::{Exceeded, OnError, Spare, Unknown, Unlimited};

    #[test]
    fn a_limit_is_exceeded_from_its_length_on() {
        let just_below = verdicts(Some(30 * SECOND - 1), true);
        let spare = |seconds: u64| Spare(seconds * SECOND + 1);
        assert_eq!(just_below[..4], [Spare(1), spare(90), OnError, Unlimited]);
        assert_eq!(just_below[4..], [Spare(1), spare(30), spare(150), Unlimited]);
        let reached = verdicts(Some(30 * SECOND), true);
        assert_eq!(reached[..4], [Exceeded, Spare(90 * SECOND), OnError, Unlimited]);
        assert_eq!(reached[4..], [Exceeded, Spare(30 * SECOND), Spare(150 * SECOND), Unlimited]);
    }

    #[test]
    fn a_lower_bound_can_exceed_a_limit_and_cannot_spare_it() {
        assert_eq!(verdicts(Some(29 * SECOND), false)[..4], [Unknown, Unknown, OnError, Unlimited]);
        assert_eq!(verdicts(Some(31 * SECOND), false)[..4], [Exceeded, Unknown, OnError, Unlimited]);
        assert_eq!(verdicts(None, false)[..4], [Unknown, Unknown, OnError, Unlimited]);
    }

    #[test]
    fn a_record_without_timeouts_leaves_the_defaults_of_guests() {
        let hang = LongestHang { ns: Some(45 * SECOND), is_whole: true };
        for record in [None, Some(&TargetRecord::default())] {
            let all = judged(record, hang);
            assert!(all.iter().all(|one| one.owner == TimeoutOwner::GuestDefault));
            let linux_and_windows: Vec<_> = all[..2].iter().map(|one| (one.layer, one.verdict)).collect();
            assert_eq!(linux_and_windows, [("Linux", Exceeded), ("Windows", Spare(15 * SECOND))]);
        }
    }
}
