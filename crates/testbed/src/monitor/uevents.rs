//! Follows the kernel's uevents of block, SCSI and NVMe devices.

use std::io;
use std::time::Duration;

use crate::netlink::Multicast;

/// Subsystems whose uevents are reported. Device-mapper events, such as a failed path, belong to `block`.
const SUBSYSTEMS: [&str; 3] = ["block", "scsi", "nvme"];
/// Kernel name prefixes of devices that are not reported: in-memory and loop devices, which tools create and remove all the time.
const LEFT_OUT: [&str; 3] = ["loop", "ram", "zram"];
/// Keys of uevents that are not shown: sequence numbers, identifiers, and values that the reported text already contains.
const SILENT: [&str; 15] = [
    "ACTION",
    "DEVNAME",
    "DEVPATH",
    "DEVTYPE",
    "DISKSEQ",
    "DM_COOKIE",
    "DM_SEQNUM",
    "DM_UUID",
    "MAJOR",
    "MINOR",
    "MODALIAS",
    "PARTN",
    "PARTUUID",
    "SEQNUM",
    "SUBSYSTEM",
];

/// A receiver of new uevents.
#[derive(Debug)]
pub struct Uevents(Multicast);

impl Uevents {
    /// Opens a socket for uevents.
    ///
    /// # Errors
    /// The netlink socket cannot be opened.
    pub fn open() -> io::Result<Self> {
        Multicast::uevents().map(Self)
    }

    /// Returns the uevents since the last call, such as `change dm-0: DM_ACTION=PATH_FAILED DM_PATH=8:16`. Waits at most `patience` for
    /// one.
    pub fn next(&self, patience: Duration) -> Vec<String> {
        self.0.next(patience).iter().filter_map(|message| line(message)).collect()
    }
}

/// Formats a uevent for the report: `change@/devices/virtual/block/dm-0`, followed by `KEY=VALUE` strings, each ended by a zero byte.
/// `None` if it is not to be reported.
fn line(message: &[u8]) -> Option<String> {
    let message = String::from_utf8_lossy(message);
    let mut parts = message.split('\0');
    let (action, path) = parts.next()?.split_once('@')?;
    let pairs: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
    let value = |key: &str| pairs.iter().find(|pair| pair.0 == key).map(|pair| pair.1);
    let name = path.rsplit('/').next()?;
    let is_storage = value("SUBSYSTEM").is_some_and(|subsystem| SUBSYSTEMS.contains(&subsystem));
    let is_left_out = LEFT_OUT.iter().any(|prefix| name.starts_with(prefix));
    // A program triggered the event through /sys, as udev does when a device that was open for writing is closed.
    let is_of_a_program = value("SYNTH_UUID").is_some();
    if !is_storage || is_left_out || is_of_a_program {
        return None;
    }
    let shown = pairs.iter().filter(|(key, value)| !SILENT.contains(key) && !value.is_empty());
    let shown: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
    Some(if shown.is_empty() {
        format!("{action} {name}")
    } else {
        format!("{action} {name}: {}", shown.join(" "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_storage_is_a_line() {
        let failed = b"change@/devices/virtual/block/dm-0\0ACTION=change\0DEVPATH=/devices/virtual/block/dm-0\0SUBSYSTEM=block\0\
            DM_TARGET=multipath\0DM_ACTION=PATH_FAILED\0DM_SEQNUM=4\0DM_PATH=8:16\0DM_NR_VALID_PATHS=1\0DM_NAME=lun\0DM_UUID=mpath-3600\0\
            MAJOR=254\0MINOR=0\0DEVNAME=dm-0\0DEVTYPE=disk\0DISKSEQ=23\0SEQNUM=2405\0";
        let expected = "change dm-0: DM_TARGET=multipath DM_ACTION=PATH_FAILED DM_PATH=8:16 DM_NR_VALID_PATHS=1 DM_NAME=lun";
        assert_eq!(line(failed).as_deref(), Some(expected));
        let gone = b"remove@/devices/pci0000:00/0000:00:05.0/host2/target2:0:0/2:0:0:0/block/sdb\0ACTION=remove\0SUBSYSTEM=block\0\
            DEVNAME=sdb\0SEQNUM=2406\0";
        assert_eq!(line(gone).as_deref(), Some("remove sdb"));
        for other in [
            &b"change@/devices/virtual/block/loop3\0ACTION=change\0SUBSYSTEM=block\0SEQNUM=1\0"[..],
            b"add@/devices/virtual/net/veth0\0ACTION=add\0SUBSYSTEM=net\0INTERFACE=veth0\0",
            b"change@/devices/virtual/block/dm-0\0ACTION=change\0SUBSYSTEM=block\0SYNTH_UUID=0\0",
            b"libudev\0\xfe\xed\xca\xfe\0",
            b"",
        ] {
            assert_eq!(line(other), None, "{}", String::from_utf8_lossy(other));
        }
    }
}
