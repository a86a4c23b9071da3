//! Reads pgbench's log of transactions and its summary.

use std::ffi::CStr;
use std::fmt;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use iotax_load::clock;
use iotax_model::units::Nanos;

/// Name of the log in pgbench's working directory. pgbench adds a dot and its process id.
pub(super) const PREFIX: &str = "transactions";
/// Beginnings of the summary's lines with numbers of transactions: completed, skipped, and late. The last ends in its limit.
const PROCESSED: &str = "number of transactions actually processed: ";
const SKIPPED: &str = "number of transactions skipped: ";
const LATE: &str = "number of transactions above the ";
const LIMIT: &str = " ms latency limit: ";

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
    /// A transaction that was not started, as was noticed at this time of the engine's clock.
    Skipped(u64),
    /// A transaction that ended with an error at this time of the engine's clock.
    Failed(u64),
}

/// Numbers of transactions from pgbench's start to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Totals {
    done: u64,
    /// Completed transactions that took longer than the limit; 0 without a limit.
    late: u64,
    /// Transactions that were due too long ago to be started; 0 without a limit.
    skipped: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, late, skipped } = self;
        write!(f, "{done} transactions, of which {late} late, and {skipped} skipped")
    }
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
    limit: Option<Nanos>,
    pub(super) totals: Totals,
}

impl Log {
    /// Creates an empty log. Transactions that take longer than `limit` are late.
    pub(super) fn new(limit: Option<Nanos>) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        Self { limit, ..Self::at(clock::now().wrapping_sub(wall_ns)) }
    }

    fn at(epoch: u64) -> Self {
        Self { epoch, partial: Vec::new(), summary: String::new(), limit: None, totals: Totals::default() }
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
                self.count(entry);
                take(entry);
            } else {
                self.summary.push_str(&line);
                self.summary.push('\n');
            }
        }
    }

    fn count(&mut self, entry: Entry) {
        match entry {
            Entry::Done(transaction) => {
                self.totals.done += 1;
                self.totals.late += u64::from(transaction.is_late(self.limit));
            }
            Entry::Skipped(_) => self.totals.skipped += 1,
            Entry::Failed(_) => {}
        }
    }

    /// Parses a line: client, number, microseconds, `skipped` or the reason of a failure, script, seconds and microseconds of the completion, and with
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
            if *time == "skipped" {
                return Some(Entry::Skipped(at));
            }
            return ["failed", "serialization", "deadlock"].contains(time).then_some(Entry::Failed(at));
        };
        let lag = rest.first().map_or(Some(0), |lag| lag.parse::<u64>().ok())?;
        Some(Entry::Done(Transaction { at, response_ns: time * 1000, lag_ns: lag.min(time) * 1000 }))
    }

    /// Returns the numbers of the summary; `None` if it has no number of completed transactions.
    pub(super) fn summary(&self) -> Option<Totals> {
        let of = |prefix: &str| self.summary.lines().find_map(|line| line.strip_prefix(prefix));
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit()).map_or(text, |end| &text[..end]);
            digits.parse::<u64>().ok()
        };
        let late = of(LATE).and_then(|line| Some(line.split_once(LIMIT)?.1));
        Some(Totals {
            done: of(PROCESSED).and_then(number)?,
            late: late.and_then(number).unwrap_or(0),
            skipped: of(SKIPPED).and_then(number).unwrap_or(0),
        })
    }
}

impl Transaction {
    /// Returns whether the transaction took longer than `limit`, by pgbench's rule.
    pub(super) fn is_late(&self, limit: Option<Nanos>) -> bool {
        limit.is_some_and(|limit| self.response_ns > limit.0)
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
        let totals = Totals { done: 2, ..Totals::default() };
        assert_eq!((log.totals, log.summary()), (totals, Some(totals)));
        assert_eq!(read(&["tps = 8.1\n"]).1.summary(), None);
    }

    #[test]
    fn a_schedule_has_a_lag_and_a_failure_no_time() {
        let (entries, log) =
            read(&["0 1 2552 0 1796026053 0 52\n0 2 failed 0 1796026053 1\n0 3 lost 0 1796026053 1 7\n"]);
        let done = Transaction { at: 0, response_ns: 2_552_000, lag_ns: 52_000 };
        assert_eq!(entries, [Entry::Done(done), Entry::Failed(1000)]);
        assert_eq!((log.totals.done, log.summary.as_str()), (1, "0 3 lost 0 1796026053 1 7\n"));
    }

    /// The lines are those of pgbench 15.18 with `--rate=3000 --latency-limit=2`.
    #[test]
    fn a_limit_makes_transactions_late_or_skipped() {
        let mut log = Log {
            limit: Some(Nanos::from_millis(2)),
            ..Log::at(0_u64.wrapping_sub(1_796_039_614_000_000_000))
        };
        let mut entries = Vec::new();
        let text = "1 1 2564 0 1796039614 75102 83\n1 2 skipped 0 1796039614 75123 0\n1 3 2000 0 1796039614 75959 1926\n\
                    pgbench (15.18 (Debian 15.18-0+deb12u1))\nnumber of transactions actually processed: 2\n\
                    number of failed transactions: 0 (0.000%)\nnumber of transactions skipped: 1 (33.333%)\n\
                    number of transactions above the 2.0 ms latency limit: 1/2 (50.000%)\n";
        log.read(text.as_bytes(), &mut |entry| entries.push(entry));
        assert_eq!((entries.len(), entries[1]), (3, Entry::Skipped(75_123_000)));
        assert_eq!(log.totals, Totals { done: 2, late: 1, skipped: 1 });
        assert_eq!(log.summary(), Some(log.totals));
    }
}
