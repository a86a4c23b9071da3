//! Finds the physical disks that a plan's targets are on.

use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::target::{BottomLocation, TargetSpec};

use crate::{lvm, stack};

/// A physical disk, and the targets of a plan that are on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetDisk {
    /// Kernel name of the disk; `None` for a target of which no disk on this machine is known, which is alone then.
    pub disk: Option<String>,
    /// Indices of the targets in the plan.
    pub targets: Vec<usize>,
}

/// Groups a plan's targets by physical disk: partitions, volumes, arrays and files on one disk are on that disk. A target on several disks is
/// in the group of each.
#[must_use]
pub fn by_disk(plan: &Plan) -> Vec<TargetDisk> {
    let mut all: Vec<TargetDisk> = Vec::new();
    for (index, target) in plan.targets.iter().enumerate() {
        let disks = disks_of(target);
        if disks.is_empty() {
            all.push(TargetDisk { disk: None, targets: vec![index] });
        }
        for disk in disks {
            match all.iter_mut().find(|known| known.disk.as_ref() == Some(&disk)) {
                Some(known) => known.targets.push(index),
                None => all.push(TargetDisk { disk: Some(disk), targets: vec![index] }),
            }
        }
    }
    all
}

/// Returns the kernel names of the physical disks below a target, as far as they are known on this machine.
fn disks_of(target: &TargetSpec) -> Vec<String> {
    let paths: Vec<PathBuf> = match target.stack.location() {
        _ if target.remote().is_some() => Vec::new(),
        Some(BottomLocation::Path(path) | BottomLocation::Device(path) | BottomLocation::Directory(path)) => {
            vec![path.to_owned()]
        }
        Some(BottomLocation::Group(name)) => lvm::devices_of(name),
        None => Vec::new(),
    };
    let mut disks: Vec<String> = Vec::new();
    for disk in paths.iter().flat_map(|path| stack::physical_disks(Path::new("/"), path)) {
        if !disks.contains(&disk) {
            disks.push(disk);
        }
    }
    disks
}
