//! Reads I/O traces of iotax and other tools as a stream, in bounded memory.
//!
//! Each format has a module that turns its bytes into events. A damaged trace ends with an error that names the line, byte or row.

mod blkparse;
mod blktrace;
mod csv;
mod fields;
mod fiu;
mod iolog;
mod lines;
mod matching;
mod merge;
mod oracle;
mod order;
mod parquet;
mod recognise;
mod records;
mod spc;
mod tencent;
mod volumes;
mod vscsi;
mod write;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use iotax_model::trace::{
    Events, OffsetMapBuilder, ReplayOffsets, TraceFormat as Format, TraceSummary, TracedIo,
};

pub use blkparse::operation;
pub use matching::Matcher;
pub use merge::merged;
pub use order::ordered;
pub use parquet::{TraceFacts, TraceWriter};
pub use write::write;

/// First bytes of a file compressed with zstd.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Reason why a trace cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file could not be opened or read.
    #[error("{path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The path is not that of a regular file, or the content is not a trace or is damaged.
    #[error("{path}: {reason}")]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Reason, with the line or byte, and the accepted formats.
        reason: String,
    },
}

/// A trace that was opened for reading.
pub struct Trace {
    /// Format of the trace, recognised by its content.
    pub format: Format,
    /// Facts about the recording, such as its device and start time; empty unless the format is Parquet.
    pub facts: TraceFacts,
    /// I/Os in the order of their times.
    pub events: Events,
}

/// Opens a trace; its format is recognised by the content. blktrace writes a file per CPU: the path of any of them opens the whole trace.
///
/// # Errors
/// The trace is not a file that can be read, its format is not supported, or its start is damaged.
pub fn open(path: &Path) -> Result<Trace, TraceError> {
    let at = |error| TraceError::File { path: path.to_owned(), error };
    let wrong = |reason| TraceError::Content { path: path.to_owned(), reason };
    let metadata = path.metadata().map_err(at)?;
    // Opening a pipe would block.
    if !metadata.is_file() {
        return Err(wrong("it is no file; accepted: a file with a trace".into()));
    }
    let mut file = File::open(path).map_err(at)?;
    let mut head = Vec::new();
    file.by_ref().take(recognise::HEAD as u64).read_to_end(&mut head).map_err(at)?;
    let file = File::open(path).map_err(at)?;
    if head.starts_with(ZSTD) {
        let (format, events) = compressed(Box::new(file)).map_err(wrong)?;
        return Ok(Trace { format, facts: TraceFacts::default(), events });
    }
    let format = recognise::format(&head).map_err(wrong)?;
    if format == Format::Parquet {
        let (facts, events) = parquet::open(file).map_err(wrong)?;
        return Ok(Trace { format, facts, events });
    }
    let events = if format == Format::Blktrace {
        let parts = blktrace::parts(path).map_err(at)?;
        let files = parts.iter().map(|part| {
            let file = File::open(part).map_err(|error| TraceError::File { path: part.clone(), error })?;
            let name = part.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, Box::new(file) as Box<dyn Read + Send>))
        });
        blktrace::events(files.collect::<Result<_, TraceError>>()?)
    } else {
        stream(format, Box::new(file), &head)
    };
    Ok(Trace { format, facts: TraceFacts::default(), events })
}

/// Reads a trace from memory, for tests and fuzzing. Returns its format and its I/Os.
///
/// # Errors
/// The content is not a trace in a supported format, or its start is damaged.
pub fn read(bytes: Vec<u8>) -> Result<(Format, Events), String> {
    let head = &bytes[..bytes.len().min(recognise::HEAD)];
    if head.starts_with(ZSTD) {
        return compressed(Box::new(io::Cursor::new(bytes)));
    }
    let format = recognise::format(head)?;
    let head = head.to_vec();
    let events = match format {
        Format::Parquet => parquet::open(::bytes::Bytes::from(bytes))?.1,
        Format::Blktrace => blktrace::events(vec![("trace".into(), Box::new(io::Cursor::new(bytes)))]),
        _ => stream(format, Box::new(io::Cursor::new(bytes)), &head),
    };
    Ok((format, events))
}

/// Reads a trace compressed with zstd. Returns its format and its I/Os. The compression window may have up to 128 MiB, the default limit of `zstd`.
///
/// # Errors
/// The compression is damaged, or the content is not a trace or has a format that cannot be read as a stream.
fn compressed(source: Box<dyn Read + Send>) -> Result<(Format, Events), String> {
    let damaged = |error: io::Error| format!("its compression (zstd) is damaged: {error}");
    let mut plain = zstd::Decoder::new(source).map_err(damaged)?;
    let mut head = Vec::new();
    plain.by_ref().take(recognise::HEAD as u64).read_to_end(&mut head).map_err(damaged)?;
    let format = recognise::format(&head)?;
    if matches!(format, Format::Parquet | Format::Blktrace) {
        return Err(format!("it is {format} within zstd; decompress it: zstd -d"));
    }
    let whole: Box<dyn Read + Send> = Box::new(io::Cursor::new(head.clone()).chain(plain));
    Ok((format, stream(format, whole, &head)))
}

/// Returns the I/Os of a trace in a format that can be read as a stream.
fn stream(format: Format, source: Box<dyn Read + Send>, head: &[u8]) -> Events {
    match format {
        Format::Iolog => Box::new(iolog::events(source)),
        Format::Blkparse => Box::new(blkparse::events(source, head)),
        Format::Csv => ordered(csv::events(source)),
        Format::Msr => ordered(volumes::msr(source)),
        Format::Alibaba => ordered(volumes::alibaba(source)),
        Format::Spc => ordered(spc::events(source)),
        Format::Vscsi => ordered(vscsi::events(source, head)),
        Format::Tencent => ordered(tencent::events(source)),
        Format::Fiu => ordered(fiu::events(source)),
        Format::OracleGeneral => ordered(oracle::events(source)),
        Format::Parquet | Format::Blktrace => unreachable!("they are not one stream"),
    }
}

/// Reads a whole trace and summarises it. Its reach is that of the I/Os where `offsets` places them.
///
/// # Errors
/// An event cannot be read; the message names the line, byte or row, or the number of an I/O that is out of order. Or the trace touches more
/// separate areas than a working set may have.
pub fn summary(
    events: impl Iterator<Item = Result<TracedIo, String>>,
    offsets: ReplayOffsets,
) -> Result<TraceSummary, String> {
    let (mut summary, mut map) = (TraceSummary::default(), OffsetMapBuilder::new(offsets));
    for event in events {
        let event = event?;
        summary.add(&event);
        map.add(&event)?;
    }
    Ok(TraceSummary { reach: map.finish().size(summary.reach), ..summary })
}
