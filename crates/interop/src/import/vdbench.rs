//! Reads vdbench's output: console, summary and totals, and flatfile.
//!
//! Columns depend on vdbench's version, so each figure is identified by its column head. vdbench leaves the first interval out of its
//! averages.

use std::collections::{BTreeMap, HashMap};

use super::lines::lines;
use super::parse_util::{decimal, not_understood};
use super::{Entry, Found, Line, Stamp};
use iotax_analysis::Metric;

/// Largest relative rounding difference between MB/sec and rate times I/O size.
const AGREE: f64 = 0.02;

#[derive(Default)]
struct Reader {
    found: Found,
    /// Name of the current run with its loop values, from the line that starts it.
    run: Option<String>,
    /// The upper of the two lines of column heads.
    upper: Vec<String>,
    heads: Vec<String>,
    flat: Vec<String>,
    interval: u64,
    /// Date in the column heads.
    day: String,
    began: String,
    /// Results so far, by name and metrics: the second of the day at which each was last printed.
    known: HashMap<String, Option<u64>>,
}

/// Maximum seconds between prints of the same result, because vdbench prints to console, summary and totals at the same time.
const AT_ONCE: u64 = 2;

/// Finds vdbench's results in a text; `None` if the text has no output of vdbench.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("avg_") {
        return None;
    }
    let mut reader = Reader { found: Found { tool: "vdbench", ..Found::default() }, ..Reader::default() };
    let mut lines = lines(text).enumerate().peekable();
    while let Some((i, line)) = lines.next().filter(|_| !reader.found.is_cut) {
        let next = lines.peek().map_or("", |(_, next)| next);
        reader.line(line, next, i + 1);
    }
    let found = reader.found;
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

impl Reader {
    fn line(&mut self, line: &str, next: &str, at: usize) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(version) = line.trim().strip_prefix("Vdbench distribution: vdbench") {
            self.found.version = version.split_whitespace().next().map(str::to_owned);
            self.heads.clear();
        } else if let Some((_, run)) = line.split_once("Starting RD=") {
            self.run = Some(named(run));
            self.interval = 0;
            // Column heads appear only above the first run. If the time goes back, the output belongs to another vdbench, so its heads may differ.
            if second_of_day(line) < second_of_day(&self.began) {
                self.heads.clear();
            }
            words.first().copied().unwrap_or_default().clone_into(&mut self.began);
        } else if let Some(index) = words.iter().position(|word| *word == "interval") {
            self.upper = words[index + 1..].iter().map(|word| (*word).to_owned()).collect();
            self.heads.clear();
            self.day = words[..index].join(" ");
        } else if words.first() == Some(&"tod") && words.contains(&"Interval") {
            // If header and row were wrapped at the same place, they would fit each other by mistake.
            let is_whole = is_timed(next);
            self.flat = words.iter().filter(|_| is_whole).map(|word| (*word).to_owned()).collect();
        } else if !self.upper.is_empty() && words.first() == Some(&"rate") {
            // A column head consists of a word of the upper line and the word below.
            let upper = std::mem::take(&mut self.upper);
            if upper.len() == words.len() {
                self.heads = upper.iter().zip(&words).map(|(one, other)| format!("{one} {other}")).collect();
            } else {
                self.heads = without_unit(&upper, &words);
            }
        } else if !self.flat.is_empty() && words.len() == self.flat.len() {
            if is_timed(next) || !next.trim_start().starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                self.flat_row(&words, line, at);
            } else {
                let reason = "the row was broken".to_owned();
                self.found.miss(Line { number: at, text: line.to_owned(), reason });
            }
        } else if let Some(index) = words.iter().position(|word| is_average(word)) {
            self.average(&words[index + 1..], line, at);
        } else if let Some(interval) = words.get(1).and_then(|word| word.parse().ok()) {
            // An interval number that starts over belongs to a run whose start is missing.
            if words.len() == self.heads.len() + 2 {
                if interval < self.interval {
                    self.run = None;
                }
                self.interval = interval;
            }
        }
    }

    /// Reads a row of averages.
    fn average(&mut self, words: &[&str], line: &str, at: usize) {
        let row = match (self.heads.is_empty(), by_heads(&self.heads, words)) {
            (false, Some(row)) => row,
            (false, None) => {
                let reason = "it has not a figure for each head";
                return self.found.miss(not_understood(at, line, reason));
            }
            (true, _) => by_units(words),
        };
        if row.is_empty() {
            return self.found.miss(not_understood(at, line, "its heads are not there"));
        }
        let mut entry = Entry {
            workload: self.run.take().unwrap_or_else(|| "unknown".into()),
            time: Stamp::of(&format!("{} {}", self.day, self.began)),
            line: at,
            ..Entry::default()
        };
        if self.heads.is_empty() {
            entry.notes.push("its heads are not there: only figures with a unit are read".into());
        }
        let of = |head: &str| row.get(head).copied();
        let (rate, bytes) = (of("i/o rate"), of("bytes i/o"));
        entry.state(Metric::IOPS, rate);
        let binary = of("MB/sec 1024**2").map(|mb| mb * 1024.0 * 1024.0);
        entry.state(Metric::BYTES_PER_S, binary.or_else(|| megabytes(of("MB/sec"), rate, bytes)));
        entry.state(Metric::LATENCY_MEAN, of("resp time").map(|ms| ms * 1e6));
        for (head, name, unit, factor) in [
            ("bytes i/o", "bytes per i/o", "B", 1.0),
            ("read pct", "read pct", "%", 1.0),
            ("read resp", "read resp", "ns", 1e6),
            ("write resp", "write resp", "ns", 1e6),
            ("resp max", "resp max", "ns", 1e6),
            ("read max", "read max", "ns", 1e6),
            ("write max", "write max", "ns", 1e6),
            ("resp stddev", "resp stddev", "ns", 1e6),
            ("queue depth", "queue depth", "", 1.0),
            ("cpu% sys+u", "cpu sys+usr", "%", 1.0),
            ("cpu% sys+usr", "cpu sys+usr", "%", 1.0),
            ("cpu% sys", "cpu sys", "%", 1.0),
        ] {
            entry.add(name, of(head).map(|value| value * factor), unit);
        }
        self.keep(entry, rate, line);
    }

    /// Reads a row of the flatfile; ignores all rows but averages.
    fn flat_row(&mut self, words: &[&str], line: &str, at: usize) {
        let row: BTreeMap<&str, &str> =
            self.flat.iter().map(String::as_str).zip(words.iter().copied()).collect();
        if !row.get("Interval").is_some_and(|interval| interval.starts_with("avg_")) {
            return;
        }
        let of = |head: &str| row.get(head).and_then(|word| decimal(word));
        let mut entry = Entry { line: at, ..Entry::default() };
        entry.time = row.get("timestamp").and_then(|stamp| stamped(stamp));
        entry.workload = row.get("Run").map_or_else(|| "unknown".into(), |run| (*run).to_owned());
        let rate = of("rate");
        entry.state(Metric::IOPS, rate);
        entry.state(Metric::BYTES_PER_S, megabytes(of("MB/sec"), rate, of("bytes/io")));
        entry.state(Metric::LATENCY_MEAN, of("resp").map(|ms| ms * 1e6));
        for (head, unit, factor) in [
            ("reqrate", "IOPS", 1.0),
            ("bytes/io", "B", 1.0),
            ("read%", "%", 1.0),
            ("read_resp", "ns", 1e6),
            ("write_resp", "ns", 1e6),
            ("resp_max", "ns", 1e6),
            ("read_max", "ns", 1e6),
            ("write_max", "ns", 1e6),
            ("resp_std", "ns", 1e6),
            ("threads", "", 1.0),
            ("queue_depth", "", 1.0),
            ("cpu_used", "%", 1.0),
            ("cpu_user", "%", 1.0),
            ("cpu_kernel", "%", 1.0),
        ] {
            entry.add(head, of(head).map(|value| value * factor), unit);
        }
        flat_keys(&mut entry, of("xfersize"), of("rdpct"), of("seekpct"));
        self.keep(entry, rate, line);
    }

    /// Adds an entry, unless the same result was already read from the console, summary or totals.
    fn keep(&mut self, entry: Entry, rate: Option<f64>, line: &str) {
        if rate.is_none_or(|rate| rate <= 0.0) {
            let reason = if rate.is_some() { "nothing was done in it" } else { "its rate is not a number" };
            return self.found.miss(not_understood(entry.line, line, reason));
        }
        let now = second_of_day(line);
        let before = self.known.insert(format!("{:?} {:?}", entry.workload, entry.stated.metrics), now);
        let is_again = before.flatten().zip(now).is_some_and(|(before, now)| now.abs_diff(before) <= AT_ONCE);
        if !is_again {
            self.found.keep(entry);
        }
    }
}

/// Returns whether a word marks a row of averages, like `avg_2-5`, even if the time is joined to it.
fn is_average(word: &str) -> bool {
    word.split_once("avg_").is_some_and(|(before, intervals)| {
        (before.is_empty() || is_timed(before)) && intervals.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Units that may follow figures, each with the column heads to which they belong.
const UNITS: [(&[&str], &[&str]); 5] = [
    (&["IOPS", "iops", "IO/s"], &["i/o rate"]),
    (&["MB/sec", "MB/s"], &["MB/sec", "MB/sec 1024**2"]),
    (&["B", "bytes"], &["bytes i/o"]),
    (&["%"], &["read pct", "cpu% sys+u", "cpu% sys+usr", "cpu% sys"]),
    (
        &["ms", "msec"],
        &["resp time", "read resp", "write resp", "resp max", "read max", "write max", "resp stddev"],
    ),
];

/// Returns the column heads that a unit belongs to; `None` for a word that is not a unit.
fn fitting(word: &str) -> Option<&'static [&'static str]> {
    UNITS.iter().find(|(units, _)| units.contains(&word)).map(|(_, heads)| *heads)
}

/// Assigns figures to column heads, without units; `None` if number or units of the figures do not fit the heads.
fn by_heads<'h>(heads: &'h [String], words: &[&str]) -> Option<BTreeMap<&'h str, f64>> {
    let mut words = words.iter().peekable();
    let mut row = BTreeMap::new();
    for head in heads {
        if let Some(value) = decimal(words.next()?) {
            row.insert(head.as_str(), value);
        }
        if let Some(heads) = words.peek().and_then(|word| fitting(word)) {
            heads.contains(&head.as_str()).then(|| words.next())?;
        }
    }
    words.next().is_none().then_some(row)
}

/// Assigns figures to column heads by their units, if the heads are missing: rate, MB/sec and I/O size.
fn by_units(words: &[&str]) -> BTreeMap<&'static str, f64> {
    let figure = |pair: &[&str]| match fitting(pair[1])? {
        [head] | [head @ "MB/sec", _] => Some((*head, decimal(pair[0])?)),
        _ => None,
    };
    words.windows(2).filter_map(figure).collect()
}

/// Parses the time at the start of a line into seconds since midnight.
fn second_of_day(line: &str) -> Option<u64> {
    let first = line.split_whitespace().next().filter(|_| is_timed(line))?;
    let parts = first.split('.').next()?.split(':').map(|part| part.parse::<u64>().ok());
    parts.collect::<Option<Vec<u64>>>().map(|parts| parts.iter().fold(0, |sum, part| sum * 60 + part))
}

/// Parses a time such as `01/24/2019-16:24:32-MST`; the month is always first.
fn stamped(text: &str) -> Option<Stamp> {
    let (date, clock) = text.split_once('-')?;
    let (month, rest) = date.split_once('/')?;
    let (day, year) = rest.split_once('/')?;
    let (clock, zone) = clock.split_once('-').unwrap_or((clock, ""));
    Stamp::of(&format!("{year}-{month}-{day} {clock} {zone}"))
}

/// Returns whether a line starts with a time of day such as `16:24:32.0`, like every row of the flatfile.
fn is_timed(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or_default();
    let part = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    first.matches(':').count() == 2 && first.split(':').all(part)
}

/// Returns the name of a run with its loop values: `rd1 threads=8` from `rd1; I/O rate: Uncontrolled MAX; elapsed=30; For loops: threads=8`.
fn named(run: &str) -> String {
    let name = run.split(';').next().unwrap_or_default().trim();
    match run.split_once("For loops:").map(|(_, loops)| loops.trim()) {
        Some(loops) if loops != "None" && !loops.is_empty() => format!("{name} {loops}"),
        _ => name.to_owned(),
    }
}

/// Returns the column heads of versions that print no unit below MB/sec, so that the lower line has one word less.
fn without_unit(upper: &[String], lower: &[&str]) -> Vec<String> {
    if upper.len() != lower.len() + 1 || lower.contains(&"1024**2") {
        return vec![];
    }
    let mut lower = lower.iter();
    let head = |word: &String| match word.as_str() {
        "MB/sec" => Some(word.clone()),
        _ => lower.next().map(|beneath| format!("{word} {beneath}")),
    };
    upper.iter().filter_map(head).collect()
}

/// Converts MB/sec to bytes/s; `None` unless rate and I/O size show whether a megabyte has 1000 * 1000 or 1024 * 1024 bytes.
fn megabytes(mb: Option<f64>, rate: Option<f64>, bytes: Option<f64>) -> Option<f64> {
    let (mb, moved) = (mb?, rate? * bytes?);
    let near = |unit: f64| moved > 0.0 && (mb * unit / moved - 1.0).abs() < AGREE;
    let binary = 1024.0 * 1024.0;
    if near(binary) {
        return Some(mb * binary);
    }
    near(1e6).then_some(mb * 1e6)
}

/// Sets the workload keys that follow from I/O size, read and seek percentage, if these are the same for all I/Os.
fn flat_keys(entry: &mut Entry, xfersize: Option<f64>, rdpct: Option<f64>, seekpct: Option<f64>) {
    if let Some(bytes) = xfersize.filter(|bytes| *bytes >= 1.0 && bytes.fract() == 0.0) {
        entry.set("bs", &bytes.to_string());
    }
    let order = match seekpct {
        Some(100.0) => "rand",
        Some(0.0) => "",
        _ => return,
    };
    match rdpct {
        Some(100.0) => entry.set("rw", &format!("{order}read")),
        Some(0.0) => entry.set("rw", &format!("{order}write")),
        Some(share) if share > 0.0 && share < 100.0 && share.fract() == 0.0 => {
            entry.set("rwmixread", &share.to_string());
            entry.set("rw", if order.is_empty() { "rw" } else { "randrw" })
        }
        _ => return,
    };
}
