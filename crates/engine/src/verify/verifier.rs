//! Verifies one worker's I/Os: stamps and records writes, checks reads.

use std::sync::Arc;

use iotax_load::request::{Io, IoKind};
use iotax_model::verify_errors::Findings;

use super::Verification;
use super::judge::{Expected, judge};
use super::stamp::write_stamps;
use super::table::{Known, Table};
use crate::pattern::Pattern;

/// Verifier that stamps, records and checks the I/Os of one worker.
#[derive(Debug)]
pub(crate) struct Verifier {
    verification: Arc<Verification>,
    /// State of the I/O in each slot, `per_slot` numbers each: the generation of a write, the table entries that a read's blocks had when it
    /// began, or the number of journal records when a flush began.
    noted: Vec<u64>,
    per_slot: usize,
    /// An I/O that is held back because another write has claimed one of its blocks; `None` if no I/O is held back.
    held: Option<Io>,
    findings: Findings,
}

/// The next step of a worker with verification.
#[derive(Debug)]
pub(crate) enum Next {
    /// The next I/O to start; `None` at the end of the pattern.
    Io(Option<Io>),
    /// The next I/O would write a block that another write has claimed; ask again later.
    Wait,
}

impl Verifier {
    /// Creates the verifier of a worker with `slots` slots and I/Os of at most `longest` bytes.
    pub(crate) fn new(verification: Arc<Verification>, slots: usize, longest: usize) -> Self {
        let per_slot = verification.table.as_ref().map_or(1, |table| longest.div_ceil(table.block_length()));
        Self {
            verification,
            noted: vec![0; slots * per_slot],
            per_slot,
            held: None,
            findings: Findings::default(),
        }
    }

    /// Draws the next I/O of the pattern for a slot, and claims the blocks if it is a write or trim.
    pub(crate) fn next(&mut self, slot: usize, pattern: &mut Pattern) -> Next {
        let Some(io) = self.held.take().or_else(|| pattern.next()) else { return Next::Io(None) };
        if self.admits(slot, &io) {
            Next::Io(Some(io))
        } else {
            self.held = Some(io);
            Next::Wait
        }
    }

    fn admits(&mut self, slot: usize, io: &Io) -> bool {
        let Some(table) = &self.verification.table else { return true };
        let noted = &mut self.noted[slot * self.per_slot..][..self.per_slot];
        match io.direction {
            IoKind::Write | IoKind::DurableWrite | IoKind::Trim => {
                let Some(generation) = table.claim(io) else { return false };
                noted[0] = generation;
            }
            IoKind::Read => {
                noted.iter_mut().zip(table.entries_of(io)).for_each(|(noted, state)| *noted = state);
            }
            // sync_file_range(2) makes nothing durable.
            IoKind::RangeSync(_) => {}
            IoKind::Sync | IoKind::DataSync => {
                if let Some(journal) = &self.verification.journal {
                    noted[0] = journal.records();
                }
            }
        }
        true
    }

    /// Stamps the buffer of a write whose blocks are claimed.
    pub(crate) fn stamp(&self, slot: usize, io: &Io, buffer: &mut [u8]) {
        let generation = self.noted[slot * self.per_slot];
        write_stamps(buffer, io, self.verification.mark(generation), self.verification.verify);
    }

    /// Handles the completion of an I/O: checks a read, records a write or flush. `result` is the kernel's: a byte count or a negative errno.
    /// Returns false if the write was acknowledged and the journal takes no record of it.
    pub(crate) fn done(&mut self, slot: usize, io: &Io, result: i32, buffer: &[u8]) -> bool {
        let success = result.cast_unsigned() == io.length;
        let noted = self.noted[slot * self.per_slot];
        let mut is_recorded = true;
        match (io.direction, &self.verification.table) {
            (IoKind::Read, _) if success => self.check(slot, io, &buffer[..io.length as usize]),
            (IoKind::Write | IoKind::DurableWrite, Some(table)) if success => {
                if let Some(journal) = &self.verification.journal {
                    // Before the next write of the block can begin, so that the journal has the writes of a block in order.
                    is_recorded = journal.write(io, noted);
                    if self.verification.safe {
                        journal.flush(journal.records());
                    }
                }
                table.release(io, Some(noted));
            }
            // A trimmed block, or one whose write failed, may read as anything.
            (IoKind::Write | IoKind::DurableWrite | IoKind::Trim, Some(table)) => {
                if let (Some(journal), true) = (&self.verification.journal, self.verification.safe) {
                    journal.distrust_flushes();
                }
                table.release(io, None);
            }
            (IoKind::Sync | IoKind::DataSync, _) if success => {
                if let Some(journal) = &self.verification.journal {
                    journal.flush(noted);
                }
            }
            (IoKind::Sync | IoKind::DataSync, _) => {
                if let Some(journal) = &self.verification.journal {
                    journal.distrust_flushes();
                }
            }
            _ => {}
        }
        is_recorded
    }

    /// Checks the data of a read against the last acknowledged write of each block or, if there is none, against the fill. If the content
    /// is unknown, a workload that does not write still checks its consistency; one that writes skips the block. Also skips a block that
    /// was written during the read, because the data may be old, new or a mixture.
    fn check(&mut self, slot: usize, io: &Io, buffer: &[u8]) {
        let Some(table) = &self.verification.table else {
            let expected = self.verification.expected(io.offset, io.length.into(), Known::Unwritten);
            let result = judge(buffer, io.offset, expected.unwrap_or(Expected::Anything));
            return self.findings.add(result, io.offset);
        };
        let block = table.block_length();
        let noted = &self.noted[slot * self.per_slot..];
        let blocks = (io.offset..).step_by(block).zip(buffer.chunks(block));
        for (((offset, content), then), now) in blocks.zip(noted).zip(table.entries_of(io)) {
            let expected = self.verification.expected(offset, table.block(), Table::known(now));
            if let (Some(expected), true) = (expected, *then == now) {
                self.findings.add(judge(content, offset, expected), offset);
            }
        }
    }

    /// Returns the findings of all checks.
    pub(crate) fn finish(self) -> Findings {
        self.findings
    }
}
