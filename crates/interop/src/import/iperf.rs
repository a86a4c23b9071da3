//! Parses the result rows that iperf2 and iperf3 share: `[  5]   0.00-2.00   sec  4.91 GBytes  21.0 Gbits/sec`.

use super::Entry;
use super::parse_util::{decimal, half_a_digit};

/// A result row: transfer and rate over an interval, of one stream or of all.
#[derive(Debug)]
pub(super) struct Row<'a> {
    /// Stream number, or `SUM`.
    pub(super) id: &'a str,
    /// Direction and host in a bidirectional test, such as `TX-C`.
    pub(super) role: Option<&'a str>,
    /// Start of the interval, in seconds from the test's start.
    pub(super) from: f64,
    /// End of the interval, in seconds from the test's start.
    pub(super) to: f64,
    /// Rate in bits/s, rounded as printed.
    pub(super) bits_per_s: f64,
    /// True if the times have two decimals, as always in iperf3. iperf 2 prints one or four, and two with -e.
    pub(super) may_be_iperf3: bool,
    /// Words of the row after the rate.
    pub(super) rest: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// Parses a row; `None` if the line is not a row, or if transfer, time and rate contradict each other.
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let (id, mut rest) = bracket(line)?;
        let is_stream = id == "SUM" || id.chars().all(|c| c.is_ascii_digit()) && !id.is_empty();
        let mut role = None;
        while let Some((word, after)) = rest.trim_start().starts_with('[').then(|| bracket(rest)).flatten() {
            (role, rest) = (Some(word), after);
        }
        let words: Vec<&str> = rest.split_whitespace().collect();
        let sec = words.iter().take(4).position(|word| *word == "sec")?;
        let span = words[..sec].concat();
        let (from, to) = span.split_once('-')?;
        let [transfer, unit, rate, rate_unit] = words.get(sec + 1..sec + 5)?[..] else { return None };
        let unit = bytes_in(unit)?;
        let rate_bits = bits_per_s_in(rate_unit)?;
        let row = Self {
            id,
            role,
            from: decimal(from)?,
            to: decimal(to)?,
            bits_per_s: decimal(rate)? * rate_bits,
            may_be_iperf3: [from, to].into_iter().all(has_hundredths),
            rest: words[sec + 5..].to_vec(),
        };
        let length = row.to - row.from;
        let given = decimal(transfer)? * unit * 8.0 / length;
        let slack = half_a_digit(rate) * rate_bits
            + half_a_digit(transfer) * unit * 8.0 / length
            + given * (0.02 + half_a_digit(to) / length);
        (is_stream && length > 0.0 && (given - row.bits_per_s).abs() <= slack).then_some(row)
    }

    /// Returns whether the row is the sum of all streams.
    pub(super) fn is_sum(&self) -> bool {
        self.id == "SUM"
    }

    /// Parses jitter in milliseconds, datagrams lost and datagrams sent from a row such as `... 0.007 ms  0/763 (0%)`.
    pub(super) fn datagrams(&self) -> Option<(f64, f64, f64)> {
        let ms = self.rest.iter().position(|word| *word == "ms")?;
        let jitter = decimal(self.rest[ms.checked_sub(1)?])?;
        // iperf2 writes `0/  893`. Both tools print the loss in parentheses after it; without them the count may be truncated.
        let after = &self.rest[ms + 1..];
        let counts = after[..after.iter().position(|word| word.starts_with('('))?].concat();
        let (lost, sent) = counts.split_once('/')?;
        Some((jitter, decimal(lost)?, decimal(sent)?))
    }
}

/// Returns whether a number is printed with two decimals, like `10.00`.
fn has_hundredths(seconds: &str) -> bool {
    seconds.split_once(['.', ',']).is_some_and(|(_, part)| part.len() == 2)
}

/// Adds jitter in milliseconds, lost datagrams and sent datagrams to an entry; nothing if no datagrams were sent.
pub(super) fn add_datagrams(entry: &mut Entry, jitter: Option<f64>, lost: Option<f64>, packets: Option<f64>) {
    if packets == Some(0.0) {
        return;
    }
    entry.add("jitter", jitter, "ms");
    let is_count = |lost: &f64| packets.is_none_or(|packets| (0.0..=packets).contains(lost));
    entry.add("lost", lost.filter(is_count), "");
    entry.add("packets", packets, "");
}

/// Returns the text in the first square brackets, and the rest of the line.
pub(super) fn bracket(line: &str) -> Option<(&str, &str)> {
    let (inside, rest) = line[line.find('[')? + 1..].split_once(']')?;
    Some((inside.trim(), rest))
}

/// Parses stream number and local port from a line such as `[  5] local 10.0.0.1 port 59446 connected to 10.0.0.2 port 5201`.
pub(super) fn connected(line: &str) -> Option<(&str, &str)> {
    let (id, rest) = bracket(line)?;
    let mut words = rest.split_whitespace();
    (words.next()? == "local").then_some(())?;
    Some((id, words.nth(2)?))
}

fn power(letter: &str) -> Option<i32> {
    i32::try_from(["", "K", "M", "G", "T"].iter().position(|known| *known == letter)?).ok()
}

/// Returns the size in bytes of a unit such as `GBytes`, by powers of 1024; `None` for other units.
fn bytes_in(unit: &str) -> Option<f64> {
    Some(1024_f64.powi(power(unit.strip_suffix("Bytes").or_else(|| unit.strip_suffix("Byte"))?)?))
}

/// Returns the size in bits per second of a unit such as `Gbits/sec` (powers of 1000) or `MBytes/sec` (powers of 1024); `None` for other
/// units.
fn bits_per_s_in(unit: &str) -> Option<f64> {
    let unit = unit.strip_suffix("/sec")?;
    match unit.strip_suffix("bits") {
        Some(letter) => Some(1000_f64.powi(power(letter)?)),
        None => Some(bytes_in(unit)? * 8.0),
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
mod tests {
    use super::*;

    #[test]
    fn units_of_bits_are_powers_of_1000_and_of_bytes_of_1024() {
        for (line, rate) in [
            ("[  5]   0.00-2.00   sec  4.91 GBytes  21.1 Gbits/sec    2             sender", 21.1e9),
            (
                "[SUM]   0.00-2.00   sec  5.06 GBytes  2590 MBytes/sec    0             sender",
                2590.0 * 8.0 * 1_048_576.0,
            ),
            ("[  3]  0.0-10.0 sec  1,10 GBytes   941 Mbits/sec", 941e6),
            ("[  3]  0.0- 1.0 sec   112 MBytes   941 Mbits/sec", 941e6),
            ("[  7][RX-C]   0.00-2.00   sec  2.02 GBytes  8.66 Gbits/sec                  receiver", 8.66e9),
        ] {
            assert_eq!(Row::of(line).expect(line).bits_per_s, rate, "{line}");
        }
        for line in [
            "[  5]   0.00-2.00   sec  4.91 GBytes  21.1 Mbits/sec    2             sender",
            "[  5]   0.00-12.00   sec  4.91 GBytes  21.1 Gbits/sec    2             sender",
            "[ ID] Interval           Transfer     Bitrate         Retr",
            "[  5] local 127.0.0.1 port 45788 connected to 127.0.0.1 port 5299",
        ] {
            assert!(Row::of(line).is_none(), "{line}");
        }
    }
}
