//! Tests: work beyond plain I/O, as classic benchmark programs do it.
//!
//! A test has one [`Routine`] for each worker (numjobs). The routine is prepared before the window; system calls of that time do not count.
//! Then its [`Routine::work`] runs once from beginning to end. It makes every system call that counts through the [`Meter`], and returns
//! early by `?` when the window is over. A test thus ends when its work is done or at `runtime`, whichever comes first. After the window,
//! written data is flushed and the files of a test in a directory are removed, unless a worker is stuck in the kernel.
//!
//! A new test needs a file here and a line in [`prepare`]. A complete test that stats files would be
//!
//! ```ignore
//! struct Stat(Vec<PathBuf>);
//!
//! /// Creates the files, before the window.
//! pub(super) fn prepare(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
//!     let directory = setup.directory()?;
//!     let files = (0..1000).map(|n| directory.join(format!("{}-{n}", setup.number)));
//!     let made = files.map(|path| File::create_new(&path).map(|_| path).map_err(EngineError::system("making a file")));
//!     Ok(Box::new(Stat(made.collect::<Result<_, _>>()?)))
//! }
//!
//! impl Routine for Stat {
//!     fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
//!         for path in &self.0 {
//!             meter.operation(0, || path.metadata())?;
//!         }
//!         ControlFlow::Continue(())
//!     }
//! }
//! ```
//!
//! An I/O of a test is one system call. Records that a user-space buffer combines into one call count as one I/O.

mod archive;
mod bytes;
mod files;
mod meter;
mod newc;
mod output;
mod postgresql;
mod record;
mod records;
mod seeks;
mod setup;
mod sqlite;
mod stdio;
mod tree;
mod trees;

use std::fs::{self, File};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use iotax_load::clock;
use iotax_load::control::Control;
use iotax_load::error::EngineError;
use iotax_load::latencies::Latencies;
use iotax_load::watch;
use iotax_load::window::Window;
use iotax_load::workers::{Finish, WorkerContext, WorkerReport, Workers};
use iotax_model::record::{CpuTime, Outcome, Pacing};
use iotax_model::wire::{Event, Job};
use iotax_model::workload::Test;

use self::meter::{Meter, Over};
use self::setup::WorkerSetup;
use crate::open::{self, Target};
use crate::prepare::read_ahead;
use crate::run::flush;

/// The part of a test that one worker runs.
pub(crate) trait Routine {
    /// Runs the test from beginning to end. Every system call that counts goes through the meter.
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over>;

    /// Returns the results of other programs that did the work. Fails if one of them did.
    fn conclude(self: Box<Self>) -> Result<ProgramResults, EngineError> {
        Ok(ProgramResults::default())
    }
}

/// The results of programs that a routine started.
#[derive(Debug, Default)]
pub(crate) struct ProgramResults {
    /// CPU time of the programs in the window.
    cpu: CpuTime,
    /// Delays of an open loop; `None` in a closed loop.
    pacing: Option<Pacing>,
}

/// A function that prepares a test for one worker, on that worker's thread; its system calls do not count.
type Prepare = fn(&mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError>;

/// Returns the function that prepares a test for a worker.
fn prepare(test: Test) -> Prepare {
    match test {
        Test::Putc => bytes::putc,
        Test::Getc => bytes::getc,
        Test::Rewrite => records::rewrite,
        Test::Seeks => seeks::seeks,
        Test::WriteNew => records::write_new,
        Test::StdioWrite => records::stdio_write,
        Test::StdioRead => stdio::read,
        Test::Copy => records::copy,
        Test::Create
        | Test::Open
        | Test::Stat
        | Test::Rename
        | Test::Delete
        | Test::MakeDirectory
        | Test::StatDirectory
        | Test::RemoveDirectory => files::prepare,
        Test::Pack => archive::pack,
        Test::Unpack => archive::unpack,
        Test::Walk => trees::walk,
        Test::RemoveTree => trees::remove,
        Test::Sqlite => sqlite::prepare,
        Test::Pgbench => postgresql::prepare,
    }
}

/// Runs a test on a target or in a directory, like [`crate::measure`].
pub(crate) fn run(
    job: &Job,
    test: Test,
    path: &Path,
    control: &Control,
    events: &mut dyn FnMut(Event),
) -> Result<Outcome, EngineError> {
    let prepare = prepare(test);
    let workload = &job.workload;
    let area = TestArea::of(job, test, path)?;
    clock::calibrate();
    let room = Latencies::new(workload);
    // pgbench has all clients itself.
    let count = if test == Test::Pgbench { 1 } else { workload.numjobs };
    let mut workers = Workers::spawn(count, workload.max_errors, &room, |number| {
        let setup = area.setup(job, test, number)?;
        let room = room.empty_alike();
        Ok(Box::new(move |context| work(context, setup, room, prepare)))
    })?;
    events(Event::Ready);
    control.await_start();
    let mut outcome = match watch::carry_out(
        &mut workers,
        job,
        Window::new(job, clock::now()),
        &room,
        &watch::NEVER,
        events,
    ) {
        Ok(outcome) => outcome,
        Err(error) => {
            workers.shutdown(job.interval);
            return Err(error);
        }
    };
    events(Event::Over);
    if workers.is_unharmed(&outcome) && (workload.writes() || test.is_on_files()) {
        flush(|| area.sync(), &mut outcome);
    }
    // A worker stuck in the kernel may still hold files that would be removed.
    if workers.at_work == 0
        && let Err(error) = area.clear()
    {
        outcome.notes.push(format!("what the test made was not removed: {error}"));
    }
    Ok(outcome)
}

/// Runs one worker's test on the worker's thread.
fn work(
    context: WorkerContext,
    mut setup: WorkerSetup,
    room: Latencies,
    prepare: Prepare,
) -> Result<Finish, EngineError> {
    let mut routine = prepare(&mut setup)?;
    // Nobody listens if another worker failed to set up; then the start channel is closed too.
    let _ = context.reports.send(WorkerReport::Ready);
    let Ok(window) = context.start.recv() else { return Ok(Finish::default()) };
    let mut meter = Meter::new(context, window, room);
    let ended = routine.work(&mut meter);
    let ProgramResults { cpu, pacing } = routine.conclude()?;
    Ok(Finish { programs_cpu: cpu, pacing, ..meter.finish(ended) })
}

/// The place that a test works in: the target's area, or a directory.
enum TestArea<'a> {
    Area(Target),
    Directory(&'a Path),
}

impl<'a> TestArea<'a> {
    fn of(job: &'a Job, test: Test, path: &Path) -> Result<Self, EngineError> {
        if !test.needs_directory() {
            let target = open::for_job(job, path)?;
            if job.workload.pre_read {
                read_ahead(&target, &job.workload, job.size)?;
            }
            return Ok(Self::Area(target));
        }
        let directory = Path::new(job.directory.as_deref().ok_or(EngineError::NoDirectory(test))?);
        let failed = EngineError::system(format!("reading {}", directory.display()));
        // Everything in the directory is removed at the end.
        match fs::read_dir(directory).map_err(failed)?.next() {
            None => Ok(Self::Directory(directory)),
            Some(_) => Err(EngineError::NotEmpty(directory.display().to_string())),
        }
    }

    /// Collects what worker number `number` needs for the test.
    fn setup(&self, job: &Job, test: Test, number: u32) -> Result<WorkerSetup, EngineError> {
        let (file, directory) = match self {
            Self::Area(target) => (Some(target.reopen_for(number)?), None),
            Self::Directory(directory) => (None, Some(directory.to_path_buf())),
        };
        Ok(WorkerSetup {
            test,
            workload: job.workload.clone(),
            size: job.size.0,
            seed: job.seed,
            number,
            file,
            directory,
            postgresql: job.postgresql.as_ref().map(PathBuf::from),
        })
    }

    /// Flushes the written data to stable storage.
    fn sync(&self) -> io::Result<()> {
        match self {
            Self::Area(target) => target.sync_data(),
            Self::Directory(directory) => Ok(rustix::fs::syncfs(File::open(directory)?)?),
        }
    }

    /// Removes all files that the workers left in the test's directory.
    fn clear(&self) -> io::Result<()> {
        let Self::Directory(directory) = self else { return Ok(()) };
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}
