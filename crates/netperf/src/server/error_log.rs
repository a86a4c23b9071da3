//! Reports each kind of failure once for each address, and the number of repetitions when that has
//! ceased.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The most kinds and addresses that are told apart; all others are one.
const MOST: usize = 256;
/// A failure that did not come again for this time has ceased.
const CEASED: Duration = Duration::from_secs(10);

/// The failure of a connection, or of a client in its test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Complaint {
    Stranger,
    Slow,
    Crowd,
    Parameters,
    Busy,
    Token,
    Left,
    Failed,
}

impl Complaint {
    const fn words(self) -> &'static str {
        match self {
            Self::Stranger => "does not speak iperf3's protocol",
            Self::Slow => "did not finish its handshake in time",
            Self::Crowd => "was cut off: too many connections wait",
            Self::Parameters => "asked for a test that is not to be had",
            Self::Busy => "was refused: as many tests go on as may",
            Self::Token => "was refused: it does not know the token",
            Self::Left => "broke its handshake off",
            Self::Failed => "had a test that came to nothing",
        }
    }
}

/// The failures so far.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    seen: BTreeMap<(Complaint, Option<IpAddr>), Repeats>,
}

#[derive(Debug)]
struct Repeats {
    untold: u64,
    last: Instant,
}

impl Complaints {
    /// Takes one. The words to tell, if it is the first of its kind.
    pub(super) fn add(
        &mut self,
        complaint: Complaint,
        address: IpAddr,
        more: &str,
        now: Instant,
    ) -> Option<String> {
        let known = self.seen.contains_key(&(complaint, Some(address)));
        let key = (complaint, (known || self.seen.len() < MOST).then_some(address));
        if let Some(repeats) = self.seen.get_mut(&key) {
            repeats.untold += 1;
            repeats.last = now;
            return None;
        }
        self.seen.insert(key, Repeats { untold: 0, last: now });
        let separator = if more.is_empty() { "" } else { ": " };
        Some(format!("{address} {}{separator}{more}", complaint.words()))
    }

    /// Takes the repetitions that have ceased by now, or all of them at the end.
    pub(super) fn repeats(&mut self, now: Instant, end: bool) -> Vec<String> {
        let due = |repeats: &Repeats| {
            repeats.untold > 0 && (end || now.saturating_duration_since(repeats.last) >= CEASED)
        };
        let told = self.seen.iter_mut().filter(|(_, repeats)| due(repeats));
        let told = told.map(|((complaint, address), repeats)| {
            let who = address.map_or_else(|| "others".to_owned(), |address| address.to_string());
            let times = std::mem::take(&mut repeats.untold);
            format!("{who} {} ({times} more times)", complaint.words())
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_thousand_complaints_are_two_lines_and_bounded() {
        let mut complaints = Complaints::default();
        let now = Instant::now();
        let address = |n: u32| IpAddr::from(Ipv4Addr::from(n));
        let told = (0..1000).filter_map(|_| complaints.add(Complaint::Slow, address(1), "", now));
        assert_eq!(told.collect::<Vec<_>>(), ["0.0.0.1 did not finish its handshake in time"]);
        assert!(complaints.repeats(now, false).is_empty(), "it may go on");
        assert_eq!(complaints.repeats(now + CEASED, false).len(), 1);
        let other = complaints.add(Complaint::Parameters, address(1), "time = 9", now);
        assert_eq!(other.as_deref(), Some("0.0.0.1 asked for a test that is not to be had: time = 9"));
        let told = (0..100_000).filter_map(|n| complaints.add(Complaint::Busy, address(n), "", now)).count();
        assert!(told <= MOST + 1 && complaints.seen.len() <= MOST + 1, "{told}");
        assert!(complaints.repeats(now, true).iter().any(|line| line.starts_with("others ")));
    }
}
