//! Filesystems and mounts that iotax created, and their removal.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use iotax_model::target::FsType;
use rustix::mount::{UnmountFlags, unmount};
use serde::{Deserialize, Serialize};

use crate::device::{self, RecordedDisk, SignedDevice, until_free};
use crate::holders;
use crate::lock::ProcessLock;
use crate::share;
use crate::stack::mount::{self, Mount};
use crate::zfs;

/// A filesystem that iotax created, as recorded in the undo log; identified by its UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatedFilesystem {
    /// Path of the device node when iotax created the filesystem.
    pub device: PathBuf,
    /// The disk that had that device node when iotax created the filesystem; `None` if it could not be identified.
    pub disk: Option<Box<RecordedDisk>>,
    /// Type of the filesystem, such as ext4.
    pub kind: FsType,
    /// The filesystem's UUID, which iotax passed to mkfs.
    pub uuid: String,
}

impl CreatedFilesystem {
    /// Wipes the filesystem's signature, if a device still carries its UUID.
    pub(crate) fn wipe(&self, lock: &ProcessLock) -> io::Result<()> {
        self.signed().wipe(lock)
    }

    fn signed(&self) -> SignedDevice<'_> {
        let Self { device, disk, kind, uuid } = self;
        SignedDevice { device, disk: disk.as_deref(), kind: kind.word(), uuid }
    }
}

/// A mount that iotax created, as recorded in the undo log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mounted {
    /// Path of the mount point, a directory that iotax created.
    pub point: PathBuf,
    /// Device number of the mounted filesystem as `major:minor`; for a filesystem without a device, the mount's source name.
    pub source: String,
}

impl Mounted {
    /// Unmounts every mount at the mount point. Fails if another filesystem is mounted there, or if the mount is in use or does not answer.
    pub(crate) fn unmount(&self) -> io::Result<()> {
        while let Some(mount) = self.current_mount()? {
            if !self.is(&mount) {
                let reason = format!("{} is mounted there now; left alone", mount.source);
                return Err(io::Error::other(reason));
            }
            if mount.kind == zfs::FILESYSTEM {
                zfs::check_answers(&mount.source)?;
            }
            share::end_server(&mount.kind, &mount.point);
            let flags = if share::is_lost(&mount.source, &mount.point) {
                // Processes that wait for the ended server would keep the mount busy.
                UnmountFlags::NOFOLLOW | UnmountFlags::FORCE | UnmountFlags::DETACH
            } else {
                UnmountFlags::NOFOLLOW
            };
            until_free(|| unmount(&mount.point, flags).map_err(Into::into)).map_err(|error| {
                match holders::below(&mount.point).as_slice() {
                    [] => error,
                    users => io::Error::new(error.kind(), format!("in use by {}", users.join(", "))),
                }
            })?;
        }
        Ok(())
    }

    /// Returns whether this is the mount of a share whose server has ended, or of a ZFS pool whose disk failed. Every access to it would
    /// block.
    pub(crate) fn is_lost(&self) -> bool {
        share::is_lost(&self.source, &self.point) || zfs::is_suspended(&self.source)
    }

    /// Finds the topmost mount at the mount point, or this mount at a new path if the directory was moved; `None` if there is none.
    fn current_mount(&self) -> io::Result<Option<Mount>> {
        let renamed = |mount: &Mount| mount.point.file_name() == self.point.file_name() && self.is(mount);
        let table = mount::table(Path::new("/proc/self"))?;
        Ok(table.into_iter().rfind(|mount| mount.point == self.point || renamed(mount)))
    }

    /// Returns whether a mount has the recorded source: by its device number, its source name, or the number of the device that the name
    /// refers to.
    fn is(&self, mount: &Mount) -> bool {
        let device = || fs::metadata(&mount.source).map(|found| device::number_text(found.rdev()));
        [&mount.number, &mount.source].contains(&&self.source)
            || device().is_ok_and(|number| number == self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;
    use std::fs::File;
    use std::os::unix::fs::symlink;

    const LOSETUP: Program = Program { name: "losetup", package: "mount" };
    const MKFS: Program = Program { name: "mkfs.ext4", package: "e2fsprogs" };

    /// Returns a blank disk over a file; `None`, with a message, if this machine cannot provide one.
    fn disk(file: &Path) -> Option<String> {
        File::create(file).and_then(|file| file.set_len(16 << 20)).expect("made");
        let attached = LOSETUP.run(["--find".as_ref(), "--show".as_ref(), file.as_os_str()]);
        let node = attached.map(|node| String::from_utf8_lossy(&node).trim().to_owned());
        match node {
            Ok(node) => Some(node),
            Err(error) => iotax_testkit::skip!("no loop device: {error}"),
        }
    }

    #[test]
    fn a_disk_that_took_the_name_of_another_is_not_taken_for_it() {
        iotax_testkit::require!(program "losetup", "mkfs.ext4", "wipefs");
        let temp = tempfile::tempdir().expect("temp dir");
        let lock = ProcessLock::take(&temp.path().join("lock")).expect("a lock").expect("free");
        let (ours, other, name) =
            (temp.path().join("ours"), temp.path().join("other"), temp.path().join("disk"));
        let Some((ours, other)) = disk(&ours).zip(disk(&other)) else { return };
        symlink(&ours, &name).expect("linked");
        let uuid = "0f0e0d0c-0b0a-4908-8706-050403020100".to_owned();
        MKFS.run(["-q", "-F", "-U", &uuid, &ours]).expect("made");
        let disk = RecordedDisk::of(&name).map(Box::new);
        assert!(disk.is_some());
        let made = CreatedFilesystem { device: name.clone(), disk, kind: FsType::Ext4, uuid };
        let is_ours_mounted = || made.signed().is_on(&File::open(&ours).expect("opened")).expect("readable");
        let turn = |to: &str| {
            fs::remove_file(&name).expect("there");
            symlink(to, &name).expect("linked");
        };
        // udev may have no link for the UUID: then the wipe must fail.
        turn(&other);
        let found = made.wipe(&lock).map_err(|error| error.to_string());
        let said = format!("{found:?}");
        assert_eq!(found.is_ok(), !is_ours_mounted(), "{said}");
        turn(&ours);
        made.wipe(&lock).expect("wiped");
        assert!(!is_ours_mounted());
        made.wipe(&lock).expect("gone from the very disk");
        // After a reboot the numbers mean other devices.
        let disk = made.disk.clone().expect("known").of_another_boot();
        let later = CreatedFilesystem { disk: Some(Box::new(disk)), ..made };
        let refusal = later.wipe(&lock).expect_err("nobody knows").to_string();
        assert!(refusal.contains("plug that in again") && refusal.contains(&later.uuid), "{refusal}");
        [ours, other].iter().for_each(|node| drop(LOSETUP.run(["--detach", node]).expect("detached")));
    }
}
