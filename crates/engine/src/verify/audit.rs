//! Compares a target with the journal of the writes that the target has acknowledged.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use iotax_load::error::EngineError;
use iotax_model::verify_errors::{FaultKind, Recovery};
use iotax_model::workload::SyncMode;

use super::journal::{self, Record};
use super::judge::{Expected, judge, oldest_generation};
use super::scan::scan;
use super::stamp::Mark;
use crate::open::{self, Access};
use crate::page_cache::drop_pages_of;

/// The last acknowledged write of a block and the last one that was flushed, by their generation; 0 if there is none.
#[derive(Debug, Default)]
struct Last {
    acknowledged: u64,
    durable: u64,
    /// Number of writes that the journal has before the last acknowledged one.
    before: u64,
}

/// Compares a target's content with the journal of its acknowledged writes (the workload's `write_journal`). Writes nothing to the target. A
/// block may hold a write that is later than the last recorded one, or a part of such a write: it was in flight when the machine stopped. Takes
/// some 48 bytes of memory for each block that was written, and 24 for each that is at fault.
///
/// # Errors
/// A journal that cannot be read or is none, and a target that cannot be opened. A block that cannot be read counts as a finding, not as an
/// error.
pub fn audit(path: &Path, journal: &Path) -> Result<Recovery, EngineError> {
    let unread =
        |error| EngineError::System { doing: format!("reading the journal {}", journal.display()), error };
    // The journal is read twice, because a flush comes after the writes that it covers.
    let (mut durable_records, mut last_flush) = (0, None);
    let (header, _) = journal::read(journal, &mut |_, record| {
        if let Record::Flush { records, after } = record {
            durable_records = records.max(durable_records);
            last_flush = last_flush.max(Some(after));
        }
    })
    .map_err(unread)?;
    let step = usize::try_from(header.block).unwrap_or(usize::MAX);
    let mut recovery = Recovery { last_flush, ..Recovery::default() };
    let mut blocks: BTreeMap<u64, Last> = BTreeMap::new();
    // Writes are numbered when they begin and recorded when they end: the difference is the number in flight.
    let mut in_flight = 0;
    let (_, state) = journal::read(journal, &mut |number, record| {
        let Record::Write { offset, length, generation } = record else { return };
        let is_durable = number < durable_records;
        let before = recovery.writes;
        in_flight = in_flight.max(generation.saturating_sub(before));
        recovery.writes += 1;
        recovery.durable_writes += u64::from(is_durable);
        for block in (offset..offset + u64::from(length)).step_by(step) {
            let last = blocks.entry(block).or_default();
            (last.acknowledged, last.before) = (generation, before);
            if is_durable {
                last.durable = generation;
            }
        }
    })
    .map_err(unread)?;
    recovery.journal = state;
    let read_only = Access {
        write: false,
        direct: false,
        sync: SyncMode::None,
        shared: false,
        identity: None,
        queue_size: None,
    };
    let mut target = open::directly_if_possible(path, read_only)?;
    if target.direct_unit().is_some_and(|unit| !header.block.is_multiple_of(unit)) {
        target = open::open(path, read_only).map_err(open::at_path(path))?;
    }
    // Best effort: a target that cannot be synced, as on a read-only mount, has nothing to sync.
    let _ = drop_pages_of(&target);
    let (mut newest, mut stale) = (0, Vec::new());
    // Of each block at fault the generation of the oldest write in it.
    let mut held: BTreeMap<u64, u64> = BTreeMap::new();
    let since = |generation| Expected::Since(Mark { run: header.run, generation });
    scan(&target, header.block, blocks.keys().copied(), &mut |offset, content| {
        let last = &blocks[&offset];
        let judge = |generation| {
            content.map_or(Err(FaultKind::Unreadable), |content| judge(content, offset, since(generation)))
        };
        let result = judge(last.acknowledged);
        recovery.findings.add(result, offset);
        match result {
            Ok(()) => newest = newest.max(last.acknowledged),
            Err(FaultKind::LostWrite) => stale.push(last.before),
            Err(_) => {}
        }
        if result.is_err() {
            held.insert(offset, content.map_or(0, |content| oldest_generation(content, offset, header.run)));
        }
        if last.durable > 0 {
            recovery.durable.add(result.or_else(|_| judge(last.durable)), offset);
        }
    })?;
    // When a write was acknowledged, writes with numbers beyond those in flight had not begun.
    let is_reordered = |before: &&u64| newest > *before + 1 + in_flight;
    recovery.reordered = stale.iter().filter(is_reordered).count() as u64;
    if !held.is_empty() {
        recovery.lost_from = first_missing(journal, &held).map_err(unread)?;
    }
    Ok(recovery)
}

/// Returns the number of writes that the journal has before the first one that is missing: a write to a block in `held` with a later
/// generation than the one there.
fn first_missing(journal: &Path, held: &BTreeMap<u64, u64>) -> io::Result<Option<u64>> {
    let (mut writes, mut first) = (0, None);
    journal::read(journal, &mut |_, record| {
        let Record::Write { offset, length, generation } = record else { return };
        let blocks = || held.range(offset..offset + u64::from(length));
        if first.is_none() && blocks().any(|(_, held)| generation > *held) {
            first = Some(writes);
        }
        writes += 1;
    })?;
    Ok(first)
}

#[cfg(test)]
mod tests;
