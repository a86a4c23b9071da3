//! Reads bonnie++'s output: CSV of 1.03 and of 1.96 to 1.98, and its tables.
//!
//! Rates of the tests that read or write one large file are in KiB/s (`K/sec`); tables of 2.00 have suffixes (`376k`, `117m`). Rates of
//! seeks and of the tests on many files are in operations per second. `+++++` means too fast to measure. A latency is the longest in its
//! test.

use std::collections::HashMap;

use super::columns::{in_columns, may_be_rest, words};
use super::lines::Lines;
use super::parse_util::agree;
use super::quantity::{nanos_in, number, number_and_unit};
use super::{Entry, Found, Line, MOST_NAMES};
use iotax_analysis::Metric;

/// A test: its name in bonnie++'s CSV, and the workload keys that describe it in iotax.
type Test = (&'static str, &'static [(&'static str, &'static str)]);

/// Tests on one large file, in the order of the columns.
const ON_A_FILE: [Test; 6] = [
    ("putc", &[("test", "putc")]),
    ("put_block", &[("test", "write-new")]),
    ("rewrite", &[("test", "rewrite")]),
    ("getc", &[("test", "getc")]),
    ("get_block", &[("rw", "read")]),
    ("seeks", &[("test", "seeks")]),
];

/// Tests on many files, in the order of the columns.
const ON_FILES: [Test; 6] = [
    ("seq_create", &[("test", "create")]),
    ("seq_stat", &[("test", "stat")]),
    ("seq_del", &[("test", "delete")]),
    ("ran_create", &[("test", "create")]),
    ("ran_stat", &[("test", "stat")]),
    ("ran_del", &[("test", "delete")]),
];

/// Index in [`ON_A_FILE`] of the seek test, whose rate is not in bytes.
const SEEKS: usize = 5;

/// Facts about a run that CSV and tables share, such as machine and file size.
#[derive(Default)]
struct About<'a> {
    machine: &'a str,
    size: &'a str,
    chunk: &'a str,
    files: &'a str,
    line: usize,
}

/// Finds bonnie++'s results in a text; `None` if the text has no output of bonnie++. Skips tables that repeat the figures of CSV lines.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains(',') && !text.contains("%CP") {
        return None;
    }
    let mut found = Found { tool: "bonnie++", ..Found::default() };
    let lines = Lines::of(text);
    for (i, line) in lines.from(0).enumerate() {
        csv(&lines, line.trim(), i + 1, text.ends_with('\n'), &mut found);
    }
    tables(&lines, &mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Number of commas in a CSV line of bonnie++ 1.9x without latencies. A line with as many or more is reported if its version is unknown.
const NEWEST_WITHOUT_LATENCIES: usize = 30;

/// Number of fields in a CSV line of bonnie++ 1.03.
const OLD: usize = 27;

fn csv(lines: &Lines<'_>, line: &str, at: usize, ends: bool, found: &mut Found) {
    let Some(wanted) = fields_of(line).filter(|_| !found.is_cut) else {
        if line.starts_with("1.9") && line.matches(',').count() >= NEWEST_WITHOUT_LATENCIES {
            let reason = "a version of bonnie++'s CSV that iotax does not know".to_owned();
            found.miss(Line { number: at, text: line.to_owned(), reason });
        }
        return;
    };
    // A line that a terminal wrapped continues on the next line.
    let mut whole = line.to_owned();
    let mut more = lines.from(at).take(8);
    while whole.split(',').count() < wanted {
        let Some(next) = more.next().filter(|next| is_rest(next)) else { break };
        whole.push_str(next.trim());
    }
    let next = more.next();
    let fields: Vec<&str> = whole.split(',').collect();
    let first = if wanted == OLD { [2, 15] } else { [wanted - 41, wanted - 24] };
    let is_sound =
        fields.len() == wanted && first.iter().all(|at| fields[*at..at + 12].chunks(2).all(is_pair));
    if !is_sound {
        let reason = format!("{} fields of {wanted}, or not the pairs of rates and CPU", fields.len());
        found.miss(Line { number: at, text: line.to_owned(), reason });
        return;
    }
    // The last field may be cut off at the end of the text, or before another piece of the line.
    let is_sure = next.map_or(ends, |next| !is_rest(next));
    if wanted == OLD {
        old(&fields, at, is_sure, found);
    } else {
        new(&fields, at, found);
    }
}

/// Returns whether two fields are a rate and a CPU share: a number with or without a share, both too fast to measure, or both empty.
fn is_pair(pair: &[&str]) -> bool {
    match pair {
        ["", ""] | ["+++++", "+++" | "?" | ""] => true,
        [rate, cpu] => {
            number(rate).is_some()
                && (cpu.is_empty() || cpu.ends_with('?') || cpu.len() <= 4 && number(cpu).is_some())
        }
        _ => false,
    }
}

/// Returns the number of fields if a line looks like bonnie++'s CSV; else `None`.
fn fields_of(line: &str) -> Option<usize> {
    let fields: Vec<&str> = line.split(',').collect();
    match fields.as_slice() {
        ["1.96" | "1.97", version, ..] if is_version(version) => Some(48),
        ["1.98", version, ..] if is_version(version) => Some(50),
        [name, size, rest @ ..]
            if rest.len() >= 8 && !name.contains(char::is_whitespace) && is_size(size) =>
        {
            rest.iter().take(rest.len() - 1).all(|field| is_old_field(field)).then_some(OLD)
        }
        _ => None,
    }
}

/// Returns whether a text is a version such as `2.00a`, or iotax's version.
fn is_version(text: &str) -> bool {
    text.strip_prefix("iotax-").unwrap_or(text).starts_with(|c: char| c.is_ascii_digit())
        && text.contains('.')
}

/// Returns whether a text is a file size such as `300M`, `2G` or `2G:64k`.
fn is_size(text: &str) -> bool {
    let size = text.split(':').next().unwrap_or_default();
    number_and_unit(size).is_some_and(|(_, unit)| matches!(unit, "k" | "M" | "G" | "T"))
}

fn is_old_field(text: &str) -> bool {
    text.chars().all(is_of_old)
}

const fn is_of_old(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '+' | '.' | ':' | '/')
}

/// Returns whether a line can be the rest of a CSV line that a terminal wrapped.
fn is_rest(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty()
        && fields_of(line).is_none()
        && line.chars().all(|c| is_of_old(c) || matches!(c, ',' | 'u' | 'm' | 's'))
}

/// Reads a CSV line of 1.03: name, size, six pairs of rate and CPU share, number of files, six pairs.
fn old(fields: &[&str], line: usize, is_sure: bool, found: &mut Found) {
    let (size, chunk) = fields[1].split_once(':').unwrap_or((fields[1], ""));
    let about = About { machine: fields[0], size, chunk, files: fields[14], line };
    let mut fields = fields.to_vec();
    // A last CPU share of one digit, or of 10, may be truncated: no field after it shows that it is complete.
    if !is_sure || fields[OLD - 1] == "10" || fields[OLD - 1].len() == 1 {
        fields[OLD - 1] = "";
    }
    add(found, &about, &ON_A_FILE, &fields[2..14], &[]);
    add(found, &about, &ON_FILES, &fields[15..27], &[]);
}

/// Reads a CSV line of 1.96 to 1.98. Since 1.98 it has two more fields before the figures: the numbers of seeks and of seekers.
fn new(fields: &[&str], line: usize, found: &mut Found) {
    let first = if fields[0] == "1.98" { 9 } else { 7 };
    found.version.get_or_insert_with(|| fields[1].to_owned());
    let files = fields[first + 12];
    let about = About { machine: fields[2], size: fields[5], chunk: fields[6], files, line };
    let before = found.entries.len();
    let (on_files, latencies) = (first + 17, first + 29);
    add(found, &about, &ON_A_FILE, &fields[first..first + 12], &fields[latencies..latencies + 6]);
    add(found, &about, &ON_FILES, &fields[on_files..latencies], &fields[latencies + 6..latencies + 12]);
    for entry in &mut found.entries[before..] {
        if fields[3] != "1" {
            entry.notes.push(format!("{} at once", fields[3]));
        }
    }
}

/// Adds entries for six tests, each with a rate, a CPU share and possibly a latency.
fn add(found: &mut Found, about: &About<'_>, tests: &[Test; 6], pairs: &[&str], latencies: &[&str]) {
    for (i, (name, keys)) in tests.iter().enumerate() {
        let (rate, cpu) = (pairs[2 * i], pairs[2 * i + 1]);
        let latency = latencies.get(i).copied().unwrap_or_default();
        let is_of_a_file = tests[0].0 == ON_A_FILE[0].0;
        // Tables of 2.00 print 0 for a rate that is too fast to measure.
        let is_too_fast = rate == "+++++" || cpu == "+++";
        let mut entry = Entry {
            target: Some(about.machine.to_owned()).filter(|name| !name.is_empty()),
            workload: (*name).to_owned(),
            line: about.line,
            ..Entry::default()
        };
        if is_of_a_file && i != SEEKS {
            entry.state(Metric::BYTES_PER_S, kibibytes(rate).map(|kib| kib * 1024.0));
        } else {
            entry.state(Metric::IOPS, number(rate));
        }
        entry.add("cpu", number(cpu), "%");
        entry.add("latency_max", time(latency), "ns");
        if !entry.has_figures() && !is_too_fast {
            continue;
        }
        keys.iter().for_each(|(key, value)| {
            entry.set(key, value);
        });
        if is_of_a_file {
            entry.set("size", about.size);
            entry.set("bs", about.chunk);
        } else if !about.files.is_empty() {
            entry.notes.push(format!("files: {}", about.files));
        }
        if is_too_fast {
            entry.notes.push(format!("{name} was too fast for bonnie++ to tell its rate"));
        }
        found.keep(entry);
    }
}

/// Parses a rate in KiB/s: `47392`, or as in tables of 2.00 `376k`, `117m`, `1.4g`.
fn kibibytes(text: &str) -> Option<f64> {
    let (value, unit) = number_and_unit(text)?;
    let factor = match unit {
        "" | "k" => 1.0,
        "m" => 1024.0,
        "g" => 1024.0 * 1024.0,
        _ => return None,
    };
    Some(value * factor)
}

/// Parses a latency such as `90363us` or `411ms` into nanoseconds.
fn time(text: &str) -> Option<f64> {
    let (value, unit) = number_and_unit(text)?;
    Some(value * nanos_in(unit).filter(|_| matches!(unit, "us" | "ms" | "s"))?)
}

/// A row of a table.
struct Table {
    machine: String,
    /// True if the machine's name may be truncated to the width of its column.
    is_name_cut: bool,
    is_on_a_file: bool,
    entries: Vec<Entry>,
    /// The latency line, if it is unclear which test each latency belongs to.
    doubt: Option<Line>,
}

/// Reads the tables, except those that repeat CSV lines.
fn tables(lines: &Lines<'_>, found: &mut Found) {
    let mut tables = Vec::new();
    let mut machine = String::new();
    for (i, _) in lines.from(0).enumerate().filter(|(_, line)| line.contains("%CP") && !line.contains("---"))
    {
        let mut heads = Heads::of(lines, i);
        if let Some(version) = heads.version.take() {
            found.version.get_or_insert(version);
        }
        let mut at = i + 1 + usize::from(lines.get(i + 1).is_some_and(is_ruler));
        while let Some(row) = lines.get(at) {
            match heads.table(lines, at, &mut machine) {
                Ok(Some(table)) => tables.push(table),
                Ok(None) => break,
                Err(reason) => {
                    found.miss(Line { number: at + 1, text: row.to_owned(), reason: reason.to_owned() });
                    break;
                }
            }
            let is_between = |line: &str| is_ruler(line) || is_latencies(line);
            at += 1 + lines.from(at + 1).take(2).take_while(|line| is_between(line)).count();
            if !lines.get(at).is_some_and(is_figures) {
                break;
            }
        }
    }
    if tables.is_empty() {
        return;
    }
    let csv_rates = CsvRates::by(&found.entries);
    for table in tables.iter_mut().filter(|table| table.is_name_cut) {
        table.machine = csv_rates.whole_name(&table.machine);
    }
    let mut number: HashMap<(String, bool), usize> = HashMap::new();
    for table in &tables {
        *number.entry((table.machine.clone(), table.is_on_a_file)).or_default() += 1;
    }
    for mut table in tables {
        if csv_rates.has(&table, number[&(table.machine.clone(), table.is_on_a_file)]) {
            continue;
        }
        table.doubt.into_iter().for_each(|line| found.miss(line));
        let target = Some(table.machine).filter(|name| !name.is_empty());
        table.entries.iter_mut().for_each(|entry| entry.target.clone_from(&target));
        table.entries.into_iter().for_each(|entry| found.keep(entry));
    }
}

/// Header lines of a table.
struct Heads<'t> {
    /// The last header line.
    last: &'t str,
    /// True for tests on one file, false for tests on many files; `None` if the header does not show this.
    is_on_a_file: Option<bool>,
    /// Name of the machine, if the header has it before the column heads.
    machine: Option<String>,
    version: Option<String>,
}

impl<'t> Heads<'t> {
    /// Parses the header whose last line has index `i`.
    fn of(lines: &Lines<'t>, i: usize) -> Self {
        let above: Vec<&str> =
            lines.from(i.saturating_sub(5)).take(i.min(5)).filter(|line| !is_ruler(line)).collect();
        let above = &above[above.len().saturating_sub(3)..];
        let has = |name: &str, plain: &str| {
            let is_cell =
                |line: &&str| cells(line).iter().any(|cell| cell.trim_matches(['-', '*', ' ']) == name);
            above.iter().any(|line| line.contains(plain) || is_cell(line))
        };
        let version = above.iter().rev().find_map(|line| {
            let version = line.split_once("Version")?.1.trim_start_matches(['|', ' ']);
            let version = version.split([' ', '|']).next()?;
            number(version.trim_end_matches(char::is_alphabetic)).map(|_| version.to_owned())
        });
        let before =
            above.last().and_then(|line| line.trim_start_matches(['|', ' ']).split([' ', '|']).next());
        Self {
            last: lines.get(i).unwrap_or_default(),
            is_on_a_file: match (has("Seeks", "--Seeks--"), has("Delete", "-Delete--")) {
                (true, false) => Some(true),
                (false, true) => Some(false),
                _ => None,
            },
            machine: before.filter(|word| !word.is_empty() && !word.starts_with('-')).map(str::to_owned),
            version,
        }
    }

    /// Parses the table row at line index `at`; `None` if the line is not a row. Fails with the reason if the row is damaged.
    fn table(
        &mut self,
        lines: &Lines<'_>,
        at: usize,
        machine: &mut String,
    ) -> Result<Option<Table>, &'static str> {
        let row = lines.get(at).unwrap_or_default();
        let Some(is_on_a_file) = self.is_on_a_file else {
            return if is_figures(row) { Err("the heads above its columns are not there") } else { Ok(None) };
        };
        let (name, figures) = row_of(self.last, row)?;
        if may_be_rest(lines.get(at + 1)) {
            return Err(MISALIGNED);
        }
        let is_count = |files: &str| files.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '/'));
        let mut about = About { line: at + 1, ..About::default() };
        match name[..] {
            [ref machines @ .., size] if is_on_a_file && machines.len() < 2 && is_size(size) => {
                *machine = machines.concat();
                (about.size, about.chunk) = size.split_once(':').unwrap_or((size, ""));
                about.chunk = about.chunk.trim_start_matches(':').split(':').next().unwrap_or_default();
            }
            [.., files] if !is_on_a_file && is_count(files) => {
                about.files = files;
                // Since 2.00 the header has the machine's name; before, the row has it.
                let name_in_row = self.machine.take().or((name.len() > 1).then(|| name[0].to_owned()));
                if let Some(name_in_row) = name_in_row.filter(|name_in_row| !machine.starts_with(name_in_row))
                {
                    *machine = name_in_row;
                }
            }
            _ => return Err("not a row of the heads above it"),
        }
        let next = lines.get(at + 1).filter(|next| is_latencies(next));
        let latencies = next.map_or(Some(vec![]), |next| latencies(&figures, next));
        let doubt = latencies.is_none().then(|| {
            let reason =
                "not one latency for each test of the row above it, so that nothing tells which is whose";
            Line { number: at + 2, text: next.unwrap_or_default().to_owned(), reason: reason.to_owned() }
        });
        // Without `K/sec` in the header, only a suffix gives a rate's unit.
        let has_unit = self.last.contains("K/sec");
        let unit = |(i, text)| {
            let plain = i % 2 == 0 && i != 2 * SEEKS && is_on_a_file && number(text).is_some();
            if plain && !has_unit { "" } else { text }
        };
        let figures: Vec<&str> = figures.iter().copied().enumerate().map(unit).collect();
        let tests = if is_on_a_file { &ON_A_FILE } else { &ON_FILES };
        let mut all = Found::default();
        add(&mut all, &about, tests, &figures, &latencies.unwrap_or_default());
        let length = machine.len() + if is_on_a_file { 1 + name[name.len() - 1].len() } else { 0 };
        let (machine, is_name_cut) = (machine.clone(), length >= NAME);
        Ok(Some(Table { machine, is_name_cut, is_on_a_file, entries: all.entries, doubt }))
    }
}

/// Returns whether a line separates the rows of a wiki table: `|---|---|`.
fn is_ruler(line: &str) -> bool {
    line.contains('|') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | '=' | '+' | ' '))
}

fn is_latencies(line: &str) -> bool {
    line.trim_start_matches(['|', ' ']).starts_with("Latency")
}

/// Splits a row of a wiki table into cells; empty for any other line.
fn cells(line: &str) -> Vec<&str> {
    let line = line.trim();
    // Some wikis end cells with two bars.
    let inner = line.trim_matches('|');
    let bar = if inner.contains("||") && !inner.replace("||", "").contains('|') { "||" } else { "|" };
    if !line.contains('|') {
        return vec![];
    }
    let line = line.strip_prefix(bar).or(line.strip_prefix('|')).unwrap_or(line);
    let line = line.strip_suffix(bar).or(line.strip_suffix('|')).unwrap_or(line);
    line.split(bar).map(str::trim).collect()
}

/// Returns whether a line has figures, so that it may be a table row.
fn is_figures(row: &str) -> bool {
    row.split(|c: char| c.is_whitespace() || c == '|')
        .filter(|word| number(word).is_some() || word.starts_with("++"))
        .count()
        > 6
}

/// Largest relative rounding error of a rate: tables of 2.00 show two digits.
const ROUNDING: f64 = 0.06;

/// Width in characters of the machine's name and file size, including a blank.
const NAME: usize = 19;

/// Maximum number of CSV lines of the same machine that are compared with a table row.
const MOST_ALIKE: usize = 100;

/// Rates of the six tests of a kind; `None` if unknown.
type Rates = [Option<f64>; 6];

/// Rates in CSV lines, by machine and by kind of test: true for tests on one file, false for tests on many files.
struct CsvRates(HashMap<(String, bool), Vec<Rates>>);

impl CsvRates {
    fn by(entries: &[Entry]) -> Self {
        let mut rates_by_machine: HashMap<(String, bool), Vec<Rates>> = HashMap::new();
        for line in entries.chunk_by(|one, other| one.line == other.line) {
            let machine = line[0].target.clone().unwrap_or_default();
            for is_on_a_file in [true, false] {
                if line.iter().any(|entry| test(&entry.workload, is_on_a_file).is_some()) {
                    rates_by_machine
                        .entry((machine.clone(), is_on_a_file))
                        .or_default()
                        .push(rates(line, is_on_a_file));
                }
            }
        }
        Self(rates_by_machine)
    }

    /// Completes a truncated machine name if exactly one name in the CSV starts with it.
    fn whole_name(&self, name: &str) -> String {
        let is_known = [true, false].iter().any(|kind| self.0.contains_key(&(name.to_owned(), *kind)));
        let longer = || {
            let known = self.0.keys().take(MOST_NAMES).map(|(known, _)| known);
            let mut fit = known.filter(|known| known.starts_with(name));
            let first = fit.next()?;
            fit.all(|other| other == first).then(|| first.clone())
        };
        let whole = if is_known || name.is_empty() { None } else { longer() };
        whole.unwrap_or_else(|| name.to_owned())
    }

    /// Returns whether the CSV contains this table row, the `number`-th of its machine and kind. True if the CSV has at least that many lines of the
    /// machine and kind, or one with the same rates. A row without a machine name is compared with all lines.
    fn has(&self, table: &Table, number: usize) -> bool {
        let own = rates(&table.entries, table.is_on_a_file);
        let is_same = |pair: (&Option<f64>, &Option<f64>)| match pair {
            (Some(one), Some(other)) => agree(*one, *other, ROUNDING),
            (one, other) => one.is_none() && other.is_none(),
        };
        let is_own = |line: &Rates| line.iter().zip(&own).all(is_same);
        if table.machine.is_empty() {
            let of_kind = self.0.iter().filter(|((_, kind), _)| *kind == table.is_on_a_file);
            return of_kind.flat_map(|(_, lines)| lines).take(MOST_ALIKE).any(is_own);
        }
        let Some(lines) = self.0.get(&(table.machine.clone(), table.is_on_a_file)) else { return false };
        lines.len() >= number || lines.iter().take(MOST_ALIKE).any(is_own)
    }
}

/// Returns the index of a test among the six of its kind; `None` for an unknown name.
fn test(name: &str, is_on_a_file: bool) -> Option<usize> {
    let tests = if is_on_a_file { &ON_A_FILE } else { &ON_FILES };
    tests.iter().position(|(known, _)| *known == name)
}

fn rates(entries: &[Entry], is_on_a_file: bool) -> Rates {
    let mut rates = Rates::default();
    for entry in entries {
        if let Some(index) = test(&entry.workload, is_on_a_file) {
            let of = |metric: Metric| entry.stated.metrics.get(metric.word()).copied();
            rates[index] = of(Metric::BYTES_PER_S).or(of(Metric::IOPS));
        }
    }
    rates
}

const MISALIGNED: &str = "its figures are not below their heads";

/// Width in characters of the blanks that replace a skipped test: rate, CPU share and separators.
const PAIR: usize = 10;

/// The words before the figures of a row, and its figures.
type Row<'a> = (Vec<&'a str>, Vec<&'a str>);

/// Splits a row into the words before the figures and twelve figures, which are empty for skipped tests.
///
/// Twelve figures match the column heads in order. If there are fewer, only the blanks show which are missing. Then the header must be spaced as
/// bonnie++ prints it, and the row must have the blanks of a skipped test.
fn row_of<'a>(head: &str, row: &'a str) -> Result<Row<'a>, &'static str> {
    let (heads, fields) = (cells(head), cells(row));
    if !heads.is_empty() && !fields.is_empty() {
        return row_of_cells(&heads, &fields).ok_or("its cells are not those of the heads above it");
    }
    let ends: Vec<usize> = words(head)
        .into_iter()
        .filter(|(_, word)| word.ends_with("/sec") || *word == "%CP")
        .map(|(end, _)| end)
        .collect();
    if ends.len() != 12 {
        return Err("the heads above it are not those of six tests");
    }
    let all = words(row);
    if let 13..=14 = all.len() {
        let mut names: Vec<&str> = all.into_iter().map(|(_, word)| word).collect();
        let figures = names.split_off(names.len() - 12);
        return Ok((names, figures));
    }
    let is_printed = |(i, end): (usize, &usize)| *end == ends[0] + i / 2 * PAIR + i % 2 * 4;
    if !ends.iter().enumerate().all(is_printed) || !row.contains(&" ".repeat(PAIR)) {
        return Err(
            "its blanks or those of its heads are not as bonnie++ prints them, so that nothing tells which of the twelve \
             figures are missing",
        );
    }
    let (names, figures): (Vec<_>, Vec<_>) =
        all.iter().partition(|(end, _)| *end <= ends[0].saturating_sub(5));
    let in_columns = in_columns(&figures, &ends, 0).ok_or(MISALIGNED)?;
    Ok((
        names.into_iter().map(|(_, word)| word).collect(),
        in_columns.into_iter().map(Option::unwrap_or_default).collect(),
    ))
}

/// Parses a row like [`row_of`], for a wiki table whose cells may span several columns. An empty cell means skipped tests.
fn row_of_cells<'a>(heads: &[&str], fields: &[&'a str]) -> Option<Row<'a>> {
    let (mut names, mut figures) = (Vec::new(), Vec::new());
    for (head, field) in heads.iter().zip(fields) {
        let columns = head.split_whitespace().filter(|word| word.ends_with("/sec") || *word == "%CP").count();
        let words = || field.split_whitespace();
        match columns {
            0 => names.extend(words()),
            _ if field.is_empty() => figures.extend(vec![""; columns]),
            _ if words().count() == columns => figures.extend(words()),
            _ => return None,
        }
    }
    (heads.len() == fields.len() && figures.len() == 12).then_some((names, figures))
}

/// Assigns the latencies in the line below the figures to tests: bonnie++ prints one for each test that ran. `None` if there are not as many
/// latencies as tests.
fn latencies<'a>(figures: &[&str], line: &'a str) -> Option<Vec<&'a str>> {
    let words = line.split(|c: char| c.is_whitespace() || c == '|').filter(|word| !word.is_empty());
    let mut times = words.skip(1);
    let mut of = |pair: &[&str]| {
        if pair == ["", ""] { Some("") } else { times.next().filter(|word| time(word).is_some()) }
    };
    let found: Vec<&str> = figures.chunks(2).map(&mut of).collect::<Option<_>>()?;
    times.next().is_none().then_some(found)
}
