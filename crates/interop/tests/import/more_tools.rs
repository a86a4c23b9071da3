//! Text pasted into issues and forums: DiskSpd, CrystalDiskMark, elbencho, sysbench, pgbench, sar, `pg_test_fsync`, and the state
//! of devices.

use iotax_interop::import::{recognise, refused};
use iotax_model::units::Bytes;
use iotax_model::workload::{Rw, SyncMode};

use super::{data, entry, metric, near, only, other};

const MIB: f64 = 1_048_576.0;

#[test]
fn figures_are_those_of_the_text_in_iotaxs_units() {
    for (file, workload, name, value) in [
        ("diskspd-2.2.txt", "randrw-75r-8k-o16-t2", "iops", 40_000.0),
        ("diskspd-2.2.txt", "randrw-75r-8k-o16-t2", "bytes_per_s", 312.5 * MIB),
        ("diskspd-2.2.txt", "randrw-75r-8k-o16-t2", "latency_mean", 801_000.0),
        ("diskspd-2.2.txt", "randrw-75r-8k-o16-t2", "latency_p99_9", 5_129_000.0),
        ("diskspd-2.2.txt", "randrw-75r-8k-o16-t2", "write latency_p99", 3_125_000.0),
        // The MB/s of old versions are of 1024 * 1024 bytes too.
        ("diskspd-2.0.txt", "read-64k-o10-t1", "bytes_per_s", 312.5 * MIB),
        ("diskspd-2.2.xml", "randread-4k-o8-t2", "iops", 10_000.0),
        ("diskspd-2.2.xml", "randread-4k-o8-t2", "bytes_per_s", 40_960_000.0),
        ("diskspd-2.2.xml", "randread-4k-o8-t2", "latency_p50", 410_000.0),
        ("crystaldiskmark-8.txt", "seqread-1m-q8-t1", "bytes_per_s", 3_145_728_000.0),
        ("crystaldiskmark-8.txt", "randread-4k-q32-t16", "iops", 300_000.0),
        ("crystaldiskmark-8.txt", "randwrite-4k-q1-t1", "latency_mean", 33_700.0),
        ("crystaldiskmark-3-6.txt", "randread-4k-q1", "iops", 6000.0),
        ("elbencho-3.0.txt", "WRITE", "iops", 8002.0),
        ("elbencho-3.0.txt", "WRITE", "bytes_per_s", 1004.0 * MIB),
        ("elbencho-3.0.txt", "WRITE", "latency_max", 3_210_000.0),
        ("elbencho-3.0.txt", "READ", "latency_p99_9", 431_000.0),
        ("elbencho-3.0.txt", "RWMIX70", "iops", 10_019.0),
        ("elbencho-3.0.csv", "READ", "latency_mean", 1_064_000.0),
        ("elbencho-3.0.csv", "RWMIX70", "iops", 50_010.0),
        ("sysbench-1.0.txt", "random-r-w", "iops", 5000.08),
        ("sysbench-1.0.txt", "random-r-w", "bytes_per_s", 78.13 * MIB),
        ("sysbench-1.0.txt", "random-r-w", "event latency_p95", 1_530_000.0),
        ("sysbench-0.4.txt", "random-read", "iops", 5000.02),
        ("sysbench-0.4.txt", "random-read", "bytes_per_s", 78.125 * MIB),
        ("sysbench-0.4.txt", "random-read", "latency_mean", 1_590_000.0),
        ("sysbench-1.1.txt", "sequential-read", "bytes_per_s", 1000.01 * MIB),
        ("sysbench-1.1.txt", "sequential-read", "latency_p99", 60_000.0),
        (
            "pgbench-15.txt",
            "builtin: TPC-B (sort of) scale=10 mode=simple clients=8",
            "tps without initial connection time",
            2_000.412_345,
        ),
        (
            "pgbench-15.txt",
            "builtin: TPC-B (sort of) scale=10 mode=simple clients=8",
            "latency_mean",
            3_998_000.0,
        ),
        (
            "pgbench-9.txt",
            "builtin: select only scale=50 mode=prepared clients=4",
            "tps excluding connections",
            8_021.123_456,
        ),
        ("sar-12.txt", "sar", "iops", 200.0),
        ("sar-12.txt", "sar", "bytes_per_s", 3000.0 * 1024.0),
        ("sar-12.txt", "sar", "latency_mean", 3_500_000.0),
        // Means over the intervals: sectors of 512 bytes, waits weighted with the I/Os.
        ("sar-10.txt", "sar", "iops", 100.0),
        ("sar-10.txt", "sar", "bytes_per_s", 1920.0 * 512.0),
        ("sar-10.txt", "sar", "latency_mean", 2_950_000.0),
        ("pg_test_fsync-15.txt", "fdatasync 8k", "iops", 1602.403),
        ("pg_test_fsync-15.txt", "fsync 2x8k", "operations", 707.013),
        ("pg_test_fsync-15.txt", "16 * 1kB open_sync writes", "latency_mean", 16_388_000.0),
        ("nvme-smart-log-2.txt", "state", "data written", 2_345_678.0 * 512_000.0),
        ("nvme-smart-log-2.json", "state", "data written", 2_345_678.0 * 512_000.0),
        ("nvme-smart-log-2.json", "state", "temperature", 38.0),
        ("smartctl-7.json", "state", "percentage used", 7.0),
        ("smartctl-7-ata.json", "state", "Reallocated_Sector_Ct raw", 24.0),
    ] {
        let found = only(&data(file));
        assert_eq!(found.not_understood, [], "{file}");
        let entry = entry(&found, workload);
        let reported = metric(entry, name).or_else(|| other(entry, name));
        near(Some(reported.unwrap_or_else(|| panic!("no {name} in {file}: {entry:?}"))), value);
    }
}

#[test]
fn keys_are_those_that_the_text_tells() {
    let diskspd = only(&data("diskspd-2.2.txt"));
    let keys = &diskspd.entries[0].keys;
    assert_eq!((keys.rw, keys.rwmixread, keys.bs), (Some(Rw::RandRw), Some(75), Some(Bytes(8192))));
    assert_eq!((keys.iodepth, keys.numjobs, keys.direct), (Some(16), Some(2), Some(true)));
    assert_eq!(diskspd.entries[0].target.as_deref(), Some("D:\\bench.dat"));
    let cached = only(&data("diskspd-2.0.txt"));
    assert_eq!((cached.entries[0].keys.direct, cached.entries[0].notes.len()), (Some(false), 1));
    let xml = only(&data("diskspd-2.2.xml"));
    assert_eq!((xml.entries[0].keys.rw, xml.entries[0].keys.direct), (Some(Rw::RandRead), Some(true)));
    let old = only(&data("crystaldiskmark-3-6.txt"));
    // The block size of 6.0's sequential rows is unknown; a KB of 3.0 is 1024 bytes, according to its IOPS.
    assert_eq!(entry(&old, "seqread-q32-t1").keys.bs, None);
    assert_eq!(entry(&old, "randread-4k-q1").keys.bs, Some(Bytes(4096)));
    assert_eq!(entry(&old, "randread-512k").keys.bs, None);
    assert_eq!(entry(&old, "randread-512k").target.as_deref(), Some("E:"));
    let fsync = only(&data("pg_test_fsync-15.txt"));
    let opened = entry(&fsync, "open_datasync 8k");
    assert_eq!((opened.keys.sync, opened.keys.direct), (Some(SyncMode::DSync), Some(true)));
    assert_eq!(entry(&fsync, "fsync 8k").keys.fsync, Some(1));
    let csv = only(&data("elbencho-3.0.csv"));
    assert_eq!((csv.entries[0].keys.bs, csv.entries[0].keys.iodepth), (Some(Bytes(4096)), Some(16)));
}

#[test]
fn what_a_figure_means_is_said_with_it() {
    for (file, note) in [
        ("crystaldiskmark-8.txt", "the best of its 5 passes"),
        ("elbencho-3.0.txt", "upper bounds"),
        ("sysbench-1.0.txt", "fsyncs are among the events"),
        ("sysbench-1.1.txt", "the page cache is in the figures"),
        ("sar-10.txt", "no averages of sar's"),
        ("smartctl-7-ata.json", "FAILED"),
        ("nvme-smart-log-2.txt", "no result of a measurement"),
    ] {
        let found = only(&data(file));
        let notes = &found.entries[0].notes;
        assert!(notes.iter().any(|message| message.contains(note)), "{file}: {notes:?}");
    }
    // Where no fsync was done latencies are those of I/Os, else of sysbench's events.
    let mixed = only(&data("sysbench-1.0.txt"));
    assert_eq!(metric(&mixed.entries[0], "latency_mean"), None);
}

/// Tests that a text with a replaced part is imported without the figure, refused, or both, with a note.
#[test]
fn a_broken_text_is_listed_and_gives_no_other_figure() {
    for (file, from, to, reason) in [
        ("diskspd-2.2.txt", "     312.50 |   40000.00", "     312.50 |    4000.00", "contradict"),
        ("diskspd-2.2.txt", "|    0.801 |     0.302", "", "not a figure for each head"),
        ("diskspd-2.2.xml", "<BytesCount>204800000</BytesCount>", "", "are not there"),
        ("diskspd-2.2.xml", "<ThreadCount>2</ThreadCount>", "<ThreadCount>3</ThreadCount>", "are not there"),
        ("diskspd-2.2.xml", "</Results>", "", "torn"),
        ("crystaldiskmark-8.txt", "300000.0 IOPS", "30000.0 IOPS", "do not fit"),
        ("crystaldiskmark-8.txt", "[Read]\n", "", "reads or writes"),
        (
            "elbencho-3.0.txt",
            "---\nREAD        Elapsed time     :       901ms       910ms\n",
            "",
            "stand twice",
        ),
        ("elbencho-3.0.csv", "60001,60002,", "60001,", "fields of"),
        ("sysbench-1.0.txt", "46.88", "4.88", "contradict"),
        (
            "sysbench-1.0.txt",
            "    writes/s:                     2000.03\n",
            "",
            "without its reads and writes",
        ),
        ("pgbench-15.txt", "tps = 2000.412345 (without", "tps = 2000.412345\n(without", "torn"),
        ("sar-12.txt", "sda    200.00    600.00", "sda    200.00", "does not fit"),
        ("pg_test_fsync-15.txt", "1602.403", "160.403", "contradict"),
        ("nvme-smart-log-2.txt", ": 6,789\n", ": 6,78\n", "no whole number"),
        ("smartctl-7.json", "\"power_cycle_count\": 9,", "\"power_cycle_count\": 9", "torn"),
    ] {
        let whole = data(file);
        let text = whole.replace(from, to);
        assert_ne!(whole, text, "{file}");
        let found = recognise(&text);
        let lines = found.iter().flat_map(|found| found.not_understood.clone()).chain(refused(&text));
        let lines: Vec<_> = lines.collect();
        assert!(lines.iter().any(|line| line.reason.contains(reason)), "{file} {to:?}: {lines:?}");
    }
}

#[test]
fn what_only_looks_like_one_of_them_is_none() {
    for text in [
        "12 MB/s here: 3 MB/s\n",
        "total: 1 | 2 | 3\n",
        "<TestTimeSeconds>1</TestTimeSeconds>\n",
        "WRITE Elapsed: 3\n",
        "General statistics:\n    total time: 10.0s\nLatency (ms):\n    avg: 1.0\n",
        "DEV tps\n1 2\n",
        "3000.0 ops/sec\n",
        "{\"smartctl\": 1}\n",
        "temperature : 38 C\n",
    ] {
        assert_eq!(recognise(text), [], "{text}");
    }
}

#[test]
fn two_states_of_a_device_are_no_repetition_of_one() {
    let state = data("nvme-smart-log-2.txt");
    let found = only(&format!("{state}\n{}", state.replace("38\u{b0}C", "44\u{b0}C")));
    let names: Vec<&str> = found.entries.iter().map(|entry| entry.workload.as_str()).collect();
    assert_eq!(names, ["state", "state 2"]);
}
