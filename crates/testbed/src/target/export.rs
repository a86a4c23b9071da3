//! Images that QEMU's storage daemon exports.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iotax_model::target::{FileSpec, Format, ImageSpec, NbdServer, Snapshot, TargetSpec};
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::wire::Identity;
use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use serde_json::{Value, json};

use super::layer::{Check, LayerSite};
use super::node::{BlockNode, NodeArguments};
use crate::build_error::BuildError;
use crate::export::{DAEMON, FuseExport, NBDKIT, QEMU_NBD, StorageDaemon, TGTD};
use crate::guest::disk::Drive;
use crate::guest::operation::{OperationFiles, Operator};
use crate::guest::qmp::{self, Qmp};
use crate::interrupt::Interrupt;
use crate::program::Program;
use crate::refusal::Refusal;
use crate::undo::{UndoEntry, UndoLog};

/// The daemon's name for the image.
const NODE: &str = "image";
/// Its name for the socket of its monitor.
const MONITOR: &str = "monitor0";
/// Its name for a thread of the export's own.
const IOTHREAD: &str = "iothread0";
/// Time for the daemon to open an image and export it.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// An image that daemons of iotax's export.
#[derive(Debug)]
pub struct ExportedImage {
    /// The image's own file, or the device, and its format; `None` where a server of somebody's has it.
    pub stored: Option<(PathBuf, Format)>,
    /// The daemons, from the image up.
    pub daemons: Vec<StorageDaemon>,
    /// True if the main loop of a daemon serves a virtio device's queues, and no I/O thread does.
    pub in_main_loop: bool,
    /// The export of an image that nothing stands on but what is measured.
    export: Option<Export>,
    /// Topmost overlays made so far.
    count: u32,
    /// The topmost.
    top: Option<UndoEntry>,
    /// Those between it and the image, from the bottom up.
    lower: Vec<PathBuf>,
}

/// An export and how its daemon reads the image.
#[derive(Debug)]
pub(super) struct Export {
    /// Unique to the daemon's command line.
    pub(super) marker: String,
    pub(super) drive: Drive,
    /// The image's settings.
    pub(super) file: FileSpec,
    pub(super) way: ExportType,
    pub(super) node: BlockNode,
}

/// The form in which an export shows the image.
#[derive(Debug)]
pub(super) enum ExportType {
    /// A raw file, mounted on a file that iotax made.
    Fuse(FuseExport),
    /// A virtio block device at a socket.
    Virtio {
        socket: PathBuf,
        /// Its queues.
        queues: u16,
        /// True if a thread of its own serves them.
        iothread: bool,
    },
    /// An NBD export at a socket.
    Nbd {
        socket: PathBuf,
        server: NbdServer,
        /// nbdkit: a pause before each request.
        delay: Option<Nanos>,
    },
    /// A target of iSCSI's at a port of loopback, which serves nothing yet.
    Iscsi {
        /// The socket by which it is told what to serve.
        control: PathBuf,
        port: u16,
    },
}

impl Export {
    /// Where the image is to be found.
    fn point(&self) -> &Path {
        match &self.way {
            ExportType::Fuse(mount) => &mount.point,
            ExportType::Virtio { socket, .. }
            | ExportType::Nbd { socket, .. }
            | ExportType::Iscsi { control: socket, .. } => socket,
        }
    }

    /// Exports the node; its image is that of the target, with the daemon. Returns what the export shows, open.
    pub(super) fn start_for(self, at: &mut LayerSite<'_>) -> Result<File, BuildError> {
        let (daemon, shown) = self.start(&self.node, at.undo_log)?;
        let in_main_loop = matches!(self.way, ExportType::Virtio { iothread: false, .. });
        if at.exported.is_none() {
            let own = || self.node.stored().map(|(path, format)| (path.to_owned(), format));
            let stored = self.node.over.clone().or_else(own);
            let (daemons, lower) = (Vec::new(), Vec::new());
            *at.exported = Some(Box::new(ExportedImage {
                stored,
                daemons,
                in_main_loop,
                export: Some(self),
                count: 0,
                top: None,
                lower,
            }));
        }
        if let Some(image) = at.exported {
            image.daemons.push(daemon);
            image.in_main_loop |= in_main_loop;
        }
        Ok(shown)
    }

    /// Starts a daemon that exports a node, and waits until the export is there.
    fn start(&self, node: &BlockNode, undo_log: &UndoLog) -> Result<(StorageDaemon, File), BuildError> {
        let (program, mut command) = self.command(node)?;
        let in_program = |error| BuildError::file(&program)(error);
        // A pipe that nobody reads would stop it in the end.
        let said = memfd_create("daemon", MemfdFlags::CLOEXEC).map_err(|errno| in_program(errno.into()))?;
        let mut said = File::from(said);
        command.stderr(said.try_clone().map_err(in_program)?);
        command.stdin(undo_log.lock().stdio().map_err(in_program)?).process_group(0);
        // Names of sockets are relative to it.
        command.current_dir(self.point().parent().unwrap_or(Path::new("/")));
        let mut daemon = command.spawn().map_err(in_program)?;
        // It has the socket too, which would seem to be served without a daemon.
        drop(command);
        self.wait_for(&mut daemon, &mut said)?;
        let flags = match self.way {
            ExportType::Fuse(_) => OFlags::empty(),
            ExportType::Virtio { .. } | ExportType::Nbd { .. } | ExportType::Iscsi { .. } => OFlags::PATH,
        };
        let shown = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(self.point());
        Ok((StorageDaemon::new(daemon), shown.map_err(BuildError::file(self.point()))?))
    }

    const fn program(&self) -> Program {
        match self.way {
            ExportType::Nbd { server, .. } => server_program(server),
            ExportType::Fuse(_) | ExportType::Virtio { .. } => DAEMON,
            ExportType::Iscsi { .. } => TGTD,
        }
    }

    /// qemu-nbd or nbdkit, and how it serves the file of a node.
    fn server(
        &self,
        server: NbdServer,
        delay: Option<Nanos>,
        node: &BlockNode,
    ) -> Result<(PathBuf, Command), BuildError> {
        let name = self.point().file_name().unwrap_or_default();
        let Some((path, format)) = node.stored() else {
            return Err(Refusal::input(format!("nbd: {server} serves a file, and there is none")).into());
        };
        let program = self.program().path()?;
        let mut command = Command::new(&program);
        command.stdout(Stdio::null());
        if server == NbdServer::Nbdkit {
            command.args(["--foreground", "--exportname", &self.marker, "--unix"]).arg(name);
            let delay = delay.map(|Nanos(ns)| ns / 1_000_000);
            command.args(delay.map(|_| "--filter=delay")).arg("file").arg(path);
            command.args(delay.iter().flat_map(|ms| [format!("rdelay={ms}ms"), format!("wdelay={ms}ms")]));
        } else {
            let Drive { cache, aio, .. } = self.drive;
            command.args(["--persistent", "--shared=0", "--discard=unmap"]);
            command.args([format!("--cache={cache}"), format!("--aio={aio}")]);
            command.args(["--export-name", &self.marker, "--format", format.word()]);
            // It wants an absolute path.
            command.arg("--socket").arg(Path::new("/proc/self/cwd").join(name)).arg(path);
        }
        Ok((program, command))
    }

    /// The program that exports the node, and how it is called.
    fn command(&self, node: &BlockNode) -> Result<(PathBuf, Command), BuildError> {
        if let ExportType::Nbd { server: server @ (NbdServer::QemuNbd | NbdServer::Nbdkit), delay, .. } =
            self.way
        {
            return self.server(server, delay, node);
        }
        let name = self.point().file_name().unwrap_or_default();
        let program = self.program().path()?;
        let mut command = Command::new(&program);
        if let ExportType::Iscsi { port, .. } = self.way {
            command.stdout(Stdio::null()).env("TGT_IPC_SOCKET", Path::new(name).with_extension(""));
            // It writes no such file in the foreground, but its command line has the marker.
            command.args(["--foreground", "--control-port=0", "--pid-file", &self.marker]);
            command.arg("--iscsi").arg(format!("portal=127.0.0.1:{port}"));
            return Ok((program, command));
        }
        let NodeArguments { node: blockdev, objects } = node.arguments(NODE, self.drive, &self.file)?;
        let mut export = json!({ "id": self.marker, "node-name": NODE, "writable": !node.is_read_only() });
        let mut add = |key: &str, value: Value| export[key] = value;
        command.stdout(Stdio::null());
        match &self.way {
            ExportType::Fuse(mount) => {
                add("type", json!("fuse"));
                add("mountpoint", json!(mount.point.to_string_lossy()));
            }
            ExportType::Virtio { socket, queues, iothread } => {
                add("type", json!("vhost-user-blk"));
                add("num-queues", json!(queues));
                // The socket takes the place of its standard output.
                add("addr", json!({ "type": "fd", "str": "1" }));
                command.stdout(bound(socket).map_err(BuildError::file(socket))?);
                if *iothread {
                    add("iothread", json!(IOTHREAD));
                    command.args(["--object", &format!("iothread,id={IOTHREAD}")]);
                }
            }
            ExportType::Iscsi { .. } => {}
            ExportType::Nbd { .. } => {
                add("type", json!("nbd"));
                add("name", json!(self.marker));
                let address = json!({ "addr": { "type": "unix", "path": name.to_string_lossy() } });
                command.args(["--nbd-server", &address.to_string()]);
            }
        }
        let monitor = monitor_of(name);
        command.args(["--chardev", &format!("socket,id={MONITOR},path={monitor},server=on,wait=off")]);
        command.args(["--monitor", &format!("chardev={MONITOR}")]);
        for object in objects {
            command.args(["--object", &object.to_string()]);
        }
        command.args(["--blockdev", &blockdev.to_string(), "--export", &export.to_string()]);
        Ok((program, command))
    }

    /// Returns whether the export can be used.
    fn is_there(&self) -> io::Result<bool> {
        match &self.way {
            ExportType::Fuse(mount) => Ok(mount.mount()?.is_some()),
            // Nobody is listening before.
            ExportType::Virtio { socket, .. }
            | ExportType::Nbd { socket, .. }
            | ExportType::Iscsi { control: socket, .. } => {
                let (_directory, path) = by_descriptor(socket)?;
                match UnixStream::connect(path).map_err(|error| (error.kind(), error)) {
                    Ok(_) => Ok(true),
                    Err((io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound, _)) => Ok(false),
                    Err((_, error)) => Err(error),
                }
            }
        }
    }

    fn wait_for(&self, daemon: &mut Child, said: &mut File) -> Result<(), BuildError> {
        let in_point = |error| BuildError::file(self.point())(error);
        let end = Instant::now() + PATIENCE;
        while !self.is_there().map_err(in_point)? {
            if let Some(status) = daemon.try_wait().map_err(in_point)? {
                let mut text = String::new();
                // What it does not say is not known.
                let _ = said.rewind().and_then(|()| said.read_to_string(&mut text));
                // Its arguments stand before what it says of them.
                let said = |line: &str| line.rsplit_once("}: ").map_or(line, |(_, said)| said).to_owned();
                let text = text.lines().map(said).collect::<Vec<_>>().join(" ");
                return Err(Refusal::environment(format!(
                    "{} ended with {status}: {text}",
                    self.program().name
                ))
                .into());
            }
            if Instant::now() > end {
                let reason =
                    format!("{} has not exported the image in {} s", self.program().name, PATIENCE.as_secs());
                return Err(in_point(io::Error::other(reason)));
            }
            threads::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// Takes away what a daemon leaves that has ended.
    fn clear(&self) -> io::Result<()> {
        match &self.way {
            ExportType::Fuse(mount) => mount.unmount(),
            ExportType::Virtio { socket, .. }
            | ExportType::Nbd { socket, .. }
            | ExportType::Iscsi { control: socket, .. } => match fs::remove_file(socket) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

impl ExportedImage {
    /// Connects to the monitor of the daemon, for operations on the image, which are carried out to their end also after an interrupt. `None` if
    /// there are other layers than the image beneath what is measured.
    pub fn operator(&self, files: OperationFiles) -> Result<Option<Operator>, BuildError> {
        let (Some(export), [daemon]) = (&self.export, self.daemons.as_slice()) else { return Ok(None) };
        let point = export.point();
        let in_monitor = |error| BuildError::file(point)(error);
        let (_directory, path) = by_descriptor(&monitor_path(point)).map_err(in_monitor)?;
        let monitor = UnixStream::connect(path).map_err(in_monitor)?;
        let qmp = Qmp::start(monitor, qmp::DEADLINE, daemon.pid(), &Interrupt::default());
        let qmp = qmp.map_err(|error| in_monitor(io::Error::other(error)))?;
        let l2_cache_size = export.file.l2_cache_size;
        Ok(Some(Operator::new(qmp, NODE.to_owned(), export.drive, l2_cache_size, files)))
    }

    /// The topmost image and its format.
    #[must_use]
    pub fn top(&self) -> Option<(PathBuf, Format)> {
        match self.count {
            0 => self.stored.clone(),
            count => Some((self.beside(&format!("overlay-{count}.qcow2"))?, Format::Qcow2)),
        }
    }

    /// A file beside the image, or in iotax's folder where the image is the user's.
    fn beside(&self, extension: &str) -> Option<PathBuf> {
        let (path, _) = self.export.as_ref()?.node.stored()?;
        Some(path.with_extension(extension))
    }

    /// Returns whether a snapshot is taken before each measurement.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        self.export
            .as_ref()
            .is_some_and(|export| export.file.snapshot.is_some() || export.node.over.is_some())
    }

    /// Exports a new, empty overlay in place of the one before; returns the identity of what is shown now. `None` if it has no snapshot.
    pub fn renew_snapshot(&mut self, undo_log: &mut UndoLog) -> Result<Option<Identity>, BuildError> {
        if !self.has_snapshot() {
            return Ok(None);
        }
        let Some((export, (image, image_format))) = self.export.as_ref().zip(self.stored.clone()) else {
            return Ok(None);
        };
        let point = export.point().to_owned();
        for daemon in self.daemons.drain(..) {
            daemon.end().map_err(BuildError::file(&point))?;
        }
        export.clear().map_err(BuildError::file(&point))?;
        if let Some(old) = self.top.take() {
            undo_log
                .undo(old)
                .map_err(|left| Refusal::environment(format!("{}: {}", left.effect, left.reason)))?;
        }
        let file = &export.file;
        let (mut below, mut format) = (image, image_format);
        for path in &self.lower {
            (below, format) = (path.clone(), Format::Qcow2);
        }
        while self.lower.len() + 1 < file.backing_depth.unwrap_or(1) as usize {
            let Some(path) = self.beside(&format!("beneath-{}.qcow2", self.lower.len() + 1)) else {
                return Ok(None);
            };
            super::image::overlay(&path, &below, format, file, undo_log)?;
            self.lower.push(path.clone());
            (below, format) = (path, Format::Qcow2);
        }
        self.count += 1;
        let Some((top, _)) = self.top() else { return Ok(None) };
        self.top = Some(super::image::overlay(&top, &below, format, file, undo_log)?);
        let filters = export.node.filters.clone();
        let node = BlockNode { filters, ..BlockNode::image(top, Format::Qcow2) };
        let (daemon, shown) = export.start(&node, undo_log)?;
        self.daemons.push(daemon);
        let found = shown.metadata().map_err(BuildError::file(&point))?;
        Ok(Some(Identity::File { device: found.dev(), inode: found.ino() }))
    }
}

/// The name of a daemon's monitor beside what it exports.
fn monitor_of(name: &OsStr) -> String {
    format!("{}.qmp", name.to_string_lossy())
}

/// Its path.
pub(super) fn monitor_path(point: &Path) -> PathBuf {
    point.with_file_name(monitor_of(point.file_name().unwrap_or_default()))
}

/// Checks that images can be exported here; the error names what is missing.
pub(super) fn possible() -> Result<(), Refusal> {
    DAEMON.find().map_err(|error| Refusal::environment(error.to_string()))
}

/// The program of an NBD server.
pub(super) const fn server_program(server: NbdServer) -> Program {
    match server {
        NbdServer::StorageDaemon => DAEMON,
        NbdServer::QemuNbd => QEMU_NBD,
        NbdServer::Nbdkit => NBDKIT,
    }
}

/// Rejects a snapshot that a daemon does not renew.
pub(super) fn check_snapshot(at: &Check<'_>, key: &str) -> Result<(), Refusal> {
    match at.target.file().and_then(|file| file.snapshot) {
        Some(Snapshot::Internal) => Err(Refusal::input(format!(
            "{key}: only a guest's QEMU renews snapshot = \"internal\" before each measurement; use snapshot = \"external\""
        ))),
        _ => Ok(()),
    }
}

/// Returns whether an overlay is made anew before each measurement.
pub(super) fn is_renewed(target: &TargetSpec) -> bool {
    let has_overlay = target.stack.find::<ImageSpec>().is_some_and(|image| image.overlay.is_some());
    has_overlay || target.file().is_some_and(|file| file.snapshot == Some(Snapshot::External))
}

/// The socket of an export, at which nobody listens yet and which only its owner may use.
fn bound(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let (_directory, name) = by_descriptor(path)?;
    bind(&socket, &SocketAddrUnix::new(&name)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// A path of a socket by its open directory: an address takes 107 bytes, and paths may be longer.
fn by_descriptor(path: &Path) -> io::Result<(File, PathBuf)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let flags = (OFlags::PATH | OFlags::DIRECTORY).bits().cast_signed();
    let directory = File::options().read(true).custom_flags(flags).open(directory)?;
    let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((directory, path))
}
