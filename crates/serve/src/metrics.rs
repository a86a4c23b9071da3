//! The page `/metrics` for Prometheus: the results of the newest runs, and the server's own counters.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use iotax_analysis::Metric;
use iotax_analysis::metric::Unit;
use iotax_model::RunState;
use iotax_store::{Filter, Store};

use crate::app::{App, Shared};
use crate::judged::Judged;
use crate::problem::Problem;
use crate::runs::list;

/// Number of newest complete runs that are searched for the runs to export.
const LOOKED_AT: u32 = 500;
/// Maximum number of runs to export.
const LISTED: usize = 40;

pub(crate) async fn get(State(app): State<Shared>) -> Result<Response, Problem> {
    let handle = app.clone();
    let text = app.pool.read(move |store| results(&handle, store)).await? + &own(&app);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

/// Returns the newest complete run of each plan on each machine, at most 40 in total. Leaves out damaged
/// runs.
fn newest(app: &App, store: &Store) -> Result<Vec<Arc<Judged>>, Problem> {
    let filter = Filter { state: Some(RunState::Complete), limit: Some(LOOKED_AT), ..Filter::default() };
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for run in list(store, &filter)? {
        if found.len() < LISTED && seen.insert((run.name.clone(), run.machine.clone())) {
            // Damaged runs are left out.
            found.extend(app.cache.get(store, run.id).ok());
        }
    }
    Ok(found)
}

fn results(app: &App, store: &Store) -> Result<String, Problem> {
    let newest = newest(app, store)?;
    let mut text = String::new();
    for metric in Metric::compared() {
        let (name, scale) = name(metric);
        let mut lines = String::new();
        for judged in &newest {
            for cell in &judged.judgement.cells {
                let Some(value) = cell.summary.of(metric) else { continue };
                let labels = labels(judged, &[("target", &cell.target), ("workload", &cell.workload)]);
                let _ = writeln!(lines, "{name}{labels} {}", value * scale);
            }
        }
        if !lines.is_empty() {
            head(&mut text, &name, "gauge", metric.definition().help);
            text.push_str(&lines);
        }
    }
    if !newest.is_empty() {
        head(
            &mut text,
            "iotax_run_timestamp_seconds",
            "gauge",
            "Start of the newest complete run of the plan",
        );
        for judged in &newest {
            let (labels, at) = (labels(judged, &[]), judged.run.started_at_ms as f64 / 1e3);
            let _ = writeln!(text, "iotax_run_timestamp_seconds{labels} {at}");
        }
        head(&mut text, "iotax_run_number", "gauge", "Number of the newest complete run of the plan");
        for judged in &newest {
            let _ = writeln!(text, "iotax_run_number{} {}", labels(judged, &[]), judged.run.id);
        }
    }
    Ok(text)
}

/// Returns a metric's name for Prometheus, and the factor that converts a value to Prometheus's base unit:
/// seconds for times.
fn name(metric: Metric) -> (String, f64) {
    let definition = metric.definition();
    match definition.unit {
        Unit::Nanoseconds => (format!("iotax_{}_seconds", definition.id), 1e-9),
        Unit::BytesPerSecond => ("iotax_bytes_per_second".into(), 1.0),
        Unit::PerSecond | Unit::Count => (format!("iotax_{}", definition.id), 1.0),
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn labels(judged: &Judged, more: &[(&str, &String)]) -> String {
    let machine = judged.run.environment.hostname.clone().unwrap_or_default();
    let all = [("plan", &judged.run.plan.name), ("machine", &machine)];
    let pairs = all.iter().chain(more).map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

/// Escapes the value of a Prometheus label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Returns the server's own counters in Prometheus's text format.
fn own(app: &App) -> String {
    let (answers, seconds) = app.counters.read();
    let mut text = String::new();
    head(
        &mut text,
        "iotax_serve_responses_total",
        "counter",
        "Answers of this server by the class of their status",
    );
    for (class, count) in answers {
        let _ = writeln!(text, "iotax_serve_responses_total{{class=\"{class}\"}} {count}");
    }
    head(&mut text, "iotax_serve_response_seconds_total", "counter", "Time until all these answers began");
    let _ = writeln!(text, "iotax_serve_response_seconds_total {seconds}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_may_be_anything() {
        assert_eq!(escaped("a\"b\\c\nd{}"), r#"a\"b\\c\nd{}"#);
    }

    #[test]
    fn names_have_the_base_units() {
        assert_eq!(name(Metric::LATENCY_MEAN), ("iotax_latency_mean_seconds".into(), 1e-9));
        assert_eq!(name(Metric::IOPS).0, "iotax_iops");
        assert_eq!(name(Metric::BYTES_PER_S).0, "iotax_bytes_per_second");
    }
}
