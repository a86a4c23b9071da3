//! Reads fio's output: JSON and JSON+, terse lines of versions 2 to 5, and human-readable text.
//!
//! All formats become [`Job`]s. Without `group_reporting`, fio writes a job once per clone (`numjobs`). Clones run concurrently, so they are
//! summed here and are not repetitions.

mod job;
mod json;
mod terse;
mod text;

use std::collections::HashMap;

use super::{Entry, Found, Line, MOST_ROWS};
use job::Job;

/// Largest relative difference of a rate between two formats of one run; the text rounds to three digits.
const ROUNDING: f64 = 0.006;

/// Maximum number of entries with the same name and a similar rate that are compared with an entry from another format.
const MOST_ALIKE: usize = 100;

/// Jobs read from one of the formats.
#[derive(Default)]
struct Read {
    version: Option<String>,
    jobs: Vec<Job>,
    not_understood: Vec<Line>,
    /// Number of fio outputs in the text so far.
    documents: usize,
    /// True if jobs were dropped because there are too many.
    is_cut: bool,
}

impl Read {
    /// Starts the output of another run of fio; from here on, a job with a known name is a repetition.
    const fn begin_document(&mut self) {
        self.documents += 1;
    }

    fn push(&mut self, job: Job) {
        self.is_cut |= self.jobs.len() == MOST_ROWS;
        if !self.is_cut {
            self.jobs.push(job);
        }
    }

    fn miss(&mut self, line: Line) {
        self.is_cut |= self.not_understood.len() == MOST_ROWS;
        if !self.is_cut {
            self.not_understood.push(line);
        }
    }
}

/// Finds fio's results in a text; `None` if the text has no output of fio.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "fio", ..Found::default() };
    for read in [json::read(text), terse::read(text), text::read(text)] {
        found.version = found.version.or(read.version);
        if read.is_cut {
            // The whole text is rejected, so entries would be useless.
            return Some(Found { is_cut: true, ..found });
        }
        let (entries, lines) = job::entries(read.jobs);
        // The text may have one run in several formats; the first one is the most precise.
        let csv_rates = RatesByName::by(&found.entries);
        let new: Vec<Entry> = entries.into_iter().filter(|entry| !csv_rates.has(entry)).collect();
        new.into_iter().for_each(|entry| found.keep(entry));
        lines.into_iter().chain(read.not_understood).for_each(|line| found.miss(line));
    }
    found.not_understood.sort_by_key(|line| line.number);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// IOPS and bytes/s of the entries so far by name, sorted by IOPS.
struct RatesByName(HashMap<String, Vec<(f64, f64)>>);

impl RatesByName {
    fn by(entries: &[Entry]) -> Self {
        let mut csv_rates: HashMap<String, Vec<(f64, f64)>> = HashMap::new();
        for entry in entries {
            if let Some(rates) = rates(entry) {
                csv_rates.entry(entry.workload.clone()).or_default().push(rates);
            }
        }
        csv_rates.values_mut().for_each(|rates| rates.sort_by(|a, b| a.0.total_cmp(&b.0)));
        Self(csv_rates)
    }

    /// Returns whether an entry with the same name and rates exists.
    fn has(&self, entry: &Entry) -> bool {
        let (Some(csv_rates), Some((iops, bytes))) = (self.0.get(&entry.workload), rates(entry)) else {
            return false;
        };
        let first = csv_rates.partition_point(|(known, _)| known / iops < 1.0 - ROUNDING);
        csv_rates[first..]
            .iter()
            .take(MOST_ALIKE)
            .take_while(|(known, _)| known / iops < 1.0 + ROUNDING)
            .any(|(_, known)| (known / bytes - 1.0).abs() < ROUNDING)
    }
}

fn rates(entry: &Entry) -> Option<(f64, f64)> {
    let of = |word: &str| entry.stated.metrics.get(word).copied();
    of("iops").zip(of("bytes_per_s"))
}
