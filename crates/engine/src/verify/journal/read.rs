//! Reads a journal, also past damaged bytes, and determines its state.
//!
//! Each batch is written after the previous one was synced. So bad bytes with a header behind them are damage, and so are missing record
//! numbers. The last batch may have been torn when the machine stopped, which is no damage.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;

use iotax_model::units::Bytes;
use iotax_model::verify_errors::{JOURNAL_BATCH, JournalState};

use super::format::{Content, Frame, Header, LENGTH, MARKER, Record};

/// Bytes that are read at a time.
const CHUNK: u64 = 1 << 20;

/// Reads a journal and calls `each` with every record and its number.
///
/// # Errors
/// `InvalidData` if there is no header, and errors of reading.
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

/// The first header: at the start, or the next one if the start is damaged.
fn first_header(source: &mut impl Read) -> io::Result<Header> {
    let mut frames = Frames::new(source, 0);
    while let Some(piece) = frames.next()? {
        if let Piece::Frame(Frame { content: Content::Header(header), .. }) = piece {
            return Ok(header);
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is no journal of iotax bench --write-journal"))
}

/// The state of the reader.
#[derive(Debug, Default)]
struct Survey {
    header: Header,
    state: JournalState,
    /// Bytes read so far.
    at: u64,
    /// The position of the last header.
    batch: u64,
    /// The number of the next record.
    expected: u64,
    /// Bad bytes directly before this position.
    bad: u64,
}

impl Survey {
    /// Returns whether a frame may follow; records may be missing in between.
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
    /// Number of bytes that are not a frame.
    Bad(usize),
}

/// Splits a journal into frames and bad pieces. A bad piece ends at the next marker.
struct Frames<'a, R> {
    source: &'a mut R,
    run: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer already processed.
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

    /// Fills the buffer with at least a frame's bytes, unless the file ends.
    fn fill(&mut self) -> io::Result<()> {
        while !self.ended && self.buffer.len() - self.done < LENGTH {
            self.buffer.drain(..self.done);
            self.done = 0;
            self.ended = self.source.by_ref().take(CHUNK).read_to_end(&mut self.buffer)? == 0;
        }
        Ok(())
    }
}

/// Number of bytes before the next marker, or before a possible start of one.
fn bad_bytes(rest: &[u8], ended: bool) -> usize {
    let marker = rest[1..].windows(MARKER.len()).position(|window| window == MARKER);
    match marker {
        Some(place) => place + 1,
        None if ended => rest.len(),
        None => rest.len() - (MARKER.len() - 1),
    }
}
