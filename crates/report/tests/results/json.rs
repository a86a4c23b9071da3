//! Tests that the JSON document conforms to its schema.

use iotax_analysis::judge;
use iotax_model::Run;
use iotax_model::record::{Allocation, CpuPace, DiskActivity, Mapper, PageCache, SampledContent};
use iotax_model::suite::{SUITES, SuiteOptions};
use iotax_report::json::document;
use serde_json::Value;

use iotax_testkit::runs::observed::{both_ladders, crowd};
use iotax_testkit::runs::{bench, ladder, measurement, planned, run, target};

fn schema() -> jsonschema::Validator {
    let text = include_str!("../../schema/iotax-1.schema.json");
    let schema: Value = serde_json::from_str(text).expect("JSON");
    jsonschema::validator_for(&schema).expect("a JSON Schema")
}

pub(crate) fn checked(run: &Run) -> Value {
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

/// Tests a document in which all optional parts are missing.
fn bare() -> Run {
    let mut run =
        run(&[("a", iotax_testkit::runs::HOST), ("b", iotax_testkit::runs::HOST)], &["seqread-1m"], 1, false);
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
    damaged.measurements[0].outcome.verify = Some(iotax_testkit::runs::damaged());
    let mut jobs = bench();
    jobs.plan.workloads[0].beside =
        vec![iotax_model::Workload { name: "log".into(), ..jobs.plan.workloads[0].clone() }];
    let outcome = &mut jobs.measurements[0].outcome;
    outcome.jobs = [jobs.plan.workloads[0].name.as_str(), "log"]
        .map(|name| iotax_model::record::Share {
            name: name.into(),
            duration_ns: outcome.duration_ns,
            tallies: outcome.tallies.clone(),
        })
        .to_vec();
    let parsed = checked(&jobs);
    assert_eq!(parsed["cells"][0]["jobs"]["members"][1]["name"], "log");
    assert!(parsed["cells"][0]["jobs"].get("fairness").is_none());
    let mut network = iotax_testkit::runs::network::alone();
    let gap =
        iotax_model::record::Gap { upload: true, at_ns: 1, duration_ns: 2_000_000_000, lost_bytes: Some(9) };
    network.measurements[1].outcome.carried.as_mut().expect("a network's").gaps = vec![gap];
    let parsed = checked(&network);
    assert_eq!(parsed["cells"][1]["network"]["gaps"][0]["duration_ns"], 2_000_000_000);
    assert_eq!(parsed["cells"][0]["network"]["directions"][1]["direction"], "download");
    assert_eq!(parsed["measurements"][1]["carried"]["flows"][0]["lost"], 0);
    assert!(parsed["measurements"][0]["nics"]["far0"]["rx_bytes"].as_u64() > Some(0));
    checked(&iotax_testkit::runs::network::ladder());
    for run in [ladder(true), ladder(false), bench(), bare(), empty, mixed, damaged, both_ladders(), crowd()]
    {
        checked(&run);
    }
}

#[test]
fn every_suite_holds_to_the_schema() {
    for suite in SUITES {
        let workloads = (suite.workloads)(&SuiteOptions { all_records: true, ..SuiteOptions::default() });
        let mut run = planned("suite", (vec![target("host")], vec![]), workloads, 1);
        (run.plan.suite, run.seed) = (Some(suite.name.into()), 7);
        run.measurements = run
            .plan
            .workloads
            .iter()
            .zip(0..)
            .map(|(workload, order)| {
                let mut m = measurement(workload, "host", iotax_testkit::runs::HOST, 1, order);
                if workload.files().is_some() {
                    m.outcome.tallies.meta = m.outcome.tallies.read.take().or(m.outcome.tallies.write.take());
                }
                m
            })
            .collect();
        let parsed = checked(&run);
        assert_eq!(parsed["suite"]["name"], suite.name);
        assert_eq!(
            parsed["workloads"].as_array().map(Vec::len),
            Some(run.plan.workloads.len()),
            "{}",
            suite.name
        );
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
    assert!(broken(&|d| {
        d["steps"][0].as_object_mut().expect("one").remove("name");
    }));
    let watched = checked(&both_ladders());
    for pointer in [
        "/cells/6/inside/stretches/0/ns",
        "/cells/6/cpu/ns_per_io/vcpu",
        "/timing/outside",
        "/measurements/12/qemu/read/bins/0/count",
        "/measurements/12/inside/cpu/steal_ns",
    ] {
        let mut document = watched.clone();
        *document.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = "much".into();
        assert!(!schema().is_valid(&document), "{pointer}");
    }
}

#[test]
fn figures_are_those_of_the_record() {
    let run = ladder(false);
    let document = checked(&run);
    assert_eq!(document["run"]["seed"], 71_823);
    assert_eq!(document["run"]["started_at"], "2026-09-21T14:13:20Z");
    assert_eq!(document["measurements"].as_array().map(Vec::len), Some(60));
    let (first, parsed) = (&run.measurements[0], &document["measurements"][0]);
    let read = first.outcome.tallies.read.as_ref().expect("reads");
    assert_eq!(parsed["read"]["ios"], read.ios);
    assert_eq!(parsed["read"]["latency_ns"]["mean"].as_f64(), read.latency.mean());
    assert_eq!(parsed["duration_s"], 6.0);
    assert!(parsed.get("write").is_none(), "it does not write");
    let raw = &document["comparisons"][2];
    assert_eq!((&raw["metric"], &raw["target"]), (&"latency_mean".into(), &"vm-raw".into()));
    let (low, ratio, high) = (raw["low"].as_f64(), raw["ratio"].as_f64(), raw["high"].as_f64());
    assert!(low < ratio && ratio < high);
    assert!(raw["tax_ns"]["mean"].as_f64() > Some(0.0));
    assert_eq!(raw["verdict"], "slower");
}

#[test]
fn percentiles_have_intervals_or_say_what_they_lack() {
    let mut run = ladder(false);
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        let workload = run.plan.workloads.iter().find(|w| w.name == m.workload).expect("planned");
        m.outcome.tallies = iotax_testkit::runs::tallies(workload, 100, 90_000.0);
    }
    let document = checked(&run);
    let full = &document["cells"][0]["percentiles"];
    assert_eq!((&full[3]["name"], &full[3]["q"]), (&"p99.9".into(), &0.999.into()));
    assert_eq!(full[1]["ns"], document["cells"][0]["latency_ns"]["p90"]);
    let end = |interval: &str, end: &str| full[1][interval][end].as_f64().expect("there");
    assert!(end("of_ios_ns", "low") < end("of_ios_ns", "high"));
    assert!(end("over_rounds_ns", "low") < end("over_rounds_ns", "high"));
    let few = &document["cells"][1]["percentiles"];
    assert_eq!(few[2], serde_json::json!({"name": "p99", "q": 0.99, "ios": 500, "needed_ios": 1000}));
    // Each round alone has enough for the median, and the p90 of the rounds needs no more than 100.
    assert!(few[0].get("over_rounds_ns").is_some() && few[1].get("over_rounds_ns").is_some());
}

#[test]
fn what_moved_over_time_is_told() {
    let mut run = ladder(false);
    for m in &mut run.measurements {
        let second = m.samples[0].clone();
        m.samples = (0..20).map(|_| second.clone()).collect();
        for (i, sample) in m.samples.iter_mut().enumerate() {
            let tallies = &mut sample.tallies;
            let ios = if i < 5 { 200 } else { 100 } + i as u64 % 3;
            tallies.read.iter_mut().chain(&mut tallies.write).for_each(|tally| tally.ios = ios);
        }
    }
    let document = checked(&run);
    let effects = &document["effects"][0];
    assert_eq!((&effects["workload"], &effects["rounds"]), (&"randread-4k-qd1".into(), &5.into()));
    let drift = &effects["drift"];
    assert!(
        drift["low"].as_f64() < drift["change"].as_f64() && drift["change"].as_f64() < drift["high"].as_f64()
    );
    let series = &document["measurements"][0]["series"];
    assert_eq!((&series["intervals"], &series["warm_up"]["duration_s"]), (&20.into(), &5.0.into()));
    assert!(series["effective"].as_f64() < Some(20.0) && series["warm_up"]["ratio"].as_f64() > Some(1.9));
    assert_eq!(series["warm_up"]["unsettled"], false);
    assert!(checked(&bench())["measurements"][0].get("series").is_none(), "six intervals are too few");
}

/// Its index among the targets of both ladders.
const VM_RAW: usize = 6;

#[test]
fn what_was_seen_from_within_is_told() {
    let document = checked(&both_ladders());
    let step = &document["steps"][0];
    assert_eq!((&step["name"], &step["target"]), (&"LVM".into(), &"host-lvm".into()));
    assert_eq!(step["baseline"], "host-device");
    let vm = &document["measurements"][VM_RAW * 2];
    assert_eq!(vm["target"], "vm-raw");
    assert_eq!(vm["qemu"]["read"]["ios"], vm["read"]["ios"]);
    assert!(vm["qemu"]["read"]["p50_ns"].as_f64() > Some(0.0));
    assert!(vm["qemu"]["read"]["bins"][9].get("below_ns").is_none(), "the last has no bound");
    assert_eq!(vm["inside"]["disks"]["vda"]["reads"], vm["read"]["ios"]);
    assert!(vm["kernel_threads"]["jbd2/vda-8"]["system_ns"].as_u64() > Some(0));
    let cell = &document["cells"][VM_RAW];
    assert_eq!((&cell["target"], &cell["workload"]), (&"vm-raw".into(), &"randread-4k-qd1".into()));
    assert!(cell["cpu"]["ns_per_io"]["vcpu"].as_f64() > cell["cpu"]["ns_per_io"]["iothread"].as_f64());
    assert_eq!(cell["inside"]["stretches"][0]["name"], "host device");
    assert!(cell["inside"]["views_ns"]["guest_disk"].as_f64() > cell["inside"]["views_ns"]["qemu"].as_f64());
    let outside = document["timing"]["outside"].as_f64().expect("known");
    assert!((outside - 145.0 / 775.0).abs() < 1e-9);

    let document = checked(&crowd());
    let two = document["measurements"].as_array().expect("a list").iter().find(|m| m["target"] == "vm-2");
    let two = two.expect("measured");
    assert_eq!(two["shares"][1]["name"], "2");
    assert!(two["fairness"].as_f64().is_some_and(|index| (index - 1.0 / 1.04).abs() < 0.01));
    assert!(document["cells"][1]["guests"]["fairness"]["high"].as_f64() <= Some(1.0));
    assert_eq!(document["cells"][3]["neighbour"]["iops"], 10_000.0);
    assert!(document["measurements"][0].get("shares").is_none() && document.get("timing").is_none());
}

#[test]
fn what_the_checks_rest_on_is_told_with_the_grade() {
    let mut run = ladder(false);
    let number =
        run.measurements.iter().position(|m| m.target == "vm-raw" && m.workload == "randwrite-4k-qd32");
    let number = number.expect("measured");
    let m = &mut run.measurements[number];
    m.outcome.flush_ns = Some(7_000_000);
    m.outcome.page_cache = Some(PageCache { looked_at: 1 << 30, before: 0, after: 4096 });
    let host = m.host.as_mut().expect("observed");
    host.flushed.insert("vda".into(), DiskActivity { write_bytes: 5 << 20, ..DiskActivity::default() });
    host.watching_ns = Some(18_000_000);
    host.pace = Some(CpuPace { first_hz: Some(3_000_000_000), ..CpuPace::default() });
    let disk = host.disks.get_mut("vda").expect("its disk");
    disk.write_bytes = 0;
    run.targets[1].allocation = Some(Allocation {
        written: 1 << 30,
        unwritten: 0,
        holes: 0,
        shared: 0,
        compressed: 0,
        source: Mapper::QemuImg,
    });
    run.targets[1].found = Some(SampledContent { bytes: 1 << 20, zeros: 0, compressed: 1 << 20 });
    let document = checked(&run);
    let parsed = &document["measurements"][number];
    assert_eq!(
        (&parsed["grade"], &document["measurements"][0]["grade"]),
        (&"unusable".into(), &"clean".into())
    );
    assert_eq!(parsed["flush"], serde_json::json!({"duration_ns": 7_000_000, "device_bytes": 5 << 20}));
    assert_eq!((&parsed["page_cache"]["after"], &parsed["watching_ns"]), (&4096.into(), &18_000_000.into()));
    assert_eq!(parsed["pace"], serde_json::json!({"first_hz": 3_000_000_000_u64}));
    assert_eq!(document["targets"][1]["allocation"]["source"], "qemu-img map");
    let withheld =
        document["comparisons"].as_array().expect("a list").iter().filter(|c| c.get("withheld").is_some());
    let pairs: Vec<_> =
        withheld.map(|c| (c["target"].clone(), c["workload"].clone(), c["verdict"].clone())).collect();
    assert!(!pairs.is_empty());
    assert!(
        pairs.iter().all(|pair| *pair == ("vm-raw".into(), "randwrite-4k-qd32".into(), "undecided".into())),
        "{pairs:?}"
    );
}

#[test]
fn what_is_not_known_has_no_key() {
    let document = checked(&bare());
    assert_eq!(document["run"]["environment"], serde_json::json!({"mitigations": {}}));
    assert_eq!(document["comparisons"], serde_json::json!([]));
    assert!(document["measurements"][1].get("read").expect("it reads").get("iops").is_none());
    assert!(document["measurements"][0]["metrics"].get("cpu_per_io").is_none());
    let kinds: Vec<_> = document["warnings"].as_array().expect("a list").iter().map(|w| &w["kind"]).collect();
    assert!(kinds.contains(&&"incomplete".into()), "{kinds:?}");
}
