//! Reads iperf 2's CSV: time, local address and port, remote address and port, stream number, interval, bytes, bits per second; UDP rows add
//! jitter in milliseconds, datagrams lost and sent, loss in percent, and datagrams out of order.

use std::collections::{HashMap, HashSet};

use super::super::lines::lines;
use super::super::parse_util::{agree, not_understood, whole_nanos};
use super::super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

/// A line of the CSV.
struct Row<'a> {
    line: usize,
    stamp: &'a str,
    other: &'a str,
    own_port: &'a str,
    port: &'a str,
    /// Stream number; negative for the sum of all streams.
    id: i32,
    from: f64,
    to: f64,
    bits_per_s: f64,
    /// UDP fields: jitter, datagrams lost, datagrams sent, loss and out of order; `None` for TCP.
    datagrams: Option<[f64; 5]>,
}

impl<'a> Row<'a> {
    fn of(line: &'a str, number: usize) -> Option<Self> {
        let fields: Vec<&str> = line.trim().split(',').collect();
        let [stamp, _, own_port, other, port, id, span, bytes, rate, rest @ ..] = &fields[..] else {
            return None;
        };
        let stamp_digits = stamp.get(..14)?;
        stamp_digits.chars().all(|c| c.is_ascii_digit()).then_some(())?;
        let (from, to) = span.split_once('-')?;
        let value = |text: &str| text.parse::<f64>().ok().filter(|value| value.is_finite());
        let row = Self {
            line: number,
            stamp: stamp_digits,
            other,
            own_port,
            port,
            id: id.parse().ok()?,
            from: value(from)?,
            to: value(to)?,
            bits_per_s: value(rate)?,
            datagrams: match rest {
                [] => None,
                [jitter, lost, sent, percent, order] => {
                    Some([value(jitter)?, value(lost)?, value(sent)?, value(percent)?, value(order)?])
                }
                _ => return None,
            },
        };
        let given = value(bytes)? * 8.0 / (row.to - row.from);
        // The interval is printed with one decimal.
        let share = 0.02 + 0.1 / (row.to - row.from);
        (row.to > row.from && agree(given, row.bits_per_s, share)).then_some(row)
    }

    /// Returns whether the data is incoming. The end with the lower port is taken for the server.
    fn comes_in(&self) -> bool {
        let port = |text: &str| text.parse::<u32>().unwrap_or(0);
        self.id >= 0 && port(self.own_port) < port(self.port)
    }

    /// Returns a key that all rows of a stream have in common: local port, stream number, remote address.
    fn stream(&self) -> (&'a str, i32, &'a str) {
        (self.own_port, self.id, self.other)
    }

    /// Returns a key that all rows of a test have in common: remote address, time, direction, and true for UDP.
    fn test(&self) -> (&'a str, &'a str, bool, bool) {
        (self.other, self.stamp, self.comes_in(), self.datagrams.is_some())
    }
}

/// Parses a time in digits such as `20230301100010`.
fn stamped(digits: &str) -> Option<Stamp> {
    let part = |from: usize| digits.get(from..from + 2);
    let (year, month, day) = (digits.get(..4)?, part(4)?, part(6)?);
    Stamp::of(&format!("{year}-{month}-{day} {}:{}:{}", part(8)?, part(10)?, part(12)?))
}

/// Adds the results of all tests in the CSV of a text.
pub(super) fn read(text: &str, found: &mut Found) {
    if !text.contains(',') {
        return;
    }
    // A repeated line is the same row.
    let mut known = HashSet::new();
    let rows = lines(text).enumerate().filter_map(|(i, line)| Some((line, Row::of(line, i + 1)?)));
    let rows: Vec<Row<'_>> = rows.filter(|(line, _)| known.insert(line.trim())).map(|(_, row)| row).collect();
    let mut ends: HashMap<_, f64> = HashMap::new();
    for row in &rows {
        let end = ends.entry((row.stream(), row.stamp)).or_insert(row.to);
        *end = end.max(row.to);
    }
    // Rows of single intervals are skipped: the result is the row from 0 to the end, after which its stream has no more rows.
    let mut begins: HashMap<_, f64> = HashMap::new();
    let mut whole: Vec<&Row<'_>> = Vec::new();
    for row in rows.iter().rev() {
        let later = begins.entry(row.stream()).or_insert(f64::MIN);
        if row.from < 0.05 && ends[&(row.stream(), row.stamp)] <= row.to + 0.1 && *later < row.to - 0.1 {
            whole.push(row);
        }
        *later = later.max(row.from);
    }
    let mut tests: Vec<Vec<&Row<'_>>> = Vec::new();
    let mut known = HashMap::new();
    for row in whole.into_iter().rev() {
        let index = *known.entry(row.test()).or_insert_with(|| {
            tests.push(Vec::new());
            tests.len() - 1
        });
        tests[index].push(row);
    }
    tests.iter().for_each(|rows| close(rows, found));
}

fn close(rows: &[&Row<'_>], found: &mut Found) {
    let streams = rows.iter().filter(|row| row.id >= 0).count();
    let row = match (rows.iter().find(|row| row.id < 0), rows) {
        (Some(sum), _) => sum,
        (None, [one]) => one,
        _ => {
            for row in rows {
                let reason = "one of several streams, whose sum (-1) is not there";
                found.miss(not_understood(row.line, &format!("{} bit/s", row.bits_per_s), reason));
            }
            return;
        }
    };
    let mut name = match (row.datagrams.is_some(), row.comes_in()) {
        (true, _) => "udp".to_owned(),
        // TCP or UDP: rows of sent data do not show which.
        (false, true) => "received".to_owned(),
        (false, false) => "sent".to_owned(),
    };
    if streams > 1 {
        name = format!("{name}-p{streams}");
    }
    let mut entry =
        Entry { target: Some(row.other.to_owned()), workload: name, line: row.line, ..Entry::default() };
    entry.duration_ns = whole_nanos((row.to - row.from) * 1e9);
    entry.time = stamped(row.stamp);
    entry.state(Metric::BYTES_PER_S, Some(row.bits_per_s / 8.0));
    for (value, (what, unit)) in row.datagrams.into_iter().flatten().zip([
        ("jitter", "ms"),
        ("lost", ""),
        ("packets", ""),
        ("loss", "%"),
        ("out of order", ""),
    ]) {
        entry.add(what, Some(value), unit);
    }
    found.keep(entry);
}
