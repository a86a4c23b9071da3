//! Reads blktrace's binary files, one per CPU, in either byte order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use iotax_model::trace::{Events, TracedIo, TracedOperation};

use super::matching::Matcher;

/// Magic number in the upper 24 bits of a record's first word; the lower 8 bits are the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD: usize = 48;
const SECTOR: u64 = 512;

/// Actions of the block layer (`blktrace_api.h`), in the lower half of a record's action.
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

/// Categories of an action, in its upper half.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const PACKET: u32 = 1 << 9;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;

/// Returns whether a file starts with a blktrace record.
pub(super) fn is_meant(head: &[u8]) -> bool {
    head.first_chunk().is_some_and(|word| {
        [u32::from_le_bytes(*word), u32::from_be_bytes(*word)].iter().any(|word| word & !0xff == MAGIC)
    })
}

/// Finds all files of a trace by the path of one of them: `NAME.blktrace.N`, sorted by CPU. A file without a number at the end is a whole
/// trace.
pub(super) fn parts(path: &Path) -> io::Result<Vec<PathBuf>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some((stem, cpu)) = name.rsplit_once('.').filter(|(_, cpu)| cpu.parse::<u32>().is_ok()) else {
        return Ok(vec![path.to_owned()]);
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let other = entry.file_name().to_string_lossy().into_owned();
        let cpu = other.strip_prefix(stem).and_then(|rest| rest.strip_prefix('.')?.parse::<u32>().ok());
        if let Some(cpu) = cpu.filter(|_| entry.path().is_file()) {
            found.push((cpu, entry.path()));
        }
    }
    debug_assert!(!cpu.is_empty());
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// A trace record, converted to the host's byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    at_ns: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    process: u32,
    device: u32,
}

/// Reader of the trace file of one CPU.
struct Part {
    name: String,
    source: BufReader<Box<dyn Read + Send>>,
    byte: u64,
    is_big_endian: Option<bool>,
}

impl Part {
    /// Reads the next record; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<Record>, String> {
        let mut bytes = [0; RECORD];
        let wrong = |byte, reason: String| format!("{}: byte {byte}: {reason}", self.name);
        match read_up_to(&mut self.source, &mut bytes) {
            Ok(0) => return Ok(None),
            Ok(RECORD) => {}
            Ok(read) => {
                return Err(wrong(
                    self.byte,
                    format!("the file ends within a record: {read} of {RECORD} bytes"),
                ));
            }
            Err(error) => return Err(wrong(self.byte, error.to_string())),
        }
        let word = [bytes[0], bytes[1], bytes[2], bytes[3]];
        let is_big_endian = *self.is_big_endian.get_or_insert(u32::from_be_bytes(word) & !0xff == MAGIC);
        let number = |at: usize, length: usize| -> u64 {
            let part = bytes[at..at + length].iter();
            let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
            if is_big_endian { part.fold(0, add) } else { part.rev().fold(0, add) }
        };
        #[expect(clippy::cast_possible_truncation, reason = "four bytes")]
        let short = |at: usize| number(at, 4) as u32;
        let magic = short(0);
        if magic & !0xff != MAGIC {
            return Err(wrong(
                self.byte,
                format!("{magic:#x} does not begin a record; is a part of the file missing?"),
            ));
        }
        if magic & 0xff != VERSION {
            return Err(wrong(
                self.byte,
                format!("version {} of blktrace's format; accepted: {VERSION}", magic & 0xff),
            ));
        }
        let record = Record {
            at_ns: number(8, 8),
            sector: number(16, 8),
            bytes: short(24),
            action: short(28),
            process: short(32),
            device: short(36),
        };
        let data = number(46, 2);
        match io::copy(&mut self.source.by_ref().take(data), &mut io::sink()) {
            Ok(passed) if passed == data => {}
            Ok(passed) => {
                let reason = format!("the file ends within a record's data: {passed} of {data} bytes");
                return Err(wrong(self.byte, reason));
            }
            Err(error) => return Err(wrong(self.byte, error.to_string())),
        }
        self.byte += RECORD as u64 + data;
        Ok(Some(record))
    }
}

/// Reads until the buffer is full or the source ends. Returns the number of bytes.
fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Merger of the records of all CPUs' files into the order of time.
struct Merged {
    parts: Vec<Part>,
    /// Next record of each file as a heap, by time and file index.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    waiting: Vec<Option<Record>>,
    matcher: Matcher,
    last: u64,
    is_over: bool,
}

/// Returns the requests in the files, each given by name and content.
pub(super) fn events(files: Vec<(String, Box<dyn Read + Send>)>) -> Events {
    let parts: Vec<Part> = files
        .into_iter()
        .map(|(name, source)| Part {
            name,
            source: BufReader::with_capacity(1 << 18, source),
            byte: 0,
            is_big_endian: None,
        })
        .collect();
    let waiting = vec![None; parts.len()];
    let mut merged = Merged {
        parts,
        next: BinaryHeap::new(),
        waiting,
        matcher: Matcher::default(),
        last: 0,
        is_over: false,
    };
    let mut has_begun = false;
    Box::new(std::iter::from_fn(move || {
        if !has_begun {
            has_begun = true;
            for index in 0..merged.parts.len() {
                if let Err(reason) = merged.advance(index) {
                    merged.is_over = true;
                    return Some(Err(reason));
                }
            }
        }
        merged.next()
    }))
}

impl Merged {
    fn advance(&mut self, index: usize) -> Result<(), String> {
        self.waiting[index] = self.parts[index].next()?;
        if let Some(record) = self.waiting[index] {
            self.next.push(Reverse((record.at_ns, index)));
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Result<TracedIo, String>> {
        loop {
            if let Some(event) = self.matcher.next(self.is_over) {
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            let Some(Reverse((_, index))) = self.next.pop() else {
                self.is_over = true;
                continue;
            };
            let Some(record) = self.waiting[index] else { continue };
            if let Err(reason) = self.take(record).and_then(|()| self.advance(index)) {
                self.is_over = true;
                return Some(Err(reason));
            }
        }
    }

    fn take(&mut self, record: Record) -> Result<(), String> {
        let Record { at_ns, sector, bytes, action, process, device } = record;
        let (category, event) = (action >> 16, action & 0xffff);
        if category & (NOTIFY | PACKET) != 0 || ![ISSUE, COMPLETE].contains(&event) {
            return Ok(());
        }
        let operation = match category {
            _ if bytes == 0 => TracedOperation::Flush,
            discard if discard & DISCARD != 0 => TracedOperation::Trim,
            write if write & WRITE != 0 => TracedOperation::Write,
            flush if flush & FLUSH != 0 => TracedOperation::Flush,
            _ => TracedOperation::Read,
        };
        let Some(offset) = sector.checked_mul(SECTOR) else {
            return Err(format!("sector {sector} at {at_ns} ns: no disk reaches that far"));
        };
        let (offset, length) =
            if operation == TracedOperation::Flush { (0, 0) } else { (offset, bytes.into()) };
        if event == COMPLETE {
            self.matcher.complete(device.into(), offset, operation, at_ns);
            return Ok(());
        }
        // The CPUs' clocks may differ slightly.
        self.last = self.last.max(at_ns);
        let fua = category & FUA != 0 && operation == TracedOperation::Write;
        let (process, queue, latency_ns) = (Some(process), None, None);
        let event = TracedIo { at_ns: self.last, latency_ns, operation, offset, length, fua, process, queue };
        self.matcher.issue(device.into(), event);
        Ok(())
    }
}
