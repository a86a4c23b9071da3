//! Counts the writes with FUA that each block device completes, which /proc/diskstats does not tell from other writes.
//!
//! A histogram trigger on the kernel's tracepoint counts them in the kernel (Documentation/trace/histogram): no event is stored or read.

use std::fs;
use std::path::Path;

use crate::monitor::fua_writes::FuaWrites;
use crate::tracefs::{TraceFs, TraceInstance};
use crate::undo::{Effect, UndoLog, UndoLogError};

/// Directory of the tracepoint in a trace instance.
const EVENT: &str = "events/block/block_rq_complete";
/// Counts by device the completed requests whose letters hold an F after the W: an F before it means a flush that precedes the write.
const TRIGGER: &str = r#"hist:keys=dev if rwbs ~ "*WF*""#;

/// Starts counting, in a trace instance whose name contains the run's `tag`. The instance is recorded in the undo log, which removes it
/// later. `None` if no device of this machine takes FUA, without root, or if the kernel has no histogram triggers.
///
/// # Errors
/// The undo log cannot be written.
pub fn start(root: &Path, tag: &str, undo_log: &mut UndoLog) -> Result<Option<FuaWrites>, UndoLogError> {
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
    Ok(Some(FuaWrites::new(event.join("hist"), tracing)))
}

/// Returns whether any block device of the machine takes FUA.
fn takes_fua(root: &Path) -> bool {
    let devices = fs::read_dir(root.join("sys/block")).into_iter().flatten().flatten();
    devices
        .map(|device| device.path().join("queue/fua"))
        .any(|file| fs::read_to_string(file).is_ok_and(|text| text.trim() == "1"))
}
