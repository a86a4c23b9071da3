//! The storage of a journal: a new file, or a pipe or serial line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use iotax_model::verify_errors::JOURNAL_BATCH;
use rustix::fs::OFlags;

use super::format::LENGTH;

/// Maximum number of bytes queued for a serial line. A power cut loses the queued records; a hundred records take a third of a second at
/// 115,200 baud.
const MOST_PENDING_OF_LINE: usize = 100 * LENGTH;

#[derive(Debug)]
pub(super) enum Sink {
    File(File),
    /// A pipe, or a character device such as a serial line.
    Line(File),
}

impl Sink {
    /// Creates a new file; opens an existing pipe or character device instead.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let is_line = |found: fs::Metadata| {
            let kind = found.file_type();
            kind.is_fifo() || kind.is_char_device()
        };
        if !fs::metadata(path).is_ok_and(is_line) {
            return File::create_new(path).map(Self::File);
        }
        let no_terminal = OFlags::NOCTTY.bits().cast_signed();
        OpenOptions::new().write(true).custom_flags(no_terminal).open(path).map(Self::Line)
    }

    /// Appends bytes and returns when they are synced to disk, written to the pipe, or sent over the serial line.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => {
                (&*file).write_all(bytes)?;
                file.sync_data()
            }
            Self::Line(line) => {
                (&*line).write_all(bytes)?;
                if rustix::termios::isatty(line) {
                    rustix::termios::tcdrain(line)?;
                }
                Ok(())
            }
        }
    }

    /// Overwrites bytes of a file at `offset`. Fails on a pipe or line.
    pub(super) fn write_over(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => {
                file.write_all_at(bytes, offset)?;
                file.sync_data()
            }
            Self::Line(_) => Err(io::Error::other("nothing that went over a line can be changed")),
        }
    }

    /// Makes the name of a new file durable by syncing its directory.
    pub(super) fn sync_name(&self, path: &Path) -> io::Result<()> {
        let Self::File(file) = self else { return Ok(()) };
        file.sync_all()?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Returns the maximum number of queued bytes. For a file, that is the largest batch less one more record, a header and two end frames.
    pub(super) const fn most_pending(&self) -> usize {
        match self {
            Self::File(_) => JOURNAL_BATCH - 4 * LENGTH,
            Self::Line(_) => MOST_PENDING_OF_LINE,
        }
    }

    /// Returns the device number of the filesystem that contains the journal; `None` for a pipe or line, or if unknown.
    pub(super) fn filesystem(&self) -> Option<u64> {
        match self {
            Self::File(file) => file.metadata().ok().map(|found| found.dev()),
            Self::Line(_) => None,
        }
    }
}
