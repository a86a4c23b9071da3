//! A directory whose power can be cut: a FUSE filesystem that keeps writes in memory until they are flushed.
//!
//! A separate process serves it ([`serve`]). The process that started it sends commands over a socket: `count` returns the flush counters,
//! and `cut` discards a random selection of the unflushed writes and makes every later request fail with EIO. The serving process reports
//! the mount with `mounted`. Unflushed writes (`pending`) go to disk when their file is flushed (`file`) or when they take too much memory;
//! changes of names (`inodes`) and lengths take effect immediately.

mod file;
mod filesystem;
mod inodes;
mod pending;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use fuser::{Config, MountOption, Session, SessionACL};
use iotax_model::threads;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit, setrlimit};

use crate::stack::mount::VOLATILE_SOURCE;
use filesystem::VolatileFs;

/// Name of the serving process, by which iotax finds it to kill it.
pub(crate) const PROGRAM: &str = "iotax-volatile";
/// Message of the serving process that the directory is mounted.
pub(crate) const MOUNTED: &str = "mounted";
/// Command that cuts the power.
pub(crate) const CUT: &str = "cut";
/// Command that returns the flush counters.
pub(crate) const COUNT: &str = "count";
/// Number of threads that serve FUSE requests.
const THREADS: usize = 4;

/// Settings for unflushed writes at a power cut, and for flushes.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// Seed of the random number generator that chooses which writes survive a cut.
    pub seed: u64,
    /// True if any selection of the unflushed writes may survive a cut, false if only the oldest ones may.
    pub reorder: bool,
    /// True if a cut may tear a write at a sector boundary.
    pub tear: bool,
    /// Interval N, in flushes: every Nth flush is acknowledged without being performed. `None` to perform all flushes.
    pub drop_flush: Option<u32>,
}

/// Paths of a volatile directory.
#[derive(Debug, Clone)]
pub struct VolatilePaths {
    /// The directory on disk, which holds the flushed data.
    pub below: PathBuf,
    /// Path at which the volatile directory is mounted.
    pub point: PathBuf,
}

/// Mounts a volatile directory and serves it until it is unmounted. This process's stdout must be the control socket.
///
/// # Errors
/// The directory cannot be mounted.
pub fn serve(paths: &VolatilePaths, faults: Faults) -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    // This process keeps each file open that the kernel refers to.
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit })?;
    let control = UnixStream::from(rustix::stdio::stdout().try_clone_to_owned()?);
    let root =
        rustix::fs::open(&paths.below, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let filesystem = VolatileFs::new(root, file::Power::new(faults));
    // fusermount3 accepts neither character in a name.
    let below = paths.below.to_str().filter(|path| !path.contains([',', '\\'])).unwrap_or_default();
    let source = format!("{VOLATILE_SOURCE}{below}");
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName(source), MountOption::NoAtime];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(THREADS);
    let session = Session::new(filesystem.clone(), &paths.point, &config)?;
    threads::spawn("control", move || obey(control, &filesystem))?;
    session.run()
}

/// Reports that the directory is mounted, and carries out commands until the other end closes the control socket.
fn obey(control: UnixStream, filesystem: &VolatileFs) -> io::Result<()> {
    let mut answers = control.try_clone()?;
    writeln!(answers, "{MOUNTED}")?;
    for line in BufReader::new(control).lines() {
        match line?.as_str() {
            COUNT => {
                let counts = BTreeMap::from(filesystem.flushes());
                writeln!(answers, "{}", serde_json::to_string(&counts)?)?;
            }
            CUT => writeln!(answers, "{}", serde_json::to_string(&filesystem.cut()?)?)?,
            _ => {}
        }
    }
    Ok(())
}
