//! Round trips as tables and as a document.

use iotax_model::histogram::Histogram;
use iotax_model::net::{NetTest, Traffic};
use iotax_model::record::{Carried, CpuTime, ErrorCount, Flow, Outcome, Probes, Tallies, Tally};
use iotax_results::exchange::json::trips::{SCHEMA, document};
use iotax_results::report::document::{Trips, trips};
use iotax_results::report::terminal;
use serde_json::Value;

/// 1000 round trips of 100 us each, or of as many more, over 10 s; every twentieth message is lost.
fn measured(name: &str, more_us: u64, flow: Option<Flow>, open: bool) -> Trips {
    let mut latency = Histogram::new();
    latency.add_many(1000 * (100 + more_us), 1000);
    let tally = Tally { ios: 1000, bytes: 64_000, response: open.then(|| latency.clone()), latency };
    let probes = Probes { sent: 1050, received: 1000, duplicates: 3, out_of_order: 2 };
    let carried = Carried {
        flows: flow.into_iter().collect(),
        probes: Some(probes),
        mdev_ns: Some(1234),
        ..Carried::default()
    };
    let outcome = Outcome {
        duration_ns: 10_000_000_000,
        tallies: Tallies { read: Some(tally), ..Tallies::default() },
        cpu: CpuTime { user_ns: 500_000_000, system_ns: 1_500_000_000 },
        carried: Some(carried),
        ..Outcome::default()
    };
    Trips { name: name.to_owned(), outcome }
}

fn all(open: bool) -> Vec<Trips> {
    let flow = |up| Some(Flow { up, received_bytes: Some(1_250_000_000), ..Flow::default() });
    vec![
        measured("idle", 0, None, open),
        measured("download", 150, flow(false), open),
        measured("upload", 50, flow(true), open),
    ]
}

/// The fields of a table's row.
fn row<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.trim_start().starts_with(begin));
    line.unwrap_or_else(|| panic!("{begin} in {text}"))
        .split("  ")
        .map(str::trim)
        .filter(|f| !f.is_empty())
        .collect()
}

#[test]
fn tables_tell_times_losses_and_what_a_load_added() {
    let text = terminal::set(&trips("UDP round trips", &all(false)), 120, false);
    assert!(text.starts_with("UDP round trips\n"), "{text}");
    let times = ["idle", "100 us", "100 us", "100 us", "100 us", "100 us", "100 us", "100 us", "1.23 us"];
    assert_eq!(row(&text, "idle"), times, "{text}");
    assert!(text.contains("50") && text.contains("4.76%") && text.contains("20%"), "{text}");
    assert!(text.contains("download: with 1.00 Gbit/s down over TCP; +150 us p50"), "{text}");
    assert!(text.contains("upload: with 1.00 Gbit/s up over TCP; +50.0 us p50"), "{text}");
    assert!(!text.contains("due:"), "a closed loop intends nothing: {text}");
    let open = terminal::set(&trips("UDP round trips", &all(true)), 120, false);
    assert_eq!(row(&open, "upload, due").len(), 8, "no deviation: {open}");
}

#[test]
fn nothing_that_came_back_is_said_to_be_nothing() {
    let mut one = measured("idle", 0, None, false);
    one.outcome.tallies.read = Some(Tally::default());
    one.outcome.carried =
        Some(Carried { probes: Some(Probes { sent: 9, ..Probes::default() }), ..Carried::default() });
    one.outcome.errors = vec![ErrorCount {
        error: "ENETUNREACH".into(),
        direction: "write".into(),
        count: 9,
        first_offset: 0,
        last_offset: None,
    }];
    let text = terminal::set(&trips("ICMP", std::slice::from_ref(&one)), 100, false);
    assert!(text.contains("Nothing came back") && text.contains("100.00%"), "{text}");
    assert!(text.contains("sending failed 9 times with ENETUNREACH"), "{text}");
    let document = document("192.0.2.1", &Traffic::new(NetTest::IcmpRtt), 64, &[one]);
    let of = &document["measurements"][0];
    assert_eq!((&of["lost"], of.get("round_trip_ns")), (&Value::from(9), None));
    assert_holds(&document);
}

fn assert_holds(document: &Value) {
    let schema: Value =
        serde_json::from_str(include_str!("../../schema/iotax-ping-1.schema.json")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a JSON Schema");
    let errors: Vec<String> = schema.iter_errors(document).map(|e| e.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn the_document_holds_to_its_schema_and_has_the_whole_histogram() {
    let traffic = Traffic { rate: Some(100), ..Traffic::new(NetTest::UdpRtt) };
    let document = document("::1", &traffic, 64, &all(true));
    assert_holds(&document);
    assert_eq!((&document["schema"], &document["rate_per_s"]), (&SCHEMA.into(), &100.into()));
    let download = &document["measurements"][1];
    assert_eq!(download["load"]["down_bits_per_s"], 1e9);
    assert_eq!(download["load"].get("up_bits_per_s"), None);
    assert_eq!(download["round_trip_ns"]["mdev"], 1234);
    assert_eq!(download["response_ns"]["mean"], 250_000.0);
    let histogram = download["round_trip_ns"]["histogram"].as_array().expect("buckets");
    assert_eq!((histogram.len(), &histogram[0][2]), (1, &Value::from(1000)));
}
