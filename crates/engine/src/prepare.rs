//! Prepares a target for a measurement: fills its area, and drops or loads caches.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use iotax_load::buffers::Slot;
use iotax_load::clock;
use iotax_load::error::{EngineError, OpenRefusal};
use iotax_load::io_errors::errno_name;
use iotax_load::random::{Purpose, SplitMix64};
use iotax_load::request::{Completion, Io, IoKind};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::wire::ByteRange;
use iotax_model::workload::{Content, SyncMode, Verify, Workload};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::backend::{Backend, VIRTIO_SECTOR};
use crate::open::{self, Access, Target};
use crate::payload::Source;
use crate::transfer::{self, Transfer};
use crate::verify::{Mark, write_stamps};

/// Bytes of one write: large enough to reach the device's full write speed.
const CHUNK: u32 = 1 << 20;
/// Number of writes kept in flight.
const DEPTH: u32 = 8;
/// Alignment of direct writes in bytes: the largest common logical block size.
const DIRECT_UNIT: u64 = 4096;
/// Minimum time between two progress reports.
const PROGRESS_EVERY: Nanos = Nanos::from_millis(200);

/// Writes every byte of an area of an existing file or device once, and flushes. `content` sets how compressible the data is, how much of
/// it repeats earlier 1 MiB writes, and whether its sectors get stamps for verification; the seed determines the bytes. A file that is
/// shorter than the area grows. `progress` gets the bytes written so far, a few times a second and at the end. Before the first byte of
/// a file, the filesystem's dirty data is written back.
///
/// # Errors
/// A target that cannot be opened for writing, a device that is too small, the first write that fails, with its offset, and a failed flush.
pub fn fill(
    path: &Path,
    area: &ByteRange,
    content: &Content,
    seed: u64,
    progress: &mut dyn FnMut(Bytes),
) -> Result<(), EngineError> {
    let ByteRange { offset, size, shared, identity, .. } = *area;
    // Direct I/O keeps the written data out of the page cache.
    let target = open::directly_if_possible(
        path,
        Access { write: true, direct: true, sync: SyncMode::None, shared, identity, queue_size: None },
    )?;
    if target.is_device && offset.0.saturating_add(size.0) > target.length {
        let reason = OpenRefusal::TooLong { size, offset, length: Bytes(target.length) };
        return Err(open::at_path(path)(reason));
    }
    if offset.0 == 0 && !target.is_device {
        // What was copied or built here before would be written back during the first measurements. Its errors are not the file's.
        let _ = rustix::fs::syncfs(&target.file);
    }
    let failed = |doing: &str| EngineError::system(format!("{}: {doing}", path.display()));
    let filling = Filling::new(content, seed);
    let unit = if target.virtio.is_some() { VIRTIO_SECTOR } else { DIRECT_UNIT };
    let body = size.0 - size.0 % unit;
    let task = Fill { filling: &filling, begin: offset.0, bytes: body, progress };
    transfer::perform(&target, DEPTH, CHUNK as usize, task)?.map_err(failed("filling"))?;
    write_tail(&target.file, &filling, offset.0 + body, offset.0 + size.0)
        .map_err(failed("filling its last bytes"))?;
    target.sync_data().map_err(failed("flushing"))?;
    progress(size);
    Ok(())
}

/// Generator of the content of a filled area. Each write's content depends only on the seed and the write's offset.
struct Filling {
    source: Source,
    mark: Mark,
    verify: Verify,
}

impl Filling {
    fn new(content: &Content, seed: u64) -> Self {
        let random = |number| SplitMix64::new(seed, Purpose::Fill, number);
        Self { source: Source::new(content, random(0)), mark: Mark::of_fill(seed), verify: content.verify }
    }

    /// Fills `buffer`, a whole number of sectors, with the content for the write `io`.
    fn put(&self, io: Io, buffer: &mut [u8]) {
        // The remainder that direct I/O cannot write has the number after the last chunk's.
        self.source.put(io.offset.div_ceil(CHUNK.into()), buffer);
        if self.verify != Verify::None {
            write_stamps(buffer, &io, self.mark, self.verify);
        }
    }
}

/// Transfer that writes `bytes` bytes from offset `begin` in chunks of up to 1 MiB; a chunk's content depends on its offset.
struct Fill<'a> {
    filling: &'a Filling,
    begin: u64,
    bytes: u64,
    progress: &'a mut dyn FnMut(Bytes),
}

impl Transfer for Fill<'_> {
    fn perform<B: Backend>(self, mut backend: B, mut free: Vec<Slot>) -> io::Result<()> {
        let Self { filling, begin, bytes, progress } = self;
        let mut pending = vec![Io { direction: IoKind::Write, offset: 0, length: 0 }; free.len()];
        let mut done = Vec::with_capacity(free.len());
        let (mut queued, mut written) = (0, 0);
        let mut reported_at = clock::now();
        while written < bytes {
            while queued < bytes
                && let Some(mut slot) = free.pop()
            {
                let length = u32::try_from(bytes - queued).unwrap_or(CHUNK).min(CHUNK);
                let io = Io { direction: IoKind::Write, offset: begin + queued, length };
                filling.put(io, &mut backend.buffer(&mut slot)[..length as usize]);
                pending[slot.index()] = io;
                backend.queue(slot, io);
                queued += u64::from(length);
            }
            backend.submit(u64::MAX)?;
            backend.reap(&mut done);
            for Completion { slot, result } in done.drain(..) {
                let io = pending[slot.index()];
                check_written(result, io)?;
                written += u64::from(io.length);
                free.push(slot);
            }
            let now = clock::now();
            if now - reported_at >= PROGRESS_EVERY.0 {
                reported_at = now;
                progress(Bytes(written));
            }
        }
        Ok(())
    }
}

fn check_written(result: i32, io: Io) -> io::Result<()> {
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        return Err(io::Error::new(
            error.kind(),
            format!("{} at offset {} ({error})", errno_name(-result), io.offset),
        ));
    }
    if result.cast_unsigned() < io.length {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{result} of {} bytes were taken at offset {}; is it full?", io.length, io.offset),
        ));
    }
    Ok(())
}

/// Writes the bytes from offset `body` to offset `size` through the page cache: the end of the area, which is shorter than the direct I/O
/// unit.
fn write_tail(file: &File, filling: &Filling, body: u64, size: u64) -> io::Result<()> {
    if body == size {
        return Ok(());
    }
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags - OFlags::DIRECT)?;
    let io = Io { direction: IoKind::Write, offset: body, length: u32::try_from(size - body).unwrap_or(0) };
    let length = io.length as usize;
    // Content is put in whole sectors.
    let mut buffer = vec![0; length.next_multiple_of(512)];
    filling.put(io, &mut buffer);
    file.write_all_at(&buffer[..length], body)?;
    fcntl_setfl(file, flags)?;
    Ok(())
}

/// Reads an area once, so that as much of it as fits is in the page cache.
pub(crate) fn read_ahead(target: &Target, area: &Workload, size: Bytes) -> Result<(), EngineError> {
    let (mut offset, end) = (area.offset.0, area.offset.0 + size.0);
    let mut buffer = vec![0; CHUNK as usize];
    while offset < end {
        let length = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
        match target
            .file
            .read_at(&mut buffer[..length], offset)
            .map_err(EngineError::system("reading the area into the page cache"))?
        {
            0 => break,
            read => offset += read as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::os::unix::fs::MetadataExt;

    /// Returns the range of the first `size` bytes of a target.
    fn area(size: Bytes) -> ByteRange {
        ByteRange { path: None, offset: Bytes(0), size, shared: false, identity: None }
    }

    fn filled(size: u64, seed: u64, dir: &Path) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new_in(dir).expect("file");
        let mut reports = Vec::new();
        fill(file.path(), &area(Bytes(size)), &Content::default(), seed, &mut |done| reports.push(done.0))
            .expect("filled");
        assert!(reports.is_sorted() && reports.last() == Some(&size), "{reports:?}");
        std::fs::read(file.path()).expect("read")
    }

    #[test]
    fn fills_every_byte_with_what_the_seed_gives() {
        // Several chunks, a part of one, and a tail that direct I/O cannot write.
        let size = (20 << 20) + 12_288 + 300;
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let content = filled(size, 7, here);
        assert_eq!(content.len() as u64, size);
        assert_eq!(content, filled(size, 7, Path::new("/dev/shm")), "buffered or not, the seed decides");
        let other = filled(size, 8, here);
        assert!(content.chunks(4096).zip(other.chunks(4096)).all(|(one, two)| one != two));
        let distinct: HashSet<&[u8]> = content.chunks(512).collect();
        assert_eq!(distinct.len(), content.len().div_ceil(512), "no two blocks alike");
        assert!(!distinct.iter().any(|block| block.iter().all(|byte| *byte == 0)));
        let compressed = zstd::bulk::compress(&content, 3).expect("compresses").len();
        assert!(compressed >= content.len(), "{compressed} of {}", content.len());
    }

    #[test]
    fn a_file_that_took_the_place_of_the_one_to_be_filled_is_not_written() {
        use iotax_model::wire::Identity;
        use std::os::unix::fs::MetadataExt;
        let (ours, theirs) =
            (tempfile::NamedTempFile::new().expect("file"), tempfile::NamedTempFile::new().expect("file"));
        std::fs::write(theirs.path(), "the user's").expect("written");
        let found = ours.as_file().metadata().expect("metadata");
        let only_ours = ByteRange {
            identity: Some(Identity::File { device: found.dev(), inode: found.ino() }),
            ..area(Bytes(4096))
        };
        let filled = |path: &Path| fill(path, &only_ours, &Content::default(), 1, &mut |_| {});
        filled(ours.path()).expect("filled");
        let refused = filled(theirs.path()).expect_err("refused").to_string();
        assert!(refused.contains("another file or device has taken its place"), "{refused}");
        assert_eq!(std::fs::read(theirs.path()).expect("read"), b"the user's");
    }

    #[test]
    fn keeps_to_its_area() {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), vec![9; 16384]).expect("written");
        fill(file.path(), &area(Bytes(8000)), &Content::default(), 1, &mut |_| {}).expect("filled");
        let content = std::fs::read(file.path()).expect("read");
        assert_eq!(content.len(), 16384);
        assert!(content[8000..].iter().all(|byte| *byte == 9));
        assert!(content[..8000].chunks(100).all(|part| part.iter().any(|byte| *byte != 9)));
    }

    #[test]
    fn what_was_written_to_the_filesystem_before_is_written_back_first() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let other = tempfile::NamedTempFile::new_in(here).expect("file");
        let dirty = || crate::page_cache::dirty(other.as_file());
        let Some(_) = dirty() else { iotax_testkit::skip!("cachestat(2) is missing here") };
        // Another test may sync the filesystem in between.
        let is_dirty = (0..50).any(|_| {
            // A file that is truncated, written and closed would be written back at once by ext4.
            other.as_file().write_all_at(&[1].repeat(1 << 20), 0).expect("written");
            dirty() > Some(0)
        });
        assert!(is_dirty, "a filesystem on a disk is meant");
        filled(4096, 1, here);
        assert_eq!(dirty(), Some(0));
    }

    #[test]
    fn leaves_no_hole() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        file.as_file().set_len(4 << 20).expect("sized");
        fill(file.path(), &area(Bytes(4 << 20)), &Content::default(), 1, &mut |_| {}).expect("filled");
        assert!(file.as_file().metadata().expect("metadata").blocks() * 512 >= 4 << 20);
    }

    #[test]
    fn what_is_not_there_is_not_created() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("absent");
        let error = fill(&path, &area(Bytes(4096)), &Content::default(), 1, &mut |_| {})
            .expect_err("refused")
            .to_string();
        assert!(error.contains("does not exist") && !path.exists(), "{error}");
    }
}
