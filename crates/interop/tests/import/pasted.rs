//! Tests of pasted text: parts of outputs, with the marks of terminals or logs in and around them.

use iotax_interop::import::{Found, intervals, recognise, refused};

use super::{data, entry, metric, near, only, other};

const ATOP: &str = "ATOP - host1           2024/01/01  10:00:10    --------------    10s elapsed\n";
const CPU: &str = "CPU | sys       7% | user    300% | irq       1% | idle   1289% | wait      3% |\n";

#[test]
fn avio_of_atop_is_read_and_not_made_of_a_rounded_share() {
    let found = only(&format!(
        "{ATOP}DSK |          sda | busy      1% | read       0 | write      5 | avio 2.40 ms |\n\
         DSK |          sdb | busy      0% | read      10 | write      0 | avio 0.30 ms |\n"
    ));
    let [sda, sdb] = &found.entries[..] else { panic!("{found:?}") };
    near(other(sda, "avio"), 2.4);
    near(other(sdb, "avio"), 0.3);
    let micro = only(&format!("{ATOP}DSK | nvme0n1 | busy 9% | read 100 | write 0 | avio 93 \u{b5}s |\n"));
    near(other(&micro.entries[0], "avio"), 0.093);
    let without = only(&format!("{ATOP}DSK | sda | busy 9% | read 100 | write 0 |\n"));
    assert_eq!(other(&without.entries[0], "avio"), None);
}

#[test]
fn a_sample_of_atop_since_boot_is_listed_and_no_interval() {
    let text = "ATOP - host1   2024/01/01  10:00:10    --------------    135d20h31m32s elapsed\n\
                DSK |          sda | busy      4% | read     726 | write   1357 | avio 2.00 ms |\n";
    assert!(recognise(text).is_empty() && intervals(text).is_none_or(|read| read.intervals.is_empty()));
    let [line] = &refused(text)[..] else { panic!("one line") };
    assert!(line.number == 1 && line.reason.contains("since boot"), "{line:?}");
    // The first of several that are all shorter.
    let later = text.replace("135d20h31m32s", "2h3m4s")
        + &format!("{ATOP}DSK | sda | busy 4% | read 10 | write 10 | avio 2.00 ms |\n");
    let found = only(&later);
    near(metric(&found.entries[0], "iops"), 2.0);
    assert_eq!((found.not_understood.len(), intervals(&later).expect("atop's").intervals.len()), (1, 1));
    let parsed = only(&data("atop-P-DSK.txt"));
    assert_eq!(parsed.not_understood, []);
}

#[test]
fn screens_of_atop_without_a_disk_are_said() {
    let screens = format!(
        "{ATOP}DSK |          sda | busy     50% | read       0 | write   1000 | avio 5.00 ms |\n\n{}{CPU}\n{}{CPU}",
        ATOP.replace("10:00:10", "10:00:20"),
        ATOP.replace("10:00:10", "10:00:30")
    );
    let found = only(&screens);
    near(metric(&found.entries[0], "iops"), 100.0);
    assert!(found.entries[0].notes.iter().any(|note| note.starts_with("in 1 of 3 screens")), "{found:?}");
    let all = intervals(&screens).expect("atop's").intervals;
    assert_eq!(all.iter().map(|one| one.devices.len()).collect::<Vec<_>>(), [1, 0, 0]);
}

#[test]
fn a_line_of_atop_without_its_head_has_a_share_and_a_mean() {
    let line = "DSK |  sda | busy  12% | read  10 | write 100 | MBr/s 0.0 | MBw/s 1.2 | avio 0.50 ms |\n";
    let found = only(line);
    let [sda] = &found.entries[..] else { panic!("{found:?}") };
    assert_eq!((other(sda, "busy"), other(sda, "avio"), metric(sda, "iops")), (Some(12.0), Some(0.5), None));
    near(metric(sda, "bytes_per_s"), 1.2 * 1_048_576.0);
    assert!(sda.notes[0].contains("head"), "{sda:?}");
}

/// Asserts the figures of a job of fio, regardless of the text around it.
fn is_fio(text: &str) {
    let found = only(text);
    let rt = entry(&found, "randread");
    let plain = only(&data("fio-3.33.txt"));
    assert_eq!(rt.stated, entry(&plain, "randread").stated, "{text}");
}

#[test]
fn colours_and_stars_do_no_harm() {
    let text = data("fio-3.33.txt");
    is_fio(&text.replace("IOPS=", "\u{1b}[01;31m\u{1b}[KIOPS=\u{1b}[m\u{1b}[K"));
    is_fio(&text.replace("IOPS=", "**IOPS=").replace(", BW", "**, BW"));
    let script = format!(
        "Script started on 2024-01-01 00:00:00+00:00 [TERM=\"xterm\"]\n\u{1b}]0;root@h:~\u{7}\u{1b}[01;32mroot@h\u{1b}[00m:# fio\n{text}"
    );
    is_fio(&script.replace('\n', "\r\n"));
}

/// Prefixes every line of a text.
fn behind(before: &str, text: &str) -> String {
    text.lines().flat_map(|line| [before, line, "\n"]).collect()
}

#[test]
fn a_prefix_of_every_line_does_no_harm_to_any_reader() {
    let before = [
        "    ",
        "2024-01-01T00:00:00.123456789Z ",
        "[2024-01-01 00:00:00] ",
        "Jan  1 00:00:00 box fio[12]: ",
        "fio-1  | ",
        "[pod/fio/fio] ",
    ];
    let names = [
        "fio-3.33.txt",
        "fio-3.33.json",
        "fio-3.33-terse.txt",
        "atop-2.x.txt",
        "atop-P-DSK.txt",
        "bonnie-1.97-table.txt",
        "dd-9.1.txt",
        "hyperfine-1.15.json",
        "iostat-12.6-x.txt",
        "iozone-3.506.txt",
        "iperf2-tcp.txt",
        "iperf3-reverse.txt",
        "iperf3-tcp.json",
        "ping-iputils.txt",
        "unixbench-5.1.3.txt",
        "vdbench-5.04.07.txt",
    ];
    let figures = |found: &Found| -> Vec<_> {
        let of = found.entries.iter();
        of.map(|entry| (entry.target.clone(), entry.workload.clone(), entry.stated.clone())).collect()
    };
    for name in names {
        let text = data(name);
        let plain = only(&text);
        for before in before {
            let with = behind(before, &text);
            let found = recognise(&with);
            let [found] = &found[..] else { panic!("{name} behind {before:?}: {} tools", found.len()) };
            assert_eq!(figures(found), figures(&plain), "{name} behind {before:?}");
        }
    }
    let text = data("atop-2.x.txt");
    let with = behind("box ", &text);
    assert_eq!(intervals(&with).map(|read| read.intervals), intervals(&text).map(|read| read.intervals));
}

const MIXED: &str = "fio-3.38\ntest: (groupid=0, jobs=1): err= 0: pid=4242: Wed Mar 12 12:00:00 2025\n   \
    mixed: IOPS=100, BW=402KiB/s (411kB/s)(2048KiB/5101msec)\n    clat (usec): min=10, max=900, avg=120.00, stdev=10.00\n     \
    lat (usec): min=11, max=901, avg=121.00, stdev=10.00\n     issued rwts: total=256,256,0,0 short=0,0,0,0 dropped=0,0,0,0\n";

#[test]
fn all_directions_of_fio_in_one_are_read() {
    let found = only(MIXED);
    let test = &found.entries[0];
    near(metric(test, "iops"), 100.0);
    near(metric(test, "latency_mean"), 121_000.0);
    assert!(found.not_understood.is_empty() && test.notes[0].contains("unified_rw_reporting"), "{found:?}");
    // The sum next to its parts.
    let half = "  read: IOPS=50, BW=201KiB/s (206kB/s)(1024KiB/5101msec)\n";
    let both = MIXED.replace("   mixed", &format!("{half}{}   mixed", half.replace("read", "write")));
    let found = only(&both);
    near(metric(&found.entries[0], "iops"), 100.0);
    near(other(&found.entries[0], "write iops"), 50.0);
    let mixed = "\"mixed\": {\"io_bytes\": 207205302272, \"bw_bytes\": 3453133943, \"iops\": 26343.32139, \"runtime\": 60005, \
        \"total_ios\": 1580731, \"lat_ns\": {\"min\": 3830279, \"max\": 9802450, \"mean\": 4857802.568734, \"N\": 1580851}}";
    let read = mixed.replace("mixed", "read").replace("26343.32139", "26343.0").replace("1580731", "1580700");
    for parts in [String::new(), format!("{read}, ")] {
        let json = format!(
            "{{\"fio version\": \"fio-3.38\", \"jobs\": [{{\"jobname\": \"task_0\", \"groupid\": 0, \"error\": 0, {parts}{mixed}}}]}}"
        );
        let found = only(&json);
        near(metric(&found.entries[0], "iops"), 26_343.321_39);
        near(metric(&found.entries[0], "latency_mean"), 4_857_802.568_734);
        assert_eq!(found.entries[0].tallies, None);
    }
}

#[test]
fn a_job_of_fio_without_figures_is_listed_and_the_others_may_be_a_part() {
    let text = "fio-3.1\nStarting 2 threads\nw: (groupid=0, jobs=1): err= 0: pid=1: Mon Feb 17 11:19:21 2020\n  \
        write: IOPS=96, BW=97.6MiB/s (102MB/s)(1524MiB/15610msec)\n     issued rwt: total=0,1509,0, short=0,0,0, dropped=0,0,0\n\
        w: (groupid=0, jobs=1): err= 0: pid=2: Mon Feb 17 11:19:21 2020\n";
    let found = only(text);
    near(metric(&found.entries[0], "iops"), 96.0);
    let [line] = &found.not_understood[..] else { panic!("{found:?}") };
    assert!(line.number == 6 && line.reason.contains("without figures"), "{line:?}");
    assert!(found.entries[0].notes.iter().any(|note| note.contains("a part")), "{found:?}");
}

#[test]
fn old_runtimes_and_bits_of_fio_are_read() {
    let old = "test: (groupid=0, jobs=1): err= 0: pid=7: Fri Aug  1 10:00:00 2014\n  \
        read : io=10240MB, bw=98765KB/s, iops=24691, runt= 10618msec\n     \
        issued    : total=r=8482/w=0/d=0, short=r=0/w=0/d=0\n";
    assert_eq!(only(old).entries[0].duration_ns, Some(10_618_000_000));
    let bits = MIXED.replace("BW=402KiB/s (411kB/s)", "BW=3216Kibit/s (3293kbit/s)");
    near(metric(&only(&bits).entries[0], "bytes_per_s"), 3293e3 / 8.0);
}

#[test]
fn duplicates_of_ping_are_counted_and_said() {
    let found = only(
        "PING h (192.0.2.1) 56(84) bytes of data.\n64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=0.5 ms\n\
         64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=900 ms (DUP!)\n\n--- h ping statistics ---\n\
         1 packets transmitted, 1 received, +1 duplicates, 0% packet loss, time 0ms\n\
         rtt min/avg/max/mdev = 0.500/450.250/900.000/449.750 ms\n",
    );
    let ping = &found.entries[0];
    near(metric(ping, "latency_mean"), 450_250_000.0);
    assert_eq!(other(ping, "duplicates"), Some(1.0));
    assert!(ping.notes[0].contains("1 duplicate"), "{ping:?}");
}

#[test]
fn every_column_of_iostat_is_kept_also_with_decimal_commas() {
    let head = "Device            r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz     w/s     wkB/s   wrqm/s  %wrqm w_await wareq-sz     \
        d/s     dkB/s   drqm/s  %drqm d_await dareq-sz     f/s f_await  aqu-sz  %util\n";
    let report = |reads: &str| {
        format!(
            "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n           1,00    0,00    1,00    0,00    0,00   98,00\n\n\
             {head}sda             {reads}     40,00     7,00   0,00    1,50     4,00   20,00     80,00     0,00   0,00    2,50     4,00    \
             0,00      0,00     0,00   0,00    0,00     0,00    3,00    0,50    0,07   5,00\n\n\n"
        )
    };
    let banner = "Linux 5.10.0 (h) \t01/02/2024 \t_x86_64_\t(4 CPU)\n\n";
    let found = only(&format!("{banner}{}{}", report("1,00"), report("10,00")));
    let sda = &found.entries[0];
    near(metric(sda, "iops"), 30.0);
    near(metric(sda, "latency_mean"), 65.0 / 30.0 * 1e6);
    assert_eq!(["rrqm/s", "f/s", "f_await"].map(|name| other(sda, name)), [Some(7.0), Some(3.0), Some(0.5)]);
}
