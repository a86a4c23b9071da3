//! Block devices that may be overwritten: only what was named twice, and only if nobody else uses it.

use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::target::TargetSpec;
use iotax_model::units::Bytes;

use crate::program::Program;

use super::{BuildError, Refusal, existing};

/// Removes signatures.
pub const WIPEFS: Program = Program { name: "wipefs", package: "util-linux" };

/// What the user allows on the command line.
#[derive(Debug, Clone, Default)]
pub struct Permission {
    /// Devices that may be overwritten.
    pub overwrite: Vec<PathBuf>,
    /// Even if they carry a signature.
    pub signature: bool,
}

/// A block device, or a part of one, that a target stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The device's node.
    pub path: PathBuf,
    /// Where the target's area begins on it.
    pub offset: Bytes,
    /// The area's length.
    pub size: Bytes,
}

/// Refuses a device that may not be used as the plan uses it.
pub fn check(spec: &TargetSpec, plan: &Plan, permission: &Permission) -> Result<(), Refusal> {
    let Some(path) = &spec.device else { return Ok(()) };
    let writes = plan.workloads.iter().any(|workload| workload.rw.modifies());
    let makes = spec.lvm.is_some() || spec.filesystem.is_some();
    if (writes || makes) && !permission.overwrite.contains(path) {
        return Err(Refusal::input(format!(
            "{}: it would be overwritten; name it once more with --overwrite {}",
            path.display(),
            path.display()
        )));
    }
    Ok(())
}

/// A whole device as it is.
pub fn whole(path: &Path) -> Result<Block, BuildError> {
    Ok(Block { path: path.to_owned(), offset: Bytes(0), size: existing::length(path)? })
}
