//! Starts daemons that export images, and renews the snapshot in an export.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iotax_model::target::{FileSpec, Format, ImageSpec, Snapshot, TargetSpec};
use iotax_model::threads;
use iotax_model::units::Bytes;
use iotax_model::units::human::listed;
use iotax_model::wire::Identity;
use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use serde_json::{Value, json};

use super::layer::LayerSite;
use super::node::{BlockNode, NodeArguments};
use crate::build_error::BuildError;
use crate::export::{DAEMON, StorageDaemon};
use crate::guest::disk::Drive;
use crate::guest::image;
use crate::guest::operation::{self, DiskUser, OperationFiles, Operator};
use crate::guest::process;
use crate::guest::qmp::{self, Qmp};
use crate::interrupt::Interrupt;
use crate::netns;
use crate::program::ProgramError;
use crate::refusal::Refusal;
use crate::undo::{UndoEntry, UndoLog};

/// QEMU's name for the block node that the daemon exports.
const NODE: &str = "image";
/// QEMU's id for the daemon's monitor socket.
const MONITOR: &str = "monitor0";
/// Maximum time for a daemon to open an image and export it. On a disk with heavy writes, this has taken more than a minute.
const PATIENCE: Duration = Duration::from_mins(3);
const POLL: Duration = Duration::from_millis(5);

/// An image that iotax exports through daemons of this run.
#[derive(Debug)]
pub struct ExportedImage {
    /// The file or device that holds the image, and its format; `None` if a server outside of iotax holds it.
    pub stored: Option<(PathBuf, Format)>,
    /// The running daemons, in the order in which they were started.
    pub daemons: Vec<StorageDaemon>,
    /// True if QEMU's main loop serves the queues of a virtio device; false if an I/O thread does, or without such a device.
    pub in_main_loop: bool,
    /// True if the topmost export is a file or block device, which has a page cache; false for a socket. Recorded, because querying the
    /// export itself would block if the daemon does not answer.
    pub(super) is_file: bool,
    /// True if a client in the kernel presents the topmost export as a block device.
    pub is_device: bool,
    /// Names of the files that the daemon opens with `aio=threads` instead of the requested I/O backend.
    with_threads: Vec<String>,
    /// The lowest export, which is restarted when its snapshot is renewed.
    export: Option<Export>,
    /// True once the internal snapshots of the image have been taken.
    has_internal: bool,
    /// Number of snapshot overlays created so far.
    count: u32,
    /// The undo log's entry of the current snapshot overlay; `None` without one.
    top: Option<UndoEntry>,
    /// Device and inode number of the exported image, or of the image below its overlay, at the start of the run; `None` if they could not
    /// be read.
    base: Option<(u64, u64)>,
    /// Images between the snapshot overlay and the base image, from the bottom up, which add backing depth.
    lower: Vec<PathBuf>,
}

/// An export of an image, and the options with which its daemon opens the image.
#[derive(Debug)]
pub(super) struct Export {
    /// A string that appears in the daemon's command line and in no other process's.
    pub(super) marker: String,
    pub(super) drive: Drive,
    /// Settings of the image, such as its L2 cache size.
    pub(super) file: FileSpec,
    pub(super) form: Box<dyn Shows>,
    pub(super) node: BlockNode,
}

/// A way in which a daemon exports an image, such as NBD or FUSE.
pub(super) trait Shows: fmt::Debug {
    /// Returns the path of the export: a socket, file or other path that exists while the daemon runs.
    fn point(&self) -> &Path;

    /// Returns the name of the exporting program. The command may start it through another program.
    fn program(&self) -> &'static str {
        DAEMON.name
    }

    /// Prepares the command that starts the program.
    fn command(&self, export: &Export, node: &BlockNode) -> Result<Command, BuildError>;

    /// Returns the flags for opening the export's path; by default O_PATH, because a socket cannot be opened for reading.
    fn flags(&self) -> OFlags {
        OFlags::PATH
    }

    /// Returns true if QEMU's main loop serves the queues of a virtio device.
    fn in_main_loop(&self) -> bool {
        false
    }

    /// Returns true if filters can be put on the exported image while it is in use.
    fn takes_filters(&self) -> bool {
        false
    }

    /// Returns whether the export is ready for use. By default: a process listens at the socket.
    fn is_there(&self) -> io::Result<bool> {
        let (_directory, path) = by_descriptor(self.point())?;
        match UnixStream::connect(path).map_err(|error| (error.kind(), error)) {
            Ok(_) => Ok(true),
            Err((io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound, _)) => Ok(false),
            Err((_, error)) => Err(error),
        }
    }

    /// Removes the files that the daemon left after its exit; by default the socket.
    fn clear(&self) -> io::Result<()> {
        match fs::remove_file(self.point()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Export {
    /// Returns the path of the export: a socket or file.
    fn point(&self) -> &Path {
        self.form.point()
    }

    /// Starts the daemon, and adds it to the exported image of the target that is being built. Returns the opened export.
    pub(super) fn start_for(self, at: &mut LayerSite<'_>) -> Result<File, BuildError> {
        // Query the image first, because the daemon locks it.
        let with_threads = self.node.with_threads(self.drive.aio)?;
        let (daemon, shown) = self.start(&self.node, at.undo_log)?;
        let in_main_loop = self.form.in_main_loop();
        let is_file = !self.form.flags().contains(OFlags::PATH);
        if at.exported.is_none() {
            let own = || self.node.stored().map(|(path, format)| (path.to_owned(), format));
            let stored = self.node.over.clone().or_else(own);
            let (daemons, lower) = (Vec::new(), Vec::new());
            let base = stored.as_ref().and_then(|(path, _)| number_of(path));
            *at.exported = Some(Box::new(ExportedImage {
                stored,
                daemons,
                in_main_loop,
                is_file,
                is_device: false,
                with_threads,
                export: Some(self),
                has_internal: false,
                count: 0,
                top: None,
                base,
                lower,
            }));
        }
        if let Some(image) = at.exported {
            image.daemons.push(daemon);
            image.in_main_loop |= in_main_loop;
            (image.is_file, image.is_device) = (is_file, false);
        }
        Ok(shown)
    }

    /// Starts a daemon that exports a node, and waits up to 3 minutes for the export to be ready.
    fn start(&self, node: &BlockNode, undo_log: &UndoLog) -> Result<(StorageDaemon, File), BuildError> {
        let command = self.form.command(self, node)?;
        let daemon = launch(command, self.form.program(), self.point(), undo_log, || self.form.is_there())?;
        let flags = self.form.flags().bits().cast_signed();
        let shown = File::options().read(true).custom_flags(flags).open(self.point());
        Ok((daemon, shown.map_err(BuildError::file(self.point()))?))
    }

    /// Prepares the command for QEMU's storage daemon. `form` has the options of the export type; the arguments `first` precede all others.
    pub(super) fn by_storage_daemon(
        &self,
        node: &BlockNode,
        form: &Value,
        first: &[String],
    ) -> Result<Command, BuildError> {
        let mut command = netns::command_at(node.namespace(), &DAEMON.path()?);
        let NodeArguments { node: blockdev, mut objects } = node.arguments(NODE, self.drive, &self.file)?;
        let filtered = self.form.takes_filters().then(|| operation::filtered(NODE, self.drive));
        let top = if filtered.is_some() { operation::FILTERED } else { NODE };
        objects.extend(filtered.as_ref().map(|_| operation::unlimited()));
        let mut export = json!({ "id": self.marker, "node-name": top, "writable": !node.is_read_only() });
        if !self.drive.cache.write_cache() {
            // A block node has no write-through mode: the export flushes after each write instead.
            export["writethrough"] = json!(true);
        }
        for (key, value) in form.as_object().into_iter().flatten() {
            export[key] = value.clone();
        }
        let monitor = monitor_of(self.point().file_name().unwrap_or_default());
        command.stdout(Stdio::null()).args(first);
        command.args(["--chardev", &format!("socket,id={MONITOR},path={monitor},server=on,wait=off")]);
        command.args(["--monitor", &format!("chardev={MONITOR}")]);
        for object in objects {
            command.args(["--object", &object.to_string()]);
        }
        for node in [blockdev].into_iter().chain(filtered) {
            command.args(["--blockdev", &node.to_string()]);
        }
        command.args(["--export", &export.to_string()]);
        Ok(command)
    }
}

/// Starts a daemon that exports `point`, and waits up to 3 minutes until `is_there` returns true because the export is ready. `program` is
/// the daemon's name.
pub(super) fn launch(
    mut command: Command,
    program: &'static str,
    point: &Path,
    undo_log: &UndoLog,
    is_there: impl Fn() -> io::Result<bool>,
) -> Result<StorageDaemon, BuildError> {
    let path = PathBuf::from(command.get_program());
    let in_program = |error| BuildError::file(&path)(error);
    let in_point = |error| BuildError::file(point)(error);
    // A pipe that nobody reads would block the daemon in the end.
    let said = memfd_create("daemon", MemfdFlags::CLOEXEC).map_err(|errno| in_program(errno.into()))?;
    let mut said = File::from(said);
    command.stderr(said.try_clone().map_err(in_program)?);
    command.stdin(undo_log.lock().stdio().map_err(in_program)?).process_group(0);
    // Socket names are relative to this directory.
    command.current_dir(point.parent().unwrap_or(Path::new("/")));
    let mut daemon = command.spawn().map_err(in_program)?;
    // The command holds the socket too, which would then seem to be served without a daemon.
    drop(command);
    let end = Instant::now() + PATIENCE;
    while !is_there().map_err(in_point)? {
        if let Some(status) = daemon.try_wait().map_err(in_point)? {
            let reason = format!("{program} ended with {status}{}", messages(&mut said));
            return Err(Refusal::environment(reason).into());
        }
        if undo_log.lock().stop().load(Ordering::Relaxed) {
            return Err(in_point(io::ErrorKind::Interrupted.into()));
        }
        if Instant::now() > end {
            let (seconds, state) = (PATIENCE.as_secs(), process::state(daemon.id()));
            let reason = format!("{program} is not ready after {seconds} s; {state}{}", messages(&mut said));
            return Err(in_point(io::Error::other(reason)));
        }
        threads::sleep(POLL);
    }
    Ok(StorageDaemon::new(daemon, program))
}

/// Returns the daemon's messages on stderr in one line, preceded by a colon; empty if there are none. JSON arguments that QEMU repeats are
/// removed.
fn messages(said: &mut File) -> String {
    let mut text = String::new();
    // After an error, the messages are unknown.
    let _ = said.rewind().and_then(|()| said.read_to_string(&mut text));
    let words = |line: &str| line.rsplit_once("}: ").map_or(line, |(_, words)| words).to_owned();
    let all = text.lines().map(words).collect::<Vec<_>>().join(" ");
    if all.is_empty() { all } else { format!(": {all}") }
}

impl ExportedImage {
    /// Returns a note on the files that the daemon opens with threads instead of the requested I/O backend, such as ` (threads for
    /// base.vmdk)`; empty if there are none.
    pub(super) fn with_threads(&self) -> String {
        let names = &self.with_threads;
        if names.is_empty() { String::new() } else { format!(" (threads for {})", listed(names)) }
    }

    /// Adds the process of a client that presents the topmost export as a block device, which has a page cache.
    pub(super) fn add_client(&mut self, client: StorageDaemon) {
        self.daemons.push(client);
        (self.is_file, self.is_device) = (true, true);
    }

    /// Returns whether filters can be put on the image while it is in use.
    pub(super) fn takes_filters(&self) -> bool {
        self.export.as_ref().is_some_and(|export| export.form.takes_filters())
    }

    /// Connects to the daemon's monitor for operations on the image, which an interrupt does not abort. `None` unless exactly one daemon is
    /// involved.
    pub fn operator(&self, files: OperationFiles) -> Result<Option<Operator>, BuildError> {
        let (Some(export), [daemon]) = (&self.export, self.daemons.as_slice()) else { return Ok(None) };
        let point = export.point();
        let in_monitor = |error| BuildError::file(point)(error);
        let (_directory, path) = by_descriptor(&monitor_path(point)).map_err(in_monitor)?;
        let monitor = UnixStream::connect(path).map_err(in_monitor)?;
        let qmp = Qmp::start(monitor, qmp::DEADLINE, daemon.pid(), &Interrupt::default());
        let qmp = qmp.map_err(|error| in_monitor(io::Error::other(error)))?;
        let l2_cache_size = export.file.l2_cache_size;
        let user = if self.takes_filters() { DiskUser::FilteredExport } else { DiskUser::Export };
        Ok(Some(Operator::new(qmp, NODE.to_owned(), user, export.drive, l2_cache_size, files)))
    }

    /// Returns the path of the user's image or file that is exported; `None` if there is none, as when iotax created the lowest image.
    pub(super) fn found(&self) -> Option<&Path> {
        let node = &self.export.as_ref()?.node;
        let is_found = node.over.is_some() || node.is_read_only();
        self.stored.as_ref().filter(|_| is_found).map(|(path, _)| path.as_path())
    }

    /// Returns the path and format of the topmost image: the current snapshot overlay, else the image itself. `None`
    /// if a server outside of iotax holds the image.
    #[must_use]
    pub fn top(&self) -> Option<(PathBuf, Format)> {
        match self.count {
            0 => self.stored.clone(),
            count => Some((self.beside(&format!("overlay-{count}.qcow2"))?, Format::Qcow2)),
        }
    }

    /// Returns the path of a file next to the lowest image that iotax created, with this extension; `None` if there is no such image.
    fn beside(&self, extension: &str) -> Option<PathBuf> {
        let (path, _) = self.export.as_ref()?.node.stored()?;
        Some(path.with_extension(extension))
    }

    /// Returns the existing additional files of an image that iotax created, such as the extents of a VMDK image or the second file of a
    /// quorum. `size` is the length of the image's disk.
    pub(super) fn companions(&self, size: Bytes) -> Vec<PathBuf> {
        let Some((export, (path, format))) = self.export.as_ref().zip(self.stored.as_ref()) else {
            return Vec::new();
        };
        let is_new = export.node.over.is_none() && *format == export.file.format;
        let all = if is_new { image::companions(path, &export.file, size) } else { Vec::new() };
        all.into_iter().chain(export.node.mirror()).filter(|path| path.exists()).collect()
    }

    /// Returns whether a snapshot of the image is renewed before each measurement.
    #[must_use]
    pub fn has_snapshot(&self) -> bool {
        self.export
            .as_ref()
            .is_some_and(|export| export.file.snapshot.is_some() || export.node.over.is_some())
    }

    /// Stops the daemon, renews the snapshot, and starts the daemon again. Returns the identity of the new export; `None` if the target has
    /// no snapshot.
    pub fn renew_snapshot(&mut self, undo_log: &mut UndoLog) -> Result<Option<Identity>, BuildError> {
        if !self.has_snapshot() {
            return Ok(None);
        }
        let Some((export, (image, image_format))) = self.export.as_ref().zip(self.stored.clone()) else {
            return Ok(None);
        };
        if number_of(&image) != self.base {
            let reason = format!("{} is another file than at the beginning of the run", image.display());
            return Err(Refusal::environment(reason).into());
        }
        let point = export.point().to_owned();
        for daemon in self.daemons.drain(..) {
            daemon.end().map_err(BuildError::file(&point))?;
        }
        export.form.clear().map_err(BuildError::file(&point))?;
        let node = match export.file.snapshot {
            Some(Snapshot::Internal) => self.renew_internal(&image, undo_log)?,
            _ => self.renew_overlay(image, image_format, undo_log)?,
        };
        let (Some(node), Some(export)) = (node, &self.export) else { return Ok(None) };
        let (daemon, shown) = export.start(&node, undo_log)?;
        self.daemons.push(daemon);
        let found = shown.metadata().map_err(BuildError::file(&point))?;
        Ok(Some(Identity::File { device: found.dev(), inode: found.ino() }))
    }

    /// Takes the image's internal snapshots; once they have been taken, reverts the disk to the first one instead. Returns the image's
    /// node. No daemon may have the image open.
    fn renew_internal(&mut self, image: &Path, undo_log: &UndoLog) -> Result<Option<BlockNode>, BuildError> {
        let Some(export) = &self.export else { return Ok(None) };
        if self.has_internal {
            image::revert(image, undo_log.lock())?;
        } else {
            let count = export.file.internal_snapshots.unwrap_or(1);
            image::take_snapshots(image, count, undo_log.lock())?;
            self.has_internal = true;
        }
        Ok(Some(export.node.clone()))
    }

    /// Replaces the overlay on an image by an empty one. The overlays below it, which add backing depth, are created once. Returns the node
    /// of the overlay; `None` if iotax did not create the lowest image.
    fn renew_overlay(
        &mut self,
        image: PathBuf,
        image_format: Format,
        undo_log: &mut UndoLog,
    ) -> Result<Option<BlockNode>, BuildError> {
        let Some(export) = &self.export else { return Ok(None) };
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
            let Some(path) = self.beside(&format!("below-{}.qcow2", self.lower.len() + 1)) else {
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
        Ok(Some(BlockNode { filters, ..BlockNode::image(top, Format::Qcow2) }))
    }
}

/// Returns the device and inode number of a file; `None` if they cannot be read.
fn number_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Returns the file name of the daemon's monitor socket, derived from the export's name.
fn monitor_of(name: &OsStr) -> String {
    format!("{}.qmp", name.to_string_lossy())
}

/// Returns the path of the daemon's monitor socket, next to the export.
pub(super) fn monitor_path(point: &Path) -> PathBuf {
    point.with_file_name(monitor_of(point.file_name().unwrap_or_default()))
}

/// Fails if QEMU's storage daemon is not installed or lacks an export type. `nowhere` is an export of that type, for
/// a node that does not exist; `since` is the first version of QEMU with the type.
pub(super) fn possible(nowhere: &Value, since: &str) -> Result<(), Refusal> {
    let unknown =
        |reason: &str| reason.contains("does not accept value") || reason.contains("Invalid parameter");
    match DAEMON.run(["--export", &nowhere.to_string()]) {
        Err(ProgramError::Failed { reason, .. }) if unknown(&reason) => {
            let version = DAEMON.run(["--version"]).unwrap_or_default();
            let version = String::from_utf8_lossy(&version);
            let version = version.lines().next().unwrap_or(DAEMON.name);
            Err(Refusal::environment(format!(
                "{version} has no exports of type {}, which came with QEMU {since}: install a newer one, or leave these targets out",
                nowhere["type"].as_str().unwrap_or_default()
            )))
        }
        Err(error @ ProgramError::NotFound { .. }) => Err(Refusal::environment(error.to_string())),
        _ => Ok(()),
    }
}

/// Fails if QEMU lacks the block driver for a kind of server, which distributions package separately. `nowhere` is a node of that driver
/// whose server does not exist.
pub(super) fn has_client(nowhere: &Value, name: &str) -> Result<(), Refusal> {
    match DAEMON.run(["--blockdev", &nowhere.to_string()]) {
        Err(ProgramError::Failed { reason, .. }) if reason.contains("Unknown driver") => {
            Err(Refusal::environment(format!(
                "{} has no {name}; install it (Debian: apt-get install qemu-block-extra, of QEMU's own version)",
                DAEMON.name
            )))
        }
        Err(error @ ProgramError::NotFound { .. }) => Err(Refusal::environment(error.to_string())),
        _ => Ok(()),
    }
}

/// Returns whether the daemon is restarted before each measurement, because the target has a snapshot or an overlay.
pub(super) fn is_renewed(target: &TargetSpec) -> bool {
    let has_overlay = target.stack.find::<ImageSpec>().is_some_and(|image| image.overlay.is_some());
    has_overlay || target.file().is_some_and(|file| file.snapshot.is_some())
}

/// Returns a short path to a socket, through its opened directory: a socket address holds at most 107 bytes. The returned directory must
/// stay open while the path is used.
pub(super) fn by_descriptor(path: &Path) -> io::Result<(File, PathBuf)> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let flags = (OFlags::PATH | OFlags::DIRECTORY).bits().cast_signed();
    let directory = File::options().read(true).custom_flags(flags).open(directory)?;
    let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((directory, path))
}
