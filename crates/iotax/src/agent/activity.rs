//! The activity of the agent's own machine during a measurement.

use std::path::Path;
use std::time::Instant;

use iotax_model::record::HostActivity;
use iotax_model::target::LayerKind;
use iotax_model::wire::Event;
use iotax_testbed::monitor::kernel::{self, KernelCounters, KernelThreads};
use iotax_testbed::monitor::pace::{self, PaceReading};
use iotax_testbed::monitor::{self, Monitor, MonitorSnapshot};
use iotax_testbed::stack;

/// Records the machine's activity over one measurement's window.
pub(super) struct ActivityRecorder {
    monitor: Monitor,
    kernel: KernelThreads,
    runtime_ns: u64,
    began: Option<Began>,
    /// The activity, with the counters at the window's end.
    activity: Option<(HostActivity, MonitorSnapshot)>,
}

/// The state at the start of the window.
struct Began {
    at: Instant,
    first: MonitorSnapshot,
    threads: KernelCounters,
    pace: PaceReading,
}

impl ActivityRecorder {
    /// For a network measurement of `runtime_ns`.
    pub(super) fn of_network(runtime_ns: u64) -> Self {
        let recorder = Self::new(Path::new("/"), runtime_ns);
        Self { monitor: recorder.monitor.with_network(Path::new("/"), None), ..recorder }
    }

    /// For a measurement of a file or device.
    pub(super) fn new(path: &Path, runtime_ns: u64) -> Self {
        let root = Path::new("/");
        let stack = stack::of_path(root, path).unwrap_or_default();
        let filesystems = stack.layers.iter().filter(|layer| layer.kind == LayerKind::Filesystem);
        let filesystems: Vec<String> = filesystems.map(|layer| layer.name.clone()).collect();
        let mut kernel = KernelThreads::new(root, &stack.disks, &filesystems);
        // The first reading takes longest; do it before the window.
        kernel.read();
        let monitor = Monitor::new(root, stack.disks, Vec::new());
        Self { monitor, kernel, runtime_ns, began: None, activity: None }
    }

    /// Takes snapshots when the window begins and ends.
    pub(super) fn observe(&mut self, event: &Event) {
        match event {
            Event::Measuring => {
                let (at, first) = (Instant::now(), self.monitor.snapshot());
                let (threads, pace) = (self.kernel.read(), pace::read(Path::new("/")));
                self.began = Some(Began { at, first, threads, pace });
            }
            Event::Sample(sample) if sample.at_ns >= self.runtime_ns => self.end(),
            // File operations may end before their time.
            Event::Over if self.activity.is_none() => self.end(),
            _ => {}
        }
    }

    /// The activity in the window, with the disks' activity during the flush if there was one; absent without a window.
    pub(super) fn activity(mut self, flushed: bool) -> Option<HostActivity> {
        if self.activity.is_none() {
            // It ended before its time.
            self.end();
        }
        let began = self.began.as_ref()?;
        let (activity, last) = self.activity?;
        if !flushed {
            return Some(activity);
        }
        let now = self.monitor.snapshot();
        Some(HostActivity { flushed: monitor::delta(&last, &now, began.at).disks, ..activity })
    }

    fn end(&mut self) {
        if let Some(Began { at, first, threads, pace }) = &self.began {
            let last = self.monitor.snapshot();
            let kernel_threads = kernel::between(threads, &self.kernel.read());
            let pace = pace::between(pace, &pace::read(Path::new("/")));
            let activity = HostActivity { kernel_threads, pace, ..monitor::delta(first, &last, *at) };
            self.activity = Some((activity, last));
        }
    }
}
