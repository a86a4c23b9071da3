//! Suites: the classics as workloads.
//!
//! A suite is a function that gives workloads; each is measured like any other, in blocks and on every target of a plan.
//! What the classic prints is made of the results, in `results::exchange`.

mod archive;
mod bonnie;
mod mdlife;

use crate::units::{Bytes, Nanos};
use crate::workload::Workload;

/// What may be said of a suite. What is absent is the suite's own choice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Bytes of the area, and of each file that a test makes; of the whole tree where a test makes one.
    pub size: Option<Bytes>,
    /// How many files a test of files makes, of several numbers the largest.
    pub files: Option<u64>,
    /// The longest that each workload is measured; tests end earlier when their work is done.
    pub runtime: Option<Nanos>,
}

/// A suite.
#[derive(Debug, Clone, Copy)]
pub struct Suite {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a sentence without an end.
    pub help: &'static str,
    /// Its workloads, in the classic's order and under the classic's names.
    pub workloads: fn(&Options) -> Vec<Workload>,
}

/// Every suite.
pub const SUITES: &[Suite] = &[bonnie::SUITE, mdlife::SUITE, archive::SUITE];

/// The suite of a name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_suite_gives_workloads_that_run_whose_names_are_unique() {
        for suite in SUITES {
            let workloads = (suite.workloads)(&Options::default());
            let names: HashSet<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
            assert_eq!(names.len(), workloads.len(), "{}", suite.name);
            for workload in &workloads {
                assert_eq!(workload.check(), Ok(()), "{}", suite.name);
            }
            assert!(named(suite.name).is_some_and(|found| found.help == suite.help));
        }
    }

    #[test]
    fn what_is_said_holds_for_every_workload() {
        let said =
            Options { size: Some(Bytes(64 << 20)), runtime: Some(Nanos::from_secs(3)), files: Some(500) };
        for suite in SUITES {
            for workload in (suite.workloads)(&said) {
                let case = format!("{} {}", suite.name, workload.name);
                assert_eq!(workload.runtime, Nanos::from_secs(3), "{case}");
                assert!(workload.files().is_none_or(|files| files <= 500), "{case}");
                let has_size = workload.files().is_none() || workload.tree_bytes().is_some();
                assert!(!has_size || workload.size == said.size, "{case}");
            }
        }
    }
}
