//! Reads traces of the Storage Performance Council: `ASU,LBA,Size,Opcode,Timestamp`, with sectors of 512 bytes and times in seconds.

use std::io::Read;

use iotax_model::trace::TracedIo;

use super::csv::of_lines;
use super::fields::{seconds, times, whole};
use super::lines::quoted;
use super::volumes::direction;

pub(super) fn events(source: Box<dyn Read + Send>) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    of_lines(source, false, |line| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        // Applications may append more fields.
        let [unit, block, size, opcode, time, ..] = fields[..] else {
            return Err(format!("{} has {} fields; accepted: 5 and more", quoted(line), fields.len()));
        };
        let unit = whole("ASU", Some(unit))?;
        Ok(TracedIo {
            at_ns: seconds("Timestamp", time)?,
            latency_ns: None,
            operation: direction(opcode)?,
            offset: times("LBA", whole("LBA", Some(block))?, 512)?,
            length: whole("Size", Some(size))?,
            fua: false,
            process: None,
            queue: Some(u32::try_from(unit).map_err(|_| format!("ASU is {unit}: above 2^32"))?),
        })
    })
}
