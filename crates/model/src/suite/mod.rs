//! Suites: named sets of workloads, most of them modelled on classic benchmarks.
//!
//! A suite is a function that returns ordinary workloads. Reports group the workloads of a suite by its [`SuiteShape`].

mod applications;
mod archive;
mod audit;
mod bonnie;
mod filecopy;
mod flush;
mod mdlife;
mod orion;
mod records;
mod sizes;
mod stream;
mod threads;

pub use flush::METHODS;
use schemars::JsonSchema;
use serde::Serialize;

use crate::units::{Bytes, Nanos};
use crate::words::WordError;
use crate::workload::{FileLayout, Workload, WorkloadKeys};

/// A named set of workloads, such as those of a classic benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// The suite's name on the command line.
    pub name: &'static str,
    /// One-line description for the command's help.
    pub help: &'static str,
    /// The dimension in which the workloads of a test differ.
    pub shape: SuiteShape,
    /// Notes on what tests measure, and on differences from the original program.
    pub remarks: &'static [SuiteRemark],
    /// Default number of rounds of a run of the suite.
    pub repeat: u32,
    /// Creates the suite's workloads.
    pub workloads: fn(&SuiteOptions) -> Vec<Workload>,
}

/// A note on some tests of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SuiteRemark {
    /// Names of the tests that the remark is about; empty for all tests of the suite.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tests: &'static [&'static str],
    /// The remark, in one sentence.
    pub text: &'static str,
}

/// The dimension in which the workloads of one test differ; reports show them as a table or curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuiteShape {
    /// No dimension: each workload is a separate test.
    Each,
    /// Block size: workload names end in the size, as in `randread-4k`.
    Sizes,
    /// Queue depth: workload names end in the depth, as in `dss-qd4`.
    Depths,
    /// File size and record size: workload names end in both, as in `reread-64m-4k`.
    Files,
    /// Method of making a write durable: workload names are a method, followed by a dash and what else differs, as in `open_datasync-64k-qd8`.
    Methods,
    /// Direction and block size, to find rate limits; each workload is a separate test.
    Limits,
}

/// The user's options for a suite, as given on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteOptions {
    /// Length of the area; for suites that vary the file size, the largest file. If absent, the suite's default. Suites with fixed or empty
    /// files ignore it.
    pub size: Option<Bytes>,
    /// Duration of a measurement; for one that ends by itself, its maximum duration. If absent, the suite's default. The `records` suite
    /// ignores it.
    pub runtime: Option<Nanos>,
    /// Warm-up of a measurement that does not end by itself. If absent, the suite's default.
    pub ramp_time: Option<Nanos>,
    /// Number of files in a metadata test; if the suite varies the number, the largest. If absent, the suite's default.
    pub files: Option<u64>,
    /// For the `records` suite: also combine small records with large files, which are skipped by default.
    pub all_records: bool,
    /// For the flush suite: lengths of a write. If empty, the suite's default.
    pub bs: Vec<Bytes>,
    /// For the flush suite: numbers of jobs that commit concurrently, each in its own area. If empty, one.
    pub jobs: Vec<u32>,
    /// For the flush suite: numbers of writes in flight. If empty, one.
    pub depths: Vec<u32>,
    /// For the flush suite: states of the file at the start of a measurement. If empty, filled.
    pub layouts: Vec<FileLayout>,
    /// For the flush suite: use direct I/O in every method, for targets without a page cache.
    pub is_direct: bool,
}

/// All suites, in the order in which the help lists them.
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
    flush::SUITE,
    audit::SUITE,
    applications::SUITE,
];

/// The suite of programs that people run, whose workloads a ladder takes by name too.
pub const APPLICATIONS: &Suite = &applications::SUITE;

impl Suite {
    /// Finds a suite by its name.
    ///
    /// # Errors
    /// No suite has this name; the message lists the accepted names.
    pub fn named(name: &str) -> Result<&'static Self, WordError> {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| WordError::new("suite", name, &names))
    }

    /// Returns the name of the test that a workload belongs to: the workload's name without the suffix for what differs within the test, such
    /// as its size or queue depth.
    #[must_use]
    pub fn test<'a>(&self, workload: &'a Workload) -> &'a str {
        let suffix = match self.shape {
            SuiteShape::Each | SuiteShape::Limits => return &workload.name,
            SuiteShape::Methods => {
                let method = workload.name.split('-').next().filter(|name| METHODS.contains(name));
                return method.unwrap_or(&workload.name);
            }
            SuiteShape::Sizes => format!("-{}", workload.bs),
            SuiteShape::Depths => format!("-qd{}", workload.iodepth),
            SuiteShape::Files => format!("-{}-{}", workload.size.unwrap_or_default(), workload.bs),
        };
        workload.name.strip_suffix(suffix.as_str()).unwrap_or(&workload.name)
    }

    /// Returns the notes of the suite on this test; notes on all tests are left out.
    pub fn remarks_on(&self, test: &str) -> impl Iterator<Item = &'static str> {
        self.remarks.iter().filter(move |remark| remark.tests.contains(&test)).map(|remark| remark.text)
    }

    /// Returns the notes of the suite that apply to all its tests.
    pub fn remarks_on_all(&self) -> impl Iterator<Item = &'static str> {
        self.remarks.iter().filter(|remark| remark.tests.is_empty()).map(|remark| remark.text)
    }

    /// Groups workloads by test, in the order in which tests first occur.
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

/// Returns the keys of a workload with only the name set.
fn named(name: impl Into<String>) -> WorkloadKeys {
    WorkloadKeys { name: Some(name.into()), ..WorkloadKeys::default() }
}

/// Completes a workload that runs for a fixed time: sets area, runtime and warm-up to the user's options, else to `size`, `seconds` and 500 ms.
fn timed(keys: &WorkloadKeys, options: &SuiteOptions, size: Bytes, seconds: u64) -> Workload {
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
