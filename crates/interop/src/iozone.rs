//! Writes results of suite `records` in the layout of `iozone -R`, for spreadsheets and scripts that read it.
//!
//! Each test has a title, a row of record sizes and a row per file size. Sizes are quoted and in KiB; values are in KiB/s without decimals.
//! As with iozone, an unmeasured combination is 0. The suite has no Re-Fwrite test.

use std::fmt::Write as _;

use iotax_model::suite::SuiteShape;

use iotax_analysis::suite::{SuiteCell, TargetSeries, tests};
use iotax_model::Run;
use iotax_report::mark::Mark;

/// First line of the file; iozone prints a banner there, which parsers skip.
const FIRST: &str = "\tiotax suite records, KiB/s by file and record size in KiB\n";

pub(super) const MARK: Mark = Mark::start("iozone-excel", FIRST);

/// iozone's test titles in its order, each with the suite's name of the test.
const TITLES: [(&str, &str); 12] = [
    ("Writer", "write"),
    ("Re-writer", "rewrite"),
    ("Reader", "read"),
    ("Re-Reader", "reread"),
    ("Random read", "randread"),
    ("Random write", "randwrite"),
    ("Backward read", "backward"),
    ("Record rewrite", "record-rewrite"),
    ("Stride read", "strided"),
    ("Fwrite", "fwrite"),
    ("Fread", "fread"),
    ("Re-Fread", "freread"),
];

/// Reason why a run cannot be written in iozone's layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotIozone {
    /// The run does not measure tests by file size and record size.
    #[error(
        "iozone's layout is file sizes by record sizes, which this run does not have; it is for runs of iotax suite records"
    )]
    OtherRun,
    /// The run has several targets, listed here; the layout has room for one.
    #[error("iozone's layout has room for one target, and this run has {}; measure one alone", .0.join(", "))]
    Targets(Vec<String>),
}

/// Writes a run's bandwidths in the layout of `iozone -R`, for the tests that iozone has.
///
/// # Errors
/// The run is not of suite `records`, or has several targets.
pub fn excel(run: &Run) -> Result<String, NotIozone> {
    let tests = tests(run);
    if tests.is_empty() || tests.iter().any(|test| test.shape != SuiteShape::Files) {
        return Err(NotIozone::OtherRun);
    }
    if run.plan.targets.len() > 1 {
        return Err(NotIozone::Targets(run.plan.targets.iter().map(|target| target.name.clone()).collect()));
    }
    let mut text = format!("{FIRST}\nExcel output is below:\n");
    for (title, name) in TITLES {
        let course = tests.iter().find(|test| test.name == name).and_then(|test| test.series.first());
        if let Some(course) = course {
            let _ = write!(text, "\n\"{title} report\"\n");
            add(&mut text, course);
        }
    }
    Ok(text)
}

fn add(text: &mut String, course: &TargetSeries<'_>) {
    let record = |point: &SuiteCell<'_>| point.block_size().0;
    let file = |point: &SuiteCell<'_>| point.workload.size.unwrap_or_default().0;
    let distinct = |of: &dyn Fn(&SuiteCell<'_>) -> u64| -> std::collections::BTreeSet<u64> {
        course.points.iter().map(of).collect()
    };
    let records = distinct(&record);
    let _ = write!(text, "      ");
    for bytes in &records {
        let _ = write!(text, "  \"{}\"", bytes >> 10);
    }
    text.push('\n');
    for bytes in distinct(&file) {
        let _ = write!(text, "\"{}\"  ", bytes >> 10);
        for of_record in &records {
            let point = course.points.iter().find(|p| file(p) == bytes && record(p) == *of_record);
            let rate = point.and_then(|point| point.bytes_per_s).unwrap_or_default();
            let _ = write!(text, " {:.0} ", rate / 1024.0);
        }
        text.push('\n');
    }
}
