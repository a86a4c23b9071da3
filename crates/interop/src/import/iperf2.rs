//! Reads iperf 2's output: text, and CSV (`-y C`).
//!
//! Only the row over the whole test is used. For UDP that is the server's row, with the rate of received data. A truncated server row looks
//! like a client's, which is recognised by the line after it: `Sent 893 datagrams`, or `Server Report:` before version 2. Without the header
//! of a test, only such rows are known to cover a whole test.

mod csv;

use std::collections::BTreeMap;

use super::iperf::{Row, add_datagrams, bracket, connected};
use super::lines::lines;
use super::parse_util::{not_understood, whole_nanos};
use super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

/// Texts at the start of a test's header: of a client and of a server.
const HEADS: [&str; 2] = ["Client connecting to ", "Server listening on"];

/// Finds iperf 2's results in a text; `None` if the text has no output of iperf 2. Results of the same host and kind are repetitions.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "iperf", ..Found::default() };
    let mut test: Option<Test> = None;
    let has_rows = text.contains("/sec");
    for (i, line) in lines(text).enumerate().take_while(|_| has_rows) {
        if let Some(head) = Test::of_head(line) {
            close(test.replace(head), &mut found);
        } else if line.contains("Connecting to host") || line.contains("Accepted connection from") {
            // An iperf3 test starts here.
            close(test.take(), &mut found);
        } else if test.is_some() || is_headless(line) {
            let headless = || Test { is_headless: true, ..Test::default() };
            test.get_or_insert_with(headless).take(line, i + 1, &mut found);
        }
    }
    close(test, &mut found);
    csv::read(text, &mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Returns whether a line is the header of a test.
pub(super) fn is_head(line: &str) -> bool {
    Test::of_head(line).is_some()
}

/// Returns whether a line has a form that only iperf 2 prints, so that it is recognised without the header above it.
fn is_headless(line: &str) -> bool {
    line.contains("connected with") && connected(line).is_some()
        || Row::of(line).is_some_and(|row| !row.may_be_iperf3)
}

/// A row of a test, with the notes in the lines around it.
#[derive(Clone)]
struct Kept {
    line: usize,
    from: f64,
    to: f64,
    bits_per_s: f64,
    datagrams: Option<(f64, f64, f64)>,
    /// True if the next line has the number of sent datagrams, or starts the server's report.
    is_sent: bool,
    /// True if the row is below `Server Report:`.
    is_report: bool,
}

/// A test, from its header to the next header.
#[derive(Default)]
struct Test {
    host: Option<String>,
    time: Option<Stamp>,
    is_headless: bool,
    udp: bool,
    port: String,
    /// Local port of each stream, by stream number.
    streams: BTreeMap<String, String>,
    /// Rows by stream number; the key `SUM` has the sums of all streams.
    rows: BTreeMap<String, Vec<Kept>>,
    /// Stream number of the row in the previous line, if that line was a row.
    last: Option<String>,
    /// Number of the stream whose server report began in the previous line.
    reported: Option<String>,
}

/// Parses the line after a row, `[  3] Sent 893 datagrams` or `[  3] Server Report:`. Returns the stream number, and true for `Server
/// Report:`. `None` for other lines.
fn after_row(line: &str) -> Option<(&str, bool)> {
    let (id, rest) = bracket(line)?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words[..] {
        ["Sent", _, "datagrams"] => Some((id, false)),
        ["Server", "Report:"] => Some((id, true)),
        _ => None,
    }
}

impl Test {
    /// Parses a header: `Client connecting to 10.0.0.2, TCP port 5001`, `Server listening on UDP port 5001`.
    fn of_head(line: &str) -> Option<Self> {
        let (udp, protocol) = (line.contains("UDP port "), " port ");
        let (before, port) = line.split_once(protocol)?;
        let head = before.trim();
        (head.ends_with("TCP") || head.ends_with("UDP")).then_some(())?;
        let host = match head.find(HEADS[0]) {
            Some(at) => Some(head[at + HEADS[0].len()..].split(',').next()?.trim().to_owned()),
            None if head.contains(HEADS[1]) => None,
            None => return None,
        };
        let port = port.split_whitespace().next()?.to_owned();
        Some(Self { host, udp, port, ..Self::default() })
    }

    fn take(&mut self, line: &str, number: usize, found: &mut Found) {
        let (last, reported) = (self.last.take(), self.reported.take());
        if let Some((id, port)) = connected(line) {
            self.streams.insert(id.to_owned(), port.to_owned());
            // With -e.
            self.time = self.time.or_else(|| Stamp::of(line.rsplit_once(" on ")?.1));
        } else if let Some(row) = Row::of(line) {
            let kept = Kept {
                line: number,
                from: row.from,
                to: row.to,
                bits_per_s: row.bits_per_s,
                datagrams: row.datagrams(),
                is_sent: false,
                is_report: reported.as_deref() == Some(row.id),
            };
            self.udp |= kept.datagrams.is_some();
            self.last = Some(row.id.to_owned());
            self.rows.entry(row.id.to_owned()).or_default().push(kept);
        } else if let Some((id, is_report)) = after_row(line) {
            self.udp = true;
            self.reported = is_report.then(|| id.to_owned());
            let row = last.filter(|last| last == id).and_then(|last| self.rows.get_mut(&last)?.last_mut());
            row.into_iter().for_each(|row| row.is_sent = true);
        } else if bracket(line).is_some_and(|(id, _)| id == "SUM" || id.parse::<u32>().is_ok())
            && line.contains("bits/sec")
        {
            let reason = "transfer, time and rate do not fit together";
            found.miss(not_understood(number, line, reason));
        }
    }

    /// Returns whether the client receives on this stream, that is, whether the stream's local port is the port of the test.
    fn comes_in(&self, id: &str) -> bool {
        self.host.is_some() && self.streams.get(id).is_some_and(|port| *port == self.port)
    }

    /// Returns the numbers of the streams in one direction.
    fn ids(&self, incoming: bool) -> Vec<&str> {
        let mut ids: Vec<&str> = self.streams.keys().chain(self.rows.keys()).map(|id| &**id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.retain(|id| *id != "SUM" && self.comes_in(id) == incoming);
        ids
    }

    /// Returns the rows of a stream that cover the whole test.
    fn whole(&self, id: &str) -> Vec<&Kept> {
        let Some(rows) = self.rows.get(id) else { return Vec::new() };
        let end = rows.iter().map(|row| row.to).fold(0.0, f64::max);
        rows.iter().filter(|row| row.from < 0.05 && end - row.to < 0.1).collect()
    }

    fn direction(&self, incoming: bool, both: bool, found: &mut Found) {
        let ids = self.ids(incoming);
        // A sum row means several streams, even if their rows are missing.
        let summed = !both && self.rows.contains_key("SUM");
        let rows = match ids[..] {
            [] if incoming || !summed || !self.ids(true).is_empty() => return,
            _ if summed => self.whole("SUM"),
            [id] => self.whole(id),
            _ => Vec::new(),
        };
        let arrived = rows.iter().find(|row| row.datagrams.is_some());
        let sent =
            rows.iter().find(|row| row.datagrams.is_none() && !row.is_report && (row.is_sent || !self.udp));
        let is_whole = !self.is_headless || rows.iter().any(|row| row.is_sent);
        let Some(first) = arrived.or(sent).filter(|_| is_whole) else {
            let of = |id| self.rows.get(id).and_then(|rows| rows.last());
            let streams = ids.iter().copied().chain(ids.is_empty().then_some("SUM"));
            for row in streams.filter_map(of) {
                let text = format!("{} bit/s", row.bits_per_s);
                let reason = if !is_whole {
                    "the head of its test is not there, so that nothing tells whether it is the whole test's"
                } else if rows.is_empty() {
                    "a stream or an interval, without the row of all streams over the whole test"
                } else {
                    "neither jitter and losses nor the count of datagrams that were sent follow, so that it is not known whose it is"
                };
                found.miss(not_understood(row.line, &text, reason));
            }
            return;
        };
        let mut entry =
            Entry { target: self.host.clone(), time: self.time, line: first.line, ..Entry::default() };
        entry.workload = self.name(ids.len(), incoming, both);
        entry.keys.numjobs = u32::try_from(ids.len()).ok().filter(|streams| *streams > 1 || !summed);
        entry.duration_ns = whole_nanos((first.to - first.from) * 1e9);
        match (self.udp, arrived, sent) {
            (true, Some(row), _) | (false, _, Some(row)) => {
                entry.state(Metric::BYTES_PER_S, Some(row.bits_per_s / 8.0));
            }
            _ => {}
        }
        if let (true, Some(row)) = (self.udp, sent) {
            entry.add("sent", Some(row.bits_per_s), "bit/s");
        }
        if let Some((jitter, lost, packets)) = arrived.and_then(|row| row.datagrams) {
            add_datagrams(&mut entry, Some(jitter), Some(lost), Some(packets));
        }
        found.keep(entry);
    }

    fn name(&self, streams: usize, incoming: bool, both: bool) -> String {
        let mut name = if self.udp { "udp" } else { "tcp" }.to_owned();
        if both {
            name.push_str(if incoming { "-received" } else { "-sent" });
        }
        if streams > 1 {
            name = format!("{name}-p{streams}");
        }
        name
    }
}

fn close(test: Option<Test>, found: &mut Found) {
    let Some(test) = test else { return };
    let both = !test.ids(true).is_empty() && !test.ids(false).is_empty();
    test.direction(false, both, found);
    test.direction(true, both, found);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: &str = "------------------------------------------------------------\nClient connecting to 10.0.0.2, TCP port 5001\n\
        TCP window size: 85.0 KByte (default)\n------------------------------------------------------------\n\
        [  3] local 10.0.0.1 port 51234 connected with 10.0.0.2 port 5001\n[ ID] ImportedInterval       Transfer     Bandwidth\n\
        [  3]  0.0- 1.0 sec   112 MBytes   940 Mbits/sec\n[  3]  1.0- 2.0 sec   112 MBytes   941 Mbits/sec\n\
        [  3]  0.0- 2.0 sec   224 MBytes   939 Mbits/sec\n";

    fn rates(text: &str) -> Vec<(String, f64)> {
        let entries = read(text).unwrap_or_default().entries;
        entries
            .into_iter()
            .map(|e| (e.workload, e.stated.metrics.get("bytes_per_s").copied().unwrap_or(-1.0) * 8.0))
            .collect()
    }

    #[test]
    fn the_row_over_the_whole_test_is_the_result_and_no_interval() {
        assert_eq!(rates(TCP), [("tcp".to_owned(), 939e6)]);
        let entry = &read(TCP).expect("iperf's").entries[0];
        assert_eq!((entry.target.as_deref(), entry.duration_ns), (Some("10.0.0.2"), Some(2_000_000_000)));
        let cut = &TCP[..TCP.rfind("[  3]").expect("there")];
        let found = read(cut).expect("iperf's");
        assert_eq!((found.entries.len(), found.not_understood.len()), (0, 1));
    }

    #[test]
    fn several_streams_need_their_sum_and_two_ways_are_two_results() {
        let two = "Client connecting to h, TCP port 5001\n[  3] local 10.0.0.1 port 1 connected with 10.0.0.2 port 5001\n\
            [  4] local 10.0.0.1 port 2 connected with 10.0.0.2 port 5001\n[  3] 0.00-10.00 sec   500 MBytes   419 Mbits/sec\n\
            [  4] 0.00-10.00 sec   400 MBytes   336 Mbits/sec\n[SUM] 0.00-10.00 sec   900 MBytes   755 Mbits/sec\n";
        assert_eq!(rates(two), [("tcp-p2".to_owned(), 755e6)]);
        let unsummed = read(&two[..two.find("[SUM]").expect("there")]).expect("iperf's");
        assert_eq!((unsummed.entries.len(), unsummed.not_understood.len()), (0, 2));
        let directions = two
            .replace("port 2 connected with 10.0.0.2 port 5001", "port 5001 connected with 10.0.0.2 port 2");
        assert_eq!(rates(&directions), [("tcp-sent".to_owned(), 419e6), ("tcp-received".to_owned(), 336e6)]);
    }

    #[test]
    fn udp_is_what_the_server_got() {
        let text = "Client connecting to h, UDP port 5001\n[  3] local 10.0.0.1 port 1 connected with 10.0.0.2 port 5001\n\
            [  3]  0.0-10.0 sec  1.25 MBytes  1.05 Mbits/sec\n[  3] Sent 893 datagrams\n[  3] Server Report:\n\
            [  3]  0.0-10.0 sec  1.19 MBytes  1.00 Mbits/sec   0.021 ms   43/  893 (4.8%)\n";
        let found = read(text).expect("iperf's");
        let others: Vec<f64> = found.entries[0].stated.others.iter().map(|figure| figure.value).collect();
        assert_eq!((rates(text), others), (vec![("udp".to_owned(), 1e6)], vec![1.05e6, 0.021, 43.0, 893.0]));
    }

    #[test]
    fn a_servers_row_that_was_cut_is_not_what_was_sent_and_a_count_that_was_cut_is_none() {
        let head = "Client connecting to h, UDP port 5001\n[  3] local 10.0.0.1 port 1 connected with 10.0.0.2 port 5001\n";
        let sent = "[  3]  0.0-10.0 sec  1.25 MBytes  1.05 Mbits/sec\n[  3] Sent 893 datagrams\n";
        let arrived = "[  3]  0.0-10.0 sec  1.19 MBytes  1.00 Mbits/sec";
        let others = |text: &str| {
            let entries = read(text).expect("iperf's").entries;
            entries
                .iter()
                .flat_map(|entry| &entry.stated.others)
                .map(|figure| figure.value)
                .collect::<Vec<_>>()
        };
        for end in ["", "\n0.021 ms   43/  893 (4.8%)", "   0.021 ms   43/  8"] {
            assert_eq!(others(&format!("{head}{sent}{arrived}{end}\n")), [1.05e6], "{end}");
            let lost = format!("{head}[  3] Sent 893 datagrams\n{arrived}{end}\n");
            let found = read(&lost).expect("iperf's");
            assert_eq!((found.entries.len(), found.not_understood.len()), (0, 1), "{end}");
        }
    }

    #[test]
    fn csv_is_read_for_both_ways_and_for_sums() {
        let both = "20230301100000,10.0.0.1,54402,10.0.0.2,5001,5,0.0-10.0,1250000000,1000000000\n\
                    20230301100010,10.0.0.1,5001,10.0.0.2,54403,4,0.0-10.0,625000000,500000000\n";
        assert_eq!(rates(both), [("sent".to_owned(), 1e9), ("received".to_owned(), 5e8)]);
        let sum = "20230301100000,10.0.0.1,54401,10.0.0.2,5001,5,0.0-10.0,1250000000,1000000000\n\
                   20230301100000,10.0.0.1,54402,10.0.0.2,5001,6,0.0-10.0,1250000000,1000000000\n\
                   20230301100000,10.0.0.1,0,10.0.0.2,5001,-1,0.0-10.0,2500000000,2000000000\n";
        assert_eq!(rates(sum), [("sent-p2".to_owned(), 2e9)]);
        let found = read(&sum[..sum.rfind("2023").expect("there")]).expect("iperf's");
        assert_eq!((found.entries.len(), found.not_understood.len()), (0, 2));
        let udp =
            "20230301100000,10.0.0.2,5001,10.0.0.1,54402,3,0.0-10.0,1250000,1000000,0.021,43,893,4.815,0\n";
        let entry = &read(udp).expect("iperf's").entries[0];
        assert_eq!(
            (&*entry.workload, entry.stated.others.len(), entry.stated.metrics["bytes_per_s"]),
            ("udp", 5, 125_000.0)
        );
    }
}
