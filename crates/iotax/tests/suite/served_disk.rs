//! A disk for tests without a guest: a loop device on a file in memory, served by a FUSE filesystem with given delays.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};

use crate::lab::{Lab, text};

const NAME: &str = "disk";
const ROOT: INodeNo = INodeNo(1);
const DISK: INodeNo = INodeNo(2);
const KEPT: Duration = Duration::from_hours(1);

/// Timeout for a loop device to close its file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Timing of a disk: each method returns when the request is complete. Requests come one at a time.
pub(crate) trait DiskTiming: Send + Sync + 'static {
    /// Writes `length` bytes.
    fn write(&self, _offset: u64, _length: u64) {}
    /// Flushes.
    fn flush(&self) {}
    /// Discards `length` bytes.
    fn discard(&self, _offset: u64, _length: u64) {}
}

/// A served disk; removed on drop.
pub(crate) struct ServedDisk {
    pub(crate) node: String,
    session: Option<BackgroundSession>,
}

impl ServedDisk {
    /// Serves a disk of `size` bytes at the directory `name` of a lab.
    pub(crate) fn serve(lab: &Lab, name: &str, size: u64, timing: impl DiskTiming) -> Self {
        let served = lab.path(name);
        std::fs::create_dir(&served).expect("made");
        let disk = File::from(memfd_create(name, MemfdFlags::CLOEXEC).expect("a file"));
        // Longer than the served file: files of the same length may be taken for the same one, and this one is open for writing.
        disk.set_len(size + 1).expect("set");
        let session = fuser::spawn_mount(ServedFile { disk, size, timing }, &served, &Config::default());
        let session = session.expect("mounted");
        let node = output("losetup", &["--find", "--show", &served.join(NAME).display().to_string()]);
        Self { node: node.trim().to_owned(), session: Some(session) }
    }
}

impl Drop for ServedDisk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.node]).status();
        // The kernel closes the file a moment later, and until then the filesystem is busy.
        let backing = self.node.replace("/dev/", "/sys/block/") + "/loop/backing_file";
        let patience = Instant::now();
        while Path::new(&backing).exists() && patience.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

pub(crate) fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A filesystem with one file.
struct ServedFile<T> {
    disk: File,
    size: u64,
    timing: T,
}

impl<T> ServedFile<T> {
    fn attributes(&self, number: INodeNo) -> FileAttr {
        let is_root = number == ROOT;
        let time = SystemTime::UNIX_EPOCH;
        FileAttr {
            ino: number,
            size: if is_root { 0 } else { self.size },
            blocks: self.size / 512,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if is_root { FileType::Directory } else { FileType::RegularFile },
            perm: 0o700,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl<T: DiskTiming> Filesystem for ServedFile<T> {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&KEPT, &self.attributes(DISK), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &self.attributes(number));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // Writes of the loop device arrive unchanged and immediately.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut bytes = vec![0; size as usize];
        match self.disk.read_at(&mut bytes, offset) {
            Ok(length) => reply.data(&bytes[..length]),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.timing.write(offset, data.len() as u64);
        match self.disk.write_all_at(data, offset) {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("short")),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        if mode.contains(FallocateFlags::PUNCH_HOLE) {
            self.timing.discard(offset, length);
        }
        match fallocate(&self.disk, mode, offset, length) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(Errno::from_i32(error.raw_os_error())),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.timing.flush();
        reply.ok();
    }
}
