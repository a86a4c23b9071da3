//! Builds RBD images on a Ceph cluster that iotax starts, with one OSD whose disk is a raw file.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use iotax_model::target::{
    Aio, BottomLocation, CacheMode, Discard, FileSpec, Layer, LayerKind, OsdMedia, RbdSpec,
};
use serde_json::{Value, json};

use super::ExportedImage;
use super::export::{self, Export, Shows};
use super::ground::{Ground, NodeGround};
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::node::{BlockNode, ClientNode, NodeBase};
use crate::build_error::BuildError;
use crate::guest::disk::Drive;
use crate::host_info;
use crate::netns::{self, IP, NSENTER, Namespace};
use crate::program::Program;
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoLog};

/// The Ceph monitor daemon.
const MON: Program = Program { name: "ceph-mon", package: "ceph-mon" };
/// The Ceph OSD daemon, which stores the data.
const OSD: Program = Program { name: "ceph-osd", package: "ceph-osd" };
/// The tool that sends commands to the monitor.
const CEPH: Program = Program { name: "ceph", package: "ceph-common" };
/// The tool that creates RBD images.
const RBD: Program = Program { name: "rbd", package: "ceph-common" };
/// The tool that creates authentication keys.
const AUTHTOOL: Program = Program { name: "ceph-authtool", package: "ceph-common" };
/// File name of the cluster's configuration.
const CONF: &str = "ceph.conf";
/// File name of the keyring, with which daemons and clients authenticate.
const KEYRING: &str = "keyring";
/// Names of the pool and of the RBD image in it.
const POOL: &str = "rbd";
const IMAGE: &str = "disk";
/// Timeout of client requests in seconds, as in the kernel's SCSI layer; a request without an answer then fails.
const TIMEOUT_S: u32 = 30;
/// Timeout of a status query to a daemon's admin socket.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum length of an admin socket's answer in bytes.
const LONGEST: u32 = 16 << 20;

/// A Ceph cluster in a private directory and network namespace.
#[derive(Debug, Clone)]
struct Cluster {
    /// Directory with all files of the cluster, in which its programs run: Ceph's configuration cannot contain arbitrary paths, so it uses
    /// relative ones.
    directory: PathBuf,
    /// Path of the network namespace's file.
    namespace: PathBuf,
    /// A string that appears in the command lines of the cluster's programs and in no others.
    marker: String,
}

/// A monitor or OSD daemon of the cluster.
#[derive(Debug)]
struct CephDaemon {
    program: Program,
    /// Id of the daemon within the cluster.
    id: &'static str,
    /// Path of the daemon's admin socket.
    socket: PathBuf,
    /// The admin socket command that reports the daemon's state, and the state in which it serves requests.
    ready: (&'static str, &'static str),
    cluster: Cluster,
}

impl Shows for CephDaemon {
    fn point(&self) -> &Path {
        &self.socket
    }

    fn program(&self) -> &'static str {
        self.program.name
    }

    fn command(&self, _: &Export, _: &BlockNode) -> Result<Command, BuildError> {
        let mut command = netns::command_at(Some(&self.cluster.namespace), &self.program.path()?);
        command.args(self.cluster.arguments()).args(["-i", self.id, "-f"]).stdout(Stdio::null());
        Ok(command)
    }

    fn is_there(&self) -> io::Result<bool> {
        let (question, state) = self.ready;
        // A daemon that does not serve yet may refuse the connection or the command.
        Ok(ask(&self.socket, question).is_ok_and(|answer| answer["state"] == state))
    }
}

impl Cluster {
    /// Returns the arguments by which a program finds this cluster.
    fn arguments(&self) -> [&str; 4] {
        ["--cluster", &self.marker, "-c", CONF]
    }

    /// Runs a Ceph tool in the cluster's network namespace and directory.
    fn run(&self, undo_log: &UndoLog, program: Program, words: &[&str]) -> Result<(), BuildError> {
        let place =
            [format!("--net={}", self.namespace.display()), format!("--wd={}", self.directory.display())];
        let path = program.path()?.display().to_string();
        let call = place.iter().map(String::as_str).chain(["--", &path]).chain(self.arguments());
        undo_log.run(NSENTER, call.chain(words.iter().copied()))?;
        Ok(())
    }

    /// Writes the cluster's configuration and keyring, and creates a data directory for each daemon. The OSD's disk is a link to `file`.
    fn lay_out(&self, spec: &RbdSpec, file: &Path) -> Result<(), BuildError> {
        let key = AUTHTOOL.run(["--gen-print-key"])?;
        let key = String::from_utf8_lossy(&key).trim().to_owned();
        let write = || -> io::Result<()> {
            fs::create_dir(self.directory.join("mon"))?;
            fs::create_dir(self.directory.join("osd"))?;
            symlink(file, self.directory.join("osd/block"))?;
            fs::write(self.directory.join(KEYRING), keyring(&key))?;
            fs::write(self.directory.join(CONF), settings(spec, &host_info::new_uuid()?, &key))
        };
        write().map_err(BuildError::file(&self.directory))
    }

    /// Starts a daemon of the cluster and waits until it serves requests.
    fn start(&self, daemon: CephDaemon, node: &BlockNode, at: &mut LayerSite<'_>) -> Result<(), BuildError> {
        // The OSD opens the file with direct I/O; the other settings are for layers above.
        let drive = Drive { cache: CacheMode::None, aio: Aio::Native, discard: Discard::Unmap };
        let (marker, node) = (self.marker.clone(), node.clone());
        let form = Box::new(daemon);
        Export { marker, drive, file: FileSpec::default(), form, node }.start_for(at)?;
        Ok(())
    }

    fn daemon(&self, program: Program, id: &'static str, ready: (&'static str, &'static str)) -> CephDaemon {
        let socket = self.directory.join(format!("{}.asok", program.name));
        CephDaemon { program, id, socket, ready, cluster: self.clone() }
    }
}

/// Returns the content of ceph.conf: the settings that isolate the cluster, and those of the plan. `id` is the
/// cluster's UUID. All other settings have Ceph's defaults.
fn settings(spec: &RbdSpec, id: &str, key: &str) -> String {
    let address = Ipv4Addr::LOCALHOST;
    // Ceph takes a file for a rotating disk; for a device it asks the kernel.
    let (media, shards, threads) = match spec.media {
        OsdMedia::Ssd => ("ssd", 8, 2),
        OsdMedia::Hdd => ("hdd", 5, 1),
    };
    let buffered = spec.buffered_read;
    format!(
        "[global]
fsid = {id}
key = {key}
mon_host = v2:{address}:3300
mon_initial_members = a
ms_bind_msgr1 = false
public_addr = {address}
cluster_addr = {address}
log_file =
crash_dir =
err_to_stderr = true
rados_osd_op_timeout = {TIMEOUT_S}
rados_mon_op_timeout = {TIMEOUT_S}
client_mount_timeout = {TIMEOUT_S}
osd_pool_default_size = 1
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
[mon]
mon_data = mon
admin_socket = {mon}.asok
mon_cluster_log_to_file = false
mon_data_avail_warn = 0
mon_data_avail_crit = 0
paxos_propose_interval = 0.05
paxos_min_wait = 0.01
mon_tick_interval = 1
[osd]
osd_data = osd
admin_socket = {osd}.asok
osd_crush_chooseleaf_type = 0
osd_crush_initial_weight = 1
osd_op_num_shards = {shards}
osd_op_num_threads_per_shard = {threads}
bluestore_debug_enforce_settings = {media}
bluestore_default_buffered_read = {buffered}
",
        mon = MON.name,
        osd = OSD.name,
    )
}

/// Returns the content of the keyring, with the same key for the monitor, the OSD and the client.
fn keyring(key: &str) -> String {
    let entry = |name: &str, mon: &str, osd: &str| {
        format!("[{name}]\n\tkey = {key}\n\tcaps mon = \"allow {mon}\"\n\tcaps osd = \"allow {osd}\"\n")
    };
    entry("mon.", "*", "*") + &entry("client.admin", "*", "*") + &entry("osd.0", "profile osd", "*")
}

/// Sends a command to a daemon's admin socket and returns its answer. The command ends with a zero byte, and the answer is preceded by its
/// length in four bytes.
fn ask(socket: &Path, question: &str) -> io::Result<Value> {
    let (_directory, path) = export::by_descriptor(socket)?;
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut command = json!({ "prefix": question, "format": "json" }).to_string().into_bytes();
    command.push(0);
    stream.write_all(&command)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length).min(LONGEST);
    let mut answer = Vec::new();
    stream.take(length.into()).read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

impl Build for RbdSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        if !rustix::process::geteuid().is_root() {
            return Err(Refusal::environment(
                "rbd: its cluster gets a network namespace, which needs root; run this as root",
            ));
        }
        for program in [MON, OSD, CEPH, RBD, AUTHTOOL, IP, NSENTER] {
            program.find().map_err(|error| Refusal::environment(error.to_string()))?;
        }
        if let Some(BottomLocation::Directory(dir)) = at.target.stack.location() {
            let clusters = at.target.guest().map_or(1, |guest| u64::from(guest.count));
            *needs.space.entry(dir.to_owned()).or_default() += clusters * Self::STORE.0;
        }
        // A missing configuration file leads to no cluster.
        let nowhere = json!({
            "driver": "rbd", "node-name": "none", "pool": POOL, "image": IMAGE, "conf": "/proc/none",
        });
        export::has_client(&nowhere, "RBD client")
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let below = below.node()?;
        let Some((file, _)) = below.node.stored() else {
            return Err(Refusal::input("rbd: an OSD has a file as its disk, and there is none").into());
        };
        let marker = format!("iotax-{}-{}-rbd", at.builder.tag, at.name::<Self>());
        let namespace = Namespace::make(marker.clone(), at.undo_log)?.path();
        let directory = at.socket::<Self>(&below.node, "rbd")?;
        at.undo_log.make_tree(&directory)?;
        // Recorded last, so that it is undone first: the daemons may still create files there.
        at.undo_log.record(Effect::Daemon { marker: marker.clone() })?;
        let cluster = Cluster { directory, namespace, marker };
        cluster.lay_out(self, file)?;

        let mon = cluster.daemon(MON, "a", ("mon_status", "leader"));
        cluster.run(at.undo_log, MON, &["-i", mon.id, "--mkfs", "--keyring", KEYRING])?;
        cluster.start(mon, &below.node, at)?;
        let id = host_info::new_uuid().map_err(BuildError::file(&cluster.directory))?;
        let osd = cluster.daemon(OSD, "0", ("status", "active"));
        cluster.run(at.undo_log, CEPH, &["osd", "new", &id, osd.id])?;
        cluster.run(at.undo_log, CEPH, &["osd", "pool", "create", POOL])?;
        cluster.run(at.undo_log, OSD, &["-i", osd.id, "--mkfs", "--osd-uuid", &id])?;
        cluster.start(osd, &below.node, at)?;
        let size = super::sizes::size_on(at.above, at.builder.space);
        let (size, object) = (format!("{}B", size.0), format!("{}B", self.object_size.0));
        cluster.run(at.undo_log, RBD, &["create", IMAGE, "--size", &size, "--object-size", &object])?;

        // QEMU splits the value into several paths at blanks and commas, which a path may contain. So the path is relative to the file's directory.
        let name = Path::new(cluster.directory.file_name().unwrap_or_default()).join(CONF);
        let client = ClientNode {
            node: json!({
                "driver": "rbd", "pool": POOL, "image": IMAGE, "conf": name.to_string_lossy(),
            }),
            secret: None,
            directory: cluster.directory.parent().map(Path::to_owned),
            namespace: Some(cluster.namespace),
            read_only: false,
        };
        let node = BlockNode::on(NodeBase::Client(Box::new(client)));
        Ok(Ground::Node(Box::new(NodeGround { node, ..below })))
    }

    fn recorded(&self, _: Option<&ExportedImage>) -> Vec<Layer> {
        let reads = if self.buffered_read { ", reads kept in its memory" } else { "" };
        let detail = format!(
            "ceph-mon, ceph-osd with BlueStore past the page cache for {}{reads}, 1 copy, objects of {}, QEMU's client (its cache as that of the layer \
             above), loopback of its own",
            self.media, self.object_size
        );
        vec![Layer::new(LayerKind::Export, "Ceph RBD", detail)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_follow_the_plan() {
        let text = |spec: &RbdSpec| settings(spec, "f", "k");
        let flash = text(&RbdSpec::default());
        for line in [
            "bluestore_debug_enforce_settings = ssd",
            "osd_op_num_shards = 8",
            "bluestore_default_buffered_read = false",
        ] {
            assert!(flash.contains(line), "{flash}");
        }
        let spec = RbdSpec { media: OsdMedia::Hdd, buffered_read: true, ..RbdSpec::default() };
        let disk = text(&spec);
        for line in [
            "bluestore_debug_enforce_settings = hdd",
            "osd_op_num_shards = 5",
            "bluestore_default_buffered_read = true",
        ] {
            assert!(disk.contains(line), "{disk}");
        }
    }

    #[test]
    fn an_answer_is_read_by_its_length() {
        use std::os::unix::net::UnixListener;
        let temp = tempfile::tempdir().expect("temp dir");
        let socket = temp.path().join("asok");
        let answers = |said: &'static [u8]| {
            let _ = fs::remove_file(&socket);
            let listener = UnixListener::bind(&socket).expect("bound");
            let server = iotax_model::threads::spawn("ceph", move || {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut byte = [1];
                while byte != [0] {
                    stream.read_exact(&mut byte).expect("a question");
                }
                stream.write_all(said).expect("told");
            });
            let answer = ask(&socket, "status");
            server.expect("a thread").join().expect("it ends");
            answer
        };
        let told = answers(b"\0\0\0\x12{\"state\":\"active\"}").expect("an answer");
        assert_eq!(told["state"], "active");
        for said in [&b""[..], b"\0\0", b"\0\0\0\x12{\"state\"", b"\0\0\0\0"] {
            assert!(answers(said).is_err(), "{said:?}");
        }
    }
}
