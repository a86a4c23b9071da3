use std::collections::HashSet;

use super::*;
use crate::plan::MOST_MEASUREMENTS;
use crate::workload::Rw;

fn of(name: &str, options: &SuiteOptions) -> Vec<Workload> {
    let suite = Suite::named(name).expect(name);
    (suite.workloads)(options)
}

fn options(size: &str) -> SuiteOptions {
    SuiteOptions { size: Some(size.parse().expect("a size")), ..SuiteOptions::default() }
}

#[test]
fn every_suite_gives_workloads_that_can_be_run_and_have_names_of_their_own() {
    for suite in SUITES {
        for options in [SuiteOptions::default(), options("64m")] {
            let workloads = (suite.workloads)(&options);
            let names: HashSet<&str> = workloads.iter().map(|w| w.name.as_str()).collect();
            assert_eq!(names.len(), workloads.len(), "{}", suite.name);
            assert!(!workloads.is_empty() && workloads.len() * 2 <= MOST_MEASUREMENTS, "{}", suite.name);
            for workload in &workloads {
                assert_eq!(workload.check(), Ok(()), "{}", suite.name);
                assert!(workload.size <= options.size.or(workload.size), "{}", workload.name);
            }
            let tests: Vec<&str> = suite.tests(&workloads).into_iter().map(|(test, _)| test).collect();
            let mut named = suite.remarks.iter().flat_map(|remark| remark.tests);
            assert_eq!(named.find(|test| !tests.contains(test)), None, "{}: a remark on no test", suite.name);
        }
    }
}

#[test]
fn an_unknown_suite_names_the_nearest() {
    let error = Suite::named("recrods").expect_err("misspelt").to_string();
    assert!(error.contains("\"recrods\"") && error.contains("did you mean \"records\""), "{error}");
}

/// Returns the pairs of file size and record size of one test, in KiB.
fn records(options: &SuiteOptions) -> Vec<(u64, u64)> {
    let reads = of("records", options).into_iter().filter(|w| w.name.starts_with("reread-"));
    reads.map(|w| (w.size.expect("a file size").0 >> 10, w.bs.0 >> 10)).collect()
}

#[test]
fn large_files_have_large_records_only_unless_all_are_asked_for() {
    let usual = records(&SuiteOptions::default());
    let of_file = |all: &[(u64, u64)], file| -> Vec<u64> {
        all.iter().filter(|(known, _)| *known == file).map(|(_, record)| *record).collect()
    };
    assert_eq!(of_file(&usual, 64), [4, 8, 16, 32, 64], "no record is larger than its file");
    assert_eq!(of_file(&usual, 32 << 10).len(), 13, "4k to 16m up to 32m");
    assert_eq!(of_file(&usual, 64 << 10), [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384]);
    let files: HashSet<u64> = usual.iter().map(|(file, _)| *file).collect();
    assert_eq!(files.len(), 14, "64k to 512m");
    // Number of record sizes per file size: 5 + 6 + ... + 13 for 64k to 16m, 13 for 32m, 9 for each of the four larger files.
    assert_eq!(usual.len(), 81 + 13 + 4 * 9);
    let all = records(&SuiteOptions { all_records: true, ..SuiteOptions::default() });
    assert_eq!(of_file(&all, 512 << 10).len(), 13);
    assert_eq!(all.len(), 81 + 13 * 5);
    assert_eq!(records(&options("100k")), [(64, 4), (64, 8), (64, 16), (64, 32), (64, 64)]);
}

#[test]
fn records_do_what_their_names_say() {
    let all = of("records", &options("64k"));
    let one = |name: &str| all.iter().find(|w| w.name == name).expect(name);
    for (name, rw, stride) in [
        ("backward-64k-4k", Rw::Read, Some(-4096)),
        ("record-rewrite-64k-4k", Rw::Write, Some(0)),
        ("strided-64k-4k", Rw::Read, Some(17 * 4096)),
        ("mixed-64k-4k", Rw::RandRw, None),
    ] {
        let workload = one(name);
        assert_eq!((workload.rw, workload.stride.map(|stride| stride.0)), (rw, stride), "{name}");
        assert!(workload.pre_read && !workload.direct && workload.iodepth == 1, "{name}");
        // A strided pass repeats no record.
        let once = if name.starts_with("strided") { 4096 } else { 65536 };
        assert_eq!(workload.amount(), Some(Bytes(once)), "{name}");
    }
    assert!(!one("read-64k-4k").pre_read, "the first read begins cold");
    assert!(all.iter().all(|w| w.amount().is_some()), "every test ends by itself");
}

#[test]
fn a_test_is_the_name_without_what_differs() {
    for (suite, workload, test) in [
        ("sizes", "randread-512", "randread"),
        ("threads", "randwrite-4k-j2-qd16", "randwrite-4k-j2"),
        ("orion", "oltp-w30-qd12", "oltp-w30"),
        ("records", "record-rewrite-64k-4k", "record-rewrite"),
        ("stream", "write-8k-fsync", "write-8k-fsync"),
        ("flush", "open_datasync", "open_datasync"),
        ("flush", "sync_file_range", "sync_file_range"),
    ] {
        let all = of(suite, &SuiteOptions::default());
        let found = all.iter().find(|w| w.name == workload).expect(workload);
        assert_eq!(Suite::named(suite).expect(suite).test(found), test);
    }
    let all = of("records", &options("64k"));
    let tests = Suite::named("records").expect("known").tests(&all);
    assert_eq!(tests.iter().map(|(test, _)| *test).collect::<Vec<_>>(), records::TESTS);
    assert!(tests.iter().all(|(_, workloads)| workloads.len() == 5));
}

#[test]
fn work_that_ends_is_not_priced_by_its_cap() {
    let all = of("stream", &options("200m"));
    let write = all.iter().find(|w| w.name == "write-8k-fsync").expect("known");
    assert!(write.end_fsync && write.runtime >= Nanos::from_secs(60));
    // 200 MiB at an assumed 200 MB/s.
    assert_eq!(write.expected_time(), Nanos(1_048_576_000));
    let endless = of("sizes", &SuiteOptions::default());
    assert_eq!(endless[0].expected_time(), Nanos::from_millis(2500));
    let short = Workload { loops: Some(1), rate: Some(Bytes(1 << 20)), ..endless[0].clone() };
    assert_eq!(short.expected_time(), endless[0].expected_time(), "the cap holds all the same");
}

#[test]
fn the_classics_do_what_they_did() {
    let shown = |suite: &str| -> Vec<String> {
        let workloads = of(suite, &SuiteOptions::default());
        workloads.iter().map(|w| format!("{} {} {} x{}", w.name, w.doing(), w.bs, w.numjobs)).collect()
    };
    assert_eq!(
        shown("bonnie")[..6],
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
