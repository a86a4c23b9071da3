//! Writes to a target until its power fails, with a journal on storage that keeps its power.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::Context;
use iotax_model::plan::Plan;
use iotax_model::target::Remote;
use iotax_model::threads;
use iotax_model::units::Nanos;
use iotax_model::verify_errors::Recovery;
use iotax_model::wire::Event;
use iotax_testbed::device::Permission;
use iotax_testbed::interrupt::Interrupt;
use iotax_testbed::remote::stream::{self, RemoteStream};
use iotax_testbed::target::Builder;
use iotax_testbed::undo::UndoLog;
use rustix::fs::{Mode, OFlags};

use super::crash::{BEGINNING, kill};
use super::target::{HostSite, Site, Target};
use super::{interrupted, local_agent};

/// Sampling interval. The samples of a power-cut load are discarded.
const INTERVAL: Nanos = Nanos::from_millis(1000);
/// Maximum number of bytes sent to another machine at a time: the size of the pipe's kernel buffer.
const PIECE: usize = 4096;

/// The location of a journal.
#[derive(Debug)]
pub(crate) enum JournalPlace {
    /// A new file on a disk that keeps its power, or a character device such as a serial line.
    Here(PathBuf),
    /// A new file on another machine.
    There(Remote),
}

/// The way a load ended on a machine that did not lose power.
pub(crate) enum LoadEnd {
    /// The user interrupted the load.
    Interrupted,
    /// The load ended by itself, for example because only the target lost power or its time was over.
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
    journal: &JournalPlace,
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
    sync(&built.path).with_context(|| built.path.display().to_string())?;
    let target = Target { spec, site: Site::Host(HostSite::new(built)), is_filled: false, stamped: None };
    let mut workload = plan.workloads[0].clone();
    let (remote, mut relayed) = match journal {
        JournalPlace::Here(path) => {
            workload.write_journal = Some(path.display().to_string());
            (None, None)
        }
        JournalPlace::There(remote) => {
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
    let mut began = false;
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
        let ended = agent.run(&job, BEGINNING, &mut |event| {
            if matches!(event, Event::Measuring) {
                // The load has the pipe open by now, so the pipe ends when the load does.
                relayed = None;
                began = true;
                begins();
            }
        });
        relayed = None;
        drop(agent);
        let sent = relay
            .map_or(Ok(()), |relay| relay.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let error = match (sent, ended) {
            (Err(lost), _) => anyhow::Error::from(lost).context("the connection of the journal"),
            (Ok(()), Err(error)) => interrupted(error),
            (Ok(()), Ok(_)) => anyhow::anyhow!("its time was over"),
        };
        match error {
            _ if stop.load(Ordering::Relaxed) => Ok(LoadEnd::Interrupted),
            error if began => Ok(LoadEnd::Failed(error)),
            error => Err(error),
        }
    })
}

/// Makes a file and its name durable, so that only later writes can be lost.
fn sync(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    match path.parent().filter(|_| file.metadata().is_ok_and(|found| found.is_file())) {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
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
    journal: &JournalPlace,
    tag: &str,
    stop: &Interrupt,
) -> anyhow::Result<Recovery> {
    match journal {
        JournalPlace::Here(path) => super::audit(target, path, stop),
        JournalPlace::There(remote) => {
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
