//! A disk whose flushes take a known time, without a guest: a loop device on a file in memory, which a FUSE filesystem of the
//! test's own serves.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite,
    Request, WriteFlags,
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::lab::{Lab, text};

const NAME: &str = "disk";
const ROOT: INodeNo = INodeNo(1);
const DISK: INodeNo = INodeNo(2);
const KEPT: Duration = Duration::from_hours(1);

/// A directory with ext4 on such a disk. It is unmounted and gone on drop.
pub(crate) struct SlowDisk {
    mounted: PathBuf,
    /// Nanoseconds of each flush: a sleep lasts longer than it is told to.
    flushes: Arc<Mutex<Vec<u64>>>,
    loop_device: String,
    session: Option<BackgroundSession>,
}

impl SlowDisk {
    /// Mounts a disk of `size` bytes, whose flushes take `delay`, at the directory `name` of a lab.
    pub(crate) fn mount(lab: &Lab, name: &str, size: u64, delay: Duration) -> Self {
        let [served, mounted] = ["served", ""].map(|part| lab.path(&format!("{name}{part}")));
        for directory in [&served, &mounted] {
            std::fs::create_dir(directory).expect("made");
        }
        let disk = File::from(memfd_create(name, MemfdFlags::CLOEXEC).expect("a file"));
        disk.set_len(size).expect("set");
        let flushes = Arc::default();
        let file = SlowFile { disk, size, delay, flushes: Arc::clone(&flushes) };
        let session = fuser::spawn_mount(file, &served, &Config::default()).expect("mounted");
        let loop_device = output("losetup", &["--find", "--show", &served.join(NAME).display().to_string()]);
        let loop_device = loop_device.trim().to_owned();
        let slow = Self { mounted, flushes, loop_device, session: Some(session) };
        output("mkfs.ext4", &["-q", &slow.loop_device]);
        output("mount", &[&slow.loop_device, &slow.mounted.display().to_string()]);
        slow
    }

    pub(crate) fn path(&self) -> &Path {
        &self.mounted
    }

    /// The median time of the flushes so far, in milliseconds.
    pub(crate) fn flush_ms(&self) -> f64 {
        let mut flushes = self.flushes.lock().expect("whole").clone();
        flushes.sort_unstable();
        flushes[flushes.len() / 2] as f64 / 1e6
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let ended = |program: &str, arguments: &[&str]| Command::new(program).args(arguments).status();
        let _ = ended("umount", &[&self.mounted.display().to_string()]);
        let _ = ended("losetup", &["--detach", &self.loop_device]);
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A filesystem with one file.
struct SlowFile {
    disk: File,
    size: u64,
    delay: Duration,
    flushes: Arc<Mutex<Vec<u64>>>,
}

impl SlowFile {
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

impl Filesystem for SlowFile {
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
        reply.opened(FileHandle(0), FopenFlags::empty());
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
        match self.disk.write_all_at(data, offset) {
            Ok(()) => reply.written(u32::try_from(data.len()).expect("short")),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let begun = Instant::now();
        std::thread::sleep(self.delay);
        let took = u64::try_from(begun.elapsed().as_nanos()).expect("short");
        self.flushes.lock().expect("whole").push(took);
        reply.ok();
    }
}
