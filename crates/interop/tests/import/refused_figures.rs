//! Tests that unreadable and impossible figures are listed, and that lines with them give no result.

use iotax_interop::import::{recognise, refused};

use super::{entry, metric, near, only, other};

const TEXT: &str = "rt: (groupid=0, jobs=1): err= 0: pid=1: Wed Nov 25 16:10:02 2026
  read: IOPS=13.0k, BW=50.6MiB/s (53.0MB/s)(50.6MiB/1001msec)
    clat (usec): min=9, max=99, avg=49.00, stdev=1.00
    clat percentiles (usec):
     | 50.00th=[   44], 99.00th=[   50],
     lat (usec): min=10, max=100, avg=50.00, stdev=1.00
     issued rwts: total=12960,0,0,0 short=0,0,0,0 dropped=0,0,0,0
";

/// Returns the listed lines of a text without results.
fn listed(text: &str) -> Vec<String> {
    assert!(recognise(text).is_empty(), "{:?}", recognise(text));
    refused(text).iter().map(|line| line.of_file("f")).collect()
}

#[test]
fn the_rate_is_what_fio_rounded_least() {
    let found = only(TEXT);
    near(metric(entry(&found, "rt"), "bytes_per_s"), 53.0e6);
    let rate = |line: &str| {
        let text = TEXT.replace("BW=50.6MiB/s (53.0MB/s)(50.6MiB/1001msec)", line);
        metric(entry(&only(&text), "rt"), "bytes_per_s")
    };
    near(rate("BW=402KiB/s (411kB/s)(2048KiB/5101msec)"), 2048.0 * 1024.0 / 5.101);
    near(rate("BW=9.99MiB/s (10.5MB/s)(10.0MiB/1001msec)"), 9.99 * 1_048_576.0);
    near(rate("BW=50.6MiB/s, 0 zone resets"), 50.6 * 1_048_576.0);
}

#[test]
fn a_figure_of_fios_text_that_cannot_be_read_is_listed_with_its_line() {
    for (good, bad, line) in [
        ("IOPS=13.0k", "IOPS=-13.0k", "f:2: read: IOPS=-13.0k, BW=50.6MiB/s"),
        ("IOPS=13.0k", "IOPS=nan", "IOPS=nan is no figure"),
        ("IOPS=13.0k", "IOPS=13,0k", "IOPS=13,0k is no figure"),
        (
            "IOPS=13.0k",
            "IOPS=99999999999999999999999999999999999999k",
            "more than any machine has: 1e12 IOPS",
        ),
        ("BW=50.6MiB", "BW=50,6MiB", "BW=50,6MiB/s is no figure"),
        ("BW=50.6MiB", "BW=-50.6MiB", "BW=-50.6MiB/s: it is below 0"),
        ("(53.0MB", "(53.0XB", "53.0XB/s is no figure"),
        (
            "avg=50.00",
            "avg=-50.00",
            "f:6: lat (usec): min=10, max=100, avg=-50.00, stdev=1.00 (fio: avg=-50.00: it is below 0)",
        ),
        ("avg=50.00", "avg=1e400", "avg=1e400 is no figure"),
        ("avg=50.00", "avg=50,00", "avg=50,00 is no figure"),
        ("max=100", "max=9999999999999999", "more than any machine has"),
        ("[   50]", "[  nan]", "99th=[  nan] is no figure"),
    ] {
        let lines = listed(&TEXT.replace(good, bad));
        assert!(lines.len() == 1 && lines[0].contains(line), "{bad}: {lines:?}");
    }
    let both = format!("{TEXT}\n{}", TEXT.replace("IOPS=13.0k", "IOPS=nan"));
    let found = only(&both);
    assert_eq!((found.entries.len(), found.not_understood.len()), (1, 1));
    assert_eq!(found.not_understood[0].number, 10);
}

const JSON: &str = "{\"fio version\": \"fio-3.33\", \"timestamp\": 1795321567,
\"jobs\": [{\"jobname\": \"rt\", \"job_start\": 1795321567554,
\"read\": {\"total_ios\": 12960, \"io_bytes\": 53084160, \"bw_bytes\": 53031128, \"iops\": 12947.05, \"runtime\": 1001,
\"lat_ns\": {\"mean\": 50000.0, \"percentile\": {\"50.000000\": 44000}}},
\"write\": {\"total_ios\": 0, \"iops\": 0}}]}
";

#[test]
fn a_figure_of_fios_json_that_cannot_be_read_is_listed_with_its_line() {
    near(metric(entry(&only(JSON), "rt"), "iops"), 12_947.05);
    for (good, bad, line) in [
        ("\"iops\": 12947.05", "\"iops\": -5", "f:3: \"iops\": -5 (fio: it is below 0)"),
        ("\"iops\": 12947.05", "\"iops\": \"abc\"", "f:3: \"iops\": \"abc\" (fio: it is no number)"),
        ("\"iops\": 12947.05", "\"iops\": NaN", "f:3: \"iops\": NaN (fio: it is no number)"),
        ("\"iops\": 12947.05", "\"iops\": null", "f:3: \"iops\": null (fio: it is no number)"),
        (
            "\"iops\": 12947.05",
            "\"iops\": 1e308",
            "f:3: \"iops\": 1e308 (fio: it is more than any machine has: 1e12 IOPS)",
        ),
        ("53031128", "-1", "f:3: \"bw_bytes\": -1 (fio: it is below 0)"),
        ("12960,", "-1,", "f:3: \"total_ios\": -1 (fio: it is no count)"),
        ("50000.0", "1e400", "f:4: \"mean\": 1e400 (fio: it is no number)"),
        ("44000", "1e30", "f:4: \"50.000000\": 1e30 (fio: it is more than any machine has"),
        (
            "1795321567554",
            "9223372036854775808",
            "f:2: \"job_start\": 9223372036854775808 (fio: it is after the year 9999)",
        ),
        ("1795321567554", "-1", "f:2: \"job_start\": -1 (fio: it is no count)"),
    ] {
        let lines = listed(&JSON.replace(good, bad));
        assert!(lines.len() == 1 && lines[0].starts_with(line), "{bad}: {lines:?}");
    }
}

#[test]
fn a_row_with_a_figure_that_no_machine_has_is_listed() {
    let vdbench = "17:44:05.001 Starting RD=rd1; I/O rate: Uncontrolled MAX; For loops: None

Dec 02, 2020  interval        i/o   MB/sec   bytes   read     resp     read    write     resp     resp queue  cpu%  cpu%
                             rate  1024**2     i/o    pct     time     resp     resp      max   stddev depth sys+u   sys
17:46:35.163avg_31-150    2232.21  2232.21 1048576  29.99   28.504   23.495   30.650  540.899   49.877  63.6   1.2   0.5
";
    near(metric(entry(&only(vdbench), "rd1"), "iops"), 2232.21);
    for (good, bad) in [("23.495", "    -1"), ("28.504", "    -1"), (" 2232.21 1048576", "1e19 1048576")] {
        let lines = listed(&vdbench.replace(good, bad));
        assert!(lines.len() == 1 && lines[0].starts_with("f:5: 17:46:35.163avg_31-150"), "{bad}: {lines:?}");
    }
    let atop = "ATOP - host1  2024/01/01  10:00:10  ----  10s elapsed
DSK |          sda | busy      1% | read       0 | write      5 | avio 2.40 ms |
DSK |          sdb | busy      0% | read      10 | write      0 | avio 0.30 ms |
";
    near(other(&only(atop).entries[0], "avio"), 2.4);
    for (good, bad) in
        [("busy      1%", "busy     -1%"), ("avio 2.40", "avio -2.40"), ("      5 ", "     -5 ")]
    {
        let found = only(&atop.replace(good, bad));
        let rest: Vec<_> = found.entries.iter().map(|entry| entry.target.as_deref()).collect();
        assert_eq!(rest, [Some("sdb")], "{bad}");
        let line = &found.not_understood[0];
        assert!(line.number == 2 && line.reason.ends_with("it is below 0"), "{line:?}");
    }
    let terse = super::data("fio-3.33-terse.txt");
    let line = terse.lines().find(|line| line.starts_with("4;")).expect("a line of version 4");
    assert_eq!(only(&format!("{line}\n")).entries.len(), 1);
    let lines = listed(&(line.replace(";9194;", ";-9194;") + "\n"));
    assert!(lines.len() == 1 && lines[0].contains("iops: it is below 0"), "{lines:?}");
}
