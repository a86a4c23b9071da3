//! Writes traces: in iotax's Parquet format, as CSV, and as fio's iolog.

use std::io::Write;

use iotax_model::trace::{TraceExport as Export, TracedIo, TracedOperation};

use super::csv::HEADER;
use super::parquet::{TraceFacts, TraceWriter};

/// File name in a written iolog; fio's `replay_redirect` replaces it with the actual target.
const FILE: &str = "trace";

/// Writes a trace in the given format. Returns the number of I/Os.
///
/// # Errors
/// The trace is damaged, a number is too large for Parquet, or writing to the destination fails.
pub fn write(
    format: Export,
    facts: &TraceFacts,
    events: impl Iterator<Item = Result<TracedIo, String>>,
    to: impl Write + Send,
) -> Result<u64, String> {
    match format {
        Export::Parquet => {
            let mut writer = TraceWriter::new(to)?;
            for event in events {
                writer.add(event?)?;
            }
            writer.finish(facts).map(|(_, written)| written)
        }
        Export::Csv => text(HEADER, events, to, csv, ""),
        Export::Iolog => {
            let head = format!("fio version 3 iolog\n0 {FILE} add\n0 {FILE} open");
            text(&head, events, to, iolog, " close")
        }
    }
}

/// Writes `head`, then one line per event, and possibly a last line.
fn text(
    head: &str,
    events: impl Iterator<Item = Result<TracedIo, String>>,
    mut to: impl Write,
    line: fn(&TracedIo) -> String,
    tail: &str,
) -> Result<u64, String> {
    let (mut written, mut last) = (0, 0);
    let mut put = |line: &str| writeln!(to, "{line}").map_err(|error| error.to_string());
    put(head)?;
    for event in events {
        let event = event?;
        put(&line(&event))?;
        (written, last) = (written + 1, event.at_ns);
    }
    if !tail.is_empty() {
        put(&format!("{} {FILE}{tail}", last / 1000))?;
    }
    to.flush().map_err(|error| error.to_string())?;
    Ok(written)
}

fn csv(event: &TracedIo) -> String {
    let TracedIo { at_ns, latency_ns, operation, offset, length, fua, process, queue } = event;
    let known = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let (latency, process, queue) =
        (known(*latency_ns), known(process.map(u64::from)), known(queue.map(u64::from)));
    format!("{at_ns},{latency},{operation},{offset},{length},{fua},{process},{queue}")
}

/// Formats an event as a line of an iolog, with the time in microseconds.
fn iolog(event: &TracedIo) -> String {
    let TracedIo { at_ns, operation, offset, length, .. } = event;
    let at_us = at_ns / 1000;
    match operation {
        TracedOperation::Flush => format!("{at_us} {FILE} datasync 0 0"),
        _ => format!("{at_us} {FILE} {operation} {offset} {length}"),
    }
}
