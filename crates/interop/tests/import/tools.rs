//! Each tool's layouts.

use iotax_analysis::time::utc;
use iotax_interop::import::{Found, recognise, refused};
use iotax_model::workload::Test;
use iotax_model::{Bytes, Rw};

use super::{data, entry, metric, near, only, other};

#[test]
fn fio_says_the_same_in_all_its_formats() {
    let json = only(&data("fio-3.33.json"));
    assert_eq!((json.version.as_deref(), json.entries.len()), (Some("3.33"), 2));
    let read = entry(&json, "randread");
    assert_eq!(read.target.as_deref(), Some("/srv/area"));
    assert_eq!(
        (read.keys.rw, read.keys.bs, read.keys.direct),
        (Some(Rw::RandRead), Some(Bytes(4096)), Some(false))
    );
    near(metric(read, "iops"), 7_575.424_575);
    near(metric(read, "bytes_per_s"), 31_028_939.0);
    near(metric(read, "latency_mean"), 130_776.283_265);
    near(metric(read, "latency_p99_9"), 7_897_088.0);
    near(other(read, "latency_max"), 11_876_887.0);
    assert!(read.notes[0].contains("page cache"), "{:?}", read.notes);
    // Two clones are one entry with unknown percentiles.
    let mix = entry(&json, "mix");
    near(metric(mix, "iops"), 15_801.198_801 + 6_987.012_987);
    assert_eq!((mix.keys.numjobs, metric(mix, "latency_p99")), (Some(2), None));
    for name in ["fio-3.33.txt", "fio-3.33-terse.txt"] {
        let found = only(&data(name));
        assert_eq!(found.not_understood, [], "{name}");
        assert!(entry(&found, "randread").keys.direct.is_none(), "{name}: not told");
    }
    let text = only(&data("fio-3.33.txt"));
    let percent = |word: &str, workload: &str| {
        let of = |found| metric(entry(found, workload), word).expect("known");
        (of(&text) / of(&json) - 1.0).abs()
    };
    for word in ["iops", "bytes_per_s", "latency_mean"] {
        assert!(percent(word, "randread") < 0.006 && percent(word, "mix") < 0.006, "{word}");
    }
    // Both formats in one file are one measurement.
    assert_eq!(only(&data("fio-3.33-both.txt")).entries, {
        let mut entries = json.entries.clone();
        entries.iter_mut().for_each(|entry| entry.line = 7);
        entries
    });
}

#[test]
fn fio_terse_versions_are_told_apart() {
    let found = only(&data("fio-3.33-terse.txt"));
    let iops: Vec<f64> = found.entries.iter().filter_map(|entry| metric(entry, "iops")).collect();
    let text = data("fio-3.33-terse.txt");
    let field = |line: &str, at: usize| line.split(';').nth(at).and_then(|field| field.parse::<f64>().ok());
    let expected: Vec<f64> =
        text.lines().zip([6, 7, 7, 7]).filter_map(|(line, at)| field(line, at)).collect();
    assert_eq!((iops.len(), iops), (4, expected));
    // A line that a terminal broke is one again.
    let broken: String =
        text.lines().next().expect("one").chars().enumerate().fold(String::new(), |mut text, (i, c)| {
            if i > 0 && i % 80 == 0 {
                text.push('\n');
            }
            text.push(c);
            text
        });
    assert_eq!(only(&(broken + "\n")).entries[0].stated, found.entries[0].stated);
}

#[test]
fn outputs_of_fio_are_told_apart_and_clones_are_not_mistaken() {
    let json: serde_json::Value = serde_json::from_str(&data("fio-3.33.json")).expect("JSON");
    for both in [format!("{{\"runs\":[{json},{json}]}}"), format!("[{json},{json}]"), format!("{json}{json}")]
    {
        let found = only(&both);
        assert_eq!((found.entries.len(), &found.not_understood[..]), (4, &[][..]));
        near(metric(entry(&found, "mix"), "iops"), 15_801.198_801 + 6_987.012_987);
    }
    let fewer = only(&data("fio-3.33.json").replace("\"numjobs\": \"2\"", "\"numjobs\": \"1\""));
    assert_eq!((fewer.entries.len(), fewer.not_understood.len()), (1, 1));
    // A second run of the same second, with another depth.
    let text = data("fio-3.33.txt");
    let twice = only(&(text.clone() + &text.replace("iodepth=1\n", "iodepth=8\n")));
    let single = twice.entries.iter().filter(|entry| entry.workload == "randread");
    let depths: Vec<_> = single.map(|entry| entry.keys.iodepth).collect();
    assert_eq!(depths, [Some(1), Some(8)]);
    let terse = data("fio-3.33-terse.txt");
    let line = terse.lines().nth(1).expect("version 3");
    let together = only(&format!("{line}\n{line}\n"));
    assert_eq!((together.entries.len(), together.not_understood.len()), (1, 1));
    assert!(together.entries[0].notes[0].contains("clones"), "{:?}", together.entries[0].notes);
}

#[test]
fn a_number_of_fio_that_a_line_ends_in_and_times_after_the_counts_are_nobodys() {
    let text = data("fio-3.33.txt");
    // The comma may be another country's point, after which the line was broken.
    let broken = text.replace("avg=130.78, ", "avg=130,\n78, ");
    assert_eq!(metric(entry(&only(&broken), "randread"), "latency_mean"), None);
    // Lost are the mean of the first clone's writes and the second one's head: its times are not those of the writes.
    let times = "     lat (nsec): min=1753, max=3671.9k, avg=7705.80, stdev=63823.88\n";
    let first = text.find("mix: (groupid").expect("there");
    let second = first + 1 + text[first + 1..].find("mix: (groupid").expect("there");
    let lat = second + text[second..].find("     lat (nsec)").expect("there");
    let lost = (text[..second].to_owned() + &text[lat..]).replace(times, "");
    let whole = only(&text[..second]);
    let mean = other(entry(&whole, "mix"), "read latency_mean");
    assert_eq!((mean, other(entry(&only(&lost), "mix"), "read latency_mean")), (Some(92_057.6), mean));
    assert_eq!(metric(entry(&only(&lost), "mix"), "latency_mean"), None);
}

#[test]
fn options_of_fio_have_its_units() {
    let asked = "\"size\": \"4kib\", \"offset\": \"1gb\", \"buffered\": \"0\", \"thinktime\": \"5\", \"stonewall\": \"\"";
    let text = data("fio-3.33.json").replace("\"size\": \"4m\"", asked).replace("  \"direct\": \"0\",\n", "");
    let found = only(&text);
    let read = entry(&found, "randread");
    assert_eq!((read.keys.size, read.keys.offset), (Some(Bytes(4000)), Some(Bytes(1 << 30))));
    assert_eq!((read.keys.direct, read.keys.thinktime.map(|time| time.0)), (Some(true), Some(5000)));
    assert_eq!(read.notes, ["not in iotax's terms: stonewall=1"]);
}

#[test]
fn fio_bins_become_a_histogram() {
    let found = only(&data("fio-3.33-plus.json"));
    let read = &found.entries[0];
    let tally = read.tallies.as_ref().and_then(|tallies| tallies.read.as_ref()).expect("bins");
    assert_eq!((tally.ios, tally.latency.count()), (7583, 7583));
    let p99 = tally.latency.quantile(0.99).expect("known");
    assert!((p99 / metric(read, "latency_p99").expect("stated") - 1.0).abs() < 0.02, "{p99}");
    assert_eq!(only(&data("fio-3.33.json")).entries[0].tallies, None, "without bins no counts");
}

#[test]
fn torn_json_gives_whole_jobs_and_says_where() {
    let whole = data("fio-3.33.json");
    let second = whole.match_indices("\"jobname\"").nth(1).expect("three jobs").0;
    let found = only(&whole[..second]);
    assert_eq!(found.entries.len(), 1);
    near(metric(&found.entries[0], "iops"), 7_575.424_575);
    assert!(found.not_understood[0].reason.contains("torn"), "{:?}", found.not_understood);
    // One of two clones is missing: nothing is added up, and the remaining one yields nothing.
    let third = whole.match_indices("\"jobname\"").nth(2).expect("three jobs").0;
    let found = only(&whole[..third]);
    let mix: Vec<_> = found.entries.iter().filter(|entry| entry.workload == "mix").collect();
    assert!(mix.iter().all(|entry| entry.notes.iter().any(|note| note.contains("torn"))), "{mix:?}");
    // Any text may surround it.
    let mail = format!("fio: some warning {{\n> > ok\n{whole}\n}} \ntail");
    assert_eq!(only(&mail).entries.len(), 2);
}

#[test]
fn a_torn_job_beside_others_of_its_name_may_be_a_part() {
    // The first job has lost an object's closing bracket, the second one its number of clones.
    let text = data("fio-3.33.json").replacen("\"iops_samples\": 0\n   },\n", "\"iops_samples\": 0\n", 1);
    let lost = text.replacen(",\n    \"numjobs\": \"2\"", "", 1);
    assert_ne!(text, lost);
    let found = recognise(&lost);
    assert!(
        found.iter().all(|found| !found.entries.iter().any(|entry| entry.workload == "mix")),
        "{found:?}"
    );
}

#[test]
fn old_fio_counts_kib_and_microseconds() {
    let text = "a: (g=0): rw=randread, bs=4K-4K/4K-4K/4K-4K, ioengine=libaio, iodepth=8\nfio-2.2.10\n\
                a: (groupid=0, jobs=1): err= 0: pid=77: Tue Mar  7 10:00:00 2017\n  \
                read : io=1024.0MB, bw=2048.0KB/s, iops=512, runtime= 10618msec\n    \
                clat (usec): min=1, max=790 , avg=330.50, stdev=161.10\n     \
                lat (usec): min=2, max=791 , avg=331.25, stdev=161.20\n    \
                clat percentiles (usec):\n     | 50.00th=[  300], 99.00th=[  620], 99.90th=[  700]\n  \
                cpu          : usr=1.50%, sys=3.25%, ctx=100, majf=0, minf=9\n     \
                issued    : total=r=262144/w=0/d=0, short=r=0/w=0/d=0\n\nRun status group 0 (all jobs):\n";
    let found = only(text);
    let a = &found.entries[0];
    near(metric(a, "bytes_per_s"), 2048.0 * 1024.0);
    near(metric(a, "iops"), 512.0);
    near(metric(a, "latency_mean"), 331_250.0);
    near(metric(a, "latency_p99"), 620_000.0);
    assert_eq!(
        (a.keys.iodepth, a.keys.bs, a.duration_ns),
        (Some(8), Some(Bytes(4096)), Some(10_618_000_000))
    );
    let json = r#"{"fio version": "fio-2.2.10", "jobs": [{"jobname": "a", "groupid": 0, "error": 0,
        "read": {"io_bytes": 1048576, "bw": 2048, "iops": 512, "runtime": 10618, "total_ios": 262144,
        "lat": {"min": 2, "max": 791, "mean": 331.25}, "clat": {"mean": 330.5, "percentile": {"99.000000": 620}}},
        "write": {"io_bytes": 0, "bw": 0, "iops": 0, "total_ios": 0}}]}"#;
    let of_json = &only(json).entries[0];
    assert_eq!(metric(of_json, "bytes_per_s"), metric(a, "bytes_per_s"));
    assert_eq!(metric(of_json, "latency_mean"), metric(a, "latency_mean"));
    assert_eq!(metric(of_json, "latency_p99"), metric(a, "latency_p99"));
}

#[test]
fn bonnie_in_csv_and_tables() {
    let found = only(&data("bonnie-1.03.txt"));
    let gamma = |workload| entry(&found, workload);
    assert_eq!(found.entries.iter().filter(|entry| entry.workload == "putc").count(), 1, "the CSV says it");
    near(metric(gamma("putc"), "bytes_per_s"), 51_234.0 * 1024.0);
    near(other(gamma("putc"), "cpu"), 71.0);
    near(metric(gamma("seeks"), "iops"), 151.3);
    near(metric(gamma("ran_del"), "iops"), 19_877.0);
    assert_eq!(gamma("putc").keys.test, Some(Test::Putc));
    assert_eq!(gamma("get_block").keys.size, Some(Bytes(4 << 30)));
    assert!(
        metric(gamma("seq_stat"), "iops").is_none() && gamma("seq_stat").notes.join(" ").contains("too fast")
    );
    // The table alone says the same.
    let lines: Vec<&str> = data_lines("bonnie-1.03.txt");
    let table = only(&(lines[..lines.len() - 1].join("\n") + "\n"));
    for one in &found.entries {
        assert_eq!(entry(&table, &one.workload).stated, one.stated, "{}", one.workload);
    }
    let new = only(&data("bonnie-2.00.txt"));
    let alpha: Vec<_> = new.entries.iter().filter(|entry| entry.target.as_deref() == Some("alpha")).collect();
    assert_eq!((new.version.as_deref(), alpha.len()), (Some("2.00a"), 12));
    near(metric(alpha[0], "bytes_per_s"), 206.0 * 1024.0);
    near(other(alpha[1], "latency_max"), 40_100_000.0);
    near(metric(entry(&new, "seq_del"), "iops"), 1265.0);
    let table = only(&data("bonnie-2.00-table.txt"));
    near(metric(entry(&table, "getc"), "bytes_per_s"), 322.0 * 1024.0);
    near(other(entry(&table, "ran_del"), "latency_max"), 25_835_000.0);
    // Tests that were left out leave blanks.
    let delta = only(&data("bonnie-1.97-table.txt"));
    assert!(delta.entries.iter().all(|entry| entry.workload != "putc" && entry.workload != "getc"));
    near(metric(entry(&delta, "get_block"), "bytes_per_s"), 203_344.0 * 1024.0);
    near(other(entry(&delta, "get_block"), "latency_max"), 1.188e9);
}

#[test]
fn the_last_share_of_old_bonnie_is_left_out_where_it_may_have_lost_a_digit() {
    let line =
        data("bonnie-1.03.txt").lines().find(|line| line.starts_with("gamma,4G")).expect("CSV").to_owned();
    let rest = line.strip_suffix(",88").expect("the sample's share");
    for (share, cpu) in [("88", Some(88.0)), ("8", None), ("10", None)] {
        let found = only(&format!("{rest},{share}\n"));
        let last = entry(&found, "ran_del");
        assert_eq!((metric(last, "iops"), other(last, "cpu")), (Some(19_877.0), cpu), "{share}");
    }
}

/// Collapses runs of blanks into one, as chats and some web pages do.
fn collapsed(text: &str) -> String {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn collapsed_blanks_move_no_figure_of_bonnie_to_another_test() {
    // What bonnie++ wrote, without its CSV.
    let runs = data("bonnie-2.00-runs.txt");
    let tables: String =
        runs.lines().filter(|line| !line.starts_with("1.98,")).map(|line| line.to_owned() + "\n").collect();
    let whole = only(&tables);
    assert_eq!((whole.entries.len(), whole.not_understood.len()), (12 + 4 + 12, 0), "{whole:?}");
    let of = |found: &Found, target: &str, name: &str| {
        let entry = found.entries.iter().find(|e| e.target.as_deref() == Some(target) && e.workload == name);
        entry.map(|entry| other(entry, "latency_max").expect("known"))
    };
    let host_1 =
        ["putc", "put_block", "rewrite", "getc", "get_block", "seeks"].map(|name| of(&whole, "host-1", name));
    let expected = [37_873_000.0, 8_094_000.0, 11_851_000.0, 19_560_000.0, 8_071_000.0, 51_996_000.0];
    assert_eq!(host_1, expected.map(Some));
    assert_eq!((of(&whole, "host-2", "put_block"), of(&whole, "host-2", "putc")), (Some(18_622_000.0), None));
    assert_eq!(of(&whole, "a-machine-with-", "putc"), Some(460_000_000.0));
    // Twelve figures and six latencies are in the order of their heads. The row of -f has eight and is refused.
    let found = only(&collapsed(&tables));
    let line = tables.lines().position(|line| line.starts_with("host-2 ")).expect("there") + 1;
    assert_eq!(found.not_understood.iter().map(|line| line.number).collect::<Vec<_>>(), [line]);
    assert!(found.not_understood[0].reason.contains("which of the twelve figures are missing"));
    let rest: Vec<_> =
        whole.entries.iter().filter(|e| e.target.as_deref() != Some("host-2")).cloned().collect();
    assert_eq!(found.entries, rest);
    for name in ["bonnie-1.97-table.txt", "bonnie-2.00-table.txt", "bonnie-1.03.txt"] {
        let tables: Vec<String> =
            data(name).lines().filter(|line| !line.contains(",4G")).map(str::to_owned).collect();
        let text = collapsed(&(tables.join("\n") + "\n"));
        if name == "bonnie-1.97-table.txt" {
            // It lacks two tests, and nothing else is there.
            assert_eq!(recognise(&text), []);
            let [row] = &refused(&text)[..] else { panic!("{:?}", refused(&text)) };
            assert!(row.number == 4 && row.reason.starts_with("bonnie++: its blanks"), "{row:?}");
        } else {
            assert_eq!(only(&text).entries, only(&(tables.join("\n") + "\n")).entries, "{name}");
        }
    }
    // Blanks of the row alone, and a latency that was lost.
    let row = tables.lines().nth(line - 1).expect("there");
    let found = only(&tables.replace(row, collapsed(row).trim_end()));
    assert!(of(&found, "host-2", "putc").is_none() && of(&found, "host-2", "put_block").is_none());
    let found = only(&collapsed(&tables.replace("   8094us", "")));
    assert!(entry(&found, "putc").stated.others.iter().all(|figure| figure.name != "latency_max"));
    assert_eq!(found.not_understood[0].number, 5);
}

#[test]
fn a_table_of_bonnie_says_again_what_its_csv_says() {
    let found = only(&data("bonnie-2.00-runs.txt"));
    let targets: Vec<_> = found.entries.iter().filter_map(|entry| entry.target.clone()).collect();
    assert_eq!((targets.len(), found.not_understood.len()), (12 + 4 + 12, 0));
    assert_eq!(targets.last().map(String::as_str), Some("a-machine-with-a-long-name-indeed"));
    // A table without CSV next to one of the same machine with CSV.
    let runs = data("bonnie-2.00-runs.txt");
    let other = runs.lines().take(5).map(|line| line.replace("571k", "271k") + "\n").collect::<String>();
    let found = only(&(runs + &other));
    let rates = found.entries.iter().filter(|entry| entry.workload == "putc");
    assert_eq!(rates.filter_map(|entry| metric(entry, "bytes_per_s")).count(), 3);
}

#[test]
fn fios_groups_keep_their_row_and_the_sum_of_its_clients_is_no_job() {
    let found = only(&data("fio-3.33-group.json"));
    let names: Vec<&str> = found.entries.iter().map(|entry| entry.workload.as_str()).collect();
    assert_eq!((names, &found.not_understood[..]), (vec!["gr", "single"], &[][..]));
    let group = entry(&found, "gr");
    assert!(
        metric(group, "iops").is_some_and(|iops| iops > 1000.0) && metric(group, "latency_p99").is_some()
    );
    assert_eq!(group.keys.numjobs, Some(3));
    assert!(
        group.notes.iter().any(|note| note.contains("3 jobs that ran at once, which fio reports as one"))
    );
    // One of three clones is not the sum of all if the others are missing.
    let alone = data("fio-3.33-group.json").replace("\"job_runtime\": 3008", "\"job_runtime\": 1003");
    let alone = only(&alone);
    assert_eq!(metric(entry(&alone, "gr"), "iops"), None);
    assert!(entry(&alone, "gr").notes.iter().any(|note| note.contains("fewer jobs than numjobs")));
    for name in ["fio-3.33-client.json", "fio-3.33-client.txt"] {
        let found = only(&data(name));
        let names: Vec<&str> = found.entries.iter().map(|entry| entry.workload.as_str()).collect();
        assert_eq!((names, found.not_understood.len()), (vec!["rr", "ww"], 0), "{name}");
    }
}

#[test]
fn every_tool_that_tells_a_time_gives_it_to_its_results() {
    for (name, time, has_zone) in [
        ("fio-3.33.json", "2026-11-22T04:26:07Z", true),
        ("fio-3.33-client.json", "2026-11-23T17:27:22Z", true),
        ("fio-3.33-client.txt", "2026-11-23T17:27:31Z", false),
        ("vdbench-5.04.07.txt", "2019-01-24T16:24:31Z", false),
        ("unixbench-5.1.3.txt", "2023-03-01T10:00:00Z", false),
        ("atop-2.x.txt", "2023-03-01T10:00:00Z", false),
        ("atop-P-DSK.txt", "2023-03-01T10:00:00Z", true),
        ("iostat-12.6-xmt.txt", "2026-11-22T03:51:31Z", false),
        ("iperf2.csv", "2023-03-01T10:00:10Z", false),
        ("iozone-3.506.txt", "2023-02-18T19:06:30Z", false),
        ("iperf2-2.1.8-e.txt", "2026-11-23T17:49:39Z", true),
        ("iperf3-V.txt", "2026-11-23T17:49:37Z", true),
        ("iperf3-tcp.json", "2026-11-22T03:51:38Z", true),
        ("ping-iputils-D.txt", "2026-11-23T17:31:52Z", true),
    ] {
        let stamp = recognise(&data(name))[0].entries[0].time.unwrap_or_else(|| panic!("{name}"));
        assert_eq!((utc(stamp.ms).as_str(), stamp.has_zone), (time, has_zone), "{name}");
    }
    for name in
        ["bonnie-2.00.txt", "dd-9.1.txt", "hyperfine-1.15.json", "fio-3.33-terse.txt", "ping-iputils.txt"]
    {
        assert!(recognise(&data(name))[0].entries.iter().all(|entry| entry.time.is_none()), "{name}");
    }
    let flat = data("vdbench-flatfile.html")
        .replace("tod Run", "tod timestamp Run")
        .replace(" rd1 ", " 01/24/2019-16:25:02-MST rd1 ");
    assert_eq!(only(&flat).entries[0].time.map(|time| utc(time.ms)).as_deref(), Some("2019-01-24T16:25:02Z"));
}

#[test]
fn iozone_in_columns_reports_and_throughput() {
    let found = only(&data("iozone-3.506.txt"));
    assert_eq!((found.version.as_deref(), found.entries.len()), (Some("3.506"), 8));
    let read = entry(&found, "random-read-4k-of-100m");
    near(metric(read, "bytes_per_s"), 98_608.0 * 1024.0);
    assert_eq!(
        (read.keys.rw, read.keys.bs, read.keys.direct),
        (Some(Rw::RandRead), Some(Bytes(4096)), Some(true))
    );
    let excel = only(&data("iozone-3.489-excel.txt"));
    assert_eq!(excel.entries.len(), 16, "the report repeats the columns");
    let text = data("iozone-3.489-excel.txt");
    let report = text.split_once("Excel output is below:").expect("it is").1;
    // The unit is then not stated: kB/s by default, unknown if the command requested another one.
    let alone = only(report);
    assert_eq!(alone.entries.len(), 16);
    near(metric(entry(&alone, "reread-8k-of-128k"), "bytes_per_s"), 6_512_345.0 * 1024.0);
    assert!(alone.entries.iter().all(|entry| entry.notes.join(" ").contains("by default")));
    let asked = only(&format!("# ./iozone -a -R -O\n{report}"));
    assert!(asked.entries.iter().all(|entry| entry.stated.metrics.is_empty()));
    near(other(entry(&asked, "reread-8k-of-128k"), "result"), 6_512_345.0);
    let children = only(&data("iozone-3.506-throughput.txt"));
    near(metric(entry(&children, "4 initial writers"), "bytes_per_s"), 412_345.67 * 1024.0);
    let per_second = data("iozone-3.506.txt").replace("kBytes/sec", "operations per second");
    near(metric(entry(&only(&per_second), "rewrite-1m-of-100m"), "iops"), 389_054.0);
}

#[test]
fn vdbench_by_the_heads_of_its_columns() {
    let found = only(&data("vdbench-5.04.07.txt"));
    assert_eq!(found.version.as_deref(), Some("50407"));
    let names: Vec<&str> = found.entries.iter().map(|entry| entry.workload.as_str()).collect();
    assert_eq!(names, ["rd1", "rd2 threads=2 xfersize=8k"]);
    let second = &found.entries[1];
    near(metric(second, "iops"), 376.8);
    near(metric(second, "bytes_per_s"), 2.94 * 1024.0 * 1024.0);
    near(metric(second, "latency_mean"), 5_271_000.0);
    near(other(second, "write resp"), 565_000.0);
    near(other(second, "cpu sys+usr"), 12.8);
    let old = only(&data("vdbench-5.02.txt"));
    near(other(&old.entries[0], "resp max"), 11_830_000.0);
    near(other(&old.entries[0], "cpu sys"), 5.0);
    let flat = only(&data("vdbench-flatfile.html"));
    near(metric(&flat.entries[0], "bytes_per_s"), 20.0 * 1024.0 * 1024.0);
    assert_eq!((flat.entries[0].keys.rw, flat.entries.len()), (Some(Rw::RandRead), 1));
    // In a country of decimal commas.
    let comma = only(&with_commas(&data("vdbench-5.04.07.txt")));
    assert_eq!(comma.entries[1].stated, second.stated);
}

#[test]
fn heads_and_a_row_of_vdbench_that_were_broken_alike_are_not_read() {
    let text = data("vdbench-flatfile.html");
    let broken = text.replace("bytes/io read%", "bytes/io\nread%").replace("4096 100.00", "40\n96 100.00");
    assert_eq!(recognise(&broken), []);
    // Also where the rest of the heads and of the row before are lost.
    let lost: Vec<&str> = broken
        .lines()
        .filter(|line| !line.starts_with("read%") && !line.starts_with("96 100.00 0.398"))
        .collect();
    assert_eq!(recognise(&lost.join("\n")), []);
}

#[test]
fn one_text_may_hold_several_tools_and_nothing_is_made_of_none() {
    let text =
        ["fio-3.33.json", "bonnie-1.03.txt", "vdbench-5.02.txt", "iozone-3.506.txt"].map(data).join("\n\n");
    let tools: Vec<&str> = recognise(&text).iter().map(|found| found.tool).collect();
    assert_eq!(tools, ["bonnie++", "fio", "iozone", "vdbench"]);
    for text in ["", "hello", "{}", "a,b,c", "1,2,3\n4,5,6\n", "{\"jobs\": [1]}", &"{".repeat(5000)] {
        assert_eq!(recognise(text), [], "{text}");
    }
}

fn data_lines(name: &str) -> Vec<&'static str> {
    data(name).leak().lines().collect()
}

/// Replaces the decimal point of every separate number by a comma.
fn with_commas(text: &str) -> String {
    let word = |word: &str| match word.split_once('.') {
        Some((a, b))
            if [a, b].iter().all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit())) =>
        {
            format!("{a},{b}")
        }
        _ => word.to_owned(),
    };
    text.split(' ')
        .map(|piece| piece.split('\n').map(word).collect::<Vec<_>>().join("\n"))
        .collect::<Vec<_>>()
        .join(" ")
}
