//! Tells what a user's file is as a disk image: the format that its name implies, and the QEMU that writes it.

use std::fs::{File, Metadata};
use std::path::Path;

use iotax_model::target::Format;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{F_UNLCK, F_WRLCK, SEEK_SET, c_int, c_short, flock};

use crate::guest::image;
use crate::holders::{self, BackingFile};

/// The byte of an image that a QEMU locks while it writes the image: RAW_PERM_BASE with BLK_PERM_WRITE (QEMU, block/file-posix.c).
const WRITER: i64 = 100 + 1;

/// Returns the image format that a file name's extension implies; `None` for raw images and other files.
#[must_use]
pub fn named_as(path: &Path) -> Option<Format> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    let format = if extension == "vhd" { Format::Vpc } else { extension.parse().ok()? };
    Some(format).filter(|format| *format != Format::Raw)
}

/// Returns the format that a file's name implies and its content does not have, as far as QEMU can tell; `None` if they agree.
pub(super) fn misnamed(path: &Path) -> Option<Format> {
    let format = named_as(path)?;
    image::look(path, true).is_ok_and(|found| found.format == Format::Raw).then_some(format)
}

/// Returns the name and id of a process that has a file open for writing, if a QEMU writes the file as an image; `None` otherwise.
pub(super) fn writer(path: &Path) -> Option<String> {
    let found = path.metadata().ok().filter(Metadata::is_file)?;
    if !is_written(&File::open(path).ok()?) {
        return None;
    }
    let writers = holders::writers_of_files(&[BackingFile::of(&found)]);
    Some(writers.into_iter().next().unwrap_or_else(|| "a QEMU that this user may not inspect".to_owned()))
}

/// Returns whether another open file description holds the lock of an image's writer.
fn is_written(file: &File) -> bool {
    let word = |word: c_int| c_short::try_from(word).unwrap_or_default();
    let mut lock =
        flock { l_type: word(F_WRLCK), l_whence: word(SEEK_SET), l_start: WRITER, l_len: 1, l_pid: 0 };
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut lock)).is_ok() && lock.l_type != word(F_UNLCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_testkit::require;
    use std::process::Command;

    #[test]
    fn a_name_that_the_content_does_not_bear_out_is_found() {
        require!(program "qemu-img");
        let directory = tempfile::tempdir().expect("directory");
        let [plain, real, other] =
            ["plain.VMDK", "real.vhd", "data.bin"].map(|name| directory.path().join(name));
        for path in [&plain, &other] {
            std::fs::write(path, [7; 4096]).expect("written");
        }
        let create = ["create", "-q", "-f", "vpc"];
        let created = Command::new("qemu-img").args(create).arg(&real).arg("1M").status();
        assert!(created.expect("qemu-img").success());
        assert_eq!([&plain, &real, &other].map(|path| misnamed(path)), [Some(Format::Vmdk), None, None]);
    }
}
