//! Reads pgbench's log of transactions and its summary.

use std::ffi::CStr;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use iotax_load::clock;

/// Name of the log in pgbench's working directory. pgbench adds a dot and its process id.
pub(super) const PREFIX: &str = "transactions";
/// Beginning of the summary's line with the number of completed transactions.
const PROCESSED: &str = "number of transactions actually processed: ";

/// Makes the name of this process's log a link to its standard output. For [`std::os::unix::process::CommandExt::pre_exec`].
pub(super) fn link_to_stdout() -> io::Result<()> {
    let mut name = [0_u8; 64];
    // The last byte stays 0.
    let mut rest = &mut name[..63];
    write!(rest, "{PREFIX}.{}", rustix::process::getpid())?;
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| io::ErrorKind::InvalidFilename)?;
    Ok(rustix::fs::symlink(c"/proc/self/fd/1", name)?)
}

/// A completed transaction. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transaction {
    /// Time of the completion, of the engine's clock.
    pub(super) at: u64,
    /// Time from the scheduled start, which without a rate is the start, to the completion.
    pub(super) response_ns: u64,
    /// Time from the scheduled start to the start; 0 without a rate.
    pub(super) lag_ns: u64,
}

/// A line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Done(Transaction),
    /// A transaction that ended with an error at this time of the engine's clock.
    Failed(u64),
}

/// The log as it is read.
#[derive(Debug)]
pub(super) struct Log {
    /// Time of the engine's clock at the epoch, as a difference that may wrap.
    epoch: u64,
    /// Bytes of a line that is not complete.
    partial: Vec<u8>,
    /// Lines that are not of the log.
    summary: String,
    /// Number of completed transactions.
    pub(super) done: u64,
}

impl Log {
    pub(super) fn new() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        Self::at(clock::now().wrapping_sub(wall_ns))
    }

    const fn at(epoch: u64) -> Self {
        Self { epoch, partial: Vec::new(), summary: String::new(), done: 0 }
    }

    /// Reads the next bytes, and passes each complete entry to `take`.
    pub(super) fn read(&mut self, bytes: &[u8], take: &mut dyn FnMut(Entry)) {
        self.partial.extend_from_slice(bytes);
        let text = std::mem::take(&mut self.partial);
        let mut lines = text.split(|byte| *byte == b'\n');
        // What follows the last newline is not complete.
        self.partial = lines.next_back().unwrap_or_default().to_vec();
        for line in lines {
            let line = String::from_utf8_lossy(line);
            if let Some(entry) = self.entry(&line) {
                self.done += u64::from(matches!(entry, Entry::Done(_)));
                take(entry);
            } else {
                self.summary.push_str(&line);
                self.summary.push('\n');
            }
        }
    }

    /// Parses a line: client, number, microseconds or the reason of a failure, script, seconds and microseconds of the completion, and with
    /// a rate the microseconds by which the start was late. `None` if it is no line of the log.
    fn entry(&self, line: &str) -> Option<Entry> {
        let words: Vec<&str> = line.split(' ').collect();
        let [client, number, time, script, seconds, micros, rest @ ..] = words.as_slice() else {
            return None;
        };
        let numbers = [client, number, script, seconds, micros].map(|word| word.parse::<u64>().ok());
        let [Some(_), Some(_), Some(_), Some(seconds), Some(micros)] = numbers else { return None };
        let at = self.epoch.wrapping_add(seconds * 1_000_000_000 + micros * 1000);
        let Ok(time) = time.parse::<u64>() else {
            return ["failed", "serialization", "deadlock"].contains(time).then_some(Entry::Failed(at));
        };
        let lag = rest.first().map_or(Some(0), |lag| lag.parse::<u64>().ok())?;
        Some(Entry::Done(Transaction { at, response_ns: time * 1000, lag_ns: lag.min(time) * 1000 }))
    }

    /// Returns the number of completed transactions of the summary; `None` if it has none.
    pub(super) fn summary_count(&self) -> Option<u64> {
        let count = self.summary.lines().find_map(|line| line.strip_prefix(PROCESSED))?;
        count.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> (Vec<Entry>, Log) {
        let mut log = Log::at(0_u64.wrapping_sub(1_796_026_053_000_000_000));
        let mut entries = Vec::new();
        pieces.iter().for_each(|piece| log.read(piece.as_bytes(), &mut |entry| entries.push(entry)));
        (entries, log)
    }

    #[test]
    fn a_line_may_come_in_pieces_and_the_summary_is_none() {
        let summary =
            "pgbench (15.18)\nscaling factor: 1\nnumber of transactions actually processed: 2\ntps = 8.1\n";
        let (entries, log) =
            read(&["0 1 2552 0 17960", "26053 1000\n1 1 ", "900 0 1796026054 250\n", summary]);
        let done = |at, response_ns| Entry::Done(Transaction { at, response_ns, lag_ns: 0 });
        assert_eq!(entries, [done(1_000_000, 2_552_000), done(1_000_250_000, 900_000)]);
        assert_eq!((log.done, log.summary_count()), (2, Some(2)));
        assert_eq!(read(&["tps = 8.1\n"]).1.summary_count(), None);
    }

    #[test]
    fn a_schedule_has_a_lag_and_a_failure_no_time() {
        let (entries, log) =
            read(&["0 1 2552 0 1796026053 0 52\n0 2 failed 0 1796026053 1\n0 3 skipped 0 1796026053 1 7\n"]);
        let done = Transaction { at: 0, response_ns: 2_552_000, lag_ns: 52_000 };
        assert_eq!(entries, [Entry::Done(done), Entry::Failed(1000)]);
        assert_eq!((log.done, log.summary.as_str()), (1, "0 3 skipped 0 1796026053 1 7\n"));
    }
}
