//! Reads iozone's output: its table, its spreadsheet report (`-R`) and throughput mode (`-t`). A kB is 1024 bytes.

use std::collections::HashSet;

use super::columns::{in_columns, may_be_rest, words};
use super::lines::lines;
use super::parse_util::not_understood;
use super::quantity::number;
use super::{Entry, Found, Line, Stamp};
use iotax_analysis::Metric;

/// A test: name of its table column, title of its part in the spreadsheet report, and the workload key and value that describe it.
type Test = (&'static str, &'static str, Option<(&'static str, &'static str)>);

/// All tests in the order of the table's columns. Stride and backward reads have no workload key, because their strides depend on the record
/// size.
const TESTS: [Test; 13] = [
    ("write", "writer", Some(("test", "write-new"))),
    ("rewrite", "re-writer", Some(("rw", "write"))),
    ("read", "reader", Some(("rw", "read"))),
    ("reread", "re-reader", Some(("rw", "read"))),
    ("random-read", "random read", Some(("rw", "randread"))),
    ("random-write", "random write", Some(("rw", "randwrite"))),
    ("backward-read", "backward read", None),
    ("record-rewrite", "record rewrite", None),
    ("stride-read", "stride read", None),
    ("fwrite", "fwrite", Some(("test", "stdio-write"))),
    ("refwrite", "re-fwrite", None),
    ("fread", "fread", Some(("test", "stdio-read"))),
    ("refread", "re-fread", None),
];

/// Index in [`TESTS`] of the first test through stdio, to which O_DIRECT does not apply.
const STDIO: usize = 9;

/// Heads of the columns after file size and record size.
const HEADS: [&str; 13] = [
    "write", "rewrite", "read", "reread", "read", "write", "read", "rewrite", "read", "fwrite", "frewrite",
    "fread", "freread",
];
const ABOVE: [&str; 5] = ["random", "random", "bkwd", "record", "stride"];

/// Unit of the figures, from the line "Output is in ...".
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    KibPerS,
    Ops,
    MicrosPerOp,
    /// Another unit. Also a unit that a command outside of the text may have requested with `-O` or `-N`.
    Unknown,
}

/// Maximum number of characters that a figure may end to the left of its column head.
const LEFT: usize = 2;

#[derive(Default)]
struct Reader {
    found: Found,
    unit: Option<Unit>,
    /// End positions of the table's columns: file size, record size, then the tests.
    ends: Vec<usize>,
    /// Index of the test in the current section of the spreadsheet report. `records` has the section's record sizes in kB.
    part: Option<usize>,
    records: Vec<f64>,
    direct: bool,
    /// Start time of the run, if printed.
    time: Option<Stamp>,
    /// Test, file size, record size and figure of each entry of this run so far, to skip figures that another part of the output repeats.
    stated: HashSet<(usize, [u64; 3])>,
    /// True if the text contains something that only iozone prints.
    is_iozone: bool,
}

/// Finds iozone's results in a text; `None` if the text has no output of iozone.
pub(super) fn read(text: &str) -> Option<Found> {
    if !["Iozone", "reclen", "Children see", "\""].iter().any(|mark| text.contains(mark)) {
        return None;
    }
    let mut reader = Reader { found: Found { tool: "iozone", ..Found::default() }, ..Reader::default() };
    let mut lines = lines(text).enumerate().peekable();
    let mut above = "";
    while let Some((i, line)) = lines.next().filter(|_| !reader.found.is_cut) {
        let next = lines.peek().map(|(_, next)| *next);
        reader.line(above, line, next, i + 1);
        above = line;
    }
    let found = reader.found;
    (reader.is_iozone && (!found.entries.is_empty() || !found.not_understood.is_empty())).then_some(found)
}

impl Reader {
    fn line(&mut self, above: &str, line: &str, next: Option<&str>, at: usize) {
        let plain = line.trim();
        if plain.starts_with("Iozone: Performance Test") {
            let found = std::mem::take(&mut self.found);
            *self = Self { found, is_iozone: true, ..Self::default() };
        } else if let Some(version) = plain.strip_prefix("Version $Revision:") {
            let version = version.trim_end_matches('$').trim();
            self.found.version = Some(version.to_owned()).filter(|version| number(version).is_some());
        } else if let Some(unit) = plain.strip_prefix("Output is in ") {
            self.unit = Some(match unit.trim_end_matches('.').to_ascii_lowercase().as_str() {
                "kbytes/sec" => Unit::KibPerS,
                "operations per second" | "ops/sec" => Unit::Ops,
                "microseconds per operation" | "microseconds/op" => Unit::MicrosPerOp,
                _ => Unit::Unknown,
            });
        } else if asks_for_a_unit(plain) {
            self.unit = Some(Unit::Unknown);
        } else if let Some(time) = plain.strip_prefix("Run began:") {
            self.time = Stamp::of(time);
        } else if plain.starts_with("O_DIRECT feature enabled") {
            self.direct = true;
        } else if let Some(title) = title(plain) {
            (self.part, self.is_iozone) = (Some(title), true);
            self.records.clear();
        } else if let Some(heads) = heads(line) {
            (self.part, self.is_iozone) = (None, true);
            self.ends.clear();
            if are_known(&heads, above, next) {
                self.ends = words(line).into_iter().map(|(end, _)| end).collect();
            } else {
                let reason =
                    "its columns are not those of iozone from the first on, with the words above them";
                self.found.miss(not_understood(at, line, reason));
            }
        } else if self.part.is_some() && plain.starts_with('"') {
            self.spreadsheet(plain, next, at);
        } else if let Some((what, rate)) = throughput(plain) {
            self.is_iozone = true;
            self.children(what, rate, at);
        } else if plain.starts_with(CHILDREN) {
            self.is_iozone = true;
            self.found.miss(not_understood(at, line, "no rate in it"));
        } else if !self.ends.is_empty() {
            self.row(line, next, at);
        }
    }

    /// Reads a row of the table.
    fn row(&mut self, line: &str, next: Option<&str>, at: usize) {
        let row = words(line);
        if row.len() < 3 || row.iter().any(|(_, word)| number(word).is_none()) {
            // Any other line ends a table.
            if !row.is_empty() {
                self.ends.clear();
            }
            return;
        }
        let figure = |word: Option<&str>| word.and_then(number);
        // Another row starts at the same position.
        let begins = |line: &str| {
            words(line).first().is_some_and(|(end, _)| *end == row[0].0 || end.abs_diff(self.ends[0]) < 2)
        };
        let is_broken = may_be_rest(next) && !next.is_some_and(begins);
        let Some(in_columns) = in_columns(&row, &self.ends, LEFT).filter(|_| !is_broken) else {
            let reason = "its figures are not below their heads".to_owned();
            self.found.miss(Line { number: at, text: line.to_owned(), reason });
            return;
        };
        let (Some(size), Some(record)) = (figure(in_columns[0]), figure(in_columns[1])) else { return };
        for (test, word) in in_columns[2..].iter().enumerate() {
            self.add(test, size, record, figure(*word), at);
        }
    }

    /// Reads a line of the spreadsheet report: quoted record sizes, or a quoted file size followed by a figure per record size.
    fn spreadsheet(&mut self, line: &str, next: Option<&str>, at: usize) {
        let quoted: Option<Vec<f64>> =
            line.split_whitespace().map(|word| number(word.strip_prefix('"')?.strip_suffix('"')?)).collect();
        if let Some(records) = quoted {
            self.records.extend(records);
            return;
        }
        let mut fields = line.split_whitespace();
        let size = fields.next().and_then(|word| number(word.strip_prefix('"')?.strip_suffix('"')?));
        let figures: Option<Vec<f64>> = fields.map(number).collect();
        let (Some(test), Some(size), Some(figures)) = (self.part, size, figures) else {
            self.part = None;
            return;
        };
        if figures.len() > self.records.len() || may_be_rest(next) {
            let reason = "its figures are not those of its records".to_owned();
            self.found.miss(Line { number: at, text: line.to_owned(), reason });
            return;
        }
        let records = std::mem::take(&mut self.records);
        for (record, figure) in records.iter().zip(figures) {
            self.add(test, size, *record, Some(figure), at);
        }
        self.records = records;
    }

    /// Adds a test's figure, unless it is missing, 0, or was in another part of the same output already.
    fn add(&mut self, test: usize, size: f64, record: f64, figure: Option<f64>, line: usize) {
        let Some(figure) = figure.filter(|figure| *figure > 0.0) else { return };
        if !self.stated.insert((test, [size, record, figure].map(f64::to_bits))) {
            return;
        }
        let (name, _, terms) = TESTS[test];
        let (record, size) = (kib(record), kib(size));
        let mut entry = Entry { workload: format!("{name}-{record}-of-{size}"), line, ..Entry::default() };
        self.state(&mut entry, figure);
        entry.set("bs", &record);
        entry.set("size", &size);
        if let Some((key, value)) = terms {
            entry.set(key, value);
        }
        self.note(&mut entry, test >= STDIO);
        self.found.keep(entry);
    }

    fn state(&self, entry: &mut Entry, figure: f64) {
        match self.unit {
            Some(Unit::KibPerS) => entry.state(Metric::BYTES_PER_S, Some(figure * 1024.0)),
            Some(Unit::Ops) => entry.state(Metric::IOPS, Some(figure)),
            Some(Unit::MicrosPerOp) => entry.state(Metric::LATENCY_MEAN, Some(figure * 1e3)),
            Some(Unit::Unknown) => {
                entry.add("result", Some(figure), "");
                entry.notes.push("the text does not say what iozone's figures are in".into());
            }
            None => {
                entry.state(Metric::BYTES_PER_S, Some(figure * 1024.0));
                let note =
                    "the text does not say what iozone's figures are in: kB/s is what it writes by default";
                entry.notes.push(note.into());
            }
        }
    }

    fn note(&self, entry: &mut Entry, is_stdio: bool) {
        entry.time = self.time;
        if self.direct && !is_stdio {
            entry.set("direct", "1");
            return;
        }
        let why =
            if self.direct { "O_DIRECT does not reach stdio" } else { "iozone says nothing about O_DIRECT" };
        entry.notes.push(format!("{why}: what memory answered or took may be in the figures"));
    }

    /// Adds a result of throughput mode: `Children see throughput for  4 initial writers = 123456.78 kB/sec`.
    fn children(&mut self, what: &str, rate: (f64, &str), line: usize) {
        let mut entry = Entry { workload: what.to_owned(), line, ..Entry::default() };
        match rate {
            (value, "kB/sec" | "KB/sec" | "Kbytes/sec" | "kBytes/sec") => {
                entry.state(Metric::BYTES_PER_S, Some(value * 1024.0));
            }
            (value, "ops/sec") => entry.state(Metric::IOPS, Some(value)),
            (_, unit) => {
                let text = format!("{what}: {unit}");
                self.found.miss(Line { number: line, text, reason: "no unit of iozone's".into() });
                return;
            }
        }
        self.note(&mut entry, ["fwriter", "freader"].iter().any(|stdio| what.contains(stdio)));
        self.found.keep(entry);
    }
}

/// Returns whether a command requests a unit other than kB/s.
fn asks_for_a_unit(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.any(|word| word.ends_with("iozone"))
        && words.any(|word| word.starts_with('-') && word.contains(['O', 'N']))
}

/// Returns the column heads after file size and record size; `None` unless the line is the last header line of the table.
fn heads(line: &str) -> Option<Vec<&str>> {
    let mut words = line.split_whitespace();
    let is_size = words.next().is_some_and(|word| word.eq_ignore_ascii_case("kb"));
    (is_size && words.next() == Some("reclen")).then(|| words.collect())
}

/// Returns whether `heads` are iozone's column heads: all of them, or the first few if the line above identifies the last ones. Heads may
/// continue on the next line.
fn are_known(heads: &[&str], above: &str, next: Option<&str>) -> bool {
    let expected = ABOVE.iter().copied().take(heads.len().saturating_sub(4));
    let is_rest = |line: &str| line.split_whitespace().next().is_some_and(|word| HEADS.contains(&word));
    heads == HEADS
        || !heads.is_empty()
            && HEADS.starts_with(heads)
            && !next.is_some_and(is_rest)
            && (heads.len() <= 4 || above.split_whitespace().eq(expected))
}

/// Returns the index of the test to which a title in the spreadsheet report belongs, such as `"Re-writer report"`; `None` for other lines.
fn title(line: &str) -> Option<usize> {
    let title = line.strip_prefix('"')?.strip_suffix('"')?.to_ascii_lowercase();
    let title = title.strip_suffix(" report")?;
    TESTS.iter().position(|(_, known, _)| *known == title)
}

/// Text at the start of a result line of throughput mode.
const CHILDREN: &str = "Children see throughput for";

/// Parses a line of throughput mode into the name of the test, and its rate with unit.
fn throughput(line: &str) -> Option<(&str, (f64, &str))> {
    let rest = line.strip_prefix(CHILDREN)?;
    let (what, rate) = rest.split_once('=')?;
    let (value, unit) = rate.trim().split_once(' ')?;
    Some((what.trim(), (number(value)?, unit.trim())))
}

/// Formats a size in kB: `64k`, or `100m` for whole MiB.
fn kib(kib: f64) -> String {
    if kib >= 1024.0 && kib % 1024.0 == 0.0 { format!("{}m", kib / 1024.0) } else { format!("{kib}k") }
}
