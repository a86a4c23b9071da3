//! Checks that an open file is the file or device that was identified earlier.
#![expect(unsafe_code, reason = "the crates in use have no BLKGETDISKSEQ")]

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use iotax_model::wire::{DiskId, Identity};
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};

/// The ioctl `BLKGETDISKSEQ` of linux/fs.h, which returns a disk's sequence number.
const DISK_SEQUENCE: Opcode = opcode::read::<u64>(0x12, 128);

/// Returns whether the open file has the identity `identity`; its path does not matter.
pub(crate) fn is(file: &File, identity: Identity) -> io::Result<bool> {
    let found = file.metadata()?;
    let is_device = found.file_type().is_block_device();
    Ok(match identity {
        Identity::File { device, inode } => !is_device && (found.dev(), found.ino()) == (device, inode),
        Identity::Disk(DiskId { number, sequence }) => {
            is_device && found.rdev() == number && (sequence.is_none() || disk_sequence(file) == sequence)
        }
    })
}

/// Returns the disk's sequence number, which is never reused; `None` if the kernel does not report it, as before Linux 5.15.
fn disk_sequence(device: &File) -> Option<u64> {
    // SAFETY: this request writes one u64 and does nothing else.
    let request = unsafe { Getter::<DISK_SEQUENCE, u64>::new() };
    // SAFETY: the request is sound on every file: those that do not know it refuse it.
    unsafe { ioctl(device, request) }.ok()
}
