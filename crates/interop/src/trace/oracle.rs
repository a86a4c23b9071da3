//! Reads libCacheSim's oracleGeneral: little-endian records of 24 bytes with seconds, object, size and the object's next access. The format
//! does not distinguish reads from writes, so all I/Os are reads.

use std::io::Read;

use iotax_model::trace::{TracedIo, TracedOperation};

use super::records::{number, of_records};

const LENGTH: usize = 24;
const SECTOR: u64 = 512;
/// Number of sectors whose byte offset fits into 64 bits. Object ids may be hashes, so they are reduced modulo this number.
const SECTORS: u64 = 1 << 54;
/// Maximum I/O size in bytes in a trace that is recognised as oracleGeneral.
const LONGEST: u64 = 1 << 30;
/// Upper bound of the record number in a plausible next access.
const MOST_RECORDS: u64 = 1 << 40;
/// Number of records that are checked to recognise the format.
const LOOKED_AT: usize = 64;

struct Record {
    seconds: u64,
    object: u64,
    size: u64,
    /// Number of the record with the next access to the object; -1 or the largest value for none.
    next: i64,
}

impl Record {
    fn of(bytes: &[u8]) -> Self {
        Self {
            seconds: number(bytes, 0, 4),
            object: number(bytes, 4, 8),
            size: number(bytes, 12, 4),
            next: number(bytes, 16, 8).cast_signed(),
        }
    }
}

/// Returns whether a trace starts as oracleGeneral: times ascend, sizes are plausible for I/Os, and the next access is later or never.
pub(super) fn is_meant(head: &[u8]) -> bool {
    let records: Vec<Record> = head.chunks_exact(LENGTH).take(LOOKED_AT).map(Record::of).collect();
    let is_one = |(number, record): (u64, &Record)| {
        let is_later = u64::try_from(record.next).is_ok_and(|next| next > number && next < MOST_RECORDS);
        (is_later || [-1, i64::MAX].contains(&record.next)) && (1..=LONGEST).contains(&record.size)
    };
    !records.is_empty()
        && (0..).zip(&records).all(is_one)
        && records.windows(2).all(|pair| pair[0].seconds <= pair[1].seconds)
}

pub(super) fn events(source: Box<dyn Read + Send>) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    of_records::<LENGTH>(source, |bytes| {
        let record = Record::of(bytes);
        Ok(Some(TracedIo {
            at_ns: record.seconds * 1_000_000_000,
            latency_ns: None,
            operation: TracedOperation::Read,
            offset: record.object % SECTORS * SECTOR,
            length: record.size,
            fua: false,
            process: None,
            queue: None,
        }))
    })
}
