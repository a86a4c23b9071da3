//! Exports raw files over NFS.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_model::target::{Aio, CacheMode, Discard, FileSpec, Layer, LayerKind, NfsSpec};
use serde_json::json;

use super::ExportedImage;
use super::export::{self, Export, Shows};
use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{BlockNode, ClientNode, NodeBase};
use crate::build_error::BuildError;
use crate::guest::disk::Drive;
use crate::netns::{self, IP, Namespace};
use crate::program::Program;
use crate::refusal::Refusal;
use crate::undo::Effect;

/// NFS-Ganesha, an NFS server in user space.
const GANESHA: Program = Program { name: "ganesha.nfsd", package: "nfs-ganesha" };
/// rpcbind, the portmapper, which QEMU's NFS client (libnfs) asks for the server's port.
const RPCBIND: Program = Program { name: "rpcbind", package: "rpcbind" };
/// The tool that checks whether an RPC server answers.
const RPCINFO: Program = Program { name: "rpcinfo", package: "rpcbind" };
/// The tool that mounts the file's directory where only the servers see it.
const MOUNT: Program = Program { name: "mount", package: "mount" };
/// RPC program number and version of NFS's mount protocol.
const MOUNTD: [&str; 2] = ["100005", "3"];
/// Path at which the servers see the file's directory.
const SHARED: &str = "/run/export";

/// Shell script that starts rpcbind and the NFS server. ip(8) runs it in a separate mount namespace, so that the servers' files in /run are
/// invisible to the rest of the machine.
const START: &str = r#"
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/rpcbind /run/ganesha /run/export
mount --bind "$2" /run/export
cat >/run/ganesha.conf <<'CONFIG'
NFS_CORE_PARAM { Protocols = 3; MNT_Port = 20048; Enable_UDP = false; Enable_NLM = false; Enable_RQUOTA = false; }
NFSv4 { Graceless = true; RecoveryRoot = "/run/ganesha"; UseGetpwnam = true; Only_Numeric_Owners = true; }
EXPORT {
    Export_Id = 1; Path = /run/export; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash;
    Protocols = 3; Transports = TCP; SecType = sys;
    FSAL { Name = VFS; }
}
CONFIG
"$3"
exec "$1" -F -L STDERR -N NIV_MAJ -f /run/ganesha.conf -p "/run/$4.pid"
"#;

/// An NFS server in a separate network namespace.
#[derive(Debug)]
struct NfsServer {
    /// Name of the network namespace.
    namespace: String,
    /// Path of the namespace's file in /run/netns.
    point: PathBuf,
    /// The exported directory.
    directory: PathBuf,
}

impl Shows for NfsServer {
    fn point(&self) -> &Path {
        &self.point
    }

    fn program(&self) -> &'static str {
        GANESHA.name
    }

    fn command(&self, export: &Export, _: &BlockNode) -> Result<Command, BuildError> {
        let mut command = netns::command_in(Some(&self.namespace), Path::new("/bin/sh"));
        command.args(["-c", START, "sh"]).arg(GANESHA.path()?).arg(&self.directory).arg(RPCBIND.path()?);
        command.arg(&export.marker).env("PATH", crate::program::search_path()).stdout(Stdio::null());
        Ok(command)
    }

    fn is_there(&self) -> io::Result<bool> {
        let rpcinfo = RPCINFO.path().map_err(io::Error::other)?;
        let address = Ipv4Addr::LOCALHOST.to_string();
        let question = ["-T", "tcp", &address].into_iter().chain(MOUNTD);
        let exec = ["netns", "exec", &self.namespace].map(Into::into);
        let words = exec.into_iter().chain([rpcinfo.into_os_string()]).chain(question.map(Into::into));
        Ok(IP.run(words).is_ok())
    }

    fn clear(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Build for NfsSpec {
    fn check(&self, _: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment(
                "nfs: its server gets a network namespace, which needs root; run this as root",
            ));
        }
        for program in [GANESHA, RPCBIND, RPCINFO, MOUNT, IP, netns::NSENTER] {
            program.find().map_err(|error| Refusal::environment(error.to_string()))?;
        }
        // The node names no server, so no connection is made.
        export::has_client(&json!({ "driver": "nfs", "node-name": "none" }), "NFS client")
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let stored = below.node.stored().map(|(path, _)| path.to_owned());
        let Some((directory, name)) = stored.as_deref().and_then(|file| file.parent().zip(file.file_name()))
        else {
            return Err(Refusal::input("nfs: ganesha serves a file, and there is none").into());
        };
        let marker = format!("iotax-{}-{}-nfs", at.builder.tag, at.name::<Self>());
        let namespace = Namespace::make(marker.clone(), at.undo_log)?;
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        // These are the client's settings; the server has no such options.
        let drive = Drive { cache: CacheMode::Writeback, aio: Aio::Threads, discard: Discard::Unmap };
        let path = Path::new(SHARED).join(name);
        let form = Box::new(NfsServer {
            namespace: marker.clone(),
            point: namespace.path(),
            directory: directory.to_owned(),
        });
        let client = ClientNode {
            node: json!({
                "driver": "nfs", "server": { "type": "inet", "host": Ipv4Addr::LOCALHOST.to_string() },
                "path": path.to_string_lossy(),
            }),
            secret: None,
            directory: Some(directory.to_owned()),
            namespace: Some(namespace.path()),
            read_only: false,
        };
        Export { marker, drive, file: FileSpec::default(), form, node: below.node }.start_for(at)?;
        let node = BlockNode::on(NodeBase::Client(Box::new(client)));
        Ok(Ground::Node(Box::new(NodeGround { node, ..below })))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        let detail = "nfs-ganesha through the page cache, QEMU's client, NFS 3, loopback of its own";
        vec![Layer::new(LayerKind::Export, "NFS", detail)]
    }
}
