//! Detects files that a QEMU writes as disk images, by the locks that it holds on them.

use std::fs::{File, Metadata};
use std::path::Path;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short, flock};

use crate::holders::{self, BackingFile};

/// The byte of an image that a QEMU locks while it writes the image: RAW_PERM_BASE with BLK_PERM_WRITE (QEMU, block/file-posix.c).
const WRITER: i64 = 100 + 1;

/// Returns the name and id of a process that has a file open for writing, if a QEMU writes the file as an image; `None` otherwise.
pub(super) fn writer(path: &Path) -> Option<String> {
    let found = path.metadata().ok().filter(Metadata::is_file)?;
    if !is_written(&File::open(path).ok()?) {
        return None;
    }
    let writers = holders::writers_of_files(&[BackingFile::of(&found)]);
    Some(writers.into_iter().next().unwrap_or_else(|| "a QEMU of another user".to_owned()))
}

/// Returns whether another open file description holds the lock of an image's writer.
fn is_written(file: &File) -> bool {
    let word = |word: c_int| c_short::try_from(word).unwrap_or_default();
    let mut lock =
        flock { l_type: word(F_WRLCK), l_whence: word(SEEK_SET), l_start: WRITER, l_len: 1, l_pid: 0 };
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && lock.l_type != word(F_UNLCK)
}
