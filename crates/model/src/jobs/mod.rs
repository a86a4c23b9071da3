//! Job and parameter files of other tools: their text becomes workloads.

pub mod vdbench;

use std::fmt;
use std::sync::Arc;

use crate::workload::Workload;

/// What a job file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    /// One for each group of jobs that run at the same time; names are unique.
    pub workloads: Vec<Workload>,
    /// The files or devices that it names, each once, in the order of the file, with the place of the option.
    pub filenames: Vec<(Place, String)>,
    /// Whether a job names no file, so that it has one of its own.
    pub own_files: bool,
    /// The first directory named.
    pub directory: Option<String>,
    /// The seed.
    pub seed: Option<u64>,
    /// What changes nothing here or means something else, one line each.
    pub notes: Vec<String>,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// As the user named it.
    pub file: Arc<str>,
    /// From 1 on.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Something in a job file that cannot be taken as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Complaint {
    /// Where it stands.
    pub place: Place,
    /// The text as it stands there.
    pub quoted: String,
    /// What is wrong with it, and what is accepted.
    pub why: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.quoted, self.why)
    }
}

/// Everything in a job file that cannot be taken, a line each, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct JobsError(pub Vec<Complaint>);

/// What has been found wrong so far.
#[derive(Debug, Default)]
struct Trouble(Vec<Complaint>);

impl Trouble {
    /// What stands in a default is met once for each definition, and said once.
    fn add(&mut self, place: &Place, quoted: String, why: String) {
        let complaint = Complaint { place: place.clone(), quoted, why };
        if !self.0.contains(&complaint) {
            self.0.push(complaint);
        }
    }

    fn into_result(mut self, jobs: Jobs) -> Result<Jobs, JobsError> {
        if self.0.is_empty() {
            return Ok(jobs);
        }
        self.0.sort_by_key(|complaint| complaint.place.line);
        Err(JobsError(self.0))
    }
}
