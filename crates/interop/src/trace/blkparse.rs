//! Reads blkparse's text in its default format: `8,0 3 1 0.000000000 697 D W 223490 + 8 [kjournald]`.

use std::io::Read;

use iotax_model::trace::{TracedIo, TracedOperation};

use super::fields::{seconds, times, whole};
use super::lines::{Lines, quoted};
use super::matching::Matcher;

const SECTOR: u64 = 512;

/// A line of blkparse that describes a request.
struct Line {
    device: u64,
    at_ns: u64,
    process: u32,
    action: char,
    operation: TracedOperation,
    fua: bool,
    offset: u64,
    length: u64,
}

/// Returns whether a line is blkparse's output for a request that is queued, issued or completed.
pub(super) fn is_line(line: &str) -> bool {
    matches!(parse(line), Ok(Some(_)))
}

/// Reads requests when they are issued to the device (D), or when they are queued (Q) if the start of the trace has no issue events.
pub(super) fn events(
    source: Box<dyn Read + Send>,
    head: &[u8],
) -> impl Iterator<Item = Result<TracedIo, String>> + Send + use<> {
    let head = String::from_utf8_lossy(head);
    let has_issues = head.lines().any(|line| matches!(parse(line), Ok(Some(Line { action: 'D', .. }))));
    let begin = if has_issues { 'D' } else { 'Q' };
    let (mut lines, mut matcher, mut last, mut is_over) = (Lines::new(source), Matcher::default(), 0, false);
    std::iter::from_fn(move || {
        loop {
            if let Some(event) = matcher.next(is_over) {
                return Some(Ok(event));
            }
            if is_over {
                return None;
            }
            let parsed = match lines.next() {
                Some(Ok(line)) => parse(line),
                Some(Err(reason)) => {
                    is_over = true;
                    return Some(Err(reason));
                }
                None => {
                    is_over = true;
                    continue;
                }
            };
            match parsed {
                Ok(Some(line)) if line.action == begin => {
                    let at_ns = line.at_ns.max(last);
                    // blkparse merges the CPUs' events, but leaves them slightly out of order.
                    last = at_ns;
                    let Line { process, operation, fua, offset, length, .. } = line;
                    let (process, latency_ns, queue) = (Some(process), None, None);
                    let event =
                        TracedIo { at_ns, latency_ns, operation, offset, length, fua, process, queue };
                    matcher.issue(line.device, event);
                }
                Ok(Some(line)) if line.action == 'C' => {
                    matcher.complete(line.device, line.offset, line.operation, line.at_ns);
                }
                Ok(_) => {}
                Err(reason) => {
                    is_over = true;
                    return Some(Err(lines.at(&reason)));
                }
            }
        }
    })
}

/// Parses a line about a request that is queued, issued or completed; `None` for other lines, such as other actions, messages and the final
/// summary.
fn parse(line: &str) -> Result<Option<Line>, String> {
    let mut words = line.split_whitespace();
    let Some((major, minor)) = words.next().and_then(|device| device.split_once(',')) else {
        return Ok(None);
    };
    let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>()) else { return Ok(None) };
    let mut next = || words.next().ok_or_else(|| format!("{} is cut off", quoted(line)));
    let (_cpu, _sequence, time, process, action, kind) =
        (next()?, next()?, next()?, next()?, next()?, next()?);
    let action = match action {
        "D" => 'D',
        "Q" => 'Q',
        "C" => 'C',
        _ => return Ok(None),
    };
    let Some((operation, fua)) = operation(kind.as_bytes()) else { return Ok(None) };
    let mut numbers = line.split_whitespace().skip(7);
    let sector = match numbers.next() {
        // A request without data has only the process.
        Some(process) if process.starts_with('[') => 0,
        number => whole("the sector", number)?,
    };
    let sectors = match numbers.next() {
        Some("+") => whole("the number of sectors", numbers.next())?,
        // A flush has only a sector.
        _ => 0,
    };
    let (offset, length) = (times("the sector", sector, SECTOR)?, times("the length", sectors, SECTOR)?);
    let operation = if length == 0 { TracedOperation::Flush } else { operation };
    let (offset, length) = if operation == TracedOperation::Flush { (0, 0) } else { (offset, length) };
    Ok(Some(Line {
        device: u64::from(major) << 32 | u64::from(minor),
        at_ns: seconds("the time", time)?,
        process: process.parse().unwrap_or(0),
        action,
        operation,
        fua,
        offset,
        length,
    }))
}

/// Parses the kernel's RWBS letters into the operation, and true for FUA; `None` without an operation. An F before the direction means a
/// preceding flush, an F after it means FUA.
#[must_use]
pub fn operation(letters: &[u8]) -> Option<(TracedOperation, bool)> {
    let mut letters = letters.iter();
    let mut is_flush = false;
    let operation = loop {
        match letters.next() {
            Some(b'R') => break TracedOperation::Read,
            Some(b'W') => break TracedOperation::Write,
            Some(b'D') => break TracedOperation::Trim,
            Some(b'F') => is_flush = true,
            Some(_) => {}
            None => return is_flush.then_some((TracedOperation::Flush, false)),
        }
    };
    Some((operation, letters.any(|letter| *letter == b'F')))
}
