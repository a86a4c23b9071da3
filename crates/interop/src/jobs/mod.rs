//! Converts fio job files and vdbench parameter files to workloads.
//!
//! Sections that fio runs concurrently become one workload with concurrent jobs; a `stonewall`, or a `wait_for` on all earlier jobs, starts
//! a new workload. Differences from fio are reported in notes. Options that iotax cannot honour are rejected.

mod builder;
mod engines;
mod expression;
mod finish;
mod ignored;
mod ini;
mod known;
mod layout;
mod options;
mod steady;
mod suffix;
mod unsupported;
mod value;
pub mod vdbench;

#[cfg(test)]
mod examples;
#[cfg(test)]
mod large;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use iotax_model::plan::CurveSpec;
use iotax_model::units::Bytes;
use iotax_model::workload::Workload;

/// Values of the keywords `$pagesize`, `$mb_memory` and `$ncpus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineKeywords {
    /// Page size in bytes.
    pub pagesize: u64,
    /// Memory in MiB.
    pub mb_memory: u64,
    /// Number of CPUs that are online.
    pub ncpus: u64,
}

/// An included file: its name and contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// Name of the file for error messages.
    pub file: String,
    /// Contents of the file.
    pub text: String,
}

/// Data that a job file needs from outside: included files, environment variables, facts about the machine.
pub struct Surroundings<'a> {
    /// Loads the file that an `include` line names. Arguments: name of the including file, name in the line. Fails with the reason.
    pub include: &'a dyn Fn(&str, &str) -> Result<Included, String>,
    /// Returns the value of an environment variable; `None` if it is not set.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Values of `$pagesize`, `$mb_memory` and `$ncpus`.
    pub machine: MachineKeywords,
    /// Size for every job, instead of the size in the file; `None` to use the file's.
    pub size: Option<Bytes>,
}

/// Result of converting a job file.
#[derive(Debug, Clone, PartialEq)]
pub struct Jobs {
    /// Workloads: of fio one per group of concurrent sections, with unique names; of vdbench one per run definition and combination of loop
    /// values.
    pub workloads: Vec<Workload>,
    /// Distinct values of fio's `filename` or vdbench's `lun` in file order, each with the position where it is set.
    pub filenames: Vec<(FileLine, String)>,
    /// True if iotax creates files, because a fio section has no `filename`, a vdbench `sd` has no `lun`, or the file describes operations on files.
    pub own_files: bool,
    /// First `directory` of fio or `anchor` of vdbench, if given.
    pub directory: Option<String>,
    /// First value of fio's `randseed`, if given.
    pub seed: Option<u64>,
    /// Loads of vdbench's `iorate=curve`, if given.
    pub curve: Option<CurveSpec>,
    /// Notes on options without effect and on differences from the original tool; one line each.
    pub notes: Vec<String>,
}

/// A position in a file: its name and the number of the line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileLine {
    /// Name of the file as the user gave it.
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: usize,
}

impl fmt::Display for FileLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An error in a job file, with its position.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LineError {
    /// Position of the error.
    pub location: FileLine,
    /// Text of the file that is in error, or the name of the option, section or argument.
    pub quoted: String,
    /// Reason for the error, and the accepted form.
    pub why: String,
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.location, self.quoted, self.why)
    }
}

/// Errors of a job file, one per line, ordered by line number; at most 100.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct JobsError(pub Vec<LineError>);

/// Returns whether a text looks like a job file: its first line that is neither empty nor a comment is a section header, and no line starts
/// a TOML array of tables. Plans have such arrays.
#[must_use]
pub fn is_job_file(text: &str) -> bool {
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with([';', '#']));
    let mut first = lines.clone();
    first.next().is_some_and(|line| line.starts_with('[')) && !lines.any(|line| line.starts_with("[["))
}

/// Parses a job file. `file` is its name in error messages. `only` lists the sections to use; if empty, all are used.
///
/// # Errors
/// All errors of the file together, at most 100. A section in `only` that the file lacks is one of them.
pub fn read(file: &str, text: &str, only: &[String], around: &Surroundings<'_>) -> Result<Jobs, JobsError> {
    let mut trouble = LineErrors::default();
    let sections = ini::sections(file, text, around, &mut trouble);
    let known = sections.iter().map(|section| section.name.as_str()).collect::<Vec<_>>();
    let start = FileLine { file: file.into(), line: 1 };
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
    let jobs = wanted
        .filter_map(|section| finish::job(&section, around.size, &mut notes, &mut trouble))
        .collect::<Vec<_>>();
    let jobs = layout::lay_out(jobs, notes, &mut trouble);
    trouble.into_result(jobs)
}

/// Maximum number of errors that are reported.
const MOST_COMPLAINTS: usize = 100;

/// Maximum number of jobs or definitions in a file, and of values of a key; more suggest a typo.
const MOST_JOBS: usize = 1000;

/// Errors found so far.
#[derive(Debug, Default)]
struct LineErrors(Vec<LineError>);

impl LineErrors {
    /// Adds an error, unless the maximum number is reached or the same error was added before: one in `[global]` is found once per job.
    fn add(&mut self, location: &FileLine, quoted: String, why: String) {
        let complaint = LineError { location: location.clone(), quoted, why };
        if !self.is_full() && !self.0.contains(&complaint) {
            self.0.push(complaint);
        }
    }

    /// Returns whether the maximum number of errors is reached.
    fn is_full(&self) -> bool {
        self.0.len() >= MOST_COMPLAINTS
    }

    fn into_result(mut self, jobs: Jobs) -> Result<Jobs, JobsError> {
        if self.0.is_empty() {
            return Ok(jobs);
        }
        self.0.sort_by_key(|complaint| complaint.location.line);
        Err(JobsError(self.0))
    }
}
