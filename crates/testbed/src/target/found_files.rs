//! Detects changes to the user's files that a target only reads.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use iotax_model::units::human;

use super::{Built, existing_image};

/// The user's files that a target reads, with their state when they were last looked at.
#[derive(Debug, Default)]
pub struct FoundFiles(Vec<FoundFile>);

#[derive(Debug)]
struct FoundFile {
    path: PathBuf,
    /// The file's state; `None` if it cannot be read.
    state: Option<FileState>,
}

/// The part of a file's metadata that a write to it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    inode: (u64, u64),
    length: u64,
    /// Times of the last modification and of the last change of the inode, in seconds and nanoseconds.
    times: [(i64, i64); 2],
}

impl FoundFiles {
    /// Lists the files below a target that existed before the run: an image with the files that it refers to, or a file that is measured as
    /// it is.
    #[must_use]
    pub fn of(built: &Built) -> Self {
        let files: Vec<PathBuf> = match &built.exported {
            Some(image) => image.found().map(|path| {
                let others = existing_image::others(path).into_iter().map(PathBuf::from);
                std::iter::once(path.to_owned()).chain(others).collect()
            }),
            None => (!built.writable).then(|| vec![built.path.clone()]),
        }
        .unwrap_or_default();
        Self(files.into_iter().filter(|path| path.is_file()).map(FoundFile::new).collect())
    }

    /// Describes each file that has changed since the last call, or since the start.
    pub fn changes(&mut self) -> Vec<String> {
        self.0.iter_mut().filter_map(FoundFile::change).collect()
    }
}

impl FoundFile {
    fn new(path: PathBuf) -> Self {
        let state = FileState::of(&path);
        Self { path, state }
    }

    fn change(&mut self) -> Option<String> {
        let now = FileState::of(&self.path);
        let before = std::mem::replace(&mut self.state, now);
        let path = self.path.display();
        match (before, now) {
            (Some(before), Some(now)) if before.inode != now.inode => {
                Some(format!("{path} is another file than before"))
            }
            (Some(before), Some(now)) if before.length != now.length => Some(format!(
                "{path} had {} and has {}",
                human::bytes(before.length),
                human::bytes(now.length)
            )),
            (Some(before), Some(now)) if before.times[0] != now.times[0] => {
                Some(format!("{path} was written"))
            }
            (Some(before), Some(now)) if before.times != now.times => Some(format!(
                "{path} was written with its time put back, or its owner, mode or links changed"
            )),
            (Some(_), None) => Some(format!("{path} is not there any more")),
            _ => None,
        }
    }
}

impl FileState {
    fn of(path: &PathBuf) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::from)
    }
}

impl From<&Metadata> for FileState {
    fn from(found: &Metadata) -> Self {
        Self {
            inode: (found.dev(), found.ino()),
            length: found.len(),
            times: [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{FileExt, PermissionsExt};
    use std::time::Duration;

    use iotax_model::target::Format;
    use iotax_model::units::Bytes;

    use super::*;

    #[test]
    fn a_file_that_somebody_writes_is_seen_once_and_one_that_is_read_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("image");
        fs::write(&path, [1; 4096]).expect("written");
        let mut files = FoundFiles::of(&Built::at(path.clone(), Format::Raw, Bytes(4096)));
        // Times of files advance with the kernel's ticks.
        let tick = || std::thread::sleep(Duration::from_millis(20));
        tick();
        fs::read(&path).expect("read");
        assert_eq!(files.changes(), Vec::<String>::new());
        let file = File::options().write(true).open(&path).expect("opened");
        let modified = fs::metadata(&path).and_then(|found| found.modified()).expect("a time");
        let shown = path.display();
        file.write_all_at(&[2; 512], 0).expect("overwritten");
        assert_eq!(files.changes(), [format!("{shown} was written")]);
        assert_eq!(files.changes(), Vec::<String>::new());
        tick();
        file.set_modified(modified).expect("put back");
        files.changes();
        tick();
        file.write_all_at(&[3; 512], 0).expect("overwritten");
        file.set_modified(modified).expect("put back");
        assert!(files.changes()[0].contains("with its time put back"));
        tick();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
        assert!(files.changes()[0].contains("its owner, mode or links changed"));
        file.set_len(8192).expect("longer");
        assert_eq!(files.changes(), [format!("{shown} had 4.00 KiB and has 8.00 KiB")]);
        fs::rename(&path, dir.path().join("aside")).expect("renamed");
        assert_eq!(files.changes(), [format!("{shown} is not there any more")]);
        assert_eq!(files.changes(), Vec::<String>::new());
    }
}
