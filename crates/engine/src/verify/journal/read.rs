//! Reads a journal, even if parts of it are damaged, and determines its state.
//!
//! Each batch was written after the previous one was synced. So bad bytes are damage if a header follows them, and so are missing record
//! numbers. Only the last batch may be incomplete because the machine stopped, which is not damage.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use iotax_model::units::Bytes;
use iotax_model::verify_errors::{JOURNAL_BATCH, JournalState};

use super::format::{Content, Frame, Header, LENGTH, MARKER, Record};

/// Bytes that are read from the file at a time.
const CHUNK: u64 = 1 << 20;

/// Reads a journal and calls `each` with the number of every record and the record.
///
/// # Errors
/// `InvalidData` if the file has no header, and read errors.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(u64, Record)) -> io::Result<(Header, JournalState)> {
    survey(&mut File::open(path)?, each)
}

pub(super) fn survey(
    source: &mut (impl Read + Seek),
    each: &mut dyn FnMut(u64, Record),
) -> io::Result<(Header, JournalState)> {
    let header = first_header(source)?;
    source.rewind()?;
    let mut frames = Frames::new(source, header.run);
    let mut survey = Survey { header, ..Survey::default() };
    while let Some(piece) = frames.next()? {
        match piece {
            Piece::Frame(frame) if survey.follows(frame) => survey.good(frame, each),
            Piece::Frame(_) => survey.bad(LENGTH),
            Piece::Bad(bytes) => survey.bad(bytes),
        }
    }
    Ok((header, survey.finish()))
}

/// Finds the first header; if the start of the file is damaged, that is the header of a later batch.
fn first_header(source: &mut impl Read) -> io::Result<Header> {
    let mut frames = Frames::new(source, 0);
    while let Some(piece) = frames.next()? {
        if let Piece::Frame(Frame { content: Content::Header(header), .. }) = piece {
            return Ok(header);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is no journal of iotax bench --write-journal"))
}

/// The reader's state: the position, and what is known about the batches so far.
#[derive(Debug, Default)]
struct Survey {
    header: Header,
    state: JournalState,
    /// Position in the journal: bytes read so far.
    at: u64,
    /// Position in bytes of the last header.
    batch: u64,
    /// Number that the next record should have.
    expected: u64,
    /// Number of bad bytes directly before the current position.
    bad: u64,
}

impl Survey {
    /// Returns whether a frame can come next; records before it may be missing.
    fn follows(&self, frame: Frame) -> bool {
        match frame.content {
            Content::Header(header) if header != self.header => false,
            Content::End if self.state.closed => frame.number == self.expected,
            _ => !self.state.closed && frame.number >= self.expected,
        }
    }

    fn good(&mut self, frame: Frame, each: &mut dyn FnMut(u64, Record)) {
        let lost = frame.number - self.expected;
        if self.bad > 0 || lost > 0 {
            self.state.damage.add(self.at - self.bad, self.bad, lost);
            self.bad = 0;
        }
        self.expected = frame.number;
        match frame.content {
            Content::Header(_) => self.batch = self.at,
            Content::Record(record) => {
                self.expected += 1;
                each(frame.number, record);
            }
            Content::End => self.state.closed = true,
            Content::Total(writes) => self.state.acknowledged = Some(writes).filter(|writes| *writes > 0),
        }
        self.at += LENGTH as u64;
    }

    fn bad(&mut self, bytes: usize) {
        self.bad += bytes as u64;
        self.at += bytes as u64;
    }

    fn finish(mut self) -> JournalState {
        if self.state.closed || self.at - self.batch > JOURNAL_BATCH as u64 {
            if self.bad > 0 {
                self.state.damage.add(self.at - self.bad, self.bad, 0);
            }
        } else {
            self.state.torn_tail = Bytes(self.bad);
        }
        self.state
    }
}

enum Piece {
    Frame(Frame),
    /// A run of bad bytes of this length, which belong to no valid frame.
    Bad(usize),
}

/// Reader that splits a journal into frames and runs of bad bytes. Reading resumes at the next marker.
struct Frames<'a, R> {
    source: &'a mut R,
    run: u64,
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that are processed.
    done: usize,
    ended: bool,
}

impl<'a, R: Read> Frames<'a, R> {
    fn new(source: &'a mut R, run: u64) -> Self {
        Self { source, run, buffer: Vec::new(), done: 0, ended: false }
    }

    fn next(&mut self) -> io::Result<Option<Piece>> {
        self.fill()?;
        let rest = &self.buffer[self.done..];
        if rest.is_empty() {
            return Ok(None);
        }
        let frame = rest.first_chunk().and_then(|bytes| Frame::decode(bytes, self.run));
        let piece = frame.map_or_else(|| Piece::Bad(bad_bytes(rest, self.ended)), Piece::Frame);
        self.done += match piece {
            Piece::Frame(_) => LENGTH,
            Piece::Bad(bytes) => bytes,
        };
        Ok(Some(piece))
    }

    /// Refills the buffer until it holds at least one frame, or the file ends.
    fn fill(&mut self) -> io::Result<()> {
        while !self.ended && self.buffer.len() - self.done < LENGTH {
            self.buffer.drain(..self.done);
            self.done = 0;
            self.ended = self.source.by_ref().take(CHUNK).read_to_end(&mut self.buffer)? == 0;
        }
        Ok(())
    }
}

/// Returns the number of bytes before the next marker in `rest`. Without a marker, all bytes are bad, except the last two unless the file has
/// `ended`, because a marker may begin there.
fn bad_bytes(rest: &[u8], ended: bool) -> usize {
    let marker = rest[1..].windows(MARKER.len()).position(|window| window == MARKER);
    match marker {
        Some(index) => index + 1,
        None if ended => rest.len(),
        None => rest.len() - (MARKER.len() - 1),
    }
}
