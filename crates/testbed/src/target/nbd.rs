//! Exports images over NBD.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_model::target::{Discard, Format, Layer, LayerKind, NbdAddress, NbdClient, NbdServer, NbdSpec};
use iotax_model::units::{Bytes, Nanos};
use serde_json::json;

use super::export::{self, Export, ExportedImage, Shows};
use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::nbd_client;
use super::needs::Needs;
use super::node::{self, BlockNode, ClientNode, NodeBase};
use super::preflight::check_created;
use crate::build_error::BuildError;
use crate::export::DAEMON;
use crate::guest::disk::{self, Drive};
use crate::program::Program;
use crate::refusal::Refusal;
use crate::undo::Effect;

/// QEMU's NBD server.
const QEMU_NBD: Program = Program { name: "qemu-nbd", package: "qemu-utils" };
/// nbdkit, an NBD server that can delay requests.
const NBDKIT: Program = Program { name: "nbdkit", package: "nbdkit" };

/// An NBD export on a Unix socket.
#[derive(Debug)]
struct NbdSocket {
    socket: PathBuf,
    spec: NbdSpec,
}

impl Shows for NbdSocket {
    fn point(&self) -> &Path {
        &self.socket
    }

    fn program(&self) -> &'static str {
        program(self.spec.server).name
    }

    fn command(&self, export: &Export, node: &BlockNode) -> Result<Command, BuildError> {
        // The name is relative to the server's directory.
        let name = self.socket.file_name().unwrap_or_default();
        if self.spec.server == NbdServer::StorageDaemon {
            let address = json!({ "addr": { "type": "unix", "path": name.to_string_lossy() } });
            let form = json!({ "type": "nbd", "name": export.marker });
            return export.by_storage_daemon(node, &form, &["--nbd-server".to_owned(), address.to_string()]);
        }
        let Some((path, format)) = node.stored() else {
            return Err(Refusal::input(format!(
                "nbd: {} serves a file, and there is none",
                self.spec.server
            ))
            .into());
        };
        let mut command = Command::new(program(self.spec.server).path()?);
        command.stdout(Stdio::null());
        if self.spec.server == NbdServer::Nbdkit {
            command.args(["--foreground", "--exportname", &export.marker, "--unix"]).arg(name);
            let filters = filters(&self.spec);
            command.args(filters.iter().map(|(filter, _)| format!("--filter={filter}")));
            if self.spec.error_rate.is_some() {
                // nbdkit logs each error, and its log is kept in memory.
                command.arg("--log=null");
            }
            command.arg("file").arg(path).args(filters.into_iter().flat_map(|(_, parameters)| parameters));
        } else {
            let cache = export.drive.cache;
            let aio = disk::aio(path, export.drive.aio);
            command.args(["--persistent", "--shared=0", "--discard=unmap"]);
            command.args([format!("--cache={cache}"), format!("--aio={aio}")]);
            command.args(["--export-name", &export.marker, "--format", format.word()]);
            // qemu-nbd requires an absolute path.
            command.arg("--socket").arg(Path::new("/proc/self/cwd").join(name)).arg(path);
        }
        Ok(command)
    }
}

/// Returns nbdkit's filters with their parameters, from the client's side down. The filter for errors is the lowest,
/// so that a failing read is delayed like any other.
fn filters(spec: &NbdSpec) -> Vec<(&'static str, Vec<String>)> {
    // nbdkit counts bits.
    let rate = spec.rate.map(|Bytes(bytes)| ("rate", vec![format!("rate={}", bytes * 8)]));
    let delay = spec.delay.map(|Nanos(ns)| ns / 1_000_000);
    let delay = delay.map(|ms| ("delay", vec![format!("rdelay={ms}ms"), format!("wdelay={ms}ms")]));
    // Only reads fail: otherwise the target could not be filled.
    let errors = spec.error_rate.map(|rate| ("error", vec![format!("error-pread-rate={}", rate.fraction())]));
    [rate, delay, errors].into_iter().flatten().collect()
}

/// Returns the program and package of an NBD server.
const fn program(server: NbdServer) -> Program {
    match server {
        NbdServer::StorageDaemon => DAEMON,
        NbdServer::QemuNbd => QEMU_NBD,
        NbdServer::Nbdkit => NBDKIT,
    }
}

impl Build for NbdSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        let server = program(self.server);
        server.find().map_err(|error| Refusal::environment(error.to_string()))?;
        if self.client == NbdClient::Kernel {
            nbd_client::check()?;
            check_created(at.plan, &at.plan.work_on(at.target))?;
        }
        if self.server == NbdServer::QemuNbd
            && at.target.file().is_some_and(|file| file.format == Format::Luks || file.encrypt.is_some())
        {
            return Err(Refusal::input(
                "nbd: server = \"qemu-nbd\" is not given the key of an encrypted image; use server = \"qemu-storage-daemon\"",
            ));
        }
        if export::is_renewed(at.target) {
            return Err(Refusal::input(
                "nbd: the client does not follow a server that is started again before each measurement; leave snapshot or overlay out",
            ));
        }
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let marker = format!("iotax-{}-{}-nbd", at.builder.tag, at.name::<Self>());
        let socket = at.socket::<Self>(&below.node, "nbd")?;
        for path in [socket.clone(), export::monitor_path(&socket)] {
            at.undo_log.record(Effect::File { path, identity: None })?;
        }
        let drive = Drive { cache: self.cache, aio: self.aio, discard: Discard::Unmap };
        let form = Box::new(NbdSocket { socket: socket.clone(), spec: self.clone() });
        let file = at.target.file().cloned().unwrap_or_default();
        let (size, claim, identity) = (below.size, below.claim, below.identity);
        let export = Export { marker: marker.clone(), drive, file, form, node: below.node };
        // Recorded last, so that it is undone first: a daemon that is starting may still create the files above.
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        export.start_for(at)?;
        if self.client == NbdClient::Kernel {
            return nbd_client::connect(&socket, &marker, at);
        }
        // A socket address holds at most 107 bytes.
        let name = socket.file_name().map(PathBuf::from).unwrap_or_default();
        let client = ClientNode {
            node: node::client(&NbdAddress::Unix(name), &marker),
            secret: None,
            directory: socket.parent().map(Path::to_owned),
            namespace: None,
            read_only: false,
        };
        let node = BlockNode::on(NodeBase::Client(Box::new(client)));
        Ok(Ground::Node(Box::new(NodeGround { node, size, claim, identity })))
    }

    fn recorded(&self, exported: Option<&ExportedImage>) -> Vec<Layer> {
        let threads = exported.map(ExportedImage::with_threads).unwrap_or_default();
        let client = if self.client == NbdClient::Kernel { ", the kernel's client" } else { "" };
        let detail = format!("{}, cache={} aio={}{threads}{client}", self.server, self.cache, self.aio);
        vec![Layer::new(LayerKind::Export, "NBD export", detail)]
    }
}
