//! Suites: the classics as workloads.
//!
//! A suite is a function that gives workloads; each is measured like any other, in blocks and on every target of a plan.
//! What the classic prints is made of the results, in `results::exchange`.

mod bonnie;
mod filecopy;

use crate::units::{Bytes, Nanos};
use crate::workload::Workload;

/// What may be said of a suite. What is absent is the suite's own choice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Bytes of the area, and of each file that a test makes. A suite whose index rests on its sizes keeps them.
    pub size: Option<Bytes>,
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
pub const SUITES: &[Suite] = &[bonnie::SUITE, filecopy::SUITE];

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
        let said = Options { size: Some(Bytes(64 << 20)), runtime: Some(Nanos::from_secs(3)) };
        for suite in SUITES {
            for workload in (suite.workloads)(&said) {
                let case = format!("{} {}", suite.name, workload.name);
                assert_eq!(workload.runtime, Nanos::from_secs(3), "{case}");
                assert!(workload.size == said.size || suite.name == "filecopy", "{case}");
            }
        }
    }

    #[test]
    fn the_classics_do_what_they_did() {
        let shown = |suite: &str| {
            let workloads =
                named(suite).map_or_else(Vec::new, |suite| (suite.workloads)(&Options::default()));
            workloads
                .iter()
                .map(|w| format!("{} {} {} x{}", w.name, w.doing(), w.bs, w.numjobs))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shown("bonnie"),
            [
                "putc test = putc 8k x1",
                "put_block test = write-new 8k x1",
                "rewrite test = rewrite 8k x1",
                "getc test = getc 8k x1",
                "get_block rw = read 8k x1",
                "seeks test = seeks 8k x5",
            ]
        );
        assert_eq!(
            shown("filecopy")[..3],
            ["fstime test = copy 1k x1", "fstime-w rw = write 1k x1", "fstime-r rw = read 1k x1"]
        );
    }
}
