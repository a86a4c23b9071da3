//! Tests of exports to formats of other tools, read back by those tools or by the format's grammar.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use iotax_analysis::{Judgement, judge};
use iotax_interop::{parquet as ours, prometheus};
use iotax_model::Run;
use iotax_report::csv as csv_tables;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use iotax_testkit::runs::{HOST, Truth, run};

/// Two runs: one measurement has few figures, and one target has a name with special characters.
fn runs() -> Vec<(Run, Judgement)> {
    let vm = Truth { slowdown: 1.4, noise: 0.004, cpu_ns: 9_800.0 };
    let mut bare = run(&[("host-file", HOST), ("vm-raw", vm)], &["randread-4k-qd1", "seqwrite-1m"], 3, true);
    bare.measurements[0].host = None;
    bare.measurements[0].outcome.tallies.read = None;
    let mut odd = run(&[("host-file", HOST)], &["randread-4k-qd1"], 2, false);
    odd.id = 18;
    for m in &mut odd.measurements {
        m.target = "a \"quoted\"\\path\nin two lines".into();
    }
    [bare, odd]
        .map(|run| {
            let judgement = judge(&run);
            (run, judgement)
        })
        .into()
}

#[test]
fn a_parquet_file_has_every_cell_of_the_sheet_in_its_type() {
    let runs = runs();
    let table = csv_tables::tables(&runs).swap_remove(0);
    let names: Vec<&str> = table.header.split(',').collect();
    let mut cells = csv::Reader::from_reader(table.text.as_bytes());
    let file = SerializedFileReader::new(bytes::Bytes::from(ours::measurements(&runs))).expect("Parquet");
    let rows = file.get_row_iter(None).expect("rows").map(|row| row.expect("a row"));
    let mut known = 0;
    let mut count = 0;
    for (row, cells) in rows.zip(cells.records().map(|cells| cells.expect("a record"))) {
        count += 1;
        assert_eq!(row.get_column_iter().map(|(name, _)| &**name).collect::<Vec<_>>(), names);
        for ((name, field), cell) in row.get_column_iter().zip(&cells) {
            known += usize::from(!matches!(field, Field::Null));
            match field {
                Field::Null => assert_eq!(cell, "", "{name}"),
                Field::Str(text) => assert_eq!(text, cell, "{name}"),
                Field::Long(whole) => assert_eq!(whole.to_string(), cell, "{name}"),
                Field::Double(number) => {
                    let written: f64 = cell.parse().expect("a number");
                    assert_eq!(number.to_bits(), written.to_bits(), "{name}");
                }
                Field::Bool(flag) => assert_eq!(flag.to_string(), cell, "{name}"),
                Field::TimestampMillis(ms) => {
                    assert!(*ms > 1_000_000_000_000 && cell.ends_with('Z'), "{name} {ms}");
                }
                other => panic!("{name} is {other}"),
            }
        }
    }
    assert_eq!(count, 14);
    assert_eq!(file.metadata().file_metadata().num_rows(), 14);
    assert!(known > count * 20, "{known}");
}

/// Parses a line `name{label="value",...} number` by the grammar of the text format 0.0.4.
fn series(line: &str) -> (String, String, f64) {
    let is_name = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let (name, rest) = line.split_once('{').expect(line);
    assert!(is_name(name), "{line}");
    let mut labels = BTreeSet::new();
    let mut rest = rest;
    loop {
        let (label, after) = rest.split_once("=\"").expect(line);
        assert!(is_name(label) && labels.insert(label.to_owned()), "{line}");
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            assert!(!escaped || matches!(c, '\\' | '"' | 'n'), "{line}");
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &after[end.expect(line) + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => break,
        }
    }
    let value = rest.strip_prefix("} ").expect(line).parse::<f64>().expect(line);
    let at = line.rfind("} ").expect(line);
    (name.to_owned(), line[..at].to_owned(), value)
}

#[test]
fn the_prometheus_text_follows_its_grammar_and_says_nothing_of_what_is_not_known() {
    let runs = runs();
    let text = prometheus::measurements(&runs);
    let mut families = BTreeSet::new();
    let mut all = BTreeSet::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    let (first, rest) = text.split_once('\n').expect("lines");
    assert!(first.starts_with("# Written by iotax"), "a comment: {first}");
    for line in rest.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').expect(line);
            assert!(families.insert(name.to_owned()) && !words.contains('\\'), "{line}");
            name.clone_into(&mut current);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let expected = if current == "iotax_latency_seconds" { "summary" } else { "gauge" };
            assert_eq!(kind, format!("{current} {expected}"));
        } else {
            let (name, labels, value) = series(line);
            let of_summary = name.trim_end_matches("_sum").trim_end_matches("_count");
            assert!(
                name == current || (of_summary == current && current == "iotax_latency_seconds"),
                "all lines of a family stand together: {line}"
            );
            assert!(!labels.contains("quantile=") || current == "iotax_latency_seconds", "{line}");
            assert!(value.is_finite() && all.insert(labels), "{line}");
        }
    }
    assert_eq!(families.len(), 9, "{families:?}");
    let of = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(
        [of("iotax_measurement_info{"), of("iotax_iops{"), of("iotax_latency_mean_seconds{")],
        [14, 14, 13]
    );
    assert!(text.contains(r#"target="a \"quoted\"\\path\nin two lines""#), "{text}");
    assert!(text.contains("emulated=\"true\""));
}

#[test]
fn promtool_accepts_the_prometheus_text() {
    iotax_testkit::require!(program "promtool");
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut all = runs();
    all.extend([iotax_testkit::runs::network::alone()].map(|run| {
        let judgement = judge(&run);
        (run, judgement)
    }));
    let text = prometheus::measurements(&all);
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("read");
    let output = child.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // It prints errors to stderr and may still exit with 0.
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn units_are_seconds_and_bytes() {
    let runs = runs();
    let text = prometheus::measurements(&runs[1..]);
    let metric = |name: &str| series(text.lines().find(|line| line.starts_with(name)).expect(name)).2;
    let m = &runs[1].0.measurements[0];
    let mean = m.outcome.tallies.latency().mean().expect("measured");
    assert!((metric("iotax_latency_mean_seconds{") / (mean / 1e9) - 1.0).abs() < 1e-12);
    assert!((metric("iotax_bytes_per_second{") / (metric("iotax_iops{") * 4096.0) - 1.0).abs() < 1e-12);
    assert!((metric("iotax_duration_seconds{") - 6.0).abs() < 1e-12);
    let (sum, count) = (metric("iotax_latency_seconds_sum{"), metric("iotax_latency_seconds_count{"));
    assert!((count - m.outcome.tallies.ios() as f64).abs() < 0.5, "{count}");
    assert!((sum / count / (mean / 1e9) - 1.0).abs() < 1e-9, "{sum} {count}");
}
