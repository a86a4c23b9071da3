//! Checks that a resumed run measures the same directories and disks as before.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_model::plan::Plan;
use iotax_model::record::TargetRecord;
use iotax_model::target::{BottomLocation, Layer, LayerInterface, LayerKind, PlannedLayer, TargetSpec};
use iotax_testbed::stack;

use super::target::Target;

/// Returns the directory on this host that holds or will hold a target's file; `None` if there is no such directory.
fn directory(spec: &TargetSpec) -> Option<PathBuf> {
    let path = match spec.stack.location()? {
        BottomLocation::Path(path) => path,
        BottomLocation::Directory(dir) => return Some(dir.to_owned()),
        BottomLocation::Device(_) | BottomLocation::Group(_) => return None,
    };
    let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let is_device = fs::metadata(&resolved).is_ok_and(|found| !found.is_file());
    resolved.parent().filter(|_| !is_device).map(Path::to_owned)
}

/// Returns the layers below a directory.
fn below(directory: &Path) -> anyhow::Result<Vec<Layer>> {
    Ok(stack::of_path(Path::new("/"), directory)?.layers)
}

/// Rejects a target whose file is gone, because a new file would be another target. Rejects a target whose directory is on other layers
/// than before.
pub(super) fn same_directories(plan: &Plan, before: &[TargetRecord]) -> anyhow::Result<()> {
    for spec in &plan.targets {
        let Some(directory) = directory(spec) else { continue };
        let Some(record) = before.iter().find(|record| record.name == spec.name) else { continue };
        if let (Some(BottomLocation::Path(path)), Some(_)) = (spec.stack.location(), &record.found) {
            anyhow::ensure!(
                path.exists(),
                "target {:?}: {} was there when the run was started, and is gone; put it back and resume again, or begin a new run",
                spec.name,
                path.display()
            );
        }
        let makes_directory = |layer: &&PlannedLayer| layer.kind().offers() == LayerInterface::Directory;
        let made = spec.stack.layers().iter().filter(makes_directory).count();
        let then = stack::beneath_directory(&record.layers, made);
        let now = below(&directory).with_context(|| format!("target {:?}", spec.name))?;
        let was = |layers| stack::identity(layers).eq(stack::identity(&now));
        // For a target that was not built yet, only the layers below its directory are recorded.
        anyhow::ensure!(
            then.is_empty() || was(then) || was(&record.layers),
            "target {:?}: {} was on {} when the run was started, and is on {} now; mount what was there and resume again, or \
             begin a new run",
            spec.name,
            directory.display(),
            describe(then),
            describe(&now)
        );
    }
    Ok(())
}

/// Fails if two targets that are measured at the same time are the same file or device.
pub(super) fn all_different(groups: &[Vec<Target>]) -> anyhow::Result<()> {
    let built = groups
        .iter()
        .flatten()
        .filter_map(|target| Some((&target.spec.name, &target.local_storage()?.built)));
    let built: Vec<_> = built.collect();
    for (index, (name, one)) in built.iter().enumerate() {
        let same = built[..index].iter().find(|(_, other)| {
            one.identity.is_some() && (one.identity, one.offset) == (other.identity, other.offset)
        });
        if let Some((other, _)) = same {
            anyhow::bail!(
                "targets {other:?} and {name:?} are the same storage, and cannot be measured together"
            );
        }
    }
    Ok(())
}

/// Formats layers as text, such as `ext4 (/mnt, rw) on loop0 (of /srv/image)`.
fn describe(layers: &[Layer]) -> String {
    let words = layers.iter().rev().map(|layer| format!("{} ({})", layer.name, layer.detail));
    words.collect::<Vec<String>>().join(" on ")
}

/// Returns records for targets that have none yet, with the layers below their directories, so that the run can be resumed even if it ends
/// early.
pub(super) fn not_recorded(plan: &Plan, before: &[TargetRecord]) -> anyhow::Result<Vec<TargetRecord>> {
    let unknown = plan.targets.iter().filter(|spec| before.iter().all(|record| record.name != spec.name));
    let records = unknown.filter_map(|spec| {
        let directory = directory(spec)?;
        let record = |layers| TargetRecord { name: spec.name.clone(), layers, ..TargetRecord::default() };
        Some(below(&directory).map(record).with_context(|| format!("target {:?}", spec.name)))
    });
    records.collect()
}

/// Rejects a target on different disks than before, because rounds of one run are compared with each other.
pub(super) fn same_disks(before: &[TargetRecord], now: &TargetRecord) -> anyhow::Result<()> {
    let disks = |record: &TargetRecord| -> Vec<String> {
        let disks = record.layers.iter().filter(|layer| layer.kind == LayerKind::Device);
        disks.map(|layer| format!("{} ({})", layer.name, layer.detail)).collect()
    };
    let Some(then) = before.iter().find(|record| record.name == now.name) else { return Ok(()) };
    anyhow::ensure!(
        disks(then) == disks(now),
        "target {:?} stood on {} when the run was started, and stands on {} now: their measurements cannot be compared \
         within one run; begin a new one",
        now.name,
        disks(then).join(" and "),
        disks(now).join(" and ")
    );
    Ok(())
}
