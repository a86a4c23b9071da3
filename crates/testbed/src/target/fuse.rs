//! Images shown as raw files by the FUSE export of QEMU's storage daemon.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iotax_model::target::{Discard, FileSpec, Format, FuseSpec, Snapshot};
use iotax_model::threads;
use iotax_model::wire::Identity;
use rustix::fs::Access;

use super::ShownImage;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::raw::RawFile;
use crate::build_error::BuildError;
use crate::export::{DAEMON, FuseExport, StorageDaemon};
use crate::guest::disk::{Drive, GuestDisk};
use crate::guest::image;
use crate::refusal::Refusal;
use crate::undo::{Effect, UndoEntry, UndoLog};

/// The kernel's side of FUSE.
const FUSE: &str = "/dev/fuse";
/// The daemon's name for the image.
const NODE: &str = "image";
/// Time for the daemon to open an image and mount its export.
const PATIENCE: Duration = Duration::from_secs(15);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Build for FuseSpec {
    fn check(&self, at: &Check<'_>, _: &mut Needs) -> Result<(), Refusal> {
        possible()?;
        match at.target.file().and_then(|file| file.snapshot) {
            Some(Snapshot::Internal) => Err(Refusal::input(
                "fuse: only a guest's QEMU renews snapshot = \"internal\" before each measurement; use snapshot = \"external\"",
            )),
            Some(Snapshot::External) if !at.above.is_empty() => Err(Refusal::input(
                "fuse: the file is another one after each snapshot, so nothing can stand on it; leave snapshot out",
            )),
            _ => Ok(()),
        }
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let (path, format) = match below {
            Ground::Raw(file) => (file.path, Format::Raw),
            Ground::Built(built) => (built.path, built.format),
            Ground::Machine | Ground::Block(_) | Ground::Directory(_) => {
                return Err(Refusal::input("fuse stands on a file, and there is none").into());
            }
        };
        let point = path.with_added_extension("fuse");
        let (entry, file) = at.undo_log.make_file(&point)?;
        drop(file);
        let marker = format!("iotax-{}-{}", at.builder.tag, at.name::<Self>());
        let export = FuseExport { marker, point };
        at.undo_log.record(Effect::FuseExport(export.clone()))?;
        let file = at.target.file().cloned().unwrap_or_default();
        let drive = Drive { cache: self.cache, aio: self.aio, discard: Discard::Unmap };
        let shown = Export { mount: export, drive, file };
        let (daemon, held) = shown.start(&path, format, at.undo_log)?;
        let found = held.metadata().map_err(BuildError::file(&shown.mount.point))?;
        let point = shown.mount.point.clone();
        let overlays =
            shown.file.snapshot.map(|_| Overlays { shown, count: 0, top: None, lower: Vec::new() });
        let image = || ShownImage { path, format, daemons: Vec::new(), overlays };
        at.shown.get_or_insert_with(image).daemons.push(daemon);
        let (device, inode) = (found.dev(), found.ino());
        Ok(Ground::Raw(RawFile { path: point, size: at.size(), device, inode, entry, held }))
    }
}

/// An export and how its daemon reads the image.
#[derive(Debug)]
struct Export {
    mount: FuseExport,
    drive: Drive,
    file: FileSpec,
}

impl Export {
    /// Starts a daemon and waits until its export is mounted; returns the file that it shows.
    fn start(
        &self,
        path: &Path,
        format: Format,
        undo_log: &UndoLog,
    ) -> Result<(StorageDaemon, File), BuildError> {
        let chain = image::chain(path, format)?;
        let node =
            GuestDisk { chain: &chain, l2_cache_size: self.file.l2_cache_size }.node_of(NODE, self.drive);
        let options = serde_json::json!({
            "type": "fuse",
            "id": self.mount.marker,
            "node-name": NODE,
            "mountpoint": self.mount.point.to_string_lossy(),
            "writable": true,
        });
        let program = DAEMON.path()?;
        let mut daemon = Command::new(&program);
        daemon.args(["--blockdev", &node.to_string(), "--export", &options.to_string()]);
        let lock = undo_log.lock().stdio().map_err(BuildError::file(&program))?;
        daemon.stdin(lock).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut daemon = daemon.spawn().map_err(BuildError::file(&program))?;
        wait_for(&self.mount, &mut daemon)?;
        let point = &self.mount.point;
        let shown = File::options().read(true).open(point).map_err(BuildError::file(point))?;
        Ok((StorageDaemon::new(daemon), shown))
    }
}

/// The overlays of an image with an external snapshot, of which the topmost is made anew before each measurement.
#[derive(Debug)]
pub(super) struct Overlays {
    shown: Export,
    /// Topmost overlays made so far.
    count: u32,
    top: Option<UndoEntry>,
    lower: Vec<PathBuf>,
}

impl ShownImage {
    /// Returns whether a snapshot is taken before each measurement.
    #[must_use]
    pub const fn has_snapshot(&self) -> bool {
        self.overlays.is_some()
    }

    /// Shows a new, empty overlay in place of the one before; returns the identity of the file that is shown now. `None` if it has no
    /// snapshot.
    pub fn renew_snapshot(&mut self, undo_log: &mut UndoLog) -> Result<Option<Identity>, BuildError> {
        let Some(overlays) = &mut self.overlays else { return Ok(None) };
        let point = overlays.shown.mount.point.clone();
        for daemon in self.daemons.drain(..) {
            daemon.end().map_err(BuildError::file(&point))?;
        }
        overlays.shown.mount.unmount().map_err(BuildError::file(&point))?;
        if let Some(old) = overlays.top.take() {
            undo_log
                .undo(old)
                .map_err(|left| Refusal::environment(format!("{}: {}", left.effect, left.reason)))?;
        }
        let file = &overlays.shown.file;
        let (mut below, mut format) = (self.path.clone(), self.format);
        for path in &overlays.lower {
            (below, format) = (path.clone(), Format::Qcow2);
        }
        while overlays.lower.len() + 1 < file.backing_depth.unwrap_or(1) as usize {
            let path = self.path.with_extension(format!("beneath-{}.qcow2", overlays.lower.len() + 1));
            super::image::overlay(&path, &below, format, file, undo_log)?;
            overlays.lower.push(path.clone());
            (below, format) = (path, Format::Qcow2);
        }
        overlays.count += 1;
        let top = self.path.with_extension(format!("overlay-{}.qcow2", overlays.count));
        overlays.top = Some(super::image::overlay(&top, &below, format, file, undo_log)?);
        let (daemon, shown) = overlays.shown.start(&top, Format::Qcow2, undo_log)?;
        self.daemons.push(daemon);
        let found = shown.metadata().map_err(BuildError::file(&point))?;
        Ok(Some(Identity::File { device: found.dev(), inode: found.ino() }))
    }
}

/// Checks that images can be shown here; the error names what is missing.
pub fn possible() -> Result<(), Refusal> {
    DAEMON.find().map_err(|error| Refusal::environment(error.to_string()))?;
    rustix::fs::access(FUSE, Access::READ_OK | Access::WRITE_OK).map_err(|errno| {
        Refusal::environment(format!(
            "fuse: {FUSE}: {}; load the module fuse, or give the container that device",
            io::Error::from(errno)
        ))
    })
}

/// Waits until the export is mounted.
fn wait_for(export: &FuseExport, daemon: &mut Child) -> Result<(), BuildError> {
    let in_point = |error| BuildError::file(&export.point)(error);
    let end = Instant::now() + PATIENCE;
    while export.mount().map_err(in_point)?.is_none() {
        if let Some(status) = daemon.try_wait().map_err(in_point)? {
            let mut said = String::new();
            // What it does not say is not known.
            let _ = daemon.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
            let said = said.lines().last().unwrap_or_default().to_owned();
            return Err(Refusal::environment(format!("{} ended with {status}: {said}", DAEMON.name)).into());
        }
        if Instant::now() > end {
            let reason = format!("{} has not mounted its export in {} s", DAEMON.name, PATIENCE.as_secs());
            return Err(in_point(io::Error::other(reason)));
        }
        threads::sleep(LOOK_AGAIN);
    }
    Ok(())
}
