//! Reads ping's output: of iputils, busybox, BSD and macOS, and of Windows in any language.
//!
//! Figures come from the summary. Round-trip times become a histogram only if the text has all replies that the summary counts, and their mean equals
//! the summary's.

use iotax_model::histogram::Histogram;
use iotax_model::record::{Tallies, Tally};

use super::lines::lines;
use super::parse_util::{agree, decimal, half_a_digit, not_understood, whole_nanos};
use super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

/// Nanoseconds per millisecond, which is the unit of ping's times.
const MS: f64 = 1e6;

/// Finds ping's results in a text; `None` if the text has no output of ping. Results of the same host are repetitions.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("ms") && !text.contains('%') {
        return None;
    }
    let mut found = Found { tool: "ping", ..Found::default() };
    let mut test: Option<Test> = None;
    let mut lines = lines(text).enumerate().peekable();
    while let Some((i, line)) = lines.next().filter(|_| !found.is_cut) {
        let next = lines.peek().map_or("", |(_, next)| *next);
        if let Some(head) = Test::of_head(line, i + 1) {
            close(test.replace(head), &mut found);
        } else if let Some(host) = host_of_summary(line) {
            if test.as_ref().is_none_or(|test| test.summary || test.host.as_ref().is_some_and(|h| *h != host))
            {
                close(test.replace(Test { line: i + 1, ..Test::default() }), &mut found);
            }
            let test = test.get_or_insert_default();
            (test.host, test.summary) = (Some(host), true);
        } else if let Some(times) = Times::of(line, next, test.is_some()) {
            let mut test = test.take().unwrap_or_else(|| Test { line: i + 1, ..Test::default() });
            test.times = Some(times);
            close(Some(test), &mut found);
        } else if line.contains("min/avg/max") {
            found.miss(not_understood(i + 1, line, "its times are not there or contradict one another"));
        } else if let Some(test) = &mut test {
            test.take(line, next);
        }
    }
    close(test, &mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// A run of ping that is being parsed.
#[derive(Default)]
struct Test {
    line: usize,
    head: String,
    host: Option<String>,
    /// Payload of a request in bytes.
    payload: Option<u64>,
    /// Time of the first reply, which `-D` prints.
    time: Option<Stamp>,
    /// Size of a reply in bytes.
    reply: Option<u64>,
    /// Round-trip times in milliseconds; `None` for a reply with only an upper bound, such as `<1ms`.
    replies: Vec<Option<f64>>,
    /// True after the first line of the summary.
    summary: bool,
    counts: Option<Counts>,
    times: Option<Times>,
}

/// Counts of the summary: requests, replies, and loss in percent.
struct Counts {
    sent: u64,
    received: u64,
    duplicates: Option<u64>,
    loss: f64,
}

/// Round-trip times of the summary in milliseconds.
struct Times {
    min: f64,
    mean: f64,
    max: f64,
    deviation: Option<(&'static str, f64)>,
    /// Largest rounding error of the mean in milliseconds.
    slack: f64,
}

impl Test {
    /// Parses the first line of a run: `PING host (address) 56(84) bytes of data.`, `Pinging host with 32 bytes of data:`.
    fn of_head(line: &str, number: usize) -> Option<Self> {
        let trimmed = line.trim();
        let words: Vec<&str> = trimmed.split_whitespace().collect();
        let windows = trimmed.to_lowercase().starts_with("ping") && trimmed.ends_with(':');
        let size = words.iter().skip(2).find_map(|word| whole(word.split('(').next()?));
        let host = if words.first() == Some(&"PING") {
            words.get(1).map(|host| host.trim_end_matches(':').to_owned())
        } else if windows && size.is_some() {
            None
        } else {
            return None;
        };
        Some(Self { line: number, head: trimmed.to_owned(), host, payload: size, ..Self::default() })
    }

    /// Reads a reply, or the counts of the summary; ignores other lines.
    fn take(&mut self, line: &str, next: &str) {
        if self.summary && self.counts.is_none() {
            self.counts = Counts::of(line).or_else(|| Counts::of(&format!("{line} {next}")));
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let time = words.first().and_then(|word| seconds_since_1970(word));
        self.time = self.time.or(time);
        if let [bytes, "bytes", "from", ..] = words[usize::from(time.is_some())..] {
            self.reply = whole(bytes);
        }
        for (i, word) in words.iter().enumerate() {
            let Some(at) = word.find(['=', '<']) else { continue };
            let value = &word[at + 1..];
            let number = match value.strip_suffix("ms") {
                Some(number) => number,
                None if words.get(i + 1).is_some_and(|unit| *unit == "ms") => value,
                None => continue,
            };
            self.replies.push(decimal(number).filter(|_| word[at..].starts_with('=')));
        }
    }

    /// Returns the histogram of all replies; `None` if the text does not have all of them or their size, or if their mean differs from the
    /// summary's.
    fn histogram(&self) -> Option<Tally> {
        let (counts, times) = (self.counts.as_ref()?, self.times.as_ref()?);
        let replies: Vec<f64> = self.replies.iter().copied().collect::<Option<_>>()?;
        let mean = replies.iter().sum::<f64>() / replies.len() as f64;
        let fits = agree(mean, times.mean, 0.01) || (mean - times.mean).abs() <= 2.0 * times.slack;
        if replies.len() as u64 != counts.received + counts.duplicates.unwrap_or_default()
            || replies.is_empty()
            || !fits
        {
            return None;
        }
        let mut latency = Histogram::new();
        for reply in &replies {
            latency.add(whole_nanos(reply * MS)?);
        }
        let ios = replies.len() as u64;
        let bytes = ios.checked_mul(self.reply.or(self.payload)?)?;
        Some(Tally { ios, bytes, latency, response: None })
    }
}

/// Returns the host in `--- host ping statistics ---` or `Ping statistics for host:`.
fn host_of_summary(line: &str) -> Option<String> {
    let trimmed = line.trim();
    if !trimmed.to_lowercase().contains("ping") {
        return None;
    }
    if let Some(inner) = trimmed.strip_prefix("---").and_then(|rest| rest.strip_suffix("---")) {
        return inner.split_whitespace().next().map(str::to_owned);
    }
    let host = trimmed.strip_suffix(':')?.split_whitespace().last()?;
    // An address, or a name with a domain; any other word may be the end of a sentence.
    (trimmed.to_lowercase().starts_with("ping") || trimmed.to_lowercase().contains(" ping "))
        .then(|| host.to_owned())
        .filter(|host| host.contains(['.', ':', '-']) || trimmed.split_whitespace().count() <= 4)
}

impl Counts {
    /// Parses two counts and a percentage, which have the same order in all languages: `5 packets transmitted, 5 received, 0% packet loss`,
    /// `Packets: Sent = 4, Received = 4, Lost = 0 (0% loss),`.
    fn of(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let mut counts = words.by_ref().filter_map(|word| whole(word.trim_end_matches(',')));
        let (sent, received) = (counts.next()?, counts.next()?);
        let share = line.split_whitespace().find_map(|word| word.trim_start_matches('(').split_once('%'))?.0;
        let loss = decimal(share)?;
        let lost = sent.saturating_sub(received) as f64 / sent.max(1) as f64 * 100.0;
        let mut all = line.split_whitespace();
        let duplicates = all
            .find_map(|word| whole(word.strip_prefix('+')?))
            .filter(|_| all.next().is_some_and(|word| word.starts_with("dup")));
        ((loss - lost).abs() <= 1.0 || received > sent).then_some(Self { sent, received, duplicates, loss })
    }
}

impl Times {
    /// Parses the times of the summary: `rtt min/avg/max/mdev = 0.025/0.037/0.045/0.008 ms`, `Minimum = 0ms, Maximum = 1ms, Average = 0ms`.
    fn of(line: &str, next: &str, inside: bool) -> Option<Self> {
        let known = line.contains("rtt") || line.contains("round-trip");
        if line.contains("min/avg/max") && (inside || known) {
            return Self::slashed(line).or_else(|| Self::slashed(&format!("{line} {next}")));
        }
        let values: Vec<&str> =
            line.split('=').skip(1).filter_map(|part| part.split_whitespace().next()).collect();
        let [min, max, mean] = values[..] else { return None };
        let value = |text: &str| decimal(text.trim_end_matches(',').strip_suffix("ms")?);
        if !inside || line.to_lowercase().contains("ttl") {
            return None;
        }
        let times =
            Self { min: value(min)?, mean: value(mean)?, max: value(max)?, deviation: None, slack: 1.0 };
        times.in_order()
    }

    fn slashed(line: &str) -> Option<Self> {
        let (names, values) = line.split_once('=')?;
        let mut words = values.split_whitespace();
        let parts: Vec<&str> = words.next()?.split('/').collect();
        words.next().filter(|unit| unit.trim_end_matches(',') == "ms")?;
        let [min, mean, max] = [parts.first()?, parts.get(1)?, parts.get(2)?].map(|part| decimal(part));
        let deviation = match parts.get(3) {
            Some(text) => Some((if names.contains("mdev") { "mdev" } else { "stddev" }, decimal(text)?)),
            None => None,
        };
        let times = Self { min: min?, mean: mean?, max: max?, deviation, slack: half_a_digit(parts[1]) };
        (parts.len() == names.matches('/').count() + 1).then_some(times)?.in_order()
    }

    fn in_order(self) -> Option<Self> {
        (self.min <= self.mean && self.mean <= self.max).then_some(self)
    }
}

fn whole(word: &str) -> Option<u64> {
    (!word.is_empty() && word.chars().all(|c| c.is_ascii_digit())).then(|| word.parse().ok()).flatten()
}

/// Parses a time such as `[1795319498.123456]`, in seconds since 1970-01-01 UTC.
fn seconds_since_1970(word: &str) -> Option<Stamp> {
    let (seconds, _) = word.strip_prefix('[')?.strip_suffix(']')?.split_once(['.', ','])?;
    Stamp::since_1970(whole(seconds)?.checked_mul(1000)?)
}

/// Converts a run with a summary to an entry.
fn close(test: Option<Test>, found: &mut Found) {
    let Some(test) = test else { return };
    if test.times.is_none() && test.counts.is_none() {
        // A first line alone may come from anything.
        if !test.replies.is_empty() {
            let reason = "its summary is not there, and without it nobody knows whether all replies are";
            found.miss(not_understood(test.line, &test.head, reason));
        }
        return;
    }
    let workload = test.payload.map_or_else(|| "ping".to_owned(), |bytes| format!("ping-{bytes}"));
    let mut entry =
        Entry { target: test.host.clone(), workload, time: test.time, line: test.line, ..Entry::default() };
    if let Some(times) = &test.times {
        if times.mean > 0.0 {
            entry.state(Metric::LATENCY_MEAN, Some(times.mean * MS));
        } else {
            entry.notes.push("the mean is below the millisecond that this ping counts in: not known".into());
        }
        entry.add("min", Some(times.min), "ms");
        entry.add("max", Some(times.max), "ms");
        if let Some((name, value)) = times.deviation {
            entry.add(name, Some(value), "ms");
        }
    }
    if let Some(counts) = &test.counts {
        entry.add("sent", Some(counts.sent as f64), "");
        entry.add("received", Some(counts.received as f64), "");
        entry.add("loss", Some(counts.loss), "%");
        entry.add("duplicates", counts.duplicates.map(|count| count as f64), "");
        if let Some(count) = counts.duplicates {
            let what = if count == 1 {
                "1 duplicate reply is".into()
            } else {
                format!("{count} duplicate replies are")
            };
            entry.notes.push(format!("{what} in the times: something on the way answers or forwards twice"));
        }
        if counts.received < counts.sent {
            entry.notes.push("requests were lost: the times are those of the replies that came".into());
        }
    }
    entry.tallies = test.histogram().map(|read| Box::new(Tallies { read: Some(read), ..Tallies::default() }));
    found.keep(entry);
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
mod tests {
    use super::*;

    fn one(text: &str) -> Entry {
        let found = read(text).expect("ping's");
        assert_eq!(found.entries.len(), 1, "{found:?}");
        found.entries.into_iter().next().expect("one")
    }

    fn other(entry: &Entry, name: &str) -> Option<f64> {
        entry.stated.others.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    const IPUTILS: &str = "PING box (10.0.0.7) 56(84) bytes of data.\n64 bytes from box (10.0.0.7): icmp_seq=1 ttl=64 time=0.200 ms\n\
        64 bytes from box (10.0.0.7): icmp_seq=2 ttl=64 time=0.400 ms\n\n--- box ping statistics ---\n\
        3 packets transmitted, 2 received, 33.3333% packet loss, time 2031ms\nrtt min/avg/max/mdev = 0.200/0.300/0.400/0.100 ms\n";

    #[test]
    fn iputils_gives_mean_loss_and_every_reply() {
        let entry = one(IPUTILS);
        assert_eq!((entry.target.as_deref(), &*entry.workload), (Some("box"), "ping-56"));
        assert_eq!(entry.stated.metrics["latency_mean"], 300_000.0);
        assert_eq!([other(&entry, "mdev"), other(&entry, "sent")], [Some(0.1), Some(3.0)]);
        let read = entry.tallies.and_then(|tallies| tallies.read).expect("all replies");
        assert_eq!((read.ios, read.bytes, read.latency.max()), (2, 128, Some(400_000)));
        assert_eq!(entry.notes.len(), 1);
    }

    #[test]
    fn a_reply_that_is_missing_takes_the_histogram_and_not_the_mean() {
        let entry =
            one(&IPUTILS.replace("64 bytes from box (10.0.0.7): icmp_seq=2 ttl=64 time=0.400 ms\n", ""));
        assert_eq!((entry.stated.metrics["latency_mean"], entry.tallies), (300_000.0, None));
        let cut = read(&IPUTILS[..IPUTILS.find("---").expect("there")]).expect("ping's");
        assert_eq!((cut.entries.len(), cut.not_understood[0].number), (0, 1));
    }

    #[test]
    fn bsd_and_other_countries_write_it_otherwise() {
        let mac = IPUTILS
            .replace("2 received, 33.3333%", "2 packets received, 33.3%")
            .replace("rtt", "round-trip")
            .replace("mdev", "stddev");
        assert_eq!(other(&one(&mac), "stddev"), Some(0.1));
        let comma = IPUTILS.replace('.', ",").replace("10,0,0,7", "10.0.0.7");
        assert_eq!(one(&comma).stated.metrics["latency_mean"], 300_000.0);
        assert_eq!(one(&comma).tallies.expect("all").ios(), 2);
    }

    #[test]
    fn windows_is_read_in_two_languages_and_below_a_millisecond_is_not_known() {
        let english = "Pinging 10.0.0.1 with 32 bytes of data:\nReply from 10.0.0.1: bytes=32 time=3ms TTL=64\nReply from 10.0.0.1: bytes=32 time=4ms TTL=64\n\n\
            Ping statistics for 10.0.0.1:\n    Packets: Sent = 2, Received = 2, Lost = 0 (0% loss),\nApproximate round trip times in milli-seconds:\n    Minimum = 3ms, Maximum = 4ms, Average = 3ms\n";
        let entry = one(english);
        assert_eq!((entry.target.as_deref(), entry.stated.metrics["latency_mean"]), (Some("10.0.0.1"), 3e6));
        assert_eq!(entry.tallies.expect("all").latency().max(), Some(4_000_000));
        let german = "Ping wird ausgeführt für 10.0.0.1 mit 32 Bytes Daten:\nAntwort von 10.0.0.1: Bytes=32 Zeit<1ms TTL=64\nAntwort von 10.0.0.1: Bytes=32 Zeit=1ms TTL=64\n\n\
            Ping-Statistik für 10.0.0.1:\n    Pakete: Gesendet = 2, Empfangen = 2, Verloren = 0\n    (0% Verlust),\nCa. Zeitangaben in Millisek.:\n    Minimum = 0ms, Maximum = 1ms, Mittelwert = 0ms\n";
        let entry = one(german);
        assert_eq!(
            (&*entry.workload, other(&entry, "loss"), other(&entry, "max")),
            ("ping-32", Some(0.0), Some(1.0))
        );
        assert!(entry.stated.metrics.is_empty() && entry.tallies.is_none() && entry.notes.len() == 1);
    }

    #[test]
    fn a_host_that_never_answers_has_loss_and_no_latency() {
        let entry = one(
            "PING h (10.9.9.9) 56(84) bytes of data.\n\n--- h ping statistics ---\n4 packets transmitted, 0 received, 100% packet loss, time 3060ms\n",
        );
        assert_eq!((other(&entry, "loss"), entry.stated.metrics.len()), (Some(100.0), 0));
    }

    #[test]
    fn the_summary_of_another_host_is_not_given_to_this_one() {
        let text = format!(
            "PING first (10.0.0.1) 56(84) bytes of data.\n64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=9.0 ms\n{}",
            &IPUTILS[IPUTILS.find("---").expect("there")..]
        );
        let found = read(&text).expect("ping's");
        assert_eq!(found.entries[0].target.as_deref(), Some("box"));
        assert_eq!(
            (found.entries.len(), found.not_understood.len(), found.entries[0].tallies.is_none()),
            (1, 1, true)
        );
    }
}
