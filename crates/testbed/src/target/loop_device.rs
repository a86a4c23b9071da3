//! Attaches loop devices to files that iotax created.

use std::fs::File;
use std::path::{Path, PathBuf};

use iotax_model::target::{Format, LoopSpec};
use iotax_model::warning::{Warning, WarningKind};
use iotax_model::wire::Identity;

use super::Built;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::raw::RawFile;
use crate::build_error::BuildError;
use crate::device;
use crate::host_info::{boot_id, text};
use crate::losetup::{Attached, LOSETUP};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};

impl Build for LoopSpec {
    fn check(&self, _: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        check("loop")
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let mut built = build(below.raw()?, self, at.undo_log)?;
        at.warnings.append(&mut built.warnings);
        Ok(Ground::Built(Box::new(built)))
    }
}

/// Fails if this user cannot attach loop devices; `layer` is the layer to name in the error.
pub(super) fn check(layer: &str) -> Result<(), Refusal> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::environment(format!(
            "{layer}: only root may attach loop devices; run iotax as root"
        )));
    }
    LOSETUP.find().map_err(|error| Refusal::environment(error.to_string()))
}

/// Attaches a loop device to a file. Adds a warning if direct I/O is requested and the kernel does not use it.
pub(super) fn build(below: RawFile, spec: &LoopSpec, undo_log: &mut UndoLog) -> Result<Built, BuildError> {
    let RawFile { path: file, size, device, inode, entry, held } = below;
    let attached = Attached { file: file.clone(), device, inode, boot_id: boot_id() };
    undo_log.record(Effect::Loop(attached.clone()))?;
    let direct = format!("--direct-io={}", if spec.direct_io { "on" } else { "off" });
    let said =
        undo_log.run(LOSETUP, ["--find".as_ref(), "--show".as_ref(), direct.as_ref(), file.as_os_str()])?;
    let shown = String::from_utf8_lossy(&said).trim().to_owned();
    let node = PathBuf::from(&shown);
    if !attached.nodes().map_err(BuildError::file(&node))?.contains(&shown) {
        LOSETUP.run(["--detach", &shown])?;
        return Err(Refusal::environment(format!(
            "{}: another file has taken its place since it was made; measure in a directory that nobody else changes",
            file.display()
        ))
        .into());
    }
    // The open handle kept the inode from being reused. Close it now: the filesystem may have to be unmounted while this process still runs.
    drop(held);
    let disk = device::disk_of(&File::open(&node).map_err(BuildError::file(&node))?);
    let identity = Some(Identity::Disk(disk.map_err(BuildError::file(&node))?));
    // The kernel silently falls back to the page cache if the filesystem does not support direct I/O.
    let dio = node.file_name().and_then(|name| text(&Path::new("/sys/block").join(name).join("loop/dio")));
    let refused = (spec.direct_io && dio.as_deref() == Some("0")).then(|| Warning {
        kind: WarningKind::BufferedDirect,
        target: None,
        workload: None,
        round: None,
        evidence: format!(
            "{} goes through the page cache although direct_io was asked for: the filesystem of {} does not do it, or \
             its blocks are larger than the loop device's",
            node.display(),
            file.display()
        ),
        remedy: "say direct_io = false, or put the file on another filesystem".into(),
    });
    let warnings = refused.into_iter().collect();
    let built = Built::at(node, Format::Raw, size);
    Ok(Built { writable: true, entry: Some(entry), identity, warnings, ..built })
}
