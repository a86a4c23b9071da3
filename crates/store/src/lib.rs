//! Stores runs in one SQLite file, or in a PostgreSQL database that a team shares.
//!
//! Data is on disk when a call returns, and survives a killed process or a power failure. Reports can be read while a run is being written.
//! A read returns exactly the data that was written, or an error.
//!
//! With PostgreSQL, calls block on an internal runtime while they wait for the server. Call them from threads that may block
//! (`spawn_blocking`), not from an asynchronous task.

#[cfg(test)]
mod bench;
mod copy;
mod counter;
mod database;
mod error;
mod head;
mod location;
mod named;
mod notes;
mod postgresql;
mod run_figures;
mod schema;
mod sealed;
mod sqlite;
mod summary;
mod withdraw;

use std::any::Any;
use std::borrow::Borrow;
use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use iotax_analysis::trend::RunFigures;
use iotax_model::record::{Environment, FleetMember, ImportSource, Measurement, RunPhase, TargetRecord};
use iotax_model::{Plan, Run, RunState, Warning, WarningKind};

use self::database::{Database, Purpose, insist, transact};
use self::error::Fault;
pub use self::error::StoreError;
use self::head::{Head, Measured};
pub use self::location::Location;
use self::postgresql::Postgres;
pub use self::postgresql::init;
use self::sealed::{HeadRow, MeasurementRow, Sealed};
use self::sqlite::Sqlite;

/// The exclusive right of this process to work on a run. It ends when it is dropped or when the process ends. With PostgreSQL, it also ends
/// when the connection is lost; the store renews it when it reconnects.
pub struct Claim {
    _held: Box<dyn Any + Send>,
}

impl Claim {
    fn new(held: impl Any + Send) -> Self {
        Self { _held: Box::new(held) }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claim")
    }
}

/// Returns the error for a run that another user stored and this user may not change; `None` if the user may.
fn not_ours(database: &mut dyn Database, run: i64) -> Result<Option<Fault>, Fault> {
    let location = database.location().clone();
    let writer = database.other_writer(run)?;
    Ok(writer.map(|writer| Fault::Store(StoreError::OfAnother { run, location, writer })))
}

/// Returns whether the warning is about a failed earlier attempt at this measurement (`by`: target, workload, round).
fn is_made_up_for(warning: &Warning, by: (&str, &str, u32)) -> bool {
    warning.kind == WarningKind::Incomplete
        && warning.target.as_deref() == Some(by.0)
        && warning.workload.as_deref() == Some(by.1)
        && warning.round == Some(by.2)
}

/// The properties of a run to create.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// Seed from which the order of measurements, the offsets and the content of writes are derived.
    pub seed: u64,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// The fleet and member that the run belongs to; `None` for a run outside of fleets.
    pub fleet: Option<&'a FleetMember>,
}

/// Tags and free text that users add to a run. They can change without affecting its measurements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Tags, sorted and without duplicates.
    pub tags: Vec<String>,
    /// Free text; empty if there is none.
    pub text: String,
}

/// A filter for lists of runs; the default matches all runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Words that must each occur in the plan's name, a target, a workload, the machine, the fleet, the member, a tag or the note, ignoring
    /// case; empty for any.
    pub text: String,
    /// Tags that the run must have, all of them.
    pub tags: Vec<String>,
    /// State that the run must have; `None` for any.
    pub state: Option<RunState>,
    /// Host name of the machine; `None` for any.
    pub machine: Option<String>,
    /// Id of the fleet that the runs belong to; `None` for any.
    pub fleet: Option<String>,
    /// Run number below which all returned numbers are, for paging; `None` for any.
    pub before: Option<i64>,
    /// Maximum number of runs, of which the newest are returned; `None` for no limit.
    pub limit: Option<u32>,
}

/// The properties of a run that `iotax list` shows.
#[derive(Debug)]
pub struct RunSummary {
    /// Number of the run in its store.
    pub id: i64,
    /// Name of the run's plan.
    pub name: String,
    /// State of the run. A run stored as running that no process has claimed is interrupted; one whose row cannot be read is failed.
    pub state: RunState,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// Names of the targets, in the plan's order.
    pub targets: Vec<String>,
    /// Host name of the machine; `None` if unknown.
    pub machine: Option<String>,
    /// The fleet and member that the run belongs to; `None` for a run outside of fleets.
    pub fleet: Option<FleetMember>,
    /// Tags that users added to the run, sorted.
    pub tags: Vec<String>,
    /// Number of the run's measurements that are stored.
    pub measured: u64,
    /// Number of planned measurements. If the run adds rounds, this is the maximum until the run is complete, then the actual number. For a
    /// search (`iotax ask`) and for a complete imported run it equals `measured`.
    pub planned: u64,
    /// The reason why the run, its measurements or its notes cannot be read; `None` if no damage was found.
    pub damage: Option<StoreError>,
}

/// The result of copying a run to another store, with the number of the copy there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// The other store did not have the run; it was added.
    Added {
        /// Number of the copy in the target store.
        run: i64,
        /// Number of measurements that were copied.
        measurements: u64,
    },
    /// The other store had an earlier state of the run; it was completed.
    Completed {
        /// Number of the completed copy in the target store.
        run: i64,
        /// Number of measurements that were added to the copy.
        measurements: u64,
    },
    /// The other store had the run; only its notes were missing or older, and were replaced.
    Noted {
        /// Number of the copy in the target store.
        run: i64,
    },
    /// The other store had the same or a later state of the run; nothing was changed.
    Same {
        /// Number of the copy in the target store.
        run: i64,
    },
}

/// A store that is open for reading or writing.
#[derive(Debug)]
pub struct Store {
    database: RefCell<Box<dyn Database>>,
    name: Option<String>,
}

/// Maximum number of lost runs (numbers without a row) that [`Store::runs`] lists.
const MOST_LOST: u32 = 1000;

/// A run's number, and its summary or the reason why its row is lost or cannot be read.
pub type Listed = (i64, Result<RunSummary, StoreError>);

impl Store {
    /// Opens a store for writing. Creates it if the file is missing or empty, or if the database has no store; migrates a store with an
    /// older schema version. The file's directory must exist.
    ///
    /// Rejects, without changing it, a file that is damaged, is no iotax store, has an unsupported version, or another user's journal.
    pub fn open(location: impl Into<Location>) -> Result<Self, StoreError> {
        let mut database: Box<dyn Database> = match location.into() {
            Location::File(path) => Box::new(Sqlite::to_write(&path)?),
            Location::Postgres(url) => Box::new(Postgres::to_write(&url)?),
        };
        let started = transact(database.as_mut(), Purpose::Write, &mut counter::start);
        started.map_err(|fault| database.public_error(None, fault))?;
        Ok(Self::over(database))
    }

    /// Opens a store of the current schema version to read, also on a read-only filesystem. In a damaged store, intact runs can be read.
    pub fn open_to_read(location: impl Into<Location>) -> Result<Self, StoreError> {
        Ok(Self::over(match location.into() {
            Location::File(path) => Box::new(Sqlite::to_read(&path)?),
            Location::Postgres(url) => Box::new(Postgres::to_read(&url)?),
        }))
    }

    fn over(database: Box<dyn Database>) -> Self {
        Self { database: RefCell::new(database), name: None }
    }

    /// Returns the location of the store.
    pub fn location(&self) -> Location {
        self.database.borrow().location().clone()
    }

    /// Creates a run and returns its number.
    pub fn create_run(&mut self, run: &NewRun<'_>) -> Result<i64, StoreError> {
        let created = new_uuid().and_then(|uuid| {
            let head = Head {
                uuid,
                revision: 1,
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
            let row = HeadRow::new(&head)?;
            insist(self.database.get_mut().as_mut(), Purpose::Write, &mut |database| {
                let sql = "SELECT id FROM run WHERE uuid = $1";
                if let Some(mut there) = database.query(sql, &[head.uuid.as_str().into()])?.pop() {
                    return there.int();
                }
                let id = counter::next(database)?;
                row.insert(database, id)?;
                Ok(id)
            })
        });
        created.map_err(|fault| self.database.borrow().public_error(None, fault))
    }

    /// Claims a run for this process until the returned claim is dropped. Two processes that work on one run would disturb each other's
    /// measurements. Fails if the run is already claimed, also by this process, or belongs to another user of the database.
    pub fn claim(&self, run: i64) -> Result<Claim, StoreError> {
        let claimed = self.database.borrow_mut().claim(run);
        claimed.map_err(|fault| self.of_run(run, fault))
    }

    /// Stores the hardware and software of the machine that executes the run.
    pub fn set_environment(&mut self, run: i64, environment: &Environment) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            head.environment = environment.clone();
            Ok(())
        })
    }

    /// Records the tool and file from which the run was imported.
    pub fn set_source(&mut self, run: i64, source: &ImportSource) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            head.source = Some(source.clone());
            Ok(())
        })
    }

    /// Adds wall-clock times of phases to the run. Times of a phase that the run already has are added up.
    pub fn add_phases(&mut self, run: i64, phases: &[RunPhase]) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            for phase in phases {
                match head.phases.iter_mut().find(|known| known.name == phase.name) {
                    Some(known) => known.duration_ns += phase.duration_ns,
                    None => head.phases.push(phase.clone()),
                }
            }
            Ok(())
        })
    }

    /// Stores a target as it was built. Replaces an earlier record of this target, as after the run was resumed.
    pub fn put_target(&mut self, run: i64, target: &TargetRecord) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            match head.targets.iter_mut().find(|known| known.name == target.name) {
                Some(known) => known.clone_from(target),
                None => head.targets.push(target.clone()),
            }
            let planned = &head.plan.targets;
            head.targets.sort_by_key(|record| planned.iter().position(|spec| spec.name == record.name));
            Ok(())
        })
    }

    /// Stores one measurement, like [`Self::put_measurements`].
    pub fn put_measurement(&mut self, run: i64, measurement: &Measurement) -> Result<(), StoreError> {
        self.put_measurements(run, std::iter::once(measurement))
    }

    /// Stores measurements, all or none; they are on disk when this returns. Removes the warnings about failed
    /// earlier attempts at them. Fails if the run already has a measurement of the same target, workload and round.
    pub fn put_measurements(
        &mut self,
        run: i64,
        measurements: impl IntoIterator<Item: Borrow<Measurement>>,
    ) -> Result<(), StoreError> {
        let (mut rows, mut cells) = (Vec::new(), Vec::new());
        for m in measurements {
            let m = m.borrow();
            rows.push(MeasurementRow::new(m).map_err(|fault| self.of_run(run, fault))?);
            cells.push((m.target.clone(), m.workload.clone(), m.round));
        }
        self.change(run, &rows, |head| {
            for (target, workload, round) in &cells {
                head.warnings.retain(|warning| !is_made_up_for(warning, (target, workload, *round)));
            }
            rows.iter().for_each(|row| head.measured.add(row.identity()));
            Ok(())
        })
    }

    /// Stores a warning, unless the run already has an equal one.
    pub fn put_warning(&mut self, run: i64, warning: &Warning) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            if !head.warnings.contains(warning) {
                head.warnings.push(warning.clone());
            }
            Ok(())
        })
    }

    /// Sets a run's state. If the run no longer runs, also removes its published progress.
    pub fn set_state(&mut self, run: i64, state: RunState) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            head.state = state;
            Ok(())
        })?;
        if state != RunState::Running {
            self.database.get_mut().end_live(run);
        }
        Ok(())
    }

    /// Sets the number of rounds in the run's plan. Fails if the plan is invalid with it.
    pub fn set_repeat(&mut self, run: i64, repeat: u32) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            head.plan.repeat = repeat;
            head.plan.check().map_err(|error| Fault::value("plan", &error))
        })
    }

    /// Replaces the run's plan, for example by one with rates that the run has determined. Fails if the new plan is invalid.
    pub fn set_plan(&mut self, run: i64, plan: &Plan) -> Result<(), StoreError> {
        self.change(run, &[], |head| {
            head.plan = plan.clone();
            head.plan.check().map_err(|error| Fault::value("plan", &error))
        })
    }

    /// Loads a run with its measurements and checks their checksums. A run stored as running that no process has claimed is interrupted.
    pub fn load(&self, run: i64) -> Result<Run, StoreError> {
        let (sealed, is_claimed) = self.read(run, &mut |database| {
            let sealed = Sealed::read(database, run)?.ok_or(Fault::Unknown)?;
            Ok((sealed, database.claimed(&[run])?.contains(&run)))
        })?;
        let (head, measurements) = sealed.open().map_err(|fault| self.of_run(run, fault))?;
        let state = summary::actual(head.state, is_claimed);
        Ok(Run { measurements, state, store: self.name.clone(), ..head.run(run) })
    }

    /// Loads a run without its measurements, and the figures that trends need. Uses stored figures without reading measurements; if they
    /// are missing or out of date, computes them from all measurements.
    pub fn load_figures(&self, run: i64) -> Result<(Run, RunFigures), StoreError> {
        self.read(run, &mut |database| run_figures::read(database, run))
    }

    /// Returns all runs, oldest first, and checks all checksums. A lost or damaged row gives an error; damaged measurements or notes set
    /// `damage`. Lists at most 1000 lost rows (numbers without a row), because a damaged counter could imply very many.
    pub fn runs(&self) -> Result<Vec<Listed>, StoreError> {
        let checked = |run| {
            let (sealed, is_claimed) = self.read(run, &mut |database| {
                let sealed = Sealed::read(database, run)?.ok_or(Fault::Unknown)?;
                Ok((sealed, database.claimed(&[run])?.contains(&run)))
            })?;
            let public = |fault| self.of_run(run, fault);
            let mut line = summary::Summary::new(&sealed.head).map_err(public)?.line(run, is_claimed);
            let notes = self.notes(run).map(|notes| line.tags = notes.tags);
            line.damage = sealed.check().err().map(public).or(notes.err());
            Ok(line)
        };
        let gone = |run| self.database.borrow().public_error(Some(run), Fault::Unknown);
        let (mut listed, mut next, mut named) = (Vec::new(), 1, 0..MOST_LOST);
        let mut lost = |runs: Range<i64>| {
            runs.zip(named.by_ref()).map(|(run, _)| (run, Err(gone(run)))).collect::<Vec<Listed>>()
        };
        for id in self.ids()? {
            listed.extend(lost(next..id));
            let line = checked(id).map_err(|error| match error {
                StoreError::UnknownRun { .. } => gone(id),
                other => other,
            });
            listed.push((id, line));
            next = id.saturating_add(1);
        }
        listed.extend(lost(next..self.last()?.saturating_add(1)));
        Ok(listed)
    }

    /// Returns the numbers of all runs that have a row, in ascending order.
    fn ids(&self) -> Result<Vec<i64>, StoreError> {
        let mut database = self.database.borrow_mut();
        let ids = insist(database.as_mut(), Purpose::Read, &mut |database| {
            let rows = database.query("SELECT id FROM run ORDER BY id", &[])?;
            rows.into_iter().map(|mut row| row.int()).collect()
        });
        ids.map_err(|fault| database.public_error(None, fault))
    }

    /// Returns the runs that match a filter, newest first. Reads no measurements. A run with a damaged row has only number and `damage`.
    pub fn list(&self, filter: &Filter) -> Result<Vec<RunSummary>, StoreError> {
        let mut database = self.database.borrow_mut();
        let lines = insist(database.as_mut(), Purpose::Read, &mut |database| summary::list(database, filter));
        let lines = lines.map_err(|fault| database.public_error(None, fault))?;
        let line = |(id, line): summary::Line| {
            line.unwrap_or_else(|fault| RunSummary::damaged(id, database.public_error(Some(id), fault)))
        };
        Ok(lines.into_iter().map(line).collect())
    }

    /// Returns the notes on a run; empty if there are none.
    pub fn notes(&self, run: i64) -> Result<Notes, StoreError> {
        let notes = self.read(run, &mut |database| notes::read(database, run))?;
        Ok(notes.map(|(notes, _)| notes).unwrap_or_default())
    }

    /// Replaces the notes on a run, also damaged ones.
    pub fn set_notes(&mut self, run: i64, notes: &Notes) -> Result<(), StoreError> {
        self.change_notes(run, |old| *old = notes.clone())
    }

    /// Changes the notes on a run with `change`, which may be called repeatedly. Keeps concurrent changes, replaces damaged notes.
    pub fn change_notes(&mut self, run: i64, mut change: impl FnMut(&mut Notes)) -> Result<(), StoreError> {
        let put = insist(self.database.get_mut().as_mut(), Purpose::Write, &mut |database| {
            notes::lock(database, run)?;
            let (old, at) = match notes::read(database, run) {
                // Anyone who may write notes can also damage them, so damaged notes are replaced.
                Err(Fault::Damaged(..)) => (None, 0),
                read => read?.map_or((Some(Notes::default()), 0), |(notes, at)| (Some(notes), at)),
            };
            let mut new = old.clone().unwrap_or_default();
            change(&mut new);
            if Some(&new) == old.as_ref() {
                return Ok(());
            }
            // Later than the replaced notes, even if the clock was set back.
            notes::put(database, run, &new, notes::now_ms().max(at.saturating_add(1)))
        });
        put.map_err(|fault| self.of_run(run, fault))
    }

    /// Publishes the progress of a run as a JSON document in place of the previous one, without waiting for a disk. With SQLite, only this
    /// user can read it.
    pub fn put_live(&mut self, run: i64, state: &serde_json::Value) -> Result<(), StoreError> {
        let put = self.database.get_mut().put_live(run, &state.to_string());
        put.map_err(|fault| self.of_run(run, fault))
    }

    /// Returns the published progress of a run; `None` if there is none, or if no process has claimed the run.
    pub fn live(&self, run: i64) -> Result<Option<serde_json::Value>, StoreError> {
        let live = self.read(run, &mut |database| {
            let is_claimed = database.claimed(&[run])?.contains(&run);
            if is_claimed { database.live(run) } else { Ok(None) }
        })?;
        Ok(live.and_then(|state| serde_json::from_str(&state).ok()))
    }

    /// Returns the number of the newest run; `None` if the store is empty.
    pub fn latest(&self) -> Result<Option<i64>, StoreError> {
        Ok(Some(self.last()?).filter(|last| *last > 0))
    }

    /// Copies a run with its notes to another store, completely or not at all. Completes an earlier copy; leaves a newer one unchanged.
    /// Fails if a process claims the run (its copy: for over 10 s), if both were continued, and if an incomplete copy is another user's.
    pub fn copy_run(&self, run: i64, to: &mut Self) -> Result<Copied, StoreError> {
        copy::copy(self, run, to)
    }

    /// Computes a checksum of a run and its notes: equal in stores with the same state of both. Fails if a process has claimed the run.
    pub fn fingerprint(&self, run: i64) -> Result<i64, StoreError> {
        copy::fingerprint(self, run)
    }

    fn last(&self) -> Result<i64, StoreError> {
        let mut database = self.database.borrow_mut();
        let last = insist(database.as_mut(), Purpose::Read, &mut counter::last);
        last.map_err(|fault| database.public_error(None, fault))
    }

    /// Runs a function that reads parts of a run, all in one snapshot.
    fn read<T>(
        &self,
        run: i64,
        read: &mut dyn FnMut(&mut dyn Database) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let read = insist(self.database.borrow_mut().as_mut(), Purpose::Read, read);
        read.map_err(|fault| self.of_run(run, fault))
    }

    /// Stores the trend figures of runs that an earlier iotax wrote without them.
    fn add_figures(&mut self) -> Result<(), StoreError> {
        self.ids()?.into_iter().try_for_each(|run| {
            let database = self.database.get_mut().as_mut();
            let added = insist(database, Purpose::Write, &mut |database| run_figures::add(database, run));
            added.map_err(|fault| self.of_run(run, fault))
        })
    }

    /// Changes a run's head with `change` and adds measurements, in one transaction.
    fn change(
        &mut self,
        run: i64,
        added: &[MeasurementRow],
        mut change: impl FnMut(&mut Head) -> Result<(), Fault>,
    ) -> Result<(), StoreError> {
        let mut attempted: Option<Vec<u8>> = None;
        let changed = insist(self.database.get_mut().as_mut(), Purpose::Write, &mut |database| {
            let suffix = database.to_change();
            let Some((mut head, row)) = HeadRow::read(database, run, suffix)? else {
                return Err(not_ours(database, run)?.unwrap_or(Fault::Unknown));
            };
            if attempted.as_ref() == Some(&row.content) {
                // The commit went through, and only the answer to it was lost.
                return Ok(());
            }
            head.revision += 1;
            change(&mut head)?;
            added.iter().try_for_each(|row| row.insert(database, run))?;
            let row = HeadRow::new(&head)?;
            row.update(database, run)?;
            run_figures::refresh(database, run, &head)?;
            attempted = Some(row.content);
            Ok(())
        });
        changed.map_err(|fault| self.of_run(run, fault))
    }

    /// Converts an internal error that concerns a run. A number without a row, up to the newest run's, is reported as a lost run, because
    /// only the newest run can be removed, and its number is then used again.
    fn of_run(&self, run: i64, fault: Fault) -> StoreError {
        match fault {
            Fault::Unknown => match self.last() {
                Ok(last) if !(1..=last).contains(&run) => self.unknown(run, last),
                _ => self.database.borrow().public_error(Some(run), Fault::Unknown),
            },
            fault => self.database.borrow().public_error(Some(run), fault),
        }
    }
}

impl RunSummary {
    /// Creates the list entry of a run that cannot be read.
    fn damaged(id: i64, damage: StoreError) -> Self {
        Self {
            id,
            name: String::new(),
            state: RunState::Failed,
            started_at_ms: 0,
            targets: Vec::new(),
            machine: None,
            fleet: None,
            tags: Vec::new(),
            measured: 0,
            planned: 0,
            damage: Some(damage),
        }
    }
}

/// Creates a random UUID (RFC 9562, version 4).
fn new_uuid() -> Result<String, Fault> {
    let mut bytes = [0_u8; 16];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Fault::value("random numbers", &error))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &hex[range]);
    Ok(parts.join("-"))
}
