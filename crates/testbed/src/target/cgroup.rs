//! Limits a target's I/O with a cgroup for the processes that generate it.

use std::fs;
use std::path::{Path, PathBuf};

use iotax_model::target::{CgroupSpec, Layer, LayerKind, NbdExportSpec, TmpfsSpec, VolatileSpec, ZfsSpec};

use super::ExportedImage;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use crate::build_error::BuildError;
use crate::cgroup::{Hierarchy, IoLimit, Version};
use crate::host_info::text;
use crate::refusal::Refusal;
use crate::stack;
use crate::undo::Effect;

impl Build for CgroupSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        let stack = &at.target.stack;
        let elsewhere = [
            (stack.has::<TmpfsSpec>(), "tmpfs has no disk"),
            (stack.has::<NbdExportSpec>(), "the disk is a server's"),
            (stack.has::<ZfsSpec>(), "ZFS reads and writes by threads of the kernel's"),
            (stack.has::<VolatileSpec>(), "a volatile directory writes by a process of its own"),
        ];
        if let Some((_, reason)) = elsewhere.iter().find(|(is_there, _)| *is_there) {
            return Err(Refusal::input(format!(
                "cgroup: {reason}, which a limit on the load does not reach"
            )));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment(
                "cgroup: only root may make a control group; run iotax as root",
            ));
        }
        hierarchy().map(drop)
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let hierarchy = hierarchy()?;
        let disk = disk_of(&bytes_of(&below, at)?)?;
        let root = &hierarchy.root;
        if let Some(controller) = hierarchy.controller() {
            at.undo_log.record(Effect::IoController(controller.clone()))?;
            controller.turn_on().map_err(BuildError::file(root))?;
        }
        let name = format!("iotax-{}-{}", at.builder.tag, at.name::<Self>());
        let group = hierarchy.group(&name).map_err(BuildError::file(root))?;
        at.undo_log.record(Effect::Cgroup(group.clone()))?;
        fs::create_dir(&group.path).map_err(BuildError::file(&group.path))?;
        let limit = IoLimit::new(group, hierarchy.version, self, &disk);
        // Try the limit now, so that a rejection by the kernel is found before the first measurement.
        limit.set(&[]).and_then(|()| limit.lift()).map_err(BuildError::file(root))?;
        *at.limit = Some(limit);
        Ok(below)
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        let limits = self.limits().into_iter().filter_map(|(key, limit)| Some(format!("{key}={}", limit?)));
        let version = hierarchy().map(|found| match found.version {
            Version::V1 => "cgroup v1",
            Version::V2 => "cgroup v2",
        });
        let words: Vec<String> = version.map(str::to_owned).into_iter().chain(limits).collect();
        vec![Layer::new(LayerKind::Limit, "cgroup", words.join(", "))]
    }
}

/// Finds the cgroup hierarchy that can limit I/O on this machine. The error names a remedy.
fn hierarchy() -> Result<Hierarchy, Refusal> {
    let found = Hierarchy::find(Path::new("/"));
    let found = found.map_err(|error| Refusal::environment(format!("cgroup: the mount table: {error}")))?;
    found.ok_or_else(|| {
        Refusal::environment(
            "cgroup: neither cgroup v2 with its controller io nor v1's blkio with limits is mounted in /sys/fs/cgroup; mount one, or leave out \
             targets with cgroup",
        )
    })
}

/// Returns the path of the file, device or export that holds a target's data. Fails if the layer below is a directory or a node of QEMU's
/// block layer.
fn bytes_of(below: &Ground, at: &LayerSite<'_>) -> Result<PathBuf, BuildError> {
    let stored = at.exported.as_ref().and_then(|image| image.stored.as_ref());
    let path = match (stored, below) {
        (Some((path, _)), _) => path,
        (None, Ground::Block(block)) => &block.area.path,
        (None, Ground::Raw(file)) => &file.path,
        (None, Ground::Built(built)) => &built.path,
        (None, Ground::Machine | Ground::Directory(_) | Ground::Node(_)) => {
            return Err(Refusal::input("cgroup stands on what can be measured").into());
        }
    };
    Ok(path.clone())
}

/// Returns the `major:minor` of a device, or of the uppermost block device below a file. For a partition, returns that of its disk, because
/// limits do not apply to partitions.
fn disk_of(path: &Path) -> Result<String, Refusal> {
    let found =
        stack::of_path(Path::new("/"), path).map_err(|error| Refusal::environment(error.to_string()))?;
    let directory = found.disks.last().and_then(|name| {
        let name = name.replace('/', "!");
        let directory = fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?;
        let is_partition = directory.join("partition").exists();
        if is_partition { directory.parent().map(Path::to_owned) } else { Some(directory) }
    });
    directory.and_then(|directory| text(&directory.join("dev"))).ok_or_else(|| {
        Refusal::environment(format!(
            "cgroup: {} is on no block device that /sys shows, so there is nothing to limit; use another directory",
            path.display()
        ))
    })
}
