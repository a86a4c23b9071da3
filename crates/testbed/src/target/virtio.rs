//! Exports images as virtio block devices (vhost-user-blk) with QEMU's storage daemon.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use iotax_model::plan::Operation;
use iotax_model::target::{Discard, Format, Layer, LayerKind, VirtioSpec};
use iotax_model::wire::Identity;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use serde_json::json;

use super::Built;
use super::export::{self, Export, ExportedImage, Shows, by_descriptor};
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::BlockNode;
use crate::build_error::BuildError;
use crate::guest::disk::Drive;
use crate::refusal::Refusal;
use crate::undo::Effect;

/// QEMU's id of the export's I/O thread.
const IOTHREAD: &str = "iothread0";

/// A vhost-user-blk export on a Unix socket.
#[derive(Debug)]
struct VhostUser {
    socket: PathBuf,
    /// Number of virtqueues.
    queues: u16,
    /// True if a separate I/O thread serves the queues, false if QEMU's main loop does.
    iothread: bool,
    /// True if a filter is put on the image during measurements.
    takes_filters: bool,
}

impl Shows for VhostUser {
    fn point(&self) -> &Path {
        &self.socket
    }

    fn command(&self, export: &Export, node: &BlockNode) -> Result<Command, BuildError> {
        // The socket takes the place of the daemon's standard output.
        let mut form = json!({
            "type": "vhost-user-blk", "num-queues": self.queues, "addr": { "type": "fd", "str": "1" },
        });
        let mut first = Vec::new();
        if self.iothread {
            form["iothread"] = json!(IOTHREAD);
            first.extend(["--object".to_owned(), format!("iothread,id={IOTHREAD}")]);
        }
        let mut command = export.by_storage_daemon(node, &form, &first)?;
        command.stdout(bound(&self.socket).map_err(BuildError::file(&self.socket))?);
        Ok(command)
    }

    fn in_main_loop(&self) -> bool {
        !self.iothread
    }

    fn takes_filters(&self) -> bool {
        self.takes_filters
    }
}

/// Binds a Unix socket with mode 0600, without listening on it yet.
fn bound(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (_directory, name) = by_descriptor(path)?;
    bind(&socket, &SocketAddrUnix::new(&name)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

impl Build for VirtioSpec {
    fn check(&self, _: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        possible()
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let marker = format!("iotax-{}-{}", at.builder.tag, at.name::<Self>());
        let socket = at.socket::<Self>(&below.node, "virtio")?;
        for path in [socket.clone(), export::monitor_path(&socket)] {
            at.undo_log.record(Effect::File { path, identity: None })?;
        }
        // One queue more than workers, for flushes.
        let queues = self.queues.unwrap_or(u16::try_from(at.builder.workers + 1).unwrap_or(u16::MAX));
        let iothread = self.has_iothread(!at.builder.operations.is_empty());
        let takes_filters = at.builder.operations.contains(&Operation::BackupFleecing);
        let form = Box::new(VhostUser { socket: socket.clone(), queues, iothread, takes_filters });
        let drive = Drive { cache: self.cache, aio: self.aio, discard: Discard::Unmap };
        let file = at.target.file().cloned().unwrap_or_default();
        let writable = !below.node.is_read_only();
        // Recorded last, so that it is undone first: a daemon that is starting may still create the files above.
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        let shown = Export { marker, drive, file, form, node: below.node }.start_for(at)?;
        let found = shown.metadata().map_err(BuildError::file(&socket))?;
        let identity = Some(Identity::File { device: found.dev(), inode: found.ino() });
        let built = Built::at(socket, Format::Raw, below.size.unwrap_or(at.size()));
        Ok(Ground::Built(Box::new(Built { writable, identity, claim: below.claim, ..built })))
    }

    fn recorded(&self, exported: Option<&ExportedImage>) -> Vec<Layer> {
        let thread = if exported.is_some_and(|image| image.in_main_loop) { ", in the main loop" } else { "" };
        let threads = exported.map(ExportedImage::with_threads).unwrap_or_default();
        let filters = if exported.is_some_and(ExportedImage::takes_filters) { ", takes filters" } else { "" };
        let size = self.queue_size.map(|size| format!(" queue_size={size}")).unwrap_or_default();
        let detail = format!("cache={} aio={}{size}{threads}{thread}{filters}", self.cache, self.aio);
        vec![Layer::new(LayerKind::Export, "virtio-blk export", detail)]
    }
}

/// Fails if QEMU's storage daemon is not installed or exports no virtio devices.
pub fn possible() -> Result<(), Refusal> {
    let address = json!({ "type": "fd", "str": "1" });
    let nowhere = json!({ "type": "vhost-user-blk", "id": "none", "node-name": "none", "addr": address });
    export::possible(&nowhere, "5.2")
}
