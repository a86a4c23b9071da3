//! Opens targets safely: never creates or truncates a file, and opens a read-only target read-only.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use iotax_load::error::{EngineError, OpenRefusal};
use iotax_model::units::Bytes;
use iotax_model::wire::{Identity, Job};
use iotax_model::workload::{Distribution, IoEngine, Kind as WorkloadKind, SyncMode, Workload};
use rustix::fs::{AtFlags, StatxFlags, fallocate, fstatfs, ioctl_blksszget, statx};
use rustix::io::Errno;

use crate::backend::{Device, PUNCH, VIRTIO_SECTOR, flush_virtio};
use crate::{identity, queue};

/// The `f_type` by which statfs(2) identifies tmpfs.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The way to open a target: for reading or writing, direct or buffered, and how writes become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) write: bool,
    pub(crate) direct: bool,
    pub(crate) sync: SyncMode,
    /// True if the device cannot be claimed exclusively, because a layer built by iotax or a concurrent job holds it.
    pub(crate) shared: bool,
    /// The file or device that the path must lead to; `None` to accept any.
    pub(crate) identity: Option<Identity>,
    /// Entries of each queue of a virtio device; `None` for the maximum.
    pub(crate) queue_size: Option<u16>,
}

impl Access {
    /// Returns the access with which a workload opens files that it created.
    pub(crate) const fn of(workload: &Workload) -> Self {
        let (direct, sync) = (workload.direct, workload.sync);
        Self { write: true, direct, sync, shared: false, identity: None, queue_size: None }
    }

    /// Returns the flags of open(2) for direct I/O and for O_SYNC or O_DSYNC.
    pub(crate) const fn flags(self) -> i32 {
        let sync = match self.sync {
            SyncMode::None | SyncMode::RwfDSync => 0,
            SyncMode::Sync => libc::O_SYNC,
            SyncMode::DSync => libc::O_DSYNC,
        };
        if self.direct { sync | libc::O_DIRECT } else { sync }
    }

    /// Opens a file with this access and the additional open(2) flags in `flags`. Adds O_NOATIME if permitted: updating the access time costs
    /// some 40 ns per cached read.
    fn open(self, path: &Path, flags: i32) -> io::Result<File> {
        let open = |flags: i32| {
            File::options().read(true).write(self.write).custom_flags(self.flags() | flags).open(path)
        };
        match open(flags | libc::O_NOATIME) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => open(flags),
            opened => opened,
        }
    }
}

/// An open file, block device or virtio device, to which I/O is done.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: File,
    pub(crate) access: Access,
    pub(crate) is_device: bool,
    /// The connection to a virtio device, if the target is the socket of one; `None` for files and block devices.
    pub(crate) virtio: Option<Arc<Device>>,
    /// Length of the file or device in bytes.
    pub(crate) length: u64,
}

/// Wraps a refusal in an error that names the path.
pub(crate) fn at_path(path: &Path) -> impl Fn(OpenRefusal) -> EngineError {
    move |reason| EngineError::Target { path: path.display().to_string(), reason }
}

/// Opens the target of a job. Fails if the job cannot run on this target.
pub(crate) fn for_job(job: &Job, path: &Path) -> Result<Target, EngineError> {
    let workload = &job.workload;
    let refuse = at_path(path);
    if workload.modifies() && !job.writable {
        return Err(refuse(OpenRefusal::ReadOnly(workload.doing())));
    }
    let needed =
        if workload.is_random() || workload.offset_increment.is_some() { 1 } else { workload.numjobs };
    let bs = workload.max_bs();
    // Random offsets are multiples of the shortest length; a remainder at the end is not used.
    let usable = job.size.0 - job.size.0 % workload.min_bs().0;
    if usable / bs.0 < u64::from(needed) {
        return Err(refuse(OpenRefusal::TooSmall { size: job.size, bs, needed }));
    }
    let access = Access {
        write: workload.modifies(),
        direct: workload.direct,
        sync: workload.sync,
        shared: job.shared,
        identity: job.identity,
        queue_size: job.queue_size,
    };
    let target = open(path, access).map_err(&refuse)?;
    target.check_engine(workload).map_err(&refuse)?;
    if let Distribution::Sequence(sequence) = &workload.random_distribution {
        let blocks = job.size.0 / workload.blockalign.unwrap_or(workload.min_bs()).0;
        if workload.rw.is_random() && sequence.blocks_needed() > blocks {
            let order = workload.random_distribution.to_string();
            return Err(refuse(OpenRefusal::Sequence { order, size: job.size, blocks }));
        }
    }
    let size = workload.span(job.size).unwrap_or(Bytes(u64::MAX));
    let (offset, length) = (workload.offset, Bytes(target.length));
    if size.0.checked_add(offset.0).is_none_or(|end| end > length.0) {
        return Err(refuse(OpenRefusal::TooLong { size, offset, length }));
    }
    if let Some(unit) = target.direct_unit()
        && let Some((key, value)) = misaligned(workload, unit)
    {
        return Err(refuse(OpenRefusal::Alignment { key, value, unit: Bytes(unit) }));
    }
    if workload.ioengine == IoEngine::Ftruncate && offset.0.saturating_add(size.0) < length.0 {
        return Err(refuse(OpenRefusal::Cut));
    }
    if workload.trims() {
        target.check_trim(workload.libblkio_write_zeroes_on_trim).map_err(&refuse)?;
    }
    // A virtio device's queue is memory, which can always be polled.
    if workload.hipri && target.virtio.is_none() && queue::attribute(&target.file, "io_poll") == Some(0) {
        return Err(refuse(OpenRefusal::NoPolling(
            "its device has no queues for it (queue/io_poll is 0)".into(),
        )));
    }
    Ok(target)
}

/// Returns a key whose offset or length is not a multiple of `unit`, and its value; `None` if all are aligned.
fn misaligned(workload: &Workload, unit: u64) -> Option<(&'static str, String)> {
    let is_whole = |bytes: u64| bytes.is_multiple_of(unit);
    let lengths = match (&workload.bsrange, &workload.bssplit) {
        (Some(range), _) => ("bsrange", range.to_string()),
        (None, Some(split)) => ("bssplit", split.to_string()),
        (None, None) => ("bs", workload.bs.to_string()),
    };
    if !is_whole(workload.bs_unit().0) {
        Some(lengths)
    } else if !is_whole(workload.offset.0) {
        Some(("offset", workload.offset.to_string()))
    } else if let Some(increment) = workload.offset_increment.filter(|increment| !is_whole(increment.0)) {
        Some(("offset_increment", increment.to_string()))
    } else if let Some(align) = workload.blockalign.filter(|align| !is_whole(align.0)) {
        Some(("blockalign", align.to_string()))
    } else if let Some(stride) = workload.stride.filter(|stride| !is_whole(stride.0.unsigned_abs())) {
        Some(("stride", stride.to_string()))
    } else {
        let bytes = workload.io_size.filter(|bytes| !is_whole(bytes.0));
        bytes.map(|bytes| ("io_size", bytes.to_string()))
    }
}

/// Opens an existing file, block device or virtio device. A device to be written is claimed (O_EXCL) while the target is open, unless
/// `access.shared` is set.
pub(crate) fn open(path: &Path, access: Access) -> Result<Target, OpenRefusal> {
    let kind = kind(path)?;
    let is_device = kind != Kind::File;
    let claim = if is_device && access.write && !access.shared { libc::O_EXCL } else { 0 };
    let opened = if kind == Kind::Socket { open_socket(path) } else { access.open(path, claim) };
    let mut file = opened.map_err(|error| refusal_of_open(error, access, is_device))?;
    if let Some(identity) = access.identity {
        let is_it = identity::is(&file, identity);
        if !is_it.map_err(|error| OpenRefusal::System { doing: "it cannot be looked at", error })? {
            return Err(OpenRefusal::Replaced);
        }
    }
    if kind == Kind::Socket {
        let doing = "no virtio device answers there (vhost-user-blk)";
        let device =
            Device::at(&file, access.queue_size).map_err(|error| OpenRefusal::System { doing, error })?;
        let length = device.length;
        return Ok(Target { file, access, is_device, virtio: Some(device), length });
    }
    // A device node may lie on a tmpfs; the device does not.
    if access.direct && !is_device && is_tmpfs(&file) {
        return Err(OpenRefusal::NoDirect("tmpfs, which keeps files in memory"));
    }
    let length = file
        .seek(SeekFrom::End(0))
        .map_err(|error| OpenRefusal::System { doing: "its length cannot be read", error })?;
    Ok(Target { file, access, is_device, virtio: None, length })
}

/// Opens with direct I/O, or through the page cache if the target does not support direct I/O.
pub(crate) fn directly_if_possible(path: &Path, access: Access) -> Result<Target, EngineError> {
    let access = Access { direct: true, ..access };
    match open(path, access) {
        Err(OpenRefusal::NoDirect(_)) => open(path, Access { direct: false, ..access }),
        target => target,
    }
    .map_err(at_path(path))
}

/// The kinds of paths that can be measured: file, device or socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Device,
    /// The socket of a program that serves a virtio block device.
    Socket,
}

/// Opens a socket with O_PATH, which does not connect to it.
fn open_socket(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH).open(path)
}

/// Determines the kind of a path before opening it, because opening a pipe would block.
fn kind(path: &Path) -> Result<Kind, OpenRefusal> {
    let metadata = path.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => OpenRefusal::Missing,
        _ => OpenRefusal::System { doing: "cannot be looked at", error },
    })?;
    match metadata.file_type() {
        kind if kind.is_file() => Ok(Kind::File),
        kind if kind.is_block_device() => Ok(Kind::Device),
        kind if kind.is_socket() => Ok(Kind::Socket),
        kind if kind.is_dir() => Err(OpenRefusal::Directory),
        kind if kind.is_char_device() => Err(OpenRefusal::Kind("character device")),
        kind if kind.is_fifo() => Err(OpenRefusal::Kind("pipe")),
        _ => Err(OpenRefusal::Kind("thing of unknown kind")),
    }
}

fn refusal_of_open(error: io::Error, access: Access, is_device: bool) -> OpenRefusal {
    match Errno::from_io_error(&error) {
        Some(Errno::INVAL) if access.direct => OpenRefusal::NoDirect("its filesystem"),
        Some(Errno::BUSY) if is_device && access.write => OpenRefusal::InUse,
        _ if access.write => OpenRefusal::System { doing: "cannot be opened for reading and writing", error },
        _ => OpenRefusal::System { doing: "cannot be opened for reading", error },
    }
}

/// Returns whether the file is on tmpfs. Newer kernels accept O_DIRECT there, but still copy the data from memory.
fn is_tmpfs(file: &File) -> bool {
    fstatfs(file).is_ok_and(|fs| fs.f_type == TMPFS_MAGIC)
}

impl Target {
    /// Fails if this kind of target cannot do the workload's I/O: because of its engine or, on a virtio device, because it is buffered or a
    /// test of file operations.
    fn check_engine(&self, workload: &Workload) -> Result<(), OpenRefusal> {
        let takes_queues = workload.ioengine == IoEngine::Libblkio;
        let sets_space = matches!(workload.ioengine, IoEngine::Falloc | IoEngine::Ftruncate);
        match &self.virtio {
            _ if sets_space && (self.is_device || self.virtio.is_some()) => {
                Err(OpenRefusal::NoFile(workload.ioengine))
            }
            None if takes_queues => Err(OpenRefusal::NoQueues),
            Some(_) if !workload.direct => Err(OpenRefusal::NoCache),
            Some(_) if matches!(workload.kind, WorkloadKind::Files(_)) => {
                Err(OpenRefusal::NoCalls("use an rw that reads or writes in place of test".into()))
            }
            _ => Ok(()),
        }
    }

    /// Flushes written data to stable storage.
    pub(crate) fn sync_data(&self) -> io::Result<()> {
        match &self.virtio {
            None => self.file.sync_data(),
            Some(_) => flush_virtio(self.reopen()?),
        }
    }

    /// Fails if the target is known not to support discard or, if `zeroes` is true, write zeroes. No data is discarded to find out: a file is
    /// tested by punching a hole beyond its end.
    pub(crate) fn check_trim(&self, zeroes: bool) -> Result<(), OpenRefusal> {
        if let Some(device) = &self.virtio {
            return match zeroes {
                true if !device.writes_zeroes => {
                    Err(OpenRefusal::NoTrim("its virtio device does not take write zeroes"))
                }
                false if !device.discards => Err(OpenRefusal::NoTrim("its virtio device discards nothing")),
                _ => Ok(()),
            };
        }
        if self.is_device {
            let most = queue::attribute(&self.file, "discard_max_bytes");
            return if most == Some(0) {
                Err(OpenRefusal::NoTrim("its device discards nothing (queue/discard_max_bytes is 0)"))
            } else {
                Ok(())
            };
        }
        // Beyond the end there is nothing to lose.
        match fallocate(&self.file, PUNCH, self.length.next_multiple_of(1 << 20), 4096) {
            Err(Errno::OPNOTSUPP) => Err(OpenRefusal::NoTrim("its filesystem makes no holes in files")),
            _ => Ok(()),
        }
    }

    /// Returns the alignment in bytes that direct I/O requires of offsets and lengths: a device's logical block size, the filesystem's
    /// statx(2) answer (Linux 6.1 and later), or 512 for a virtio device. `None` for buffered I/O on other targets, or if unknown.
    pub(crate) fn direct_unit(&self) -> Option<u64> {
        if self.virtio.is_some() {
            return Some(VIRTIO_SECTOR);
        }
        if !self.access.direct {
            return None;
        }
        if self.is_device {
            return ioctl_blksszget(&self.file).ok().map(u64::from);
        }
        let facts = statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        (facts.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && facts.stx_dio_offset_align > 0)
            .then_some(facts.stx_dio_offset_align.into())
    }

    /// Reopens the file for one worker. A shared open file would have one reference count, in a cache line that every pread and pwrite of all
    /// workers changes. Without /proc, workers share one open file.
    pub(crate) fn reopen(&self) -> io::Result<File> {
        if self.virtio.is_some() {
            return self.file.try_clone();
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        self.access.open(Path::new(&path), 0).or_else(|_| self.file.try_clone())
    }

    /// Reopens the target for worker number `worker`; fails with an error that names the worker.
    pub(crate) fn reopen_for(&self, worker: u32) -> Result<File, EngineError> {
        self.reopen().map_err(EngineError::system(format!("opening the target for worker {worker}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::units::Nanos;
    use iotax_model::workload::{Rw, WorkloadKeys};
    use std::os::unix::net::UnixListener;

    fn job(keys: WorkloadKeys, size: u64, writable: bool) -> Job {
        let workload =
            WorkloadKeys { direct: keys.direct.or(Some(false)), ..keys }.complete(&WorkloadKeys::default());
        Job { writable, ..Job::new(workload, Bytes(size), 1, Nanos::from_secs(1)) }
    }

    fn rw(rw: Rw) -> WorkloadKeys {
        WorkloadKeys { rw: Some(rw), ..WorkloadKeys::default() }
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().expect("directory");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("file"), [1; 8192]).expect("written");
        std::fs::write(path("empty"), []).expect("written");
        let _socket = UnixListener::bind(path("socket")).expect("bound");
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .expect("pipe made");
        let seq_jobs = WorkloadKeys { rw: Some(Rw::Read), numjobs: Some(3), ..WorkloadKeys::default() };
        for (name, job, reason) in [
            ("absent", job(rw(Rw::RandRead), 4096, false), "does not exist"),
            ("", job(rw(Rw::RandRead), 4096, false), "is a directory"),
            ("socket", job(rw(Rw::RandRead), 4096, false), "no virtio device answers"),
            ("pipe", job(rw(Rw::RandRead), 4096, false), "is a pipe"),
            ("file", job(rw(Rw::RandWrite), 8192, false), "rw = randwrite writes"),
            ("file", job(rw(Rw::ReadWrite), 8192, false), "rw = rw writes"),
            ("file", job(rw(Rw::RandRead), 0, false), "size = 0 holds fewer than 1 block"),
            ("file", job(rw(Rw::RandRead), 4095, false), "size = 4095 holds fewer"),
            ("file", job(seq_jobs, 8192, false), "fewer than 3 block"),
            (
                "file",
                job(rw(Rw::RandRead), 12288, false),
                "size = 12k from offset = 0 is more than its length of 8k",
            ),
            ("empty", job(rw(Rw::RandWrite), 4096, true), "length of 0"),
        ] {
            let error = for_job(&job, &path(name)).expect_err(reason).to_string();
            assert!(error.contains(reason) && error.contains(&*path(name).to_string_lossy()), "{error}");
        }
        assert!(!path("absent").exists(), "refusing creates nothing");
        assert_eq!(std::fs::read(path("file")).expect("there"), [1; 8192], "refusing truncates nothing");
        let error =
            for_job(&job(rw(Rw::RandRead), 4096, false), Path::new("/dev/zero")).expect_err("refused");
        assert!(error.to_string().contains("character device"), "{error}");
    }

    #[test]
    fn what_is_only_read_is_opened_read_only() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(8192).expect("sized");
        let flags = |job: &Job| {
            let target = for_job(job, file.path()).expect("opened");
            let again = target.reopen().expect("reopened");
            let flags = [&target.file, &again].map(|f| rustix::fs::fcntl_getfl(f).expect("flags"));
            assert_eq!(flags[0], flags[1]);
            flags[0] & rustix::fs::OFlags::RWMODE
        };
        assert_eq!(flags(&job(rw(Rw::RandRead), 8192, true)), rustix::fs::OFlags::RDONLY);
        assert_eq!(flags(&job(rw(Rw::RandWrite), 8192, true)), rustix::fs::OFlags::RDWR);
    }

    #[test]
    fn reading_a_file_of_ours_leaves_its_access_time_alone() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(8192).expect("sized");
        let target = for_job(&job(rw(Rw::RandRead), 8192, false), file.path()).expect("opened");
        for opened in [&target.file, &target.reopen().expect("reopened")] {
            let flags = rustix::fs::fcntl_getfl(opened).expect("flags");
            assert!(flags.contains(rustix::fs::OFlags::NOATIME));
        }
    }

    #[test]
    fn writes_that_must_be_safe_are_so_for_every_worker() {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(8192).expect("sized");
        for (sync, flag) in
            [(SyncMode::None, 0), (SyncMode::DSync, libc::O_DSYNC), (SyncMode::Sync, libc::O_SYNC)]
        {
            let keys = WorkloadKeys { sync: Some(sync), ..rw(Rw::RandWrite) };
            let target = for_job(&job(keys, 8192, true), file.path()).expect("opened");
            for opened in [&target.file, &target.reopen().expect("reopened")] {
                let flags = rustix::fs::fcntl_getfl(opened).expect("flags").bits().cast_signed();
                // O_SYNC contains the bit of O_DSYNC.
                assert_eq!(flags & libc::O_SYNC, flag, "{sync}");
            }
        }
    }

    #[test]
    fn direct_io_is_never_silently_buffered() {
        let shm = Path::new("/dev/shm");
        match tempfile::NamedTempFile::new_in(shm) {
            Ok(file) if is_tmpfs(file.as_file()) => {
                file.as_file().set_len(8192).expect("sized");
                let direct = WorkloadKeys { direct: Some(true), ..rw(Rw::RandRead) };
                let error = for_job(&job(direct, 8192, false), file.path()).expect_err("refused").to_string();
                assert!(error.contains("use direct = false"), "{error}");
            }
            _ => iotax_testkit::skip!("{} is no tmpfs that can be written", shm.display()),
        }
    }

    #[test]
    fn every_key_that_leads_off_the_units_is_named() {
        for (key, text, named) in [
            ("bs", "4k", None),
            ("bs", "2k", Some("2k")),
            ("bsrange", "2k-4k", Some("2k-4k")),
            ("bssplit", "4k/50:8k,6k", Some("4k/50:8k,6k")),
            ("offset", "512", Some("512")),
            ("stride", "-6k", Some("-6k")),
            ("io_size", "10k", Some("10k")),
        ] {
            let mut keys = rw(Rw::ReadWrite);
            keys.set(key, text).expect(text);
            let workload = keys.complete(&WorkloadKeys::default());
            assert_eq!(misaligned(&workload, 4096), named.map(|value| (key, value.to_owned())));
            assert_eq!(misaligned(&workload, 512), None);
        }
    }

    #[test]
    fn a_device_without_queues_for_it_is_not_polled() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        file.as_file().set_len(1 << 20).expect("sized");
        let keys = WorkloadKeys { direct: Some(true), hipri: Some(true), ..rw(Rw::RandRead) };
        match (queue::attribute(file.as_file(), "io_poll"), for_job(&job(keys, 1 << 20, false), file.path()))
        {
            (Some(0), answer) => {
                let error = answer.expect_err("refused").to_string();
                assert!(error.contains("queue/io_poll is 0") && error.contains("hipri = false"), "{error}");
            }
            (known, _) => iotax_testkit::skip!("io_poll of the disk here: {known:?}"),
        }
    }

    #[test]
    fn direct_io_needs_whole_units() {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_MANIFEST_DIR")).expect("file");
        file.as_file().set_len(1 << 20).expect("sized");
        let keys = |bs| WorkloadKeys { direct: Some(true), bs: Some(Bytes(bs)), ..rw(Rw::RandRead) };
        let target = match for_job(&job(keys(1 << 16), 1 << 20, false), file.path()) {
            Ok(target) => target,
            Err(error) => iotax_testkit::skip!("no direct I/O here: {error}"),
        };
        match target.direct_unit() {
            Some(unit) if unit > 512 => {
                let error = for_job(&job(keys(512), 1 << 20, false), file.path()).expect_err("refused");
                assert!(error.to_string().contains(&format!("not a multiple of {}", Bytes(unit))), "{error}");
            }
            Some(unit) => assert_eq!(unit, 512),
            None => iotax_testkit::skip!("this kernel does not tell the unit of direct I/O"),
        }
    }
}
