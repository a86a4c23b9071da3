//! Reads `sar -d`: the averages of each device, with columns identified by name.
//!
//! If the text has no averages, figures are means over the intervals, with waits weighted by I/Os. A kB is 1024 bytes, a sector 512.

use std::collections::BTreeMap;

use super::lines::lines;
use super::parse_util::{decimal, not_understood};
use super::{Entry, Found, MOST_ROWS, Stamp};
use iotax_analysis::Metric;

/// Finds `sar -d`'s results in a text; `None` if the text has no output of `sar -d`.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("DEV") || !text.contains("tps") {
        return None;
    }
    let mut found = Found { tool: "sar", ..Found::default() };
    let (mut output, mut heads) = (Output::default(), None);
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            break;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.contains('(') && line.contains("CPU)") {
            std::mem::take(&mut output).close(&mut found);
            output.day =
                words.iter().find(|word| word.matches(['/', '-']).count() == 2).map(|day| (*day).to_owned());
            heads = None;
        } else if words.is_empty() {
            // A new table has its own column heads.
        } else if let Some(new) = Heads::of(&words) {
            heads = Some(new);
        } else if let Some(known) = &heads {
            match known.row(&words) {
                Some(Ok(row)) => output.add(row, i + 1, &mut found),
                Some(Err(reason)) => found.miss(not_understood(i + 1, line, reason)),
                None => heads = None,
            }
        }
    }
    output.close(&mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Names of the columns. The device is the first column, or with `-p` or `-h` the last.
struct Heads {
    columns: Vec<String>,
    is_last: bool,
}

/// A row with the figures of a device.
struct Row {
    device: String,
    /// True for a row of averages over all intervals.
    is_average: bool,
    /// Time at the end of the interval, as printed.
    clock: String,
    columns: Vec<(String, f64)>,
}

impl Heads {
    fn of(words: &[&str]) -> Option<Self> {
        let at = words.iter().position(|word| *word == "DEV")?;
        let is_last = at + 1 == words.len();
        let names = if is_last { &words[prefix(words)..at] } else { &words[at + 1..] };
        let has_tps = names.first() == Some(&"tps");
        has_tps.then(|| Self { columns: names.iter().map(|name| (*name).to_owned()).collect(), is_last })
    }

    /// Parses a row; `None` if the line is not a row, or belongs to another table. The error gives the reason why the row does not fit the
    /// columns.
    fn row(&self, words: &[&str]) -> Option<Result<Row, &'static str>> {
        let prefix = prefix(words);
        // A row of another statistic, or surrounding text.
        if prefix == 0 || words.len() < prefix + 2 {
            return None;
        }
        let rest = &words[prefix..];
        let (figures, device) = if self.is_last {
            (&rest[..rest.len() - 1], rest[rest.len() - 1])
        } else {
            (&rest[1..], rest[0])
        };
        let values: Option<Vec<f64>> = figures.iter().map(|word| decimal(word)).collect();
        let is_whole = figures.len() == self.columns.len() && decimal(device).is_none();
        let Some(values) = values.filter(|_| is_whole) else {
            return Some(Err("it does not fit the columns above it"));
        };
        Some(Ok(Row {
            device: device.to_owned(),
            is_average: !is_clock(words[0]),
            clock: words[..prefix].join(" "),
            columns: self.columns.iter().cloned().zip(values).collect(),
        }))
    }
}

/// Returns whether a word is a time such as `20:11:49`.
fn is_clock(word: &str) -> bool {
    word.matches(':').count() == 2 && word.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the number of words before the device's columns: the time, with AM or PM, or the word for average in any language.
fn prefix(words: &[&str]) -> usize {
    let is_half = words.get(1).is_some_and(|word| matches!(*word, "AM" | "PM"));
    match words {
        [first, ..] if is_clock(first) => 1 + usize::from(is_half),
        [first, ..] if first.ends_with([':', '\u{ff1a}']) => 1,
        // French has a blank before the colon.
        [_, ":", ..] => 2,
        _ => 0,
    }
}

/// Figures of a row with sar's column names.
type Figures = Vec<(String, f64)>;

/// Output of one sar command.
#[derive(Default)]
struct Output {
    day: Option<String>,
    first_clock: Option<String>,
    /// Averages of each device, with the line number.
    averages: BTreeMap<String, (usize, Figures)>,
    intervals: BTreeMap<String, (usize, Vec<Figures>)>,
    rows: usize,
}

impl Output {
    fn add(&mut self, row: Row, line: usize, found: &mut Found) {
        self.rows += 1;
        if self.rows > MOST_ROWS {
            found.is_cut = true;
        } else if row.is_average {
            // A device's second average belongs to another sar command, whose first line is missing.
            if self.averages.contains_key(&row.device) {
                std::mem::take(self).close(found);
            }
            self.averages.insert(row.device, (line, row.columns));
        } else {
            // An interval after the averages also belongs to another command.
            if !self.averages.is_empty() {
                std::mem::take(self).close(found);
            }
            self.first_clock.get_or_insert(row.clock);
            let known = self.intervals.entry(row.device).or_insert_with(|| (line, Vec::new()));
            known.1.push(row.columns);
        }
    }

    fn close(self, found: &mut Found) {
        let time =
            self.day.zip(self.first_clock).and_then(|(day, clock)| Stamp::of(&format!("{day} {clock}")));
        let most = self.intervals.values().map(|(_, rows)| rows.len()).max().unwrap_or_default();
        let mut averages = self.averages;
        let has_averages = !averages.is_empty();
        for (device, (line, rows)) in &self.intervals {
            if has_averages {
                break;
            }
            if rows.len() < most {
                let reason = "it is not in every interval: nothing tells what it did in the others";
                found.miss(not_understood(*line, device, reason));
                continue;
            }
            averages.insert(device.clone(), (*line, means(rows)));
        }
        for (device, (line, columns)) in averages {
            let mut entry = entry(&columns);
            // A device without I/O was not measured.
            if entry.stated.metrics.is_empty() {
                continue;
            }
            if !has_averages {
                entry
                    .notes
                    .push("means over the intervals in the text, which has no averages of sar's".into());
            }
            found.keep(Entry { target: Some(device), line, time, ..entry });
        }
    }
}

/// Returns name and mean of each column. Columns per I/O are weighted with the I/Os.
fn means(rows: &[Vec<(String, f64)>]) -> Vec<(String, f64)> {
    let Some(first) = rows.first() else { return vec![] };
    let mean = |(i, (name, _)): (usize, &(String, f64))| {
        let per_io = matches!(name.as_str(), "await" | "svctm" | "areq-sz" | "avgrq-sz");
        let weighted = rows.iter().filter_map(|row| {
            let (_, value) = row.get(i).filter(|(known, _)| known == name)?;
            let weight = if per_io { row.first()?.1 } else { 1.0 };
            Some((value * weight, weight))
        });
        let (sum, weights) =
            weighted.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + value, all + weight));
        (weights > 0.0).then(|| (name.clone(), sum / weights))
    };
    first.iter().enumerate().filter_map(mean).collect()
}

/// Names of the columns for reads and writes, and bytes per unit.
const BYTES: [(&str, &str, f64); 2] = [("rkB/s", "wkB/s", 1024.0), ("rd_sec/s", "wr_sec/s", 512.0)];

fn entry(columns: &[(String, f64)]) -> Entry {
    let of = |name: &str| columns.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let mut entry = Entry { workload: "sar".into(), ..Entry::default() };
    if let Some(tps) = of("tps").filter(|tps| *tps > 0.0) {
        entry.state(Metric::IOPS, Some(tps));
        let bytes = BYTES.iter().find_map(|(read, write, unit)| Some((of(read)? + of(write)?) * unit));
        entry.state(Metric::BYTES_PER_S, bytes);
        entry.state(Metric::LATENCY_MEAN, of("await").map(|ms| ms * 1e6));
        entry.notes.push("discards are among the I/Os: sar reports them together".into());
    }
    for (name, value) in columns {
        let unit = match name.as_str() {
            "%util" => "%",
            "areq-sz" => "kB",
            "avgrq-sz" => "sectors",
            "await" | "svctm" => "ms",
            _ => "",
        };
        entry.add(name.as_str(), Some(*value), unit);
    }
    entry
}
