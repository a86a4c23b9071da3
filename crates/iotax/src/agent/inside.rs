//! What the agent's own machine does while the agent measures.

use std::path::Path;
use std::time::Instant;

use iotax_model::record::HostActivity;
use iotax_model::target::LayerKind;
use iotax_model::wire::Event;
use iotax_testbed::monitor::kernel::{self, KernelCounters, KernelThreads};
use iotax_testbed::monitor::pace::{self, PaceReading};
use iotax_testbed::monitor::{self, Monitor, MonitorSnapshot};
use iotax_testbed::stack;

/// Watches the machine over one measurement's window.
pub(super) struct Inside {
    monitor: Monitor,
    kernel: KernelThreads,
    runtime_ns: u64,
    began: Option<Began>,
    /// With the counters at the window's end.
    activity: Option<(HostActivity, MonitorSnapshot)>,
}

/// When the window began.
struct Began {
    at: Instant,
    first: MonitorSnapshot,
    threads: KernelCounters,
    pace: PaceReading,
}

impl Inside {
    /// For a measurement of so long over the network.
    pub(super) fn of_network(runtime_ns: u64) -> Self {
        let inside = Self::new(Path::new("/"), runtime_ns);
        Self { monitor: inside.monitor.with_network(Path::new("/"), None), ..inside }
    }

    /// For a measurement of so long of this file or device.
    pub(super) fn new(path: &Path, runtime_ns: u64) -> Self {
        let root = Path::new("/");
        let stack = stack::of_path(root, path).unwrap_or_default();
        let filesystems = stack.layers.iter().filter(|layer| layer.kind == LayerKind::Filesystem);
        let filesystems: Vec<String> = filesystems.map(|layer| layer.name.clone()).collect();
        let mut kernel = KernelThreads::new(root, &stack.disks, &filesystems);
        // The first look is the long one.
        kernel.read();
        let monitor = Monitor::new(root, stack.disks, Vec::new());
        Self { monitor, kernel, runtime_ns, began: None, activity: None }
    }

    /// Sees the window begin and end.
    pub(super) fn see(&mut self, event: &Event) {
        match event {
            Event::Measuring => {
                let (at, first) = (Instant::now(), self.monitor.snapshot());
                let (threads, pace) = (self.kernel.read(), pace::read(Path::new("/")));
                self.began = Some(Began { at, first, threads, pace });
            }
            Event::Sample(sample) if sample.at_ns >= self.runtime_ns => self.end(),
            // Work may end before its time.
            Event::Over if self.activity.is_none() => self.end(),
            _ => {}
        }
    }

    /// What happened in the window and, if it ended in a flush, until then; absent if there was none.
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
