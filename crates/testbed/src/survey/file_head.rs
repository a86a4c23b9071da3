//! Accesses a path with a time limit of 3 s, because a dead mount never answers.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc;

use super::reader::PATIENCE;
use iotax_model::threads;

/// Number of bytes to read from a file's start: QEMU keeps a qcow2 header, with the backing file's name, within the first 64 KiB.
const START: u64 = 64 << 10;

/// Metadata and first bytes of a file.
pub(super) struct FileHead {
    pub(super) metadata: Metadata,
    /// The first bytes of a regular file, empty for anything else.
    pub(super) start: Vec<u8>,
}

/// Reads the metadata of a path and the first bytes of a regular file. Opens no other kind of file: a FIFO would block, and a device could
/// react. If the path hangs, fails after 3 s and abandons the reading thread.
pub(super) fn inspect(from: &Path) -> io::Result<FileHead> {
    let path = from.to_owned();
    within_patience(move || {
        let metadata = fs::metadata(&path)?;
        let mut start = Vec::new();
        if metadata.is_file() {
            // The file may have been replaced since its metadata was read.
            let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
            let flags = i32::try_from(flags.bits()).unwrap_or_default();
            let file = OpenOptions::new().read(true).custom_flags(flags).open(&path)?;
            if file.metadata()?.is_file() {
                file.take(START).read_to_end(&mut start)?;
            }
        }
        Ok(FileHead { metadata, start })
    })
}

/// Fails if the metadata of a path cannot be read; if that takes more than 3 s, with the error kind `TimedOut`.
pub(super) fn answers(from: &Path) -> io::Result<()> {
    let path = from.to_owned();
    within_patience(move || fs::metadata(path).map(drop))
}

fn within_patience<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    threads::spawn("look", move || sender.send(work()))?;
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, reason))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn work_that_hangs_is_given_up() {
        let error = within_patience(|| -> io::Result<()> {
            thread::sleep(2 * PATIENCE);
            Ok(())
        });
        assert_eq!(error.expect_err("a hang").to_string(), "no answer within 3 s");
    }
}
