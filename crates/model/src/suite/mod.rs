//! Suites: sets of workloads that follow the classic benchmarks.
//!
//! A suite is a function that returns workloads; each is an ordinary cell. Reports group a suite's workloads by its [`SuiteShape`].

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

use schemars::JsonSchema;
use serde::Serialize;

use crate::units::{Bytes, Nanos};
use crate::words::WordError;
use crate::workload::{Workload, WorkloadKeys};

/// A set of workloads that follows a classic benchmark.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// The suite's name on the command line.
    pub name: &'static str,
    /// A one-line description.
    pub help: &'static str,
    /// The dimension in which the workloads differ.
    pub shape: SuiteShape,
    /// Notes on the results, where the original program measures something unexpected.
    pub remarks: &'static [SuiteRemark],
    /// Default number of rounds.
    pub repeat: u32,
    /// Creates the suite's workloads.
    pub workloads: fn(&SuiteOptions) -> Vec<Workload>,
}

/// A note on some tests of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SuiteRemark {
    /// The tests it applies to; empty for all.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub tests: &'static [&'static str],
    /// One sentence.
    pub text: &'static str,
}

/// The dimension in which a test's workloads differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuiteShape {
    /// None: each workload is a separate test.
    Each,
    /// The block size; names end in it: `randread-4k`.
    Sizes,
    /// Outstanding I/Os; names end in the queue depth: `dss-qd4`.
    Depths,
    /// File size and record size; names end in both: `reread-64m-4k`.
    Files,
    /// The method that makes a write durable; each workload is a separate test.
    Methods,
    /// Direction and block size, to find rate limits; each workload is a separate test.
    Limits,
}

/// The user's options for a suite.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteOptions {
    /// Length of the area; for file suites, the largest file. If absent, the suite's default.
    pub size: Option<Bytes>,
    /// Duration of a measurement that does not end by itself. If absent, the suite's default.
    pub runtime: Option<Nanos>,
    /// Warm-up of a measurement that does not end by itself. If absent, the suite's default.
    pub ramp_time: Option<Nanos>,
    /// Number of files of a metadata test; if it has several numbers, the largest. If absent, the suite's default.
    pub files: Option<u64>,
    /// For file suites: also combine small records with large files.
    pub all_records: bool,
    /// For the flush suite: length of a write. If absent, the suite's default.
    pub bs: Option<Bytes>,
    /// For the flush suite: number of jobs that commit concurrently, each in its own area. Default: one.
    pub jobs: Option<u32>,
    /// For the flush suite: direct I/O in every method, for targets without a page cache.
    pub is_direct: bool,
}

/// All suites, in display order.
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
];

impl Suite {
    /// Finds a suite by name.
    ///
    /// # Errors
    /// The accepted names, if there is no such suite.
    pub fn named(name: &str) -> Result<&'static Self, WordError> {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        SUITES.iter().find(|suite| suite.name == name).ok_or_else(|| WordError::new("suite", name, &names))
    }

    /// The test that a workload belongs to: its name without the suffix for the size or depth.
    #[must_use]
    pub fn test<'a>(&self, workload: &'a Workload) -> &'a str {
        let place = match self.shape {
            SuiteShape::Each | SuiteShape::Methods | SuiteShape::Limits => return &workload.name,
            SuiteShape::Sizes => format!("-{}", workload.bs),
            SuiteShape::Depths => format!("-qd{}", workload.iodepth),
            SuiteShape::Files => format!("-{}-{}", workload.size.unwrap_or_default(), workload.bs),
        };
        workload.name.strip_suffix(place.as_str()).unwrap_or(&workload.name)
    }

    /// The remarks that name this test.
    pub fn remarks_on(&self, test: &str) -> impl Iterator<Item = &'static str> {
        self.remarks.iter().filter(move |remark| remark.tests.contains(&test)).map(|remark| remark.text)
    }

    /// The remarks that apply to all tests.
    pub fn remarks_on_all(&self) -> impl Iterator<Item = &'static str> {
        self.remarks.iter().filter(|remark| remark.tests.is_empty()).map(|remark| remark.text)
    }

    /// Groups workloads by test, in order.
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

/// Workload keys with only a name.
fn named(name: impl Into<String>) -> WorkloadKeys {
    WorkloadKeys { name: Some(name.into()), ..WorkloadKeys::default() }
}

/// Applies the user's duration and warm-up to a workload that does not end by itself.
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
