//! Completed I/Os with their latencies, by direction.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Completed I/Os of one direction over a window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes read, written or discarded.
    pub bytes: u64,
    /// Service time of each I/O in nanoseconds, from submission to completion.
    pub latency: Histogram,
    /// Response time of each I/O in nanoseconds, from its scheduled start to completion. Absent in a closed loop, which has no schedule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub response: Option<Histogram>,
}

impl Tally {
    /// Adds the I/Os of another tally of the same direction.
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

/// Completed I/Os over a window by direction. A direction that the workload does not use is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tallies {
    /// Reads; for network traffic, downloads and round trips.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub read: Option<Tally>,
    /// Writes; for network traffic, uploads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub write: Option<Tally>,
    /// Trims (discards).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub trim: Option<Tally>,
    /// Flushes: fsync, fdatasync and sync_file_range.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sync: Option<Tally>,
    /// Metadata operations: create, open, stat, rename, unlink; or a database's transactions. Their bytes are the file contents read or written in
    /// these operations.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub meta: Option<Tally>,
    /// Commit times: from submitting the first write after a flush to the end of the next flush, or of the sync_file_range(2) that replaces it.
    /// Recorded for workers with one I/O in flight that flush after a number of writes. Not a direction: these writes and flushes also count as
    /// writes and flushes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<Histogram>,
}

impl Tallies {
    /// Names of the directions, in the order of [`Self::each`].
    pub const WORDS: [&'static str; 5] = ["read", "write", "trim", "sync", "meta"];

    /// Returns the five directions with their names; the tally is `None` for a direction that is absent.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, Option<&Tally>)> {
        Self::WORDS
            .into_iter()
            .zip([&self.read, &self.write, &self.trim, &self.sync, &self.meta].map(Option::as_ref))
    }

    /// Returns the tally of the direction with this name, to be set or changed; `None` for an unknown name.
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

    /// Returns the number of completed reads, writes, trims and metadata operations. Flushes do not count.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.moving().map(|tally| tally.ios).sum()
    }

    /// Returns the number of bytes read, written or discarded, including those of metadata operations.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.moving().map(|tally| tally.bytes).sum()
    }

    /// Returns the service times of reads, writes, trims and metadata operations together, in nanoseconds.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::new();
        self.moving().for_each(|tally| all.merge(&tally.latency));
        all
    }

    /// Returns the response times of reads, writes, trims and metadata operations together, in nanoseconds; `None` in a closed loop.
    #[must_use]
    pub fn response(&self) -> Option<Histogram> {
        self.moving().filter_map(|tally| tally.response.clone()).reduce(|mut all, response| {
            all.merge(&response);
            all
        })
    }

    /// Adds the I/Os of other tallies, direction by direction, and their commit times.
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
