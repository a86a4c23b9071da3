//! Reads sysbench's fileio test, versions 0.4 to 1.1; its other tests do not measure storage.
//!
//! A megabyte of 0.4 and 0.5 (`Mb`) is 1024 * 1024 bytes. Since 1.0, latencies cover all events including fsyncs. With fsyncs they are not
//! I/O latencies and keep sysbench's names.

use super::lines::lines;
use super::parse_util::{add_percentile, agree, decimal, not_understood, whole_nanos};
use super::quantity::{bytes_in, number_and_unit};
use super::{Entry, Found};
use iotax_analysis::Metric;

const MIB: f64 = 1_048_576.0;

/// Finds sysbench's fileio results in a text; `None` if the text has no output of sysbench.
pub(super) fn read(text: &str) -> Option<Found> {
    if !["File operations:", "Operations performed:", "IOPS="].iter().any(|mark| text.contains(mark)) {
        return None;
    }
    let mut found = Found { tool: "sysbench", ..Found::default() };
    let mut test = Test::default();
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            break;
        }
        let plain = line.trim();
        if let Some(version) = plain.strip_prefix("sysbench ")
            && version.starts_with(|c: char| c.is_ascii_digit())
        {
            std::mem::take(&mut test).close(&mut found);
            let version = version.split([' ', ':']).next().unwrap_or_default();
            found.version = Some(version.to_owned());
        } else if plain.starts_with("Extra file open flags:") && test.line > 0 {
            std::mem::take(&mut test).close(&mut found);
            test.take(plain);
        } else if is_begin(plain) {
            // A second result needs its own parameters; without them, its parameters are unknown.
            if test.line > 0 {
                std::mem::take(&mut test).close(&mut found);
            }
            test.line = i + 1;
            test.result(plain);
        } else if test.line > 0 {
            test.result(plain);
        } else {
            test.take(plain);
        }
    }
    test.close(&mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Returns whether a line is the first line of a result.
fn is_begin(line: &str) -> bool {
    let is_new = || line.starts_with("read:") && line.contains("IOPS=") && line.contains(" MiB/s (");
    // fio's lines begin alike.
    line == "File operations:"
        || line.starts_with("Operations performed:")
        || is_new() && !line.contains("BW=")
}

/// Maximum number of latencies kept per result.
const MOST_LATENCIES: usize = 32;

/// A run that is being parsed.
#[derive(Default)]
struct Test {
    /// Number of the line where the result starts; 0 before that line.
    line: usize,
    mode: Option<String>,
    block: Option<u64>,
    threads: Option<u32>,
    direct: Option<bool>,
    fsync_each: Option<String>,
    /// Reads, writes and fsyncs per second, in this order.
    ios: [Option<f64>; 3],
    /// Reads and writes per second together, which 0.4 and 0.5 print.
    requests: Option<f64>,
    /// Bytes read and bytes written per second.
    bytes: [Option<f64>; 2],
    transferred: Option<f64>,
    seconds: Option<f64>,
    events: Option<f64>,
    /// Latencies: sysbench's name, and nanoseconds.
    latencies: Vec<(String, f64)>,
}

impl Test {
    /// Reads a line of the test's parameters.
    fn take(&mut self, line: &str) {
        if let Some(mode) = line.strip_prefix("Doing ").and_then(|rest| rest.strip_suffix(" test")) {
            self.mode = Some(mode.to_owned());
        } else if let Some(size) = line.strip_prefix("Block size ") {
            self.block = block(size);
        } else if let Some(threads) = line.strip_prefix("Number of threads:") {
            self.threads = threads.trim().parse().ok();
        } else if let Some(flags) = line.strip_prefix("Extra file open flags:") {
            let flags = flags.trim();
            self.direct = match flags {
                "(none)" | "0" => Some(false),
                _ if flags.contains("directio") => Some(true),
                // Other versions print a number whose meaning depends on the machine.
                _ => None,
            };
        } else if let Some(each) = line.strip_prefix("Periodic FSYNC enabled, calling fsync() each ") {
            self.fsync_each = each.strip_suffix(" requests.").map(str::to_owned);
        }
    }

    /// Reads the figure in a line of the result; ignores lines without a known figure.
    fn result(&mut self, line: &str) {
        let Some((key, value)) = line.split_once(':') else {
            if let Some(rate) = line.strip_suffix("Requests/sec executed") {
                self.requests = decimal(rate.trim());
            } else if line.starts_with("Read ") && line.contains("Total transferred") {
                self.transferred =
                    line.rsplit_once('(').and_then(|(_, rate)| decimal(rate.strip_suffix("Mb/sec)")?));
            }
            return;
        };
        let (key, value) = (key.trim(), value.trim());
        let ms = || decimal(value.strip_suffix("ms").unwrap_or(value)).map(|ms| ms * 1e6);
        let new = value.strip_prefix("IOPS=").map(|rest| rest.split_whitespace().collect::<Vec<_>>());
        let direction = ["read", "write", "fsync"].iter().position(|name| *name == key);
        match (key, new, direction) {
            (_, Some(words), Some(at)) => {
                self.ios[at] = words.first().and_then(|word| decimal(word));
                if let ([_, mib, "MiB/s", ..], 0 | 1) = (&words[..], at) {
                    self.bytes[at] = decimal(mib).map(|mib| mib * MIB);
                }
            }
            ("reads/s", ..) => self.ios[0] = decimal(value),
            ("writes/s", ..) => self.ios[1] = decimal(value),
            ("fsyncs/s", ..) => self.ios[2] = decimal(value),
            ("read, MiB/s", ..) => self.bytes[0] = decimal(value).map(|mib| mib * MIB),
            ("written, MiB/s", ..) => self.bytes[1] = decimal(value).map(|mib| mib * MIB),
            ("total time", ..) => self.seconds = value.strip_suffix('s').and_then(decimal),
            ("total number of events", ..) => self.events = decimal(value),
            ("min" | "avg" | "max", ..) => self.latency(if key == "avg" { "mean" } else { key }, ms()),
            _ => {
                let percent = key.strip_suffix("th percentile").or_else(|| {
                    key.strip_prefix("approx.").and_then(|rest| rest.strip_suffix(" percentile"))
                });
                if let Some(percent) = percent {
                    self.latency(percent.trim().trim_end_matches("th"), ms());
                }
            }
        }
    }

    fn latency(&mut self, name: &str, ns: Option<f64>) {
        let is_new =
            self.latencies.len() < MOST_LATENCIES && self.latencies.iter().all(|(known, _)| known != name);
        self.latencies.extend(ns.filter(|_| is_new).map(|ns| (name.to_owned(), ns)));
    }

    /// Returns whether the latencies cover only reads and writes, without fsyncs; `None` if the text does not show it.
    fn is_of_ios(&self, iops: Option<f64>) -> Option<bool> {
        let fsyncs = self.ios[2];
        if fsyncs == Some(0.0) || self.requests.is_some() {
            return Some(true);
        }
        let events = self.events? / self.seconds?;
        Some(agree(events, iops?, 0.02) && !agree(events, iops? + fsyncs?, 0.02))
    }

    fn close(self, found: &mut Found) {
        if self.line == 0 {
            return;
        }
        let both = |[a, b]: [Option<f64>; 2]| a.zip(b).map(|(a, b)| a + b);
        let iops = self.requests.or_else(|| both([self.ios[0], self.ios[1]]));
        let bytes = self.transferred.map(|mib| mib * MIB).or_else(|| both(self.bytes));
        if iops.is_none_or(|iops| iops <= 0.0) {
            let reason = "a result of sysbench's fileio without its reads and writes per second";
            return found.miss(not_understood(self.line, "", reason));
        }
        // The rates of small I/Os are rounded.
        let contradicts = |(block, bytes): (u64, f64)| {
            let moved = block as f64 * iops.unwrap_or_default();
            (bytes - moved).abs() > 0.02 * bytes.max(moved) + 0.01 * MIB
        };
        if self.block.zip(bytes).is_some_and(contradicts) {
            let reason = "its rates and its block size contradict one another";
            return found.miss(not_understood(self.line, "", reason));
        }
        let mut entry = Entry { line: self.line, ..Entry::default() };
        entry.duration_ns = self.seconds.and_then(|seconds| whole_nanos(seconds * 1e9));
        self.describe(&mut entry);
        entry.state(Metric::IOPS, iops);
        entry.state(Metric::BYTES_PER_S, bytes);
        for (before, at) in [("read ", 0), ("write ", 1)] {
            // With a single direction, these would repeat the totals above.
            if self.ios[0].is_some_and(|ios| ios > 0.0) && self.ios[1].is_some_and(|ios| ios > 0.0) {
                entry.add(format!("{before}iops"), self.ios[at], "IOPS");
                entry.add(format!("{before}bytes_per_s"), self.bytes[at], "B/s");
            }
        }
        entry.add("fsyncs", self.ios[2], "/s");
        let is_of_ios = self.is_of_ios(iops) == Some(true);
        if !is_of_ios && !self.latencies.is_empty() {
            entry.notes.push(
                "fsyncs are among the events of sysbench's latencies, or the text does not tell".into(),
            );
        }
        let before = if is_of_ios { "" } else { "event " };
        for (name, ns) in &self.latencies {
            match name.as_str() {
                "mean" if is_of_ios => entry.state(Metric::LATENCY_MEAN, Some(*ns)),
                "min" | "mean" | "max" => entry.add(format!("{before}latency_{name}"), Some(*ns), "ns"),
                percent => add_percentile(&mut entry, before, percent, Some(*ns)),
            }
        }
        found.keep(entry);
    }

    /// Sets the entry's name, keys and notes.
    fn describe(&self, entry: &mut Entry) {
        let rw = self.mode.as_deref().and_then(|mode| match mode {
            "sequential read" => Some("read"),
            "sequential rewrite" => Some("write"),
            "random read" => Some("randread"),
            "random write" => Some("randwrite"),
            "random r/w" => Some("randrw"),
            _ => None,
        });
        entry.workload = self.mode.as_deref().unwrap_or("fileio").replace([' ', '/'], "-");
        if let Some(rw) = rw {
            entry.set("rw", rw);
        }
        if self.mode.as_deref() == Some("sequential write (creation)") {
            "sequential-write".clone_into(&mut entry.workload);
            entry.set("test", "write-new");
        }
        if let Some(block) = self.block {
            entry.set("bs", &block.to_string());
        }
        if let Some(threads) = self.threads {
            entry.set("numjobs", &threads.to_string());
        }
        if let Some(direct) = self.direct {
            entry.set("direct", if direct { "1" } else { "0" });
            if !direct {
                entry
                    .notes
                    .push("the page cache is in the figures: sysbench was not asked for direct I/O".into());
            }
        }
        if let Some(each) = &self.fsync_each {
            entry.notes.push(format!("a fsync of each file after {each} requests"));
        }
    }
}

/// Parses a block size into bytes: `16KiB`, or `16Kb`, which in 0.4 and 0.5 is also 16 * 1024 bytes.
fn block(text: &str) -> Option<u64> {
    let (value, unit) = number_and_unit(text)?;
    let unit = match unit {
        "Kb" => "KiB",
        "Mb" => "MiB",
        "b" => "B",
        unit => unit,
    };
    whole_nanos(value * bytes_in(unit)?)
}
