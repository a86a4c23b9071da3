//! The document holds to its schema.

use iotax_results::exchange::json::document;
use iotax_results::{Run, judge};
use serde_json::Value;

use crate::synthetic::{bench, ladder, run};

fn schema() -> jsonschema::Validator {
    let text = include_str!("../../schema/iotax-1.schema.json");
    let schema: Value = serde_json::from_str(text).expect("JSON");
    jsonschema::validator_for(&schema).expect("a JSON Schema")
}

fn checked(run: &Run) -> Value {
    let document = document(run, &judge(run));
    let errors: Vec<String> =
        schema().iter_errors(&document).map(|e| format!("{} at {}", e, e.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
    assert!(!has_null(&document), "absent is absent");
    document
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        _ => false,
    }
}

/// Everything that may be missing is.
fn bare() -> Run {
    let mut run =
        run(&[("a", crate::synthetic::HOST), ("b", crate::synthetic::HOST)], &["seqread-1m"], 1, false);
    run.environment = iotax_model::record::Environment::default();
    run.targets.clear();
    for m in &mut run.measurements {
        m.host = None;
        m.host_samples.clear();
        m.samples.clear();
        m.host_duration_ns = None;
        m.host_cache = None;
    }
    // Started and stopped at once: no window, no I/O.
    run.measurements[1].outcome.duration_ns = 0;
    run.measurements[1].outcome.tallies.read = Some(iotax_model::record::Tally::default());
    run
}

#[test]
fn every_kind_of_run_holds_to_the_schema() {
    let mut empty = ladder(false);
    empty.measurements.clear();
    let mut mixed = bench();
    mixed.plan.workloads[0].rw = iotax_model::Rw::RandRw;
    let outcome = &mut mixed.measurements[0].outcome;
    outcome.tallies.write.clone_from(&outcome.tallies.read);
    let mut damaged = bench();
    damaged.measurements[0].outcome.verify = Some(crate::synthetic::damaged());
    for run in [ladder(true), ladder(false), bench(), bare(), empty, mixed, damaged] {
        checked(&run);
    }
}

#[test]
fn the_schema_can_refuse() {
    let good = checked(&ladder(true));
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        !schema().is_valid(&document)
    };
    assert!(!broken(&|_| {}));
    assert!(broken(&|d| d["schema"] = "iotax/2".into()));
    assert!(broken(&|d| d["run"]["extra"] = 1.into()));
    assert!(broken(&|d| d["comparisons"][0]["verdict"] = "maybe".into()));
    assert!(broken(&|d| d["comparisons"][0]["low"] = Value::Null));
    assert!(broken(&|d| {
        d["comparisons"][0].as_object_mut().expect("one").remove("high");
    }));
    assert!(broken(&|d| d["measurements"][0]["read"]["latency_ns"]["p50"] = "84 us".into()));
}

#[test]
fn figures_are_those_of_the_record() {
    let run = ladder(false);
    let document = checked(&run);
    assert_eq!(document["run"]["seed"], 71_823);
    assert_eq!(document["run"]["started_at"], "2026-09-21T14:13:20Z");
    assert_eq!(document["measurements"].as_array().map(Vec::len), Some(60));
    let (first, told) = (&run.measurements[0], &document["measurements"][0]);
    let read = first.outcome.tallies.read.as_ref().expect("reads");
    assert_eq!(told["read"]["ios"], read.ios);
    assert_eq!(told["read"]["latency_ns"]["mean"].as_f64(), read.latency.mean());
    assert_eq!(told["duration_s"], 6.0);
    assert!(told.get("write").is_none(), "it does not write");
    let raw = &document["comparisons"][1];
    assert_eq!((&raw["metric"], &raw["target"]), (&"latency_mean".into(), &"vm-raw".into()));
    let (low, ratio, high) = (raw["low"].as_f64(), raw["ratio"].as_f64(), raw["high"].as_f64());
    assert!(low < ratio && ratio < high);
    assert!(raw["tax_ns"]["mean"].as_f64() > Some(0.0));
    assert_eq!(raw["verdict"], "slower");
}

#[test]
fn what_is_not_known_has_no_key() {
    let document = checked(&bare());
    assert_eq!(document["run"]["environment"], serde_json::json!({"mitigations": {}}));
    assert_eq!(document["comparisons"], serde_json::json!([]));
    assert!(document["measurements"][1].get("read").expect("it reads").get("iops").is_none());
    assert!(document["measurements"][0]["cpu"].get("host_ns_per_io").is_none());
    let kinds: Vec<_> = document["warnings"].as_array().expect("a list").iter().map(|w| &w["kind"]).collect();
    assert!(kinds.contains(&&"incomplete".into()), "{kinds:?}");
}
