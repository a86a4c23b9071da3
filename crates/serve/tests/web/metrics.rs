//! Tests of `/metrics` and the dashboard that reads it.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use iotax_testkit::require;
use serde_json::Value;

use crate::server::Server;

const DASHBOARD: &str = include_str!("../../../../examples/grafana/iotax.json");

#[test]
fn promtool_accepts_the_metrics() {
    require!(program "promtool");
    let text = Server::start().get("/metrics").body;
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("it starts");
    promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("sent");
    let said = promtool.wait_with_output().expect("it ends");
    let all = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(said.status.success() && all.trim().is_empty(), "{all}\n{text}");
}

#[test]
fn the_newest_results_are_there() {
    let text = Server::start().get("/metrics").body;
    let line = text.lines().find(|line| {
        line.starts_with("iotax_latency_mean_seconds{")
            && line.contains("target=\"vm-raw\"")
            && line.contains("randread-4k-qd1\"")
    });
    let value: f64 =
        line.and_then(|line| line.rsplit_once(' ')).expect("a value").1.parse().expect("a number");
    assert!((1e-5..1e-2).contains(&value), "{value} s");
    assert!(
        text.contains("iotax_run_number{plan=\"which disk format for our VMs\",machine=\"db7\"} 2"),
        "{text}"
    );
    assert!(text.contains("iotax_serve_responses_total{class=\"2xx\"}"), "{text}");
}

/// Returns the names of metrics in an expression.
fn names(expression: &str) -> impl Iterator<Item = &str> {
    expression
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("iotax_"))
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let text = Server::start().get("/metrics").body;
    let known: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 4);
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "ids are unique: {panel}");
        for key in ["type", "title", "gridPos"] {
            assert!(!panel[key].is_null(), "{key}: {panel}");
        }
        for target in panel["targets"].as_array().expect("targets") {
            let expression = target["expr"].as_str().expect("an expression");
            assert!(names(expression).count() > 0, "{expression}");
            for name in names(expression) {
                assert!(known.contains(name), "{name} is not among {known:?}");
            }
        }
    }
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        let query = variable["query"].to_string();
        assert!(
            variable["type"] == "datasource" || names(&query).all(|name| known.contains(name)),
            "{query}"
        );
    }
}
