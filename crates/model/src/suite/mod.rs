//! Suites: workloads that belong together, as the classic programs have them.
//!
//! A suite is a function that gives workloads; each is a cell like any other. What a suite's workloads differ in is its [`Shape`],
//! by which reports set them side by side.

mod archive;
mod bonnie;
mod filecopy;
mod mdlife;
mod orion;
mod records;
mod sizes;
mod stream;
mod threads;

use crate::units::{Bytes, Nanos};
use crate::words::WordError;
use crate::workload::{Workload, WorkloadKeys};

/// A suite.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// What its workloads differ in.
    pub shape: Shape,
    /// What is to be known when its figures are read: where the program it follows measures something else than one would think.
    pub remarks: &'static [Remark],
    /// How many rounds it has when nothing is said.
    pub repeat: u32,
    /// Its workloads.
    pub workloads: fn(&Options) -> Vec<Workload>,
}

/// What is to be known of some tests of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remark {
    /// The tests; empty: all.
    pub tests: &'static [&'static str],
    /// A sentence.
    pub text: &'static str,
}

/// What the workloads of one test differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Each workload is a test by itself.
    Each,
    /// The block size; names end in it: `randread-4k`.
    Sizes,
    /// How many I/Os are outstanding; names end in the queue depth: `dss-qd4`.
    Depths,
    /// File size and record size; names end in both: `reread-64m-4k`.
    Files,
}

/// What a user may say of a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Length of the area; of a suite of files, the largest of them. Absent: the suite's own.
    pub size: Option<Bytes>,
    /// How long a measurement is that has no end of its own. Absent: the suite's own.
    pub runtime: Option<Nanos>,
    /// Warm-up before each measurement that has no end of its own. Absent: the suite's own.
    pub ramp_time: Option<Nanos>,
    /// How many files a test of files makes, of several numbers the largest. Absent: the suite's own.
    pub files: Option<u64>,
    /// Of a suite of files: small records for large files too.
    pub all_records: bool,
}

/// All suites, in the order of lists.
pub const SUITES: &[Suite] = &[
    stream::SUITE,
    bonnie::SUITE,
    records::SUITE,
    filecopy::SUITE,
    archive::SUITE,
    mdlife::SUITE,
    orion::SUITE,
    sizes::SUITE,
    threads::SUITE,
];

impl Suite {
    /// The suite of a name.
    ///
    /// # Errors
    /// No suite has it.
    pub fn named(name: &str) -> Result<&'static Self, WordError> {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| WordError::new("suite", name, &names))
    }

    /// The test that a workload belongs to: its name without what the suite's workloads differ in.
    #[must_use]
    pub fn test<'a>(&self, workload: &'a Workload) -> &'a str {
        let place = match self.shape {
            Shape::Each => return &workload.name,
            Shape::Sizes => format!("-{}", workload.bs),
            Shape::Depths => format!("-qd{}", workload.iodepth),
            Shape::Files => format!("-{}-{}", workload.size.unwrap_or_default(), workload.bs),
        };
        workload.name.strip_suffix(place.as_str()).unwrap_or(&workload.name)
    }

    /// What is to be known of one test in particular.
    pub fn remarks_on(&self, test: &str) -> impl Iterator<Item = &'static str> {
        self.remarks.iter().filter(move |remark| remark.tests.contains(&test)).map(|remark| remark.text)
    }

    /// What is to be known of all tests.
    pub fn remarks_on_all(&self) -> impl Iterator<Item = &'static str> {
        self.remarks.iter().filter(|remark| remark.tests.is_empty()).map(|remark| remark.text)
    }

    /// The tests of some workloads, each with its workloads, in their order.
    #[must_use]
    pub fn tests<'a>(&self, workloads: &'a [Workload]) -> Vec<(&'a str, Vec<&'a Workload>)> {
        let mut tests: Vec<(&str, Vec<&Workload>)> = Vec::new();
        for workload in workloads {
            let test = self.test(workload);
            match tests.iter_mut().find(|(known, _)| *known == test) {
                Some((_, members)) => members.push(workload),
                None => tests.push((test, vec![workload])),
            }
        }
        tests
    }
}

/// A workload with nothing said but its name.
fn named(name: impl Into<String>) -> WorkloadKeys {
    WorkloadKeys { name: Some(name.into()), ..WorkloadKeys::default() }
}

/// The same with what was said of length and warm-up, for work that has no end.
fn timed(keys: &WorkloadKeys, options: &Options, size: Bytes, seconds: u64) -> Workload {
    WorkloadKeys {
        size: Some(options.size.unwrap_or(size)),
        runtime: Some(options.runtime.unwrap_or(Nanos::from_secs(seconds))),
        ramp_time: Some(options.ramp_time.unwrap_or(Nanos::from_millis(500))),
        ..keys.clone()
    }
    .complete(&WorkloadKeys::default())
}

#[cfg(test)]
mod tests;
