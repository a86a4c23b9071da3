//! Reads hyperfine's exported JSON: each run of a command is a repetition, and its duration the latency of one operation.
//!
//! hyperfine's text and CSV lack the durations of single runs, so they are reported as not understood.

use super::json_tree::{self, Value};
use super::lines::lines;
use super::parse_util::{agree, not_understood, whole_nanos};
use super::{Entry, Found, is_long};
use iotax_analysis::Metric;

/// Texts that identify hyperfine's text and CSV.
const SUMMARIES: [&str; 2] = ["Time (mean ", "command,mean,stddev,median,user,system,min,max"];

/// Finds hyperfine's results in a text; `None` if the text has no output of hyperfine.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "hyperfine", ..Found::default() };
    for (i, line) in lines(text).enumerate() {
        if SUMMARIES.iter().any(|summary| line.trim_start().starts_with(summary)) {
            let reason = "hyperfine's times are read from its JSON (--export-json FILE)";
            found.miss(not_understood(i + 1, line, reason));
        }
    }
    json_tree::objects(text, &mut |line, object| {
        let marks = ["\"command\"", "\"times\""];
        let Some(object) = object.or_torn(line, &marks, &mut found) else { return };
        for result in object.get("results").items() {
            // Results of another tool have no command and times.
            let times = result.get("times");
            let Some(command) = result.get("command").string().filter(|_| times.is_list()) else { continue };
            let name = name(command, result.get("parameters"));
            if is_long(&name) || !fit_together(result, times) {
                let reason =
                    "its times and their mean do not fit together, or its command is longer than a name";
                found.miss(not_understood(line, &name, reason));
                continue;
            }
            let mut codes = result.get("exit_codes").items();
            for seconds in times.items().filter_map(Value::f64) {
                if found.is_cut {
                    break;
                }
                let mut entry = entry(&name, seconds, line, result);
                let code = codes.next().and_then(Value::i64).filter(|code| *code != 0);
                entry.notes.extend(code.map(|code| format!("the command failed with exit code {code}")));
                found.keep(entry);
            }
        }
    });
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

/// Returns the result's name: the command and the parameter values of its run.
fn name(mut command: String, parameters: Value<'_>) -> String {
    for (key, value) in parameters.entries() {
        command.extend([" [", &*key, "=", &value.to_string(), "]"]);
    }
    command
}

/// Returns whether all durations are above 0 and their mean equals the printed mean.
fn fit_together(result: Value<'_>, times: Value<'_>) -> bool {
    let sum = times.items().try_fold((0.0, 0_usize), |(sum, count), time| {
        time.f64().filter(|seconds| *seconds > 0.0).map(|seconds| (sum + seconds, count + 1))
    });
    let (Some((sum, count)), Some(mean)) = (sum, result.get("mean").f64()) else { return false };
    count > 0 && agree(sum / count as f64, mean, 1e-6)
}

fn entry(name: &str, seconds: f64, line: usize, result: Value<'_>) -> Entry {
    let mut entry = Entry { workload: name.to_owned(), line, ..Entry::default() };
    entry.duration_ns = whole_nanos(seconds * 1e9);
    entry.state(Metric::LATENCY_MEAN, Some(seconds * 1e9));
    // Means over all runs: hyperfine does not store them per run.
    for (key, name) in [("user", "mean user time"), ("system", "mean system time")] {
        if let Some(value) = result.get(key).f64() {
            entry.add(name, Some(value), "s");
        }
    }
    entry
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "a figure is the text's to its last digit")]
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
    fn a_command_that_failed_says_so() {
        let text =
            r#"{"results": [{"command": "a", "mean": 2.0, "times": [1.0, 3.0], "exit_codes": [0, 2]}]}"#;
        let found = read(text).expect("hyperfine's");
        let notes: Vec<String> = found.entries.iter().map(|entry| entry.notes.join(" ")).collect();
        assert_eq!(notes, ["", "the command failed with exit code 2"]);
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
