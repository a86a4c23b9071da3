//! What fio writes: JSON and JSON+, terse lines of versions 2 to 5, and the text for people.
//!
//! All three come down to [`Job`]s. fio writes one job several times where `numjobs` makes clones of it and nothing adds them up;
//! they ran at once, so they are added up here and are no repetitions.

mod job;
mod json;
mod terse;
mod text;

use super::{Entry, Found, Line};
use job::Job;

/// Two formats of one output say one rate with so much between them: text rounds to three digits.
const ROUNDING: f64 = 0.006;

/// What one of the formats gave.
#[derive(Default)]
struct Read {
    version: Option<String>,
    jobs: Vec<Job>,
    not_understood: Vec<Line>,
    /// How many outputs of fio have begun.
    documents: usize,
}

impl Read {
    /// What follows is the output of another run of fio, so that a job of the same name is a repetition.
    const fn begin_document(&mut self) {
        self.documents += 1;
    }
}

/// fio's results in a text.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "fio", ..Found::default() };
    for read in [json::read(text), terse::read(text), text::read(text)] {
        found.version = found.version.or(read.version);
        let (entries, lines) = job::entries(read.jobs);
        found.not_understood.extend(lines);
        // One run may be written in several formats; the first one says it best.
        let new =
            entries.into_iter().filter(|entry| !found.entries.iter().any(|known| is_same(known, entry)));
        let new: Vec<Entry> = new.collect();
        found.entries.extend(new);
        found.not_understood.extend(read.not_understood);
    }
    found.not_understood.sort_by_key(|line| line.number);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

fn is_same(one: &Entry, other: &Entry) -> bool {
    let near = |word: &str| match (one.stated.metrics.get(word), other.stated.metrics.get(word)) {
        (Some(a), Some(b)) => (a / b - 1.0).abs() < ROUNDING,
        _ => false,
    };
    one.workload == other.workload && near("iops") && near("bytes_per_s")
}
