//! Records disk and CPU activity of the agent's machine during a measurement, and network activity during a network measurement.

use std::path::Path;
use std::time::{Duration, Instant};

use iotax_model::record::{DeviceGaps, HostActivity};
use iotax_model::target::LayerKind;
use iotax_model::wire::Event;
use iotax_model::workload::Workload;
use iotax_testbed::monitor::device_gaps::DeviceGapWatch;
use iotax_testbed::monitor::kernel::{self, KernelCounters, KernelThreads};
use iotax_testbed::monitor::pace::{self, PaceReading};
use iotax_testbed::monitor::{self, Monitor, MonitorSnapshot};
use iotax_testbed::stack;

/// Recorder of the machine's disk and CPU activity during one measurement's window; for network measurements, also of its network activity.
pub(super) struct ActivityRecorder {
    monitor: Monitor,
    kernel: KernelThreads,
    runtime_ns: u64,
    /// True if the load has neither a warm-up nor a start delay: the counters must then be read before the load starts.
    has_no_warm_up: bool,
    began: Option<Began>,
    /// Detector of periods in which a device completes no I/O; `None` if the workload does not record such gaps.
    gaps: Option<DeviceGapWatch>,
    ended: Option<Ended>,
}

/// Readings at the start of the window.
struct Began {
    at: Instant,
    first: MonitorSnapshot,
    threads: KernelCounters,
    pace: PaceReading,
}

/// Readings at the end of the window, before the final flush.
struct Ended {
    at: Instant,
    activity: HostActivity,
    last: MonitorSnapshot,
}

impl ActivityRecorder {
    /// Creates a recorder for a network measurement, which also reads the network interfaces.
    pub(super) fn of_network(workload: &Workload) -> Self {
        let recorder = Self::new(Path::new("/"), workload);
        Self { monitor: recorder.monitor.with_network(Path::new("/"), None), ..recorder }
    }

    /// Creates a recorder for a measurement of a file or device.
    pub(super) fn new(path: &Path, workload: &Workload) -> Self {
        let root = Path::new("/");
        let stack = stack::of_path(root, path).unwrap_or_default();
        let filesystems = stack.layers.iter().filter(|layer| layer.kind == LayerKind::Filesystem);
        let filesystems: Vec<String> = filesystems.map(|layer| layer.name.clone()).collect();
        let mut kernel = KernelThreads::new(root, &stack.disks, &filesystems);
        // The first reading takes longest; do it before the window.
        kernel.read();
        let gaps = workload
            .blackout
            .map(|least| DeviceGapWatch::start(root, &stack.disks, Duration::from_nanos(least.0)));
        let monitor = Monitor::new(root, stack.disks, Vec::new());
        let has_no_warm_up = workload.ramp_time.0 == 0 && workload.startdelay.is_none();
        let runtime_ns = workload.window().0;
        Self { monitor, kernel, runtime_ns, has_no_warm_up, began: None, gaps, ended: None }
    }

    /// Takes a snapshot when the window begins and another when it ends. With `starts_at_once` the load starts right after [`Event::Ready`]
    /// is handled, otherwise at a time that the runner sets.
    pub(super) fn observe(&mut self, event: &Event, starts_at_once: bool) {
        match event {
            Event::Ready if self.has_no_warm_up && starts_at_once => self.begin(),
            Event::Measuring if self.began.is_none() => self.begin(),
            Event::Sample(sample) if sample.at_ns >= self.runtime_ns => self.end(),
            // File operations may end before their time.
            Event::Over if self.ended.is_none() => self.end(),
            _ => {}
        }
    }

    /// Returns the activity between the two snapshots, and the gaps in which devices completed no I/O. With `flushed`,
    /// [`HostActivity::flushed`] has the disks' activity from the end of the window until now, which includes the final flush. The activity
    /// is `None`, and there are no gaps, if the window did not begin.
    pub(super) fn finish(mut self, flushed: bool) -> (Option<HostActivity>, Vec<DeviceGaps>) {
        if self.ended.is_none() {
            // The load ended before its time.
            self.end();
        }
        let Some((began, ended)) = self.began.zip(self.ended) else { return (None, Vec::new()) };
        let gaps = self.gaps.map(|watch| watch.finish(began.at, ended.at)).unwrap_or_default();
        let activity = if flushed {
            let now = self.monitor.snapshot();
            HostActivity { flushed: monitor::delta(&ended.last, &now, began.at).disks, ..ended.activity }
        } else {
            ended.activity
        };
        (Some(activity), gaps)
    }

    fn begin(&mut self) {
        let (at, first) = (Instant::now(), self.monitor.snapshot());
        let (threads, pace) = (self.kernel.read(), pace::read(Path::new("/")));
        self.began = Some(Began { at, first, threads, pace });
    }

    fn end(&mut self) {
        if let Some(Began { at, first, threads, pace }) = &self.began {
            let (ended, last) = (Instant::now(), self.monitor.snapshot());
            let kernel_threads = kernel::between(threads, &self.kernel.read());
            let pace = pace::between(pace, &pace::read(Path::new("/")));
            let activity = HostActivity { kernel_threads, pace, ..monitor::delta(first, &last, *at) };
            self.ended = Some(Ended { at: ended, activity, last });
        }
    }
}
