//! Reads a machine's counters. Files stay open, and data that rarely changes is scanned every ten seconds.

mod cgroups;
mod devices;
mod guests;
mod processes;
mod qemu;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use iotax_model::record::Pressure;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::monitor::{ProcFile, interface_totals, pressure_totals};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::blk_latency::BlockLatency;
use crate::raw::{MachineSnapshot, PercentileSource};
use cgroups::Cgroups;
use devices::Devices;
use guests::Guests;
use processes::Processes;
use qemu::QemuMonitors;

/// Interval between scans of devices, mounts, control groups and guests' disks. A new device, or I/O on one whose size was 0, triggers a
/// scan of devices immediately.
const REFRESH: Duration = Duration::from_secs(10);

/// Number of devices that may appear after the start and still get a latency histogram in the kernel.
const LATER_DEVICES: usize = 32;

/// The sources that a collector reads, and their location.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory that contains /proc and /sys: `/` on a live system.
    pub root: PathBuf,
    /// True to attach BPF programs for percentiles; only on a live system.
    pub percentiles: bool,
    /// QMP sockets of guests, for the counters of QEMU's block layer.
    pub qmp: Vec<PathBuf>,
}

/// Reads all counters of a machine repeatedly.
#[derive(Debug)]
pub struct Collector {
    devices: Devices,
    processes: Processes,
    cgroups: Cgroups,
    guests: Guests,
    monitors: QemuMonitors,
    network: ProcFile,
    pressure: [ProcFile; 3],
    latency: Result<BlockLatency, String>,
    began: Instant,
    refreshed: Option<Instant>,
}

impl Collector {
    /// Opens all sources. Setting `stop` ends the wait for QMP connections.
    #[must_use]
    pub fn new(options: &Options, stop: &Interrupt) -> Self {
        allow_many_files();
        let proc = options.root.join("proc");
        let mut devices = Devices::new(&options.root);
        devices.refresh();
        let latency = if options.percentiles {
            BlockLatency::attach(devices.count() + LATER_DEVICES).map_err(|error| error.to_string())
        } else {
            Err("not asked for".to_owned())
        };
        Self {
            devices,
            processes: Processes::new(&options.root),
            cgroups: Cgroups::new(&options.root),
            guests: Guests::new(&options.root),
            monitors: QemuMonitors::connect(&options.qmp, stop),
            network: ProcFile::new(proc.join("self/net/dev")),
            pressure: ["io", "cpu", "memory"].map(|kind| ProcFile::new(proc.join("pressure").join(kind))),
            latency,
            began: Instant::now(),
            refreshed: None,
        }
    }

    /// Reads all sources once. Sources that cannot be read are named in the snapshot's remarks, or their counters are missing.
    pub fn snapshot(&mut self) -> MachineSnapshot {
        let is_due = self.refreshed.is_none_or(|at| at.elapsed() >= REFRESH);
        if is_due {
            self.devices.refresh();
            self.cgroups.refresh();
            self.refreshed = Some(Instant::now());
        }
        let mut snapshot = MachineSnapshot {
            at_ms: u64::try_from(
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
            )
            .unwrap_or(u64::MAX),
            clock_ns: u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            devices: self.devices.read(),
            ..MachineSnapshot::default()
        };
        self.add_latencies(&mut snapshot);
        snapshot.pressure = self.pressure();
        snapshot.interfaces =
            self.network.read().map(interface_totals).unwrap_or_default().into_iter().collect();
        snapshot.cgroups = self.cgroups.read();
        snapshot.processes = self.processes.read();
        snapshot.guests = self.guests.read(&snapshot.processes, is_due);
        self.monitors.read(&mut snapshot.guests, &mut snapshot.remarks);
        let denied = self.processes.denied();
        if denied > 0 {
            let all = denied + snapshot.processes.len();
            snapshot.remarks.push(format!("{denied} of {all} processes hide their I/O"));
        }
        snapshot
    }

    fn pressure(&mut self) -> Option<Pressure> {
        let [io, cpu, memory] = &mut self.pressure;
        pressure_totals(io.read(), cpu.read(), memory.read())
    }

    fn add_latencies(&self, snapshot: &mut MachineSnapshot) {
        let read = self
            .latency
            .as_ref()
            .map_err(Clone::clone)
            .and_then(|latency| latency.read().map_err(|error| error.to_string()));
        match read {
            Ok(mut latencies) => {
                snapshot.percentiles = PercentileSource::Bpf;
                for device in &mut snapshot.devices {
                    device.latencies = latencies.remove(&device.number).unwrap_or_default();
                }
            }
            Err(reason) => snapshot.percentiles = PercentileSource::Unknown(reason),
        }
    }
}

/// Raises the limit of open files to its maximum, because the counters of each process are a file that stays open.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, processes beyond the current limit are left out.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Lists the entries of a directory whose names are numbers; in /proc these are process ids.
fn numbers(directory: &Path) -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
