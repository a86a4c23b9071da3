//! Reads CSV traces with a header line, as iotax writes them.

use std::io::Read;

use iotax_model::trace::{TracedIo, TracedOperation};

use super::fields::whole;
use super::lines::{Lines, quoted};

/// Header line of the traces.
pub(super) const HEADER: &str = "at_ns,latency_ns,operation,offset,length,fua,process,queue";

pub(super) fn events(source: Box<dyn Read + Send>) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    of_lines(source, true, event)
}

/// Parses events from a text, one event per line, after a header line if `has_header`. Ends after the first error.
pub(super) fn of_lines(
    source: Box<dyn Read + Send>,
    has_header: bool,
    mut event: impl FnMut(&str) -> Result<TracedIo, String> + Send,
) -> impl Iterator<Item = Result<TracedIo, String>> + Send {
    let (mut lines, mut is_first, mut is_over) = (Lines::new(source), true, false);
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        if std::mem::take(&mut is_first) && has_header {
            let _ = lines.next()?;
        }
        let found = match lines.next()? {
            Ok(line) => event(line),
            Err(reason) => {
                is_over = true;
                return Some(Err(reason));
            }
        };
        is_over = found.is_err();
        Some(found.map_err(|reason| lines.at(&reason)))
    })
}

fn event(line: &str) -> Result<TracedIo, String> {
    let mut fields = line.split(',');
    let mut next = || fields.next().map(str::trim);
    let known = |name, text: Option<&str>| match text {
        None | Some("") => Ok(None),
        text => whole(name, text).map(Some),
    };
    let small = |name, text| {
        known(name, text)?
            .map(|value| u32::try_from(value).map_err(|_| format!("{name} is {value}: above 2^32")))
            .transpose()
    };
    Ok(TracedIo {
        at_ns: whole("at_ns", next())?,
        latency_ns: known("latency_ns", next())?,
        operation: next()
            .unwrap_or_default()
            .parse::<TracedOperation>()
            .map_err(|error| error.to_string())?,
        offset: whole("offset", next())?,
        length: whole("length", next())?,
        fua: match next().unwrap_or_default() {
            "true" | "1" => true,
            "false" | "0" | "" => false,
            other => return Err(format!("fua is {}; accepted: true or false", quoted(other))),
        },
        process: small("process", next())?,
        queue: small("queue", next())?,
    })
}
