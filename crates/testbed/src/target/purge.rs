//! Purges devices: discards everything on them, so that a drive knows all its space to be free.

use std::path::Path;

use crate::program::Program;
use crate::undo::UndoLog;

const BLKDISCARD: Program = Program { name: "blkdiscard", package: "util-linux" };

/// Discards a device that this process has claimed for overwriting. Returns the method, or the reason why the device is not purged: many
/// devices take no discards.
pub(super) fn purge(node: &Path, undo_log: &UndoLog) -> String {
    // Without --force the tool would claim the device itself.
    match undo_log.run(BLKDISCARD, ["--force".as_ref(), node.as_os_str()]) {
        Ok(_) => "purged by discard".into(),
        Err(error) => format!("not purged: {error}"),
    }
}
