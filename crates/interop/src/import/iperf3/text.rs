//! Reads iperf3's text: the rows of totals, which end in `sender` or `receiver`.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::super::iperf::{Row, add_datagrams, bracket, connected};
use super::super::lines::lines;
use super::super::parse_util::{not_understood, whole_nanos};
use super::super::{Entry, Found, Stamp};
use super::{SENDERS, add_retransmits, unknown};
use iotax_analysis::Metric;

/// Texts of which every relevant line contains at least one.
const WORDS: [&str; 6] =
    ["bits/sec", "sender", "receiver", "iperf3: error", "Connecting to host", "Accepted connection"];

/// Adds the results of all tests in a text.
pub(super) fn read(text: &str, found: &mut Found) {
    if !WORDS.iter().any(|word| text.contains(word)) {
        return;
    }
    let mut test = Test::default();
    // With -V, this line is above the test's header.
    let mut time = None;
    for (i, line) in unwrapped(text).enumerate() {
        let line = &*line;
        if let Some(host) = host(line) {
            let next = Test { host: Some(host), time: time.take(), ..Test::default() };
            std::mem::replace(&mut test, next).close(found);
        } else if super::super::iperf2::is_head(line) {
            std::mem::replace(&mut test, Test { is_others: true, ..Test::default() }).close(found);
        } else if !test.is_others {
            test.take(line, i + 1, found);
        }
        if let Some(stamp) = line.trim().strip_prefix("Time:") {
            time = Stamp::of(stamp);
        }
        if let Some(version) = line.trim().strip_prefix("iperf 3.") {
            let word = version.split_whitespace().next().unwrap_or_default();
            found.version = Some(format!("3.{word}"));
        }
    }
    test.close(found);
}

/// Returns the host in `Connecting to host 10.0.0.2, port 5201` or `Accepted connection from 10.0.0.5, port 39104`.
fn host(line: &str) -> Option<String> {
    let after = ["Connecting to host ", "Accepted connection from "]
        .iter()
        .find_map(|head| line.find(head).map(|at| &line[at + head.len()..]))?;
    Some(after.split([',', ' ']).next()?.to_owned())
}

/// Returns the lines of a text, with a wrapped `sender` or `receiver` joined to its row again. A receiver's row must directly follow the
/// sender's; otherwise lines are missing, and the row may be the sender's.
fn unwrapped(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    let mut lines = lines(text).enumerate().peekable();
    // Index of the line on which the last sender's row ended.
    let mut sender = None;
    let mut was_joined = false;
    std::iter::from_fn(move || {
        let (i, line) = lines.next()?;
        if line.trim_end().ends_with("sender") {
            sender = Some(i);
        }
        if std::mem::take(&mut was_joined) {
            return Some(Cow::Borrowed(""));
        }
        let next = lines.peek().map_or("", |(_, next)| next.trim());
        let belongs = match next {
            "sender" => true,
            "receiver" => sender.is_some_and(|at| at + 1 == i),
            _ => false,
        };
        was_joined = belongs && line.contains('[');
        Some(if was_joined { Cow::Owned(format!("{line} {next}")) } else { Cow::Borrowed(line) })
    })
}

/// Total over the whole test, as the sender or the receiver counts it.
struct Total {
    sum: bool,
    role: Option<String>,
    line: usize,
    seconds: f64,
    bits_per_s: f64,
    retransmits: Option<f64>,
    datagrams: Option<(f64, f64, f64)>,
    /// True if the row has the sender's rate and the losses that the receiver counted.
    mixed: bool,
}

/// Maximum number of roles in a test: client and server, each sending and receiving.
const MOST_ROLES: usize = 4;

#[derive(Default)]
struct Test {
    host: Option<String>,
    /// Start time of the test, if printed.
    time: Option<Stamp>,
    reverse: bool,
    /// True below a header of iperf 2, whose rows look alike.
    is_others: bool,
    /// Number and text of the last row without `sender` or `receiver`: an interval, or a row of iperf 2.
    interval: Option<(usize, String)>,
    udp: bool,
    /// True if the text has a sum row, which only several streams have.
    summed: bool,
    /// Role and number of each stream found so far.
    streams: BTreeSet<(String, String)>,
    sent: Vec<Total>,
    received: Vec<Total>,
    /// The last row that names neither sender nor receiver; old versions print such totals for UDP.
    bare: Option<Total>,
}

impl Test {
    fn take(&mut self, line: &str, number: usize, found: &mut Found) {
        self.reverse |= line.contains("Reverse mode, ");
        self.udp |= line.contains("Lost/Total Datagrams") || line.contains("Total Datagrams");
        if let Some((id, _)) = connected(line) {
            self.streams.insert((String::new(), id.to_owned()));
            return;
        }
        if let Some(row) = Row::of(line) {
            if row.may_be_iperf3 {
                self.row(&row, number);
                self.interval = Some((number, line.to_owned()));
            }
            return;
        }
        let is_end = |word: &str| matches!(word, "sender" | "receiver");
        if bracket(line).is_some() && line.split_whitespace().last().is_some_and(is_end) {
            let reason = "transfer, time and rate do not fit together";
            found.miss(not_understood(number, line, reason));
        } else if line.contains("iperf3: error") {
            found.miss(not_understood(number, line, "iperf3 says that this test failed"));
        } else if let (Some(bare), true) =
            (self.bare.take(), line.contains("Sent ") && line.contains(" datagrams"))
        {
            self.received.push(Total { mixed: true, ..bare });
        }
    }

    fn row(&mut self, row: &Row<'_>, number: usize) {
        if row.is_sum() {
            self.summed = true;
        } else {
            self.streams.insert((row.role.unwrap_or_default().to_owned(), row.id.to_owned()));
        }
        let total = Total {
            sum: row.is_sum(),
            role: row.role.map(str::to_owned),
            line: number,
            seconds: row.to - row.from,
            bits_per_s: row.bits_per_s,
            retransmits: match row.rest[..] {
                [count, "sender"] => count.parse().ok(),
                _ => None,
            },
            datagrams: row.datagrams(),
            mixed: false,
        };
        match row.rest.last() {
            Some(&"sender") => self.sent.push(total),
            Some(&"receiver") => self.received.push(total),
            _ if row.datagrams().is_some() => self.bare = Some(total),
            _ => {}
        }
    }

    /// Returns the total of a role: the sum row, or the row of the only stream; else `None`. Rows of streams are not added up, because some
    /// may be missing.
    fn total<'t>(&self, all: &'t [Total], role: Option<&String>) -> Option<&'t Total> {
        let mut mine = all.iter().filter(|total| total.role.as_ref() == role);
        let of_role = |(known, _): &&(String, String)| role.is_none_or(|role| known == role);
        let streams: BTreeSet<&str> = self.streams.iter().filter(of_role).map(|(_, id)| &**id).collect();
        let alone = streams.len() == 1 && !self.summed;
        mine.clone().find(|total| total.sum).or_else(|| alone.then(|| mine.next()).flatten())
    }

    fn close(self, found: &mut Found) {
        if let (Some((number, line)), true) =
            (&self.interval, self.sent.is_empty() && self.received.is_empty())
        {
            let reason = "the total of iperf3, or the head of iperf, is not there";
            found.miss(not_understood(*number, line, reason));
        }
        let mut roles: Vec<Option<String>> = Vec::new();
        for total in self.sent.iter().chain(&self.received) {
            if !roles.contains(&total.role) && roles.len() < MOST_ROLES {
                roles.push(total.role.clone());
            }
        }
        for role in roles {
            let (sent, received) =
                (self.total(&self.sent, role.as_ref()), self.total(&self.received, role.as_ref()));
            let Some(first) = [sent, received].into_iter().flatten().next() else {
                let all = self.sent.iter().chain(&self.received).filter(|total| total.role == role);
                for total in all {
                    let reason = "one of several streams, whose sum is not there";
                    let text = format!("{} bit/s", total.bits_per_s);
                    found.miss(not_understood(total.line, &text, reason));
                }
                continue;
            };
            let mut entry =
                Entry { target: self.host.clone(), time: self.time, line: first.line, ..Entry::default() };
            entry.workload = self.name(role.as_deref());
            entry.duration_ns = whole_nanos(first.seconds * 1e9);
            Self::figures(&mut entry, sent, received);
            if entry.has_figures() {
                found.keep(entry);
            } else {
                let text = format!("{} bit/s", first.bits_per_s);
                found.miss(not_understood(first.line, &text, "iperf3 writes 0 for what it does not know"));
            }
        }
    }

    fn figures(entry: &mut Entry, sent: Option<&Total>, received: Option<&Total>) {
        for (total, end) in [(sent, "sender"), (received, "receiver")] {
            entry.notes.extend(total.filter(|total| total.bits_per_s <= 0.0).map(|_| unknown(end)));
        }
        if let Some(total) = received {
            entry.state(Metric::BYTES_PER_S, Some(total.bits_per_s / 8.0));
            if total.mixed {
                entry.notes.push(SENDERS.into());
            }
        }
        if let Some(total) = sent {
            entry.add("sent", Some(total.bits_per_s).filter(|rate| *rate > 0.0), "bit/s");
            add_retransmits(entry, total.retransmits);
        }
        if let Some((jitter, lost, packets)) = received.and_then(|total| total.datagrams) {
            add_datagrams(entry, Some(jitter), Some(lost), Some(packets));
        }
    }

    /// Returns the test's name, which is the same as from JSON as far as the text has the details.
    fn name(&self, role: Option<&str>) -> String {
        let mut name = if self.udp { "udp" } else { "tcp" }.to_owned();
        if self.reverse {
            name.push_str("-reverse");
        }
        match role {
            Some(role) if role.starts_with("TX") => name.push_str("-bidir-sent"),
            Some(_) => name.push_str("-bidir-received"),
            None => {}
        }
        let streams: BTreeSet<&str> = self
            .streams
            .iter()
            .filter(|(known, _)| role.is_none_or(|role| known == role))
            .map(|(_, id)| &**id)
            .collect();
        if streams.len() > 1 {
            name = format!("{name}-p{}", streams.len());
        }
        name
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
mod tests {
    use super::*;

    fn read_all(text: &str) -> Found {
        let mut found = Found::default();
        read(text, &mut found);
        found
    }

    fn sample(name: &str) -> String {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import/");
        std::fs::read_to_string(format!("{data}{name}")).expect(name)
    }

    fn others(entry: &Entry) -> Vec<(&str, f64)> {
        entry.stated.others.iter().map(|figure| (&*figure.name, figure.value)).collect()
    }

    #[test]
    fn the_sum_of_streams_is_taken_and_units_of_bytes_are_known() {
        let found = read_all(&sample("iperf3-parallel-mbytes.txt"));
        let [entry] = &found.entries[..] else { panic!("{found:?}") };
        assert_eq!((entry.target.as_deref(), &*entry.workload), (Some("127.0.0.1"), "tcp-p2"));
        assert_eq!(entry.stated.metrics["bytes_per_s"], 2584.0 * 1_048_576.0);
        assert_eq!(others(entry), [("sent", 2590.0 * 8.0 * 1_048_576.0), ("retransmits", 0.0)]);
    }

    #[test]
    fn without_the_sum_streams_are_not_added_up() {
        let text: String = sample("iperf3-parallel-mbytes.txt")
            .lines()
            .filter(|l| !l.starts_with("[SUM]"))
            .collect::<Vec<_>>()
            .join("\n");
        let found = read_all(&text);
        assert_eq!((found.entries.len(), found.not_understood.len()), (0, 4));
    }

    #[test]
    fn reverse_both_ways_and_udp() {
        let reverse = read_all(&sample("iperf3-reverse.txt"));
        assert_eq!(
            (&*reverse.entries[0].workload, reverse.entries[0].stated.metrics["bytes_per_s"]),
            ("tcp-reverse", 21.1e9 / 8.0)
        );
        let both = read_all(&sample("iperf3-bidir.txt"));
        let rates: Vec<_> =
            both.entries.iter().map(|e| (&*e.workload, e.stated.metrics["bytes_per_s"])).collect();
        assert_eq!(rates, [("tcp-bidir-sent", 15.1e9 / 8.0), ("tcp-bidir-received", 8.66e9 / 8.0)]);
        let udp = read_all(&sample("iperf3-udp.txt"));
        assert_eq!(others(&udp.entries[0])[1..], [("jitter", 0.007), ("lost", 0.0), ("packets", 763.0)]);
    }

    #[test]
    fn old_udp_is_the_senders_rate_and_a_narrow_window_is_no_matter() {
        let old = "Connecting to host h, port 5201\n[ ID] ImportedInterval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams\n\
                   [  4]   0.00-10.00  sec  1.25 MBytes  1.05 Mbits/sec  0.028 ms  3/160 (1.9%)  \n[  4] Sent 160 datagrams\n";
        let found = read_all(old);
        assert_eq!(
            (found.entries[0].stated.metrics["bytes_per_s"], found.entries[0].notes.len()),
            (131_250.0, 1)
        );
        let wrapped = sample("iperf3-reverse.txt")
            .replace("             sender", "\nsender")
            .replace("                  receiver", "\nreceiver");
        assert_eq!(
            read_all(&wrapped).entries,
            read_all(&sample("iperf3-reverse.txt"))
                .entries
                .into_iter()
                .map(|e| Entry { line: e.line, ..e })
                .collect::<Vec<_>>()
        );
        // Neither the word `sender` nor the receiver's row is there.
        let lost = wrapped.replacen("\nsender\n", "\n", 1).replacen("21.1 Gbits/sec\nreceiver", "", 1);
        let lost = format!("{}receiver\n", &lost[..lost.rfind("[  5]").expect("there")]);
        assert!(lost.contains("21.0 Gbits/sec    2\nreceiver"), "{lost}");
        assert!(read_all(&lost).entries.is_empty());
    }
}
