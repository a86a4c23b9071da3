//! A disk with flushes of known duration, without a guest.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lab::Lab;
use crate::served_disk::{DiskTiming, ServedDisk, output};

/// A directory with ext4 on a slow disk; unmounted and removed on drop.
pub(crate) struct SlowDisk {
    mounted: PathBuf,
    /// Measured duration of each flush in nanoseconds, as a sleep lasts longer than requested.
    flushes: Arc<Mutex<Vec<u64>>>,
    _disk: ServedDisk,
}

impl SlowDisk {
    /// Mounts a disk of `size` bytes, whose flushes take `delay`, at the directory `name` of a lab.
    pub(crate) fn mount(lab: &Lab, name: &str, size: u64, delay: Duration) -> Self {
        let flushes = Arc::default();
        let timing = SlowFlushes { delay, flushes: Arc::clone(&flushes) };
        let disk = ServedDisk::serve(lab, &format!("{name}served"), size, timing);
        let mounted = lab.path(name);
        std::fs::create_dir(&mounted).expect("made");
        output("mkfs.ext4", &["-q", &disk.node]);
        output("mount", &[&disk.node, &mounted.display().to_string()]);
        Self { mounted, flushes, _disk: disk }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mounted
    }

    /// Returns the median duration of the flushes so far, in milliseconds.
    pub(crate) fn flush_ms(&self) -> f64 {
        let mut flushes = self.flushes.lock().expect("whole").clone();
        flushes.sort_unstable();
        flushes[flushes.len() / 2] as f64 / 1e6
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mounted).status();
    }
}

struct SlowFlushes {
    delay: Duration,
    flushes: Arc<Mutex<Vec<u64>>>,
}

impl DiskTiming for SlowFlushes {
    fn flush(&self) {
        let begun = Instant::now();
        std::thread::sleep(self.delay);
        let took = u64::try_from(begun.elapsed().as_nanos()).expect("short");
        self.flushes.lock().expect("whole").push(took);
    }
}
