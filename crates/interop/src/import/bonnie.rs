//! bonnie++'s output: CSV of 1.03 and of 1.96 to 1.98, and its tables.
//!
//! Rates are KiB a second, which bonnie++ calls K; `+++++` stands for too fast to measure. A latency is the longest of its test.

use std::collections::HashSet;

use super::columns::{may_be_rest, placed, words};
use super::lines::Lines;
use super::quantity::{nanos_in, number, number_and_unit};
use super::{Entry, Found, Line};
use iotax_analysis::Metric;

/// A test: its name here, and its description in iotax's terms.
type Test = (&'static str, &'static [(&'static str, &'static str)]);

/// Those on one large file, in the order of its columns.
const ON_A_FILE: [Test; 6] = [
    ("putc", &[("test", "putc")]),
    ("write", &[("test", "write-new")]),
    ("rewrite", &[("test", "rewrite")]),
    ("getc", &[("test", "getc")]),
    ("read", &[("rw", "read")]),
    ("seeks", &[("test", "seeks")]),
];

/// Those on many files.
const ON_FILES: [Test; 6] = [
    ("seq-create", &[("test", "create")]),
    ("seq-stat", &[("test", "stat")]),
    ("seq-delete", &[("test", "delete")]),
    ("ran-create", &[("test", "create")]),
    ("ran-stat", &[("test", "stat")]),
    ("ran-delete", &[("test", "delete")]),
];

/// The one of [`ON_A_FILE`] whose rate is not of bytes.
const SEEKS: usize = 5;

/// The description of a run in both forms.
#[derive(Default)]
struct About<'a> {
    machine: &'a str,
    size: &'a str,
    chunk: &'a str,
    files: &'a str,
    line: usize,
}

/// bonnie++'s results in a text. Where the text has the CSV of a machine, its table says nothing more.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains(',') && !text.contains("%CP") {
        return None;
    }
    let mut found = Found { tool: "bonnie++", ..Found::default() };
    let lines = Lines::of(text);
    for (i, line) in lines.from(0).enumerate() {
        csv(&lines, line.trim(), i + 1, text.ends_with('\n'), &mut found);
    }
    let told: HashSet<String> = found.entries.iter().filter_map(|entry| entry.target.clone()).collect();
    tables(&lines, &told, &mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Fields of 1.03.
const OLD: usize = 27;

fn csv(lines: &Lines<'_>, line: &str, at: usize, ends: bool, found: &mut Found) {
    let Some(wanted) = fields_of(line).filter(|_| !found.is_cut) else { return };
    // A line that was broken goes on where it was broken.
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
    // The last field may be cut off at the end of a text or before another piece of a line.
    let is_sure = next.map_or(ends, |next| !is_rest(next));
    if wanted == OLD {
        old(&fields, at, is_sure, found);
    } else {
        new(&fields, at, found);
    }
}

/// True for a rate and a share of the CPUs: both figures, both too fast to measure, or both left out.
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

/// The number of fields of a line that begins as one of bonnie++'s does.
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

fn is_version(text: &str) -> bool {
    text.starts_with(['1', '2']) && text.contains('.')
}

/// `300M`, `2G`, `2G:64k`.
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

/// True if it can be the rest of a line of fields.
fn is_rest(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty()
        && fields_of(line).is_none()
        && line.chars().all(|c| is_of_old(c) || matches!(c, ',' | 'u' | 'm' | 's'))
}

/// Name, size, six pairs, files, six pairs.
fn old(fields: &[&str], line: usize, is_sure: bool, found: &mut Found) {
    let (size, chunk) = fields[1].split_once(':').unwrap_or((fields[1], ""));
    let about = About { machine: fields[0], size, chunk, files: fields[14], line };
    let mut fields = fields.to_vec();
    // A share that is a digit alone may have lost the second one with the rest of its line, and 10 the third: nothing follows it.
    if !is_sure || fields[OLD - 1] == "10" || fields[OLD - 1].len() == 1 {
        fields[OLD - 1] = "";
    }
    add(found, &about, &ON_A_FILE, &fields[2..14], &[]);
    add(found, &about, &ON_FILES, &fields[15..27], &[]);
}

/// Formats 1.96 to 1.98; the last has the numbers of seeks and of seekers before the figures.
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

/// Entries of six tests: each a rate and a share of a CPU, and a latency where there are any.
fn add(found: &mut Found, about: &About<'_>, tests: &[Test; 6], pairs: &[&str], latencies: &[&str]) {
    for (i, (name, keys)) in tests.iter().enumerate() {
        let (rate, cpu) = (pairs[2 * i], pairs[2 * i + 1]);
        let latency = latencies.get(i).copied().unwrap_or_default();
        let is_of_a_file = tests[0].0 == ON_A_FILE[0].0;
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
        if !entry.has_figures() && rate != "+++++" {
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
        if rate == "+++++" {
            entry.notes.push(format!("{name} was too fast for bonnie++ to tell its rate"));
        }
        found.keep(entry);
    }
}

/// `47392`, or `376k`, `117m`, `1.4g` as tables of 2.00 have it.
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

/// `90363us`, `411ms`.
fn time(text: &str) -> Option<f64> {
    let (value, unit) = number_and_unit(text)?;
    Some(value * nanos_in(unit).filter(|_| matches!(unit, "us" | "ms" | "s"))?)
}

/// Reads the tables of machines without CSV in `told`.
fn tables(lines: &Lines<'_>, told: &HashSet<String>, found: &mut Found) {
    let mut machine = "";
    for (i, line) in lines.from(0).enumerate() {
        if !line.contains("%CP") || line.contains("---") {
            continue;
        }
        let above = lines.from(i.saturating_sub(3)).take(i.min(3)).collect::<Vec<_>>();
        let above = above.into_iter().rev().collect::<Vec<_>>().join(" ");
        let is_on_a_file = above.contains("--Seeks--");
        let on_files = above.contains("-Delete--");
        if let Some(version) = above.split("Version").nth(1).and_then(|rest| rest.split_whitespace().next())
            && number(version.trim_end_matches(char::is_alphabetic)).is_some()
        {
            found.version.get_or_insert_with(|| version.to_owned());
        }
        let Some(row) = lines.get(i + 1).filter(|_| is_on_a_file != on_files) else { continue };
        let is_whole = !may_be_rest(lines.get(i + 2));
        let Some((name, figures)) = row_of(line, row).filter(|_| is_whole) else {
            let reason = "its figures do not stand beneath their heads".to_owned();
            found.miss(Line { number: i + 2, text: row.to_owned(), reason });
            continue;
        };
        let is_its = match name.as_slice() {
            [_, size] if is_on_a_file => is_size(size),
            [.., files] => on_files && files.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '/')),
            [] => false,
        };
        if !is_its {
            let reason = "not a row of the heads above it".to_owned();
            found.miss(Line { number: i + 2, text: row.to_owned(), reason });
            continue;
        }
        let mut about = About { machine, line: i + 2, ..About::default() };
        if is_on_a_file {
            machine = name.first().copied().unwrap_or_default();
            about.machine = machine;
            let size: &str = name.get(1).copied().unwrap_or_default();
            (about.size, about.chunk) = size.split_once(':').unwrap_or((size, ""));
            about.chunk = about.chunk.trim_start_matches(':').split(':').next().unwrap_or_default();
        } else {
            about.files = name.last().copied().unwrap_or_default();
        }
        if told.contains(about.machine) {
            continue;
        }
        let latencies = lines.get(i + 2).map(|next| latencies(line, next)).unwrap_or_default();
        // Without K in the head only a suffix gives a rate's unit.
        let is_told = line.contains("K/sec");
        let unit = |(i, text)| {
            let plain = i % 2 == 0 && i != 2 * SEEKS && is_on_a_file && number(text).is_some();
            if plain && !is_told { "" } else { text }
        };
        let figures: Vec<&str> = figures.iter().copied().enumerate().map(unit).collect();
        let tests = if is_on_a_file { &ON_A_FILE } else { &ON_FILES };
        add(found, &about, tests, &figures, &latencies);
    }
}

/// The words before the figures, and the twelve figures, which are empty for tests that were left out.
fn row_of<'a>(head: &str, row: &'a str) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
    let ends: Vec<usize> = words(head)
        .into_iter()
        .filter(|(_, word)| word.ends_with("/sec") || *word == "%CP")
        .map(|(end, _)| end)
        .collect();
    if ends.len() != 12 {
        return None;
    }
    let row = words(row);
    let first = ends[0].saturating_sub(5);
    let (names, figures): (Vec<_>, Vec<_>) = row.iter().partition(|(end, _)| *end <= first);
    let placed = placed(&figures, &ends, 0)?;
    Some((
        names.into_iter().map(|(_, word)| word).collect(),
        placed.into_iter().map(Option::unwrap_or_default).collect(),
    ))
}

/// The six of the line after the figures, each within its pair of columns.
fn latencies<'a>(head: &str, line: &'a str) -> Vec<&'a str> {
    let mut found = vec![""; 6];
    if !line.trim_start().starts_with("Latency") {
        return found;
    }
    let pairs: Vec<usize> =
        words(head).into_iter().filter(|(_, word)| *word == "%CP").map(|(end, _)| end).collect();
    for (end, word) in words(line).into_iter().skip(1) {
        if let Some(pair) = pairs.iter().position(|at| end <= *at).filter(|pair| *pair < 6) {
            found[pair] = word;
        }
    }
    found
}
