//! Mounts volatile directories, cuts their power, and removes them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use iotax_model::crash::VolatileCut;
use iotax_model::target::VolatileSpec;
use rustix::fs::{MemfdFlags, memfd_create, syncfs};
use serde::de::DeserializeOwned;

use super::counters::Counters;
use super::fuse::check_device;
use super::ground::Ground;
use super::layer::{Build, Check, LayerSite};
use super::needs::Needs;
use super::preflight::{check_created, check_directory};
use super::sizes::size_on;
use crate::build_error::BuildError;
use crate::export::FuseExport;
use crate::refusal::Refusal;
use crate::undo::{Effect, NotUndone, UndoEntry, UndoLog};
use crate::volatile::{COUNT, CUT, MOUNTED, PROGRAM};

/// Maximum time for mounting, and for writing the data that survives a power cut.
const PATIENCE: Duration = Duration::from_mins(1);

/// A mounted volatile directory. A separate process serves it until its undo log entry is undone.
#[derive(Debug)]
pub struct Volatile {
    control: UnixStream,
    process: Child,
    survivor: Survivor,
    point: PathBuf,
}

/// The directory on disk below a volatile directory, which survives a power cut.
#[derive(Debug, Clone)]
pub struct Survivor {
    /// Path of the directory, which holds all flushed data.
    pub directory: PathBuf,
    /// The directory's entry in the undo log. Later entries are for layers on the directory.
    entry: UndoEntry,
}

impl Build for VolatileSpec {
    fn check(&self, at: &Check<'_>, needs: &mut Needs) -> Result<(), Refusal> {
        check_device("volatile")?;
        check_created(at.plan, &at.plan.work_on(at.target))?;
        let Some(dir) = &self.dir else { return Ok(()) };
        check_directory(dir)?;
        needs.beside(dir, at.plan);
        *needs.space.entry(dir.clone()).or_default() += size_on(at.above, at.plan.space()).0;
        Ok(())
    }

    fn build(&self, below: Ground, at: &mut LayerSite<'_>) -> Result<Ground, BuildError> {
        let directory = at.directory(self.dir.as_deref(), below)?;
        let scratch = at.builder.folder(&std::env::temp_dir(), at.undo_log)?;
        let name = at.name::<Self>();
        let survivor = if let Some(survivor) = at.builder.survivor.clone() {
            survivor
        } else {
            let directory = directory.join(&name).with_added_extension("volatile");
            let entry = at.undo_log.make_tree(&directory)?;
            Survivor { directory, entry }
        };
        let point = scratch.join(&name).with_added_extension("mount");
        at.undo_log.make_directory(&point)?;
        // The marker contains no daemon's marker: the daemons are killed while this process still serves them.
        let marker = format!("iotax-{}volatile-{name}", at.builder.tag);
        let mount = FuseExport { marker: marker.clone(), point: point.clone() };
        at.undo_log.record(Effect::FuseExport(mount))?;
        let (control, process) = serve(self, &survivor.directory, &point, &marker, at.undo_log)?;
        at.counters.push(Arc::new(VolatileCounters(control.try_clone().map_err(BuildError::file(&point))?)));
        *at.volatile = Some(Box::new(Volatile { control, process, survivor, point: point.clone() }));
        Ok(Ground::Directory(point))
    }
}

/// Starts the process that serves a volatile directory, and waits until the directory is mounted.
fn serve(
    spec: &VolatileSpec,
    below: &Path,
    point: &Path,
    marker: &str,
    undo_log: &UndoLog,
) -> Result<(UnixStream, Child), BuildError> {
    let in_point = |error| BuildError::file(point)(error);
    let (control, theirs) = UnixStream::pair().map_err(in_point)?;
    control.set_read_timeout(Some(PATIENCE)).map_err(in_point)?;
    let mut said =
        File::from(memfd_create(PROGRAM, MemfdFlags::CLOEXEC).map_err(|errno| in_point(errno.into()))?);
    let VolatileSpec { dir: _, seed, reorder, tear, drop_flush } = spec;
    // The kernel's link leads to this program even if a new build has replaced the file.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(PROGRAM).arg("volatile").args([below, point]).args(["--marker", marker]);
    command.args(["--seed", &seed.to_string()]);
    command.args((!reorder).then_some("--in-order")).args((!tear).then_some("--whole"));
    command.args(drop_flush.iter().flat_map(|each| ["--drop-flush".to_owned(), each.to_string()]));
    command.stdin(undo_log.lock().stdio().map_err(in_point)?).stdout(OwnedFd::from(theirs));
    command.stderr(said.try_clone().map_err(in_point)?).process_group(0);
    let process = command.spawn().map_err(in_point)?;
    // The command holds the socket too, which would then seem to be served without a process.
    drop(command);
    let mut line = String::new();
    BufReader::new(&control).read_line(&mut line).map_err(in_point)?;
    if line.trim() == MOUNTED {
        return Ok((control, process));
    }
    let mut reason = String::new();
    // After an error, the messages are unknown.
    let _ = said.rewind().and_then(|()| said.read_to_string(&mut reason));
    Err(Refusal::environment(format!("volatile: {}", reason.trim())).into())
}
impl Volatile {
    /// Writes what was made so far down to the disk, so that a cut takes nothing of it: the filesystems above the directory, then its files.
    pub fn settle(&self, undo_log: &UndoLog) -> Result<(), BuildError> {
        // From the top down: the upper filesystem's data goes to the page cache of the lower one.
        let mounted: Vec<&Path> = undo_log.mounted_after(self.survivor.entry).collect();
        for point in mounted.into_iter().rev() {
            let mounted = File::open(point).map_err(BuildError::file(point))?;
            syncfs(&mounted).map_err(|errno| BuildError::file(point)(errno.into()))?;
        }
        let in_point = |error| BuildError::file(&self.point)(error);
        for entry in fs::read_dir(&self.point).map_err(in_point)? {
            let file = entry.map_err(in_point)?.path();
            File::options()
                .write(true)
                .open(&file)
                .and_then(|file| file.sync_all())
                .map_err(BuildError::file(&file))?;
        }
        Ok(())
    }

    /// Cuts the power: some unflushed writes are lost, chosen according to the settings, and every later request fails.
    pub fn cut(&mut self) -> Result<VolatileCut, BuildError> {
        ask(&self.control, CUT).map_err(BuildError::file(&self.point))
    }

    /// Kills the serving process, and removes the mount and everything that was built on it. Returns the directory that survives.
    pub fn remove(mut self, undo_log: &mut UndoLog) -> Result<Survivor, BuildError> {
        // Files here, and on filesystems above, are stored in the survivor, which is removed with its contents.
        undo_log.commit_mounted_after(self.survivor.entry)?;
        let failures = undo_log.undo_after(self.survivor.entry);
        // Undoing has killed the process.
        let _ = self.process.wait();
        match failures.into_iter().next() {
            None => Ok(self.survivor),
            Some(left) => Err(Refusal::environment(format!("{}: {}", left.effect, left.reason)).into()),
        }
    }
}

/// The flush counters of a volatile directory, read from its serving process.
#[derive(Debug)]
struct VolatileCounters(UnixStream);

impl Counters for VolatileCounters {
    fn layer(&self) -> &'static str {
        VolatileSpec::NAME
    }

    fn read(&self) -> io::Result<BTreeMap<String, u64>> {
        ask(&self.0, COUNT)
    }
}

/// Sends a command to the serving process and parses its answer.
fn ask<T: DeserializeOwned>(mut control: &UnixStream, command: &str) -> io::Result<T> {
    writeln!(control, "{command}")?;
    let mut line = String::new();
    BufReader::new(control).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::from)
}

impl Survivor {
    /// Removes the surviving directory and everything that was built on it. Returns the effects that could not be undone.
    pub fn remove(self, undo_log: &mut UndoLog) -> Vec<NotUndone> {
        let mut failures = undo_log.undo_after(self.entry);
        failures.extend(undo_log.undo(self.entry).err());
        failures
    }
}
