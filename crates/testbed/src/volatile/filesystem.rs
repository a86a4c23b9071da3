//! The FUSE filesystem that serves a volatile directory.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use iotax_model::crash::VolatileCut;
use iotax_model::record::LayerCounters;
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Stat, chmodat, fstatvfs, linkat, mkdirat, openat, renameat_with,
    unlinkat,
};

use super::file::Power;
use super::inodes::{Inode, Inodes};

/// Time for which the kernel may cache attributes and names: no other process changes the files on disk.
const KEPT: Duration = Duration::from_secs(1);
/// Maximum length of a write request in bytes.
const LONGEST_WRITE: u32 = 1 << 20;

/// The FUSE filesystem. Clones share the same files and power switch.
#[derive(Debug, Clone)]
pub(super) struct VolatileFs {
    inodes: Arc<Inodes>,
    power: Arc<Power>,
}

impl VolatileFs {
    pub(super) fn new(root: OwnedFd, power: Power) -> Self {
        Self { inodes: Arc::new(Inodes::new(root)), power: Arc::new(power) }
    }

    /// Returns the numbers of flushes since the mount, by the names of their counters.
    pub(super) fn flushes(&self) -> [(&'static str, u64); 2] {
        let (done, dropped) = self.power.flushes();
        [(LayerCounters::FLUSHES, done), (LayerCounters::DROPPED_FLUSHES, dropped)]
    }

    /// Cuts the power of all files. Returns the numbers of writes kept, torn and lost, and of flushes since the mount.
    pub(super) fn cut(&self) -> io::Result<VolatileCut> {
        let all = self.inodes.all();
        self.power.cut(all.iter().filter_map(|inode| inode.used()))
    }

    fn inode(&self, number: INodeNo) -> io::Result<Arc<Inode>> {
        self.power.check()?;
        self.inodes.get(number.0)
    }

    fn look_up(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let directory = self.inode(parent)?;
        let found = self.inodes.look_up(&directory, name)?;
        attributes(&found)
    }

    fn create(&self, parent: INodeNo, name: &OsStr, mode: u32, flags: i32) -> io::Result<FileAttr> {
        let exclusive = OFlags::from_bits_retain(flags.cast_unsigned()) & OFlags::EXCL;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | exclusive;
        drop(openat(&self.inode(parent)?.descriptor, name, flags, Mode::from_raw_mode(mode))?);
        self.look_up(parent, name)
    }

    fn set(&self, number: INodeNo, mode: Option<u32>, size: Option<u64>) -> io::Result<FileAttr> {
        let inode = self.inode(number)?;
        if let Some(mode) = mode {
            chmodat(rustix::fs::CWD, inode.path(), Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        if let Some(size) = size {
            inode.file()?.set_len(&self.power, size)?;
        }
        attributes(&inode)
    }

    fn list(&self, number: INodeNo, after: u64, reply: &mut ReplyDirectory) -> io::Result<()> {
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        for (descriptor, entry) in
            (after + 1..).zip(std::fs::read_dir(self.inode(number)?.path())?.skip(skipped))
        {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
            let number = std::os::unix::fs::DirEntryExt::ino(&entry);
            if reply.add(INodeNo(number), descriptor, kind, entry.file_name()) {
                break;
            }
        }
        Ok(())
    }

    fn sync_directory(&self, number: INodeNo) -> io::Result<()> {
        std::fs::File::open(self.inode(number)?.path())?.sync_all()
    }
}

/// Returns the attributes of a file, whose length includes unflushed writes.
fn attributes(inode: &Inode) -> io::Result<FileAttr> {
    let stat = inode.stat()?;
    let pending_end = inode.used().map_or(0, super::file::VolatileFile::pending_end);
    let kind = match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        _ => FileType::RegularFile,
    };
    let Stat { st_mode, st_nlink, st_uid, st_gid, st_blocks, st_size, .. } = stat;
    let [atime, mtime, ctime] = [
        time(stat.st_atime, stat.st_atime_nsec),
        time(stat.st_mtime, stat.st_mtime_nsec),
        time(stat.st_ctime, stat.st_ctime_nsec),
    ];
    Ok(FileAttr {
        ino: INodeNo(stat.st_ino),
        size: st_size.cast_unsigned().max(pending_end),
        blocks: st_blocks.cast_unsigned(),
        atime,
        mtime,
        ctime,
        crtime: ctime,
        kind,
        perm: u16::try_from(st_mode & 0o7777).unwrap_or_default(),
        nlink: u32::try_from(st_nlink).unwrap_or(u32::MAX),
        uid: st_uid,
        gid: st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    })
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds.max(0).cast_unsigned()) + Duration::from_nanos(nanoseconds)
}

/// Replies to a FUSE request with values or an error: `answer!(reply, result, |value| method(arguments))`.
macro_rules! answer {
    ($reply:ident, $result:expr, |$value:pat_param| $method:ident($($argument:expr),*)) => {
        match $result {
            Ok($value) => $reply.$method($($argument),*),
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

impl Filesystem for VolatileFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // The feature is optional: an older kernel may lack it.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(LONGEST_WRITE);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.look_up(parent, name), |found| entry(&KEPT, &found, Generation(0)));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.inodes.forget(number.0, lookups, &self.power);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.inode(number).and_then(|inode| attributes(&inode)), |found| attr(&KEPT, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        answer!(reply, self.set(number, mode, size), |found| attr(&KEPT, &found));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let made = self.inode(parent).and_then(|directory| {
            mkdirat(&directory.descriptor, name, Mode::from_raw_mode(mode))?;
            self.look_up(parent, name)
        });
        answer!(reply, made, |found| entry(&KEPT, &found, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self
            .inode(parent)
            .and_then(|descriptor| Ok(unlinkat(&descriptor.descriptor, name, AtFlags::empty())?));
        answer!(reply, done, |()| ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self
            .inode(parent)
            .and_then(|descriptor| Ok(unlinkat(&descriptor.descriptor, name, AtFlags::REMOVEDIR)?));
        answer!(reply, done, |()| ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let done = self.inode(parent).and_then(|from| {
            let to = self.inode(new_parent)?;
            Ok(renameat_with(&from.descriptor, name, &to.descriptor, new_name, flags)?)
        });
        answer!(reply, done, |()| ok());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let made = self.inode(number).and_then(|inode| {
            let directory = self.inode(parent)?;
            linkat(rustix::fs::CWD, inode.path(), &directory.descriptor, name, AtFlags::SYMLINK_FOLLOW)?;
            self.look_up(parent, name)
        });
        answer!(reply, made, |found| entry(&KEPT, &found, Generation(0)));
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let opened = self.inode(number).and_then(|inode| inode.file().map(drop));
        answer!(reply, opened, |()| opened(FileHandle(0), FopenFlags::empty()));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.create(parent, name, mode, flags).and_then(|found| {
            self.inode(found.ino)?.file()?;
            Ok(found)
        });
        answer!(reply, created, |found| created(
            &KEPT,
            &found,
            Generation(0),
            FileHandle(0),
            FopenFlags::empty()
        ));
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.inode(number).and_then(|inode| inode.file()?.read(&self.power, offset, size));
        answer!(reply, read, |bytes| data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let is_sync =
            OFlags::from_bits_retain(flags.0.cast_unsigned()).intersects(OFlags::DSYNC | OFlags::SYNC);
        let done =
            self.inode(number).and_then(|inode| inode.file()?.write(&self.power, offset, data, is_sync));
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        answer!(reply, done, |()| written(length));
    }

    fn fsync(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let done = self.inode(number).and_then(|inode| inode.file()?.flush(&self.power));
        answer!(reply, done, |()| ok());
    }

    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.sync_directory(number), |()| ok());
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, after: u64, mut reply: ReplyDirectory) {
        let listed = self.list(number, after, &mut reply);
        answer!(reply, listed, |()| ok());
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let found = self.inode(number).and_then(|inode| Ok(fstatvfs(&inode.descriptor)?));
        answer!(reply, found, |on| statfs(
            on.f_blocks,
            on.f_bfree,
            on.f_bavail,
            on.f_files,
            on.f_ffree,
            u32::try_from(on.f_bsize).unwrap_or(4096),
            u32::try_from(on.f_namemax).unwrap_or(255),
            u32::try_from(on.f_frsize).unwrap_or(4096)
        ));
    }

    fn fallocate(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done =
            self.inode(number).and_then(|inode| inode.file()?.allocate(&self.power, mode, offset, length));
        answer!(reply, done, |()| ok());
    }
}
