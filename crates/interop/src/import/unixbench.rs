//! Reads UnixBench's report (5 and 6, the BYTE benchmark): scores of each test, and index values.
//!
//! Scores of file copies are byte rates; other scores match no iotax metric and keep their unit.

use std::collections::{HashMap, VecDeque};

use iotax_model::units::Bytes;

use super::lines::lines;
use super::parse_util::{decimal, half_a_digit, not_understood};
use super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

/// Finds UnixBench's results in a text; `None` if the text has no output of UnixBench. With several parallel copies, the workload's name
/// includes their number.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("sample") && !text.contains("INDEX") && !TESTS.iter().any(|test| text.contains(test)) {
        return None;
    }
    let mut found = Found { tool: "UnixBench", ..Found::default() };
    let mut run = Run::default();
    let mut lines = lines(text).enumerate().peekable();
    while let Some((i, line)) = lines.next() {
        let next = lines.peek().map_or("", |(_, next)| *next);
        let wrapped = || (Score::of(next).is_none()).then(|| Score::of(&format!("{line} {next}"))).flatten();
        if let Some(version) = version(line) {
            found.version = Some(version);
        } else if let Some(begin) = line.trim_start().strip_prefix("Benchmark Run:") {
            let time = Stamp::of(begin);
            std::mem::replace(&mut run, Run { time, ..Run::default() }).close(&mut found);
        } else if let Some(copies) = copies(line) {
            run.copies = Some(copies);
        } else if line.contains("BASELINE") && line.contains("RESULT") && line.contains("INDEX") {
            run.in_table = true;
        } else if let Some(score) = Score::of(line) {
            run.scores.push((i + 1, score));
        } else if let Some(score) = wrapped() {
            run.scores.push((i + 1, score));
            lines.next();
        } else if Score::is_one(line) {
            found.miss(not_understood(
                i + 1,
                line,
                "a score without one of the name, the value and a unit of UnixBench",
            ));
        } else if run.in_table || TESTS.iter().any(|test| line.trim_start().starts_with(test)) {
            run.table(line, next, i + 1, &mut found);
        }
    }
    run.close(&mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Tests with an index; their rows are recognised even without the column heads of the table.
pub(super) const TESTS: [&str; 9] = [
    "Dhrystone 2 using",
    "Double-Precision Whetstone",
    "Execl Throughput",
    "File Copy ",
    "Pipe Throughput",
    "Pipe-based Context Switching",
    "Process Creation",
    "Shell Scripts (",
    "System Call Overhead",
];

/// Parses the version in `BYTE UNIX Benchmarks (Version 5.1.3)`.
fn version(line: &str) -> Option<String> {
    let (_, version) = line.split_once("BYTE UNIX Benchmarks (Version ")?;
    Some(version.split(')').next()?.to_owned())
}

/// Parses the number of copies in `4 CPUs in system; running 1 parallel copy of tests`.
fn copies(line: &str) -> Option<u32> {
    let (_, after) = line.split_once("running ")?;
    let (count, what) = after.split_once(' ')?;
    what.starts_with("parallel cop").then(|| count.parse().ok()).flatten()
}

/// The score of a test: `Execl Throughput   1534.1 lps   (29.9 s, 2 samples)`.
#[derive(Debug)]
struct Score {
    name: String,
    value: f64,
    unit: String,
    samples: f64,
}

impl Score {
    /// Returns whether a line ends as a score does: `(29.9 s, 2 samples)`.
    fn is_one(line: &str) -> bool {
        Self::end(line).is_some()
    }

    /// Splits a line into the text before `(29.9 s, 2 samples)`, and the number of samples.
    fn end(line: &str) -> Option<(&str, &str)> {
        let inside =
            line.trim_end().strip_suffix("samples)").or_else(|| line.trim_end().strip_suffix("sample)"))?;
        let (before, parenthesis) = inside.rsplit_once('(')?;
        let (_, samples) = parenthesis.split_once("s, ").or_else(|| parenthesis.split_once("s,"))?;
        Some((before, samples))
    }

    fn of(line: &str) -> Option<Self> {
        let (before, samples) = Self::end(line)?;
        let words: Vec<&str> = before.split_whitespace().collect();
        let [name @ .., value, unit] = &words[..] else { return None };
        let name = name.join(" ");
        let known = matches!(*unit, "lps" | "lpm" | "KBps" | "MWIPS" | "fps" | "tps");
        (known && is_name(&name)).then_some(())?;
        Some(Self {
            name,
            value: decimal(value)?,
            unit: (*unit).to_owned(),
            samples: decimal(samples.trim())?,
        })
    }
}

/// Returns whether a text starts with a capital letter or a digit, like the name of every test. The rest of a wrapped line does not.
fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase() || c.is_ascii_digit())
        && text.contains(char::is_alphabetic)
}

/// Returns whether a figure has one decimal, as all figures of the table do; another one is truncated.
fn has_one_decimal(word: &str) -> bool {
    word.rfind(['.', ',']).is_some_and(|point| point + 2 == word.len())
}

/// A row of the table of index values.
#[derive(Debug)]
struct Rated {
    name: String,
    result: f64,
    /// Baseline, and index relative to the baseline; `None` for tests with dashes instead.
    index: Option<(f64, f64)>,
}

impl Rated {
    /// Parses a row with dashes instead of baseline and index, or with an index that is ten times the result over the baseline, rounded.
    /// `None` for other lines.
    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name @ .., baseline, result, index] = &words[..] else { return None };
        if [*baseline, *index] == ["---"; 2] {
            let (name, result) = (name.join(" "), decimal(result).filter(|_| has_one_decimal(result))?);
            return is_name(&name).then_some(Self { name, result, index: None });
        }
        has_one_decimal(index).then_some(())?;
        let slack = half_a_digit(index) * 1.1;
        let name = name.join(" ");
        let [baseline, result, index] = [baseline, result, index].map(|word| decimal(word));
        let (baseline, result, index) = (baseline?, result?, index?);
        let given = result / baseline * 10.0;
        // The index is more precise than a small result.
        ((given - index).abs() <= slack + 0.5 / baseline && is_name(&name)).then_some(Self {
            name,
            result,
            index: Some((baseline, index)),
        })
    }
}

impl Rated {
    fn add_to(&self, entry: &mut Entry) {
        entry.add("baseline", self.index.map(|(baseline, _)| baseline), "");
        entry.add("index", self.index.map(|(_, index)| index), "");
    }
}

#[derive(Default)]
struct Run {
    /// Start time of the run, if printed.
    time: Option<Stamp>,
    copies: Option<u32>,
    scores: Vec<(usize, Score)>,
    indices: Vec<(usize, Rated)>,
    /// Overall index scores: line number, name and value.
    totals: Vec<(usize, String, f64)>,
    in_table: bool,
}

impl Run {
    fn table(&mut self, line: &str, next: &str, number: usize, found: &mut Found) {
        let trimmed = line.trim();
        let wrapped = || (Rated::of(next).is_none()).then(|| Rated::of(&format!("{line} {next}"))).flatten();
        if let Some(index) = Rated::of(line).or_else(wrapped) {
            self.indices.push((number, index));
        } else if let Some(at) = trimmed.find("Index Score") {
            let last = trimmed[at + 11..].split_whitespace().last();
            let score = last.filter(|word| has_one_decimal(word)).and_then(decimal);
            match score {
                Some(score) => {
                    let partial = trimmed.contains("Partial");
                    let name = if partial { "Index Score (partial)" } else { "Index Score" };
                    self.totals.push((number, name.to_owned(), score));
                }
                None => found.miss(not_understood(number, line, "no score in it")),
            }
            self.in_table = false;
        } else if !trimmed.is_empty()
            && !trimmed.starts_with('=')
            && trimmed.split_whitespace().any(|w| decimal(w).is_some())
        {
            // A test that was not run has dashes.
            found.miss(not_understood(
                number,
                line,
                "the index was cut, or is not ten times result over baseline",
            ));
        }
    }

    fn close(self, found: &mut Found) {
        // A score and its index row print the same result, by which they are matched.
        let mut rated: HashMap<(&str, u64), VecDeque<&(usize, Rated)>> = HashMap::new();
        for row in &self.indices {
            rated.entry((&row.1.name, row.1.result.to_bits())).or_default().push_back(row);
        }
        for (line, score) in &self.scores {
            let mut entry = self.entry(&score.name, *line);
            Self::score(&mut entry, &score.name, score.value, &score.unit);
            entry.add("samples", Some(score.samples), "");
            let same = rated.get_mut(&(score.name.as_str(), score.value.to_bits()));
            if let Some((_, index)) = same.and_then(VecDeque::pop_front) {
                index.add_to(&mut entry);
            }
            found.keep(entry);
        }
        // The remaining index rows have no matching score.
        let mut alone: Vec<&(usize, Rated)> = rated.into_values().flatten().collect();
        alone.sort_by_key(|(line, _)| *line);
        for (line, index) in alone {
            let mut entry = self.entry(&index.name, *line);
            let unit = if index.name.starts_with("File Copy") { "KBps" } else { "" };
            Self::score(&mut entry, &index.name, index.result, unit);
            index.add_to(&mut entry);
            found.keep(entry);
        }
        for (line, name, score) in &self.totals {
            let mut entry = self.entry(name, *line);
            entry.add("index", Some(*score), "");
            found.keep(entry);
        }
    }

    /// Returns the workload's name for a test, with the number of copies if there are several.
    fn called(&self, test: &str) -> String {
        match self.copies {
            Some(copies) if copies > 1 => format!("{test}, {copies} copies"),
            _ => test.to_owned(),
        }
    }

    fn entry(&self, test: &str, line: usize) -> Entry {
        let mut entry = Entry { workload: self.called(test), time: self.time, line, ..Entry::default() };
        entry.keys.numjobs = self.copies;
        entry
    }

    fn score(entry: &mut Entry, test: &str, value: f64, unit: &str) {
        // Only this test has the unit, so the test is recognised even if the beginning of its name is missing.
        if unit == "KBps" {
            entry.state(Metric::BYTES_PER_S, Some(value * 1024.0));
            let whole = test.strip_prefix("File Copy ").unwrap_or_default();
            entry.keys.bs = whole.split_whitespace().next().and_then(|bytes| bytes.parse().ok()).map(Bytes);
            entry.notes.push("the copies go through the page cache".into());
        } else {
            entry.add("score", Some(value), unit);
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
mod tests {
    use super::*;

    fn sample() -> String {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import/unixbench-5.1.3.txt");
        std::fs::read_to_string(data).expect("there")
    }

    fn other(entry: &Entry, name: &str) -> Option<f64> {
        entry.stated.others.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    #[test]
    fn every_test_has_its_score_and_index_for_one_copy_and_for_several() {
        let found = read(&sample()).expect("UnixBench's");
        assert_eq!(
            (found.version.as_deref(), found.entries.len(), found.not_understood.len()),
            (Some("5.1.3"), 26, 0)
        );
        let of = |name: &str| found.entries.iter().find(|entry| entry.workload == name).expect(name);
        let copy = of("File Copy 1024 bufsize 2000 maxblocks");
        assert_eq!(
            (copy.stated.metrics["bytes_per_s"], copy.keys.bs),
            (612_345.6 * 1024.0, Some(Bytes(1024)))
        );
        assert_eq!((copy.keys.numjobs, other(copy, "index")), (Some(1), Some(1546.3)));
        let calls = of("System Call Overhead, 4 copies");
        assert_eq!((other(calls, "score"), calls.keys.numjobs), (Some(4_812_345.0), Some(4)));
        assert_eq!(calls.stated.others[0].unit, "lps");
        assert_eq!(other(of("Index Score, 4 copies"), "index"), Some(2898.0));
    }

    #[test]
    fn the_table_alone_is_enough_and_an_index_that_does_not_fit_is_listed() {
        let text = "System Benchmarks Index Values               BASELINE       RESULT    INDEX\n\
                    File Copy 256 bufsize 500 maxblocks            1655.0     165500,0   1000,0\n\
                    Pipe Throughput                               12440.0    1244000.0    900.0\n";
        let found = read(text).expect("UnixBench's");
        assert_eq!(found.entries[0].stated.metrics["bytes_per_s"], 165_500.0 * 1024.0);
        assert_eq!((found.entries.len(), found.not_understood[0].number), (1, 3));
    }

    #[test]
    fn a_narrow_window_and_a_cut_are_no_other_figures() {
        let narrow = sample().replace(" KBps  (", " KBps\n(");
        assert_eq!(read(&narrow).expect("read").entries.len(), 26);
        for index in ["3020", "3020.", "3020.0"] {
            let row = format!("INDEX BASELINE RESULT\nShell Scripts (8 concurrent) 6.0 1812.0 {index}\n");
            let entries = read(&row).map_or(0, |found| found.entries.len());
            assert_eq!(entries > 0, index == "3020.0", "{index}");
        }
        let cut = "Some words that end in 612345.6 KBps  (30.0 s";
        assert!(read(cut).is_none());
    }
}
