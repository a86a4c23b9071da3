//! The life cycle of empty files: create, open, rename and delete rates, with one and several threads, in small and large directories.

use super::{Suite, SuiteOptions, SuiteRemark, SuiteShape};
use crate::units::Nanos;
use crate::workload::{Rw, Test, Workload, WorkloadKeys};

pub(super) const SUITE: Suite = Suite {
    name: "mdlife",
    help: "files without content created, opened, renamed and deleted: by threads and by size of the directory",
    shape: SuiteShape::Each,
    remarks: &[SuiteRemark {
        tests: &[],
        text: "nothing is flushed within the measured time, and names are in memory: figures for the filesystem's work, of which a \
               crash may undo the last seconds",
    }],
    repeat: 3,
    workloads,
};

/// Default number of files in the largest of three directories; each smaller directory has a tenth of the next.
const FILES: u64 = 100_000;
/// Numbers of threads; each thread has its own directory.
const THREADS: [u32; 3] = [1, 2, 4];
/// Approximate number of opens by each thread in a test of opens. One pass over a small directory is too short to measure, so it is
/// repeated.
const OPENED: u64 = 100_000;
/// Default maximum duration of a test, for slow targets.
const RUNTIME: Nanos = Nanos::from_secs(60);

fn workloads(options: &SuiteOptions) -> Vec<Workload> {
    let files = options.files.unwrap_or(FILES).max(1);
    let mut sizes = [files / 100, files / 10, files].map(|files| files.max(1)).to_vec();
    sizes.dedup();
    let tests = [Test::Create, Test::Open, Test::Rename, Test::Delete];
    let cells = sizes
        .iter()
        .flat_map(|files| THREADS.iter().flat_map(move |threads| tests.map(|test| (*files, *threads, test))));
    cells.map(|(files, threads, test)| workload(options, files, threads, test)).collect()
}

fn workload(options: &SuiteOptions, files: u64, threads: u32, test: Test) -> Workload {
    WorkloadKeys {
        name: Some(format!("{test}-{files}-t{threads}")),
        test: Some(test),
        // Directory order would be the best case, and only rm uses it.
        rw: Some(Rw::RandRead),
        nrfiles: Some(files),
        numjobs: Some(threads),
        loops: (test == Test::Open).then(|| (OPENED / files).max(1)),
        runtime: Some(options.runtime.unwrap_or(RUNTIME)),
        ramp_time: Some(Nanos(0)),
        direct: Some(false),
        // The suite measures name lookups, not disk reads, so caches are not dropped.
        invalidate: Some(false),
        ..WorkloadKeys::default()
    }
    .complete(&WorkloadKeys::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_met_with_every_number_of_threads() {
        let named = |files| {
            let options = SuiteOptions { files: Some(files), ..SuiteOptions::default() };
            workloads(&options).into_iter().map(|workload| workload.name).collect::<Vec<_>>()
        };
        let names = named(1000);
        assert_eq!(names.len(), 3 * 3 * 4);
        assert_eq!(
            names[..5],
            ["create-10-t1", "open-10-t1", "rename-10-t1", "delete-10-t1", "create-10-t2"]
        );
        assert_eq!(named(1).len(), 12, "one size");
        let opened =
            workloads(&SuiteOptions::default()).into_iter().find(|workload| workload.name == "open-1000-t2");
        let opened = opened.expect("there");
        assert_eq!((opened.loops, opened.nrfiles, opened.numjobs), (Some(100), Some(1000), 2));
    }
}
