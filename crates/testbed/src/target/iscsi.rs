//! Exports raw files over iSCSI on loopback.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iotax_model::target::{Aio, CacheMode, Discard, FileSpec, IscsiSpec, Layer, LayerKind};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;

use super::ExportedImage;
use super::export::{self, Export, Shows};
use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{BlockNode, ClientNode, NodeBase};
use crate::build_error::BuildError;
use crate::guest::disk::Drive;
use crate::program::Program;
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};

/// The tool that runs another program with a changed environment and directory.
const ENV: Program = Program { name: "env", package: "coreutils" };
/// The iSCSI target daemon, which runs in user space.
const TGTD: Program = Program { name: "tgtd", package: "tgt" };
/// The tool that configures a running tgtd.
const TGTADM: Program = Program { name: "tgtadm", package: "tgt" };
/// User name with which the initiator authenticates (CHAP).
const USER: &str = "iotax";
/// QEMU's id for the object that holds the CHAP password.
const SECRET: &str = "chap0";

/// A tgtd process with a portal on a loopback port; its iSCSI target is configured after the start.
#[derive(Debug)]
struct Tgtd {
    /// Path of tgtd's control socket.
    control: PathBuf,
    port: u16,
}

impl Shows for Tgtd {
    fn point(&self) -> &Path {
        &self.control
    }

    fn program(&self) -> &'static str {
        TGTD.name
    }

    fn command(&self, export: &Export, _: &BlockNode) -> Result<Command, BuildError> {
        let mut command = Command::new(TGTD.path()?);
        let name = Path::new(self.control.file_name().unwrap_or_default());
        command.stdout(Stdio::null()).env("TGT_IPC_SOCKET", name.with_extension(""));
        // In the foreground tgtd writes no pid file, but the option puts the marker on its command line.
        command.args(["--foreground", "--control-port=0", "--pid-file", &export.marker]);
        command.arg("--iscsi").arg(format!("portal={}:{}", Ipv4Addr::LOCALHOST, self.port));
        Ok(command)
    }
}

impl Build for IscsiSpec {
    fn check(&self, _: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        for program in [TGTD, TGTADM] {
            program.find().map_err(|error| Refusal::environment(error.to_string()))?;
        }
        // Nobody listens at port 0.
        let nowhere = json!({
            "driver": "iscsi", "node-name": "none", "transport": "tcp", "portal": "127.0.0.1:0", "target": "none",
        });
        export::has_client(&nowhere, "iSCSI initiator")
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let marker = format!("iotax-{}-{}-iscsi", at.builder.tag, at.name::<Self>());
        let socket = at.socket::<Self>(&below.node, "iscsi")?;
        let control = socket.with_added_extension("0");
        let secret = socket.with_added_extension("secret");
        for path in [control.clone(), control.with_added_extension("lock")] {
            at.undo_log.record(Effect::File { path, identity: None })?;
        }
        let password = password(&secret, at.undo_log)?;
        let port = free_port().map_err(BuildError::file(&socket))?;
        // A file name may contain characters that are invalid in an iSCSI name.
        let target = format!("iqn.2026-11.iotax:{}", at.builder.tag);
        let stored = below.node.stored().map(|(path, _)| path.to_owned());
        let Some(file) = stored else {
            return Err(Refusal::input("iscsi: tgtd serves a file, and there is none").into());
        };
        // tgtd opens the file with direct I/O; the other settings are for layers above.
        let drive = Drive { cache: CacheMode::None, aio: Aio::Native, discard: Discard::Unmap };
        let form = Box::new(Tgtd { control: control.clone(), port });
        // Recorded last, so that it is undone first: a daemon that is starting may still create the files above.
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        Export { marker, drive, file: FileSpec::default(), form, node: below.node }.start_for(at)?;
        serve(&socket, &target, &password, &file, at.undo_log)?;
        let node = json!({
            "driver": "iscsi", "transport": "tcp", "portal": format!("{}:{port}", Ipv4Addr::LOCALHOST),
            "target": target, "lun": 1, "user": USER, "password-secret": SECRET,
        });
        let client = ClientNode {
            node,
            secret: Some(json!({ "qom-type": "secret", "id": SECRET, "file": secret.to_string_lossy() })),
            directory: control.parent().map(Path::to_owned),
            namespace: None,
            read_only: false,
        };
        let node = BlockNode::on(NodeBase::Client(Box::new(client)));
        Ok(Ground::Node(Box::new(NodeGround { node, ..below })))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        vec![Layer::new(LayerKind::Export, "iSCSI", "tgtd past the page cache, QEMU's initiator, loopback")]
    }
}

/// Creates a random password and stores it in a new file that only this user can read.
fn password(path: &Path, undo_log: &mut UndoLog) -> Result<String, BuildError> {
    let mut bytes = [0_u8; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| BuildError::file(path)(errno.into()))?;
    let password = format!("{:016x}", u64::from_ne_bytes(bytes));
    let (_, mut file) = undo_log.make_file(path)?;
    file.write_all(password.as_bytes()).map_err(BuildError::file(path))?;
    Ok(password)
}

/// Returns an unused TCP port on 127.0.0.1.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Configures tgtd to export `file` as LUN 1 of the iSCSI target `target`, to initiators on 127.0.0.1 that know the password.
fn serve(
    socket: &Path,
    target: &str,
    password: &str,
    file: &Path,
    undo_log: &UndoLog,
) -> Result<(), BuildError> {
    let (directory, name) =
        (socket.parent().unwrap_or(Path::new("/")), socket.file_name().unwrap_or_default());
    // The path is relative to tgtd's directory: a comma in a path would end it, and a target's name has none.
    let file = file.strip_prefix(directory).unwrap_or(file).to_string_lossy();
    for arguments in [
        &["--op=new", "--mode=target", "--tid=1", "--targetname", target][..],
        &["--op=new", "--mode=logicalunit", "--tid=1", "--lun=1", "--bstype=aio", "--backing-store", &file],
        &["--op=new", "--mode=account", "--user", USER, "--password", password],
        &["--op=bind", "--mode=account", "--tid=1", "--user", USER],
        &["--op=bind", "--mode=target", "--tid=1", "--initiator-address=127.0.0.1"],
    ] {
        let place = [
            format!("--chdir={}", directory.display()),
            format!("TGT_IPC_SOCKET={}", name.to_string_lossy()),
            TGTADM.path().map_err(|error| Refusal::environment(error.to_string()))?.display().to_string(),
            "--lld=iscsi".into(),
        ];
        let arguments = place.iter().map(String::as_str).chain(arguments.iter().copied());
        undo_log.run(ENV, arguments).map_err(|error| Refusal::environment(error.to_string()))?;
    }
    Ok(())
}
