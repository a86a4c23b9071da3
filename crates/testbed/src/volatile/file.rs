//! A file of the volatile directory: its content on disk, and its pending writes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use iotax_model::crash::VolatileCut;
use iotax_model::record::VolatileFlushes;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::FallocateFlags;

use super::Faults;
use super::pending::{Draw, Pending};

/// Maximum bytes of pending writes, over all files. Beyond it, the oldest writes of the file that is being written go to disk.
const MOST: u64 = 256 << 20;

/// The state that all files share.
#[derive(Debug)]
pub(super) struct Power {
    faults: Faults,
    /// True after the cut.
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

    /// Fails with EIO after the power cut.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_off.load(Ordering::SeqCst) { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }

    /// Counts a flush that will be acknowledged. Returns whether to drop it.
    fn drops_flush(&self) -> bool {
        let number = self.flushes.fetch_add(1, Ordering::Relaxed) + 1;
        let drops = self.faults.drop_flush.is_some_and(|each| number.is_multiple_of(each.into()));
        self.dropped_flushes.fetch_add(drops.into(), Ordering::Relaxed);
        drops
    }

    pub(super) fn flushes(&self) -> VolatileFlushes {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        VolatileFlushes { done: count(&self.flushes), dropped: count(&self.dropped_flushes) }
    }

    /// Cuts the power: later operations fail, and each file loses a random selection of its pending writes.
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
        // By now the flushes that it interrupted have failed.
        let VolatileFlushes { done, dropped } = self.flushes();
        (cut.flushes, cut.dropped_flushes) = (done, dropped);
        Ok(cut)
    }
}

/// A regular file of a volatile directory.
#[derive(Debug)]
pub(super) struct VolatileFile {
    contents: Mutex<Contents>,
}

#[derive(Debug)]
struct Contents {
    /// The open file in the directory below.
    below: File,
    pending: Pending,
    /// O_DSYNC writes since the last other write, each already counted as a flush. The kernel sends a flush request after each such write
    /// unless it was asynchronous; these requests are not counted again.
    settled: u64,
}

impl VolatileFile {
    pub(super) fn new(below: File) -> Self {
        Self { contents: Mutex::new(Contents { below, pending: Pending::default(), settled: 0 }) }
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the file; fails after the power cut. An operation that holds the lock completes before a cut takes effect on the file.
    fn lock_with(&self, power: &Power) -> io::Result<MutexGuard<'_, Contents>> {
        let contents = self.lock();
        power.check()?;
        Ok(contents)
    }

    /// The end offset of the last pending write; 0 if there are none.
    pub(super) fn pending_end(&self) -> u64 {
        self.lock().pending.end()
    }

    /// Drops pending writes, as for a deleted file.
    pub(super) fn discard(&self, power: &Power) {
        let discarded = self.lock().change(power, |_, pending| {
            pending.clear();
            Ok(())
        });
        debug_assert!(discarded.is_ok());
    }

    /// Returns whether the file has no pending writes.
    pub(super) fn is_clean(&self) -> bool {
        self.lock().pending.bytes() == 0
    }

    pub(super) fn read(&self, power: &Power, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let contents = self.lock_with(power)?;
        let length = contents.below.metadata()?.len().max(contents.pending.end());
        let size = length.saturating_sub(offset).min(size.into());
        let size = usize::try_from(size).unwrap_or(0);
        let mut read = read_up_to(&contents.below, offset, size)?;
        // What lies behind its end is in memory, or zero.
        read.resize(size, 0);
        contents.pending.lay_over(offset, &mut read);
        Ok(read)
    }

    pub(super) fn write(&self, power: &Power, offset: u64, data: &[u8], is_sync: bool) -> io::Result<()> {
        let mut contents = self.lock_with(power)?;
        let age = power.writes.fetch_add(1, Ordering::Relaxed);
        let end = offset + data.len() as u64;
        // Where the order is kept, no write takes the place of an older one.
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

    /// A flush requested by a program, which faults may drop.
    pub(super) fn flush(&self, power: &Power) -> io::Result<()> {
        let mut contents = self.lock_with(power)?;
        if contents.settled > 0 {
            contents.settled -= 1;
            return Ok(());
        }
        contents.acknowledge(power)
    }

    /// Sets the length; takes effect below at once.
    pub(super) fn set_len(&self, power: &Power, length: u64) -> io::Result<()> {
        self.lock_with(power)?.change(power, |below, pending| {
            pending.forget(length, u64::MAX);
            below.set_len(length)
        })
    }

    /// Allocates, punches or zeroes a range; takes effect below at once.
    pub(super) fn allocate(
        &self,
        power: &Power,
        mode: FallocateFlags,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        self.lock_with(power)?.change(power, |below, pending| {
            if !(mode - FallocateFlags::KEEP_SIZE).is_empty() {
                // The length that they gave to the file stays.
                let length_below = below.metadata()?.len();
                below.set_len(length_below.max(pending.end()))?;
                pending.forget(offset, offset.saturating_add(length));
            }
            Ok(rustix::fs::fallocate(below, mode, offset, length)?)
        })
    }
}

impl Contents {
    /// Changes the pending writes, and updates the total of pending bytes.
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

    /// Writes the oldest pending write to the file below; returns its length in bytes.
    fn evict(&mut self, power: &Power) -> io::Result<u64> {
        self.change(power, |below, pending| {
            pending.evict(&mut |offset, data| below.write_all_at(data, offset))
        })
    }

    /// Counts a flush and performs it, unless faults drop it.
    fn acknowledge(&mut self, power: &Power) -> io::Result<()> {
        if power.drops_flush() {
            return Ok(());
        }
        self.flush(power).inspect_err(|_| {
            power.flushes.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Writes all pending data to disk. If the power is cut meanwhile, restores the file below: the writes stay pending for the cut's
    /// random choice.
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

/// The bytes of a file from `offset`; fewer at its end.
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
