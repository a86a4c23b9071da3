//! Follows one worker's I/Os: stamps and records what it writes, checks what it reads.

use std::sync::Arc;

use iotax_model::findings::Findings;

use super::Proof;
use super::judge::{Expected, judge};
use super::stamp::{Mark, seal};
use super::table::{Known, Table};
use crate::backend::Io;
use crate::pattern::Direction;

/// See the module.
#[derive(Debug)]
pub(crate) struct Witness {
    proof: Arc<Proof>,
    /// By slot, `per_slot` each. Of a write: its generation, then nothing. Of a read: the states of its blocks when it began.
    noted: Vec<u64>,
    per_slot: usize,
    findings: Findings,
}

impl Witness {
    /// For a worker of `slots` slots whose longest I/O has `longest` bytes.
    pub(crate) fn new(proof: Arc<Proof>, slots: usize, longest: u32) -> Self {
        let blocks = proof.table.as_ref().map_or(0, |table| u64::from(longest).div_ceil(table.block()));
        let per_slot = usize::try_from(blocks).unwrap_or(usize::MAX).max(1);
        Self { proof, noted: vec![0; slots * per_slot], per_slot, findings: Findings::default() }
    }

    /// Whether the I/O may begin. If not, another has one of its blocks: ask again when I/O was done.
    pub(crate) fn admits(&mut self, slot: usize, io: &Io) -> bool {
        let noted = &mut self.noted[slot * self.per_slot..][..self.per_slot];
        let Some(table) = &self.proof.table else { return true };
        match io.direction {
            Direction::Write => table.claim(io).is_some_and(|generation| {
                noted[0] = generation;
                true
            }),
            Direction::Read => {
                noted.iter_mut().zip(table.look(io)).for_each(|(noted, state)| *noted = state);
                true
            }
        }
    }

    /// Stamps a write that was admitted.
    pub(crate) fn seal(&self, slot: usize, io: &Io, buffer: &mut [u8]) {
        let generation = self.noted[slot * self.per_slot];
        seal(buffer, io, self.proof.mark(generation), self.proof.verify);
    }

    /// Takes note of how an admitted I/O ended; `buffer` is cut to its length.
    pub(crate) fn done(&mut self, slot: usize, io: &Io, success: bool, buffer: &[u8]) {
        match io.direction {
            Direction::Write => {
                let Some(table) = &self.proof.table else { return };
                let generation = success.then_some(self.noted[slot * self.per_slot]);
                if let (Some(journal), Some(generation)) = (&self.proof.journal, generation) {
                    // Before the next write of the block can begin: the journal has the writes of a block in order.
                    journal.write(io, generation);
                }
                table.release(io, generation);
            }
            Direction::Read if success => self.check(slot, io, buffer),
            Direction::Read => {}
        }
    }

    /// Checks what was read: against the table where this measurement has written, else on its own. A block that was written
    /// meanwhile is passed over: the read may have met either content, or parts of both.
    fn check(&mut self, slot: usize, io: &Io, buffer: &[u8]) {
        let Some(table) = &self.proof.table else {
            return self.findings.add(judge(buffer, io.offset, Expected::Anything), io.offset);
        };
        let block = usize::try_from(table.block()).unwrap_or(usize::MAX);
        let noted = &self.noted[slot * self.per_slot..];
        let places = (io.offset..).step_by(block).zip(buffer.chunks(block));
        for (((offset, content), then), now) in places.zip(noted).zip(table.look(io)) {
            if let (Known::Holds(generation), true) = (Table::known(now), *then == now) {
                let expected = Expected::This(self.proof.mark(generation));
                self.findings.add(judge(content, offset, expected), offset);
            }
        }
    }

    /// What the checks found.
    pub(crate) fn finish(self) -> Findings {
        self.findings
    }
}
