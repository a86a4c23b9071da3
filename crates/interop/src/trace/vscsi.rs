//! Reads CloudPhysics' vSCSI traces: little-endian records, of 32 bytes in version 1 and 40 in version 2, with times in microseconds.

use std::io::Read;

use iotax_model::trace::{TracedIo, TracedOperation};

use super::records::{number, of_records};

const SECTOR: u64 = 512;

/// Versions of the format, given by the high byte of a record's `ver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    const fn length(self) -> usize {
        match self {
            Self::One => 32,
            Self::Two => 40,
        }
    }

    /// Returns the offset of the version within a record, in bytes.
    const fn version_offset(self) -> usize {
        match self {
            Self::One => 14,
            Self::Two => 2,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    fn is_at(self, bytes: &[u8]) -> bool {
        bytes.get(self.version_offset() + 1) == Some(&self.byte())
    }
}

/// Returns the version of the format; `None` unless the first records agree on it.
fn version(head: &[u8]) -> Option<Version> {
    [Version::Two, Version::One].into_iter().find(|version| {
        let mut records = head.chunks_exact(version.length()).take(16).peekable();
        records.peek().is_some()
            && records.all(|record| version.is_at(record) && read(*version, record).is_ok())
    })
}

/// Returns whether a file starts with vSCSI records.
pub(super) fn is_meant(head: &[u8]) -> bool {
    version(head).is_some()
}

pub(super) fn events(
    source: Box<dyn Read + Send>,
    head: &[u8],
) -> Box<dyn Iterator<Item = Result<TracedIo, String>> + Send> {
    match version(head).unwrap_or(Version::Two) {
        Version::One => Box::new(of_records::<32>(source, |record| of_version(Version::One, record))),
        Version::Two => Box::new(of_records::<40>(source, |record| of_version(Version::Two, record))),
    }
}

fn of_version(version: Version, record: &[u8]) -> Result<Option<TracedIo>, String> {
    if version.is_at(record) { read(version, record) } else { Err("a record of another version".into()) }
}

/// Parses a record; `None` for a command that is neither a read nor a write nor a flush.
fn read(version: Version, record: &[u8]) -> Result<Option<TracedIo>, String> {
    let (short, long, wide) =
        (|at| number(record, at, 2), |at| number(record, at, 4), |at| number(record, at, 8));
    let (command, length, block, time, response) = match version {
        Version::One => (short(12), long(4), wide(16), wide(24), None),
        Version::Two => (short(0), long(8), wide(16), wide(24), Some(wide(32))),
    };
    // SCSI's READ and WRITE with 6, 10, 12 and 16 bytes, and SYNCHRONIZE CACHE.
    let operation = match command {
        0x08 | 0x28 | 0xa8 | 0x88 => TracedOperation::Read,
        0x0a | 0x2a | 0xaa | 0x8a => TracedOperation::Write,
        0x35 | 0x91 => TracedOperation::Flush,
        _ => return Ok(None),
    };
    let too_large =
        |what: &str, value: u64| format!("its {what} is {value}: too large to be in bytes or nanoseconds");
    let offset = block.checked_mul(SECTOR).ok_or_else(|| too_large("block", block))?;
    let is_flush = operation == TracedOperation::Flush;
    let nanos = |what: &str, micros: u64| micros.checked_mul(1000).ok_or_else(|| too_large(what, micros));
    Ok(Some(TracedIo {
        at_ns: nanos("time", time)?,
        latency_ns: response.map(|response| nanos("response time", response)).transpose()?,
        operation,
        offset: if is_flush { 0 } else { offset },
        length: if is_flush { 0 } else { length },
        fua: false,
        process: None,
        queue: None,
    }))
}
