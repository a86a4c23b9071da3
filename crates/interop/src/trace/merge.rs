//! Merges several traces into one by time, each into a separate area.

use std::path::PathBuf;

use iotax_model::trace::{Events, ReplayOffsets, TraceSummary, TracedIo, TracedOperation};

use super::{TraceError, TraceFacts, open, summary};

/// Unit in bytes to which the area of a trace is rounded up.
const AREA_UNIT: u64 = 1 << 20;
/// Highest end of the areas together, in bytes: offsets beyond have no room in Parquet.
const MOST: u64 = i64::MAX.cast_unsigned();

/// One of the traces that are merged.
struct MergedPart {
    name: String,
    events: Events,
    /// The next I/O at its place in the merged trace; `None` after the last.
    next: Option<TracedIo>,
    /// Time in nanoseconds in this trace at which the merged one begins.
    start_ns: u64,
    /// Start of its area in bytes.
    start: u64,
    number: u32,
}

impl MergedPart {
    fn advance(&mut self) -> Result<(), String> {
        self.next = self.events.next().transpose()?.map(|event| TracedIo {
            at_ns: event.at_ns.saturating_sub(self.start_ns),
            offset: match event.operation {
                TracedOperation::Flush => event.offset,
                _ => self.start.saturating_add(event.offset),
            },
            queue: Some(self.number),
            ..event
        });
        Ok(())
    }
}

/// Opens several traces as one, in constant memory. Each is read once before, for its reach.
///
/// All begin at the same time: with their recording, or with their first I/O if its begin is not known. The area of each begins behind that of the
/// trace before. The queue of an I/O is the number of its trace, from 0.
///
/// # Errors
/// A trace cannot be opened or read, or has no I/O, or the areas reach beyond 2^63 bytes.
pub fn merged(paths: &[PathBuf]) -> Result<(TraceFacts, Events), TraceError> {
    let (mut parts, mut sources, mut lost, mut start) = (Vec::new(), Vec::new(), Some(0_u64), 0_u64);
    for (path, number) in paths.iter().zip(0..) {
        let wrong = |reason: String| TraceError::Content { path: path.clone(), reason };
        let TraceSummary { reach, first_ns, .. } =
            summary(open(path)?.events, ReplayOffsets::Wrap).map_err(wrong)?;
        let first_ns = first_ns.ok_or_else(|| wrong("it has no I/O".into()))?;
        let opened = open(path)?;
        // Only recordings count their times from a moment that means something.
        let start_ns = if opened.facts.began_at_ms.is_some() { 0 } else { first_ns };
        let name = path.display().to_string();
        sources.push(opened.facts.source.unwrap_or_else(|| name.clone()));
        lost = lost.zip(opened.facts.lost).map(|(one, other)| one.saturating_add(other));
        let mut part = MergedPart { name, events: opened.events, next: None, start_ns, start, number };
        part.advance().map_err(wrong)?;
        parts.push(part);
        let end = start.checked_add(reach).filter(|end| *end <= MOST);
        start = end.map(|end| end.next_multiple_of(AREA_UNIT)).ok_or_else(|| {
            wrong(format!(
                "it reaches up to byte {reach}, behind {start} of the traces before it: more than 2^63"
            ))
        })?;
    }
    let facts = TraceFacts { source: Some(sources.join(" + ")), lost, ..TraceFacts::default() };
    Ok((facts, in_order(parts)))
}

/// Returns the I/Os of all traces in order of time; of I/Os at the same time, those of the first trace come first.
fn in_order(mut parts: Vec<MergedPart>) -> Events {
    let mut broken = None;
    Box::new(std::iter::from_fn(move || {
        if let Some(reason) = broken.take() {
            parts.clear();
            return Some(Err(reason));
        }
        let due = |part: &&mut MergedPart| part.next.map(|event| event.at_ns);
        let part = parts.iter_mut().filter(|part| part.next.is_some()).min_by_key(due)?;
        let event = part.next.take();
        broken = part.advance().err().map(|reason| format!("{}: {reason}", part.name));
        event.map(Ok)
    }))
}
