//! Measures how much of a target's area is in the page cache, and drops the page cache.

#![expect(unsafe_code, reason = "mincore(2) needs a mapping, and ioctl(2) is told numbers")]

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr::null_mut;

use iotax_model::record::{CacheDrop, PageCache};
use iotax_model::units::Nanos;
use iotax_model::wire::Job;
use iotax_model::workload::{AccessHint, Workload};
use rustix::fs::{Advice, fadvise};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::open::Target;

/// Bytes of a sampled range; a multiple of every page size.
const STRETCH: u64 = 1 << 20;
/// Maximum number of sampled ranges.
const STRETCHES: u64 = 1024;
/// Load time that allows one sampled range, up to [`STRETCHES`] ranges. Sampling a range takes the kernel about 10 us on a host and 60 us
/// in an emulated guest, so sampling before and after the load takes at most 3% of the load's time.
const STRETCH_EVERY: Nanos = Nanos::from_millis(5);

/// The sampled ranges of an area, and how many of their bytes were cached at one moment.
pub(crate) struct CachedPages {
    stretches: Vec<u64>,
    bytes: u64,
}

impl CachedPages {
    /// Samples the page cache of a job's area. `None` if mincore(2) does not report the real state to this user, or if the state cannot be
    /// determined for another reason.
    pub(crate) fn sample(job: &Job, target: &Target) -> Option<Self> {
        if !is_reported(target) {
            return None;
        }
        let begin = job.workload.offset.0;
        let end = begin + job.workload.span(job.size).map_or(0, |span| span.0);
        let (first, last) = (begin / STRETCH, end.checked_sub(1)? / STRETCH);
        let count = last - first + 1;
        let affordable = (job.workload.duration().0 / STRETCH_EVERY.0).clamp(1, STRETCHES);
        let sampled = count.min(affordable);
        let stretches = stretches(first, count, sampled);
        let bytes = bytes(&target.file, &stretches, target.length)?;
        Some(Self { stretches, bytes })
    }

    /// Samples the same ranges again, and returns their cached bytes before and now; `None` if that cannot be determined.
    pub(crate) fn and_now(self, target: &Target) -> Option<PageCache> {
        let after = bytes(&target.file, &self.stretches, target.length)?;
        let length = |begin: &u64| target.length.min(begin + STRETCH) - begin;
        Some(PageCache { looked_at: self.stretches.iter().map(length).sum(), before: self.bytes, after })
    }
}

/// Returns whether mincore(2) reports the real state: to a user who neither owns nor may write the file it reports every page as cached.
fn is_reported(target: &Target) -> bool {
    target.access.write || target.file.metadata().is_ok_and(|found| is_owner(found.uid()))
}

fn is_owner(uid: u32) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || user.as_raw() == uid
}

/// Returns the offsets of `sampled` ranges, spread evenly over the `count` ranges of [`STRETCH`] bytes from number `first`.
fn stretches(first: u64, count: u64, sampled: u64) -> Vec<u64> {
    (0..sampled).map(|number| (first + number * count / sampled) * STRETCH).collect()
}

fn bytes(file: &File, stretches: &[u64], length: u64) -> Option<u64> {
    stretches
        .iter()
        .try_fold(0, |sum, begin| Some(sum + cached(file, *begin, length.min(begin + STRETCH) - begin)?))
}

/// Returns how many bytes of a range are cached, in whole pages; `None` if that cannot be determined.
fn cached(file: &File, begin: u64, length: u64) -> Option<u64> {
    let page = rustix::param::page_size();
    let length = usize::try_from(length).ok()?;
    let mut resident = vec![0_u8; length.div_ceil(page)];
    // SAFETY: a new mapping at a place of the kernel's choice, which nobody reads or writes.
    let mapped =
        unsafe { mmap(null_mut(), length, ProtFlags::empty(), MapFlags::SHARED, file.as_fd(), begin) }
            .ok()?;
    // SAFETY: the range is that of the mapping, and the vector has a byte for each of its pages.
    let result = unsafe { libc::mincore(mapped, length, resident.as_mut_ptr()) };
    // SAFETY: nothing refers to the mapping.
    unsafe { munmap(mapped, length) }.ok()?;
    let pages = resident.iter().filter(|page| **page & 1 == 1).count();
    (result == 0).then_some((pages * page) as u64)
}

/// Writes back and drops the page cache of these files and devices, and reports how much of them is still cached; that is unknown if a file
/// could not be opened, or if the kernel does not report it. Returns [`CacheDrop::Nothing`] if no file could be opened, or if the cache of
/// one could not be dropped. Other caches, such as that of dentries, are not dropped.
pub fn drop_caches_of(paths: &[PathBuf]) -> CacheDrop {
    let files: Vec<File> = paths.iter().filter_map(|path| File::open(path).ok()).collect();
    if files.is_empty() || !files.iter().all(|file| drop_pages(file).is_ok()) {
        return CacheDrop::Nothing;
    }
    let lengths = files.iter().map(length);
    let of = lengths.sum();
    let is_all = files.len() == paths.len();
    let left = is_all.then(|| files.iter().map(left).sum()).flatten();
    CacheDrop::Target { of, left }
}

/// Syncs, then drops the page, dentry and inode caches of the whole machine, which slows down all its users. Returns false if that is not
/// permitted.
pub fn drop_caches_of_machine() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Returns the length of a file or device in bytes; 0 if unknown.
fn length(mut file: &File) -> u64 {
    file.seek(SeekFrom::End(0)).unwrap_or_default()
}

/// Returns the cached bytes of a file or device, from cachestat(2), or from mincore(2) on older kernels. `None` if neither call reports
/// them: mincore(2) only does so to the owner and root, and is not used beyond 1 GiB.
fn left(file: &File) -> Option<u64> {
    cached_at_all(file).or_else(|| {
        let length = length(file);
        let is_reported = file.metadata().is_ok_and(|found| is_owner(found.uid()));
        let count = length.div_ceil(STRETCH);
        (is_reported && count <= STRETCHES)
            .then(|| bytes(file, &stretches(0, count, count), length))
            .flatten()
    })
}

/// Returns the cached bytes of a whole file from cachestat(2); `None` if the kernel lacks the call, as before Linux 6.5, or refuses it.
fn cached_at_all(file: &File) -> Option<u64> {
    cache_pages(file).map(|[cached, _]| cached * rustix::param::page_size() as u64)
}

/// Returns the dirty bytes of a whole file from cachestat(2); `None` before Linux 6.5.
#[cfg(test)]
pub(crate) fn dirty(file: &File) -> Option<u64> {
    cache_pages(file).map(|[_, dirty]| dirty * rustix::param::page_size() as u64)
}

/// Returns the numbers of a file's cached and dirty pages from cachestat(2); `None` before Linux 6.5.
fn cache_pages(file: &File) -> Option<[u64; 2]> {
    /// The system call's number, the same on every architecture.
    const CACHESTAT: libc::c_long = 451;
    let (whole, mut counts) = ([0_u64; 2], [0_u64; 5]);
    // SAFETY: a descriptor that is open, `struct cachestat_range` (offset, and 0 for all that follows) and `struct cachestat` to fill
    // (linux/mman.h): two and five u64.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), whole.as_ptr(), counts.as_mut_ptr(), 0 as libc::c_uint)
    };
    (result == 0).then(|| [counts[0], counts[1]])
}

/// Writes back a target's dirty pages and drops its page cache. A virtio device has no page cache here and is only flushed.
pub(crate) fn drop_pages_of(target: &Target) -> io::Result<()> {
    if target.virtio.is_some() { target.sync_data() } else { drop_pages(&target.file) }
}

/// Writes back a file's dirty pages and drops its page cache.
pub(crate) fn drop_pages(file: &File) -> io::Result<()> {
    file.sync_data()?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Drops the clean pages of a range and starts writeback of the dirty ones. On a device, writes back and drops the whole page cache
/// instead, if permitted. Errors are ignored: this only affects how long later I/O takes.
pub(crate) fn drop_range(file: &File, is_device: bool, start: u64, length: u64) {
    /// The ioctl `BLKFLSBUF` of linux/fs.h, which writes back and drops a block device's page cache.
    const BLKFLSBUF: libc::Ioctl = 0x1261;
    // SAFETY: the request takes no argument.
    if is_device && unsafe { libc::ioctl(file.as_raw_fd(), BLKFLSBUF, 0) } == 0 {
        return;
    }
    let _ = fadvise(file, start, NonZeroU64::new(length), Advice::DontNeed);
}

/// Passes the workload's access hint (`fadvise_hint`) to the kernel for a worker's open file.
pub(crate) fn hint(file: &File, workload: &Workload) {
    let advice = match workload.fadvise_hint {
        AccessHint::None => return,
        AccessHint::Random => Advice::Random,
        AccessHint::Pattern if workload.rw.is_random() => Advice::Random,
        AccessHint::Pattern | AccessHint::Sequential => Advice::Sequential,
    };
    // It is a hint: nothing depends on it but the time that I/O takes.
    let _ = fadvise(file, 0, None, advice);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open::{self, Access};
    use iotax_model::units::Bytes;
    use iotax_model::workload::{SyncMode, WorkloadKeys};
    use std::io::Read;

    const TRIES: u32 = 5;

    #[test]
    fn what_was_read_is_seen_to_be_cached_and_what_was_dropped_is_not() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        let size = (6 << 20) + 5000;
        std::fs::write(file.path(), vec![1; size]).expect("written");
        drop_pages(file.as_file()).expect("dropped");
        let workload = WorkloadKeys::default().complete(&WorkloadKeys::default());
        let job = Job { writable: true, ..Job::new(workload, Bytes(size as u64), 1, Nanos::from_secs(1)) };
        let access = Access {
            write: true,
            direct: false,
            sync: SyncMode::None,
            shared: false,
            identity: None,
            queue_size: None,
        };
        let target = open::open(file.path(), access).expect("opened");
        let sample = || CachedPages::sample(&job, &target).expect("looked");
        let first = sample();
        if first.bytes != 0 {
            iotax_testkit::skip!("this filesystem keeps {} bytes of what was dropped", first.bytes);
        }
        assert_eq!(first.and_now(&target), Some(PageCache { looked_at: size as u64, before: 0, after: 0 }));
        // Other tests drop all caches meanwhile.
        let all = (size as u64).next_multiple_of(4096);
        let seen = (0..TRIES).map(|_| {
            drop_pages(file.as_file()).expect("dropped");
            let first = sample();
            let mut read = Vec::new();
            File::open(file.path()).and_then(|mut file| file.read_to_end(&mut read)).expect("read");
            let now = first.and_now(&target).expect("looked");
            (now.before, now.after)
        });
        let seen: Vec<(u64, u64)> = seen.collect();
        assert!(seen.contains(&(0, all)), "{seen:?}");
    }

    #[test]
    fn dropped_pages_are_gone() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        std::fs::write(file.path(), vec![1; 1 << 20]).expect("written");
        // A page stays if another test's cache drop holds it at that time.
        let seen = (0..TRIES).map(|_| {
            drop_pages(file.as_file()).expect("dropped");
            rustix::io::preadv2(
                file.as_file(),
                &mut [io::IoSliceMut::new(&mut [0; 4096])],
                0,
                rustix::io::ReadWriteFlags::NOWAIT,
            )
        });
        let seen: Vec<_> = seen.collect();
        if seen.contains(&Err(rustix::io::Errno::OPNOTSUPP)) {
            iotax_testkit::skip!("no word on what is cached");
        }
        assert!(seen.contains(&Err(rustix::io::Errno::AGAIN)), "still cached: {seen:?}");
    }

    #[test]
    fn of_a_target_only_its_own_pages_are_dropped() {
        let files: Vec<_> = (0..3)
            .map(|_| tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file"))
            .collect();
        for file in &files {
            std::fs::write(file.path(), vec![1; 1 << 20]).expect("written");
            file.as_file().sync_data().expect("synced");
        }
        let all_is_cached = || left(files[2].as_file()) == Some(1 << 20);
        if !all_is_cached() {
            iotax_testkit::skip!("no word on what is cached");
        }
        let own: Vec<PathBuf> = files[..2].iter().map(|file| file.path().to_owned()).collect();
        assert_eq!(drop_caches_of(&own), CacheDrop::Target { of: 2 << 20, left: Some(0) });
        assert!(all_is_cached(), "another file's pages went too");
    }

    #[test]
    fn what_could_not_be_opened_is_unknown() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let missing = file.path().with_extension("missing");
        assert_eq!(drop_caches_of(std::slice::from_ref(&missing)), CacheDrop::Nothing);
        let both = [file.path().to_owned(), missing];
        assert_eq!(drop_caches_of(&both), CacheDrop::Target { of: 0, left: None });
    }

    #[test]
    fn both_ways_to_count_what_is_cached_agree() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        let length = (3 << 20) + 5000;
        std::fs::write(file.path(), vec![1; length]).expect("written");
        let pages = (length as u64).next_multiple_of(4096);
        let Some(counted) = cached_at_all(file.as_file()) else { iotax_testkit::skip!("no cachestat(2)") };
        let sampled = bytes(file.as_file(), &stretches(0, 4, 4), length as u64);
        assert_eq!((counted, sampled), (pages, Some(pages)));
    }
}
