//! Destinations of results, which are checked before anything is measured. Files are replaced atomically.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_report::mark::Mark;
use rustix::io::Errno;

use super::links::resolved;
use super::replace::{self, Draft};
use super::{Failure, OrExit, say, usage};
use crate::runner::Interrupted;

/// Maximum size in bytes of a file that may be replaced: no result of iotax is larger.
const LARGEST: u64 = 256 << 20;

/// A file or stream that receives a result.
#[derive(Debug)]
pub(super) struct Destination {
    /// The path as the user gave it, for messages.
    name: PathBuf,
    mark: Mark,
    output: OutputKind,
}

#[derive(Debug, PartialEq, Eq)]
enum OutputKind {
    Stdout,
    /// A pipe, a terminal, a device that stores nothing or a descriptor that the shell opened; written in place.
    Stream,
    /// A file, which need not exist yet, with all links resolved.
    File(PathBuf),
}

impl Destination {
    /// Checks a destination. Fails if it cannot be written, or holds anything but a result of the kind that `mark` identifies. Creates
    /// nothing.
    pub(super) fn open(name: &Path, mark: Mark) -> Result<Self, Failure> {
        let output = OutputKind::named(name)?;
        let this = Self { name: name.to_path_buf(), mark, output };
        if let OutputKind::File(path) = &this.output {
            if this.existing(path)?.is_some() {
                // A read-only result is meant to stay, although the directory's permissions would allow replacing it.
                OpenOptions::new().append(true).open(path).map(drop).map_err(|error| this.failed(error))?;
            }
            Draft::new(directory(path)).map_err(|error| this.failed(error))?;
        }
        Ok(this)
    }

    pub(super) fn is_stdout(&self) -> bool {
        self.output == OutputKind::Stdout
    }

    pub(super) fn name(&self) -> &Path {
        &self.name
    }

    /// Returns whether both destinations are the same file or stream.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self.is_stdout(), other.is_stdout()) {
            (false, false) => is_one_file(&self.name, &other.name),
            (one, other) => one && other,
        }
    }

    /// Returns whether the destination is the file of this name.
    pub(super) fn is_file(&self, name: &Path) -> bool {
        !self.is_stdout() && is_one_file(&self.name, name)
    }

    /// Returns whether the destination is a file directly in this directory with this extension.
    pub(super) fn is_in(&self, dir: &Path, extension: &str) -> bool {
        let OutputKind::File(path) = &self.output else { return false };
        let is_there = fs::canonicalize(dir).is_ok_and(|dir| directory(path) == dir);
        is_there && path.extension().is_some_and(|end| end == extension)
    }

    /// Writes the result. A file is replaced atomically after a sync, so that either the old or the new one survives a crash.
    pub(super) fn write(&self, contents: &[u8]) -> Result<(), Failure> {
        match &self.output {
            OutputKind::Stdout => {
                say::document(&String::from_utf8_lossy(contents));
                Ok(())
            }
            OutputKind::Stream => match say::document_to(&self.name, contents) {
                // As for stdout, a reader that has read enough is no error.
                Err(Errno::PIPE) => Ok(()),
                Err(Errno::CANCELED) => Err(Interrupted)
                    .with_context(|| format!("{} has no reader", self.name.display()))
                    .or_exit(Exit::Interrupted),
                written => written.map_err(|error| self.failed(error.into())),
            },
            OutputKind::File(path) => {
                // Another file may have appeared since the check.
                let old = self.existing(path)?;
                let leftovers = |contents: &[u8]| self.mark.stands_in(contents);
                replace::remove_leftovers(directory(path), LARGEST, leftovers);
                replace(path, old.as_ref(), contents).map_err(|error| self.failed(error))
            }
        }
    }

    /// Opens the file to be replaced; `None` if there is no file yet. Fails if it cannot be read or is not a result of the destination's
    /// kind.
    fn existing(&self, path: &Path) -> Result<Option<File>, Failure> {
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| self.failed(error))?,
        };
        let length = file.metadata().map_err(|error| self.failed(error))?.len();
        let mut contents = Vec::new();
        if self.mark.exists() && length <= LARGEST {
            (&file).take(LARGEST).read_to_end(&mut contents).map_err(|error| self.failed(error))?;
        }
        if self.mark.stands_in(&contents) {
            return Ok(Some(file));
        }
        let (name, format) = (self.name.display(), self.mark.format);
        Err(usage(if self.mark.exists() {
            format!(
                "{name}: it exists and iotax did not write it as {format}, so it is not replaced; remove it or choose another name"
            )
        } else {
            format!(
                "{name}: it exists, and {format} has no place for a mark by which one of iotax's is known, so it is not replaced; \
                 remove it or choose another name"
            )
        }))
    }

    fn failed(&self, error: io::Error) -> Failure {
        let error = anyhow::Error::from(error).context(format!("cannot write {}", self.name.display()));
        Failure { exit: Exit::Environment, error }
    }
}

impl OutputKind {
    fn named(name: &Path) -> Result<Self, Failure> {
        let text = name.to_string_lossy();
        let metadata = fs::metadata(name);
        // Another name of stdout, or the file that the shell redirected it to.
        let leads_to_stdout = metadata.as_ref().is_ok_and(|found| say::is_stdout(found) && !is_sink(found));
        if leads_to_stdout || matches!(&*text, "-" | "/dev/stdout" | "/dev/fd/1" | "/proc/self/fd/1") {
            return Ok(Self::Stdout);
        }
        if text == "/dev/stderr" || text.starts_with("/dev/fd/") || text.starts_with("/proc/self/fd/") {
            return Ok(Self::Stream);
        }
        let cannot = || format!("cannot write {}", name.display());
        let path = resolved(name).with_context(cannot).or_exit(Exit::Environment);
        match metadata {
            Ok(metadata) if is_stream(&metadata) => path.map(|_| Self::Stream),
            Ok(metadata) if !metadata.is_file() => Err(usage(format!(
                "{}: not a regular file; results are written to files, pipes and terminals",
                name.display()
            ))),
            _ => path.map(Self::File),
        }
    }
}

fn replace(path: &Path, old: Option<&File>, contents: &[u8]) -> io::Result<()> {
    let mut draft = Draft::new(directory(path))?;
    draft.fill(contents)?;
    if let Some(old) = old {
        draft.take_after(old)?;
    }
    draft.publish(path, old.is_some())
}

/// Returns true for pipes, terminals and devices that store nothing, such as `/dev/null`. Other devices may interpret the bytes as
/// commands.
fn is_stream(metadata: &Metadata) -> bool {
    let kind = metadata.file_type();
    let is_terminal = matches!(rustix::fs::major(metadata.rdev()), 4 | 5 | 136..=143);
    kind.is_fifo() || kind.is_char_device() && is_terminal || is_sink(metadata)
}

/// Returns whether the file is `/dev/null`, `/dev/zero` or `/dev/full`, which store nothing.
fn is_sink(metadata: &Metadata) -> bool {
    let device = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    metadata.file_type().is_char_device() && matches!(device, (1, 3 | 5 | 7))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns whether two names refer to the same file, even if it does not exist yet.
pub(super) fn is_one_file(one: &Path, other: &Path) -> bool {
    if matches!((resolved(one), resolved(other)), (Ok(one), Ok(other)) if one == other) {
        return true;
    }
    let identity = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}
