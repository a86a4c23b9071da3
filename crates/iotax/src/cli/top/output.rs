//! Prints frames, each with the rates of one interval, as text or JSON.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use iotax_model::exit::Exit;
use iotax_model::visible;
use iotax_top::rates::Frame;
use iotax_top::{json, table};

use super::super::say;
use super::super::{Failure, OrExit, links};
use super::named;

/// The destination of frames.
pub(super) enum Output {
    /// Tables on stdout.
    Text,
    /// A line of JSON for each frame, on stdout.
    Stdout,
    /// A line of JSON for each frame, in a file.
    File(PathBuf, File),
}

impl Output {
    /// Creates the file of `--json`, which must not exist yet; `-` is stdout. Without the flag, output is tables.
    pub(super) fn open(json: Option<&Path>) -> Result<Self, Failure> {
        match json {
            None => Ok(Self::Text),
            Some(path) if path == Path::new("-") => Ok(Self::Stdout),
            Some(path) => {
                let make = |()| OpenOptions::new().write(true).create_new(true).open(path);
                let file = links::check(path).and_then(make);
                let file = file.with_context(|| format!("{}: name a new file", named(path)));
                Ok(Self::File(path.to_owned(), file.or_exit(Exit::Environment)?))
            }
        }
    }

    /// Returns whether frames are tables.
    pub(super) fn is_text(&self) -> bool {
        matches!(self, Self::Text)
    }

    /// Writes a frame as tables or as a line of JSON.
    pub(super) fn put(&mut self, frame: &Frame) -> Result<(), Failure> {
        let line = || visible::json(&format!("{}\n", json::document(frame))).into_owned();
        match self {
            Self::Text => say::Stream::Stdout.text(&table::text(frame, say::Stream::Stdout.width())),
            Self::Stdout => say::document(&line()),
            Self::File(path, file) => {
                file.write_all(line().as_bytes()).with_context(|| named(path)).or_exit(Exit::Environment)?;
            }
        }
        Ok(())
    }
}
