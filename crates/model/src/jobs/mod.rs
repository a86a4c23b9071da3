//! Job files of fio and parameter files of vdbench: their text becomes workloads.
//!
//! Sections that fio runs at the same time become one workload with others beside it, each group after a `stonewall` a workload of
//! its own. Whatever means something else here than in fio is said in a note; what cannot be done as fio does it is refused.

mod builder;
mod expression;
mod finish;
mod ignored;
mod ini;
mod known;
mod layout;
mod options;
mod suffix;
mod unsupported;
mod value;
pub mod vdbench;

#[cfg(test)]
mod large;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::workload::Workload;

/// What `$pagesize`, `$mb_memory` and `$ncpus` stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// Bytes of a page.
    pub pagesize: u64,
    /// Memory in MiB.
    pub mb_memory: u64,
    /// CPUs that are online.
    pub ncpus: u64,
}

/// A file that another one includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// What errors call it.
    pub file: String,
    /// What is in it.
    pub text: String,
}

/// What a job file may ask for that is not in it.
pub struct Surroundings<'a> {
    /// The file that an `include` names; the first argument is the file in which it stands. The error says why it cannot be read.
    pub include: &'a dyn Fn(&str, &str) -> Result<Included, String>,
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// What keywords stand for.
    pub machine: Machine,
}

/// What a job file says.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    /// One for each group of sections that fio runs at the same time; names are unique.
    pub workloads: Vec<Workload>,
    /// What `filename` names, each once, in the order of the file, with the place of the option.
    pub filenames: Vec<(Place, String)>,
    /// Whether a section names no file, so that it has one of its own.
    pub own_files: bool,
    /// The first `directory`.
    pub directory: Option<String>,
    /// `randseed`.
    pub seed: Option<u64>,
    /// What changes nothing here or means something else than in fio, one line each.
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

/// Whether a text is meant as a job file: its first line that says something is a section's header, and none begins a list of
/// tables as plans have them.
#[must_use]
pub fn is_job_file(text: &str) -> bool {
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with([';', '#']));
    let mut first = lines.clone();
    first.next().is_some_and(|line| line.starts_with('[')) && !lines.any(|line| line.starts_with("[["))
}

/// Reads a job file. `file` is what errors call it; of its sections only those named in `only` are taken, all if none is.
///
/// # Errors
/// Everything that cannot be taken, at once.
pub fn read(file: &str, text: &str, only: &[String], around: &Surroundings<'_>) -> Result<Jobs, JobsError> {
    let mut trouble = Trouble::default();
    let sections = ini::sections(file, text, around, &mut trouble);
    let known = sections.iter().map(|section| section.name.as_str()).collect::<Vec<_>>();
    let start = Place { file: file.into(), line: 1 };
    for name in only.iter().filter(|name| !known.contains(&name.as_str())) {
        let accepted = known.join(", ");
        trouble.add(
            &start,
            format!("--section {name}"),
            format!("there is no such section; accepted: {accepted}"),
        );
    }
    if sections.is_empty() && trouble.0.is_empty() {
        let why =
            "no section says what is to be done; a job begins with its name in brackets, such as [reader]";
        trouble.add(&start, "the file".into(), why.into());
    }
    let wanted = sections.into_iter().filter(|section| only.is_empty() || only.contains(&section.name));
    let mut notes = layout::Notes::default();
    let jobs =
        wanted.filter_map(|section| finish::job(&section, &mut notes, &mut trouble)).collect::<Vec<_>>();
    let jobs = layout::lay_out(jobs, notes, &mut trouble);
    trouble.into_result(jobs)
}

/// So many complaints are more than anybody reads.
const MOST_COMPLAINTS: usize = 100;

/// How many jobs or definitions one file may have: more are a slip of the keyboard, not a wish.
const MOST_JOBS: usize = 1000;

/// What has been found wrong so far.
#[derive(Debug, Default)]
struct Trouble(Vec<Complaint>);

impl Trouble {
    /// What stands in `[global]` is met once for each job, and said once.
    fn add(&mut self, place: &Place, quoted: String, why: String) {
        let complaint = Complaint { place: place.clone(), quoted, why };
        if !self.is_full() && !self.0.contains(&complaint) {
            self.0.push(complaint);
        }
    }

    /// Whether there is no use in reading on.
    fn is_full(&self) -> bool {
        self.0.len() >= MOST_COMPLAINTS
    }

    fn into_result(mut self, jobs: Jobs) -> Result<Jobs, JobsError> {
        if self.0.is_empty() {
            return Ok(jobs);
        }
        self.0.sort_by_key(|complaint| complaint.place.line);
        Err(JobsError(self.0))
    }
}
