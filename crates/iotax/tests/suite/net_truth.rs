//! Paths whose faults are known: what is measured must be what they are.
//!
//! The guest's clock counts its instructions, so a delay there is as long as it was asked for, and what programs and kernel take is
//! the same each time. What netem did to packets it counts itself.

use serde_json::Value;

use crate::net_lab::{End, FAR, NetLab};

const MS: f64 = 1e6;
/// Bytes of a datagram, and of one with the headers of UDP and IP.
const LENGTH: u64 = 1000;
const PACKET: u64 = LENGTH + 28;
/// Datagrams a second: seldom enough that each is a packet of its own.
const RATE: u64 = 800;

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {value:#}"))
}

fn whole(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path}: {value:#}"))
}

/// Words of tc that match the datagrams of [`datagrams`].
fn matches() -> String {
    format!("match ip protocol 17 0xff match u16 {PACKET} 0xffff at 2")
}

/// Arguments of a stream of datagrams.
fn datagrams(seconds: u32, direction: &str) -> String {
    format!("run {FAR} --udp --length {LENGTH} --bitrate {} --time {seconds} {direction}", RATE * LENGTH * 8)
}

/// Round trips.
fn ping(lab: &mut NetLab, how: &str) -> Value {
    let mut document = lab.json(&format!("ping {FAR} {how}"));
    let trips = document["measurements"][0].take();
    let time = |key: &str| number(&trips["round_trip_ns"], key) / MS;
    eprintln!(
        "ping {how}: {} of {} back, {:.4} ms least, {:.4} median, {:.4} mean",
        trips["received"],
        trips["sent"],
        time("/min"),
        time("/p50"),
        time("/mean")
    );
    trips
}

#[test]
fn round_trips_take_as_long_as_the_path() {
    const DELAY: f64 = 5.0 * MS;
    /// A hundredth of the delay.
    const TOLERANCE: f64 = DELAY / 100.0;
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve();
    let kinds = ["--icmp --rate 100 --time 2", "--udp --rate 100 --time 2", "--tcp --rate 100 --time 2"];
    let plain = kinds.map(|kind| ping(&mut lab, kind));
    lab.shape(End::Near, "netem delay 5ms");
    for (kind, plain) in kinds.iter().zip(&plain) {
        let delayed = ping(&mut lab, kind);
        for key in ["/min", "/p50", "/mean"] {
            let [plain, delayed] = [plain, &delayed].map(|trips| number(&trips["round_trip_ns"], key));
            let added = delayed - plain;
            assert!((added - DELAY).abs() <= TOLERANCE, "{kind} {key}: {plain} ns became {delayed}");
            assert!(delayed >= DELAY, "{kind} {key}: quicker than the path: {delayed}");
        }
        assert_eq!(delayed["lost"], 0, "{delayed}");
    }
}

#[test]
fn datagrams_that_a_path_loses_repeats_and_reorders_are_counted() {
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve();
    for (end, direction) in [(End::Near, ""), (End::Far, "--reverse")] {
        for fault in ["loss 1%", "duplicate 1%", "delay 2ms reorder 100% gap 5"] {
            lab.disturb(end, &matches(), fault);
            let document = lab.json(&datagrams(5, direction));
            let truth = lab.account(end);
            lab.clear(end);
            eprintln!("{fault} {direction}: {truth:?} {:#}", document["iotax"]);
        }
    }
}

#[test]
fn a_link_that_fails_is_a_gap() {
    let Some(mut lab) = NetLab::boot() else { return };
    lab.serve();
    for (arguments, end) in [
        (datagrams(6, ""), "far"),
        (datagrams(6, ""), "near"),
        (datagrams(6, "--reverse"), "near"),
        (format!("run {FAR} --bitrate 8M --time 7"), "far"),
    ] {
        let (document, printed) = lab.json_while(&arguments, &format!(
            "sleep 2; t0=$EPOCHREALTIME; ip -n {end} link set dev {end}0 down; t1=$EPOCHREALTIME; sleep 2; t2=$EPOCHREALTIME; \
             ip -n {end} link set dev {end}0 up; echo $t0 $t1 $t2 $EPOCHREALTIME"));
        eprintln!("{arguments} {end}: {printed} {:#}", document["iotax"]);
        eprintln!("{}", lab.guest.sh("cat /tmp/said; tail -2 /tmp/served"));
    }
}
