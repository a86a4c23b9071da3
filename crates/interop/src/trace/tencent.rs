//! Reads Tencent's block traces: `Timestamp,Offset,Size,IOType,VolumeID`, with whole seconds and sectors of 512 bytes; IOType 0 is a read.

use std::io::Read;

use iotax_model::trace::{TracedIo, TracedOperation};

use super::csv::of_lines;
use super::fields::{times, whole};
use super::lines::quoted;

/// Returns whether a line has the format of Tencent's traces.
pub(super) fn is_line(line: &str) -> bool {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    fields.len() == 5
        && fields.iter().all(|field| field.parse::<u64>().is_ok())
        && ["0", "1"].contains(&fields[3])
}

pub(super) fn events(source: Box<dyn Read + Send>) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    of_lines(source, false, |line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, offset, size, kind, volume] = fields[..] else {
            return Err(format!("{} has {} fields; accepted: 5", quoted(line), fields.len()));
        };
        let volume = whole("VolumeID", Some(volume))?;
        Ok(TracedIo {
            at_ns: times("Timestamp", whole("Timestamp", Some(time))?, 1_000_000_000)?,
            latency_ns: None,
            operation: match kind {
                "0" => TracedOperation::Read,
                "1" => TracedOperation::Write,
                other => return Err(format!("IOType is {}; accepted: 0 (read) or 1 (write)", quoted(other))),
            },
            offset: times("Offset", whole("Offset", Some(offset))?, 512)?,
            length: times("Size", whole("Size", Some(size))?, 512)?,
            fua: false,
            process: None,
            queue: Some(u32::try_from(volume).map_err(|_| format!("VolumeID is {volume}: above 2^32"))?),
        })
    })
}
