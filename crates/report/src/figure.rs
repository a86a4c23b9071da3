//! Formats figures for reports: times, rates, shares, changes and workload titles.

use iotax_model::Workload;
use iotax_model::crash::DatabaseMode;
use iotax_model::net::{Direction, NetTest, Traffic};
use iotax_model::record::ImportSource;
use iotax_model::trace::ReplayOffsets;
use iotax_model::units::human;
pub(super) use iotax_model::units::human::grouped;
use iotax_model::units::human::listed;
use iotax_model::workload::{Distribution, IoEngine, Kind, ReplayPace, Test};

use iotax_analysis::fairness::Fairness;
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::{Comparison, Tax};

/// Text for an unknown figure.
pub(super) const UNKNOWN: &str = "-";

/// Formats a figure with `words`; returns [`UNKNOWN`] for `None`.
pub(super) fn or_unknown(value: Option<f64>, words: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.into(), words)
}

/// Formats a time difference with its sign: `+35.2 us`, `-1.20 ms`.
pub(crate) fn signed_time(ns: f64) -> String {
    let sign = if ns < 0.0 { '-' } else { '+' };
    format!("{sign}{}", human::time(ns.abs()))
}

/// If an interval reaches this many times further from 0 than its estimate, both are shown in the interval's unit.
const FAR_WIDER: f64 = 50.0;

/// Formats a cost in time with its interval: `+35.2 us [34.1, 36.4]`. The unit fits the estimate, or the interval if that is far wider, as in
/// `+0.85 us [-59.2, 69.5]`. A missing interval is shown as `[no interval]`, since an estimate alone would look certain.
pub(super) fn tax(tax: &Tax) -> String {
    let farthest = tax.interval.map_or(0.0, |interval| interval.low.abs().max(interval.high.abs()));
    if farthest < FAR_WIDER * tax.ns.abs() {
        return with_interval(signed_time(tax.ns), tax.interval);
    }
    let shown = human::time(farthest);
    let word = shown.rsplit(' ').next().unwrap_or_default();
    with_interval(format!("{:+.2} {word}", tax.ns / unit(word)), tax.interval)
}

fn with_interval(estimate: String, interval: Option<Interval>) -> String {
    let interval = interval.map_or_else(|| "[no interval]".into(), |interval| bracketed(&estimate, interval));
    estimate + " " + &interval
}

/// Formats the cost of one layer or setting (a step of the ladder): added time, or for throughput the change in percent.
pub(super) fn step_in_words(step: &Comparison) -> String {
    if step.metric.is_time() {
        return step.ratio.tax.as_ref().map_or_else(|| UNKNOWN.into(), tax);
    }
    change_with(step.ratio.mean, step.ratio.interval)
}

/// Formats a time with its confidence interval: `84.1 us [83.0, 85.2]`.
pub(super) fn time_with(ns: f64, interval: Option<Interval>) -> String {
    with_interval(human::time(ns), interval)
}

/// Formats bytes per second as a bit rate with its confidence interval: `9.41 Gbit/s [9.32, 9.50]`.
pub(super) fn bits_with(bytes_per_s: f64, interval: Option<Interval>) -> String {
    with_interval(human::bits(bytes_per_s), interval.map(|interval| interval.map(|end| end * 8.0)))
}

/// Returns the length of a time unit in nanoseconds, or the size of a bit-rate unit in bit/s.
fn unit(word: &str) -> f64 {
    match word {
        "us" | "kbit/s" => 1e3,
        "ms" | "Mbit/s" => 1e6,
        "s" | "Gbit/s" => 1e9,
        _ => 1.0,
    }
}

/// Formats an interval (nanoseconds or bits per second) in the unit of its estimate.
fn bracketed(estimate: &str, interval: Interval) -> String {
    let unit = unit(estimate.rsplit(' ').next().unwrap_or_default());
    // As many decimals as the estimate has, or fewer for ends of 10 and more.
    let digits =
        estimate.split_once('.').map_or(0, |(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count());
    let end = |ns: f64| {
        let value = ns / unit;
        let digits = match value.abs() {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => digits.min(1),
            _ => digits,
        };
        let text = format!("{value:.digits$}");
        // Shows -0.0 as 0.0.
        if text.trim_start_matches(['-', '0', '.']).is_empty() {
            text.trim_start_matches('-').into()
        } else {
            text
        }
    };
    format!("[{}, {}]", end(interval.low), end(interval.high))
}

/// Formats Jain's fairness index with its interval: `0.994 [0.981, 1.000]`.
pub(super) fn evenness(fairness: Option<Fairness>) -> String {
    let Some(Fairness { mean, interval }) = fairness else { return UNKNOWN.into() };
    match interval {
        Some(interval) => format!("{mean:.3} [{:.3}, {:.3}]", interval.low, interval.high),
        None => format!("{mean:.3} [no interval]"),
    }
}

/// Formats bytes per second in MB/s (powers of 1000) with three digits and without the unit, which is in the column head: `512`.
pub(super) fn megabytes(bytes_per_s: f64) -> String {
    let value = bytes_per_s / 1e6;
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Formats nanoseconds in microseconds with three digits and without the unit, which is in the column head: `67.7`.
pub(super) fn microseconds(ns: f64) -> String {
    megabytes(ns * 1e3)
}

/// Formats bytes per second in Gbit/s with three digits, at most four decimals, and without the unit, which is in the column head: `9.41`.
pub(super) fn gigabits(bytes_per_s: f64) -> String {
    let value = bytes_per_s * 8.0 / 1e9;
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 => format!("{v:.2}"),
        v if v >= 0.09995 => format!("{v:.3}"),
        v => format!("{v:.4}"),
    }
}

/// Returns the unit of work for CPU costs: `GiB` for network streams, else the workload's operation, such as `I/O`.
pub(super) fn cpu_unit(workload: &Workload) -> &'static str {
    match &workload.kind {
        Kind::Streams(_) => "GiB",
        kind => kind.unit(),
    }
}

/// Returns the column head and the format for a workload's bytes per second.
pub(super) fn rate(workload: &Workload) -> (&'static str, fn(f64) -> String) {
    if workload.kind.is_network() { ("Gbit/s", gigabits) } else { ("MB/s", megabytes) }
}

/// Formats a share from 0 to 1 in percent: `0.12%`, `3.4%`, `42%`.
pub(crate) fn share(share: f64) -> String {
    format!("{}%", hundredths(share * 100.0))
}

/// Formats a share with a sign if it is negative: `3.4%`, `-12%`.
pub(crate) fn signed_share(of: f64) -> String {
    let sign = if of < 0.0 { "-" } else { "" };
    format!("{sign}{}", share(of.abs()))
}

/// Formats a ratio as a change in percent: `+1.2%`, `-35%`, `+210%`; from 10 as a multiple, `12.0 times`. A ratio so small that it would
/// round to `-100%` is shown as a fraction: `1/333`.
pub(crate) fn change(ratio: f64) -> String {
    if ratio >= 10.0 {
        return format!("{} times", human::count(ratio));
    }
    if ratio > 0.0 && ratio < 0.005 {
        return format!("1/{}", human::count(1.0 / ratio));
    }
    let percent = (ratio - 1.0) * 100.0;
    let sign = if percent < 0.0 { '-' } else { '+' };
    format!("{sign}{}%", hundredths(percent.abs()))
}

/// Formats a ratio as a change with its interval: `+1.2% [+0.4, +2.0]`, `16.9 times [12.1, 23.6]`, `+1.2% [no interval]`.
pub(crate) fn change_with(ratio: f64, interval: Option<Interval>) -> String {
    let Some(interval) = interval else { return format!("{} [no interval]", change(ratio)) };
    if ratio >= 10.0 {
        return format!(
            "{} [{}, {}]",
            change(ratio),
            human::count(interval.low),
            human::count(interval.high)
        );
    }
    let end = |ratio: f64| if ratio >= 10.0 { "> +900".into() } else { change(ratio).replace('%', "") };
    format!("{} [{}, {}]", change(ratio), end(interval.low), end(interval.high))
}

/// Formats a percentage with two decimals below 1, one below 10, and none above.
fn hundredths(percent: f64) -> String {
    match percent {
        p if p >= 9.95 => format!("{p:.0}"),
        p if p >= 0.995 => format!("{p:.1}"),
        p => format!("{p:.2}"),
    }
}

/// Returns the column head and the format for an imported run's throughput: bit/s for iperf, else bytes/s.
pub(super) fn rate_of(source: &ImportSource) -> (&'static str, fn(f64) -> String) {
    match source.tool.as_str() {
        "iperf" | "iperf3" => ("throughput", human::bits),
        _ => ("bytes/s", human::rate),
    }
}

/// Describes a workload in a title: `4k random read, queue depth 1`; concurrent jobs are joined with `+`.
pub(super) fn title(workload: &Workload) -> String {
    let jobs: Vec<String> = workload.jobs().map(title_of_one).collect();
    jobs.join(" + ")
}

fn title_of_one(workload: &Workload) -> String {
    match &workload.kind {
        Kind::Block => workload
            .read_iolog
            .as_ref()
            .map_or_else(|| title_of_block(workload), |trace| title_of_replay(workload, trace)),
        Kind::Files(test) => title_of_test(workload, *test),
        Kind::Foreign => "as another tool did it".into(),
        Kind::Streams(net) | Kind::RoundTrips(net) => title_of_net(net),
    }
}

/// Describes the replay of a trace: `replay of day.parquet, at most 128 I/Os in flight, at 200% of its speed`.
fn title_of_replay(workload: &Workload, trace: &str) -> String {
    let file = trace.rsplit('/').next().unwrap_or(trace);
    let speed = match workload.replay_time_scale {
        100 => String::new(),
        scale => format!(", at {scale}% of its speed"),
    };
    let pace = match workload.replay_pace {
        ReplayPace::Recorded => "",
        ReplayPace::Dependency => ", each after those that it followed",
        ReplayPace::NoStall => ", as fast as it goes",
    };
    let offsets = match workload.replay_offsets {
        ReplayOffsets::Wrap => "",
        ReplayOffsets::Compress => ", its offsets compressed",
        ReplayOffsets::WorkingSet => ", its working set alone",
    };
    let cached = if workload.direct { "" } else { ", through the page cache" };
    format!("replay of {file}, at most {} I/Os in flight{pace}{speed}{offsets}{cached}", workload.iodepth)
}

fn title_of_block(workload: &Workload) -> String {
    use std::fmt::Write as _;
    let order = if workload.rw.is_random() { "random" } else { "sequential" };
    let what = match (workload.rw.reads(), workload.rw.writes()) {
        (true, true) => {
            format!("read and write, {}/{}", workload.rwmixread, 100_u8.saturating_sub(workload.rwmixread))
        }
        (true, false) => "read".into(),
        (false, true) => "write".into(),
        (false, false) => "trim".into(),
    };
    let what = match workload.ioengine {
        IoEngine::Falloc => format!("{what} of space alone (fallocate)"),
        IoEngine::Ftruncate => format!("{what} of the length alone (ftruncate)"),
        _ => what,
    };
    let mut text = format!("{} {order} {what}, queue depth {}", lengths(workload), workload.iodepth);
    if workload.rw.is_random() && workload.random_distribution != Distribution::Random {
        let _ = write!(text, ", {}", workload.random_distribution);
    }
    if let Some(stride) = workload.stride {
        let _ = write!(text, ", stride {stride}");
    }
    if workload.numjobs > 1 {
        let _ = write!(text, ", {} jobs", workload.numjobs);
    }
    if !workload.direct {
        text.push_str(", through the page cache");
    }
    if workload.asks_for_huge_pages() {
        text.push_str(", buffers in huge pages");
    }
    text + &flushes(workload)
}

/// Describes the flushes of a workload: `, fdatasync after each write, flushed in the end`; empty if there are none.
fn flushes(workload: &Workload) -> String {
    let call = workload.flush_call().map(|(call, writes)| match writes {
        1 => format!(", {call} after each write"),
        _ => format!(", {call} after every {writes} writes"),
    });
    let end = if workload.end_fsync { ", flushed in the end" } else { "" };
    call.unwrap_or_default() + end
}

/// Describes the I/O sizes of a workload: `4k`, `512 B`, `512 B-4k`.
fn lengths(workload: &Workload) -> String {
    workload.lengths().split('-').map(with_unit).collect::<Vec<_>>().join("-")
}

/// Adds ` B` to a size in bytes that has no unit letter.
fn with_unit(size: &str) -> String {
    if size.ends_with(|c: char| c.is_ascii_digit()) { format!("{size} B") } else { size.to_owned() }
}

/// Describes a network workload: `TCP upload, 4 streams`, `UDP download at 10.0 Mbit/s, datagrams of 64 bytes`,
/// `TCP round trips of 64 bytes, 1000/s, under load upload`.
fn title_of_net(net: &Traffic) -> String {
    let name = net.test.word().split('-').next().unwrap_or_default().to_uppercase();
    let direction_word = match net.direction {
        Direction::Both => "both ways",
        one => one.word(),
    };
    let mut parts = Vec::new();
    if net.test.is_rtt() {
        let length =
            net.length.map(|length| format!(" of {}", counted(length.0, "byte"))).unwrap_or_default();
        parts.push(format!("{name} round trips{length}"));
        parts.extend(net.rate.map(|rate| format!("{rate}/s")));
        parts.extend(net.loaded.then(|| format!("under load {direction_word}")));
    } else {
        let bitrate = net
            .bitrate
            .map(|bitrate| format!(" at {}", human::bits(bitrate.0 as f64 / 8.0)))
            .unwrap_or_default();
        parts.push(format!("{name} {direction_word}{bitrate}"));
        parts.extend(net.length.map(|length| match net.test {
            NetTest::Udp => format!("datagrams of {}", counted(length.0, "byte")),
            _ => format!("{length} at a time"),
        }));
    }
    if net.parallel > 1 {
        parts.push(format!("{} streams", net.parallel));
    }
    parts.extend(net.congestion.clone());
    parts.extend(net.zerocopy.then(|| "without copying".to_owned()));
    parts.extend(net.busy_poll.map(|time| format!("polling for {time}")));
    parts.join(", ")
}

/// Describes a test on files: `a new file written byte by byte, through the page cache`, `1,000 files deleted by each job, in random
/// order, 4 jobs`.
fn title_of_test(workload: &Workload, test: Test) -> String {
    use std::fmt::Write as _;
    let bs = with_unit(&workload.bs.to_string());
    let on_files = |done: &str| {
        let what = if test.is_on_directories() { "directories" } else { "files" };
        let files = workload.files().map(grouped).unwrap_or_default();
        let size = workload.filesize.map(|size| format!(" of {}", with_unit(&size.to_string())));
        let size = size.unwrap_or_default();
        let each = if workload.numjobs > 1 { " by each job" } else { "" };
        let order = if workload.rw.is_random() { ", in random order" } else { "" };
        format!("{files} {what}{size} {done}{each}{order}")
    };
    let mut text = match test {
        Test::Putc => "a new file written byte by byte".into(),
        Test::Getc => "read byte by byte".into(),
        Test::Rewrite => format!("{bs} records read, changed and written back"),
        Test::Seeks => format!("{bs} read at random, every tenth changed and written back"),
        Test::WriteNew => format!("a new file written, {bs} at a time"),
        Test::StdioWrite => format!("a new file written with fwrite, {bs} at a time"),
        Test::StdioRead => format!("read with fread, {bs} at a time"),
        Test::Copy => format!("a file copied over and over, {bs} at a time"),
        Test::Create | Test::MakeDirectory => on_files("created"),
        Test::Open => on_files("opened and closed"),
        Test::Stat | Test::StatDirectory => on_files("asked for their attributes"),
        Test::Rename => on_files("renamed"),
        Test::Delete => on_files("deleted"),
        Test::RemoveDirectory => on_files("removed"),
        Test::Pack => "a tree read into one archive".into(),
        Test::Unpack => "a tree made from an archive".into(),
        Test::Walk => "a tree walked, every entry asked for its attributes".into(),
        Test::RemoveTree => "a tree deleted".into(),
        Test::Sqlite => {
            format!("SQLite transactions ({}), pages of {bs}", DatabaseMode::Sqlite(workload.sqlite_mode()))
        }
        Test::Pgbench => {
            let (script, scale) = (workload.pgbench_script(), workload.pgbench_scale());
            let rate = workload.rate_iops.map(|rate| rate.saturating_mul(workload.numjobs.into()));
            let rate = rate.map(|rate| format!(", {} a second", grouped(rate))).unwrap_or_default();
            let limit = workload.latency_limit.map(|limit| format!(" within {limit}")).unwrap_or_default();
            let commits = if workload.commits_are_durable() { "" } else { ", synchronous_commit = off" };
            format!("PostgreSQL transactions by pgbench ({script}, scale {scale}{commits}){rate}{limit}")
        }
    };
    if workload.numjobs > 1 {
        let workers = if test == Test::Pgbench { "clients" } else { "jobs" };
        let _ = write!(text, ", {} {workers}", workload.numjobs);
    }
    if !workload.direct && !test.is_on_files() {
        text.push_str(", through the page cache");
    }
    text + &flushes(workload)
}

/// Returns the [`title`] of a workload that iotax ran; for an imported workload only the keys that its source states:
/// `rw = randread, bs = 4k`.
pub(crate) fn title_in(source: Option<&ImportSource>, workload: &Workload) -> String {
    let Some(source) = source else { return title(workload) };
    let tree = serde_json::to_value(workload).unwrap_or_default();
    let known = source.known.get(&workload.name).into_iter().flatten();
    let key_texts = known.filter(|key| *key != "test").filter_map(|key| {
        let value = tree.get(key)?;
        Some(format!("{key} = {}", value.as_str().map_or_else(|| value.to_string(), with_unit)))
    });
    let key_texts: Vec<String> = key_texts.collect();
    if key_texts.is_empty() { format!("as {} did it", source.tool) } else { key_texts.join(", ") }
}

/// Formats a count with its noun in singular or plural: `1 round`, `3 rounds`.
pub fn counted(n: impl Into<u64>, noun: &str) -> String {
    let n = n.into();
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Joins names like [`listed`], but shortens lists of more than 20: `a, b, c, d, e and 290 others`.
pub(crate) fn listed_briefly(items: &[String]) -> String {
    /// Maximum length of a list that is shown in full.
    const WHOLE: usize = 20;
    const NAMED: usize = 5;
    if items.len() <= WHOLE {
        return listed(items);
    }
    format!("{} and {} others", items[..NAMED].join(", "), items.len() - NAMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iotax_model::suite::{Suite, SuiteOptions};
    use iotax_model::workload::{Rw, WorkloadKeys};

    #[test]
    fn a_test_is_called_by_what_it_does() {
        let titles = |suite: &str, names: &[&str]| -> Vec<String> {
            let workloads = (Suite::named(suite).expect("a suite").workloads)(&SuiteOptions::default());
            names.iter().map(|name| title(workloads.iter().find(|w| w.name == *name).expect(name))).collect()
        };
        assert_eq!(
            titles("bonnie", &["putc", "seeks", "get_block", "ran_stat"]),
            [
                "a new file written byte by byte, through the page cache, flushed in the end",
                "8k read at random, every tenth changed and written back, 5 jobs, through the page cache, flushed in the end",
                "8k sequential read, queue depth 1, through the page cache",
                "16,384 files asked for their attributes, in random order",
            ]
        );
        assert_eq!(
            titles("mdlife", &["delete-1000-t4"]),
            ["1,000 files deleted by each job, in random order, 4 jobs"]
        );
        assert_eq!(titles("archive", &["pack"]), ["a tree read into one archive, flushed in the end"]);
    }

    #[test]
    fn a_replay_is_called_by_its_trace() {
        let keys = WorkloadKeys {
            read_iolog: Some("/srv/day.parquet".into()),
            replay_time_scale: Some(200),
            replay_offsets: Some(ReplayOffsets::Compress),
            ..WorkloadKeys::default()
        };
        let titled = title(&keys.complete(&WorkloadKeys::default()));
        assert_eq!(
            titled,
            "replay of day.parquet, at most 128 I/Os in flight, at 200% of its speed, its offsets compressed"
        );
    }

    #[test]
    fn flushes_are_in_the_title() {
        let titled = |key: &str, writes: &str| {
            let mut keys = WorkloadKeys { rw: Some(Rw::Write), ..WorkloadKeys::default() };
            keys.set(key, writes).expect("a number");
            title(&keys.complete(&WorkloadKeys::default()))
        };
        assert_eq!(
            [titled("fdatasync", "1"), titled("fsync", "8")],
            [
                "4k sequential write, queue depth 1, fdatasync after each write",
                "4k sequential write, queue depth 1, fsync after every 8 writes",
            ]
        );
    }

    #[test]
    fn an_interval_is_in_its_estimates_unit() {
        let with = |ns, low, high| tax(&Tax { ns, interval: Some(Interval { low, high }) });
        assert_eq!(with(35_200.0, 34_100.0, 36_400.0), "+35.2 us [34.1, 36.4]");
        assert_eq!(with(1_100_000.0, 980_000.0, 1_220_000.0), "+1.10 ms [0.98, 1.22]");
        assert_eq!(with(846.0, -59_240.0, 69_532.0), "+0.85 us [-59.2, 69.5]");
        assert_eq!(with(-846.0, -69_532.0, 59_240.0), "-0.85 us [-69.5, 59.2]");
        assert_eq!(with(-80.0, -163.4, -0.3), "-80.0 ns [-163, -0.3]");
        assert_eq!(with(1_230.0, -4.0, 2_000.0), "+1.23 us [0.00, 2.00]");
        assert_eq!(tax(&Tax { ns: 5.0, interval: None }), "+5.00 ns [no interval]");
    }

    #[test]
    fn changes_are_in_percent() {
        for (ratio, words) in [
            (1.0, "+0.00%"),
            (1.0042, "+0.42%"),
            (0.65, "-35%"),
            (3.1, "+210%"),
            (12.0, "12.0 times"),
            (0.003, "1/333"),
        ] {
            assert_eq!(change(ratio), words);
        }
        assert_eq!(change_with(1.012, Some(Interval { low: 0.994, high: 1.03 })), "+1.2% [-0.60, +3.0]");
        let times = Interval { low: 9.0, high: 2340.0 };
        assert_eq!(change_with(16.9, Some(times)), "16.9 times [9.00, 2.34k]");
        assert_eq!(change_with(2.0, Some(Interval { low: 0.1, high: 90.0 })), "+100% [-90, > +900]");
        assert_eq!(change_with(0.5, None), "-50% [no interval]");
    }

    #[test]
    fn lists_read_as_english() {
        let list = |items: &[&str]| listed(&items.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        let many: Vec<String> = (1..=295).map(|n| n.to_string()).collect();
        assert_eq!(listed_briefly(&many), "1, 2, 3, 4, 5 and 290 others");
        assert_eq!(listed_briefly(&many[..20]), listed(&many[..20]));
        assert_eq!(counted(1_u32, "round") + &counted(2_u32, "round"), "1 round2 rounds");
    }
}
