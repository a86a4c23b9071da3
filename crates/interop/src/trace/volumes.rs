//! Reads CSV traces of many volumes: MSR Cambridge and Alibaba. The volume's number becomes the queue of the I/O.

use std::collections::HashMap;
use std::io::Read;

use iotax_model::trace::{TracedIo, TracedOperation};

use super::csv::of_lines;
use super::fields::{times, whole};
use super::lines::quoted;

/// Maximum number of distinct volumes in a trace.
const MOST: usize = 1 << 20;

/// Reads MSR Cambridge traces: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, with times in units of 100 ns.
pub(super) fn msr(source: Box<dyn Read + Send>) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    let mut volumes = HashMap::new();
    let mut first = None;
    of_lines(source, false, move |line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, host, disk, kind, offset, size, response] = fields[..] else {
            return Err(format!("{} has {} fields; accepted: 7", quoted(line), fields.len()));
        };
        let operation = direction(kind)?;
        let time = whole("Timestamp", Some(time))?;
        // Timestamps count from 1601; only differences from the first I/O fit into nanoseconds.
        let first = *first.get_or_insert(time.saturating_sub(EARLIER));
        let since = time
            .checked_sub(first)
            .ok_or_else(|| format!("Timestamp {time} is before that of the first line"))?;
        Ok(TracedIo {
            at_ns: times("Timestamp", since, 100)?,
            latency_ns: Some(times("ResponseTime", whole("ResponseTime", Some(response))?, 100)?),
            operation,
            offset: whole("Offset", Some(offset))?,
            length: whole("Size", Some(size))?,
            fua: false,
            process: None,
            queue: Some(number(&mut volumes, format!("{host},{disk}"))?),
        })
    })
}

/// Maximum time that a line may precede the first line, in units of 100 ns: 60 s.
const EARLIER: u64 = 600_000_000;

/// Reads Alibaba traces: `device_id,opcode,offset,length,timestamp`, with times in microseconds.
pub(super) fn alibaba(source: Box<dyn Read + Send>) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    let mut volumes = HashMap::new();
    of_lines(source, false, move |line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [device, opcode, offset, length, time] = fields[..] else {
            return Err(format!("{} has {} fields; accepted: 5", quoted(line), fields.len()));
        };
        Ok(TracedIo {
            at_ns: times("timestamp", whole("timestamp", Some(time))?, 1000)?,
            latency_ns: None,
            operation: direction(opcode)?,
            offset: whole("offset", Some(offset))?,
            length: whole("length", Some(length))?,
            fua: false,
            process: None,
            queue: Some(number(&mut volumes, device.to_owned())?),
        })
    })
}

/// Parses the direction of an I/O: read or write.
pub(super) fn direction(word: &str) -> Result<TracedOperation, String> {
    match word {
        "R" | "r" | "Read" | "read" => Ok(TracedOperation::Read),
        "W" | "w" | "Write" | "write" => Ok(TracedOperation::Write),
        other => Err(format!("{} is no direction; accepted: R or W, Read or Write", quoted(other))),
    }
}

/// Returns the number of a volume; numbers are assigned from 0 in order of first appearance.
fn number(known: &mut HashMap<String, u32>, name: String) -> Result<u32, String> {
    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
    if known.len() >= MOST && !known.contains_key(&name) {
        return Err(format!("it names more than {MOST} volumes"));
    }
    Ok(*known.entry(name).or_insert(next))
}
