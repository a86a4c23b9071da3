//! Reads files and runs programs for a survey, and records the source of each fact.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use iotax_model::survey::{Fact, Known};

use crate::host_info::text;
use crate::program::{Program, ProgramError};

/// Time limit for a program and for accessing a path; beyond it, the program or path counts as hanging.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// A reader of files and program output, from a live machine or from a machine that is recorded in a directory tree.
pub(super) struct Reader<'a> {
    root: &'a Path,
    unread: RefCell<Vec<String>>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self { root, unread: RefCell::default() }
    }

    pub(super) const fn root(&self) -> &'a Path {
        self.root
    }

    /// Returns the path of a file below the root.
    pub(super) fn full_path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Returns the content of a file without surrounding white space; `None` if it is empty or cannot be read.
    pub(super) fn text(&self, path: &str) -> Known<String> {
        text(&self.full_path(path)).map(|text| Fact::new(text, path))
    }

    /// Returns a number from a file; `None` if it cannot be read or parsed.
    pub(super) fn number<T: FromStr>(&self, path: &str) -> Known<T> {
        self.text(path)?.read(|text| text.parse().ok())
    }

    /// Returns a flag from a file that contains a number: true unless it is 0. `None` if the file cannot be read or parsed.
    pub(super) fn flag(&self, path: &str) -> Known<bool> {
        self.number::<u64>(path)?.read(|number| Some(*number != 0))
    }

    /// Returns the sorted names of a directory's entries; empty if the directory cannot be read.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.full_path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns the stdout of a read-only program or, in a recorded tree, its recorded output, if any. If the program fails, returns `None`
    /// and records the reason.
    pub(super) fn command(&self, program: Program, arguments: &[&str]) -> Known<String> {
        let line = program.line(arguments);
        if self.root != Path::new("/") {
            return program.recorded(self.root, arguments).map(|text| Fact::new(text, line));
        }
        match program.query(arguments, PATIENCE) {
            Ok(output) => Some(Fact::new(String::from_utf8_lossy(&output).trim().to_owned(), line)),
            Err(ProgramError::NotFound { program, package }) => {
                self.leave_out(format!("{program} is not installed (Debian: {package})"));
                None
            }
            Err(error) => {
                self.leave_out(error.to_string().lines().next().unwrap_or_default().to_owned());
                None
            }
        }
    }

    /// Records a reason why a fact is unknown, for the survey's list of unread facts.
    pub(super) fn leave_out(&self, reason: String) {
        let mut unread = self.unread.borrow_mut();
        if !unread.contains(&reason) {
            unread.push(reason);
        }
    }

    pub(super) fn into_unread(self) -> Vec<String> {
        self.unread.into_inner()
    }
}
