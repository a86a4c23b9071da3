//! Tests of network measurements on paths with known faults.
//!
//! The guest's clock counts instructions, so delays are exact and runs are reproducible. netem counts the packets it drops, delays or
//! duplicates.

use iotax_model::net::PORT;
use iotax_model::record::Gap;
use iotax_testkit::thorough;
use serde_json::Value;

use crate::net_lab::{Account, End, FAR, NetLab};

const MS: f64 = 1e6;
/// Bytes of a datagram.
const LENGTH: u64 = 1000;
/// Datagrams per second, few enough that the kernel hardly merges any.
const RATE: u64 = 800;
/// A match for tc that selects UDP packets of at least 1024 bytes: those of [`datagrams`], also if merged by the kernel, but not those sent
/// before a test.
const DATAGRAMS: [&str; 3] = [
    "match ip protocol 17 0xff match u16 0x0400 0x0400 at 2",
    "match ip protocol 17 0xff match u16 0x0800 0x0800 at 2",
    "match ip protocol 17 0xff match u16 0x1000 0x1000 at 2",
];

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {value:#}"))
}

fn whole(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {value:#}"))
}

/// Arguments for a stream of `rate` datagrams per second.
fn datagrams(rate: u64, seconds: u32, from: End) -> String {
    let direction = if from == End::Near { "" } else { "--reverse" };
    format!("run {FAR} --udp --length {LENGTH} --bitrate {} --time {seconds} {direction}", rate * LENGTH * 8)
}

/// Arguments for round trips.
fn ping(lab: &mut NetLab, how: &str) -> Value {
    let mut document = lab.json(&format!("ping {FAR} {how}"));
    let trips = document["cells"][0].take();
    let time = |key: &str| number(&trips["latency_ns"], key) / MS;
    let probes = &trips["network"]["probes"];
    eprintln!(
        "ping {how}: {} of {} back, {:.4} ms least, {:.4} median, {:.4} mean",
        probes["received"],
        probes["sent"],
        time("/min"),
        time("/p50"),
        time("/mean")
    );
    trips
}

#[test]
fn round_trips_take_as_long_as_the_path() {
    const DELAY: f64 = 5.0 * MS;
    /// Tolerance: 1% of the delay.
    const TOLERANCE: f64 = DELAY / 100.0;
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve(PORT);
    let kinds = ["--icmp --rate 100 --time 2", "--udp --rate 100 --time 2", "--tcp --rate 100 --time 2"];
    let plain = kinds.map(|kind| ping(&mut lab, kind));
    lab.shape(End::Near, "root", "netem delay 5ms");
    for (kind, plain) in kinds.iter().zip(&plain) {
        let delayed = ping(&mut lab, kind);
        for key in ["/min", "/p50", "/mean"] {
            let [plain, delayed] = [plain, &delayed].map(|trips| number(&trips["latency_ns"], key));
            let added = delayed - plain;
            assert!((added - DELAY).abs() <= TOLERANCE, "{kind} {key}: {plain} ns became {delayed}");
            assert!(delayed >= DELAY, "{kind} {key}: quicker than the path: {delayed}");
        }
        let probes = &delayed["network"]["probes"];
        assert_eq!(probes["received"], probes["sent"], "{delayed}");
    }
}

/// The final figures of both ends of a stream of datagrams.
#[derive(Debug)]
struct Stream {
    sent: u64,
    received: u64,
    lost: u64,
    out_of_order: u64,
    duplicates: u64,
    jitter_ns: f64,
    gaps: Vec<Gap>,
}

impl Stream {
    /// Returns the only stream of a run, sent by `from`.
    fn of(document: &Value, from: End) -> Self {
        let totals = &document["cells"][0]["network"]["directions"][0];
        assert_eq!(totals["direction"], if from == End::Near { "upload" } else { "download" });
        Self {
            sent: whole(totals, "/sent_packets"),
            received: whole(totals, "/received_packets"),
            lost: whole(totals, "/lost"),
            out_of_order: whole(totals, "/out_of_order"),
            duplicates: whole(totals, "/duplicates"),
            jitter_ns: number(totals, "/jitter_ns"),
            gaps: gaps(document),
        }
    }
}

/// Returns the gaps of a run's only measurement.
fn gaps(document: &Value) -> Vec<Gap> {
    let stated = document.pointer("/measurements/0/carried/gaps").cloned();
    stated.map(|gaps| serde_json::from_value(gaps).expect("gaps")).unwrap_or_default()
}

/// Sends datagrams from an end through netem. Returns the measured figures and netem's counters.
fn disturbed(lab: &mut NetLab, from: End, rate: u64, netem: &str) -> (Stream, Account) {
    lab.disturb(from, &DATAGRAMS, netem);
    let seconds = if thorough() { 5 } else { 2 };
    let document = lab.json(&datagrams(rate, seconds, from));
    let truth = lab.account(from);
    lab.clear(from);
    let stream = Stream::of(&document, from);
    eprintln!("{netem} from {from:?}: {stream:?}; by netem's account {truth:?}");
    // The far end begins when it hears that the test runs, and waits for its turn at the one CPU.
    assert!(stream.sent * 200 >= u64::from(seconds) * rate * 199, "{stream:?}");
    (stream, truth)
}

#[test]
fn datagrams_that_a_path_loses_repeats_and_reorders_are_counted() {
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve(PORT);
    for from in [End::Near, End::Far] {
        let (stream, truth) = disturbed(&mut lab, from, RATE, "loss 1%");
        assert_eq!(
            (stream.received, stream.duplicates, stream.out_of_order),
            (truth.packets, 0, 0),
            "received"
        );
        // Two datagrams that are joined into one packet count as one drop.
        let lost = stream.sent - stream.received;
        assert!((truth.drops..=truth.drops + 2).contains(&lost), "lost");
        // The receiver cannot know of losses after the last datagram that arrived.
        assert!((stream.lost..=stream.lost + 2).contains(&lost), "lost by the receiver's account");
        let (expected, deviation) = (stream.sent as f64 * 0.01, (stream.sent as f64 * 0.01 * 0.99).sqrt());
        assert!((truth.drops as f64 - expected).abs() < 5.0 * deviation, "netem lost {}", truth.drops);

        let (stream, truth) = disturbed(&mut lab, from, RATE, "duplicate 1%");
        assert_eq!(stream.sent + stream.duplicates, truth.packets, "repeated");
        assert_eq!((stream.received, stream.lost, stream.out_of_order), (stream.sent, 0, 0), "received");
        assert!(stream.duplicates > 0, "netem repeated none");
    }
    // Every fifth passes the one before it, which is late by 2 ms and was sent 1.25 ms earlier, and no other.
    let (stream, truth) = disturbed(&mut lab, End::Near, RATE, "delay 2ms reorder 100% gap 5");
    assert!(truth.requeues.abs_diff(stream.sent / 5) <= 2, "netem let {} pass", truth.requeues);
    assert!(stream.out_of_order.abs_diff(truth.requeues) <= 4, "out of order");
    // Datagrams still on the way when the test ends are neither received nor lost.
    assert!(stream.sent - stream.received <= 2, "received");
    assert_eq!((stream.lost, stream.duplicates), (0, 0), "lost");
    // Every second is late by 2 ms: from one to the next the way takes 2 ms more, or less, and the mean of that is the jitter. They
    // are 4 ms apart, so that none passes another.
    for from in [End::Near, End::Far] {
        let (stream, _) = disturbed(&mut lab, from, RATE / 3, "delay 2ms reorder 100% gap 2");
        assert!((stream.jitter_ns / (2.0 * MS) - 1.0).abs() < 0.01, "jitter");
        assert_eq!((stream.lost, stream.out_of_order), (0, 0), "lost");
    }
}

/// Bits per second of a link, headers included.
const LINK: f64 = 5e6;
/// The share of TCP payload; the rest are headers of Ethernet, IP, and TCP with timestamps.
const TCP_SHARE: f64 = 1448.0 / (1448.0 + 14.0 + 20.0 + 32.0);
/// The share of UDP payload.
const UDP_SHARE: f64 = 1472.0 / (1472.0 + 14.0 + 20.0 + 8.0);
/// The bytes of a full packet.
const PACKET: f64 = 1514.0;

#[test]
fn a_link_carries_what_its_rate_leaves_for_the_payload() {
    const SECONDS: f64 = 4.0;
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve(PORT);
    for end in [End::Near, End::Far] {
        lab.shape(end, "root", "tbf rate 5mbit burst 5000 limit 50000");
    }
    for (how, share) in [("--omit 1", TCP_SHARE), ("--udp --length 1472 --bitrate 6M", UDP_SHARE)] {
        for direction in ["", "--reverse"] {
            let document = lab.json(&format!("run {FAR} --time 3 {how} {direction}"));
            let totals = &document["cells"][0]["network"]["directions"][0];
            let rate = number(totals, "/bytes_per_s") * 8.0;
            eprintln!("{how} {direction}: {:.3} Mbit/s, of {:.3}", rate / 1e6, LINK * share / 1e6);
            assert!((rate / (LINK * share) - 1.0).abs() < 0.01, "{how} {direction}: {rate}: {totals:#}");
        }
    }
    let sampler = "while kill -0 $measuring 2> /dev/null; do for end in near far; do \
                   echo $end $(cut -d' ' -f1 /proc/uptime) $(tc -n $end -s qdisc show dev ${end}0 | grep backlog); done; usleep 40000; done";
    let (document, samples) =
        lab.json_while(&format!("ping {FAR} --udp --rate 100 --time {SECONDS} --under-load"), sampler);
    let cells = document["cells"].as_array().expect("cells");
    let mean = |name: &str| {
        let cell = cells.iter().find(|cell| cell["workload"] == name).expect(name);
        number(cell, "/latency_ns/mean")
    };
    for (name, end) in [("download", "far"), ("upload", "near")] {
        let added = mean(name) - mean("idle");
        // A queue that holds something all the time; in it a packet waits for those before it.
        let backlog: Vec<[f64; 2]> = samples
            .lines()
            .filter_map(|line| {
                let mut words = line.strip_prefix(end)?.split_whitespace();
                let at = words.next()?.parse().ok()?;
                Some([at, words.nth(1)?.strip_suffix('b')?.parse().ok()?])
            })
            .filter(|[_, bytes]| *bytes > 5000.0)
            .collect();
        // The load ends with the window, and begins before it.
        let [over, _] = backlog.last().expect("a queue");
        let backlog: Vec<f64> =
            backlog.iter().filter(|[at, _]| over - at < SECONDS).map(|[_, bytes]| *bytes).collect();
        // Of the first packet, the half has its turn already.
        let ahead = backlog.iter().sum::<f64>() / backlog.len() as f64 - PACKET / 2.0;
        let queue = ahead * 8e9 / LINK;
        eprintln!(
            "{name}: {:.3} ms added, {:.3} by the queue's own account, of {} looks",
            added / MS,
            queue / MS,
            backlog.len()
        );
        assert!((added / queue - 1.0).abs() < 0.1, "{name}: {added} {queue}");
    }
}

#[test]
fn neighbours_have_the_shares_that_the_path_gives_them() {
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve(PORT);
    lab.serve(PORT + 1);
    // Traffic from the second server has a path of its own.
    let second = format!("match ip sport {} 0xffff", PORT + 1);
    lab.divide(End::Far, 2, &[(2, &second)]);
    lab.shape(End::Far, "parent 1:1", "handle 2: tbf rate 15mbit burst 5000 limit 50000");
    lab.shape(End::Far, "parent 1:2", "handle 3: tbf rate 5mbit burst 5000 limit 50000");
    let document =
        lab.json(&format!("run {FAR}:{PORT} {FAR}:{} --reverse --omit 1 --time 3 --interval 0.2", PORT + 1));
    let cell = &document["cells"][0];
    let together = &cell["guests"];
    eprintln!("{together:#}");
    let all = number(cell, "/metrics/bytes_per_s");
    for (path, measured, truth) in [
        ("all", all * 8.0, 20e6 * TCP_SHARE),
        ("the first", number(together, "/members/0/bytes_per_s") / all, 0.75),
        ("the second", number(together, "/members/1/bytes_per_s") / all, 0.25),
        // (3 + 1)^2 / (2 (3^2 + 1^2))
        ("Jain's index", number(together, "/fairness/mean"), 0.8),
    ] {
        assert!((measured / truth - 1.0).abs() < 0.02, "{path}: {measured}, not {truth}");
    }
}

/// A failure of a link, with times of the guest's clock in seconds.
struct Failure {
    /// The end whose interface goes down.
    down: End,
    /// Times before and after the command that took it down.
    goes: f64,
    gone: f64,
    /// Time before the command that brought it up.
    comes: f64,
    /// Time of the first arrival at the receiver afterwards.
    again: f64,
}

/// Measures a stream sent by `from` while an end's interface is down for two seconds.
fn fail(lab: &mut NetLab, arguments: &str, from: End, down: End) -> (Value, Failure) {
    let to = if from == End::Near { End::Far } else { End::Near };
    let (name, interface) = (down.namespace(), down.interface());
    // Resolving the peer's address takes packets too, which are shorter than a datagram.
    let (document, printed) = lab.json_while(
        arguments,
        &format!(
            "{} sh -c 'rx() {{ read bytes < /sys/class/net/{}/statistics/rx_bytes; }}; sleep 2; \
             echo $EPOCHREALTIME; /lab/ip -n {name} link set dev {interface} down; echo $EPOCHREALTIME; sleep 2; \
             rx; before=$bytes; echo $EPOCHREALTIME; /lab/ip -n {name} link set dev {interface} up; \
             until [ $((bytes - before)) -ge {LENGTH} ]; do rx; done; echo $EPOCHREALTIME'",
            to.namespace(),
            to.interface(),
        ),
    );
    let moments: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [goes, gone, comes, again] = moments[..] else { panic!("{printed}") };
    (document, Failure { down, goes, gone, comes, again })
}

impl Failure {
    /// Asserts that a gap is as long as the link was down, within 10 ms.
    fn check(&self, gap: &Gap) {
        let seconds = gap.duration_ns as f64 / 1e9;
        let (least, most) = (self.again - self.gone, self.again - self.goes);
        eprintln!("{:?} down for {least:.4} to {most:.4} s: {seconds:.4} s", self.down);
        assert!((least - 0.01..=most + 0.01).contains(&seconds), "{gap:?}");
    }
}

#[test]
fn a_link_that_fails_is_a_gap_as_long_as_it_was_down() {
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve(PORT);
    for (from, down) in
        [(End::Near, End::Far), (End::Near, End::Near), (End::Far, End::Near), (End::Far, End::Far)]
    {
        let (document, failure) = fail(&mut lab, &datagrams(RATE, 5, from), from, down);
        let stream = Stream::of(&document, from);
        let [gap] = &stream.gaps[..] else { panic!("not one gap: {stream:?}") };
        failure.check(gap);
        eprintln!("from {from:?}: {stream:?}");
        assert_eq!(stream.sent, stream.received + stream.lost, "{stream:?}");
        assert_eq!(gap.lost_bytes, Some(stream.lost * LENGTH), "all was lost in the gap: {stream:?}");
        // Lost is what was due while it was surely down, and at most what was due until something came again: what a sender
        // that had to wait for the CPU sends late comes through. Where its own interface is there, its kernel keeps some
        // datagrams until it finds the peer again.
        let due = |from: f64, until: f64| (until - from) * RATE as f64;
        let kept = if from == down { 3.0 } else { 150.0 };
        let least = due(failure.gone, failure.comes) - kept;
        let most = due(failure.goes, failure.again) + 3.0;
        assert!((least..=most).contains(&(stream.lost as f64)), "{least} to {most} were due: {stream:?}");
    }
    // TCP waits longer each time before it tries again: by the kernel's least 0.2 s, 0.4 s, 0.8 s ...
    let arguments = format!("run {FAR} --bitrate 8M --length 1000 --time 7");
    let (document, failure) = fail(&mut lab, &arguments, End::Near, End::Far);
    failure.check(gaps(&document).first().expect("a gap"));
    let stream = &document["measurements"][0]["carried"]["flows"][0];
    let bytes = whole(stream, "/received_bytes");
    // A megabyte a second, in all but the gap.
    assert!(bytes > 4_000_000, "it goes on: {stream:#}");
    assert_eq!(whole(stream, "/sent_bytes"), bytes, "TCP loses nothing");
}

/// Returns the times of the kernel log's lines that contain these words.
fn logged(log: &str, words: &str) -> Vec<f64> {
    let lines = log.lines().filter(|line| line.contains(words));
    lines.filter_map(|line| line.split(['[', ']']).nth(1)?.trim().parse().ok()).collect()
}

#[test]
fn a_leg_of_a_bond_that_fails_is_a_gap_until_the_other_takes_over() {
    let Some(mut lab) = NetLab::boot() else { return };
    lab.guest.sh("ip -n near link add bond0 type bond mode active-backup miimon 100");
    lab.guest.sh("ip -n far link add bridge0 type bridge");
    for leg in 0..2 {
        lab.guest.sh(&format!("ip link add leg{leg} netns near type veth peer name port{leg} netns far"));
        lab.guest.sh(&format!(
            "ip -n near link set dev leg{leg} master bond0 && ip -n near link set dev leg{leg} up"
        ));
        lab.guest.sh(&format!(
            "ip -n far link set dev port{leg} master bridge0 && ip -n far link set dev port{leg} up"
        ));
    }
    for (end, interface, address) in [("near", "bond0", "10.9.1.1"), ("far", "bridge0", "10.9.1.2")] {
        lab.guest.sh(&format!("ip -n {end} address add {address}/24 dev {interface}"));
        lab.guest.sh(&format!("ip -n {end} link set dev {interface} up"));
    }
    lab.serve(PORT);
    lab.guest.sh("sleep 2; near ping -c 1 10.9.1.2");
    let arguments = datagrams(RATE, 6, End::Near).replace(FAR, "10.9.1.2");
    // The active leg is the one that did not fail last.
    let (document, log) = lab.json_while(
        &arguments,
        "for leg in 0 1 0 1; do sleep 0.63; echo lab: it goes > /dev/kmsg; ip -n far link set dev port$leg down; \
         echo lab: it went > /dev/kmsg; sleep 0.41; ip -n far link set dev port$leg up; done; dmesg",
    );
    let stream = Stream::of(&document, End::Near);
    let [goes, went, other] = ["lab: it goes", "lab: it went", "making interface the new active one"]
        .map(|words| logged(&log, words));
    let other = &other[other.len().saturating_sub(4)..];
    let mut gaps = stream.gaps.clone();
    gaps.sort_by_key(|gap| gap.at_ns);
    eprintln!("{goes:?} {went:?} {other:?}: {gaps:?}");
    assert_eq!((goes.len(), went.len(), other.len()), (4, 4, 4), "{log}");
    let mut left = gaps.iter().map(|gap| gap.duration_ns as f64 / 1e9).peekable();
    let mut seen = 0;
    for ((goes, went), other) in goes.iter().zip(&went).zip(other) {
        let truth = other - went - 0.01..=other - goes + 0.01;
        if left.peek().is_some_and(|gap| truth.contains(gap)) {
            left.next();
            seen += 1;
        } else {
            // A leg whose loss is noticed quickly leaves a gap too short to detect.
            assert!(*truth.start() < 0.01, "no gap of {truth:?} s: {gaps:?}");
        }
    }
    assert!(left.next().is_none() && seen > 0, "{gaps:?}");
    assert_eq!(stream.sent, stream.received + stream.lost, "it goes on: {stream:?}");
}
