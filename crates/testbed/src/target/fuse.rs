//! Exports images as raw files through FUSE, with QEMU's storage daemon.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use iotax_model::target::{Discard, Format, FuseSpec, Layer, LayerKind, PlannedLayer};
use iotax_model::wire::Identity;
use rustix::fs::{Access, OFlags};
use serde_json::json;

use super::Built;
use super::export::{self, Export, ExportedImage, Shows};
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::BlockNode;
use super::raw::RawFile;
use crate::build_error::BuildError;
use crate::export::{FUSERMOUNT, FuseExport};
use crate::guest::disk::Drive;
use crate::refusal::Refusal;
use crate::undo::Effect;

/// Path of the kernel's FUSE device.
const FUSE: &str = "/dev/fuse";

impl Build for FuseSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        possible()?;
        if at.above.iter().any(|layer| matches!(layer, PlannedLayer::Filesystem(_) | PlannedLayer::Zfs(_))) {
            return Err(Refusal::input(
                "fuse: QEMU's FUSE export corrupts concurrent writes (seen with 10.0.2), so that a filesystem on it is lost or hangs; make the \
                 filesystem on a loop device over the file itself, or in a guest",
            ));
        }
        if export::is_renewed(at.target) && !at.above.is_empty() {
            return Err(Refusal::input(
                "fuse: the file is another one for each measurement, so nothing can stand on it; leave snapshot or overlay out",
            ));
        }
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let point = at.socket::<Self>(&below.node, "fuse")?;
        let (entry, file) = at.undo_log.make_file(&point)?;
        drop(file);
        let marker = format!("iotax-{}-{}", at.builder.tag, at.name::<Self>());
        let mount = FuseExport { marker: marker.clone(), point };
        let path = export::monitor_path(&mount.point);
        at.undo_log.record(Effect::File { path, identity: None })?;
        // Recorded last, so that it is undone first: a daemon that is starting may still create the file above.
        at.undo_log.record(Effect::FuseExport(mount.clone()))?;
        let drive = Drive { cache: self.cache, aio: self.aio, discard: Discard::Unmap };
        let file = at.target.file().cloned().unwrap_or_default();
        let path_shown = mount.point.clone();
        let is_read_only = below.node.is_read_only();
        let export = Export { marker, drive, file, form: Box::new(mount), node: below.node };
        let held = export.start_for(at)?;
        let found = held.metadata().map_err(BuildError::file(&path_shown))?;
        let (device, inode, size) = (found.dev(), found.ino(), below.size.unwrap_or(at.size()));
        if is_read_only {
            let identity = Some(Identity::File { device, inode });
            let built = Built::at(path_shown, Format::Raw, size);
            return Ok(Ground::Built(Box::new(Built {
                identity,
                held: Some(held),
                entry: Some(entry),
                ..built
            })));
        }
        Ok(Ground::Raw(RawFile { path: path_shown, size, device, inode, entry, held }))
    }

    fn recorded(&self, exported: Option<&ExportedImage>) -> Vec<Layer> {
        let threads = exported.map(ExportedImage::with_threads).unwrap_or_default();
        let detail = format!("cache={} aio={}{threads}", self.cache, self.aio);
        vec![Layer::new(LayerKind::Export, "FUSE export", detail)]
    }
}

impl Shows for FuseExport {
    fn point(&self) -> &Path {
        &self.point
    }

    fn command(&self, export: &Export, node: &BlockNode) -> Result<Command, BuildError> {
        let form = json!({ "type": "fuse", "mountpoint": self.point.to_string_lossy() });
        export.by_storage_daemon(node, &form, &[])
    }

    fn flags(&self) -> OFlags {
        OFlags::empty()
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(self.mount()?.is_some())
    }

    fn clear(&self) -> io::Result<()> {
        self.unmount()
    }
}

/// Fails if images cannot be exported through FUSE here; the error names what is missing.
pub fn possible() -> Result<(), Refusal> {
    let nowhere = json!({ "type": "fuse", "id": "none", "node-name": "none", "mountpoint": "/" });
    export::possible(&nowhere, "6.0")?;
    check_device("fuse")
}

/// Fails if this user cannot mount FUSE filesystems; `layer` is the layer to name in the error.
pub(super) fn check_device(layer: &str) -> Result<(), Refusal> {
    rustix::fs::access(FUSE, Access::READ_OK | Access::WRITE_OK).map_err(|errno| {
        Refusal::environment(format!(
            "{layer}: {FUSE}: {}; load the module fuse, or give the container that device",
            io::Error::from(errno)
        ))
    })?;
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // libfuse finds the tool for mounting by itself; for unmounting, iotax must find it.
    FUSERMOUNT.find().map_err(|error| Refusal::environment(format!("{layer}: {error}")))
}
