//! Stores readings in a file: one zstd frame per reading, each with a JSON document, so `zstdcat FILE` prints one reading per line.
//!
//! The first document names the format and the host. A skippable frame (RFC 8878, 3.1.2) before each zstd frame holds its length, so readers
//! find frames without decompressing. A truncated file is read up to the last complete frame.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::raw::MachineSnapshot;

/// Version of the recording format that this program writes and reads.
const VERSION: u32 = 1;
/// Header of a skippable frame: the magic number, then the length of the content (4 bytes).
const MARK: [u8; 8] = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0];
const LEVEL: i32 = 3;
/// Maximum size of a decompressed document in bytes. A reading of 10,000 processes takes 2 MB.
const LARGEST: u64 = 32 << 20;

/// First document of a recording; names the format and the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the recording's format.
    pub iotax_top: u32,
    /// Host name of the recorded machine.
    pub host: String,
}

/// Reason why a recording cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// A recording was to be created, but the file exists.
    #[error("{path} exists; name a new file for a recording")]
    Exists {
        /// Path of the existing file.
        path: PathBuf,
    },
    /// The file cannot be opened, read or written.
    #[error("{path}")]
    Io {
        /// Path of the recording.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a recording.
    #[error("{path} is no recording of iotax top (iotax top --record FILE makes one)")]
    Format {
        /// Path of the file.
        path: PathBuf,
    },
    /// The recording has another format version than this program reads.
    #[error("{path} has version {found} of the format, and this iotax reads version {VERSION}")]
    Version {
        /// Path of the recording.
        path: PathBuf,
        /// Format version that the file names.
        found: u32,
    },
    /// A document of the recording is damaged.
    #[error("{path}: reading {number} is damaged: {reason}")]
    Damaged {
        /// Path of the recording.
        path: PathBuf,
        /// Number of the damaged reading, from 1.
        number: usize,
        /// Reason why the reading cannot be parsed.
        reason: String,
    },
}

/// Writes a recording, one reading at a time.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Creates a recording. Fails if the file exists or cannot be written.
    pub fn create(path: &Path, host: &str) -> Result<Self, RecordingError> {
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(|source| {
            let path = path.to_owned();
            match source.kind() {
                io::ErrorKind::AlreadyExists => RecordingError::Exists { path },
                _ => RecordingError::Io { path, source },
            }
        })?;
        let mut writer = Self { path: path.to_owned(), file };
        writer.put(&Header { iotax_top: VERSION, host: host.to_owned() })?;
        Ok(writer)
    }

    /// Appends one reading of all counters to the recording.
    pub fn append(&mut self, snapshot: &MachineSnapshot) -> Result<(), RecordingError> {
        self.put(snapshot)
    }

    fn put(&mut self, document: &impl Serialize) -> Result<(), RecordingError> {
        let write = || {
            let mut line = serde_json::to_vec(document)?;
            line.push(b'\n');
            let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
            encoder.include_checksum(true)?;
            encoder.write_all(&line)?;
            let frame = encoder.finish()?;
            let length = u32::try_from(frame.len()).map_err(io::Error::other)?;
            // One call writes both, so that a kill cannot separate the length from its frame.
            let all = [&MARK[..], &length.to_le_bytes(), &frame].concat();
            (&self.file).write_all(&all)
        };
        write().map_err(|source| RecordingError::Io { path: self.path.clone(), source })
    }
}

/// A recording opened for reading; holds the positions of its readings.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: File,
    header: Header,
    /// Byte offset and length of the zstd frame of each reading.
    spans: Vec<(u64, u32)>,
    is_cut: bool,
}

impl Recording {
    /// Opens a recording and finds the positions of its readings. Fails if the file cannot be read, is no recording, or has another format
    /// version.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let failed = |source| RecordingError::Io { path: path.to_owned(), source };
        let format = || RecordingError::Format { path: path.to_owned() };
        let mut file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let (mut spans, mut at) = (Vec::new(), 0);
        let mut head = [0; MARK.len() + 4];
        while at + head.len() as u64 <= size {
            file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut head)).map_err(failed)?;
            let (mark, length) = head.split_at(MARK.len());
            let length = u32::from_le_bytes(length.try_into().unwrap_or_default());
            let begin = at + head.len() as u64;
            if mark != MARK || begin + u64::from(length) > size {
                break;
            }
            spans.push((begin, length));
            at = begin + u64::from(length);
        }
        let (first, rest) = spans.split_first().ok_or_else(format)?;
        let header: Header = document(&mut file, *first).map_err(|_| format())?;
        if header.iotax_top != VERSION {
            return Err(RecordingError::Version { path: path.to_owned(), found: header.iotax_top });
        }
        let spans = rest.to_vec();
        Ok(Self { path: path.to_owned(), file, header, spans, is_cut: at < size })
    }

    /// Returns whether a file that starts with these bytes is a recording.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MARK)
    }

    /// Returns the host name of the recorded machine.
    pub fn host(&self) -> &str {
        &self.header.host
    }

    /// Returns whether the file ends in bytes that are not a complete reading, as after a crash.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the number of complete readings.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// Returns the reading with this index, from 0; `None` past the end.
    pub fn snapshot(&mut self, index: usize) -> Result<Option<MachineSnapshot>, RecordingError> {
        let Some(span) = self.spans.get(index) else { return Ok(None) };
        document(&mut self.file, *span).map(Some).map_err(|error| RecordingError::Damaged {
            path: self.path.clone(),
            number: index + 1,
            reason: error.to_string(),
        })
    }
}

fn document<T: serde::de::DeserializeOwned>(file: &mut File, (begin, length): (u64, u32)) -> io::Result<T> {
    file.seek(SeekFrom::Start(begin))?;
    let decoder = zstd::Decoder::new(file.take(u64::from(length)))?;
    let mut text = Vec::new();
    decoder.take(LARGEST).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(clock_ns: u64) -> MachineSnapshot {
        MachineSnapshot { clock_ns, ..MachineSnapshot::default() }
    }

    fn recorded(count: u64) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("r");
        let mut writer = Writer::create(&path, "box").expect("made");
        (0..count).for_each(|at| writer.append(&snapshot(at)).expect("written"));
        (dir, path)
    }

    #[test]
    fn readings_come_back_in_any_order() {
        let (_dir, path) = recorded(3);
        let mut recording = Recording::open(&path).expect("ours");
        assert_eq!((recording.host(), recording.count(), recording.is_cut()), ("box", 3, false));
        for at in [2, 0, 1] {
            let index = usize::try_from(at).expect("few");
            assert_eq!(recording.snapshot(index).expect("read"), Some(snapshot(at)));
        }
        assert_eq!(recording.snapshot(3).expect("the end"), None);
        let error = Writer::create(&path, "box").expect_err("never over another").to_string();
        assert!(error.contains("exists"), "{error}");
    }

    #[test]
    fn a_file_is_read_up_to_where_it_is_cut() {
        let (_dir, path) = recorded(3);
        let whole = std::fs::read(&path).expect("read");
        for cut in [1, 5, 30] {
            std::fs::write(&path, &whole[..whole.len() - cut]).expect("cut");
            let mut recording = Recording::open(&path).expect("ours");
            assert_eq!((recording.count(), recording.is_cut()), (2, true), "{cut}");
            assert_eq!(recording.snapshot(1).expect("whole"), Some(snapshot(1)));
        }
    }

    #[test]
    fn damage_and_other_files_are_refused() {
        let (_dir, path) = recorded(1);
        let mut bytes = std::fs::read(&path).expect("read");
        let last = bytes.len() - 6;
        bytes[last] ^= 0xff;
        std::fs::write(&path, &bytes).expect("damaged");
        let error = Recording::open(&path).expect("its head is whole").snapshot(0).expect_err("damaged");
        assert!(error.to_string().contains("reading 1 is damaged"), "{error}");
        std::fs::write(&path, "Linux 6.1 (box)").expect("written");
        assert!(matches!(Recording::open(&path), Err(RecordingError::Format { .. })));
    }
}
