//! Tests of runs exported as fio's output.

use std::collections::BTreeMap;

use iotax_interop::fio;
use iotax_model::Histogram;
use iotax_model::Run;
use iotax_model::record::{
    ErrorCount, ImportSource, ImportedMetrics, ProcessCounts, RunSource, Share, Tallies, Tally,
};
use iotax_model::workload::Workload;
use serde_json::Value;

use iotax_testkit::runs::{HOST, SECONDS, bench, run};

fn json(run: &Run) -> Value {
    serde_json::from_str(&fio::json_plus(run).expect("has a form")).expect("JSON")
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {value:#}"))
}

/// True if two figures are equal but for rounding errors.
fn same(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-9 * other.abs()
}

#[test]
fn figures_are_those_of_the_record_in_fios_units() {
    let run = bench();
    let document = json(&run);
    let m = &run.measurements[0];
    let tally = m.outcome.tallies.read.as_ref().expect("reads");
    let job = &document["jobs"][0];
    assert_eq!(job["jobname"], "randread-4k-qd32", "one target needs no name");
    assert_eq!(job["read"]["total_ios"], tally.ios);
    assert_eq!(job["read"]["io_kbytes"], tally.bytes / 1024);
    assert_eq!(job["read"]["runtime"], SECONDS * 1000);
    let iops = tally.ios as f64 / f64::from(SECONDS);
    assert!((number(job, "/read/iops") - iops).abs() < 1e-6);
    assert!((number(job, "/read/bw") - iops * 4.0).abs() < 1.0, "KiB a second");
    assert_eq!(job["read"]["clat_ns"]["N"], tally.latency.count());
    let p99 = tally.latency.quantile(0.99).expect("known");
    assert!((number(job, "/read/clat_ns/percentile/99.000000") - p99).abs() < 1.0);
    let bins = job["read"]["clat_ns"]["bins"].as_object().expect("json+");
    assert_eq!(bins.values().filter_map(Value::as_u64).sum::<u64>(), tally.ios);
    assert_eq!(job["read"]["iops_samples"], SECONDS);
    assert!(number(job, "/read/iops_min") < iops && number(job, "/read/iops_max") > iops);
    let shares: f64 = ["latency_ns", "latency_us", "latency_ms"]
        .iter()
        .flat_map(|unit| job[unit].as_object().expect("classes").values())
        .filter_map(Value::as_f64)
        .sum();
    assert!((shares - 100.0).abs() < 1e-6, "{shares}");
    assert!((number(job, "/sys_cpu") - 100.0 * 0.9 / f64::from(SECONDS)).abs() < 1e-6);
    let disk = &document["disk_util"][0];
    assert_eq!(disk["name"], "vda");
    assert!((number(disk, "/util") - 87.0).abs() < 1e-6, "{disk}");
}

#[test]
fn what_was_not_measured_has_fios_form_for_no_sample_or_none() {
    let document = json(&bench());
    let job = &document["jobs"][0];
    assert_eq!((&job["read"]["slat_ns"]["N"], &job["write"]["clat_ns"]["N"]), (&0.into(), &0.into()));
    assert!(job.get("iodepth_level").is_none(), "counted by nobody");
    // Records of earlier versions do not tell.
    assert_eq!((job.get("ctx"), document["disk_util"][0].get("read_ticks")), (None, None));
    let mut run = bench();
    let counts = ProcessCounts { context_switches: 7, major_faults: 1, minor_faults: 2 };
    run.measurements[0].outcome.counts = Some(counts);
    let disks = &mut run.measurements[0].host.as_mut().expect("watched").disks;
    let disk = disks.get_mut("vda").expect("known");
    (disk.read_wait_ns, disk.write_wait_ns) = (Some(30_000_000), Some(2_000_000));
    let document = json(&run);
    assert_eq!(document["jobs"][0]["ctx"], 7);
    let ticks = ["read_ticks", "write_ticks", "in_queue"].map(|key| document["disk_util"][0][key].as_u64());
    assert_eq!(ticks, [Some(30), Some(2), Some(32)]);
}

#[test]
fn a_job_comes_once_for_each_target_with_its_rounds_together() {
    let names = (["host-file", "vm-raw"], ["randread-4k-qd1", "seqwrite-1m"]);
    let run = run(&[("host-file", HOST), ("vm-raw", HOST)], &names.1, 3, false);
    let document = json(&run);
    let jobs = document["jobs"].as_array().expect("jobs");
    let order = names.1.iter().flat_map(|workload| names.0.map(|target| (target, *workload)));
    assert_eq!(jobs.len(), order.clone().count());
    for (group, (job, (target, workload))) in jobs.iter().zip(order).enumerate() {
        assert_eq!(job["jobname"], format!("{target}/{workload}"));
        assert_eq!(job["desc"], format!("{target}, 3 rounds together"));
        assert_eq!(job["groupid"], group, "nothing else ran at the same time");
        let rounds = run
            .measurements
            .iter()
            .filter(|m| (m.target.as_str(), m.workload.as_str()) == (target, workload));
        let ios: u64 = rounds.clone().map(|m| m.outcome.tallies.ios()).sum();
        let ns: u64 = rounds.clone().map(|m| m.outcome.duration_ns).sum();
        let word = if workload.starts_with("seqwrite") { "write" } else { "read" };
        assert_eq!((&job[word]["total_ios"], &job[word]["clat_ns"]["N"]), (&ios.into(), &ios.into()));
        assert!(same(number(job, &format!("/{word}/iops")), ios as f64 * 1e9 / ns as f64));
        let samples: usize = rounds.map(|m| m.samples.len()).sum();
        assert_eq!(job[word]["iops_samples"], samples);
    }
    let texts = [fio::terse(&run), fio::normal(&run)].map(|text| text.expect("has a form"));
    assert_eq!(texts[0].lines().count(), 4);
    assert_eq!(texts[1].matches("Run status group").count(), 4);
    let options =
        &jobs.iter().find(|job| job["jobname"] == "vm-raw/seqwrite-1m").expect("there")["job options"];
    assert_eq!(
        (&options["rw"], &options["bs"], &options["iodepth"]),
        (&"write".into(), &"1m".into(), &"8".into())
    );
    assert_eq!(options.get("stamps"), None, "no option of fio");
}

#[test]
fn what_ran_at_once_is_one_group() {
    let mut run = bench();
    let m = &mut run.measurements[0];
    let other = Workload { name: "writer".into(), iodepth: 3, ..run.plan.workloads[0].clone() };
    let mut latency = Histogram::new();
    latency.add_many(5_000, 1024);
    let write = Some(Tally { ios: 1024, bytes: 1 << 22, latency, response: None });
    let shares = [
        ("randread-4k-qd32", m.outcome.tallies.clone()),
        ("writer", Tallies { write, ..Tallies::default() }),
    ];
    m.outcome.jobs = shares
        .into_iter()
        .map(|(name, tallies)| Share { name: name.into(), duration_ns: 2_000_000_000, tallies })
        .collect();
    run.plan.workloads[0].beside = vec![other];
    let document = json(&run);
    let jobs = document["jobs"].as_array().expect("jobs");
    assert_eq!((jobs.len(), &jobs[0]["groupid"], &jobs[1]["groupid"]), (2, &0.into(), &0.into()));
    assert!(same(number(&jobs[1], "/write/iops"), 512.0));
    assert_eq!(jobs[1]["jobname"], "writer");
    assert_eq!(jobs[1]["job options"]["iodepth"], "3");
    assert_eq!(jobs[1].get("usr_cpu"), None, "known of both together only");
    let normal = fio::normal(&run).expect("has a form");
    assert!(normal.contains("  WRITE: bw=2048KiB/s (2097kB/s), "), "{normal}");
    // Guests with the same work differ by their numbers.
    let m = &mut run.measurements[0];
    m.shares = std::mem::take(&mut m.outcome.jobs);
    (m.shares[0].name, m.shares[1].name) = ("1".into(), "2".into());
    assert_eq!(json(&run)["jobs"][1]["jobname"], "randread-4k-qd32/2");
}

#[test]
fn an_open_loop_has_response_times_as_lat() {
    let mut run = bench();
    let tally = run.measurements[0].outcome.tallies.read.as_mut().expect("reads");
    let mut response = Histogram::new();
    response.add_many(9_000_000, tally.ios);
    tally.response = Some(response);
    let document = json(&run);
    let read = &document["jobs"][0]["read"];
    assert!(same(number(read, "/lat_ns/mean"), 9e6));
    assert!(number(read, "/clat_ns/mean") < 1e6);
    assert!(number(read, "/lat_ns/percentile/50.000000") > 8.9e6);
    assert_eq!(document["jobs"][0]["latency_ms"]["10"], 100.0);
}

#[test]
fn errors_are_fios_numbers() {
    let mut run = bench();
    let error = |name: &str, count| ErrorCount {
        error: name.into(),
        direction: "read".into(),
        count,
        in_ramp: 0,
        first_offset: 0,
        last_offset: None,
    };
    run.measurements[0].outcome.errors = vec![error("EIO", 3), error("short read", 2)];
    let document = json(&run);
    let job = &document["jobs"][0];
    assert_eq!((&job["error"], &job["total_err"], &job["first_error"]), (&5.into(), &5.into(), &5.into()));
    assert_eq!(job["read"]["short_ios"], 2);
    assert!(fio::normal(&run).expect("form").contains("err= 5"));
}

#[test]
fn the_terse_line_has_its_fields_by_their_place() {
    let run = bench();
    let text = fio::terse(&run).expect("has a form");
    let fields: Vec<&str> = text.trim_end().split(';').collect();
    // 121 up to the classes of latency, 9 for a disk and a description.
    assert_eq!(fields.len(), 121 + 9 + 1, "{text}");
    let tally = run.measurements[0].outcome.tallies.read.as_ref().expect("reads");
    assert_eq!(fields[..3], ["3", fio::VERSION, "randread-4k-qd32"]);
    assert_eq!(fields[5], (tally.bytes / 1024).to_string());
    assert_eq!(fields[7], (tally.ios / u64::from(SECONDS)).to_string());
    let p99 = tally.latency.quantile(0.99).expect("known").round() / 1000.0;
    assert_eq!(fields[29], format!("99.000000%={p99:.0}", p99 = p99.floor()), "microseconds");
    assert_eq!(fields[46], "0", "nothing was written");
    assert_eq!(fields[89..92], ["", "", ""], "context switches and faults are not known");
    assert_eq!(fields[121], "vda");
}

#[test]
fn the_normal_form_reads_as_fios() {
    let normal = fio::normal(&bench()).expect("has a form");
    for line in [
        "randread-4k-qd32: (g=0): rw=randread, bs=(R) 4096B-4096B, (W) 4096B-4096B, (T) 4096B-4096B, ioengine=auto, iodepth=32",
        "fio-3.33-iotax-",
        "  read: IOPS=",
        "    clat (usec): min=",
        "     lat (usec): min=",
        "    clat percentiles (usec):",
        "     | 99.99th=[",
        "   bw (  KiB/s): min=",
        "  cpu          : usr=5.00%, sys=15.00%",
        "     issued rwts: total=",
        "Run status group 0 (all jobs):",
        "   READ: bw=",
        "Disk stats (read/write):",
    ] {
        assert!(normal.lines().any(|shown| shown.starts_with(line)), "{line}\n{normal}");
    }
}

#[test]
fn what_has_no_form_is_refused_with_the_reason() {
    let mut imported = bench();
    imported.source = RunSource::Imported(ImportSource {
        tool: "bonnie++".into(),
        version: None,
        files: vec![],
        dated: None,
        known: BTreeMap::new(),
        not_understood: vec![],
    });
    imported.measurements[0].stated = Some(ImportedMetrics::default());
    imported.measurements[0].outcome.tallies = Tallies::default();
    let mut files = bench();
    files.measurements[0].outcome.tallies.meta = Some(Tally::default());
    let mut empty = bench();
    empty.measurements.clear();
    for (run, reason) in [
        (imported, "comes from bonnie++, which reports no counts and latencies of \"randread-4k-qd32\""),
        (files, "operations on files as such"),
        (empty, "run 17 has no measurement yet"),
    ] {
        for form in [fio::json, fio::json_plus, fio::terse, fio::normal] {
            let error = form(&run).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
