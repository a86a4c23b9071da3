//! Follows the kernel's log (/dev/kmsg).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

/// Maximum size of a log record in bytes; a read returns one whole record.
const RECORD: usize = 8192;

/// A reader of new messages in the kernel's log.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
}

/// A message in the kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// Severity, from 0 (emergency) to 7 (debug).
    pub level: u8,
    /// Text of the message, without the record's prefix.
    pub text: String,
}

impl KernelLog {
    /// Opens /dev/kmsg at its end, so that only later messages are read.
    ///
    /// # Errors
    /// The file is missing, or only root may read it (`kernel.dmesg_restrict`).
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file: File = rustix::fs::open(Path::new("/dev/kmsg"), flags, Mode::empty())?.into();
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file })
    }

    /// Returns the kernel's messages since the last call. Waits at most `patience` for one. Messages that programs wrote to the log are
    /// left out.
    pub fn next(&mut self, patience: Duration) -> Vec<KernelLine> {
        let patience = Timespec::try_from(patience).unwrap_or_default();
        let mut fds = [PollFd::new(&self.file, PollFlags::IN)];
        if !poll(&mut fds, Some(&patience)).is_ok_and(|ready| ready > 0) {
            return Vec::new();
        }
        let (mut lines, mut record) = (Vec::new(), vec![0; RECORD]);
        loop {
            match self.file.read(&mut record) {
                Ok(length) if length > 0 => lines.extend(line(&String::from_utf8_lossy(&record[..length]))),
                // Lines were overwritten before they were read: the next read gives the oldest one left.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PIPE.raw_os_error()) => {}
                Ok(_) | Err(_) => return lines,
            }
        }
    }
}

/// Parses a record such as `6,339,5140900,-;NET: Registered ...`: facility and severity, sequence number, microseconds since boot and
/// flags, then the message. `None` for messages from programs and for malformed records.
fn line(record: &str) -> Option<KernelLine> {
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    // Facility 0 is the kernel.
    let level = u8::try_from(priority).ok().filter(|level| *level < 8)?;
    // The kernel escapes a line break within a message.
    Some(KernelLine { level, text: text.lines().next()?.replace("\\x0a", " ").trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line_of_the_kernels_or_none() {
        let known = line("4,1203,5140900,-;sd 2:0:0:1: Power-on\n SUBSYSTEM=scsi\n").expect("a line");
        assert_eq!((known.level, known.text.as_str()), (4, "sd 2:0:0:1: Power-on"));
        let two = line(
            "2,7,8,-;md/raid1:md0: Disk failure on vdb, disabling device.\\x0amd/raid1:md0: Operation continuing\n",
        );
        let text = "md/raid1:md0: Disk failure on vdb, disabling device. md/raid1:md0: Operation continuing";
        assert_eq!(two.expect("a line").text, text);
        assert_eq!(line("30,1,2,-;systemd[1]: Started"), None, "a program's");
        assert_eq!(line("no record"), None);
    }
}
