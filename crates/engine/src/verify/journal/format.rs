//! A journal's bytes: a header, then records, all of 40 bytes and little-endian.
//!
//! | byte | header | write | flush |
//! |---|---|---|---|
//! | 0 | checksum (XXH3) of the rest | the same | the same |
//! | 8 | `iotaxjl1` | number of the record, from 0 | the same |
//! | 16 | the measurement | byte offset | writes that it covers |
//! | 24 | bytes of a block | generation | 0 |
//! | 32 | 0 | bytes | 0 |

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use iotax_model::findings::JOURNAL_MAGIC;

/// Bytes of the header and of each record.
const LENGTH: usize = 40;

/// What the records are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The measurement, as the stamps on the target give it.
    pub(crate) run: u64,
    /// What offsets and lengths of writes are multiples of.
    pub(crate) block: u64,
}

/// Something that the target acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    Write {
        offset: u64,
        length: u32,
        generation: u64,
    },
    /// Everything up to this number of writes is durable.
    Flush {
        writes: u64,
    },
}

impl Header {
    pub(super) fn encode(self) -> [u8; LENGTH] {
        encode([u64::from_le_bytes(JOURNAL_MAGIC), self.run, self.block, 0])
    }
}

impl Record {
    pub(super) fn encode(self, number: u64) -> [u8; LENGTH] {
        encode(match self {
            Self::Write { offset, length, generation } => [number, offset, generation, length.into()],
            Self::Flush { writes } => [number, writes, 0, 0],
        })
    }
}

fn encode(words: [u64; 4]) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    for (place, word) in bytes[8..].chunks_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[8..]);
    bytes[..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The words after a checksum that is right.
fn decode(bytes: &[u8]) -> Option<[u64; 4]> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    let &[checksum, rest @ ..] = &<[[u8; 8]; 5]>::try_from(words).ok()?;
    (u64::from_le_bytes(checksum) == xxhash_rust::xxh3::xxh3_64(&bytes[8..]))
        .then(|| rest.map(u64::from_le_bytes))
}

/// Reads a journal, giving each record to `each`. Returns its header and how many bytes at its end are no record: the last
/// ones were being written when the machine stopped, and nothing that comes after a gap was ever synced.
///
/// # Errors
/// What is no journal.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(Record)) -> io::Result<(Header, u64)> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut bytes = [0; LENGTH];
    let foreign =
        || io::Error::new(io::ErrorKind::InvalidData, "it is no journal of iotax bench --write-journal");
    file.read_exact(&mut bytes).map_err(|_| foreign())?;
    let header = match decode(&bytes) {
        Some([magic, run, block, _]) if magic == u64::from_le_bytes(JOURNAL_MAGIC) && block > 0 => {
            Header { run, block }
        }
        _ => return Err(foreign()),
    };
    let mut understood = LENGTH as u64;
    for number in 0.. {
        let record = match file.read_exact(&mut bytes) {
            Ok(()) => decode(&bytes).filter(|words| words[0] == number).and_then(record),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        let Some(record) = record else { break };
        each(record);
        understood += LENGTH as u64;
    }
    Ok((header, length.saturating_sub(understood)))
}

fn record([_, first, second, third]: [u64; 4]) -> Option<Record> {
    Some(match (second, u32::try_from(third).ok()?) {
        (0, 0) => Record::Flush { writes: first },
        (generation, length) => Record::Write { offset: first, length, generation },
    })
}
