//! A journal's bytes: frames of 40 bytes, little-endian.
//!
//! | byte | header | write | flush | end | total |
//! |---|---|---|---|---|---|
//! | 0 | `iojH` | `iojW` | `iojF` | `iojE` | `iojT` |
//! | 4 | `nal1` | bytes of the write | 0 | 0 | 0 |
//! | 8 | number of the next record, from 0 | number of the record | the same | number of records | 0 |
//! | 16 | the measurement | byte offset | records that it covers | 0 | acknowledged writes, or 0 |
//! | 24 | bytes of a block | generation | nanoseconds since the journal began | 0 | 0 |
//! | 32 | checksum (XXH3) of the rest, seeded with the measurement; a header's with 0 | the same | the same | the same | the same |
//!
//! A journal begins with a header, and so does each batch of records that is synced. Two end frames close it. The total follows
//! the first header. It is 0 unless the journal could not be written completely: then it is overwritten in place, which
//! works even on a full disk.

use iotax_model::units::Nanos;
use iotax_model::verify_errors::JOURNAL_MAGIC;

use crate::verify::stamp::SECTOR;

/// Length of a frame in bytes.
pub(super) const LENGTH: usize = 40;
/// The bytes at the start of every frame, by which reading resumes after bad bytes.
pub(super) const MARKER: [u8; 3] = *b"ioj";

/// The measurement and the block size of a journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// Number of the measurement, as in the stamps on the target.
    pub(crate) run: u64,
    /// Bytes of a block; offsets and lengths of writes are multiples of it.
    pub(crate) block: u64,
}

/// An acknowledged write or an acknowledged flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    Write {
        offset: u64,
        length: u32,
        generation: u64,
    },
    /// A flush that the target acknowledged at time `after` since the journal began. The flush covers all writes with a record number below
    /// `records`.
    Flush {
        records: u64,
        after: Nanos,
    },
}

/// The content of a frame, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Header(Header),
    Record(Record),
    End,
    /// Number of acknowledged writes if some of them have no record, else 0.
    Total(u64),
}

/// The unit in which a journal is written: 40 bytes with a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Number of records before this frame.
    pub(super) number: u64,
    pub(super) content: Content,
}

pub(super) type Bytes = [u8; LENGTH];

impl Frame {
    /// Encodes the frame for the journal of measurement `run`.
    pub(super) fn encode(self, run: u64) -> Bytes {
        let (kind, length, first, second) = match self.content {
            Content::Header(Header { run, block }) => (b'H', VERSION, run, block),
            Content::Record(Record::Write { offset, length, generation }) => {
                (b'W', length, offset, generation)
            }
            Content::Record(Record::Flush { records, after }) => (b'F', 0, records, after.0),
            Content::End => (b'E', 0, 0, 0),
            Content::Total(writes) => (b'T', 0, writes, 0),
        };
        let mut bytes = [0; LENGTH];
        bytes[..3].copy_from_slice(&MARKER);
        bytes[3] = kind;
        bytes[4..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&first.to_le_bytes());
        bytes[24..32].copy_from_slice(&second.to_le_bytes());
        let checksum = checksum(&bytes, run);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a frame of the journal of measurement `run`. `None` if the checksum does not match or a field has an invalid value. Headers
    /// of any measurement are accepted, because the checksum of a header is not seeded with the measurement.
    pub(super) fn decode(bytes: &Bytes, run: u64) -> Option<Self> {
        let word = |at: usize| bytes[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
        let length = bytes[4..].first_chunk().map(|word| u32::from_le_bytes(*word))?;
        let (number, first, second) = (word(8)?, word(16)?, word(24)?);
        if bytes[..3] != MARKER || word(32)? != checksum(bytes, run) {
            return None;
        }
        let content = match (bytes[3], length, second) {
            (b'H', VERSION, block @ 1..) if block.is_multiple_of(SECTOR as u64) => {
                Content::Header(Header { run: first, block })
            }
            (b'W', 1.., generation @ 1..) if first.checked_add(length.into()).is_some() => {
                Content::Record(Record::Write { offset: first, length, generation })
            }
            (b'F', 0, after) => Content::Record(Record::Flush { records: first, after: Nanos(after) }),
            (b'E', 0, 0) => Content::End,
            (b'T', 0, 0) => Content::Total(first),
            _ => return None,
        };
        Some(Self { number, content })
    }
}

const VERSION: u32 = {
    let [.., a, b, c, d] = JOURNAL_MAGIC;
    u32::from_le_bytes([a, b, c, d])
};

/// Computes the checksum of a frame, seeded with the measurement's number; a header's is seeded with 0. Records of an older journal that
/// remain on the disk therefore do not match.
fn checksum(bytes: &Bytes, run: u64) -> u64 {
    let seed = if bytes[3] == b'H' { 0 } else { run };
    xxhash_rust::xxh3::xxh3_64_with_seed(&bytes[..32], seed)
}
