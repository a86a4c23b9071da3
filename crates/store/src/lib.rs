//! The store: every run, kept in one SQLite file.
//!
//! With a rollback journal and `synchronous = EXTRA`, data is on disk when a call returns, even if the process is killed or power
//! fails afterwards, and a report can be read while a run is written. Reads return the written data bit for bit, or an error.

mod claim;
mod file;
mod live;
mod location;
mod sealed;

use std::borrow::Borrow;
use std::fmt;
use std::io;
use std::path::PathBuf;

use iotax_model::record::{Environment, FleetMember, ImportSource, Measurement, RunPhase, TargetRecord};
use iotax_model::{Plan, Run, RunState, Warning, WarningKind};
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use self::claim::Claim;
use self::file::located;
pub use self::location::Location;
use self::sealed::{Head, Measured, Sealed};

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be read or created.
    #[error("cannot open the store {}: {source}; name another file with --db", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is something else. It was not changed.
    #[error("{} is not an iotax store and was left untouched; name another file with --db", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by another version of iotax. It was not changed.
    #[error(
        "the store {} has version {found}, this iotax reads version {known}, so it was left untouched; use the iotax \
         that wrote it or name another file with --db", path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version known here.
        known: u32,
    },
    /// The file or its directory cannot be written.
    #[error("the store {} cannot be written: {source}; name another file with --db", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// A process ended while it wrote, and what it left cannot be put right where nothing can be written.
    #[error(
        "the store {} is in the middle of a write that its file of the same name with -journal takes back, and it cannot be \
         written; copy both files to a place that can be written and name the copy with --db", path.display()
    )]
    HalfWritten {
        /// The file.
        path: PathBuf,
    },
    /// Bits of the file have changed since they were written.
    #[error(
        "{}the store {} is damaged ({table}): {reason}; put back an earlier copy of the file, or go on with \
         another one: --db FILE{}",
        run.map_or(String::new(), |run| format!("run {run} cannot be shown: ")),
        path.display(),
        run.map_or("", |_| ". `iotax list` has the other runs")
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The run, if it is about one.
        run: Option<i64>,
        /// A table of it, or its structure.
        table: &'static str,
        /// The damage.
        reason: String,
    },
    /// Another process works on the run.
    #[error("run {run} is still going on in another process")]
    Claimed {
        /// The run.
        run: i64,
    },
    /// There is no such run.
    #[error("there is no run {run}: {}; see `iotax list`", known_runs(*.last))]
    UnknownRun {
        /// The requested run.
        run: i64,
        /// The newest run of the store, 0 if it has none.
        last: i64,
    },
    /// SQLite refused.
    #[error("the store {}: {source}", path.display())]
    Sql {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// A value given cannot be stored.
    #[error("the store {}: {what}: {reason}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The value.
        what: &'static str,
        /// The reason.
        reason: String,
    },
}

/// Returns whether a measurement makes up for a failed attempt that a warning reports.
fn is_made_up_for(warning: &Warning, by: &Measurement) -> bool {
    warning.kind == WarningKind::Incomplete
        && warning.target.as_ref() == Some(&by.target)
        && warning.workload.as_ref() == Some(&by.workload)
        && warning.round == Some(by.round)
}

fn known_runs(last: i64) -> String {
    match last {
        0 => "the store is empty".into(),
        1 => "the store holds only run 1".into(),
        last => format!("the store holds runs 1 to {last}"),
    }
}

/// An internal error, before the file's path is added.
enum Fault {
    Sql(rusqlite::Error),
    /// The damaged table, and the damage.
    Damaged(&'static str, String),
    Value(&'static str, String),
    /// There is no such run.
    Unknown,
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

/// A run that begins.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    /// Its plan.
    pub plan: &'a Plan,
    /// Seed of the order and the payload.
    pub seed: u64,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// The fleet that it is part of; absent for a run of one machine.
    pub fleet: Option<&'a FleetMember>,
}

/// What people say of a run. Changing it changes nothing that was measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Tags, sorted, each once.
    pub tags: Vec<String>,
    /// A text.
    pub text: String,
}

/// Which runs a list has. The default has all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Words that the name, a target, a workload, the machine, a tag or the note has, in any case.
    pub text: String,
    /// Tags that all must be there.
    pub tags: Vec<String>,
    /// The state.
    pub state: Option<RunState>,
    /// The machine's host name.
    pub machine: Option<String>,
    /// The fleet's id.
    pub fleet: Option<String>,
    /// Runs before this one alone, for paging.
    pub before: Option<i64>,
    /// At most this many, the newest.
    pub limit: Option<u32>,
}

/// A line of `iotax list`.
#[derive(Debug)]
pub struct RunSummary {
    /// Its number in its store.
    pub id: i64,
    /// The plan's title.
    pub name: String,
    /// Its state.
    pub state: RunState,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// The targets' names, in the plan's order.
    pub targets: Vec<String>,
    /// The machine's host name; absent if it is not known.
    pub machine: Option<String>,
    /// The fleet that it is part of.
    pub fleet: Option<FleetMember>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Measurements stored.
    pub measured: u64,
    /// Measurements that the plan asks for. For a run that adds rounds until all is decided: the most there can be, or once it is
    /// complete, all there are.
    pub planned: u64,
    /// Why its measurements cannot be shown, if they cannot.
    pub damage: Option<StoreError>,
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Connection,
}

/// A run's number, and what is known of it or why nothing is.
pub type Listed = (i64, Result<RunSummary, StoreError>);

impl Store {
    /// Opens the store to write it, or makes one where there is no file or an empty one. The directory must exist.
    ///
    /// A file that is not an iotax store, is of another version or is damaged, is refused and left as it is.
    pub fn open(place: impl Into<Location>) -> Result<Self, StoreError> {
        let Location::File(path) = &place.into() else { unimplemented!("PostgreSQL") };
        Ok(Self { path: path.to_owned(), connection: file::to_write(path)? })
    }

    /// Opens a store that is there to read it, also where nothing can be written. Of a damaged one what is sound can be read.
    pub fn open_to_read(place: impl Into<Location>) -> Result<Self, StoreError> {
        let Location::File(path) = &place.into() else { unimplemented!("PostgreSQL") };
        Ok(Self { path: path.to_owned(), connection: file::to_read(path)? })
    }

    /// Starts a run and gives its id.
    pub fn create_run(&mut self, run: &NewRun<'_>) -> Result<i64, StoreError> {
        let head = Head {
            plan: run.plan.clone(),
            seed: run.seed,
            started_at_ms: run.started_at_ms,
            state: RunState::Running,
            environment: Environment::default(),
            targets: Vec::new(),
            warnings: Vec::new(),
            phases: Vec::new(),
            source: None,
            fleet: run.fleet.cloned(),
            measured: Measured::default(),
        };
        let created = self.transaction().and_then(|transaction| {
            let id = sealed::add_head(&transaction, &head)?;
            transaction.commit()?;
            Ok(id)
        });
        created.map_err(|fault| located(&self.path, None, fault))
    }

    /// Has the run belong to this process until the claim is dropped: two that work on it would measure each other.
    pub fn claim(&self, run: i64) -> Result<Claim, StoreError> {
        claim::claim(&self.path, run).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => StoreError::Claimed { run },
            _ => StoreError::Open { path: self.path.clone(), source },
        })
    }

    /// Keeps the machine that the run is made on.
    pub fn set_environment(&mut self, run: i64, environment: &Environment) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            head.environment = environment.clone();
            Ok(())
        })
    }

    /// Keeps that another tool measured the run, and which.
    pub fn set_source(&mut self, run: i64, source: &ImportSource) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            head.source = Some(source.clone());
            Ok(())
        })
    }

    /// Adds stretches of wall time to those that the run has.
    pub fn add_phases(&mut self, run: i64, phases: &[RunPhase]) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            for phase in phases {
                match head.phases.iter_mut().find(|known| known.name == phase.name) {
                    Some(known) => known.duration_ns += phase.duration_ns,
                    None => head.phases.push(phase.clone()),
                }
            }
            Ok(())
        })
    }

    /// Keeps a target as it was built; one of the same name, from before a resume, is replaced.
    pub fn put_target(&mut self, run: i64, target: &TargetRecord) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            match head.targets.iter_mut().find(|known| known.name == target.name) {
                Some(known) => known.clone_from(target),
                None => head.targets.push(target.clone()),
            }
            let planned = &head.plan.targets;
            head.targets.sort_by_key(|record| planned.iter().position(|spec| spec.name == record.name));
            Ok(())
        })
    }

    /// Keeps a measurement; see [`Self::put_measurements`].
    pub fn put_measurement(&mut self, run: i64, measurement: &Measurement) -> Result<(), StoreError> {
        self.put_measurements(run, std::iter::once(measurement))
    }

    /// Keeps measurements, all of them whole or none at all; they are on the disk when this returns. A second one of the same cell
    /// and round is an error. The warning that an earlier attempt at one failed goes.
    pub fn put_measurements(
        &mut self,
        run: i64,
        measurements: impl IntoIterator<Item: Borrow<Measurement>>,
    ) -> Result<(), StoreError> {
        self.change(run, |transaction, head| {
            for m in measurements {
                let m = m.borrow();
                head.warnings.retain(|warning| !is_made_up_for(warning, m));
                sealed::add_measurement(transaction, run, head, m)?;
            }
            Ok(())
        })
    }

    /// Keeps a warning; the same one twice is kept once.
    pub fn put_warning(&mut self, run: i64, warning: &Warning) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            if !head.warnings.contains(warning) {
                head.warnings.push(warning.clone());
            }
            Ok(())
        })
    }

    /// Sets a run's state.
    pub fn set_state(&mut self, run: i64, state: RunState) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            head.state = state;
            Ok(())
        })
    }

    /// Changes the number of rounds that the run's plan asks for.
    pub fn set_repeat(&mut self, run: i64, repeat: u32) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            head.plan.repeat = repeat;
            head.plan.check().map_err(|error| Fault::value("plan", &error))
        })
    }

    /// Puts a plan with the rates that were placed in place of the run's.
    pub fn set_plan(&mut self, run: i64, plan: &Plan) -> Result<(), StoreError> {
        self.change(run, |_, head| {
            head.plan = plan.clone();
            head.plan.check().map_err(|error| Fault::value("plan", &error))
        })
    }

    /// The whole run.
    pub fn load(&self, run: i64) -> Result<Run, StoreError> {
        let sealed = Sealed::read(&self.connection, run);
        let read = sealed.and_then(|sealed| sealed.ok_or(Fault::Unknown)?.open());
        let (head, measurements) = read.map_err(|fault| self.of_run(run, fault))?;
        Ok(Run {
            id: run,
            state: self.state(run, &head),
            seed: head.seed,
            started_at_ms: head.started_at_ms,
            plan: head.plan,
            environment: head.environment,
            targets: head.targets,
            measurements,
            warnings: head.warnings,
            phases: head.phases,
            source: head.source,
            fleet: head.fleet,
        })
    }

    /// All runs, the oldest first; of one that cannot be read its number and why. All measurements are read and compared with their
    /// checksums.
    pub fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let read = |run| {
            // One moment: another process may add measurements.
            let snapshot = self.connection.unchecked_transaction()?;
            let head = sealed::head(&snapshot, run)?.ok_or(Fault::Unknown)?;
            let damage = sealed::check(&snapshot, run, &head).err();
            Ok((head, damage))
        };
        let summary = |run| {
            let (head, damage) = read(run).map_err(|fault| self.of_run(run, fault))?;
            let damage = damage.map(|fault| self.of_run(run, fault));
            Ok(self.summary(run, &head, damage))
        };
        Ok((1..=self.last()?).map(|run| (run, summary(run))).collect())
    }

    /// The runs that a filter lets through, the newest first, without a look at their measurements.
    pub fn list(&self, filter: &Filter) -> Result<Vec<RunSummary>, StoreError> {
        let last = filter.before.map_or(self.last()?, |before| before - 1);
        let mut found = Vec::new();
        for run in (1..=last).rev() {
            let head = sealed::head(&self.connection, run).and_then(|head| head.ok_or(Fault::Unknown));
            let head = head.map_err(|fault| self.of_run(run, fault))?;
            let mut summary = self.summary(run, &head, None);
            summary.tags = self.notes(run)?.tags;
            let is_in = filter.state.is_none_or(|state| state == summary.state)
                && filter.tags.iter().all(|tag| summary.tags.contains(tag))
                && summary.name.to_lowercase().contains(&filter.text.to_lowercase());
            if is_in {
                found.push(summary);
            }
            if filter.limit.is_some_and(|limit| found.len() >= limit as usize) {
                break;
            }
        }
        Ok(found)
    }

    /// What people said of a run; empty if nothing.
    pub fn notes(&self, run: i64) -> Result<Notes, StoreError> {
        let read = || -> Result<Notes, Fault> {
            let mut query = self.connection.prepare_cached("SELECT tags, text FROM note WHERE run = ?")?;
            let mut rows = query.query([run])?;
            let Some(row) = rows.next()? else { return Ok(Notes::default()) };
            let tags: String = row.get(0)?;
            Ok(Notes { tags: tags.lines().map(str::to_owned).collect(), text: row.get(1)? })
        };
        read().map_err(|fault| self.of_run(run, fault))
    }

    /// Keeps what people say of a run in place of what they said before.
    pub fn set_notes(&mut self, run: i64, notes: &Notes) -> Result<(), StoreError> {
        let put = self.connection.execute(
            "INSERT OR REPLACE INTO note (run, tags, text) VALUES (?, ?, ?)",
            rusqlite::params![run, notes.tags.join("\n"), notes.text],
        );
        put.map(|_| ()).map_err(|fault| self.of_run(run, fault.into()))
    }

    /// Shows everyone who looks at this store how far a run is: any document, in place of the one before. Nothing is written to a disk.
    pub fn put_live(&mut self, run: i64, state: &serde_json::Value) -> Result<(), StoreError> {
        live::put(&self.path, run, state)
            .map_err(|source| StoreError::Open { path: self.path.clone(), source })
    }

    /// How far a run is that is measuring somewhere; absent if nobody says.
    pub fn live(&self, run: i64) -> Result<Option<serde_json::Value>, StoreError> {
        Ok(live::get(&self.path, run).filter(|_| claim::is_claimed(&self.path, run)))
    }

    /// The newest run, if there is any.
    pub fn latest(&self) -> Result<Option<i64>, StoreError> {
        Ok(Some(self.last()?).filter(|last| *last > 0))
    }

    fn summary(&self, run: i64, head: &Head, damage: Option<StoreError>) -> RunSummary {
        let (plan, state, measured) = (&head.plan, self.state(run, head), head.measured.count);
        // A complete run that adds rounds has all its measurements, and so has an import.
        let is_open = plan.until_decided.is_some() || head.source.is_some();
        let all = u64::from(plan.most_rounds()) * plan.cells() as u64;
        // Nobody knows how many a search takes.
        let has_all = plan.ask.is_some() || (is_open && state == RunState::Complete);
        RunSummary {
            id: run,
            name: plan.name.clone(),
            state,
            started_at_ms: head.started_at_ms,
            targets: plan.targets.iter().map(|target| target.name.clone()).collect(),
            machine: head.environment.hostname.clone(),
            fleet: head.fleet.clone(),
            tags: Vec::new(),
            measured,
            planned: if has_all { measured } else { all },
            damage,
        }
    }

    /// A run is running while a process has claimed it: a killed process cannot record that it stopped.
    fn state(&self, run: i64, head: &Head) -> RunState {
        match head.state {
            RunState::Running if !claim::is_claimed(&self.path, run) => RunState::Interrupted,
            state => state,
        }
    }

    fn last(&self) -> Result<i64, StoreError> {
        let bytes = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        sealed::last(&self.connection, bytes).map_err(|fault| located(&self.path, None, fault))
    }

    fn transaction(&mut self) -> Result<Transaction<'_>, Fault> {
        Ok(self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }

    /// Changes a run, wholly or not at all.
    fn change(
        &mut self,
        run: i64,
        change: impl FnOnce(&Transaction<'_>, &mut Head) -> Result<(), Fault>,
    ) -> Result<(), StoreError> {
        let changed = self.transaction().and_then(|transaction| {
            let mut head = sealed::head(&transaction, run)?.ok_or(Fault::Unknown)?;
            change(&transaction, &mut head)?;
            sealed::put_head(&transaction, run, &head)?;
            Ok(transaction.commit()?)
        });
        changed.map_err(|fault| self.of_run(run, fault))
    }

    /// Adds the run to what went wrong. Runs are never removed: one that is missing was lost.
    fn of_run(&self, run: i64, fault: Fault) -> StoreError {
        match (fault, self.last()) {
            (Fault::Unknown, Ok(last)) if !(1..=last).contains(&run) => StoreError::UnknownRun { run, last },
            (fault, _) => located(&self.path, Some(run), fault),
        }
    }
}
