//! Watches the host while something is measured: block devices, network interfaces, CPUs, pressure, the threads of guests and of
//! the kernel.
//!
//! [`Monitor::snapshot`] reads raw counters, [`delta`] turns two of them into what happened between. Raw counters and
//! what is derived from them are kept apart, so that any two snapshots of one monitor can be compared.

mod counters;
pub mod kernel;
pub mod pace;
mod threads;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iotax_model::record::HostActivity;

use counters::{CpuCounters, DiskCounters, NicCounters, PressureCounters};
pub use threads::GuestThreads;
use threads::{GuestCounters, Threads};

/// Reads the counters of one machine again and again. Its files stay open, so that a snapshot costs little more than
/// the kernel's work of writing the counters down: on two cores at 2.6 GHz 23 us, and 6 us for each thread of a guest.
#[derive(Debug)]
pub struct Monitor {
    disks: Vec<String>,
    diskstats: Source,
    stat: Source,
    pressure: [Source; 3],
    threads: Vec<Threads>,
    /// The interfaces of a network namespace, if they are watched.
    network: Option<Source>,
}

/// All counters of a monitor at one moment. What could not be read is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    at: Instant,
    disks: BTreeMap<String, DiskCounters>,
    cpu: Option<CpuCounters>,
    pressure: Option<PressureCounters>,
    guests: Vec<GuestCounters>,
    nics: BTreeMap<String, NicCounters>,
}

impl Monitor {
    /// Watches the `disks`, by the kernel's names, and the threads of guests. `root` is where /proc is
    /// found: `/` on a live system. What does not exist is absent from every snapshot.
    #[must_use]
    pub fn new(root: &Path, disks: Vec<String>, guests: Vec<GuestThreads>) -> Self {
        let proc = root.join("proc");
        Self {
            disks,
            diskstats: Source::new(proc.join("diskstats")),
            stat: Source::new(proc.join("stat")),
            pressure: ["io", "cpu", "memory"].map(|kind| Source::new(proc.join("pressure").join(kind))),
            threads: guests.into_iter().map(|guest| Threads::new(&proc, guest)).collect(),
            network: None,
        }
    }

    /// Watches also the interfaces of the network namespace that a process is in; absent: this one. Loopback is one of them.
    #[must_use]
    pub fn with_network(self, root: &Path, process: Option<u32>) -> Self {
        let process = process.map_or_else(|| "self".to_owned(), |id| id.to_string());
        let dev = Source::new(root.join("proc").join(process).join("net/dev"));
        Self { network: Some(dev), ..self }
    }

    /// Reads all counters now.
    pub fn snapshot(&mut self) -> Snapshot {
        self.snapshot_at(Instant::now())
    }

    /// Reads all counters and notes `at` as their time, for a caller that has taken the time of the event itself.
    pub fn snapshot_at(&mut self, at: Instant) -> Snapshot {
        let [io, cpu, memory] = &mut self.pressure;
        Snapshot {
            at,
            disks: self.diskstats.read().map(|text| counters::disks(text, &self.disks)).unwrap_or_default(),
            cpu: self.stat.read().and_then(counters::cpu),
            pressure: counters::pressure(io.read(), cpu.read(), memory.read()),
            guests: self.threads.iter_mut().map(Threads::read).collect(),
            nics: self.network.as_mut().and_then(Source::read).map(counters::nics).unwrap_or_default(),
        }
    }
}

/// What happened between two snapshots of one monitor, the window having begun at `window_start`.
///
/// A part of which a counter ran backwards (a wrap of the 32-bit times of diskstats after 49 days included), or of
/// which something went away in between, is absent: a part of a sum would look like the sum. Threads that ended are
/// the exception, as far as the process's own time tells what they used.
#[must_use]
pub fn delta(earlier: &Snapshot, later: &Snapshot, window_start: Instant) -> HostActivity {
    let duration = later.at.saturating_duration_since(earlier.at);
    let disks = earlier.disks.iter().filter_map(|(name, before)| {
        Some((name.clone(), before.until(later.disks.get(name)?, nanos(duration))?))
    });
    let nics = earlier
        .nics
        .iter()
        .filter_map(|(name, before)| Some((name.clone(), before.until(later.nics.get(name)?)?)));
    HostActivity {
        at_ns: nanos(later.at.saturating_duration_since(window_start)),
        duration_ns: nanos(duration),
        disks: disks.collect(),
        nics: nics.collect(),
        cpu: earlier.cpu.zip(later.cpu).and_then(|(before, after)| before.until(&after)),
        pressure: earlier.pressure.zip(later.pressure).and_then(|(before, after)| before.until(&after)),
        guest_threads: threads::between(&earlier.guests, &later.guests),
        ..HostActivity::default()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A file of /proc that is kept open and read from its beginning each time.
#[derive(Debug)]
struct Source {
    file: Option<File>,
    text: Vec<u8>,
}

impl Source {
    fn new(path: PathBuf) -> Self {
        Self { file: File::open(path).ok(), text: vec![0; 4096] }
    }

    /// The whole content; absent if the file was not there at first or cannot be read now.
    fn read(&mut self) -> Option<&str> {
        let file = self.file.as_ref()?;
        let mut filled = 0;
        loop {
            if filled == self.text.len() {
                self.text.resize(2 * filled, 0);
            }
            match file.read_at(&mut self.text[filled..], filled as u64) {
                Ok(0) => return std::str::from_utf8(&self.text[..filled]).ok(),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}
