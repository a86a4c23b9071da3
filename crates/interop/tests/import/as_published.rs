//! Tests of results as people published them: truncated, annotated, from old versions, from failed runs.

use iotax_interop::import::{Entry, Found, recognise, refused};
use iotax_model::Bytes;
use iotax_model::workload::Test;

use super::{data, entry, metric, near, only, other};

/// The only entry of a text.
fn one(text: &str) -> Entry {
    let mut found = only(text);
    assert_eq!((found.entries.len(), &found.not_understood[..]), (1, &[][..]), "{found:?}");
    found.entries.remove(0)
}

#[test]
fn udp_of_old_iperf_without_its_head_is_not_iperf3() {
    let text = "[304]  0.0-10.0 sec   113 MBytes  94.5 Mbits/sec  0.002 ms    0/80328 (0%)\n\
                [304] Sent 80328 datagrams\n";
    let found = only(text);
    assert_eq!((found.tool, found.entries.len(), &found.not_understood[..]), ("iperf", 1, &[][..]));
    let udp = entry(&found, "udp");
    near(metric(udp, "bytes_per_s"), 94.5e6 / 8.0);
    near(other(udp, "jitter"), 0.002);
    assert_eq!((other(udp, "lost"), other(udp, "packets")), (Some(0.0), Some(80_328.0)));
    // With its head, and in the order of version 1.7: the server's report comes before the count.
    let whole = "Client connecting to 10.0.0.2, UDP port 5001\n\
                 [304] local 10.0.0.1 port 1263 connected with 10.0.0.2 port 5001\n\
                 [304]  0.0-10.0 sec   114 MBytes  95.7 Mbits/sec\n[304] Server Report:\n";
    let udp = one(&format!("{whole}{text}"));
    assert_eq!((udp.target.as_deref(), &*udp.workload), (Some("10.0.0.2"), "udp"));
    assert_eq!((other(&udp, "sent"), metric(&udp, "bytes_per_s")), (Some(95.7e6), Some(94.5e6 / 8.0)));
    // A truncated row of a server does not show the amount sent.
    let cut = text.replace("  0.002 ms    0/80328 (0%)", "");
    assert_eq!(other(&one(&format!("{whole}{cut}")), "sent"), Some(95.7e6));
    // It is unclear whether this is the whole test.
    let row = "[  3]  0.0-10.0 sec  1.10 GBytes   941 Mbits/sec\n";
    for row in [row, "[  3]  0.0-10.0 sec  1.25 MBytes  1.05 Mbits/sec   0.021 ms   43/  893 (4.8%)\n"] {
        assert_eq!(recognise(row), []);
        let [line] = &refused(row)[..] else { panic!("{:?}", refused(row)) };
        assert!(line.reason.starts_with("iperf: "), "{line:?}");
    }
}

#[test]
fn what_iperf3_writes_for_unknown_is_no_figure() {
    let sums = "[SUM]   0.00-209.26 sec  12.0 GBytes   491 Mbits/sec  17425             sender\n\
                [SUM]   0.00-209.26 sec  0.00 Bytes  0.00 bits/sec                  receiver\n";
    let sent = one(sums);
    assert_eq!((metric(&sent, "bytes_per_s"), other(&sent, "sent")), (None, Some(491e6)));
    assert_eq!(other(&sent, "retransmits"), Some(17_425.0));
    let head = "Accepted connection from 10.0.0.5, port 39104\n\
                [  5] local 10.0.0.2 port 5201 connected to 10.0.0.5 port 39106\n";
    let server = format!(
        "{head}[  5]   0.00-10.04  sec  0.00 Bytes  0.00 bits/sec                  sender\n\
         [  5]   0.00-10.04  sec  1.10 GBytes   941 Mbits/sec                  receiver\n"
    );
    let received = one(&server);
    assert_eq!((metric(&received, "bytes_per_s"), other(&received, "sent")), (Some(941e6 / 8.0), None));
    let wrapped = one(&sums.replace("17425", "4294967294"));
    assert_eq!((other(&wrapped, "retransmits"), other(&wrapped, "sent")), (None, Some(491e6)));
    assert!(wrapped.notes.iter().any(|note| note.contains("4294967294")), "{wrapped:?}");
    // Datagrams without a report of the receiver.
    let udp = "Connecting to host h, port 5201\n[  5] local 10.0.0.1 port 1 connected to 10.0.0.2 port 5201\n\
               [ ID] ImportedInterval           Transfer     Bitrate         Jitter    Lost/Total Datagrams\n\
               [  5]   0.00-10.00  sec  1.25 MBytes  1.05 Mbits/sec  0.000 ms  0/893 (0%)  sender\n\
               [  5]   0.00-10.00  sec  0.00 Bytes  0.00 bits/sec  0.000 ms  0/0 (0%)  receiver\n";
    let udp = one(udp);
    assert_eq!((metric(&udp, "bytes_per_s"), other(&udp, "sent")), (None, Some(1.05e6)));
    assert_eq!(["jitter", "lost", "packets"].map(|name| other(&udp, name)), [None; 3]);
}

#[test]
fn iperf3s_json_with_nan_and_numbers_that_wrapped_is_read_as_far_as_it_goes() {
    let text = data("iperf3-tcp.json").replace("\"retransmits\":\t25", "\"retransmits\":\t4294967294");
    assert_ne!(text, data("iperf3-tcp.json"));
    let wrapped = one(&text);
    assert_eq!(other(&wrapped, "retransmits"), None);
    near(metric(&wrapped, "bytes_per_s"), 21_443_787_464.684_483 / 8.0);
    assert!(wrapped.notes.iter().any(|note| note.contains("4294967294")), "{wrapped:?}");
    let lost = |packets: u32, rate: &str| {
        format!(
            r#"{{"start":{{"version":"iperf 3.1","test_start":{{"protocol":"UDP","num_streams":1}}}},"intervals":[],
            "end":{{"sum":{{"start":0,"end":10.0,"seconds":10.0,"bytes":1250000,"bits_per_second":{rate},"jitter_ms":6.11273e+08,
            "lost_packets":0,"packets":{packets},"lost_percent":-nan}}}}}}"#
        )
    };
    let found = one(&lost(0, "1000000.0"));
    near(metric(&found, "bytes_per_s"), 125_000.0);
    assert_eq!(["jitter", "lost", "packets", "loss"].map(|name| other(&found, name)), [None; 4]);
    // It cannot be parsed, and is listed as such.
    let text = lost(0, "-nan");
    assert_eq!(recognise(&text), []);
    let [line] = &refused(&text)[..] else { panic!("{:?}", refused(&text)) };
    assert!(line.reason.starts_with("iperf3: "), "{line:?}");
}

#[test]
fn iozone_with_fewer_columns_is_read_by_the_heads_that_are_left() {
    let text = "                                                           random    random\n\
                \x20          kB  reclen    write  rewrite    read    reread    read     write\n\
                \x20      102400       4     1864     1901     6688     6710     5331     2962\n";
    let found = only(text);
    assert_eq!(found.entries.len(), 6);
    for (test, rate) in [
        ("write", 1864.0),
        ("rewrite", 1901.0),
        ("read", 6688.0),
        ("reread", 6710.0),
        ("random-read", 5331.0),
        ("random-write", 2962.0),
    ] {
        let entry = entry(&found, &format!("{test}-4k-of-100m"));
        near(metric(entry, "bytes_per_s"), rate * 1024.0);
        assert!(entry.notes.iter().any(|note| note.contains("by default")), "{entry:?}");
    }
    // Without the columns of random I/O.
    let six: String = text.lines().skip(1).flat_map(|line| [&line[..57], "\n"]).collect();
    let found = only(&format!("Output is in kBytes/sec\n{six}"));
    assert_eq!(found.entries.len(), 4);
    near(metric(entry(&found, "reread-4k-of-100m"), "bytes_per_s"), 6710.0 * 1024.0);
    // Only the line above identifies the last columns' reads.
    for unknown in [
        text.lines().skip(1).collect::<Vec<_>>().join("\n") + "\n",
        text.replace("random    random", "bkwd    record"),
    ] {
        assert_eq!(recognise(&unknown), []);
        assert!(refused(&unknown)[0].reason.starts_with("iozone: "), "{unknown}");
    }
}

#[test]
fn iozones_stdio_tests_are_not_direct() {
    let text = "\tO_DIRECT feature enabled\n\tOutput is in kBytes/sec\n\
        \x20                                                             random    random     bkwd    record    stride\n\
        \x20             kB  reclen    write  rewrite    read    reread    read     write     read   rewrite      read   fwrite frewrite    fread  freread\n\
        \x20          16384       4    55907    68813    43361    42502    34044    64746    33578     61774     30137   235263   233180  3905668  3824589\n";
    let found = only(text);
    assert_eq!(found.entries.len(), 13);
    for entry in &found.entries {
        let is_stdio =
            ["fwrite", "refwrite", "fread", "refread"].iter().any(|name| entry.workload.starts_with(name));
        assert_eq!(entry.keys.direct, (!is_stdio).then_some(true), "{}", entry.workload);
        assert_eq!(entry.notes.iter().any(|note| note.contains("memory")), is_stdio, "{entry:?}");
    }
    assert_eq!(entry(&found, "fread-4k-of-16m").keys.test, Some(Test::StdioRead));
    let children = "\tO_DIRECT feature enabled\n\tChildren see throughput for  2 fwriters \t\t= 412345.67 kB/sec\n\
                    \tChildren see throughput for  2 readers \t\t= 2345.67 kB/sec\n";
    let direct: Vec<_> = only(children).entries.iter().map(|entry| entry.keys.direct).collect();
    assert_eq!(direct, [None, Some(true)]);
}

#[test]
fn a_dd_that_failed_says_so() {
    let text = "dd: error writing '/mnt/full/x': No space left on device\n11+0 records in\n10+0 records out\n\
                10485760 bytes (10 MB, 10 MiB) copied, 0.0351504 s, 298 MB/s\n";
    let failed = one(text);
    near(other(&failed, "bytes"), 10_485_760.0);
    near(metric(&failed, "bytes_per_s"), 10_485_760.0 / 0.035_150_4);
    assert!(failed.notes.iter().any(|note| note.contains("No space left on device")), "{failed:?}");
    // No other run has this note.
    let good = text.lines().skip(1).map(|line| line.to_owned() + "\n").collect::<String>();
    for after in [format!("{text}{good}"), format!("{text}$ dd if=/dev/zero of=/x bs=1M count=10\n{good}")] {
        let notes: Vec<bool> = only(&after)
            .entries
            .iter()
            .map(|entry| entry.notes.iter().any(|note| note.contains("No space")))
            .collect();
        assert_eq!(notes, [true, false]);
    }
    let refused_before =
        format!("dd: failed to open '/x': Permission denied\n# dd if=/dev/zero of=/y bs=1M\n{good}");
    assert!(one(&refused_before).notes.iter().all(|note| !note.contains("denied")));
}

#[test]
fn dd_of_any_age_is_read() {
    let old = one("131072+0 records in\n131072+0 records out\n\
                   2147483648 bytes transferred in 119.140681 seconds (18024772 bytes/sec)\n");
    near(other(&old, "bytes"), 2_147_483_648.0);
    assert_eq!(old.duration_ns, Some(119_140_681_000));
    near(metric(&old, "bytes_per_s"), 2_147_483_648.0 / 119.140_681);
    near(other(&old, "records"), 131_072.0);
}

#[test]
fn vdbench_with_glued_words_and_units_between_figures() {
    let text = "17:44:05.001 Starting RD=rd1; I/O rate: Uncontrolled MAX; elapsed=120 warmup=30; For loops: None\n\n\
        Dec 02, 2020  interval        i/o   MB/sec   bytes   read     resp     read    write     resp     resp queue  cpu%  cpu%\n\
        \x20                            rate  1024**2     i/o    pct     time     resp     resp      max   stddev depth sys+u   sys\n\
        17:46:35.163avg_31-150    2232.21  2232.21 1048576  29.99   28.504   23.495   30.650  540.899   49.877  63.6   1.2   0.5\n";
    let is_it = |text: &str| {
        let found = one(text);
        assert_eq!(found.workload, "rd1");
        near(metric(&found, "iops"), 2232.21);
        near(metric(&found, "bytes_per_s"), 2232.21 * 1_048_576.0);
        near(metric(&found, "latency_mean"), 28_504_000.0);
        near(other(&found, "cpu sys"), 0.5);
    };
    is_it(text);
    is_it(&text.replace("2232.21  2232.21 1048576", "2232.21 IOPS 2232.21 MB/sec 1048576"));
    is_it(&text.replace("28.504   23.495", "28.504 ms   23.495"));
    // An unknown unit may belong to a missing figure, and a unit may show that a figure is a different one.
    for other in ["2232.21 n/a 2232.21", "2232.21 MB/sec 2232.21 IOPS"] {
        let text = text.replace("2232.21  2232.21", other);
        assert_eq!(recognise(&text), []);
        assert_eq!(refused(&text).len(), 1);
    }
    // Without heads only what has a unit is known.
    let bare = one("avg_2-5 1035609.84 IOPS 4045.35 MB/sec 4096 100.00 0.118\n");
    assert_eq!((metric(&bare, "iops"), metric(&bare, "latency_mean")), (Some(1_035_609.84), None));
    assert!(bare.notes.iter().any(|note| note.contains("heads")), "{bare:?}");
}

#[test]
fn runs_of_vdbench_share_the_heads_that_stand_above_them() {
    let text = "11:00:00.001 Starting RD=run1; I/O rate: 100; elapsed=5; For loops: None\n\n\
        Jan 02, 2024    interval        i/o   MB/sec   bytes   read     resp     read    write     read    write     resp  queue  cpu%  cpu%\n\
        \x20                              rate  1024**2     i/o    pct     time     resp     resp      max      max   stddev  depth sys+u   sys\n\
        11:00:05.013     avg_2-5      100.0     0.10    1024  50.00    0.018    0.013    0.024     0.10     0.14    0.017    0.0   0.7   0.1\n\n\
        11:00:06.001 Starting RD=run2; I/O rate: 200; elapsed=5; For loops: None\n\n\
        11:00:11.013     avg_2-5      200.0     0.20    1024  50.00    0.020    0.015    0.026     0.10     0.14    0.017    0.0   0.7   0.1\n";
    let found = only(text);
    let rates: Vec<_> = found.entries.iter().map(|entry| (&*entry.workload, metric(entry, "iops"))).collect();
    assert_eq!((rates, found.not_understood.len()), (vec![("run1", Some(100.0)), ("run2", Some(200.0))], 0));
    // Another output begins: its columns may be others.
    for other in [
        text.replace("11:00:06.001", "10:00:06.001"),
        text.replace("11:00:06.001", "Vdbench distribution: vdbench50406\n11:00:06.001"),
    ] {
        let found = only(&other);
        assert_eq!((found.entries.len(), found.not_understood.len()), (1, 1));
    }
}

const BONNIE: &str = "\
Version 1.03e       ------Sequential Output------ --Sequential Input- --Random-
                    -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--
Machine        Size K/sec %CP K/sec %CP K/sec %CP K/sec %CP K/sec %CP  /sec %CP
gamma            4G 51234  71 61017  14 29876   6 44321  58 75502   7 151.3   1
";

/// The rates and the targets of a text's results.
fn rates(found: &Found) -> Vec<(Option<&str>, &str, Option<f64>)> {
    let rate = |entry: &Entry| metric(entry, "bytes_per_s").or(metric(entry, "iops"));
    found.entries.iter().map(|entry| (entry.target.as_deref(), &*entry.workload, rate(entry))).collect()
}

#[test]
fn tables_of_bonnie_without_a_machine_are_nobodys_and_several_rows_have_the_same_heads() {
    let whole = only(BONNIE);
    let alone = only(&BONNIE.replace("gamma", "     "));
    let nobodys: Vec<_> = rates(&whole).into_iter().map(|(_, name, rate)| (None, name, rate)).collect();
    assert_eq!((rates(&alone), &alone.not_understood[..]), (nobodys, &[][..]));
    assert_eq!(entry(&alone, "putc").keys.size, Some(Bytes(4 << 30)));
    // The line of CSV below says the same.
    let csv = "gamma,4G,51234,71,61017,14,29876,6,44321,58,75502,7,151.3,1,,,,,,,,,,,,,\n";
    let both = only(&format!("{}{csv}", BONNIE.replace("gamma", "     ")));
    assert!(both.entries.iter().all(|entry| entry.target.as_deref() == Some("gamma")), "{both:?}");
    let row = BONNIE.lines().last().expect("a row");
    let second = row.replace("gamma", "delta").replace("51234", "41234");
    let two = only(&format!("{BONNIE}{second}\n"));
    assert_eq!((two.entries.len(), two.entries[6].target.as_deref()), (12, Some("delta")));
    near(metric(&two.entries[6], "bytes_per_s"), 41_234.0 * 1024.0);
    // A figure too few in a row is a row that is listed.
    let short = only(&format!("{BONNIE}{}\n", second.replace("41234  71", "41234")));
    assert_eq!((short.entries.len(), short.not_understood[0].number), (6, 5));
}

#[test]
fn a_wikis_table_of_bonnie_is_read_by_its_cells() {
    let whole = only(BONNIE);
    let heads = "| Version 1.03e | | Sequential Output ||||||\n| | | Per Chr || Block || Rewrite || Per Chr || Block || Seeks ||\n";
    let table = |line: &str, bar: &str, end: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        format!("{end} {} {end}\n", cells.join(&format!(" {bar} ")))
    };
    let lines: Vec<&str> = BONNIE.lines().collect();
    let ruler = format!("{}|\n", "|---".repeat(14));
    let markdown = format!("{heads}{}{ruler}{}", table(lines[2], "|", "|"), table(lines[3], "|", "|"));
    assert_eq!(rates(&only(&markdown)), rates(&whole), "{markdown}");
    let media = format!("{heads}{}|-\n{}", table(lines[2], "||", "|"), table(lines[3], "||", "|"));
    assert_eq!(rates(&only(&media)), rates(&whole), "{media}");
    // An empty cell is a skipped test; a missing cell is ambiguous.
    let left_out = markdown.replace("| 51234 | 71 |", "|  |  |");
    let names: Vec<&str> = whole.entries[1..].iter().map(|entry| &*entry.workload).collect();
    assert_eq!(rates(&only(&left_out)).iter().map(|(_, name, _)| *name).collect::<Vec<_>>(), names);
    let short = markdown.replace("| 51234 | 71 |", "| 51234 |");
    assert_eq!(recognise(&short), []);
    assert!(refused(&short)[0].reason.starts_with("bonnie++: its cells"), "{:?}", refused(&short));
}
