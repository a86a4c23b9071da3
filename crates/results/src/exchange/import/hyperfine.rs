//! What hyperfine exports as JSON: each run of a command is a repetition, its time the latency of one operation.

use serde_json::Value;

use super::pieces::{agree, json_objects, not_understood, whole_nanos};
use super::{Entry, Found};
use crate::judge::Metric;

/// hyperfine's results in a text.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "hyperfine", ..Found::default() };
    for (line, object) in json_objects(text) {
        for result in object["results"].as_array().into_iter().flatten() {
            // Another tool's results have no command and no times.
            let (Some(command), Some(times)) = (result["command"].as_str(), result["times"].as_array())
            else {
                continue;
            };
            let name = name(command, &result["parameters"]);
            if let Some(seconds) = runs(result, times) {
                let entry = |seconds| entry(&name, seconds, line, result);
                found.entries.extend(seconds.into_iter().map(entry));
            } else {
                let reason = "its times and their mean do not fit together";
                found.not_understood.push(not_understood(line, &name, reason));
            }
        }
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// The command, and what its parameters were where it was run with several.
fn name(command: &str, parameters: &Value) -> String {
    let mut name = command.to_owned();
    for (key, value) in parameters.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        name = format!("{name} [{key}={value}]");
    }
    name
}

/// The seconds of each run, if all of them are times and their mean is the one that is told.
fn runs(result: &Value, times: &[Value]) -> Option<Vec<f64>> {
    let seconds: Vec<f64> =
        times.iter().map(|time| time.as_f64().filter(|s| *s > 0.0)).collect::<Option<_>>()?;
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    (!seconds.is_empty() && agree(mean, result["mean"].as_f64()?, 1e-6)).then_some(seconds)
}

fn entry(name: &str, seconds: f64, line: usize, result: &Value) -> Entry {
    let mut entry = Entry { workload: name.to_owned(), line, ..Entry::default() };
    entry.duration_ns = whole_nanos(seconds * 1e9);
    entry.state(Metric::LatencyMean, Some(seconds * 1e9));
    // Of all runs together: hyperfine keeps no others.
    for (key, name) in [("user", "mean user time"), ("system", "mean system time")] {
        if let Some(value) = result[key].as_f64() {
            entry.add(name, Some(value), "s");
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_a_repetition_of_its_command_and_parameters() {
        let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/import/hyperfine-1.15.json");
        let found = read(&std::fs::read_to_string(data).expect("there")).expect("hyperfine's");
        assert_eq!(found.entries.len(), 12);
        assert_eq!(found.entries[0].workload, "sleep 0.01 [n=1]");
        assert_eq!(found.entries[1].stated.metrics["latency_mean"], 11_209_646.0);
        assert_eq!(found.entries[9].workload, "true [n=2]");
    }

    #[test]
    fn times_that_are_not_all_there_are_listed_and_not_read() {
        let text = r#"{"results": [{"command": "a", "mean": 2.0, "times": [1.0, 2.0, 3.0]}, {"command": "b", "mean": 2.0, "times": [1.0, 2.0]}]}"#;
        let found = read(text).expect("hyperfine's");
        assert_eq!((found.entries.len(), found.not_understood.len()), (3, 1));
        assert_eq!(found.not_understood[0].text, "b");
        assert!(read(r#"{"results": [{"name": "of something else"}]}"#).is_none());
    }
}
