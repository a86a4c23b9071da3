//! Reads block devices: their counters from /proc/diskstats, their stack order from /sys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use iotax_model::target::LayerKind;
use iotax_testbed::monitor::ProcFile;
use iotax_testbed::stack;

use crate::raw::{Device, DeviceCounters};

/// Block devices of a machine, in stack order.
#[derive(Debug)]
pub(super) struct Devices {
    root: PathBuf,
    diskstats: ProcFile,
    /// Devices in the order of display; their counters are placeholders of zero.
    order: Vec<Device>,
    /// Last counters of the devices whose size was 0 at the last scan and which are therefore not in `order`. A changed counter triggers a
    /// new scan.
    left_out: BTreeMap<String, DeviceCounters>,
}

impl Devices {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            diskstats: ProcFile::new(root.join("proc/diskstats")),
            order: Vec::new(),
            left_out: BTreeMap::new(),
        }
    }

    /// Returns the number of devices whose size is not 0.
    pub(super) fn count(&self) -> usize {
        self.order.len()
    }

    /// Scans again for devices and their stack order.
    pub(super) fn refresh(&mut self) {
        let Some(text) = self.diskstats.read() else { return };
        let of_line = |(name, number, fields): (&str, String, Vec<u64>)| {
            (name.to_owned(), number, parse(&fields).unwrap_or_default())
        };
        let all: Vec<(String, String, DeviceCounters)> = lines(text).map(of_line).collect();
        let mounts = stack::mount_points(&self.root);
        let (present, absent): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(name, ..)| has_size(&self.root, name));
        self.left_out = absent.into_iter().map(|(name, _, counters)| (name, counters)).collect();
        let found: Vec<Device> = present
            .into_iter()
            .map(|(name, number, _)| describe(&self.root, &mounts, name, number))
            .collect();
        self.order = in_stack_order(found);
    }

    /// Reads the counters of all devices. Scans again first if a device is new or a counter in `left_out` has changed.
    pub(super) fn read(&mut self) -> Vec<Device> {
        let mut counters = self.counters();
        // A loop device that was attached to a file since the last scan does I/O now.
        let is_known = |(name, counters): (&String, &DeviceCounters)| {
            self.left_out.get(name) == Some(counters) || self.order.iter().any(|device| device.name == *name)
        };
        if !counters.iter().all(is_known) {
            self.refresh();
            counters = self.counters();
        }
        let devices = self
            .order
            .iter()
            .filter_map(|device| Some(Device { counters: *counters.get(&device.name)?, ..device.clone() }));
        devices.collect()
    }

    fn counters(&mut self) -> BTreeMap<String, DeviceCounters> {
        let text = self.diskstats.read().unwrap_or_default();
        lines(text).filter_map(|(name, _, fields)| Some((name.to_owned(), parse(&fields)?))).collect()
    }
}

/// Splits diskstats into lines of name, `major:minor` and counters.
fn lines(diskstats: &str) -> impl Iterator<Item = (&str, String, Vec<u64>)> {
    diskstats.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (major, minor, name) = (fields.next()?, fields.next()?, fields.next()?);
        Some((name, format!("{major}:{minor}"), fields.map_while(|field| field.parse().ok()).collect()))
    })
}

fn parse(fields: &[u64]) -> Option<DeviceCounters> {
    let at = |index: usize| fields.get(index).copied();
    Some(DeviceCounters {
        reads: at(0)?,
        read_merges: at(1)?,
        read_sectors: at(2)?,
        read_ms: at(3)?,
        writes: at(4)?,
        write_merges: at(5)?,
        write_sectors: at(6)?,
        write_ms: at(7)?,
        in_flight: at(8)?,
        busy_ms: at(9)?,
        weighted_ms: at(10)?,
        discards: at(11),
        discard_sectors: at(13),
        discard_ms: at(14),
        flushes: at(15),
        flush_ms: at(16),
    })
}

/// Returns false if /sys reports a size of 0, as for a loop device without a file.
fn has_size(root: &Path, name: &str) -> bool {
    let file = root.join("sys/class/block").join(name.replace('/', "!")).join("size");
    std::fs::read_to_string(file).map_or(true, |size| size.trim() != "0")
}

fn describe(root: &Path, mounts: &BTreeMap<String, Vec<PathBuf>>, name: String, number: String) -> Device {
    let found = stack::of_device(root, &name);
    let (kind, title, on) = match found {
        Some(device) => {
            let is_titled = matches!(device.layer.kind, LayerKind::Dm | LayerKind::Zvol);
            let title = if is_titled { device.layer.name } else { name.clone() };
            (device.layer.kind, title, device.on)
        }
        None => (LayerKind::Device, name.clone(), Vec::new()),
    };
    let mounts = mounts.get(&number).into_iter().flatten().map(|point| point.display().to_string()).collect();
    let (counters, latencies) = (DeviceCounters::default(), Vec::new());
    Device { name, number, kind, title, depth: 0, on, mounts, counters, latencies }
}

/// Sorts devices so that each follows the first device that it is built on, and sets their depths.
fn in_stack_order(devices: Vec<Device>) -> Vec<Device> {
    let names: BTreeSet<String> = devices.iter().map(|device| device.name.clone()).collect();
    let mut above: BTreeMap<Option<String>, Vec<Device>> = BTreeMap::new();
    for device in devices {
        let first = device.on.iter().find(|below| names.contains(*below)).cloned();
        above.entry(first).or_default().push(device);
    }
    let mut ordered = Vec::new();
    let mut open: Vec<Device> = above.remove(&None).unwrap_or_default();
    open.reverse();
    while let Some(device) = open.pop() {
        let mut next = above.remove(&Some(device.name.clone())).unwrap_or_default();
        next.iter_mut().for_each(|one| one.depth = device.depth + 1);
        open.extend(next.into_iter().rev());
        ordered.push(device);
    }
    // Devices that form a cycle.
    ordered.extend(above.into_values().flatten());
    ordered
}
