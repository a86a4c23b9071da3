//! A file of the volatile directory: its content on disk and its unflushed writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iotax_model::crash::VolatileCut;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::FallocateFlags;

use super::Faults;
use super::pending::{Draw, Pending};

/// Maximum bytes of unflushed writes over all files. A write that exceeds the maximum moves the oldest unflushed writes of its own file to
/// disk.
const MOST: u64 = 256 << 20;

/// State that all files share: settings, the power switch and counters.
#[derive(Debug)]
pub(super) struct Power {
    faults: Faults,
    /// True after the power was cut.
    is_off: AtomicBool,
    bytes: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    dropped_flushes: AtomicU64,
}

impl Power {
    pub(super) const fn new(faults: Faults) -> Self {
        Self {
            faults,
            is_off: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            dropped_flushes: AtomicU64::new(0),
        }
    }

    /// Fails with EIO after the power was cut.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_off.load(Ordering::SeqCst) { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }

    /// Counts a flush that will be acknowledged. Returns true if the flush must be dropped, according to the setting `drop_flush`.
    fn drops_flush(&self) -> bool {
        let number = self.flushes.fetch_add(1, Ordering::Relaxed) + 1;
        let drops = self.faults.drop_flush.is_some_and(|each| number.is_multiple_of(each.into()));
        self.dropped_flushes.fetch_add(drops.into(), Ordering::Relaxed);
        drops
    }

    /// Returns the numbers of acknowledged flushes, and of those that were dropped, since the mount.
    pub(super) fn flushes(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (count(&self.flushes), count(&self.dropped_flushes))
    }

    /// Cuts the power: all later operations fail, and a random selection of each file's unflushed writes is lost. Returns the numbers of
    /// writes kept, torn and lost, and of flushes since the mount.
    pub(super) fn cut<'a>(&self, files: impl Iterator<Item = &'a VolatileFile>) -> io::Result<VolatileCut> {
        self.is_off.store(true, Ordering::SeqCst);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.faults.seed);
        let draw = Draw { reorder: self.faults.reorder, tear: self.faults.tear };
        let mut cut = VolatileCut::default();
        for file in files {
            let Contents { below, pending, .. } = &mut *file.lock();
            let fates =
                pending.cut(draw, &mut random, &mut |offset, data| below.write_all_at(data, offset))?;
            below.sync_all()?;
            cut.kept += fates.kept;
            cut.torn += fates.torn;
            cut.lost += fates.lost;
        }
        // By now, the flushes that the cut interrupted have failed.
        (cut.flushes, cut.dropped_flushes) = self.flushes();
        Ok(cut)
    }
}

/// A regular file in a volatile directory, with a lock for concurrent requests.
#[derive(Debug)]
pub(super) struct VolatileFile {
    contents: Mutex<Contents>,
}

#[derive(Debug)]
struct Contents {
    /// The file in the directory on disk, opened for reading and writing.
    below: File,
    pending: Pending,
    /// Number of flush requests to expect and not to count: O_DSYNC writes were counted as flushes already, and the kernel also sends a
    /// flush request after each synchronous one. A write without O_DSYNC resets the number to 0.
    settled: u64,
}

impl VolatileFile {
    pub(super) fn new(below: File) -> Self {
        Self { contents: Mutex::new(Contents { below, pending: Pending::default(), settled: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the file; fails with EIO after the power was cut. An operation that holds the lock completes before the cut affects the file.
    fn lock_with(&self, power: &Power) -> io::Result<MutexGuard<'_, Contents>> {
        let contents = self.lock();
        power.check()?;
        Ok(contents)
    }

    /// Returns the end offset in bytes of the last unflushed write; 0 if there is none.
    pub(super) fn pending_end(&self) -> u64 {
        self.lock().pending.end()
    }

    /// Discards all unflushed writes, as for a deleted file.
    pub(super) fn discard(&self, power: &Power) {
        let discarded = self.lock().change(power, |_, pending| {
            pending.clear();
            Ok(())
        });
        debug_assert!(discarded.is_ok());
    }

    /// Returns whether the file has no unflushed writes.
    pub(super) fn is_clean(&self) -> bool {
        self.lock().pending.bytes() == 0
    }

    pub(super) fn read(&self, power: &Power, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let contents = self.lock_with(power)?;
        let length = contents.below.metadata()?.len().max(contents.pending.end());
        let size = length.saturating_sub(offset).min(size.into());
        let size = usize::try_from(size).unwrap_or(0);
        let mut read = read_up_to(&contents.below, offset, size)?;
        // Bytes beyond the end of the file on disk are in memory, or zero.
        read.resize(size, 0);
        contents.pending.lay_over(offset, &mut read);
        Ok(read)
    }

    pub(super) fn write(&self, power: &Power, offset: u64, data: &[u8], is_sync: bool) -> io::Result<()> {
        let mut contents = self.lock_with(power)?;
        let age = power.writes.fetch_add(1, Ordering::Relaxed);
        let end = offset + data.len() as u64;
        // If the order is kept, a write must not replace an older unflushed one.
        while !power.faults.reorder && contents.pending.overlaps(offset, end) {
            contents.evict(power)?;
        }
        contents.change(power, |_, pending| {
            pending.put(offset, data.to_vec(), age);
            Ok(())
        })?;
        while power.bytes.load(Ordering::Relaxed) > MOST && contents.evict(power)? > 0 {}
        if !is_sync {
            contents.settled = 0;
            return Ok(());
        }
        contents.settled += 1;
        contents.acknowledge(power)
    }

    /// Handles a flush that a program requested. The flush may be dropped, according to the setting `drop_flush`.
    pub(super) fn flush(&self, power: &Power) -> io::Result<()> {
        let mut contents = self.lock_with(power)?;
        if contents.settled > 0 {
            contents.settled -= 1;
            return Ok(());
        }
        contents.acknowledge(power)
    }

    /// Changes the file's length on disk immediately, and discards unflushed writes beyond it.
    pub(super) fn set_len(&self, power: &Power, length: u64) -> io::Result<()> {
        self.lock_with(power)?.change(power, |below, pending| {
            pending.forget(length, u64::MAX);
            below.set_len(length)
        })
    }

    /// Allocates, punches or zeroes a range of the file on disk immediately.
    pub(super) fn allocate(
        &self,
        power: &Power,
        mode: FallocateFlags,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        self.lock_with(power)?.change(power, |below, pending| {
            if !(mode - FallocateFlags::KEEP_SIZE).is_empty() {
                // Keep the length that the unflushed writes gave to the file.
                let length_below = below.metadata()?.len();
                below.set_len(length_below.max(pending.end()))?;
                pending.forget(offset, offset.saturating_add(length));
            }
            Ok(rustix::fs::fallocate(below, mode, offset, length)?)
        })
    }
}

impl Contents {
    /// Runs `change` on the unflushed writes, and updates the total over all files.
    fn change<T>(
        &mut self,
        power: &Power,
        change: impl FnOnce(&File, &mut Pending) -> io::Result<T>,
    ) -> io::Result<T> {
        let before = self.pending.bytes();
        let changed = change(&self.below, &mut self.pending);
        power.bytes.fetch_add(self.pending.bytes().wrapping_sub(before), Ordering::Relaxed);
        changed
    }

    /// Writes the file's oldest unflushed write to disk. Returns its length in bytes; 0 if there is none.
    fn evict(&mut self, power: &Power) -> io::Result<u64> {
        self.change(power, |below, pending| {
            pending.evict(&mut |offset, data| below.write_all_at(data, offset))
        })
    }

    /// Counts a flush and performs it, unless it must be dropped. A flush that fails is not counted.
    fn acknowledge(&mut self, power: &Power) -> io::Result<()> {
        if power.drops_flush() {
            return Ok(());
        }
        self.flush(power).inspect_err(|_| {
            power.flushes.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Writes all unflushed data to disk and syncs the file. If the power is cut meanwhile, restores the former content and fails: the
    /// writes stay unflushed, and the cut decides which of them survive.
    fn flush(&mut self, power: &Power) -> io::Result<()> {
        self.change(power, |below, pending| {
            let length = below.metadata()?.len();
            let mut before = Vec::new();
            pending.write_down(&mut |offset, data| {
                before.push((offset, read_up_to(below, offset, data.len())?));
                below.write_all_at(data, offset)
            })?;
            below.sync_data()?;
            if power.check().is_err() {
                before.iter().try_for_each(|(offset, data)| below.write_all_at(data, *offset))?;
                below.set_len(length)?;
                return power.check();
            }
            pending.clear();
            Ok(())
        })
    }
}

/// Reads up to `size` bytes of a file from `offset`; fewer if the file ends before.
fn read_up_to(file: &File, offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut read = vec![0; size];
    let mut done = 0;
    while done < size {
        match file.read_at(&mut read[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    read.truncate(done);
    Ok(read)
}
