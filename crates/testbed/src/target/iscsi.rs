//! Raw files served by iSCSI.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use iotax_model::target::{Aio, CacheMode, Discard, FileSpec, IscsiSpec, Layer, LayerKind};
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};

use super::ExportedImage;
use super::export::{Export, ExportType};
use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{BlockNode, NodeBase};
use crate::build_error::BuildError;
use crate::export::{DAEMON, TGTD};
use crate::guest::disk::Drive;
use crate::program::{Program, ProgramError};
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};

/// Sets environment and directory of another program.
const ENV: Program = Program { name: "env", package: "coreutils" };
/// Tells a running tgtd what to serve.
const TGTADM: Program = Program { name: "tgtadm", package: "tgt" };
/// The name by which the initiator identifies itself.
const USER: &str = "iotax";
/// The daemon's name for its secret.
const SECRET: &str = "chap0";

/// A disk of an iSCSI target on loopback.
#[derive(Debug, Clone)]
pub(super) struct Lun {
    port: u16,
    /// The target's name (IQN).
    target: String,
    /// A file with the secret.
    secret: String,
}

impl Lun {
    /// QEMU's node for it, and the secret that it needs.
    pub(super) fn node(&self) -> (Value, Value) {
        let node = json!({
            "driver": "iscsi", "transport": "tcp", "portal": format!("{}:{}", Ipv4Addr::LOCALHOST, self.port),
            "target": self.target, "lun": 1, "user": USER, "password-secret": SECRET,
        });
        (node, json!({ "qom-type": "secret", "id": SECRET, "file": self.secret }))
    }
}

impl Build for IscsiSpec {
    fn check(&self, _: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        for program in [TGTD, TGTADM] {
            program.find().map_err(|error| Refusal::environment(error.to_string()))?;
        }
        has_initiator()
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let marker = format!("iotax-{}-{}-iscsi", at.builder.tag, at.name::<Self>());
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        let socket = at.socket::<Self>(&below.node, "iscsi")?;
        let control = socket.with_added_extension("0");
        let secret = socket.with_added_extension("secret");
        for path in [control.clone(), control.with_added_extension("lock")] {
            at.undo_log.record(Effect::File { path, identity: None })?;
        }
        let password = password(&secret, at.undo_log)?;
        let lun = Lun {
            port: free_port().map_err(BuildError::file(&socket))?,
            // Names of files may have letters that such a name may not.
            target: format!("iqn.2026-11.iotax:{}", at.builder.tag),
            secret: secret.to_string_lossy().into_owned(),
        };
        let stored = below.node.stored().map(|(path, _)| path.to_owned());
        let Some(file) = stored else {
            return Err(Refusal::input("iscsi: tgtd serves a file, and there is none").into());
        };
        // tgtd opens it past the page cache; the rest is for layers above.
        let drive = Drive { cache: CacheMode::None, aio: Aio::Native, discard: Discard::Unmap };
        let way = ExportType::Iscsi { control: control.clone(), port: lun.port };
        Export { marker, drive, file: FileSpec::default(), way, node: below.node }.start_for(at)?;
        serve(&socket, &lun.target, &password, &file, at.undo_log)?;
        let node = BlockNode::on(NodeBase::Iscsi { lun, control });
        Ok(Ground::Node(Box::new(NodeGround { node, ..below })))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        vec![Layer::new(LayerKind::Export, "iSCSI", "tgtd past the page cache, QEMU's initiator, loopback")]
    }
}

/// Checks that QEMU has its initiator, which distributions package apart from it.
fn has_initiator() -> Result<(), Refusal> {
    // Nobody listens at port 0.
    let nowhere = json!({
        "driver": "iscsi", "node-name": "none", "transport": "tcp", "portal": "127.0.0.1:0", "target": "none",
    });
    match DAEMON.run(["--blockdev", &nowhere.to_string()]) {
        Err(ProgramError::Failed { reason, .. }) if reason.contains("Unknown driver") => {
            Err(Refusal::environment(format!(
                "{} has no iSCSI initiator; install it (Debian: apt-get install qemu-block-extra, of QEMU's own version)",
                DAEMON.name
            )))
        }
        Err(error @ ProgramError::NotFound { .. }) => Err(Refusal::environment(error.to_string())),
        _ => Ok(()),
    }
}

/// A secret of this run's in a file that nobody else may read.
fn password(path: &Path, undo_log: &mut UndoLog) -> Result<String, BuildError> {
    let mut bytes = [0_u8; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| BuildError::file(path)(errno.into()))?;
    let password = format!("{:016x}", u64::from_ne_bytes(bytes));
    let (_, mut file) = undo_log.make_file(path)?;
    file.write_all(password.as_bytes()).map_err(BuildError::file(path))?;
    Ok(password)
}

/// A port of loopback that nobody listens at.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Has tgtd serve a file, to whoever knows the password.
fn serve(
    socket: &Path,
    target: &str,
    password: &str,
    file: &Path,
    undo_log: &UndoLog,
) -> Result<(), BuildError> {
    let (directory, name) =
        (socket.parent().unwrap_or(Path::new("/")), socket.file_name().unwrap_or_default());
    // Its directory is tgtd's: a comma in a path would end it.
    let file = file.strip_prefix(directory).unwrap_or(file).to_string_lossy();
    if file.contains(',') {
        return Err(Refusal::input(format!("iscsi: {file}: tgtd takes no comma in a name")).into());
    }
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
