//! Packs a tree of files into one archive and unpacks it, like cpio. The archive is read and written in records of `bs` bytes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use iotax_load::error::EngineError;
use iotax_load::request::{Io, IoKind};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, mkdirat, openat, statat, syncfs};

use super::Routine;
use super::files::write;
use super::meter::{Meter, Over};
use super::newc::{self, HEADER, Header};
use super::setup::{OwnDirectory, WorkerSetup};
use super::tree::{Entry, Filler, or_break};
use super::trees;

/// Name of the archive, next to the tree's root.
const ARCHIVE: &str = ".archive.cpio";
const FLUSH: Io = Io { direction: IoKind::Sync, offset: 0, length: 0 };

/// Buffer that passes bytes on in records of equal length.
struct Records {
    buffer: Vec<u8>,
    record: usize,
    /// Offset of the next record in the archive, in bytes.
    offset: u64,
}

impl Records {
    fn new(record: usize) -> Self {
        Self { buffer: Vec::with_capacity(record), record, offset: 0 }
    }

    /// Appends bytes and passes on each record as soon as it is full.
    fn push<B>(
        &mut self,
        mut bytes: &[u8],
        out: &mut impl FnMut(u64, &[u8]) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.record - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == self.record {
                self.flush(out)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn flush<B>(&mut self, out: &mut impl FnMut(u64, &[u8]) -> ControlFlow<B>) -> ControlFlow<B> {
        out(self.offset, &self.buffer)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        ControlFlow::Continue(())
    }

    /// Appends the archive's trailer and passes on the last, shorter record.
    fn finish<B>(&mut self, out: &mut impl FnMut(u64, &[u8]) -> ControlFlow<B>) -> ControlFlow<B> {
        let mut end = Vec::new();
        newc::finish(self.offset + self.buffer.len() as u64, &mut end);
        self.push(&end, out)?;
        if self.buffer.is_empty() { ControlFlow::Continue(()) } else { self.flush(out) }
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

fn record_of(setup: &WorkerSetup) -> usize {
    usize::try_from(setup.workload.bs.0).unwrap_or(usize::MAX)
}

fn open_archive(own: &OwnDirectory, flags: OFlags) -> io::Result<File> {
    let opened = openat(&own.root, ARCHIVE, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644));
    Ok(File::from(opened?))
}

/// The test that packs a worker's tree.
struct Pack {
    own: OwnDirectory,
    record: usize,
    end_fsync: bool,
}

pub(super) fn pack(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let (record, end_fsync) = (record_of(setup), setup.workload.end_fsync);
    Ok(Box::new(Pack { own: trees::made(setup)?, record, end_fsync }))
}

impl Routine for Pack {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let root = &self.own.root;
        let making = Io { direction: IoKind::Write, offset: 0, length: 0 };
        let archive = meter.aside(making, || open_archive(&self.own, flags))?;
        let mut packing = Packing { root, archive: &archive, records: Records::new(self.record), meter };
        let (mut number, mut folders) = (0, vec![String::new()]);
        let mut buffer = vec![0; self.record];
        while let Some(folder) = folders.pop() {
            for (path, is_directory) in trees::listed(root, &folder, packing.meter)? {
                number += 1;
                if is_directory {
                    packing.directory(number, &path)?;
                    folders.push(path);
                } else if path != ARCHIVE {
                    packing.file(number, &path, &mut buffer)?;
                }
            }
        }
        packing.end()?;
        if self.end_fsync {
            meter.io(FLUSH, || archive.sync_all().map(|()| 0))?;
        }
        ControlFlow::Continue(())
    }
}

/// The state of writing an archive.
struct Packing<'a> {
    root: &'a File,
    archive: &'a File,
    records: Records,
    meter: &'a mut Meter,
}

impl Packing<'_> {
    fn push(&mut self, bytes: &[u8]) -> ControlFlow<Over> {
        let (archive, meter) = (self.archive, &mut *self.meter);
        self.records.push(bytes, &mut |offset, record| write(archive, offset, record, meter))
    }

    fn end(&mut self) -> ControlFlow<Over> {
        let (archive, meter) = (self.archive, &mut *self.meter);
        self.records.finish(&mut |offset, record| write(archive, offset, record, meter))
    }

    fn put(&mut self, number: u32, path: &str, header: Header) -> ControlFlow<Over> {
        let mut text = Vec::with_capacity(HEADER + path.len() + 4);
        header.put(number, path, &mut text);
        self.push(&text)
    }

    fn directory(&mut self, number: u32, path: &str) -> ControlFlow<Over> {
        let root = self.root;
        match self.meter.operation(0, || Ok(statat(root, path, AtFlags::SYMLINK_NOFOLLOW)?))? {
            Some(_) => self.put(number, path, Header::directory()),
            None => ControlFlow::Continue(()),
        }
    }

    fn file(&mut self, number: u32, path: &str, buffer: &mut [u8]) -> ControlFlow<Over> {
        let root = self.root;
        let opened = self.meter.operation(0, || {
            let file = File::from(openat(root, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
            let size = fstat(&file)?.st_size;
            Ok((file, u32::try_from(size).map_err(io::Error::other)?))
        })?;
        // A file that cannot be opened is left out, as cpio does.
        let Some((mut file, size)) = opened else { return ControlFlow::Continue(()) };
        self.put(number, path, Header::file(size))?;
        let mut offset = 0;
        while offset < size {
            let part = buffer.len().min((size - offset) as usize);
            let io = Io { direction: IoKind::Read, offset: offset.into(), length: length(&buffer[..part]) };
            if !self.meter.io(io, || file.read(&mut buffer[..part]))? {
                buffer[..part].fill(0);
            }
            self.push(&buffer[..part])?;
            offset += io.length;
        }
        self.push(newc::padding(size as usize))
    }
}

/// The test that unpacks an archive into a worker's tree.
struct Unpack {
    own: OwnDirectory,
    archive: File,
    length: u64,
    record: usize,
    end_fsync: bool,
}

pub(super) fn unpack(setup: &mut WorkerSetup) -> Result<Box<dyn Routine>, EngineError> {
    let own = setup.own_directory()?;
    let doing = || EngineError::system("making an archive of files");
    let archive = open_archive(&own, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL).map_err(doing())?;
    let length = archived(&trees::planned(setup), &mut trees::filler(setup), &archive).map_err(doing())?;
    own.settle(setup.workload.invalidate, [ARCHIVE.as_ref()].into_iter())?;
    let archive = open_archive(&own, OFlags::RDONLY).map_err(doing())?;
    let (record, end_fsync) = (record_of(setup), setup.workload.end_fsync);
    Ok(Box::new(Unpack { own, archive, length, record, end_fsync }))
}

/// Writes the archive of a planned tree without creating the tree's files. Returns the archive's length in bytes.
fn archived(entries: &[Entry], filler: &mut Filler, archive: &File) -> io::Result<u64> {
    let mut records = Records::new(1 << 20);
    let mut out = |_: u64, record: &[u8]| or_break((&mut &*archive).write_all(record));
    let mut all = || {
        for (number, entry) in (1..).zip(entries) {
            let size = entry.size.unwrap_or(0);
            let small = u32::try_from(size).unwrap_or(u32::MAX);
            let header = entry.size.map_or(Header::directory(), |_| Header::file(small));
            let mut text = Vec::new();
            header.put(number, &entry.path, &mut text);
            records.push(&text, &mut out)?;
            filler.each(small.into(), |_, record| records.push(record, &mut out))?;
            records.push(newc::padding(small as usize), &mut out)?;
        }
        records.finish(&mut out)
    };
    match all() {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(records.offset),
    }
}

impl Routine for Unpack {
    fn work(&mut self, meter: &mut Meter) -> ControlFlow<Over> {
        let (archive, length) = (&self.archive, self.length);
        let mut reading =
            Reading { archive, length, record: self.record, offset: 0, buffer: Vec::new(), at: 0 };
        let root = &self.own.root;
        while let Some((header, path)) = reading.entry(meter)? {
            let mode = Mode::from_raw_mode(header.mode & 0o777);
            if header.is_directory() {
                meter.operation(0, || Ok(mkdirat(root, &path, mode)?))?;
                continue;
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = meter.operation(0, || Ok(File::from(openat(root, &path, flags, mode)?)))?;
            let (mut offset, size) = (0, header.size as usize);
            while offset < size {
                let Some(part) = reading.part(size - offset, meter)? else { break };
                if let Some(file) = &file {
                    write(file, offset as u64, part, meter)?;
                }
                offset += part.len();
            }
            reading.take(newc::padding(size).len(), meter)?;
        }
        if self.end_fsync {
            meter.io(FLUSH, || Ok(syncfs(root).map(|()| 0)?))?;
        }
        ControlFlow::Continue(())
    }
}

/// The state of reading an archive.
struct Reading<'a> {
    archive: &'a File,
    length: u64,
    record: usize,
    /// Offset of the next record in the archive, in bytes.
    offset: u64,
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that were already taken.
    at: usize,
}

impl Reading<'_> {
    /// Reads the next record. Returns false at the archive's end, or if the read failed.
    fn more(&mut self, meter: &mut Meter) -> ControlFlow<Over, bool> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let there = self.buffer.len();
        let left = usize::try_from(self.length - self.offset).unwrap_or(usize::MAX);
        self.buffer.resize(there + left.min(self.record), 0);
        let room = &mut self.buffer[there..];
        if room.is_empty() {
            return ControlFlow::Continue(false);
        }
        let io = Io { direction: IoKind::Read, offset: self.offset, length: length(room) };
        self.offset += u64::from(io.length);
        meter.io(io, || (&mut &*self.archive).read(room))
    }

    /// Returns the next `bytes` bytes; `None` if the archive ends before that, or if a read failed.
    fn take(&mut self, bytes: usize, meter: &mut Meter) -> ControlFlow<Over, Option<&[u8]>> {
        while self.buffer.len() - self.at < bytes {
            if !self.more(meter)? {
                return ControlFlow::Continue(None);
            }
        }
        self.at += bytes;
        ControlFlow::Continue(Some(&self.buffer[self.at - bytes..self.at]))
    }

    /// Returns the next bytes, between one and `most`; `None` at the archive's end, or if a read failed.
    fn part(&mut self, most: usize, meter: &mut Meter) -> ControlFlow<Over, Option<&[u8]>> {
        if self.buffer.len() == self.at && !self.more(meter)? {
            return ControlFlow::Continue(None);
        }
        let bytes = most.min(self.buffer.len() - self.at);
        self.take(bytes, meter)
    }

    /// Reads the next entry's header and path; `None` at the archive's end, if a read failed, or if the bytes there are not an entry.
    fn entry(&mut self, meter: &mut Meter) -> ControlFlow<Over, Option<(Header, String)>> {
        let header = self.take(HEADER, meter)?.and_then(|text| Header::read(text).ok());
        let Some(header) = header else { return ControlFlow::Continue(None) };
        let Some(name) = self.take(header.name_room(), meter)? else { return ControlFlow::Continue(None) };
        let name = String::from_utf8_lossy(&name[..header.name.saturating_sub(1)]).into_owned();
        ControlFlow::Continue(Some((header, name)).filter(|(_, name)| !newc::is_end(name)))
    }
}
