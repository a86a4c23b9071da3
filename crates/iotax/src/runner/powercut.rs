//! Writes to a target until its power fails, with a journal on storage that keeps its power.

use std::fs::{File, TryLockError};
use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use iotax_model::plan::Plan;
use iotax_model::record::Outcome;
use iotax_model::target::Remote;
use iotax_model::threads;
use iotax_model::units::{Nanos, human};
use iotax_model::verify_errors::Recovery;
use iotax_model::wire::Event;
use iotax_testbed::device::Permission;
use iotax_testbed::host_info::{self, FilesystemSpace};
use iotax_testbed::interrupt::{Interrupt, POLL};
use iotax_testbed::remote::stream::{self, RemoteStream};
use iotax_testbed::target::Builder;
use iotax_testbed::target::preflight::reserve;
use iotax_testbed::undo::UndoLog;
use rustix::fs::{Mode, OFlags};

use super::crash::{BEGINNING, kill};
use super::target::{HostSite, Site, Target};
use super::{interrupted, local_agent};

/// Sampling interval, at which the space for the journal is checked.
const INTERVAL: Nanos = Nanos::from_millis(100);
/// Maximum number of bytes sent to another machine at a time: the size of the pipe's kernel buffer.
const PIECE: usize = 4096;
/// Maximum time for which udev holds its lock of a device.
const UDEV: Duration = Duration::from_secs(1);

/// The location of a journal.
#[derive(Debug)]
pub(crate) enum JournalLocation {
    /// A new file on a disk that keeps its power.
    Here(PathBuf),
    /// A character device or pipe, such as a serial line: nothing can be read back from it.
    Line(PathBuf),
    /// A new file on another machine.
    There(Remote),
}

/// The way a load ended on a machine that did not lose power.
pub(crate) enum LoadEnd {
    /// The user interrupted the load.
    Interrupted,
    /// The load ended by itself, for example because only the target lost power, or because the journal takes no more records.
    Failed(anyhow::Error),
}

/// Writes to the plan's target until the power fails. `begins` is called once the load starts.
///
/// # Errors
/// Fails if the load does not begin.
pub(crate) fn write(
    plan: &Plan,
    permission: &Permission,
    (tag, seed): (&str, u64),
    journal: &JournalLocation,
    undo_log: &mut UndoLog,
    stop: &Interrupt,
    begins: &mut dyn FnMut(),
) -> anyhow::Result<LoadEnd> {
    let spec = plan.targets[0].clone();
    let mut builder = Builder::new(tag, plan, permission.clone());
    let built = match spec.path() {
        Some(path) => builder.open_or_create(path, undo_log)?,
        None => builder.build(&spec, undo_log)?,
    };
    let _lock = sync(&built.path).with_context(|| built.path.display().to_string())?;
    let target = Target { spec, site: Site::Host(HostSite::new(built)), is_filled: false, stamped: None };
    let mut workload = plan.workloads[0].clone();
    let (remote, mut relayed) = match journal {
        JournalLocation::Here(path) | JournalLocation::Line(path) => {
            workload.write_journal = Some(path.display().to_string());
            (None, None)
        }
        JournalLocation::There(remote) => {
            let stream = RemoteStream::create(remote, tag, false, stop)?;
            let (reader, writer) = io::pipe()?;
            rustix::pipe::fcntl_setpipe_size(&writer, PIECE)?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), writer.as_raw_fd());
            workload.write_journal = Some(path);
            (Some((reader, stream)), Some(writer))
        }
    };
    let job = target.job(&workload, seed, INTERVAL);
    let mut agent = local_agent(stop)?;
    let pid = agent.pid();
    let (mut began, mut full) = (false, None);
    thread::scope(|scope| {
        let relay = remote
            .map(|(reader, stream)| {
                threads::spawn_scoped(scope, "journal", move || {
                    let lost = relay(reader, stream);
                    if lost.is_err() {
                        pid.into_iter().for_each(kill);
                    }
                    lost
                })
            })
            .transpose()?;
        let ended = agent.run(&job, BEGINNING, &mut |event| match event {
            Event::Measuring => {
                // The load has the pipe open by now, so the pipe ends when the load does.
                relayed = None;
                began = true;
                begins();
            }
            Event::Sample(_) if full.is_none() => {
                full = check_space(journal).err();
                if full.is_some() {
                    pid.into_iter().for_each(kill);
                }
            }
            _ => {}
        });
        relayed = None;
        drop(agent);
        let sent = relay
            .map_or(Ok(()), |relay| relay.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let error = match (full, sent, ended) {
            (Some(full), _, _) => full,
            (None, Err(lost), _) => anyhow::Error::from(lost).context("the connection of the journal"),
            (None, Ok(()), Err(error)) => interrupted(error),
            (None, Ok(()), Ok(outcome)) => anyhow::Error::msg(cause(&outcome)),
        };
        match error {
            _ if stop.load(Ordering::Relaxed) => Ok(LoadEnd::Interrupted),
            error if began => Ok(LoadEnd::Failed(error)),
            error => Err(error),
        }
    })
}

/// Makes a file and its name durable, so that only later writes can be lost. Returns the file, with the lock that [`is_written`] looks for.
fn sync(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    file.sync_all()?;
    if let Some(directory) = path.parent().filter(|_| file.metadata().is_ok_and(|found| found.is_file())) {
        File::open(directory)?.sync_all()?;
    }
    // Shared, because udev takes shared locks of devices. A filesystem without locks is no obstacle.
    let _ = file.try_lock_shared();
    Ok(file)
}

/// Returns whether `iotax powercut start` on this machine still writes to the target.
pub(crate) fn is_written(target: &Path) -> bool {
    let deadline = Instant::now() + UDEV;
    let is_locked =
        || File::open(target).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)));
    while is_locked() {
        if Instant::now() > deadline {
            return true;
        }
        threads::sleep(POLL);
    }
    false
}

/// Fails if the filesystem of a journal on this machine is down to the space that always stays free.
pub(crate) fn check_space(journal: &JournalLocation) -> anyhow::Result<()> {
    let JournalLocation::Here(path) = journal else { return Ok(()) };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let FilesystemSpace { available, total } = host_info::free_space(directory)?;
    let keep = reserve(total.0);
    if available.0 > keep {
        return Ok(());
    }
    anyhow::bail!(
        "the journal has no more room: {} are free in {}, of which {} always stay free (the filesystem has {}); name a journal where \
         there is more room, or ssh://[user@]host/path",
        human::bytes(available.0),
        directory.display(),
        human::bytes(keep),
        human::bytes(total.0)
    )
}

/// Describes the end of a load that was neither interrupted nor killed.
fn cause(outcome: &Outcome) -> String {
    let journal = outcome.verify.as_ref().and_then(|findings| findings.journal.as_ref());
    match (journal, outcome.errors.as_slice()) {
        (Some(incomplete), _) => incomplete.to_string(),
        (None, [error, ..]) => format!("the target failed a {} with {}", error.direction, error.error),
        (None, []) => "its time was over".into(),
    }
}

/// Sends a journal to another machine, piece by piece.
fn relay(mut journal: PipeReader, mut stream: RemoteStream) -> io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        match journal.read(&mut piece)? {
            0 => return Ok(()),
            length => stream.append(&piece[..length])?,
        }
    }
}

/// Compares a target with a journal of its acknowledged writes.
pub(crate) fn check(
    target: &Path,
    journal: &JournalLocation,
    tag: &str,
    stop: &Interrupt,
) -> anyhow::Result<Recovery> {
    match journal {
        JournalLocation::Here(path) | JournalLocation::Line(path) => super::audit(target, path, stop),
        JournalLocation::There(remote) => {
            // An unnamed file, which disappears when this process ends.
            let dir = std::env::temp_dir();
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let copy = rustix::fs::open(&dir, flags, Mode::RUSR | Mode::WUSR)
                .with_context(|| dir.display().to_string())?;
            let mut copy = File::from(copy);
            stream::read(remote, tag, false, stop, &mut copy)?;
            let path = format!("/proc/{}/fd/{}", std::process::id(), copy.as_raw_fd());
            super::audit(target, Path::new(&path), stop)
        }
    }
}
