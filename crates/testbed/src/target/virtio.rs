//! Images shown as virtio block devices by QEMU's storage daemon.

use std::os::unix::fs::MetadataExt;

use iotax_model::target::{Discard, Format, Layer, LayerKind, VirtioSpec};
use iotax_model::wire::Identity;

use super::Built;
use super::export::{self, Export, ExportType, ExportedImage};
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use crate::build_error::BuildError;
use crate::guest::disk::Drive;
use crate::refusal::Refusal;
use crate::undo::Effect;

impl Build for VirtioSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        possible()?;
        export::check_snapshot(at, "virtio")
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let marker = format!("iotax-{}-{}", at.builder.tag, at.name::<Self>());
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        let socket = at.socket::<Self>(&below.node, "virtio")?;
        for path in [socket.clone(), export::monitor_path(&socket)] {
            at.undo_log.record(Effect::File { path, identity: None })?;
        }
        // One is for flushes.
        let queues = self.queues.unwrap_or(u16::try_from(at.builder.workers + 1).unwrap_or(u16::MAX));
        let iothread = self.has_iothread(at.builder.has_operations);
        let way = ExportType::Virtio { socket: socket.clone(), queues, iothread };
        let drive = Drive { cache: self.cache, aio: self.aio, discard: Discard::Unmap };
        let file = at.target.file().cloned().unwrap_or_default();
        let writable = !below.node.is_read_only();
        let shown = Export { marker, drive, file, way, node: below.node }.start_for(at)?;
        let found = shown.metadata().map_err(BuildError::file(&socket))?;
        let identity = Some(Identity::File { device: found.dev(), inode: found.ino() });
        let built = Built::at(socket, Format::Raw, below.size.unwrap_or(at.size()));
        Ok(Ground::Built(Box::new(Built { writable, identity, claim: below.claim, ..built })))
    }

    fn recorded(&self, exported: Option<&ExportedImage>) -> Vec<Layer> {
        let thread = if exported.is_some_and(|image| image.in_main_loop) { ", in the main loop" } else { "" };
        let detail = format!("cache={} aio={}{thread}", self.cache, self.aio);
        vec![Layer::new(LayerKind::Export, "virtio-blk export", detail)]
    }
}

/// Checks that images can be shown here; the error names what is missing.
pub fn possible() -> Result<(), Refusal> {
    export::possible()
}
