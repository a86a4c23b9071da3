//! Completed I/O by direction.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// I/Os of one direction over a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Service time of each I/O, from submission to completion.
    pub latency: Histogram,
    /// Response time of each I/O, from its intended start to completion. Absent in a closed loop, which has no intended starts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response: Option<Histogram>,
}

impl Tally {
    /// Adds another tally of the same direction.
    pub fn merge(&mut self, other: &Self) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
        match (&mut self.response, &other.response) {
            (Some(mine), Some(theirs)) => mine.merge(theirs),
            (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
            (_, None) => {}
        }
    }
}

/// I/Os over a window by direction. A direction that the workload does not use is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tallies {
    /// Reads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read: Option<Tally>,
    /// Writes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub write: Option<Tally>,
    /// Discards.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trim: Option<Tally>,
    /// Flushes: fsync and fdatasync.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sync: Option<Tally>,
    /// Metadata operations: create, open, stat, rename, unlink; bytes are those moved with them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub meta: Option<Tally>,
    /// Commit times: from submitting the first write after a flush to the end of the next flush, or of the sync_file_range that replaces it.
    /// Recorded for workers with one I/O in flight that flush after a number of writes. Not a direction: its writes and flushes count in theirs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<Histogram>,
}

impl Tallies {
    /// The names of the directions, in the order of [`Self::each`].
    pub const WORDS: [&'static str; 5] = ["read", "write", "trim", "sync", "meta"];

    /// All directions with their names, including absent ones.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, Option<&Tally>)> {
        Self::WORDS
            .into_iter()
            .zip([&self.read, &self.write, &self.trim, &self.sync, &self.meta].map(Option::as_ref))
    }

    /// The tally of the direction with this name; `None` for an unknown name.
    pub fn of_mut(&mut self, word: &str) -> Option<&mut Option<Tally>> {
        match word {
            "read" => Some(&mut self.read),
            "write" => Some(&mut self.write),
            "trim" => Some(&mut self.trim),
            "sync" => Some(&mut self.sync),
            "meta" => Some(&mut self.meta),
            _ => None,
        }
    }

    /// Completed reads, writes, trims and metadata operations. Flushes are excluded: they move no data.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.moving().map(|tally| tally.ios).sum()
    }

    /// Bytes moved or discarded.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.moving().map(|tally| tally.bytes).sum()
    }

    /// Service times of reads, writes, trims and metadata operations together.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::new();
        self.moving().for_each(|tally| all.merge(&tally.latency));
        all
    }

    /// Response times of reads, writes and trims together; absent in a closed loop.
    #[must_use]
    pub fn response(&self) -> Option<Histogram> {
        self.moving().filter_map(|tally| tally.response.clone()).reduce(|mut all, response| {
            all.merge(&response);
            all
        })
    }

    /// Adds other tallies, direction by direction.
    pub fn merge(&mut self, other: &Self) {
        for (word, theirs) in other.each() {
            let (Some(mine), Some(theirs)) = (self.of_mut(word), theirs) else { continue };
            mine.get_or_insert_default().merge(theirs);
        }
        if let Some(theirs) = &other.commit {
            self.commit.get_or_insert_with(Histogram::new).merge(theirs);
        }
    }

    fn moving(&self) -> impl Iterator<Item = &Tally> {
        self.read.iter().chain(&self.write).chain(&self.trim).chain(&self.meta)
    }
}
