//! Imports results from other tools' output.
//!
//! Each tool has a module with a function `read`, which takes a text and returns [`Found`], or `None` if the text has no output of the tool.
//! The text was cleaned by [`clean()`] and may contain other output too, so a reader reports a line as not understood only if the line is
//! certainly its tool's.

mod atop;
mod bonnie;
mod clean;
mod columns;
mod crystaldiskmark;
mod dd;
mod diskspd;
mod elbencho;
mod fio;
mod headings;
mod hyperfine;
mod intervals;
mod iostat;
mod iozone;
mod iperf;
mod iperf2;
mod iperf3;
mod json_tree;
mod lines;
mod marks;
mod nvme;
mod parse_util;
mod pg_test_fsync;
mod pgbench;
mod ping;
mod prefix;
mod quantity;
mod run;
mod sar;
mod smartctl;
mod stamp;
mod sysbench;
mod unixbench;
mod vdbench;

use std::collections::HashSet;

use iotax_model::record::{ImportedMetric, ImportedMetrics, Tallies};
use iotax_model::workload::WorkloadKeys;

use iotax_analysis::Metric;
use iotax_analysis::metric::Unit;

use lines::Lines;
use quantity::impossible;

pub use clean::{clean, decode};
pub use intervals::{DeviceInterval, ImportedInterval, Intervals, intervals};
pub use marks::without_results;
pub use run::{Imported, runs};
pub use stamp::Stamp;

/// Finds one tool's results in a cleaned text.
pub type Reader = fn(&str) -> Option<Found>;

/// Supported tools: name, reader, and a description of the accepted output.
pub const READERS: &[(&str, Reader, &str)] = &[
    ("bonnie++", bonnie::read, "its CSV, or its tables with %CP"),
    (
        "fio",
        fio::read,
        "JSON with \"fio version\", terse lines, or jobs as \"NAME: (groupid=0, jobs=1): err= 0\"",
    ),
    (
        "iozone",
        iozone::read,
        "its columns under \"kB reclen write\", its report for spreadsheets, or throughput mode",
    ),
    ("vdbench", vdbench::read, "avg_ lines below their heads, or flatfile"),
    ("dd", dd::read, "\"N bytes copied, N s, N MB/s\" in any language"),
    (
        "ping",
        ping::read,
        "\"min/avg/max = N/N/N ms\", or the lines of Windows with \"Minimum = Nms\" in any language",
    ),
    (
        "iperf3",
        iperf3::read,
        "JSON with \"iperf 3\" in its start, or rows that end in \"sender\" and \"receiver\"",
    ),
    (
        "iostat",
        iostat::read,
        "two reports or more whose header begins with \"Device\", or JSON with \"sysstat\"",
    ),
    (
        "iperf",
        iperf2::read,
        "rows below \"Client connecting to\" or \"Server listening on\", or lines of -y C",
    ),
    ("atop", atop::read, "screens with lines \"DSK |\" below \"ATOP -\", or lines of atop -P DSK"),
    ("UnixBench", unixbench::read, "scores with \"(N s, N samples)\", or the table of \"Index Values\""),
    ("hyperfine", hyperfine::read, "JSON with \"results\" that have a \"command\" and \"times\""),
    (
        "DiskSpd",
        diskspd::read,
        "its text with \"Total IO\" and \"thread |\", or its XML with <TestTimeSeconds>",
    ),
    ("CrystalDiskMark", crystaldiskmark::read, "rows such as \"SEQ 1MiB (Q= 8, T= 1): N MB/s\""),
    (
        "elbencho",
        elbencho::read,
        "its table below \"OPERATION RESULT TYPE\", or its CSV with \"MiB/s [last]\"",
    ),
    (
        "sysbench",
        sysbench::read,
        "fileio's \"File operations:\", \"Operations performed:\" or \"read: IOPS=\"",
    ),
    ("pgbench", pgbench::read, "its summary with \"tps = N (...)\""),
    ("sar", sar::read, "tables of sar -d, whose heads have DEV and tps"),
    ("pg_test_fsync", pg_test_fsync::read, "rows \"fdatasync N ops/sec N usecs/op\" below their heads"),
    ("nvme smart-log", nvme::read, "\"Smart Log for NVME device\", or its JSON, as context"),
    ("smartctl", smartctl::read, "its JSON (--json), as context"),
];

/// Maximum number of targets, and of workloads, in an imported run, because reports have a row for each workload on each target.
pub const MOST_NAMES: usize = 1_000;

/// Maximum number of a tool's results in a text, and of lines reported as not understood. A text with more is a log.
pub const MOST_ROWS: usize = 1 << 16;

/// Maximum length in bytes of a name.
const LONGEST_NAME: usize = 1000;

/// Reads all results in a text, which may come from several tools. Tools are recognised by the text's content.
///
/// If a tool has no result, its lines that were not understood are reported with the first tool that has one.
#[must_use]
pub fn recognise(text: &str) -> Vec<Found> {
    let (mut found, others) = read(text);
    if let Some(first) = found.first_mut() {
        lines_of(others).into_iter().for_each(|line| first.miss(line));
        first.not_understood.sort_by_key(|line| line.number);
    }
    // A line that gave a result for one tool is not reported as not understood by another.
    let read: Vec<HashSet<usize>> =
        found.iter().map(|found| found.entries.iter().map(|entry| entry.line).collect()).collect();
    for (i, one) in found.iter_mut().enumerate() {
        let is_anothers = |line: &Line| {
            read.iter().enumerate().any(|(other, lines)| other != i && lines.contains(&line.number))
        };
        one.not_understood.retain(|line| !is_anothers(line));
    }
    found
}

/// Returns the lines that were not understood of the tools that have no result in a text, in the text's order. The reason of each line names
/// its tool; a line that looks like output of several tools is there for each.
#[must_use]
pub fn refused(text: &str) -> Vec<Line> {
    let mut lines = lines_of(read(text).1);
    lines.sort_by_key(|line| line.number);
    lines
}

/// Returns the tools with results in a text, and the tools that only have lines that were not understood.
fn read(text: &str) -> (Vec<Found>, Vec<Found>) {
    let mut best_text = clean(text);
    let mut best = read_clean(&best_text);
    let mut rest = prefix::without(&best_text);
    for _ in 0..DEEPEST_PREFIX {
        let Some(text) = rest else { break };
        rest = prefix::without(&text);
        let found = read_clean(&text);
        // With equal numbers of figures, shorter names win: the prefix may have been part of the names.
        let gain = figures(&found).cmp(&figures(&best)).then_with(|| names(&best).cmp(&names(&found)));
        if gain.is_gt() {
            (best, best_text) = (found, text.into());
        }
    }
    headings::label(&best_text, &mut best);
    best.into_iter().partition(|found| !found.entries.is_empty() || found.is_cut)
}

fn read_clean(text: &str) -> Vec<Found> {
    let mut all: Vec<Found> = READERS.iter().filter_map(|(_, read, _)| read(text)).collect();
    let mut unquoted: Vec<&mut Line> = all
        .iter_mut()
        .flat_map(|found| &mut found.not_understood)
        .filter(|line| line.text.is_empty())
        .collect();
    if !unquoted.is_empty() {
        let lines = Lines::of(text);
        for line in &mut unquoted {
            let quoted = lines.get(line.number.saturating_sub(1)).unwrap_or_default();
            line.text = quoted.chars().take(LONGEST_QUOTE).collect();
        }
    }
    all
}

/// Maximum number of characters of a quoted line.
const LONGEST_QUOTE: usize = 200;

/// Maximum number of line prefixes stripped one after another: time, host, program, container.
const DEEPEST_PREFIX: usize = 4;

/// Returns the total length in bytes of all workload names.
fn names(found: &[Found]) -> usize {
    found.iter().flat_map(|found| &found.entries).map(|entry| entry.workload.len()).sum()
}

/// Returns the number of figures in all results.
fn figures(all: &[Found]) -> usize {
    let of = |entry: &Entry| entry.stated.metrics.len() + entry.stated.others.len();
    all.iter().flat_map(|found| &found.entries).map(of).sum()
}

fn lines_of(all: Vec<Found>) -> Vec<Line> {
    let of = |found: Found| {
        let named = move |line: Line| Line { reason: format!("{}: {}", found.tool, line.reason), ..line };
        found.not_understood.into_iter().map(named)
    };
    all.into_iter().flat_map(of).collect()
}

/// Results of one tool in a text.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Found {
    /// Name of the tool, such as `fio`, `bonnie++` or `iperf3`.
    pub tool: &'static str,
    /// Version of the tool, if printed.
    pub version: Option<String>,
    /// Results in the order of the text. Entries with the same label, target and workload are repetitions and become rounds.
    pub entries: Vec<Entry>,
    /// Lines of the tool's output that could not be parsed, with reasons.
    pub not_understood: Vec<Line>,
    /// True if results or lines were dropped because there are more than [`MOST_ROWS`].
    pub is_cut: bool,
}

impl Found {
    /// Adds an entry until the limit is reached. An entry with an impossible figure or an overlong name becomes a line that was not understood.
    fn keep(&mut self, entry: Entry) {
        if let Some(reason) = entry.refusal() {
            return self.miss(Line { number: entry.line, text: String::new(), reason });
        }
        if is_long(&entry.workload) || entry.target.as_deref().is_some_and(is_long) {
            let reason = format!("it has a name of more than {LONGEST_NAME} bytes");
            return self.miss(Line {
                number: entry.line,
                text: entry.workload.chars().take(80).collect(),
                reason,
            });
        }
        self.is_cut |= self.entries.len() == MOST_ROWS;
        if !self.is_cut {
            self.entries.push(entry);
        }
    }

    /// Adds a line that was not understood, until the limit is reached.
    fn miss(&mut self, line: Line) {
        self.is_cut |= self.not_understood.len() == MOST_ROWS;
        if !self.is_cut {
            self.not_understood.push(line);
        }
    }
}

/// Returns whether a name exceeds [`LONGEST_NAME`]; many results with such names would take much memory.
const fn is_long(name: &str) -> bool {
    name.len() > LONGEST_NAME
}

/// A result of another tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// The measured device, file or host, if the text names it.
    pub target: Option<String>,
    /// The workload's name in the tool's terms: `randread`, `putc`, `ping`.
    pub workload: String,
    /// Workload keys that the text states; the others are unset.
    pub keys: Box<WorkloadKeys>,
    /// Start time of the run if printed, else the time of its report; `None` if unknown.
    pub time: Option<Stamp>,
    /// Duration of the run in nanoseconds, if known.
    pub duration_ns: Option<u64>,
    /// I/O counts, bytes and histograms, only for directions with all three; `None` without any.
    pub tallies: Option<Box<Tallies>>,
    /// Figures that the text states, in iotax's units.
    pub stated: ImportedMetrics,
    /// Notes that explain the figures, such as that they include the page cache.
    pub notes: Vec<String>,
    /// Headings above the result. Results of the same target and workload under different headings are not repetitions.
    pub label: Option<String>,
    /// Number of the result's line in the text, from 1.
    pub line: usize,
    /// The first impossible figure with the reason; `None` if all are possible.
    pub impossible: Option<String>,
}

/// Returns the unit of an iotax metric as tools write it.
const fn unit_of(metric: Metric) -> &'static str {
    match metric.definition().unit {
        Unit::Nanoseconds => "ns",
        Unit::PerSecond => "1/s",
        Unit::BytesPerSecond => "B/s",
        Unit::Count => "count",
    }
}

impl Entry {
    /// Stores a figure as an iotax metric, in the metric's unit; ignores unknown, zero and non-finite values.
    fn state(&mut self, metric: Metric, value: Option<f64>) {
        let value = value.filter(|value| *value != 0.0);
        if let Some(value) = self.possible(metric.word(), value, unit_of(metric)) {
            self.stated.metrics.insert(metric.word().to_owned(), value);
        }
    }

    /// Stores a figure that is not an iotax metric, under the tool's name; ignores unknown and non-finite values.
    fn add(&mut self, name: impl Into<String>, value: Option<f64>, unit: &str) {
        let name = name.into();
        if let Some(value) = self.possible(&name, value, unit) {
            self.stated.others.push(ImportedMetric { name, value, unit: unit.to_owned() });
        }
    }

    /// Returns the figure if it is plausible. `None` for a missing or non-finite value, and for an impossible one, whose reason is recorded.
    fn possible(&mut self, name: &str, value: Option<f64>, unit: &str) -> Option<f64> {
        let value = value.filter(|value| value.is_finite())?;
        let why = impossible(value, unit);
        self.impossible = self.impossible.take().or(why.as_ref().map(|why| format!("{name}: {why}")));
        why.is_none().then_some(value)
    }

    /// Returns the reason to reject the entry, which is an impossible figure or duration; `None` to accept it.
    fn refusal(&self) -> Option<String> {
        let took = || impossible(self.duration_ns? as f64, "ns").map(|why| format!("its duration: {why}"));
        self.impossible.clone().or_else(took)
    }

    /// Parses and sets a workload key. Returns false, and leaves the key unset, if iotax cannot express the value.
    fn set(&mut self, key: &str, text: &str) -> bool {
        self.keys.set(key, text).is_ok()
    }

    /// Returns whether the entry has any figure.
    fn has_figures(&self) -> bool {
        !self.stated.metrics.is_empty() || !self.stated.others.is_empty()
    }
}

/// A line of a tool that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Line number, from 1.
    pub number: usize,
    /// Text of the line.
    pub text: String,
    /// Reason why it was not understood; may be empty.
    pub reason: String,
}

impl Line {
    /// Formats the line with its location: `FILE:LINE: text (reason)`.
    #[must_use]
    pub fn of_file(&self, file: &str) -> String {
        let why = if self.reason.is_empty() { String::new() } else { format!(" ({})", self.reason) };
        format!("{file}:{}: {}{why}", self.number, self.text.trim())
    }
}
