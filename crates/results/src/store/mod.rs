//! The store: every run, kept in one SQLite file.
//!
//! The journal is a write-ahead log with `synchronous = FULL`: a call that returned is on the disk, whoever kills the
//! process or the power afterwards, and a report can be read while a run is being written.

mod read;
mod schema;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iotax_model::record::{Environment, Measurement, Phase, Source, TargetRecord};
use iotax_model::{Plan, Warning};
use rusqlite::{Connection, OpenFlags};

/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read or created.
    #[error("cannot open the store {}: {source}; name another file with --db", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is something else. It was not changed.
    #[error("{} is not an iotax store and was left untouched; name another file with --db", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer iotax. It was not changed.
    #[error(
        "the store {} has version {found}, this iotax knows up to {known}, so it was left untouched; use a newer \
         iotax or name another file with --db", path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// There is no such run.
    #[error("there is no run {run}: {}; see `iotax list`", known_runs(*.known))]
    UnknownRun {
        /// What was asked for.
        run: i64,
        /// First and last run of the store, if it has any.
        known: Option<(i64, i64)>,
    },
    /// SQLite refused.
    #[error("the store {}: {source}", path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// The schema could not be brought up to date.
    #[error("the store {} cannot be brought up to date: {source}", path.display())]
    Migration {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite_migration::Error,
    },
    /// A value in the store cannot be read, or one given cannot be stored.
    #[error("the store {}: {what}: {reason}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Which value.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

fn known_runs(known: Option<(i64, i64)>) -> String {
    match known {
        None => "the store is empty".into(),
        Some((first, last)) if first == last => format!("the store holds only run {first}"),
        Some((first, last)) => format!("the store holds runs {first} to {last}"),
    }
}

/// What goes wrong inside, before the file's path is added to it.
enum Fault {
    Sql(rusqlite::Error),
    Value(&'static str, String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Fault {
    fn value(what: &'static str, reason: &dyn fmt::Display) -> Self {
        Self::Value(what, reason.to_string())
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Being measured; also that of a run whose process was killed.
    Running,
    /// Every block of its plan is there.
    Complete,
    /// Stopped by the user; it can be resumed.
    Interrupted,
    /// Stopped by an error; it can be resumed.
    Failed,
}

impl RunState {
    const ALL: [Self; 4] = [Self::Running, Self::Complete, Self::Interrupted, Self::Failed];

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A run that begins.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    /// What it does.
    pub plan: &'a Plan,
    /// What order and payload follow from.
    pub seed: u64,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
}

/// A run as it is stored, finished or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its number in its store, from 1.
    pub id: i64,
    /// How far it is.
    pub state: RunState,
    /// What order and payload followed from.
    pub seed: u64,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// What it does.
    pub plan: Plan,
    /// The machine. All absent until it is set.
    pub environment: Environment,
    /// The targets that were built, in the plan's order.
    pub targets: Vec<TargetRecord>,
    /// What was measured, in the order of measuring.
    pub measurements: Vec<Measurement>,
    /// What was warned of while measuring, in that order.
    pub warnings: Vec<Warning>,
    /// Where its wall time went.
    pub phases: Vec<Phase>,
    /// Where it comes from if another tool measured it; absent for a run of iotax.
    pub source: Option<Source>,
}

impl Run {
    /// Everything but what was measured.
    pub(crate) fn without_measurements(&self) -> Self {
        Self {
            id: self.id,
            state: self.state,
            seed: self.seed,
            started_at_ms: self.started_at_ms,
            plan: self.plan.clone(),
            environment: self.environment.clone(),
            targets: self.targets.clone(),
            measurements: Vec::new(),
            warnings: self.warnings.clone(),
            phases: self.phases.clone(),
            source: self.source.clone(),
        }
    }
}

/// A line of `iotax list`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// Its number in its store.
    pub id: i64,
    /// The plan's title.
    pub name: String,
    /// How far it is.
    pub state: RunState,
    /// When it began, in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// The targets' names, in the plan's order.
    pub targets: Vec<String>,
    /// Measurements stored.
    pub measured: u64,
    /// Measurements that the plan asks for; of one that adds blocks until all is decided, at most, or as many as there are once it
    /// is complete.
    pub planned: u64,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

impl Store {
    /// Opens the store, or makes one where there is no file or an empty one. The directory must exist.
    ///
    /// A file that is not an iotax store, or one of a newer version, is refused and left as it is.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let is_new = schema::check_file(path)?;
        let in_file = |source| StoreError::Sql { path: path.to_owned(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags).map_err(in_file)?;
        connection.busy_timeout(PATIENCE).map_err(in_file)?;
        schema::prepare(path, &mut connection, is_new)?;
        Ok(Self { path: path.to_owned(), connection })
    }

    /// Starts a run and gives its id.
    pub fn create_run(&mut self, run: &NewRun<'_>) -> Result<i64, StoreError> {
        write::create_run(&self.connection, run).map_err(|fault| self.located(fault))
    }

    /// Keeps the machine that the run is made on.
    pub fn set_environment(&mut self, run: i64, environment: &Environment) -> Result<(), StoreError> {
        let changed = write::set_environment(&self.connection, run, environment);
        self.one(run, changed)
    }

    /// Keeps that another tool measured the run, and which.
    pub fn set_source(&mut self, run: i64, source: &Source) -> Result<(), StoreError> {
        let changed = write::set_source(&self.connection, run, source);
        self.one(run, changed)
    }

    /// Adds stretches of wall time to those that the run has.
    pub fn add_phases(&mut self, run: i64, phases: &[Phase]) -> Result<(), StoreError> {
        let changed = write::add_phases(&mut self.connection, run, phases);
        self.one(run, changed)
    }

    /// Keeps a target as it was built; one of the same name, from before a resume, is replaced.
    pub fn put_target(&mut self, run: i64, target: &TargetRecord) -> Result<(), StoreError> {
        self.must_know(run)?;
        write::put_target(&self.connection, run, target).map_err(|fault| self.located(fault))
    }

    /// Keeps a measurement, whole or not at all; it is on the disk when this returns. A second one of the same cell
    /// and block is an error. The warning that an earlier attempt at it failed goes.
    pub fn put_measurement(&mut self, run: i64, measurement: &Measurement) -> Result<(), StoreError> {
        self.must_know(run)?;
        write::put_measurement(&mut self.connection, run, measurement)
            .map_err(|fault| located(&self.path, fault))
    }

    /// Keeps a warning; the same one twice is kept once.
    pub fn put_warning(&mut self, run: i64, warning: &Warning) -> Result<(), StoreError> {
        self.must_know(run)?;
        write::put_warning(&self.connection, run, warning).map_err(|fault| self.located(fault))
    }

    /// Says how far the run is.
    pub fn set_state(&mut self, run: i64, state: RunState) -> Result<(), StoreError> {
        let changed = write::set_state(&self.connection, run, state);
        self.one(run, changed)
    }

    /// Changes the number of blocks that the run's plan asks for.
    pub fn set_repeat(&mut self, run: i64, repeat: u32) -> Result<(), StoreError> {
        let changed = write::set_repeat(&mut self.connection, run, repeat);
        self.one(run, changed)
    }

    /// The whole run.
    pub fn load(&self, run: i64) -> Result<Run, StoreError> {
        match read::run(&self.connection, run) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(self.unknown(run)),
            Err(fault) => Err(self.located(fault)),
        }
    }

    /// All runs, the oldest first.
    pub fn runs(&self) -> Result<Vec<RunSummary>, StoreError> {
        read::summaries(&self.connection).map_err(|fault| self.located(fault))
    }

    /// The newest run, if there is any.
    pub fn latest(&self) -> Result<Option<i64>, StoreError> {
        Ok(self.known()?.map(|(_, last)| last))
    }

    fn known(&self) -> Result<Option<(i64, i64)>, StoreError> {
        read::first_and_last(&self.connection).map_err(|fault| self.located(fault))
    }

    fn unknown(&self, run: i64) -> StoreError {
        match self.known() {
            Ok(known) => StoreError::UnknownRun { run, known },
            Err(error) => error,
        }
    }

    fn must_know(&self, run: i64) -> Result<(), StoreError> {
        let exists = read::exists(&self.connection, run).map_err(|fault| self.located(fault))?;
        if exists { Ok(()) } else { Err(self.unknown(run)) }
    }

    fn one(&self, run: i64, changed: Result<usize, Fault>) -> Result<(), StoreError> {
        match changed {
            Ok(0) => Err(self.unknown(run)),
            Ok(_) => Ok(()),
            Err(fault) => Err(self.located(fault)),
        }
    }

    fn located(&self, fault: Fault) -> StoreError {
        located(&self.path, fault)
    }
}

fn located(path: &Path, fault: Fault) -> StoreError {
    let path = path.to_owned();
    match fault {
        Fault::Sql(source) => StoreError::Sql { path, source },
        Fault::Value(what, reason) => StoreError::Value { path, what, reason },
    }
}
