//! Images shown as raw files by the FUSE export of QEMU's storage daemon.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use iotax_model::target::{Discard, Format, FuseSpec};
use iotax_model::threads;
use rustix::fs::Access;

use super::ShownImage;
use super::ground::Ground;
use super::layer::{Build, Check, Site};
use super::preflight::Needs;
use super::raw::RawFile;
use crate::build_error::BuildError;
use crate::export::{DAEMON, FuseExport, StorageDaemon};
use crate::guest::disk::{Drive, GuestDisk};
use crate::guest::image;
use crate::refusal::Refusal;
use crate::undo::Effect;

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
            Some(kind) => Err(Refusal::input(format!(
                "fuse: the {kind} snapshot below it is renewed before each measurement, which only a guest's QEMU does; \
                 leave snapshot out"
            ))),
            None => Ok(()),
        }
    }

    fn build(&self, below: Ground, at: &mut Site<'_>) -> Result<Ground, BuildError> {
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
        let chain = image::chain(&path, format)?;
        let drive = Drive { cache: self.cache, aio: self.aio, discard: Discard::Unmap };
        let node =
            GuestDisk { chain: &chain, l2_cache_size: at.target.file().and_then(|file| file.l2_cache_size) }
                .node_of(NODE, drive);
        let export_options = serde_json::json!({
            "type": "fuse",
            "id": export.marker,
            "node-name": NODE,
            "mountpoint": export.point.to_string_lossy(),
            "writable": true,
        });
        let program = DAEMON.path()?;
        let mut daemon = Command::new(&program);
        daemon.args(["--blockdev", &node.to_string(), "--export", &export_options.to_string()]);
        let lock = at.undo_log.lock().stdio().map_err(BuildError::file(&program))?;
        daemon.stdin(lock).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut daemon = daemon.spawn().map_err(BuildError::file(&program))?;
        let mounted = wait_for(&export, &mut daemon);
        let daemon = StorageDaemon::new(daemon);
        mounted?;
        at.shown.get_or_insert(ShownImage { path, format, daemons: Vec::new() }).daemons.push(daemon);
        let held = File::options().read(true).open(&export.point).map_err(BuildError::file(&export.point))?;
        let found = held.metadata().map_err(BuildError::file(&export.point))?;
        Ok(Ground::Raw(RawFile {
            path: export.point,
            size: at.size(),
            device: found.dev(),
            inode: found.ino(),
            entry,
            held,
        }))
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
