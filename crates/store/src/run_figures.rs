//! The figures of a run that trends need, in a separate row for each run that is not running, so that a trend does not read measurements.
//!
//! The figures are derived from the measurements. A row is used only if its checksum is right, it belongs to the run's latest revision, it
//! was computed by this version's rules and no measurement is missing; otherwise all measurements of the run are read.

use iotax_analysis::trend::RunFigures;
use iotax_model::{Run, RunState};

use crate::database::Database;
use crate::error::Fault;
use crate::head::{Head, seal};
use crate::sealed::{HeadRow, Sealed, pack, unpack};
use crate::{Store, StoreError};

/// Recomputes and stores the figures of a run that is not running. If the run cannot be read, removes its figures.
pub(crate) fn refresh(database: &mut dyn Database, run: i64, head: &Head) -> Result<(), Fault> {
    if head.state == RunState::Running {
        return Ok(());
    }
    let opened = Sealed::read(database, run)?.ok_or(Fault::Unknown)?.open();
    let Ok((head, measurements)) = opened else {
        return database.execute("DELETE FROM run_figures WHERE run = $1", &[run.into()]).map(|_| ());
    };
    let (revision, rules) = (revision(&head)?, i64::from(RunFigures::RULES));
    let content = pack("figures", &RunFigures::all(&Run { measurements, ..head.run(run) }))?;
    let sealed = sealed_by(run, revision, rules, &content);
    let sql = "INSERT INTO run_figures (run, revision, rules, content, seal) VALUES ($1, $2, $3, $4, $5) \
               ON CONFLICT (run) DO UPDATE SET revision = excluded.revision, rules = excluded.rules, \
               content = excluded.content, seal = excluded.seal";
    let values = [run.into(), revision.into(), rules.into(), content.as_slice().into(), sealed.into()];
    database.execute(sql, &values).map(|_| ())
}

/// Computes and stores the trend figures of a run whose stored ones are missing or invalid.
pub(crate) fn add(database: &mut dyn Database, run: i64) -> Result<(), Fault> {
    match HeadRow::read(database, run, "") {
        Ok(Some((head, _))) if stored(database, run, &head)?.is_none() => refresh(database, run, &head),
        // A lost or damaged run has no figures.
        Ok(_) | Err(Fault::Damaged(..)) => Ok(()),
        Err(other) => Err(other),
    }
}

impl Store {
    /// Loads a run without its measurements and figures. Does not find out if a run stored as running has been interrupted.
    pub fn load_head(&self, run: i64) -> Result<Run, StoreError> {
        self.read(run, &mut |database| {
            let (head, _) = HeadRow::read(database, run, "")?.ok_or(Fault::Unknown)?;
            Ok(head.run(run))
        })
    }
}

/// Reads a run without its measurements, and its figures.
pub(crate) fn read(database: &mut dyn Database, run: i64) -> Result<(Run, RunFigures), Fault> {
    let (head, _) = HeadRow::read(database, run, "")?.ok_or(Fault::Unknown)?;
    if let Some(figures) = stored(database, run, &head)? {
        return Ok((head.run(run), figures));
    }
    let sealed = Sealed::read(database, run)?.ok_or(Fault::Unknown)?;
    let (head, measurements) = sealed.open()?;
    let whole = Run { measurements, ..head.run(run) };
    let figures = RunFigures::all(&whole);
    Ok((Run { measurements: Vec::new(), ..whole }, figures))
}

/// Returns the stored figures; `None` if they are missing, damaged or out of date, or if a measurement is missing.
fn stored(database: &mut dyn Database, run: i64, head: &Head) -> Result<Option<RunFigures>, Fault> {
    let sql = "SELECT revision, rules, content, seal, (SELECT count(*) FROM measurement WHERE run = $1) \
               FROM run_figures WHERE run = $1";
    let Some(mut row) = database.query(sql, &[run.into()])?.pop() else { return Ok(None) };
    let (of, rules, content, sealed, count) = (row.int()?, row.int()?, row.bytes()?, row.int()?, row.int()?);
    let is_current = of == revision(head)?
        && rules == i64::from(RunFigures::RULES)
        && count.cast_unsigned() == head.measured.count
        && sealed == sealed_by(run, of, rules, &content);
    Ok(is_current.then(|| unpack(&content).ok()).flatten())
}

fn revision(head: &Head) -> Result<i64, Fault> {
    i64::try_from(head.revision).map_err(|error| Fault::value("run", &error))
}

fn sealed_by(run: i64, revision: i64, rules: i64, content: &[u8]) -> i64 {
    seal(run, &[&revision.to_le_bytes(), &rules.to_le_bytes(), content])
}
