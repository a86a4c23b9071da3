//! Tests of trends: same document as the command, and the number of runs included.

use iotax_analysis::Metric;
use iotax_analysis::trend::{PastRun, TrendQuestion, trends};
use iotax_report::json;
use serde_json::Value;

use crate::fleets;
use crate::server::{Server, ladder, put};

/// A server on a store with seven runs of one plan, and one of another machine.
fn seven() -> Server {
    Server::filled(|store| {
        for number in 0..7 {
            let mut run = ladder("6.18.5");
            run.started_at_ms += number * 86_400_000;
            put(store, &run);
        }
        let mut other = ladder("6.18.5");
        // The newest run's machine is the one that is followed.
        (other.environment.hostname, other.started_at_ms) = (Some("db8".into()), 0);
        put(store, &other);
        put(store, &ladder("6.19.0"));
    })
}

#[test]
fn the_document_is_that_of_the_command() {
    let server = seven();
    let document = server.get("/api/v1/trends?metric=latency_mean&target=vm-raw&last=5&since=7").json();
    let store = server.store();
    let load = |id: i64| {
        let run = store.load(id).expect("loaded");
        PastRun::of(&run, &[Metric::LATENCY_MEAN], vec![], String::new())
    };
    let past: Vec<PastRun> = [4, 5, 6, 7, 9].map(load).into();
    let question = TrendQuestion {
        target: Some("vm-raw".into()),
        metrics: vec![Metric::LATENCY_MEAN],
        since: Some(3),
        ..TrendQuestion::default()
    };
    assert_eq!(document, json::trend::document(&past, &trends(&past, &question)));

    let schema = include_str!("../../../report/schema/iotax-trend-1.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for query in
        ["", "?machine=db8", "?last=1", "?plan=which+disk+format+for+our+VMs&metric=iops,latency_p99"]
    {
        let document = server.get(&format!("/api/v1/trends{query}")).json();
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{query}");
    }
}

#[test]
fn the_members_of_a_fleet_are_no_history() {
    let server = seven();
    fleets::put(&mut server.store(), "f-1");
    let ids =
        |query: &str| server.get(&format!("/api/v1/trends{query}")).json()["runs"].as_array().map(Vec::len);
    assert_eq!(ids(""), Some(8), "the plan that was repeated on a machine");
    assert_eq!(ids("?plan=all+our+database+hosts"), Some(1));
    assert!(server.get("/trends").body.contains("8 runs."));
}

#[test]
fn notes_that_change_are_in_the_next_answer() {
    let server = seven();
    let note = || server.get("/api/v1/trends").json()["runs"][0]["note"].clone();
    assert_eq!(note(), Value::Null);
    let json = "Content-Type: application/json\r\n";
    assert_eq!(server.send("PUT", "/api/v1/runs/1/notes", json, r#"{"text":"new disk"}"#).status, 200);
    assert_eq!(note(), "new disk");
}

#[test]
fn the_page_says_which_runs_are_left_out() {
    let server = seven();
    let page = server.get("/trends?last=3").body;
    assert!(page.contains("The newest 3 runs; 5 older ones are left out"), "{page}");
    assert!(page.contains("href=\"/trends?last=8\"") && page.contains("no part of this: 1."), "{page}");
    assert!(server.get("/trends?last=8").body.contains("8 runs."));
}

#[test]
fn wrong_questions_name_what_is_accepted() {
    let server = seven();
    for (query, status, words) in [
        ("last=0", 400, "accepted: a number from 1 to 1000"),
        ("last=1001", 400, "accepted: a number from 1 to 1000"),
        ("metric=speed", 400, "latency_mean"),
        ("since=x", 400, "accepted: the number of a run"),
        ("target=vm-x", 400, "accepted: host-file, vm-qcow2"),
        ("plan=nothing", 404, "of a plan \"nothing\""),
        ("machine=db9", 404, "on a machine \"db9\""),
    ] {
        let answer = server.get(&format!("/api/v1/trends?{query}"));
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == status && detail.contains(words), "{query}: {} {detail}", answer.status);
    }
}
