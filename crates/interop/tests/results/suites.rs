//! Tests of suite runs: knees, comparison of tests, and the format that readers of iozone's output expect.

use iotax_analysis::{judge, suite};
use iotax_interop::export::{Document, FORMATS};
use iotax_interop::iozone::{self, NotIozone};
use iotax_model::Run;
use iotax_model::suite::SuiteOptions;
use iotax_model::{Suite, Workload};
use iotax_report::json::document;
use iotax_report::{document, html, markdown, terminal};

use iotax_testkit::runs::{HOST, Truth, measurement, run};

/// A run of some tests of a suite. Each target's latency under a workload is a multiple of that of [`measurement`].
fn suite_run(
    name: &str,
    tests: &[&str],
    options: &SuiteOptions,
    targets: &[&str],
    slowdown: impl Fn(&str, &Workload) -> f64,
) -> Run {
    let suite = Suite::named(name).expect(name);
    let all = (suite.workloads)(options);
    let workloads: Vec<Workload> = all.into_iter().filter(|w| tests.contains(&suite.test(w))).collect();
    let truths: Vec<(&str, Truth)> = targets.iter().map(|target| (*target, HOST)).collect();
    let mut made = run(&truths, &[], 3, false);
    made.plan.suite = Some(name.into());
    made.plan.name = format!("suite {name}");
    for round in 1..=3 {
        for (t, target) in targets.iter().enumerate() {
            for (w, workload) in workloads.iter().enumerate() {
                let truth = Truth { slowdown: slowdown(target, workload), ..HOST };
                let mut m = measurement(workload, target, truth, round, 2 * t + w);
                // These reports have no charts over time.
                m.samples.clear();
                m.host_samples.clear();
                m.order = u32::try_from(made.measurements.len()).expect("few") + 1;
                made.measurements.push(m);
            }
        }
    }
    made.plan.workloads = workloads;
    made
}

/// Eight I/Os in flight of 100 us each; a guest is half as fast.
fn threads() -> Run {
    let tests = ["randread-4k-j1", "randwrite-4k-j1"];
    suite_run("threads", &tests, &SuiteOptions::default(), &["host-file", "vm-raw"], |target, workload| {
        let depth = f64::from(workload.iodepth);
        let device_ns = 60_000.0 + 4096.0 * 0.9 + 2_200.0 * depth;
        let guest = if target == "vm-raw" { 2.0 } else { 1.0 };
        guest * 100_000.0 * (depth / 8.0).max(1.0) / device_ns
    })
}

fn sizes() -> Run {
    suite_run("sizes", &["randread", "write"], &SuiteOptions::default(), &["host-file"], |_, _| 1.0)
}

fn records(targets: &[&str]) -> Run {
    let options = SuiteOptions { size: Some("1m".parse().expect("a size")), ..SuiteOptions::default() };
    let tests = ["rewrite", "reread", "record-rewrite", "mixed"];
    suite_run("records", &tests, &options, targets, |_, _| 1.0)
}

#[test]
fn a_knee_is_where_the_ceiling_is_reached() {
    let made = threads();
    let tests = suite::tests(&made);
    assert_eq!(tests.iter().map(|test| test.name).collect::<Vec<_>>(), ["randread-4k-j1", "randwrite-4k-j1"]);
    for course in tests.iter().flat_map(|test| &test.series) {
        let knee = course.knee.expect("bends");
        let at = knee.at.expect("reached");
        assert_eq!(course.points[at].outstanding(), 8, "{knee:?}");
        assert!((knee.outstanding - 8.0).abs() < 0.3, "{knee:?}");
        let (low, high) = knee.range.expect("three rounds");
        assert!(low <= knee.outstanding && knee.outstanding <= high && high - low < 1.0, "{knee:?}");
        let (iops, latency) = knee.beyond.expect("deeper");
        assert!((iops - 1.0).abs() < 0.05 && (latency - 8.0).abs() < 0.4, "{knee:?}");
        let deepest = course.points.last().expect("points");
        let in_flight = deepest.in_flight().expect("known");
        assert!((in_flight - 64.0).abs() < 2.0, "Little's law: {in_flight}");
    }
}

#[test]
fn block_sizes_show_what_an_io_costs_and_what_its_bytes_cost() {
    let made = sizes();
    for course in suite::tests(&made).iter().flat_map(|test| &test.series) {
        let found = course.transition.expect("twelve sizes");
        // 60 us and 2.2 us for each of 8 that are outstanding, and 0.9 ns a byte.
        let half = 77_600.0 / 0.9;
        assert!((found.size.expect("both parts") / half - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.fixed_ns / (77_600.0 / 8.0) - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.bytes_per_s.expect("a bandwidth") / (8e9 / 0.9) - 1.0).abs() < 0.05, "{found:?}");
        assert!(found.misfit < 0.1 && course.knee.is_none(), "{found:?}");
    }
}

#[test]
fn a_run_of_no_suite_has_no_tests() {
    assert!(suite::tests(&iotax_testkit::runs::ladder(false)).is_empty());
    let mut unknown = sizes();
    unknown.plan.suite = Some("of a later version".into());
    assert!(suite::tests(&unknown).is_empty());
    assert!(!page_of(&unknown).is_empty());
}

fn page_of(run: &Run) -> String {
    terminal::set(&document::run(run, &judge(run)), 100, false).to_string()
}

#[test]
fn each_test_is_one_table() {
    let text = page_of(&threads());
    assert_eq!(text.matches("by outstanding I/Os (rand").count(), 2, "{text}");
    assert!(text.contains("host-file: the knee is at 8 outstanding I/Os: "), "{text}");
    assert!(text.contains("baseline") && text.contains("slower"), "{text}");
    let text = page_of(&sizes());
    assert!(text.contains("random read by block size, queue depth 8 (randread)"), "{text}");
    assert!(text.contains("the bandwidth decides above 8"), "{text}");
    assert!(
        text.contains("Note: blocks below the device's own sector"),
        "beside the test that it is about: {text}"
    );
    assert!(text.contains("Of this suite") && text.lines().count() < 80, "{text}");
    let text = page_of(&records(&["host-file", "vm-raw"]));
    assert!(
        text.contains("file \\ record") && text.contains("vm-raw against host-file, of 35 cells: "),
        "{text}"
    );
}

#[test]
fn a_page_for_a_ticket_has_the_same() {
    let made = threads();
    let text = markdown::set(&document::run(&made, &judge(&made)));
    assert!(
        text.contains("### 4k random read by outstanding I/Os") && text.contains("| outstanding | target |"),
        "{text}"
    );
}

#[test]
fn the_document_holds_to_its_schema_and_has_the_knees() {
    let schema = include_str!("../../../report/schema/iotax-1.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    for made in [threads(), sizes(), records(&["host-file"])] {
        let found = document(&made, &judge(&made));
        let errors: Vec<String> =
            validator.iter_errors(&found).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert_eq!(errors, Vec::<String>::new());
        let course = &found["suite"]["tests"][0];
        let name = made.plan.suite.as_deref().expect("a suite");
        assert_eq!(found["suite"]["name"], name);
        assert_eq!(course["knee"].is_object(), name == "threads", "{course}");
        assert_eq!(course["transition"].is_object(), name == "sizes", "{course}");
        assert_eq!(course["points"][0]["file_size"].is_number(), name == "records", "{course}");
    }
}

#[test]
fn a_report_has_a_section_for_each_test_and_pictures_of_its_course() {
    let made = threads();
    let text = html::render(&made, &judge(&made));
    let page = text.split_once("<script>").expect("programs").0;
    assert_eq!(page.matches("<section id=\"w").count(), 2);
    assert!(page.contains("\"kind\":\"curve\"") && page.contains("<td>knee</td>"));
    let made = records(&["host-file", "vm-raw"]);
    let text = html::render(&made, &judge(&made));
    let page = text.split_once("<script>").expect("programs").0;
    assert_eq!(page.matches("<section id=\"w").count(), 4);
    assert_eq!(page.matches("\"kind\":\"map\"").count(), 8, "each test on each target");
    assert_eq!(page.matches("<svg class=\"surface\"").count(), 8);
    assert!(page.contains("color-mix(in srgb,var(--h") && !page.contains("NaN"));
}

/// A title of iozone's, and values by file and record size in KiB.
type Report = (String, Vec<(u64, u64, f64)>);

/// The tables that a reader of iozone's layout finds.
fn read(text: &str) -> Vec<Report> {
    let quoted = |word: &str| word.trim_matches('"').parse::<u64>().expect("a size");
    let (head, body) = text.split_once("Excel output is below:\n\n").expect("its line before the tables");
    assert!(head.starts_with("\tiotax suite records, "), "by which it is known as ours: {head}");
    let report = |part: &str| {
        let mut lines = part.lines();
        let title = lines.next().expect("a title").trim_matches('"').to_owned();
        let records: Vec<u64> = lines.next().expect("records").split_whitespace().map(quoted).collect();
        let mut values = Vec::new();
        for line in lines {
            let mut words = line.split_whitespace();
            let file = quoted(words.next().expect("a file"));
            let row: Vec<f64> = words.map(|word| word.parse().expect("a number")).collect();
            assert_eq!(row.len(), records.len(), "{line}");
            values.extend(records.iter().zip(row).map(|(record, value)| (file, *record, value)));
        }
        (title, values)
    };
    body.split("\n\n").map(report).collect()
}

#[test]
fn iozones_layout_reads_back() {
    let made = records(&["host-file"]);
    let reports = read(&iozone::excel(&made).expect("of records"));
    let titles: Vec<&str> = reports.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(
        titles,
        ["Re-writer report", "Re-Reader report", "Record rewrite report"],
        "a mix iozone has not"
    );
    let tests = suite::tests(&made);
    let reread = tests.iter().find(|test| test.name == "reread").expect("measured");
    for (file, record, value) in &reports[1].1 {
        let name = format!("reread-{}-{}", iotax_model::Bytes(file << 10), iotax_model::Bytes(record << 10));
        let point = reread.series[0].points.iter().find(|point| point.workload.name == name);
        let Some(point) = point else {
            assert!(record > file && value.abs() < f64::EPSILON, "{name} was not measured");
            continue;
        };
        assert!((point.bytes_per_s.expect("known") / 1024.0 - value).abs() <= 0.5, "{name}");
    }
    assert_eq!(reports[1].1.len(), 5 * 9);
}

#[test]
fn what_iozone_cannot_lay_out_is_refused() {
    assert_eq!(iozone::excel(&threads()), Err(NotIozone::OtherRun));
    let error = iozone::excel(&records(&["host-file", "vm-raw"])).expect_err("two").to_string();
    assert!(error.contains("host-file, vm-raw"), "{error}");
}

#[test]
fn each_classics_form_is_exported_of_its_own_suite_only() {
    let written = |name: &str, made: Run| {
        let format = FORMATS.iter().find(|format| format.name == name).expect("in the table");
        let judgement = judge(&made);
        ((format.write)(&(made, judgement)), &format.mark)
    };
    let (found, mark) = written("iozone-excel", records(&["host-file"]));
    let Ok(Document::Text(text)) = found else { panic!("{found:?}") };
    assert!(mark.stands_in(text.as_bytes()) && text.contains("\"Re-Reader report\""), "{text}");
    let all = ["put_block", "rewrite", "get_block"];
    let (found, mark) = written(
        "bonnie-csv",
        suite_run("bonnie", &all, &SuiteOptions::default(), &["host-file"], |_, _| 1.0),
    );
    let Ok(Document::Text(text)) = found else { panic!("{found:?}") };
    assert!(text.lines().count() == 3 && mark.stands_in(text.as_bytes()), "{text}");
    for (name, words) in [("iozone-excel", "iotax suite records"), ("bonnie-csv", "not of the suite bonnie")]
    {
        let error = written(name, threads()).0.expect_err("of another suite").to_string();
        assert!(error.contains(words), "{error}");
    }
}
