//! Reads iperf3's output: JSON, as one document or one event per line, and text.
//!
//! The rate is the receiver's; the sender's is an additional figure. Only the totals are read, because intervals are parts of one test and
//! not repetitions.

mod text;

use iotax_model::units::Bytes;

use super::iperf::add_datagrams;
use super::json_tree::{self, Value};
use super::parse_util::{agree, not_understood, whole_nanos};
use super::{Entry, Found, Stamp};
use iotax_analysis::Metric;

/// Note for a result whose rate is that of the sender.
const SENDERS: &str = "the rate is the sender's: what was lost is in it";

/// Returns the note for a result in which the rate of one end is 0.
fn unknown(end: &str) -> String {
    format!("the {end}'s rate is unknown: iperf3 writes 0 for what it does not know")
}

/// Retransmit counts from this value on are negative numbers that were printed as unsigned.
const MOST_RETRANSMITS: f64 = 2_147_483_648.0;

/// Adds the number of retransmits. If the counter fell below 0, adds a note instead.
fn add_retransmits(entry: &mut Entry, count: Option<f64>) {
    match count {
        Some(count) if !(0.0..MOST_RETRANSMITS).contains(&count) => {
            entry.notes.push(format!("retransmits are unknown: {count} is a count that ran below 0"));
        }
        count => entry.add("retransmits", count, ""),
    }
}

/// Finds iperf3's results in a text; `None` if the text has no output of iperf3. Results of the same host and kind are repetitions.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "iperf3", ..Found::default() };
    // Events of --json-stream come in order: a start belongs to the next end.
    let mut start = None;
    json_tree::objects(text, &mut |line, object| {
        let Some(object) = object.or_torn(line, &["\"test_start\""], &mut found) else { return };
        let (event, data) = (object.get("event"), object.get("data"));
        if event.is("start") {
            start = Some(Start::of(data));
        } else if event.is("end") {
            document(&start.take().unwrap_or_default(), data, false, line, &mut found);
        } else if event.is("error") {
            refused(data, line, &mut found);
        } else if event.is_null() && is_ours(object) {
            let error = object.get("error");
            let failed = error.text().is_some();
            document(&Start::of(object.get("start")), object.get("end"), failed, line, &mut found);
            refused(error, line, &mut found);
        }
    });
    text::read(text, &mut found);
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

fn is_ours(object: Value<'_>) -> bool {
    let start = object.get("start");
    let version = start.get("version").text();
    let has_version = version.is_some();
    object.get("end").is_map()
        && version.is_none_or(|version| ["iperf", "iotax"].iter().any(|name| version.starts_with(name)))
        && (has_version || start.get("test_start").is_map())
}

/// Reports the error message of a failed test, which has no figures.
fn refused(error: Value<'_>, line: usize, found: &mut Found) {
    if let Some(words) = error.text() {
        found.miss(not_understood(line, &words, "iperf3 says that this test failed"));
    }
}

/// Parameters of a test, known before it runs.
#[derive(Default)]
struct Start {
    version: Option<String>,
    /// Protocol, with `-reverse` if the server sends the data.
    name: String,
    target: Option<String>,
    streams: Option<u32>,
    bs: Option<Bytes>,
    /// Requested rate in bits/s; `None` for unlimited.
    bitrate: Option<u64>,
    time: Option<Stamp>,
}

impl Start {
    fn of(start: Value<'_>) -> Self {
        let test = start.get("test_start");
        let protocol = test.get("protocol").text();
        let mut name = protocol.map_or_else(|| "transfer".to_owned(), |protocol| protocol.to_lowercase());
        if test.get("reverse").u64() == Some(1) {
            name.push_str("-reverse");
        }
        let host = |of: &str| start.at(&[of, "host"]).string();
        let bitrate = [test, start].into_iter().find_map(|of| of.get("target_bitrate").u64());
        let stamp = start.get("timestamp");
        let seconds = || stamp.get("timesecs").u64().and_then(|seconds| seconds.checked_mul(1000));
        Self {
            version: start.get("version").string(),
            name,
            target: host("connecting_to").or_else(|| host("accepted_connection")),
            streams: test.get("num_streams").u64().and_then(|streams| u32::try_from(streams).ok()),
            bs: test.get("blksize").u64().filter(|bytes| *bytes > 0).map(Bytes),
            bitrate: bitrate.filter(|bits| *bits > 0),
            time: stamp.get("timemillisecs").u64().or_else(seconds).and_then(Stamp::since_1970),
        }
    }

    /// Creates an entry for one direction, with the test's parameters; `direction` is appended to the name.
    fn entry(&self, direction: &str) -> Entry {
        let mut entry = Entry { target: self.target.clone(), time: self.time, ..Entry::default() };
        let mut name = format!("{}{direction}", self.name);
        if let Some(streams) = self.streams.filter(|streams| *streams > 1) {
            name = format!("{name}-p{streams}");
        }
        if let Some(bits) = self.bitrate {
            name = format!("{name}-{bits}bit");
        }
        entry.keys.numjobs = self.streams;
        entry.keys.bs = self.bs;
        entry.keys.rate = self.bitrate.map(|bits| Bytes(bits / 8));
        entry.workload = name;
        entry
    }
}

/// Reads the results of a test, in one direction or both. A failed test may have no figures.
fn document(start: &Start, end: Value<'_>, failed: bool, line: usize, found: &mut Found) {
    if let Some(version) = start.version.as_ref().and_then(|version| version.strip_prefix("iperf ")) {
        found.version = Some(version.to_owned());
    }
    let entry_of = |name: &str, sent: &str, received: &str| {
        let mut entry = start.entry(name);
        entry.line = line;
        figures(&mut entry, end.get(sent), end.get(received)).then_some(entry)
    };
    let (sent, received) = ("sum_sent_bidir_reverse", "sum_received_bidir_reverse");
    let both = !end.get(received).is_null() || !end.get(sent).is_null();
    let directions = if both {
        vec![entry_of("-bidir-sent", "sum_sent", "sum_received"), entry_of("-bidir-received", sent, received)]
    } else {
        vec![entry_of("", "sum_sent", "sum_received").or_else(|| {
            // Up to 3.6, UDP tests had a single sum, that of the sender.
            let mut entry = entry_of("", "sum", "")?;
            let sum = end.get("sum");
            entry.state(Metric::BYTES_PER_S, Some(sum.get("bits_per_second").f64()? / 8.0));
            losses(&mut entry, sum);
            entry.notes.push(SENDERS.into());
            Some(entry)
        })]
    };
    if !failed && directions.iter().all(Option::is_none) {
        found.miss(not_understood(line, "end", "no bytes and seconds that the rate fits"));
    }
    for mut entry in directions.into_iter().flatten() {
        shared(&mut entry, end);
        found.keep(entry);
    }
}

/// Returns the rate of a total in bits/s; `None` unless bytes, seconds and rate agree.
fn rate(sum: Value<'_>) -> Option<f64> {
    let [bytes, seconds, rate] = ["bytes", "seconds", "bits_per_second"].map(|key| sum.get(key).f64());
    let (bytes, seconds, rate) = (bytes?, seconds?, rate?);
    (rate > 0.0 && agree(bytes * 8.0 / seconds, rate, 0.02)).then_some(rate)
}

/// Adds the figures of one direction. Returns whether they include a rate.
fn figures(entry: &mut Entry, sent: Value<'_>, received: Value<'_>) -> bool {
    let (sent_rate, received_rate) = (rate(sent), rate(received));
    if let Some(rate) = received_rate {
        entry.state(Metric::BYTES_PER_S, Some(rate / 8.0));
    }
    if let Some(rate) = sent_rate {
        entry.add("sent", Some(rate), "bit/s");
    }
    let section = if received_rate.is_some() { received } else { sent };
    entry.duration_ns = section.get("seconds").f64().and_then(|seconds| whole_nanos(seconds * 1e9));
    for (sum, end) in [(sent, "sender"), (received, "receiver")] {
        entry
            .notes
            .extend(sum.get("bits_per_second").f64().filter(|rate| *rate <= 0.0).map(|_| unknown(end)));
    }
    add_retransmits(entry, sent.get("retransmits").f64());
    // The sender's loss figures are always 0, so use the receiver's.
    losses(entry, received);
    sent_rate.is_some() || received_rate.is_some()
}

/// Adds the UDP figures: jitter, datagrams lost and datagrams sent.
fn losses(entry: &mut Entry, section: Value<'_>) {
    let [jitter, lost, packets, share] =
        ["jitter_ms", "lost_packets", "packets", "lost_percent"].map(|key| section.get(key).f64());
    add_datagrams(entry, jitter, lost, packets);
    entry.add("loss", share.filter(|share| packets != Some(0.0) && (0.0..=100.0).contains(share)), "%");
}

/// Adds the figures of the whole test that are not specific to one direction.
fn shared(entry: &mut Entry, end: Value<'_>) {
    let mut streams = end.get("streams").items();
    if let (Some(stream), None) = (streams.next(), streams.next())
        && let Some(rtt) = stream.at(&["sender", "mean_rtt"]).f64().filter(|rtt| *rtt > 0.0)
    {
        entry.add("mean rtt", Some(rtt), "us");
    }
    for (key, name) in [("host_total", "host cpu"), ("remote_total", "remote cpu")] {
        if let Some(share) = end.at(&["cpu_utilization_percent", key]).f64() {
            entry.add(name, Some(share), "%");
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
mod tests {
    use super::*;

    const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import/");

    fn sample(name: &str) -> Found {
        read(&std::fs::read_to_string(format!("{DATA}{name}")).expect(name)).expect(name)
    }

    fn other(entry: &Entry, name: &str) -> Option<f64> {
        entry.stated.others.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    #[test]
    fn json_of_tcp_udp_and_both_ways_gives_what_was_received() {
        let tcp = sample("iperf3-tcp.json");
        let [entry] = &tcp.entries[..] else { panic!("{tcp:?}") };
        assert_eq!(
            (tcp.version.as_deref(), entry.target.as_deref(), &*entry.workload),
            (Some("3.12"), Some("127.0.0.1"), "tcp")
        );
        assert_eq!(entry.stated.metrics["bytes_per_s"], 21_443_787_464.684_483 / 8.0);
        assert_eq!(
            [other(entry, "retransmits"), other(entry, "mean rtt"), other(entry, "lost")],
            [Some(25.0), Some(40.0), None]
        );
        assert_eq!((entry.keys.bs, entry.time), (Some(Bytes(131_072)), Stamp::since_1970(1_795_319_498_000)));
        let udp = sample("iperf3-udp.json");
        assert_eq!(
            (&*udp.entries[0].workload, udp.entries[0].keys.rate),
            ("udp-100000000bit", Some(Bytes(12_500_000)))
        );
        assert_eq!(
            [other(&udp.entries[0], "packets"), other(&udp.entries[0], "loss")],
            [Some(763.0), Some(0.0)]
        );
        let both = sample("iperf3-bidir.json");
        let names: Vec<&str> = both.entries.iter().map(|entry| &*entry.workload).collect();
        assert_eq!(names, ["tcp-bidir-sent", "tcp-bidir-received"]);
        assert_eq!(both.entries[1].stated.metrics["bytes_per_s"], 12_742_853_676.415_842 / 8.0);
    }

    #[test]
    fn a_test_that_failed_has_words_and_no_figures() {
        let found = sample("iperf3-refused.json");
        assert_eq!((found.entries.len(), found.not_understood.len()), (0, 1));
        assert!(found.not_understood[0].text.contains("Connection refused"));
    }

    #[test]
    fn events_and_several_documents_are_several_results() {
        let text = std::fs::read_to_string(format!("{DATA}iperf3-tcp.json")).expect("there");
        let whole: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let event = |name: &str| serde_json::json!({ "event": name, "data": whole[name] }).to_string();
        let stream =
            format!("{}\n{{\"event\":\"interval\",\"data\":{{}}}}\n{}\n", event("start"), event("end"));
        let twice = read(&format!("{text}\nand again\n{text}{stream}")).expect("iperf3's");
        assert_eq!(twice.entries.len(), 3);
        assert!(twice.entries.iter().all(|entry| entry.stated == twice.entries[0].stated));
    }

    #[test]
    fn nan_in_the_place_of_a_figure_is_no_figure() {
        let text = std::fs::read_to_string(format!("{DATA}iperf3-udp.json")).expect("there");
        let found = read(&text.replace("0.00800157826609751", "-nan")).expect("iperf3's");
        assert_eq!(
            (other(&found.entries[0], "jitter"), other(&found.entries[0], "packets")),
            (None, Some(763.0))
        );
    }

    #[test]
    fn the_sum_of_old_versions_is_the_senders() {
        let text = r#"{"start":{"version":"iperf 3.1.3","test_start":{"protocol":"UDP","num_streams":1}},"intervals":[],
            "end":{"sum":{"seconds":10.0,"bytes":1250000,"bits_per_second":1000000.0,"jitter_ms":0.02,"lost_packets":3,"packets":160,"lost_percent":1.875}}}"#;
        let found = read(text).expect("iperf3's");
        let entry = &found.entries[0];
        assert_eq!(
            (entry.stated.metrics["bytes_per_s"], other(entry, "lost"), entry.notes.len()),
            (125_000.0, Some(3.0), 1)
        );
    }
}
