//! Writes a network test in the JSON of iperf3 3.12, with an extra section `iotax`.
//!
//! Unknown figures are 0 or absent in iperf3's part, as in iperf3; in the section `iotax` they are absent.

use iotax_analysis::time::utc;
use iotax_netperf::{End, Start, StreamEnd, StreamFigures, StreamInterval, TestInterval, TestReport};
use serde_json::{Map, Value, json};

/// Schema name and version of the section `iotax`.
const SCHEMA: &str = "iotax-net/1";

pub(super) fn document(report: &TestReport, intervals: &[TestInterval]) -> Value {
    json!({
        "start": start(&report.start),
        "intervals": intervals.iter().map(|each| interval(each, report)).collect::<Vec<_>>(),
        "end": end(report),
        "iotax": ours(report),
    })
}

fn start(start: &Start) -> Value {
    let connected = start.connections.iter().map(|stream| {
        json!({
            "socket": stream.id,
            "local_host": stream.local.ip().to_string(),
            "local_port": stream.local.port(),
            "remote_host": stream.remote.ip().to_string(),
            "remote_port": stream.remote.port(),
        })
    });
    let system = rustix::system::uname();
    let system = [system.sysname(), system.nodename(), system.release(), system.version(), system.machine()];
    let mut value = json!({
        "connected": connected.collect::<Vec<_>>(),
        "version": concat!("iotax ", env!("CARGO_PKG_VERSION")),
        "system_info": system.map(|part| part.to_string_lossy().into_owned()).join(" "),
        "timestamp": { "time": utc(start.at_ms), "timesecs": start.at_ms / 1000 },
        "cookie": start.cookie,
        "target_bitrate": start.bitrate,
        "sock_bufsize": start.window,
        "sndbuf_actual": start.buffers.map_or(0, |(send, _)| send),
        "rcvbuf_actual": start.buffers.map_or(0, |(_, receive)| receive),
        "test_start": {
            "protocol": if start.udp { "UDP" } else { "TCP" },
            "num_streams": start.parallel,
            "blksize": start.length,
            "omit": seconds(start.omit.0),
            "duration": seconds(start.time.0),
            "bytes": start.bytes,
            "blocks": start.blocks,
            "reverse": u8::from(start.reverse),
            "tos": 0,
            "target_bitrate": start.bitrate,
        },
    });
    value["accepted_connection"] = json!({ "host": start.peer.ip().to_string(), "port": start.peer.port() });
    if !start.udp {
        value["tcp_mss_default"] = json!(start.mss.unwrap_or(0));
    }
    value
}

/// Converts nanoseconds to seconds; whole seconds become integers, as in iperf3.
fn seconds(ns: u64) -> Value {
    if ns.is_multiple_of(1_000_000_000) { json!(ns / 1_000_000_000) } else { json!(ns as f64 / 1e9) }
}

/// Returns the keys that every object with figures has: `start`, `end`, `seconds`, `bytes` and `bits_per_second`.
fn span(begin_ns: u64, end_ns: u64, bytes: u64) -> Map<String, Value> {
    let ns = end_ns.saturating_sub(begin_ns);
    let rate = if ns == 0 { 0.0 } else { bytes as f64 * 8e9 / ns as f64 };
    let mut map = Map::new();
    map.insert("start".into(), seconds(begin_ns));
    map.insert("end".into(), seconds(end_ns));
    map.insert("seconds".into(), seconds(ns));
    map.insert("bytes".into(), json!(bytes));
    map.insert("bits_per_second".into(), json!(rate));
    map
}

/// Adds jitter in milliseconds, lost datagrams, `packets`, and the lost share in percent of `packets`. `packets` is the number of datagrams
/// sent, as far as it is known.
fn losses(map: &mut Map<String, Value>, received: &StreamFigures, packets: u64) {
    let lost = received.lost.unwrap_or(0);
    let percent = if packets == 0 { 0.0 } else { lost as f64 / packets as f64 * 100.0 };
    map.insert("jitter_ms".into(), json!(received.jitter_ns.unwrap_or(0) as f64 / 1e6));
    map.insert("lost_packets".into(), json!(lost));
    map.insert("packets".into(), json!(packets));
    map.insert("lost_percent".into(), json!(percent));
}

/// Returns the number of datagrams sent, as the receiver knows it: received plus lost.
fn all_packets(figures: &StreamFigures) -> u64 {
    figures.packets.unwrap_or(0) + figures.lost.unwrap_or(0)
}

fn interval(interval: &TestInterval, report: &TestReport) -> Value {
    let udp = report.start.udp;
    let (begin, end) = (interval.begin_ns, interval.end_ns);
    let finish = |mut map: Map<String, Value>, sends: bool| {
        map.insert("omitted".into(), json!(interval.omitted));
        map.insert("sender".into(), json!(sends));
        Value::Object(map)
    };
    let counts = |figures: &StreamFigures, sends: bool| {
        let mut map = span(begin, end, figures.bytes);
        match (udp, sends) {
            (true, true) => drop(map.insert("packets".into(), json!(figures.packets.unwrap_or(0)))),
            (true, false) => losses(&mut map, figures, all_packets(figures)),
            (false, true) => drop(map.insert("retransmits".into(), json!(figures.retransmits.unwrap_or(0)))),
            (false, false) => {}
        }
        map
    };
    let stream = |stream: &StreamInterval| {
        let mut map = counts(&stream.figures, stream.sends);
        map.insert("socket".into(), json!(stream.id));
        if let Some(tcp) = stream.tcp.filter(|_| stream.sends) {
            map.insert("snd_cwnd".into(), json!(tcp.snd_cwnd));
            map.insert("snd_wnd".into(), json!(tcp.snd_wnd.unwrap_or(0)));
            map.insert("rtt".into(), json!(tcp.rtt_ns / 1000));
            map.insert("rttvar".into(), json!(tcp.rttvar_ns / 1000));
            map.insert("pmtu".into(), json!(tcp.pmtu));
        }
        finish(map, stream.sends)
    };
    let mut value = json!({ "streams": interval.streams.iter().map(stream).collect::<Vec<_>>() });
    for (key, sends) in sums(&report.start) {
        let streams = interval.streams.iter().filter(|stream| stream.sends == sends);
        let figures = StreamFigures::sum(streams.map(|stream| stream.figures));
        value[format!("sum{key}")] = finish(counts(&figures, sends), sends);
    }
    value
}

/// Returns the key suffix of each direction's sums, and true if the server sends in that direction.
fn sums(start: &Start) -> Vec<(&'static str, bool)> {
    if start.bidirectional { vec![("", false), ("_bidir_reverse", true)] } else { vec![("", start.reverse)] }
}

/// A stream's figures from the sender and the receiver; `local` is this machine's end.
struct Ends<'a> {
    local: &'a StreamEnd,
    sender: StreamEnd,
    receiver: StreamEnd,
}

fn end(report: &TestReport) -> Value {
    let udp = report.start.udp;
    let ends: Vec<Ends<'_>> = report
        .local
        .streams
        .iter()
        .map(|local| {
            let (sender, receiver) = report.ends(local.id);
            let [sender, receiver] = [sender, receiver].map(|end| end.cloned().unwrap_or_default());
            Ends { local, sender, receiver }
        })
        .collect();
    let streams: Vec<Value> =
        ends.iter().map(|ends| if udp { datagrams(ends) } else { bytes(ends) }).collect();
    let mut value = json!({ "streams": streams });
    for (key, sends) in sums(&report.start) {
        let ends: Vec<&Ends<'_>> = ends.iter().filter(|ends| ends.local.sends == sends).collect();
        totals(&mut value, key, &ends, udp, sends);
    }
    value["cpu_utilization_percent"] = cpu(report);
    if !udp {
        let [local, remote] = [Some(&report.local), report.remote.as_ref()]
            .map(|end| end.and_then(|end| end.congestion.clone()));
        let local_sends = report.local.streams.first().is_some_and(|stream| stream.sends);
        let (sender, receiver) = if local_sends { (local, remote) } else { (remote, local) };
        for (key, name) in [("sender_tcp_congestion", sender), ("receiver_tcp_congestion", receiver)] {
            if let Some(name) = name {
                value[key] = json!(name);
            }
        }
    }
    value
}

fn bytes(ends: &Ends<'_>) -> Value {
    let part = |end: &StreamEnd| {
        let mut map = span(0, end.duration_ns, end.figures.bytes);
        map.insert("socket".into(), json!(ends.local.id));
        map.insert("sender".into(), json!(ends.local.sends));
        map
    };
    let mut sender = part(&ends.sender);
    let rtt_us = |at: usize| ends.sender.rtt_ns.map(|rtt| rtt[at] / 1000);
    // Only the sender knows these.
    let known = [
        ("retransmits", ends.sender.figures.retransmits),
        ("max_snd_cwnd", ends.sender.max_cwnd),
        ("max_snd_wnd", ends.sender.max_window),
        ("max_rtt", rtt_us(2)),
        ("min_rtt", rtt_us(0)),
        ("mean_rtt", rtt_us(1)),
    ];
    for (key, figure) in known.iter().filter_map(|(key, figure)| Some((*key, (*figure)?))) {
        sender.insert(key.into(), json!(figure));
    }
    json!({ "sender": sender, "receiver": part(&ends.receiver) })
}

fn datagrams(ends: &Ends<'_>) -> Value {
    let mut map = span(0, ends.sender.duration_ns, ends.sender.figures.bytes);
    losses(&mut map, &ends.receiver.figures, ends.sender.figures.packets.unwrap_or(0));
    map.insert("socket".into(), json!(ends.local.id));
    map.insert("out_of_order".into(), json!(ends.receiver.figures.out_of_order.unwrap_or(0)));
    map.insert("sender".into(), json!(ends.local.sends));
    json!({ "udp": map })
}

fn totals(value: &mut Value, key: &str, ends: &[&Ends<'_>], udp: bool, sends: bool) {
    let total = |of_sender: bool| {
        let each = ends.iter().map(move |ends| if of_sender { &ends.sender } else { &ends.receiver });
        (
            each.clone().map(|end| end.duration_ns).max().unwrap_or(0),
            StreamFigures::sum(each.map(|end| end.figures)),
        )
    };
    let (sent_ns, sent) = total(true);
    let (received_ns, received) = total(false);
    let mut of_sent = span(0, sent_ns, sent.bytes);
    let mut of_received = span(0, received_ns, received.bytes);
    if udp {
        let packets = sent.packets.unwrap_or(0);
        let mut both = span(0, sent_ns, sent.bytes);
        losses(&mut both, &received, packets);
        both.insert("sender".into(), json!(sends));
        value[format!("sum{key}")] = Value::Object(both);
        losses(&mut of_sent, &StreamFigures::default(), packets);
        of_sent.insert("sender".into(), json!(true));
        losses(&mut of_received, &received, all_packets(&received));
        of_received.insert("sender".into(), json!(false));
    } else {
        if let Some(retransmits) = sent.retransmits {
            of_sent.insert("retransmits".into(), json!(retransmits));
        }
        of_sent.insert("sender".into(), json!(sends));
        of_received.insert("sender".into(), json!(sends));
    }
    value[format!("sum_sent{key}")] = Value::Object(of_sent);
    value[format!("sum_received{key}")] = Value::Object(of_received);
}

fn cpu(report: &TestReport) -> Value {
    let mut map = Map::new();
    for (name, end) in [("host", Some(&report.local)), ("remote", report.remote.as_ref())] {
        let cpu = end.and_then(|end| end.cpu).unwrap_or_default();
        let ns = end.map_or(1, |end| end.duration_ns.max(1)) as f64;
        let parts = [("total", cpu.total_ns()), ("user", cpu.user_ns), ("system", cpu.system_ns)];
        for (part, used) in parts {
            map.insert(format!("{name}_{part}"), json!(used as f64 / ns * 100.0));
        }
    }
    Value::Object(map)
}

/// Returns the section `iotax`, with figures that iperf3's JSON lacks. Times are in nanoseconds.
fn ours(report: &TestReport) -> Value {
    let end = |end: &End| {
        let streams = end.streams.iter().map(|stream| {
            let StreamFigures { packets, lost, out_of_order, duplicates, jitter_ns, retransmits, bytes } =
                stream.figures;
            without_nulls(json!({
                "id": stream.id,
                "sends": stream.sends,
                "duration_ns": stream.duration_ns,
                "bytes": bytes,
                "packets": packets,
                "lost": lost,
                "out_of_order": out_of_order,
                "duplicates": duplicates,
                "jitter_ns": jitter_ns,
                "retransmits": retransmits,
                "rtt_ns": stream.rtt_ns,
                "max_cwnd": stream.max_cwnd,
                "gaps": stream.gaps,
            }))
        });
        without_nulls(json!({
            "duration_ns": end.duration_ns,
            "cpu": end.cpu,
            "congestion": end.congestion,
            "streams": streams.collect::<Vec<_>>(),
        }))
    };
    without_nulls(json!({
        "schema": SCHEMA,
        "version": crate::version(),
        "mss": report.start.mss,
        "server": end(&report.local),
        "client": report.remote.as_ref().map(end),
        "notes": report.notes,
    }))
}

fn without_nulls(mut value: Value) -> Value {
    if let Value::Object(map) = &mut value {
        map.retain(|_, value| !value.is_null());
    }
    value
}
