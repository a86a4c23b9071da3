//! Tests that time and memory grow linearly with the size of a text, whatever its content.
//!
//! Each text is read in a separate process, whose peak memory the kernel reports. Its CPU time is compared with that for a quarter of the
//! text. An optimised build reads 10 MB and checks the documented limits; other builds read less.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use iotax_interop::import::{MOST_ROWS, decode, recognise, runs};

/// Names the text that a child process reads.
const NAMED: &str = "IOTAX_TEXT_TO_READ";

/// Bytes of a text.
fn size() -> usize {
    match (cfg!(debug_assertions), iotax_testkit::thorough()) {
        (false, _) => 10 << 20,
        (true, true) => 1 << 20,
        (true, false) => 1 << 16,
    }
}

/// Maximum memory for reading a text, in bytes; for small texts, plus room for the results.
const MOST_MEMORY: usize = if cfg!(debug_assertions) { 64 << 20 } else { 210 << 20 };
/// A result has room for every key of a workload.
const MOST_PER_RESULT: usize = if cfg!(debug_assertions) { 3 << 10 } else { 0 };

/// Maximum ratio to the time for a quarter: 4 means linear growth, 16 quadratic; other load raises it up to 7.
const MOST_GROWTH: f64 = 8.0;

/// Minimum CPU time for a meaningful ratio.
const TOO_SHORT_NS: u64 = 100_000_000;

/// The beginning of a text, the part to repeat, and its end; `@` stands for the number of the repetition.
const MADE: &[(&str, &str, &str)] = &[
    ("", "\n", ""),
    ("", " ", ""),
    ("", ",", ""),
    ("", ";", ""),
    ("", "1", ""),
    ("", "a", ""),
    ("", "{", ""),
    ("", "[", ""),
    ("", "\"", ""),
    ("", "<", ""),
    ("", "<b ", ""),
    ("<p>", "<b ", ""),
    ("<p>", "<b>&amp;", ""),
    ("", "> ", ""),
    ("", "1 ", ""),
    ("", "1 1\n", ""),
    ("", "0,5 ", ""),
    ("", "\u{a0}", ""),
    ("\u{feff}", "\u{feff}", ""),
    // JSON: flat, deep, torn, of small and of empty parts.
    ("[", "0,", "0]"),
    ("[", "[],", "0]"),
    ("[", "{},", "0]"),
    ("[", "[0],", "0]"),
    ("[", "{\"a\":0},", "0]"),
    ("[", "\"a\",", "0]"),
    ("", "{\"a\":", ""),
    ("", "{\"a\":\n", ""),
    ("", "{\"a\":[", ""),
    ("", "{\n", ""),
    ("", "{\"a\":1}\n", ""),
    ("{\"jobs\":[", "0,", "0]}"),
    ("{\"jobs\":[{\"jobname\":\"a\"},", "{\"jobname\":\"a@\"},", "{}]}"),
    ("{\"jobs\":[", "{\"jobname\":\"a\",\"read\":{\"iops\":@1}},", "0]}"),
    ("{\"jobs\":[", "{\"jobname\":\"a@\",\"read\":{\"iops\":1}},", "0]}"),
    ("{\"fio version\":\"fio-3\",\"jobs\":[", "{\"jobname\":\"a@\",\"read\":{\"iops\":1,\"bw\":1}},", ""),
    ("", "{\"fio version\":\"fio-3\",\"jobs\":[", ""),
    (
        "{\"jobs\":[{\"jobname\":\"a\",\"read\":{\"total_ios\":1,\"lat_ns\":{\"bins\":{",
        "\"@\":1,",
        "\"0\":1}}}}]}",
    ),
    ("{\"results\":[{\"command\":\"a\",\"mean\":1,\"times\":[", "1,", "1]}]}"),
    ("{\"results\":[", "{\"command\":\"a@\",\"mean\":1,\"times\":[1]},", "{}]}"),
    (
        "",
        "{\"start\":{\"version\":\"iperf 3\"},\"end\":{\"sum_sent\":{\"bytes\":1,\"seconds\":8,\"bits_per_second\":1}}}\n",
        "",
    ),
    (
        "{\"sysstat\":{\"hosts\":[{\"statistics\":[",
        "{\"disk\":[{\"disk_device\":\"a@\",\"tps\":1}]},",
        "{}]}]}}",
    ),
    (
        "{\"sysstat\":{\"hosts\":[{\"statistics\":[{\"disk\":[",
        "{\"disk_device\":\"a@\",\"tps\":1},",
        "{}]}]}]}}",
    ),
    // Tables and results of one line, the same or each another.
    ("", "1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.5 s, 2.1 MB/s\n", ""),
    ("", "1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.5 s, 2.1 MB/s\n", "1+0 records out\n"),
    ("", "dd if=/a@ of=/dev/null\n1048576 bytes copied, 0.5 s, 2.1 MB/s\n", ""),
    ("", "1+0 records in\n1+0 records out\n1 b, 1 s, 9 MB/s\n", ""),
    ("", "1+0 records in\n", ""),
    ("", "a@: (groupid=0, jobs=1): err= 0: pid=1: now\n  read: IOPS=@1, BW=1MiB/s (1MB/s)(1MiB/1msec)\n", ""),
    ("", "a@: (g=0): rw=read, bs=4k, ioengine=psync, iodepth=1\n", ""),
    (
        "a: (groupid=0, jobs=1): err= 0: pid=1: now\n  read: IOPS=1, BW=1MiB/s\n",
        "| 1.00th=[ 1], 2.00th=[ 2],\n",
        "",
    ),
    ("", "3;fio-3;a@;0;0;1;1;1\n", ""),
    ("", "rd1,1,1\nStarting RD=rd@\ninterval i/o\nrate\n1 avg_2 1\n", ""),
    ("Starting RD=rd1;\n", "interval        i/o\n               rate\n avg_2-3 @\n", ""),
    ("KB reclen write rewrite\n", "@ 4 1@ 1@\n", ""),
    (
        "Iozone: Performance Test\nOutput is in kBytes/sec\n\"Writer report\"\n",
        "\"4\" \"8\"\n\"@\" 1 2\n",
        "",
    ),
    ("Iozone: Performance Test\n\"Writer report\"\n", "\"4\" ", ""),
    ("", "box@,1G,1,1,1,1,1,1,1,1,1,1,1,1,16,1,1,1,1,1,1,1,1,1,1,1,1\n", ""),
    ("Device tps\n", "a@ 1\n", ""),
    ("", "Device tps\na 1\n", ""),
    ("Device tps\n", "a 1\n", ""),
    ("tps Device\n", "1 a@\nr/s Device\n1 a@\n", ""),
    ("", "Device", ""),
    ("Device", " tps", "\na 1\n"),
    ("Device", "\ntps", "\na 1\n"),
    ("ATOP - box 10s elapsed\n", "DSK | a@ | busy 1% | read 1 | write 1 |\n", ""),
    ("", "DSK box 1700000000 2023/11/14 22:13:20 10 a@ 1 1 1 1 1\n", ""),
    ("Client connecting to a, TCP port 5001\n", "[@] 0.0-1.0 sec 1.0 MBytes 8.4 Mbits/sec\n", ""),
    ("", "20230101000000,1.1.1.1,1,2.2.2.2,5001,3,0.0-1.0,1000,8000\n", ""),
    ("", "20230101000000,1.1.1.1,@,2.2.2.2,5001,3,0.0-1.0,1000,8000\n", ""),
    ("Connecting to host a\n", "[@][r@] 0.0-1.0 sec 1.0 MBytes 8.4 Mbits/sec sender\n", ""),
    ("", "[ 5] 0.0-1.0 sec 1.0 MBytes 8.4 Mbits/sec\nsender\n", ""),
    (
        "",
        "PING a@ (1.1.1.1) 56(84) bytes\n64 bytes from 1.1.1.1: time=1 ms\nrtt min/avg/max = 1/1/1 ms\n",
        "",
    ),
    ("PING a (1.1.1.1) 56(84) bytes\n", "64 bytes from 1.1.1.1: time=1 ms\n", "rtt min/avg/max = 1/1/1 ms\n"),
    ("", "PING a\n1 packets transmitted, 1 received, 0%\n--- a ping statistics ---\n", ""),
    ("", "Execl Throughput@ 1.0 lps (1 s, 2 samples)\n", ""),
    ("BASELINE RESULT INDEX\n", "Execl@ 10.0 20.0 20.0\n", ""),
    // DiskSpd, CrystalDiskMark, elbencho, sysbench, pgbench, sar, pg_test_fsync and the state of devices.
    (
        "Total IO\nthread | bytes | I/Os | MiB/s | I/O per s | file\n",
        "total: 1048576 | 256 | 1.00 | 256.00\n",
        "",
    ),
    (
        "",
        "Total IO\nthread | bytes | I/Os | MiB/s | I/O per s | file\ntotal: 1048576 | 256 | 1.00 | 256.00\n",
        "",
    ),
    ("Total IO\n%-ile | Read (ms) | Write (ms) | Total (ms)\n", "@th | 1.0 | 1.0 | 1.0\n", ""),
    ("", "timespan: @\n", "thread |\n"),
    ("", "<Results><TestTimeSeconds>", ""),
    ("<Results><TimeSpan><TestTimeSeconds>1</TestTimeSeconds>", "<Thread><Target></Target></Thread>", ""),
    ("<TestTimeSeconds>", "<", ""),
    ("[Read]\n", "SEQ 1MiB (Q= 8, T= 1): @.1 MB/s [ 1.0 IOPS] < 1.0 us>\n", ""),
    ("[Read]\n", "SEQ 1MiB (Q= 8, T= 1): 1.1 MB/s\nDate: 2023/03/01 10:00:00\n[Read]\n", ""),
    ("", "READ Elapsed time : 1ms 2ms\nIOPS : @ 1@\n", ""),
    ("READ Elapsed time : 1ms 2ms\n", "a@ : 1 2\n", ""),
    ("operation,MiB/s [last],a,b,c,d,e,f,g,h,i\n", "READ,1@,1,1,1,1,1,1,1,1,1\n", ""),
    ("", "File operations:\nreads/s: 1.0\nwrites/s: 0.0\n", ""),
    ("File operations:\n", "@th percentile: 1.0\n", ""),
    ("", "transaction type: a@\ntps = 1.0 (excluding connections establishing)\n", ""),
    ("transaction type: a\n", "number of clients: 1\n", "tps = 1.0 (excluding connections establishing)\n"),
    ("Average: DEV tps\n", "Average: a@ 1.0\n", ""),
    ("1:1:1 DEV tps\n", "1:1:1 a@ 1.0\n", ""),
    ("1:1:1 DEV tps\n", "1:1:1 a 1.0\n", ""),
    ("Non-sync'ed 8kB writes:\n", "write@ 1000.0 ops/sec 1000 usecs/op\n", ""),
    ("", "Smart Log for NVME device:a namespace-id:1\npower_cycles : @\n", ""),
    ("Smart Log for NVME device:a namespace-id:1\n", "temperature sensor @ : 38 C\n", ""),
    ("", "{\"avail_spare\":1,\"percent_used\":@}\n", ""),
    ("", "{\"smartctl\":{},\"power_cycle_count\":@}\n", ""),
];

/// Every file of the test data, repeated.
fn files() -> Vec<(String, String)> {
    let directory = format!("{}/tests/data/import", env!("CARGO_MANIFEST_DIR"));
    let names = std::fs::read_dir(directory).expect("there").map(|entry| entry.expect("there").file_name());
    let names = names.map(|name| name.into_string().expect("text")).filter(|name| name != "README.md");
    names.map(|name| (name.clone(), super::data(&name))).collect()
}

/// Builds a text of the given size in bytes.
fn text(name: &str, size: usize) -> String {
    let mut text = String::with_capacity(size + 4096);
    let made = name.strip_prefix("made ").and_then(|number| MADE.get(number.parse::<usize>().ok()?));
    if let Some((begin, again, end)) = made {
        text.push_str(begin);
        let mut number = 0;
        while text.len() < size {
            text.push_str(&again.replace('@', &number.to_string()));
            number += 1;
        }
        text.push_str(end);
    } else {
        let file = super::data(name);
        while text.len() < size {
            writeln!(text, "{file}").expect("memory");
        }
    }
    text
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a time").as_nanos().try_into().expect("less than 500 years")
}

/// Peak memory of this process.
fn peak_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    peak.trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
#[ignore = "the other test runs it in a process of its own"]
fn child() {
    let Ok(name) = std::env::var(NAMED) else { return };
    for size in [size() / 4, size()] {
        let (ns, rows, runs) = read(&name, size);
        println!("read {ns} {} {rows} {runs}", peak_kib());
    }
}

/// CPU time for reading a text, its results and its runs.
fn read(name: &str, size: usize) -> (u64, usize, usize) {
    let bytes = text(name, size).into_bytes();
    let start = cpu_ns();
    let found = recognise(&decode(bytes));
    let rows = found.iter().map(|found| found.entries.len()).sum();
    assert!(found.iter().all(|found| found.entries.len().max(found.not_understood.len()) <= MOST_ROWS));
    let runs = runs(vec![(name.to_owned(), found)], None);
    (cpu_ns() - start, rows, runs.len())
}

/// Nanoseconds and KiB for a quarter and for the whole of a text, and how many results are in it.
fn measured(name: &str) -> [(u64, usize, usize); 2] {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "size::child", "--ignored", "--nocapture"])
        .env(NAMED, name)
        .output()
        .expect("run");
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines = printed.lines().filter_map(|line| line.split_once("read ").map(|(_, figures)| figures));
    let figures = lines.map(|line| {
        let mut figures = line.split_whitespace().map(|figure| figure.parse::<u64>().expect("a number"));
        let size = |figure| usize::try_from(figure).expect("of this machine");
        let mut next = || figures.next().expect("a figure");
        (next(), size(next()), size(next()))
    });
    let figures: Vec<_> = figures.collect();
    figures
        .try_into()
        .unwrap_or_else(|_| panic!("{name}: {printed}\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn time_and_memory_grow_as_the_text_does_and_no_faster() {
    let names = (0..MADE.len())
        .map(|number| format!("made {number}"))
        .chain(files().into_iter().map(|(name, _)| name));
    let mut wrong = Vec::new();
    for name in names {
        let shown = match name.strip_prefix("made ") {
            Some(number) => format!("{:?}", MADE[number.parse::<usize>().expect("a number")].1),
            None => name.clone(),
        };
        let [(mut quarter_ns, ..), (mut whole_ns, peak_kib, rows)] = measured(&name);
        let growth = |whole_ns: u64, quarter_ns: u64| whole_ns as f64 / quarter_ns.max(1) as f64;
        // Other activity of the machine only adds to either, so the least of several readings is the most accurate.
        for _ in 0..4 {
            if growth(whole_ns, quarter_ns) <= MOST_GROWTH || whole_ns <= TOO_SHORT_NS {
                break;
            }
            let [(again_quarter, ..), (again_whole, ..)] = measured(&name);
            (quarter_ns, whole_ns) = (quarter_ns.min(again_quarter), whole_ns.min(again_whole));
        }
        let growth = growth(whole_ns, quarter_ns);
        let line = format!(
            "{:6.0} ms, x{growth:.1}, {:4} MiB, {rows:5} results: {shown}",
            whole_ns as f64 / 1e6,
            peak_kib >> 10
        );
        println!("{line}");
        if peak_kib << 10 > MOST_MEMORY + rows * MOST_PER_RESULT
            || growth > MOST_GROWTH && whole_ns > TOO_SHORT_NS
        {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
