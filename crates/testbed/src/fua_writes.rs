//! Counts the writes with FUA that each block device completes, which /proc/diskstats does not tell from other writes.
//!
//! A histogram trigger on the kernel's tracepoint counts them in the kernel (Documentation/trace/histogram): no event is stored or read.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::tracefs::{TraceFs, TraceInstance};
use crate::undo::{Effect, UndoLog, UndoLogError};

/// Directory of the tracepoint in a trace instance.
const EVENT: &str = "events/block/block_rq_complete";
/// Counts by device the completed requests whose letters hold an F after the W: an F before it means a flush that precedes the write.
const TRIGGER: &str = r#"hist:keys=dev if rwbs ~ "*WF*""#;

/// A running count of the writes with FUA of all block devices.
#[derive(Debug)]
pub struct FuaWrites {
    /// The histogram's file.
    counts: PathBuf,
    /// Keeps the tracing filesystem mounted as long as the counts are read.
    _tracing: TraceFs,
}

impl FuaWrites {
    /// Starts counting, in a trace instance whose name contains the run's `tag`. The instance is recorded in the undo log, which removes it
    /// later. `None` if no device of this machine takes FUA, without root, or if the kernel has no histogram triggers.
    ///
    /// # Errors
    /// The undo log cannot be written.
    pub fn start(root: &Path, tag: &str, undo_log: &mut UndoLog) -> Result<Option<Self>, UndoLogError> {
        if !takes_fua(root) {
            return Ok(None);
        }
        let Ok(tracing) = TraceFs::open() else { return Ok(None) };
        let instance = TraceInstance { name: format!("iotax-{tag}-fua") };
        let entry = undo_log.record(Effect::TraceInstance(instance.clone()))?;
        let event = tracing.instance(&instance).join(EVENT);
        let started = fs::create_dir(tracing.instance(&instance))
            .and_then(|()| fs::write(event.join("trigger"), TRIGGER))
            .is_ok();
        if !started {
            // If this fails it is undone with the rest.
            let _ = undo_log.undo(entry);
            return Ok(None);
        }
        Ok(Some(Self { counts: event.join("hist"), _tracing: tracing }))
    }

    /// Reads the number of writes with FUA of each device so far, by its number, `major << 20 | minor`. A device that completed none is
    /// missing.
    pub(crate) fn read(&self) -> io::Result<BTreeMap<u64, u64>> {
        Ok(counts(&fs::read_to_string(&self.counts)?))
    }
}

/// Parses the lines `{ dev:    8388608 } hitcount:         12` of a histogram.
fn counts(text: &str) -> BTreeMap<u64, u64> {
    let of = |line: &str| {
        let (device, count) = line.trim().strip_prefix("{ dev:")?.split_once("} hitcount:")?;
        Some((device.trim().parse().ok()?, count.trim().parse().ok()?))
    };
    text.lines().filter_map(of).collect()
}

/// Returns whether any block device of the machine takes FUA.
fn takes_fua(root: &Path) -> bool {
    let devices = fs::read_dir(root.join("sys/block")).into_iter().flatten().flatten();
    devices
        .map(|device| device.path().join("queue/fua"))
        .any(|file| fs::read_to_string(file).is_ok_and(|text| text.trim() == "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_gives_a_count_for_each_device() {
        let text = "# event histogram\n#\n# trigger info: hist:keys=dev:vals=hitcount:sort=hitcount:size=2048 [active]\n#\n\n\
            { dev:    8388624 } hitcount:         12\n{ dev:  271581184 } hitcount:        345\n\nTotals:\n    Hits: 357\n    Entries: 2\n    Dropped: 0\n";
        assert_eq!(counts(text), BTreeMap::from([(8_388_624, 12), (271_581_184, 345)]));
        assert_eq!(counts("Totals:\n    Hits: 0\n"), BTreeMap::new());
    }
}
