//! The results that both ends exchange after a test: iperf3's JSON, with additional keys between two iotax ends.

use iotax_model::record::{CpuTime, Gap};
use serde::{Deserialize, Serialize};

use super::report::{End, StreamEnd, StreamFigures};

/// The results of one end in iperf3's format.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Results {
    cpu_util_total: f64,
    cpu_util_user: f64,
    cpu_util_system: f64,
    /// 1 if this end counts retransmits; -1, which iperf3 writes as 2^64 - 1, if this end does not send, or for UDP.
    sender_has_retransmits: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    congestion_used: Option<String>,
    streams: Vec<StreamResult>,
    /// Results that only iotax ends exchange; iperf3 ignores the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    iotax: Option<Extension>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct StreamResult {
    id: u32,
    bytes: u64,
    /// Number of retransmitted segments; -1 or 2^64 - 1 if unknown.
    retransmits: f64,
    /// Interarrival jitter in seconds.
    jitter: f64,
    errors: f64,
    /// The part of `errors` that belongs to the warm-up; `None` from iperf3 before 3.13.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_errors: Option<f64>,
    /// Number of datagrams sent, including the warm-up; the receiver derives it from their sequence numbers. 0 for TCP.
    packets: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_packets: Option<f64>,
    start_time: f64,
    end_time: f64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Extension {
    cpu: Option<CpuTime>,
    streams: Vec<StreamExtension>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct StreamExtension {
    id: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_order: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duplicates: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ns: Option<[u64; 3]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_cwnd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_window: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Gap>,
    /// The reason why the stream broke; `None` if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Results {
    /// Converts one end's results to iperf3's format.
    pub(super) fn of(end: &End, udp: bool) -> Self {
        let seconds = (end.duration_ns as f64 / 1e9).max(1e-9);
        let percent = |ns: u64| ns as f64 / 1e7 / seconds;
        let cpu = end.cpu.unwrap_or_default();
        let sends = end.streams.iter().any(|stream| stream.sends);
        Self {
            cpu_util_total: percent(cpu.total_ns()),
            cpu_util_user: percent(cpu.user_ns),
            cpu_util_system: percent(cpu.system_ns),
            sender_has_retransmits: if sends && !udp { 1.0 } else { -1.0 },
            congestion_used: end.congestion.clone(),
            streams: end.streams.iter().map(|stream| StreamResult::of(stream, udp)).collect(),
            iotax: Some(Extension {
                cpu: end.cpu,
                streams: end.streams.iter().map(StreamExtension::of).collect(),
            }),
        }
    }

    /// Checks the other end's results and converts them. Streams that `local`, this end's results, does not have are ignored. `warmed_up`
    /// is true if the test had a warm-up.
    pub(super) fn read(self, local: &End, udp: bool, warmed_up: bool) -> End {
        let duration_ns =
            self.streams.iter().filter_map(|stream| nanos(stream.end_time - stream.start_time)).max();
        let duration_ns = duration_ns.unwrap_or(local.duration_ns);
        let share = |percent: f64| nanos(percent / 100.0 * duration_ns as f64 / 1e9);
        let extension = self.iotax.unwrap_or_default();
        let derived = share(self.cpu_util_user).zip(share(self.cpu_util_system));
        let cpu = extension.cpu.or(derived.map(|(user_ns, system_ns)| CpuTime { user_ns, system_ns }));
        let streams = local.streams.iter().filter_map(|stream| {
            let result = self.streams.iter().find(|result| result.id == stream.id)?;
            let more = extension.streams.iter().find(|more| more.id == stream.id);
            Some(result.read(!stream.sends, udp, warmed_up, more))
        });
        End { duration_ns, cpu, congestion: self.congestion_used, streams: streams.collect() }
    }
}

impl StreamResult {
    fn of(stream: &StreamEnd, udp: bool) -> Self {
        let StreamFigures { bytes, packets, lost, jitter_ns, retransmits, .. } = stream.figures;
        let count = |count: Option<u64>| count.map_or(0.0, |count| count as f64);
        // The count of packets includes the warm-up, because iperf3 subtracts the warm-up: before 3.13 by its own count, later by the count
        // that we send. It subtracts losses in the warm-up only if we send them.
        let omitted = stream.omitted_packets as f64;
        let packets = if udp { count(packets) + count(lost) + omitted } else { 0.0 };
        Self {
            id: stream.id,
            bytes,
            retransmits: retransmits.map_or(-1.0, |count| count as f64),
            jitter: count(jitter_ns) / 1e9,
            errors: count(lost),
            omitted_errors: Some(0.0),
            packets,
            omitted_packets: Some(omitted),
            start_time: 0.0,
            end_time: stream.duration_ns as f64 / 1e9,
        }
    }

    fn read(&self, sends: bool, udp: bool, warmed_up: bool, more: Option<&StreamExtension>) -> StreamEnd {
        // Before 3.13, iperf3's datagram counts include the warm-up.
        let whole = udp && (!warmed_up || self.omitted_packets.is_some());
        let without = |all: f64, omitted: Option<f64>| count(all - omitted.unwrap_or(0.0)).filter(|_| whole);
        let sent = without(self.packets, self.omitted_packets);
        let lost = without(self.errors, self.omitted_errors).filter(|_| !sends);
        let derived = sent.map(|sent| sent.saturating_sub(lost.unwrap_or(0)));
        let figures = StreamFigures {
            bytes: self.bytes,
            packets: more.and_then(|more| more.packets).or(derived),
            lost,
            out_of_order: more.and_then(|more| more.out_of_order),
            duplicates: more.and_then(|more| more.duplicates),
            jitter_ns: nanos(self.jitter).filter(|_| udp && !sends),
            retransmits: count(self.retransmits).filter(|_| sends && !udp),
        };
        StreamEnd {
            id: self.id,
            sends,
            duration_ns: nanos(self.end_time - self.start_time).unwrap_or(0),
            figures,
            omitted_packets: count(self.omitted_packets.unwrap_or(0.0)).unwrap_or(0),
            rtt_ns: more.and_then(|more| more.rtt_ns),
            max_cwnd: more.and_then(|more| more.max_cwnd),
            max_window: more.and_then(|more| more.max_window),
            gaps: more.map(|more| more.gaps.clone()).unwrap_or_default(),
            // The text may be printed on a terminal.
            error: more.and_then(|more| Some(more.error.as_ref()?.escape_debug().take(200).collect())),
        }
    }
}

impl StreamExtension {
    fn of(stream: &StreamEnd) -> Self {
        let StreamFigures { packets, out_of_order, duplicates, .. } = stream.figures;
        Self {
            id: stream.id,
            packets,
            out_of_order,
            duplicates,
            rtt_ns: stream.rtt_ns,
            max_cwnd: stream.max_cwnd,
            max_window: stream.max_window,
            gaps: stream.gaps.clone(),
            error: stream.error.clone(),
        }
    }
}

/// Converts a peer's number to a count; `None` for NaN, negative values such as -1, and values from 9e18.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn count(value: f64) -> Option<u64> {
    (0.0..9e18).contains(&value).then(|| value.round() as u64)
}

/// Converts seconds to nanoseconds; `None` if out of range.
fn nanos(seconds: f64) -> Option<u64> {
    count(seconds * 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(sends: bool) -> StreamEnd {
        StreamEnd { id: 1, sends, duration_ns: 1_000_000_000, ..StreamEnd::default() }
    }

    fn end(stream: StreamEnd) -> End {
        let cpu = Some(CpuTime { user_ns: 100_000_000, system_ns: 400_000_000 });
        End { duration_ns: stream.duration_ns, cpu, congestion: Some("cubic".into()), streams: vec![stream] }
    }

    #[test]
    fn what_an_end_of_ours_tells_is_what_it_knows() {
        let figures = StreamFigures {
            bytes: 7000,
            packets: Some(90),
            lost: Some(10),
            out_of_order: Some(2),
            duplicates: Some(1),
            jitter_ns: Some(25_000),
            retransmits: None,
        };
        let gap = Gap { upload: true, at_ns: 5, duration_ns: 9, lost_bytes: Some(3) };
        let remote = end(StreamEnd {
            figures,
            omitted_packets: 40,
            gaps: vec![gap],
            error: Some("reset".into()),
            ..stream(false)
        });
        let text = serde_json::to_string(&Results::of(&remote, true)).expect("written");
        let read: Results = serde_json::from_str(&text).expect("read");
        assert_eq!((read.streams[0].packets, read.cpu_util_total), (140.0, 50.0));
        assert_eq!(read.read(&end(stream(true)), true, true), remote);
    }

    #[test]
    fn what_iperf3_does_not_know_is_absent() {
        // As version 3.12 writes it.
        let text = r#"{"cpu_util_total":40,"cpu_util_user":10,"cpu_util_system":30,"sender_has_retransmits":18446744073709551615,
            "streams":[{"id":1,"bytes":99,"retransmits":18446744073709551615,"jitter":0.001,"errors":3,"packets":20,"start_time":0,"end_time":2}]}"#;
        let read = |local: StreamEnd, udp: bool, warmed_up: bool| {
            let results: Results = serde_json::from_str(text).expect("read");
            results.read(&end(local), udp, warmed_up).streams.remove(0).figures
        };
        let udp = read(stream(true), true, false);
        assert_eq!((udp.packets, udp.lost, udp.jitter_ns), (Some(17), Some(3), Some(1_000_000)));
        assert_eq!((udp.duplicates, udp.retransmits), (None, None));
        let warmed_up = read(stream(true), true, true);
        assert_eq!((warmed_up.packets, warmed_up.lost), (None, None), "they hold the warm-up's");
        let tcp = read(stream(false), false, false);
        assert_eq!(tcp, StreamFigures { bytes: 99, ..StreamFigures::default() });
        let results: Results = serde_json::from_str(text).expect("read");
        let cpu = results.read(&end(stream(true)), false, false).cpu;
        assert_eq!(cpu, Some(CpuTime { user_ns: 200_000_000, system_ns: 600_000_000 }));
    }
}
