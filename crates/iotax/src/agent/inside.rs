//! What the agent's own machine does while the agent measures.

use std::path::Path;
use std::time::Instant;

use iotax_model::record::HostActivity;
use iotax_model::wire::Event;
use iotax_rig::monitor::{self, Monitor, Snapshot};
use iotax_rig::stack;

/// Watches the machine over one measurement's window.
pub(super) struct Inside {
    monitor: Monitor,
    window: Option<(Instant, Snapshot, Snapshot)>,
}

impl Inside {
    /// For a measurement of this file or device.
    pub(super) fn new(path: &Path) -> Self {
        let root = Path::new("/");
        let disks = stack::of_path(root, path).map(|stack| stack.disks).unwrap_or_default();
        Self { monitor: Monitor::new(root, disks, Vec::new()), window: None }
    }

    /// Sees the window begin, and each interval end: what comes after the last one is no part of it.
    pub(super) fn see(&mut self, event: &Event) {
        match (event, &mut self.window) {
            (Event::Measuring, window) => {
                let (at, first) = (Instant::now(), self.monitor.snapshot());
                *window = Some((at, first.clone(), first));
            }
            (Event::Sample(_), Some((_, _, last))) => *last = self.monitor.snapshot(),
            _ => {}
        }
    }

    /// What happened in the window; absent if there was none.
    pub(super) fn activity(&self) -> Option<HostActivity> {
        let (at, first, last) = self.window.as_ref()?;
        Some(monitor::delta(first, last, *at))
    }
}
