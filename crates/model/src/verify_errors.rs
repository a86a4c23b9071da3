//! What checking the blocks of a target found.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;
use crate::words::words;

words! {
    /// How a block is not what it ought to be.
    FaultKind, "fault" {
        /// Bytes differ from those that were written there.
        Corrupt = "corrupt",
        /// An acknowledged write is not there: an earlier one is, the fill, or a hole.
        LostWrite = "lost_write",
        /// What is there was written to another offset.
        Misdirected = "misdirected",
        /// A part of it is of one write and a part of another.
        Torn = "torn",
        /// Nothing in it was written by a workload that verifies.
        Foreign = "foreign",
        /// It cannot be read.
        Unreadable = "unreadable",
    }
}

/// How many offsets of one kind are kept, beside the highest.
const LOWEST: usize = 4;

/// Blocks with the same fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What is wrong.
    pub kind: FaultKind,
    /// How many checks found it.
    pub count: u64,
    /// Byte offsets of the first blocks on the target that have it, ascending, at most 4.
    pub first_offsets: Vec<u64>,
    /// Byte offset of the last block on the target that has it.
    pub last_offset: u64,
}

/// `3 x torn, at bytes 0, 4096 and 8192`; of more, the first and the last.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offsets: Vec<String> = self.first_offsets.iter().map(u64::to_string).collect();
        write!(f, "{} x {}, at byte{} ", self.count, self.kind, if offsets.len() > 1 { "s" } else { "" })?;
        match offsets.as_slice() {
            known if self.first_offsets.last() < Some(&self.last_offset) => {
                write!(f, "{} ... {}", known.join(", "), self.last_offset)
            }
            [all @ .., last] if !all.is_empty() => write!(f, "{} and {last}", all.join(", ")),
            known => f.write_str(&known.join(", ")),
        }
    }
}

/// What was checked and what was found. A block that is read twice is checked twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// Blocks that were checked.
    pub checked: u64,
    /// Blocks that could not be checked, because the last write to them failed or never returned: they may hold anything.
    pub uncertain: u64,
    /// By kind, in the order of [`FaultKind`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub faults: Vec<Fault>,
}

impl Findings {
    /// Counts one check of the block at `offset`.
    pub fn add(&mut self, result: Result<(), FaultKind>, offset: u64) {
        self.checked += 1;
        if let Err(kind) = result {
            self.put(Fault { kind, count: 1, first_offsets: vec![offset], last_offset: offset });
        }
    }

    /// Adds other findings on the same target.
    pub fn merge(&mut self, other: Self) {
        self.checked += other.checked;
        self.uncertain += other.uncertain;
        other.faults.into_iter().for_each(|fault| self.put(fault));
    }

    /// Blocks with a fault.
    #[must_use]
    pub fn faulty(&self) -> u64 {
        self.faults.iter().map(|fault| fault.count).sum()
    }

    fn put(&mut self, fault: Fault) {
        match self.faults.binary_search_by_key(&(fault.kind as u8), |known| known.kind as u8) {
            Ok(place) => {
                let known = &mut self.faults[place];
                known.count += fault.count;
                known.first_offsets.extend(fault.first_offsets);
                known.first_offsets.sort_unstable();
                known.first_offsets.dedup();
                known.first_offsets.truncate(LOWEST);
                known.last_offset = known.last_offset.max(fault.last_offset);
            }
            Err(place) => self.faults.insert(place, fault),
        }
    }
}

/// How the header of a journal of acknowledged writes begins, which stands before each of its batches.
pub const JOURNAL_MAGIC: [u8; 8] = *b"iojHnal1";

/// The most bytes of a journal from one header to the next.
pub const JOURNAL_BATCH: usize = (4 << 20) + 160;

/// Where a journal is not what was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalDamage {
    /// Places where bytes are wrong or missing.
    pub places: u64,
    /// Byte offsets of the first of them in the journal, ascending, at most 4.
    pub first_offsets: Vec<u64>,
    /// Bytes that make no sense.
    pub bytes: u64,
    /// Records that are missing, as far as later ones tell.
    pub records: u64,
}

impl JournalDamage {
    /// Counts a place.
    pub fn add(&mut self, offset: u64, bytes: u64, records: u64) {
        self.places += 1;
        self.bytes += bytes;
        self.records = self.records.saturating_add(records);
        if self.first_offsets.len() < LOWEST {
            self.first_offsets.push(offset);
        }
    }
}

/// `1 place, at its byte 4040: 40 bytes make no sense and 1 record is lost`
impl fmt::Display for JournalDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { places, bytes, records, .. } = self;
        let offsets: Vec<String> = self.first_offsets.iter().map(u64::to_string).collect();
        let more = if *places > offsets.len() as u64 { " ..." } else { "" };
        let s = |count: u64| if count == 1 { "" } else { "s" };
        write!(f, "{places} place{}, at its byte{} {}{more}: ", s(*places), s(*places), offsets.join(", "))?;
        write!(
            f,
            "{bytes} byte{} make no sense and {records} record{} lost",
            s(*bytes),
            if *records == 1 { " is" } else { "s are" }
        )
    }
}

/// What can be relied on in a journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalState {
    /// It was closed in order, and tells how many records there are.
    pub closed: bool,
    /// Bytes at its end that were being written when the machine stopped: they tell nothing.
    pub torn_tail: Bytes,
    /// What a crash does not explain.
    pub damage: JournalDamage,
}

/// What a target still holds of what it acknowledged, by the journal of its writes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// Acknowledged writes on record.
    pub writes: u64,
    /// Those of them that a later flush, acknowledged too, made durable.
    pub durable_writes: u64,
    /// How much of the journal is there.
    pub journal: JournalState,
    /// The blocks of all those writes, judged by the last acknowledged write of each.
    pub findings: Findings,
    /// The blocks that hold durable writes, judged by the last durable write of each: what is missing here was promised.
    pub durable: Findings,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_add_up_and_keep_the_outermost_offsets() {
        let mut one = Findings::default();
        one.add(Ok(()), 0);
        for offset in [9, 3, 7, 3] {
            one.add(Err(FaultKind::Torn), offset);
        }
        let mut two = Findings { uncertain: 2, ..Findings::default() };
        for offset in [1, 12, 5] {
            two.add(Err(FaultKind::Torn), offset);
        }
        two.add(Err(FaultKind::Corrupt), 4);
        one.merge(two);
        let fault = |kind, count, first_offsets: &[u64], last_offset| Fault {
            kind,
            count,
            first_offsets: first_offsets.to_vec(),
            last_offset,
        };
        assert_eq!(
            one,
            Findings {
                checked: 9,
                uncertain: 2,
                faults: vec![
                    fault(FaultKind::Corrupt, 1, &[4], 4),
                    fault(FaultKind::Torn, 7, &[1, 3, 5, 7], 12)
                ],
            }
        );
        assert_eq!(one.faulty(), 8);
        let words: Vec<String> = one.faults.iter().map(ToString::to_string).collect();
        assert_eq!(words, ["1 x corrupt, at byte 4", "7 x torn, at bytes 1, 3, 5, 7 ... 12"]);
        let few = fault(FaultKind::LostWrite, 3, &[1, 2, 3], 3);
        assert_eq!(few.to_string(), "3 x lost_write, at bytes 1, 2 and 3");
    }
}
