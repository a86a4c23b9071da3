//! Tests of classic suites, exported in the formats of the original tools.

use std::io::Write as _;
use std::process::{Command, Stdio};

use iotax_analysis::compare::{Account, Question, Side, Which, compare};
use iotax_analysis::suite::filecopy;
use iotax_analysis::{Metric, judge};
use iotax_interop::bonnie::{self, Version};
use iotax_interop::import;
use iotax_model::Histogram;
use iotax_model::Run;
use iotax_model::record::{CpuTime, Environment, Measurement, Outcome, RunSource, Tallies, Tally};
use iotax_model::suite::{Suite, SuiteOptions};
use iotax_report as report;
use iotax_report::json;

use iotax_testkit::runs::{planned, target};

/// A run of a suite on the host without measurements.
fn run(suite: &str) -> Run {
    let suite = Suite::named(suite).expect("a suite");
    let workloads = (suite.workloads)(&SuiteOptions::default());
    let mut run = planned("classics", (vec![target("host")], vec![]), workloads, 1);
    (run.plan.suite, run.plan.seed) = (Some(suite.name.into()), Some(7));
    Run { id: 1, seed: 7, started_at_ms: 1_700_000_000_000, environment: Environment::default(), ..run }
}

/// The tally of `ios` I/Os of `bytes` bytes each.
fn tally(ios: u64, bytes: u64, latency_ns: u64) -> Tally {
    let mut latency = Histogram::new();
    latency.add_many(latency_ns, ios);
    Tally { ios, bytes: ios * bytes, latency, response: None }
}

fn measurement(workload: &str, round: u32, duration_ns: u64, cpu_ns: u64, tallies: Tallies) -> Measurement {
    Measurement {
        target: "host".into(),
        workload: workload.into(),
        round,
        order: round,
        started_at_ms: 0,
        host_duration_ns: None,
        outcome: Outcome {
            duration_ns,
            tallies,
            cpu: CpuTime { user_ns: cpu_ns, system_ns: 0 },
            ..Outcome::default()
        },
        samples: Vec::new(),
        host: None,
        host_samples: Vec::new(),
        host_cache: None,
        guest_cache: None,
        shares: Vec::new(),
        neighbour: None,
        qemu: None,
        counters: Vec::new(),
        devices: Vec::new(),
        standstills: Vec::new(),
        occurrences: Vec::new(),
        stated: None,
        fleet: None,
    }
}

const SECOND: u64 = 1_000_000_000;

fn bonnie() -> Run {
    let mut run = run("bonnie");
    let read = |tally| Tallies { read: Some(tally), ..Tallies::default() };
    let write = |tally| Tallies { write: Some(tally), ..Tallies::default() };
    let chunks = (1 << 30) / 8192;
    let both = |ios, writes| Tallies {
        read: Some(tally(ios, 8192, 2_000_000)),
        write: Some(tally(writes, 8192, 2_000_000)),
        ..Tallies::default()
    };
    run.measurements = vec![
        measurement("putc", 1, 3 * SECOND, 3 * SECOND, write(tally(3 << 20, 1, 1_000))),
        measurement("put_block", 1, 4 * SECOND, SECOND, write(tally(chunks, 8192, 150_000_000))),
        measurement("rewrite", 1, 8 * SECOND, SECOND, both(chunks, chunks)),
        measurement("getc", 1, SECOND / 4, SECOND / 4, read(tally(3 << 20, 1, 1_000))),
        measurement("get_block", 1, 2 * SECOND, SECOND, read(tally(chunks, 8192, 4_001_000))),
        measurement("seeks", 1, 20 * SECOND, 10 * SECOND, both(8190, 819)),
    ];
    run
}

#[test]
fn a_run_of_bonnie_is_a_line_of_bonnies_csv() {
    let text = bonnie::csv(&bonnie(), Version::V1_98).expect("a line");
    let fields: Vec<&str> = text.trim_end().split(',').collect();
    // 1.98 has two more than the 48 of 1.97.
    assert_eq!(fields.len(), 50, "{text}");
    assert_eq!(fields[0], "1.98");
    assert!(fields[1].starts_with("iotax-"));
    assert_eq!(fields[2..9], ["host", "1", "7", "1G", "", "8190", "5"]);
    assert_eq!(
        fields[9..21],
        ["1024", "100", "262144", "25", "131072", "12", "+++++", "+++", "524288", "50", "409.5", "50"]
    );
    assert!(fields[21..38].iter().all(|field| field.is_empty()), "{text}");
    // Histograms tell a longest latency to within their error.
    assert_eq!([fields[38], fields[40], fields[41]], ["", "", ""], "a chunk is many calls there");
    let number = |field: &str, unit: &str| field.strip_suffix(unit).map(str::parse::<f64>);
    for (field, unit, truth) in [(39, "ms", 150.0), (42, "us", 4001.0), (43, "us", 2000.0)] {
        let value = number(fields[field], unit).and_then(Result::ok).expect(fields[field]);
        assert!((value / truth - 1.0).abs() < 0.01, "{value} {truth}");
    }
    let older = bonnie::csv(&bonnie(), Version::V1_97).expect("a line");
    let older: Vec<&str> = older.trim_end().split(',').collect();
    assert_eq!((older.len(), older[0]), (48, "1.97"));
    assert_eq!(older[7..], fields[9..]);
}

#[test]
fn each_round_is_a_line_and_what_was_not_measured_is_empty() {
    let mut run = bonnie();
    let mut second = run.measurements[4].clone();
    second.round = 2;
    run.measurements.push(second);
    let text = bonnie::csv(&run, Version::V1_98).expect("lines");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1][5..21], ["1G", "", "", "", "", "", "", "", "", "", "", "", "524288", "50", "", ""]);
}

#[test]
fn our_csv_is_imported_again_and_meets_its_run() {
    let mut run = bonnie();
    let of_files = |name: &str| {
        let meta = Tallies { meta: Some(tally(16 * 1024, 0, 20_000)), ..Tallies::default() };
        measurement(name, 1, 2 * SECOND, SECOND, meta)
    };
    let names = ["seq_create", "seq_stat", "seq_del", "ran_create", "ran_stat", "ran_del"];
    run.measurements.extend(names.map(of_files));
    for version in [Version::V1_97, Version::V1_98] {
        let csv = bonnie::csv(&run, version).expect("a line");
        let imported = import::runs(vec![("b.csv".into(), import::recognise(&csv))], None).remove(0);
        assert!(imported.source.tool().starts_with("bonnie++ iotax-"), "{}", imported.source);
        let mut again = Run {
            id: 2,
            plan: imported.plan.clone(),
            source: RunSource::Imported(imported.source.clone()),
            measurements: imported.measurements().collect(),
            ..run.clone()
        };
        // Runs that were imported before have other names.
        for spelling in ["_", "-"] {
            let spelled = |name: &str| name.replace('_', spelling);
            again.plan.workloads.iter_mut().for_each(|workload| workload.name = spelled(&workload.name));
            again
                .measurements
                .iter_mut()
                .for_each(|measured| measured.workload = spelled(&measured.workload));
            let RunSource::Imported(source) = &mut again.source else { panic!("imported") };
            let known = std::mem::take(&mut source.known);
            let known = known.into_iter().map(|(name, keys)| (spelled(&name), keys));
            source.known = known.collect();
            let accounts = [&run, &again].map(|run| Account::of(run, &judge(run)));
            let [one, other] = &accounts;
            let (a, b) = (Side { account: one, target: None }, Side { account: other, target: None });
            let question =
                Question { baseline: Which::A, metrics: vec![Metric::IOPS], margin: 0.02, gates: vec![] };
            let compared = compare(&a, &b, &question).expect("comparable");
            let pairs: Vec<(String, String)> =
                compared.workloads.iter().map(|pair| (pair.a.name.clone(), spelled(&pair.b))).collect();
            let all = ["putc", "put_block", "rewrite", "getc", "get_block", "seeks"].into_iter().chain(names);
            let all: Vec<(String, String)> = all.map(|name| (name.to_owned(), spelled(name))).collect();
            assert_eq!(pairs, all);
        }
        let rate =
            again.measurements.iter().find(|m| m.workload == "seq-create").and_then(|m| Metric::IOPS.of(m));
        assert_eq!(rate, Some(8192.0));
    }
}

#[test]
fn a_run_of_something_else_is_no_bonnie() {
    let error = bonnie::csv(&run("filecopy"), Version::V1_98).expect_err("refused").to_string();
    assert!(error.contains("run 1") && error.contains("fstime") && error.contains("put_block"), "{error}");
}

/// Returns the output of a program of bonnie++ for a text; `None` if it is not installed.
fn shown(program: &str, text: &str) -> Option<String> {
    iotax_testkit::require!(program program);
    let child =
        Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("started");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("ended");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{program}: {said}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn bonnies_own_programs_show_our_figures() {
    let text = bonnie::csv(&bonnie(), Version::V1_98).expect("a line");
    if let Some(page) = shown("bon_csv2html", &text) {
        // Rounds are in MiB/s there.
        for figure in ["host", "1G", "1024", "256", "128", "512", "409.5", "+++++", "150ms", "4001us"] {
            assert!(page.contains(&format!(">{figure}<")), "{figure}: {page}");
        }
    }
    if let Some(table) = shown("bon_csv2txt", &text) {
        // It cuts figures to its columns.
        for figure in ["host", "1G", "8190:5", "1024k", "256m", "128m", "512m", "409.5"] {
            assert!(table.contains(figure), "{figure}: {table}");
        }
    }
}

#[test]
fn the_index_of_copies_is_ten_times_the_baseline_and_leaves_the_worst_third_out() {
    let mut run = run("filecopy");
    // The baselines' own rates, duplicates, four times, and a tenth of it: which is the worst of three and is dropped.
    for (workload, bs, kib) in
        [("fstime", 1024_u64, 3960_u64), ("fsbuffer", 256, 1655), ("fsdisk", 4096, 5800)]
    {
        for (round, tenths) in [(1, 20), (2, 1), (3, 80)] {
            let bytes = kib * 1024 * tenths / 10;
            let writes = bytes.div_ceil(bs);
            let tallies = Tallies { write: Some(tally(writes, bs, 1000)), ..Tallies::default() };
            run.measurements.push(measurement(workload, round, SECOND, SECOND, tallies));
        }
    }
    let indexes = filecopy::indexes(&run);
    let [index] = indexes.as_slice() else { panic!("{indexes:?}") };
    // The geometric mean of 2 and 8 times is 4.
    for copy in &index.copies {
        assert!((copy.index - 40.0).abs() < 0.1 && copy.rounds == 2, "{copy:?}");
    }
    assert!(index.index.is_some_and(|all| (all - 40.0).abs() < 0.1), "{index:?}");
    shows_the_index(&run);
    run.measurements.retain(|measured| measured.workload != "fsdisk");
    let partly = filecopy::indexes(&run);
    assert_eq!((partly[0].copies.len(), partly[0].index), (2, None), "two of three are no index");
}

/// Checks the output for people and the output for programs.
fn shows_the_index(run: &Run) {
    let judgement = judge(run);
    let page = report::document::run(run, &judgement);
    for text in [
        report::terminal::set(&page, 100, false).to_string(),
        report::markdown::set(&page),
        report::html::render(run, &judgement),
    ] {
        for words in ["File Copy 256 bufsize 500 maxblocks", "1655.0", "40.0", "never flushed"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }
    let found = json::document(run, &judgement);
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../report/schema/iotax-1.schema.json")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> =
        validator.iter_errors(&found).map(|e| format!("{e} at {}", e.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
    let index = &found["suite"]["indexes"][0];
    assert_eq!((&index["target"], &index["copies"][1]["workload"]), (&"host".into(), &"fsbuffer".into()));
    assert!(index["index"].as_f64().is_some_and(|all| (all - 40.0).abs() < 0.1), "{index}");
}
