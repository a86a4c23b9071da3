//! A virtio block device that QEMU's storage daemon offers for an image, and that iotax uses without a guest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::guest::check_aio;
use super::{
    Aio, Area, Below, CacheMode, FromLine, LayerInterface, LayerType, Part, PlannedLayer, Segments, keys,
};
use crate::workload::{Kind, Workload};

/// An image that `qemu-storage-daemon` accesses as a guest's QEMU would, and shows as a virtio block device (vhost-user-blk). iotax drives the
/// device's queues in place of a guest's driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VirtioSpec {
    /// Cache mode of the drive.
    pub cache: CacheMode,
    /// I/O backend of the drive.
    pub aio: Aio,
    /// Queues of the device, one for each worker and one for flushes; if absent, as many as the workloads need.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2))]
    pub queues: Option<u16>,
    /// Entries of each queue, a power of two; an I/O uses three [default: 1024]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 4, max = 1024))]
    pub queue_size: Option<u16>,
    /// Serve the queues in an I/O thread, as guests' disks are, instead of the main loop [default: true; false for a watch with operations]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iothread: Option<bool>,
}

impl Default for VirtioSpec {
    fn default() -> Self {
        Self { cache: CacheMode::None, aio: Aio::IoUring, queues: None, queue_size: None, iothread: None }
    }
}

/// Number of queues at most: vhost-user numbers them with eight bits (VHOST_USER_VRING_IDX_MASK).
const MOST_QUEUES: u16 = 256;

impl VirtioSpec {
    /// Number of entries of a queue if the plan does not set it; also the maximum of QEMU's devices.
    pub const ENTRIES: u16 = 1024;

    /// Returns the maximum number of I/Os in flight in a queue of this many entries: an I/O uses an entry each for its header, data and
    /// status.
    #[must_use]
    pub const fn depth_of(entries: u16) -> u32 {
        entries as u32 / 3
    }

    /// Returns the maximum number of I/Os in flight in a queue of this device.
    #[must_use]
    pub fn depth(&self) -> u32 {
        Self::depth_of(self.queue_size.unwrap_or(Self::ENTRIES))
    }

    /// Returns whether an I/O thread serves the queues: the plan's setting, else true without operations during the measurement and false with
    /// them. Operations change the block nodes below, and QEMU's daemon then loses requests of an I/O thread, or crashes (seen with QEMU 10.0).
    #[must_use]
    pub fn has_iothread(&self, with_operations: bool) -> bool {
        self.iothread.unwrap_or(!with_operations)
    }

    /// Returns the reason why a workload cannot run on this virtio device without a guest, with a remedy; `None` if it can, and for file
    /// workloads, which [`crate::target::Stack::wants_filesystem`] rejects.
    #[must_use]
    pub fn refusal(&self, workload: &Workload) -> Option<String> {
        // File workloads are rejected elsewhere, as on every raw disk.
        if workload.needs_directory() {
            return None;
        }
        if !workload.direct {
            return Some("a virtio device's driver has no page cache; use direct = true".into());
        }
        if workload.iodepth > self.depth() {
            return Some(format!(
                "iodepth = {}: a queue of {} entries holds {} I/Os; use numjobs for more at once",
                workload.iodepth,
                self.queue_size.unwrap_or(Self::ENTRIES),
                self.depth()
            ));
        }
        if workload.numjobs >= MOST_QUEUES.into() {
            return Some(format!(
                "numjobs = {}: accepted: up to {}; each job drives a queue, and a virtio device has {MOST_QUEUES}, one of them for flushes",
                workload.numjobs,
                MOST_QUEUES - 1
            ));
        }
        if let Some(queues) = self.queues.filter(|queues| u32::from(*queues) <= workload.numjobs) {
            return Some(format!(
                "numjobs = {}: each job drives a queue, and one of the {queues} is for flushes; use queues = {}, or leave it out",
                workload.numjobs,
                workload.numjobs + 1
            ));
        }
        if let Some(range) = workload.sync_file_range {
            return Some(format!(
                "sync_file_range = {range} writes a page cache out, and a virtio device's driver has none; use fdatasync"
            ));
        }
        let Kind::Files(test) = workload.kind else { return None };
        Some(format!(
            "test = {test} makes system calls, and a virtio device takes none; use an rw that reads or writes"
        ))
    }
}

impl LayerType for VirtioSpec {
    fn key(&self) -> &'static str {
        "virtio"
    }

    fn stands_on(&self) -> &'static [LayerInterface] {
        super::BENEATH_A_DAEMON
    }

    fn offers(&self) -> LayerInterface {
        LayerInterface::VirtioQueue
    }

    fn cache(&self) -> Option<CacheMode> {
        Some(self.cache)
    }

    fn aio(&self) -> Option<Aio> {
        Some(self.aio)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(queues) = self.queues.filter(|queues| !(2..=MOST_QUEUES).contains(queues)) {
            return Err(format!(
                "virtio: queues = {queues}: accepted: 2 to {MOST_QUEUES}, one of them for flushes"
            ));
        }
        let is_possible = |size: u16| size.is_power_of_two() && (4..=Self::ENTRIES).contains(&size);
        if let Some(size) = self.queue_size.filter(|size| !is_possible(*size)) {
            return Err(format!(
                "virtio: queue_size = {size}: accepted: a power of two from 4 to {}",
                Self::ENTRIES
            ));
        }
        check_aio(self.aio, self.cache)
    }

    fn confine(&self, _: &dyn Area) -> Result<(), String> {
        let Self { cache: _, aio: _, queues: _, queue_size: _, iothread: _ } = self;
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        let mut part = Part::new("virtio", "QEMU's block layer and virtio", self, &[]);
        part.open.insert("iothread", "true".into());
        part.open.insert("queue_size", Self::ENTRIES.to_string());
        vec![part]
    }

    fn segments(&self, _: Option<&PlannedLayer>) -> Vec<String> {
        let more = keys(self, Some(&Self::default()), &["cache", "aio"]);
        vec![format!("virtio cache={} aio={}{more}", self.cache, self.aio)]
    }
}

impl FromLine for VirtioSpec {
    const FORMS: &[&str] = &["virtio"];

    fn read(segments: &mut Segments, _: &Below<'_>) -> Option<Result<Self, String>> {
        let [word] = segments.next_words()? else { return None };
        (word == "virtio").then(|| segments.take().spec([]))
    }
}
