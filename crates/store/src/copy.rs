//! Copies runs between stores without loss, each run in one transaction. Copying an unchanged run again changes nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::database::{Database, Purpose, insist};
use crate::error::{Fault, StoreError};
use crate::head::seal;
use crate::sealed::{HeadRow, MeasurementRow, Sealed};
use crate::{Copied, Notes, Store, counter, not_ours, notes, run_figures};
use iotax_model::threads;

/// A run with its notes, packed for another store.
struct Parcel {
    run: i64,
    sealed: Sealed,
    notes: Option<(Notes, i64)>,
}

/// Maximum time to wait for another process that copies the same run.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Copies a run to another store, or completes an existing copy. Fails if a process has claimed the run, if both were continued since they
/// were copied, or if the copy is incomplete and belongs to another user. Waits up to 10 s for a process that has claimed the copy, such as
/// one that copies the same run.
pub(crate) fn copy(from: &Store, run: i64, to: &mut Store) -> Result<Copied, StoreError> {
    let parcel = from.read(run, &mut |database| pack(database, run))?;
    let mut done = None;
    let mut claim = None;
    let target = to.database.get_mut();
    let mut attempt = || {
        insist(target.as_mut(), Purpose::Write, &mut |database| {
            let copied = match copy_of(database, &parcel)? {
                None => add(database, &parcel),
                Some(id) => {
                    let not_ours = not_ours(database, id)?;
                    // Claim the copy, so that no other process continues it meanwhile.
                    if claim.is_none() && not_ours.is_none() {
                        claim = Some(database.claim(id)?);
                    }
                    complete(database, &parcel, id, not_ours)
                }
            }?;
            // If the connection was lost after the commit, the second attempt finds the copy complete. Return the result of the first
            // attempt.
            Ok(*done.get_or_insert(copied))
        })
    };
    let end = Instant::now() + PATIENCE;
    let copied = loop {
        match attempt() {
            // Another process that copies the same run claims the copy briefly.
            Err(Fault::Store(StoreError::Claimed { .. })) if Instant::now() < end => threads::sleep(PAUSE),
            other => break other,
        }
    };
    copied.map_err(|fault| to.of_run(run, fault))
}

fn pack(database: &mut dyn Database, run: i64) -> Result<Parcel, Fault> {
    if database.claimed(&[run])?.contains(&run) {
        return Err(Fault::Store(StoreError::Claimed { run }));
    }
    let sealed = Sealed::read(database, run)?.ok_or(Fault::Unknown)?;
    sealed.check()?;
    Ok(Parcel { run, sealed, notes: notes::read(database, run)? })
}

/// Returns the number of the run's copy in the target store; `None` if there is none. Locks the counter, so that other processes cannot add
/// runs meanwhile.
fn copy_of(database: &mut dyn Database, parcel: &Parcel) -> Result<Option<i64>, Fault> {
    counter::lock(database)?;
    let uuid = parcel.sealed.head.uuid.as_str().into();
    let found = database.query("SELECT id FROM run WHERE uuid = $1", &[uuid])?.pop();
    found.map(|mut row| row.int()).transpose()
}

fn add(database: &mut dyn Database, parcel: &Parcel) -> Result<Copied, Fault> {
    let id = counter::next(database)?;
    let Sealed { head, head_row, rows } = &parcel.sealed;
    head_row.insert(database, id)?;
    rows.iter().try_for_each(|(row, _)| row.insert(database, id))?;
    run_figures::refresh(database, id, head)?;
    if let Some((notes, changed_at_ms)) = &parcel.notes {
        notes::put(database, id, notes, *changed_at_ms)?;
    }
    Ok(Copied::Added { run: id, measurements: rows.len() as u64 })
}

/// Adds the measurements and notes that an existing copy lacks. If both have notes, the later ones are kept. `not_ours` is the error if
/// this user may change only the notes of the copy.
fn complete(
    database: &mut dyn Database,
    parcel: &Parcel,
    id: i64,
    not_ours: Option<Fault>,
) -> Result<Copied, Fault> {
    let suffix = if not_ours.is_some() { "" } else { database.to_change() };
    let (head, _) = HeadRow::read(database, id, suffix)?.ok_or(Fault::Unknown)?;
    let there = MeasurementRow::all(database, id)?;
    let sealed = &parcel.sealed;
    let key = |row: &MeasurementRow| (row.target.clone(), row.workload.clone(), row.round);
    let theirs: BTreeMap<_, _> = there.iter().map(|(row, _)| (key(row), row)).collect();
    let ours: BTreeMap<_, _> = sealed.rows.iter().map(|(row, _)| (key(row), row)).collect();
    let missing: Vec<&MeasurementRow> =
        ours.iter().filter(|(key, row)| theirs.get(key) != Some(row)).map(|(_, row)| *row).collect();
    let differs = missing.iter().any(|row| theirs.contains_key(&key(row)));
    let has_more = theirs.keys().any(|key| !ours.contains_key(key));
    if differs || (has_more && !missing.is_empty()) {
        let location = database.location().clone();
        return Err(Fault::Store(StoreError::Diverged { run: parcel.run, copy: id, location }));
    }
    let grown = !missing.is_empty() || (!has_more && head.revision < sealed.head.revision);
    if grown {
        not_ours.map_or(Ok(()), Err)?;
        missing.iter().try_for_each(|row| row.insert(database, id))?;
        sealed.head_row.update(database, id)?;
        run_figures::refresh(database, id, &sealed.head)?;
    }
    let noted = match (&parcel.notes, notes::read(database, id)?) {
        (Some((notes, at)), there) if there.as_ref().is_none_or(|(_, earlier)| earlier < at) => {
            notes::put(database, id, notes, *at)?;
            true
        }
        _ => false,
    };
    Ok(if grown {
        Copied::Completed { run: id, measurements: missing.len() as u64 }
    } else if noted {
        Copied::Noted { run: id }
    } else {
        Copied::Same { run: id }
    })
}

/// Computes a checksum of a run and its notes. It is the same in every store that has the same state of both.
pub(crate) fn fingerprint(store: &Store, run: i64) -> Result<i64, StoreError> {
    let Parcel { sealed, notes, .. } = store.read(run, &mut |database| pack(database, run))?;
    let measured = serde_json::to_vec(&sealed.head.measured).unwrap_or_default();
    let (text, at) = notes.map_or_else(Default::default, |(notes, at)| {
        (format!("{}\0{}", notes.tags.join("\0"), notes.text), at)
    });
    Ok(seal(0, &[&sealed.head_row.content, &measured, text.as_bytes(), &at.to_le_bytes()]))
}
