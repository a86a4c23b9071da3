//! Reports a failure when it first occurs, by kind and address, and later the number of its repetitions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Maximum number of separately counted pairs of kind and address. Failures from further addresses are counted by kind only.
const MOST: usize = 256;
/// Time without a repetition after which the number of repetitions is reported.
const CEASED: Duration = Duration::from_secs(10);

/// The kinds of failure of a connection or of a client's test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureKind {
    WrongProtocol,
    Timeout,
    TooMany,
    Parameters,
    Busy,
    Token,
    Disconnected,
    Failed,
}

impl FailureKind {
    const fn words(self) -> &'static str {
        match self {
            Self::WrongProtocol => "does not speak iperf3's protocol",
            Self::Timeout => "did not finish its handshake in time",
            Self::TooMany => "was cut off: too many connections wait",
            Self::Parameters => "asked for a test that is not possible",
            Self::Busy => "was refused: as many tests go on as may",
            Self::Token => "was refused: it does not know the token",
            Self::Disconnected => "broke its handshake off",
            Self::Failed => "had a test that failed",
        }
    }
}

/// The failures so far, by kind and address, with the repetitions not reported yet.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    seen: BTreeMap<(FailureKind, Option<IpAddr>), Repeats>,
}

#[derive(Debug)]
struct Repeats {
    unreported: u64,
    last: Instant,
}

impl ErrorLog {
    /// Counts a failure. Returns a line to report if it is the first of this kind from this address; `None` for repetitions. Once [`MOST`]
    /// pairs are counted separately, all further addresses together count as one address.
    pub(super) fn add(
        &mut self,
        kind: FailureKind,
        address: IpAddr,
        more: &str,
        now: Instant,
    ) -> Option<String> {
        let known = self.seen.contains_key(&(kind, Some(address)));
        let key = (kind, (known || self.seen.len() < MOST).then_some(address));
        if let Some(repeats) = self.seen.get_mut(&key) {
            repeats.unreported += 1;
            repeats.last = now;
            return None;
        }
        self.seen.insert(key, Repeats { unreported: 0, last: now });
        let separator = if more.is_empty() { "" } else { ": " };
        Some(format!("{address} {}{separator}{more}", kind.words()))
    }

    /// Returns a line for each failure that was last repeated at least 10 s before `now`; with `end`, for every failure with unreported
    /// repetitions. Resets the counts of the reported failures.
    pub(super) fn repeats(&mut self, now: Instant, end: bool) -> Vec<String> {
        let due = |repeats: &Repeats| {
            repeats.unreported > 0 && (end || now.saturating_duration_since(repeats.last) >= CEASED)
        };
        let reports = self.seen.iter_mut().filter(|(_, repeats)| due(repeats));
        let reports = reports.map(|((kind, address), repeats)| {
            let who = address.map_or_else(|| "others".to_owned(), |address| address.to_string());
            let times = std::mem::take(&mut repeats.unreported);
            format!("{who} {} ({times} more times)", kind.words())
        });
        reports.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_thousand_failures_are_two_lines_and_bounded() {
        let mut error_log = ErrorLog::default();
        let now = Instant::now();
        let address = |n: u32| IpAddr::from(Ipv4Addr::from(n));
        let reports = (0..1000).filter_map(|_| error_log.add(FailureKind::Timeout, address(1), "", now));
        assert_eq!(reports.collect::<Vec<_>>(), ["0.0.0.1 did not finish its handshake in time"]);
        assert!(error_log.repeats(now, false).is_empty(), "it may go on");
        assert_eq!(error_log.repeats(now + CEASED, false).len(), 1);
        let other = error_log.add(FailureKind::Parameters, address(1), "time = 9", now);
        assert_eq!(other.as_deref(), Some("0.0.0.1 asked for a test that is not possible: time = 9"));
        let reports =
            (0..100_000).filter_map(|n| error_log.add(FailureKind::Busy, address(n), "", now)).count();
        assert!(reports <= MOST + 1 && error_log.seen.len() <= MOST + 1, "{reports}");
        assert!(error_log.repeats(now, true).iter().any(|line| line.starts_with("others ")));
    }
}
