//! The results of verification: the faults found in blocks, and the state of the write journal.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Nanos};
use crate::words::words;

words! {
    /// The fault of a block.
    FaultKind, "fault" {
        /// Bytes differ from those written.
        Corrupt = "corrupt",
        /// An acknowledged write is missing: the block holds an earlier write, the fill, or a hole.
        LostWrite = "lost_write",
        /// The block holds data that was written to another offset.
        Misdirected = "misdirected",
        /// The block mixes two writes.
        Torn = "torn",
        /// No verifying workload wrote the block.
        Foreign = "foreign",
        /// The block cannot be read.
        Unreadable = "unreadable",
    }
}

/// Maximum number of lowest offsets that are kept per kind of fault; the highest offset is kept too.
const LOWEST: usize = 4;

/// Blocks with the same fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// Number of checks that found this fault.
    pub count: u64,
    /// Lowest byte offsets of the faulty blocks on the target, ascending, at most 4.
    pub first_offsets: Vec<u64>,
    /// Highest byte offset of a faulty block on the target.
    pub last_offset: u64,
}

/// Prints as `3 x torn, at bytes 0, 4096 and 8192`; with more faulty blocks, the lowest offsets and the highest.
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

/// Results of checking blocks: counts, and the faults found. A block that is read twice is checked twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Findings {
    /// Blocks checked.
    pub checked: u64,
    /// Blocks not checked, because the last write to them failed or never returned: their content is undefined.
    pub uncertain: u64,
    /// True if the final check of all written data failed before its end.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub unfinished: bool,
    /// State of a write journal that lacks acknowledged writes; absent if the journal is complete, or without a journal.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub journal: Option<IncompleteJournal>,
    /// Faulty blocks, one entry for each kind of fault, in the order of [`FaultKind`].
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub faults: Vec<Fault>,
}

/// A journal that lacks acknowledged writes, because writing to it failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncompleteJournal {
    /// Number of acknowledged writes that are certain to be in the journal.
    pub recorded: u64,
    /// Number of all acknowledged writes, in the journal or not.
    pub acknowledged: u64,
    /// Error of the system call that failed to write the journal.
    pub error: String,
}

/// Prints as `the journal has 2869 of 35000 acknowledged writes on record: No space left on device (os error 28)`.
impl fmt::Display for IncompleteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recorded, acknowledged, error } = self;
        write!(f, "the journal has {recorded} of {acknowledged} acknowledged writes on record: {error}")
    }
}

impl Findings {
    /// Counts one check of the block at byte `offset`, and the fault if the check found one.
    pub fn add(&mut self, result: Result<(), FaultKind>, offset: u64) {
        self.checked += 1;
        if let Err(kind) = result {
            self.put(Fault { kind, count: 1, first_offsets: vec![offset], last_offset: offset });
        }
    }

    /// Adds the results of another check of the same target.
    pub fn merge(&mut self, other: Self) {
        let Self { checked, uncertain, unfinished, journal, faults } = other;
        self.checked += checked;
        self.uncertain += uncertain;
        self.unfinished |= unfinished;
        self.journal = self.journal.take().or(journal);
        faults.into_iter().for_each(|fault| self.put(fault));
    }

    /// Returns the reason why the verification is incomplete: an incomplete journal, or a final check that did not finish. `None` if it is
    /// complete.
    #[must_use]
    pub fn incomplete(&self) -> Option<String> {
        let unread = self.unfinished.then(|| "not all that was written could be read back".to_owned());
        let reasons: Vec<String> = self.journal.iter().map(ToString::to_string).chain(unread).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns the number of checks that found a fault. A block that is checked twice can count twice.
    #[must_use]
    pub fn faulty(&self) -> u64 {
        self.faults.iter().map(|fault| fault.count).sum()
    }

    fn put(&mut self, fault: Fault) {
        match self.faults.binary_search_by_key(&(fault.kind as u8), |known| known.kind as u8) {
            Ok(index) => {
                let known = &mut self.faults[index];
                known.count += fault.count;
                known.first_offsets.extend(fault.first_offsets);
                known.first_offsets.sort_unstable();
                known.first_offsets.dedup();
                known.first_offsets.truncate(LOWEST);
                known.last_offset = known.last_offset.max(fault.last_offset);
            }
            Err(index) => self.faults.insert(index, fault),
        }
    }
}

/// Magic number at the start of every batch header in a write journal, the record of acknowledged writes.
pub const JOURNAL_MAGIC: [u8; 8] = *b"iojHnal1";

/// Maximum distance in bytes between the starts of consecutive batch headers in a write journal.
pub const JOURNAL_BATCH: usize = (4 << 20) + 160;

/// Damage found while reading a write journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalDamage {
    /// Number of separate damaged ranges of bytes in the journal.
    pub regions: u64,
    /// Byte offsets in the journal of the first damaged ranges, ascending, at most 4.
    pub first_offsets: Vec<u64>,
    /// Number of bytes in the journal that cannot be parsed.
    pub bytes: u64,
    /// Number of missing records, as far as the record numbers in later parts of the journal reveal them.
    pub records: u64,
}

impl JournalDamage {
    /// Adds a damaged range of `bytes` bytes at a byte offset in the journal, with `records` missing records.
    pub fn add(&mut self, offset: u64, bytes: u64, records: u64) {
        self.regions += 1;
        self.bytes += bytes;
        self.records = self.records.saturating_add(records);
        if self.first_offsets.len() < LOWEST {
            self.first_offsets.push(offset);
        }
    }
}

/// Prints as `1 place, at its byte 4040: 40 bytes make no sense and 1 record is lost`.
impl fmt::Display for JournalDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { regions, bytes, records, .. } = self;
        let offsets: Vec<String> = self.first_offsets.iter().map(u64::to_string).collect();
        let more = if *regions > offsets.len() as u64 { " ..." } else { "" };
        let s = |count: u64| if count == 1 { "" } else { "s" };
        write!(
            f,
            "{regions} place{}, at its byte{} {}{more}: ",
            s(*regions),
            s(*regions),
            offsets.join(", ")
        )?;
        write!(
            f,
            "{bytes} byte{} make no sense and {records} record{} lost",
            s(*bytes),
            if *records == 1 { " is" } else { "s are" }
        )
    }
}

/// The condition of a write journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalState {
    /// True if the journal was closed properly. Only then does it contain the total number of records.
    pub closed: bool,
    /// Bytes at the journal's end that belong to a record whose write a crash interrupted; they are ignored.
    pub torn_tail: Bytes,
    /// Damage that a crash during a write does not explain.
    pub damage: JournalDamage,
    /// Total number of acknowledged writes; only set if the journal states that it lacks some of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub acknowledged: Option<u64>,
}

/// Result of comparing a target with the journal of its acknowledged writes, for example after a power cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// Number of acknowledged writes in the journal.
    pub writes: u64,
    /// Number of acknowledged writes that were followed by an acknowledged flush, and so must be durable.
    pub durable_writes: u64,
    /// Time from the start of the journal to the last acknowledged flush; absent if no flush was acknowledged.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_flush: Option<Nanos>,
    /// Condition of the journal itself.
    pub journal: JournalState,
    /// Result of comparing every written block with its last acknowledged write. After a crash, unflushed writes may be missing.
    pub findings: Findings,
    /// Result of comparing every block with its last durable write. A fault here breaks the guarantee of a flush.
    pub durable: Findings,
    /// Number of acknowledged writes in the journal before the oldest one that the target lacks; absent if the target has all of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost_from: Option<u64>,
    /// Number of blocks without their last acknowledged write although a write survived that began after that acknowledgement.
    pub reordered: u64,
}

impl Recovery {
    /// Returns the reason why the loss of an acknowledged write may go unnoticed, such as a damaged journal; `None` if every loss is
    /// noticed.
    #[must_use]
    pub fn incomplete(&self) -> Option<String> {
        let JournalState { damage, acknowledged, .. } = &self.journal;
        let writes = self.writes;
        let lacking = acknowledged.map(|acknowledged| {
            format!("the journal has {writes} of {acknowledged} acknowledged writes on record: it could not be written to its end")
        });
        let damaged = (damage.regions > 0).then(|| format!("the journal is damaged in {damage}"));
        let empty = (writes == 0).then(|| "no write is on record, so nothing was verified".to_owned());
        let reasons: Vec<String> = lacking.into_iter().chain(damaged).chain(empty).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
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
                unfinished: false,
                journal: None,
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
