//! Tests of following a run that is being measured.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use iotax_model::RunState;
use iotax_store::{NewRun, Store};
use serde_json::{Value, json};

use crate::server::{Server, ladder};

/// Returns name and data of a stream's next event.
fn event(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> (String, String) {
    let mut name = String::new();
    loop {
        let line = lines.next().expect("the stream goes on").expect("read");
        if let Some(event) = line.strip_prefix("event: ") {
            event.clone_into(&mut name);
        }
        if let Some(data) = line.strip_prefix("data: ") {
            return (name, data.to_owned());
        }
    }
}

#[test]
fn a_run_is_followed_to_its_end() {
    let server = Server::start();
    let mut store: Store = server.store();
    let run = ladder("6.18.5");
    let new = NewRun { plan: &run.plan, seed: 1, started_at_ms: run.started_at_ms, fleet: None };
    let id = store.create_run(&new).expect("created");
    let claim = store.claim(id).expect("claimed");
    store.put_live(id, &json!({ "phase": "building vm-raw" })).expect("told");
    let page = server.get(&format!("/runs/{id}")).body;
    assert!(page.contains("building vm-raw") && page.contains("http-equiv=\"refresh\""), "{page}");
    assert!(page.contains(&format!("data-events=\"/runs/{id}/events\"")), "{page}");

    let mut stream = TcpStream::connect(server.address).expect("connected");
    stream.set_read_timeout(Some(Duration::from_mins(2))).expect("set");
    write!(stream, "GET /runs/{id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut lines = BufReader::new(stream).lines();
    let (name, data) = event(&mut lines);
    assert_eq!(name, "state");
    assert!(data.contains("building vm-raw"), "{data}");

    for m in run.measurements.iter().take(24) {
        store.put_measurement(id, m).expect("kept");
    }
    let now = json!({ "round": 2, "rounds": 5, "cell": 24, "cells": 60, "eta_s": 90.0, "iops": 18_234.0, "target": "vm-raw", "workload": "<w>" });
    store.put_live(id, &now).expect("told");
    let followed = loop {
        let (name, data) = event(&mut lines);
        assert_eq!(name, "state");
        let state: Value = serde_json::from_str(&data).expect("JSON");
        if state["now"]["cell"] == 24 && data.contains("24 measurements") {
            break state;
        }
    };
    let html = followed["html"].as_str().expect("markup");
    assert!(html.contains("18.2k") && html.contains("&lt;w&gt;") && html.contains("host-file"), "{html}");
    assert_eq!(server.get(&format!("/api/v1/runs/{id}/live")).json()["now"]["cell"], 24);

    store.set_state(id, RunState::Complete).expect("kept");
    drop(claim);
    let last = loop {
        let (name, data) = event(&mut lines);
        if name == "end" {
            break data;
        }
    };
    assert_eq!(last, "complete");
    assert!(
        server.get(&format!("/runs/{id}")).body.contains("What each layer costs"),
        "the report stands in its place"
    );
}

#[test]
fn a_follower_of_nothing_is_told_so() {
    let server = Server::start();
    assert_eq!(server.get("/runs/77/events").status, 404);
    let ended = server.get("/runs/1/events");
    assert!(ended.body.contains("event: end"), "{}", ended.body);
}
