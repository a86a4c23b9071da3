//! Finds I/O gaps of block devices: periods in which reads, or writes, are in flight and none of them completes.
//!
//! A thread reads the counters of each device every 10 ms, which costs a few microseconds per device.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iotax_model::record::{Blackout, DeviceGaps, IoClass};
use iotax_model::threads;

use super::ProcFile;

/// Interval at which the counters are read, which is also the resolution of the gaps.
const POLL: Duration = Duration::from_millis(10);
/// Maximum number of gaps to keep per device and direction, and of delays of the watch itself.
const MOST: usize = 1000;

/// A thread that watches block devices for I/O gaps.
#[derive(Debug)]
pub struct DeviceGapWatch {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Vec<Device>, PollTimes)>>,
}

impl DeviceGapWatch {
    /// Starts to watch block devices, given by kernel names, for gaps of at least `least`, or 20 ms if that is longer. Watches the paths of
    /// a multipath NVMe device too. /sys is below `root`. A device whose counters cannot be read is left out.
    #[must_use]
    pub fn start(root: &Path, disks: &[String], least: Duration) -> Self {
        let least = least.max(2 * POLL);
        let names = disks.iter().flat_map(|name| with_paths(root, name));
        let mut devices: Vec<Device> = names.map(|name| Device::new(root, &name, least)).collect();
        let over = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&over);
        let thread = threads::spawn("device gaps", move || {
            let mut polls = PollTimes { least, last: Instant::now(), holes: Vec::new() };
            while !is_over.load(Ordering::Relaxed) {
                polls.at(Instant::now());
                devices.iter_mut().for_each(Device::poll);
                threads::sleep(POLL);
            }
            (devices, polls)
        });
        // Without the thread, no gaps are reported.
        Self { over, thread: thread.ok() }
    }

    /// Ends the watch. Returns the gaps of each device within the window from `begin` to `end`; empty if the watching thread could not be
    /// started.
    #[must_use]
    pub fn finish(mut self, begin: Instant, end: Instant) -> Vec<DeviceGaps> {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join).and_then(Result::ok);
        let Some((devices, polls)) = ended else { return Vec::new() };
        let blind = polls.within(begin, end);
        let known = devices.into_iter().filter(Device::is_known);
        let gaps = |device: Device| DeviceGaps {
            gaps: device.within(begin, end),
            device: device.name,
            blind: blind.clone(),
        };
        known.map(gaps).collect()
    }
}

impl Drop for DeviceGapWatch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Returns the kernel names to watch for a device. For a multipath NVMe device `nvme0n1`, its hidden paths such as
/// `nvme0c0n1` come first, because I/Os are in flight on those.
fn with_paths(root: &Path, name: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if let Some((subsystem, namespace)) = name.strip_prefix("nvme").and_then(|rest| rest.split_once('n')) {
        let (head, tail) = (format!("nvme{subsystem}c"), format!("n{namespace}"));
        let is_path = |one: &String| {
            let controller = one.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail));
            controller.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let entries = std::fs::read_dir(root.join("sys/class/block")).into_iter().flatten().flatten();
        names.extend(entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_path));
        names.sort();
    }
    names.push(name.to_owned());
    names
}

/// Delays of the watch itself: intervals between two readings that are at least as long as the shortest gap, because the machine or this
/// process was stalled.
#[derive(Debug)]
struct PollTimes {
    least: Duration,
    last: Instant,
    holes: Vec<(Instant, Instant)>,
}

impl PollTimes {
    fn at(&mut self, now: Instant) {
        let last = std::mem::replace(&mut self.last, now);
        if now.saturating_duration_since(last) >= self.least && self.holes.len() < MOST {
            self.holes.push((last, now));
        }
    }

    fn within(&self, begin: Instant, end: Instant) -> Vec<Blackout> {
        let all = self.holes.iter().filter_map(|(from, to)| blackout(*from, Some(*to), begin, end));
        all.filter(|hole| hole.duration_ns >= super::nanos(self.least)).collect()
    }
}

/// Returns the part of the gap from `from` to `to` that is within the window. `to` is `None` for a gap that has not ended. Returns `None`
/// if the gap is outside of the window.
fn blackout(from: Instant, to: Option<Instant>, begin: Instant, end: Instant) -> Option<Blackout> {
    let (at, until) = (from.max(begin), to.unwrap_or(end).min(end));
    let gap = until.checked_duration_since(at)?;
    Some(Blackout {
        of: IoClass::Reads,
        at_ns: super::nanos(at.saturating_duration_since(begin)),
        duration_ns: super::nanos(gap),
        ended: to.is_some_and(|to| to <= end),
    })
}

#[derive(Debug)]
struct Device {
    name: String,
    stat: ProcFile,
    in_flight: ProcFile,
    least: Duration,
    /// Gaps of reads and gaps of writes.
    directions: [DirectionGaps; 2],
    last: Option<Instant>,
}

/// Gaps of the reads or of the writes of a device.
#[derive(Debug, Default)]
struct DirectionGaps {
    completed: u64,
    /// Start of the current gap: I/Os have been in flight since then and none has completed. `None` outside of a gap.
    hangs: Option<Instant>,
    found: Vec<(Instant, Instant)>,
}

impl Device {
    fn new(root: &Path, name: &str, least: Duration) -> Self {
        let directory = root.join("sys/class/block").join(name);
        Self {
            name: name.to_owned(),
            stat: ProcFile::new(directory.join("stat")),
            in_flight: ProcFile::new(directory.join("inflight")),
            least,
            directions: Default::default(),
            last: None,
        }
    }

    fn poll(&mut self) {
        let at = Instant::now();
        let completed = self.stat.read().and_then(completed);
        if let Some((completed, in_flight)) = completed.zip(self.in_flight.read().and_then(in_flight)) {
            self.see(at, completed, in_flight);
        }
    }

    fn see(&mut self, at: Instant, completed: [u64; 2], in_flight: [u64; 2]) {
        let before = self.last.replace(at);
        for ((direction, completed), in_flight) in self.directions.iter_mut().zip(completed).zip(in_flight) {
            let has_moved = before.is_none() || completed != direction.completed;
            direction.completed = completed;
            if has_moved || in_flight == 0 {
                direction.ends(at, self.least);
            }
            if in_flight > 0 {
                direction.hangs = direction.hangs.or(if has_moved { Some(at) } else { before });
            }
        }
    }

    /// Returns whether the device's counters could be read at least once.
    const fn is_known(&self) -> bool {
        self.last.is_some()
    }

    fn within(&self, begin: Instant, end: Instant) -> Vec<Blackout> {
        let mut all = Vec::new();
        for (direction, of) in self.directions.iter().zip([IoClass::Reads, IoClass::Writes]) {
            let open = direction.hangs.map(|from| (from, None));
            for (from, to) in direction.found.iter().map(|(from, to)| (*from, Some(*to))).chain(open) {
                let gap = blackout(from, to, begin, end).map(|gap| Blackout { of, ..gap });
                all.extend(gap.filter(|gap| gap.duration_ns >= super::nanos(self.least)));
            }
        }
        all.sort_by_key(|gap| gap.at_ns);
        all
    }
}

impl DirectionGaps {
    fn ends(&mut self, at: Instant, least: Duration) {
        if let Some(from) = self.hangs.take()
            && at.saturating_duration_since(from) >= least
            && self.found.len() < MOST
        {
            self.found.push((from, at));
        }
    }
}

/// Returns the numbers of completed reads and of completed writes, from the text of `/sys/class/block/X/stat` (kernel documentation,
/// block/stat).
fn completed(stat: &str) -> Option<[u64; 2]> {
    let fields: Vec<u64> = stat.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
    Some([*fields.first()?, *fields.get(4)?])
}

/// Returns the numbers of reads and of writes in flight, from the text of `/sys/class/block/X/inflight`.
fn in_flight(text: &str) -> Option<[u64; 2]> {
    let (reads, writes) = text.trim().split_once(char::is_whitespace)?;
    Some([reads.parse().ok()?, writes.trim().parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_and_does_not_complete_hangs() {
        let least = Duration::from_millis(100);
        let mut device = Device::new(Path::new("/nowhere"), "sda", least);
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        // Reads complete at each look; writes hang from 20 ms to 250 ms, and again from 400 ms on.
        for ms in (0..=600).step_by(10) {
            let writes = if ms <= 20 { ms / 10 } else { 2 + u64::from(ms >= 250) + u64::from(ms >= 400) };
            let busy = u64::from((20..250).contains(&ms) || ms >= 400);
            device.see(at(ms), [ms, writes], [1, busy]);
        }
        let gap = |at_ms: u64, ms: u64, ended| Blackout {
            of: IoClass::Writes,
            at_ns: at_ms * 1_000_000,
            duration_ns: ms * 1_000_000,
            ended,
        };
        assert_eq!(device.within(at(0), at(600)), [gap(20, 230, true), gap(400, 200, false)]);
        assert_eq!(device.within(at(100), at(450)), [gap(0, 150, true)]);
    }

    #[test]
    fn a_machine_that_stands_still_does_not_look() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut polls = PollTimes { least: Duration::from_millis(100), last: begin, holes: Vec::new() };
        [10, 20, 90, 300, 310, 900].into_iter().for_each(|ms| polls.at(at(ms)));
        let found: Vec<(u64, u64)> = polls
            .within(at(50), at(500))
            .iter()
            .map(|hole| (hole.at_ns / 1_000_000, hole.duration_ns / 1_000_000))
            .collect();
        assert_eq!(found, [(40, 210), (260, 190)]);
    }

    #[test]
    fn the_paths_of_a_namespace_are_below_it() {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["nvme0n1", "nvme0c1n1", "nvme0c0n1", "nvme0c0n2", "nvme1c0n1", "sda"] {
            std::fs::create_dir_all(root.path().join("sys/class/block").join(name)).expect("a directory");
        }
        assert_eq!(with_paths(root.path(), "nvme0n1"), ["nvme0c0n1", "nvme0c1n1", "nvme0n1"]);
        assert_eq!(with_paths(root.path(), "sda"), ["sda"]);
    }

    #[test]
    fn an_idle_device_does_not_hang() {
        let mut device = Device::new(Path::new("/nowhere"), "sda", Duration::from_millis(100));
        let begin = Instant::now();
        for ms in (0..500).step_by(10) {
            device.see(begin + Duration::from_millis(ms), [7, 7], [0, 0]);
        }
        assert_eq!(device.within(begin, begin + Duration::from_millis(500)), []);
    }

    #[test]
    fn counters_are_read_as_the_kernel_writes_them() {
        let stat = "   12  3  4 5  67 8 9 10 2 11 12 0 0 0 0 1 2\n";
        assert_eq!((completed(stat), in_flight("       3       17\n")), (Some([12, 67]), Some([3, 17])));
        assert_eq!((completed("x"), in_flight("")), (None, None));
    }

    #[test]
    fn a_device_that_is_not_there_is_left_out() {
        let watch = DeviceGapWatch::start(Path::new("/nowhere"), &["sda".to_owned()], POLL);
        assert_eq!(watch.finish(Instant::now(), Instant::now()), []);
    }
}
