//! Reads traces of Florida International University: `ns pid process lba blocks W|R major minor [MD5]`, with blocks of 512 bytes.

use std::io::Read;

use iotax_model::trace::TracedIo;

use super::csv::of_lines;
use super::fields::{times, whole};
use super::lines::quoted;
use super::volumes::direction;

/// Returns whether a line has the format of FIU's traces.
pub(super) fn is_line(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    matches!(fields.len(), 8 | 9)
        && [0, 1, 3, 4, 6, 7].into_iter().all(|index| fields[index].parse::<u64>().is_ok())
        && direction(fields[5]).is_ok()
}

pub(super) fn events(source: Box<dyn Read + Send>) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    of_lines(source, false, |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The last field is a hash of the content.
        let ([time, process, _, block, blocks, kind, major, minor]
        | [time, process, _, block, blocks, kind, major, minor, _]) = fields[..]
        else {
            return Err(format!("{} has {} fields; accepted: 8 or 9", quoted(line), fields.len()));
        };
        let small = |name: &str, text: &str, most: u64| {
            let value = whole(name, Some(text))?;
            let fits = u32::try_from(value).ok().filter(|_| value < most);
            fits.ok_or_else(|| format!("{name} is {value}; accepted: below {most}"))
        };
        Ok(TracedIo {
            at_ns: whole("the time", Some(time))?,
            latency_ns: None,
            operation: direction(kind)?,
            offset: times("the block", whole("the block", Some(block))?, 512)?,
            length: times("the number of blocks", whole("the number of blocks", Some(blocks))?, 512)?,
            fua: false,
            process: Some(small("the process", process, 1 << 32)?),
            queue: Some(
                small("the major number", major, 1 << 12)? << 20 | small("the minor number", minor, 1 << 20)?,
            ),
        })
    })
}
