//! Tests of durable writes in every output, with a synthetic run of known flushes.

use iotax_analysis::judge;
use iotax_model::record::{BlockTally, DiskFlushes, Tally};
use iotax_model::suite::{Suite, SuiteOptions};
use iotax_model::target::{CacheMode, GuestSpec};
use iotax_model::units::Nanos;
use iotax_model::workload::SyncMode;
use iotax_model::{Histogram, Run};
use iotax_report::{document, html, markdown};

use crate::conclusions::sentences;
use crate::json::checked;
use iotax_testkit::runs::{HOST, SECONDS, Truth, complete, measurement, record, target};

/// Two rounds of a file, and of a guest whose QEMU ignores flushes: the file's disk completes two flushes for each fsync.
fn run() -> Run {
    let mut workloads = (Suite::named("flush").expect("known").workloads)(&SuiteOptions::default());
    workloads.iter_mut().for_each(|workload| workload.runtime = Nanos::from_secs(u64::from(SECONDS)));
    let names = ["host-file", "vm-raw"];
    let mut targets = names.map(target).to_vec();
    targets[1].stack.find_mut::<GuestSpec>().expect("a guest").cache = CacheMode::Unsafe;
    let records = names.map(|name| record(name, false)).to_vec();
    let mut run = complete("flush", (targets, records), workloads, 2, |t, workload, round, phase| {
        // fsync takes twice as long as the others.
        let slowdown = if workload.name == "fsync" { 2.0 } else { 1.0 };
        let mut m = measurement(workload, names[t], Truth { slowdown, ..HOST }, round, phase);
        let writes = m.outcome.tallies.write.clone().expect("it writes");
        let asks = workload.writes_per_commit().is_some();
        if workload.flush_call().is_some() {
            m.outcome.tallies.sync = Some(Tally { bytes: 0, ..writes.clone() });
            let mut commits = Histogram::new();
            commits.add_many(5_000_000, writes.ios);
            m.outcome.tallies.commit = Some(commits);
        }
        let each = match (names[t], workload.name.as_str()) {
            ("vm-raw", _) => 0,
            (_, "fsync") => 2,
            _ => u64::from(asks),
        };
        let flushes = |done| {
            Some(DiskFlushes { done, volatile_cache: Some(true), fua: Some(false), ..DiskFlushes::default() })
        };
        for disk in m.host.iter_mut().flat_map(|host| host.disks.values_mut()) {
            disk.flushes = flushes(each * writes.ios);
        }
        if names[t] == "vm-raw" {
            iotax_testkit::runs::observed::add_guest_data(&mut m);
            for disk in m.outcome.inside.iter_mut().flat_map(|inside| inside.disks.values_mut()) {
                disk.flushes = flushes(u64::from(asks) * writes.ios);
            }
            let flush = BlockTally { ios: u64::from(asks) * writes.ios, ..BlockTally::default() };
            m.qemu.as_mut().expect("counted").flush = flush;
        }
        m
    });
    run.plan.suite = Some("flush".into());
    run
}

#[test]
fn the_price_of_each_method_and_the_way_of_its_flushes_are_told() {
    let run = run();
    let judgement = judge(&run);
    let page = markdown::set(&document::answer(&run, &judgement));
    for words in [
        "Durable writes of 4k",
        "| write (not durable) |",
        // All sentences except that of fsync end alike; its own one describes the journal.
        "host-file: ",
        " asked by open_datasync, fdatasync, open_sync, rwf_dsync and msync, ",
        "(2.00 each). Kept; those beyond are a journal's own, other programs', or the kernel's behind a synchronous write",
        "in vda in the guest, ",
        " in QEMU, 0 in vda. Swallowed by QEMU (cache=unsafe)",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let said = sentences(&run).join("\n");
    assert!(
        said.contains(
            "vm-raw: acknowledged writes are not safe from a power cut, because QEMU (cache=unsafe) swallows"
        ),
        "{said}"
    );
    assert!(said.contains("host-file: ") && said.contains("highest rate of durable writes"), "{said}");
    assert!(html::render(&run, &judgement).contains("Durable writes of 4k"));
}

#[test]
fn programs_read_the_same() {
    let run = run();
    let parsed = checked(&run);
    let methods = parsed["durable_writes"]["methods"].as_array().expect("methods");
    assert_eq!(parsed["durable_writes"]["reference"], "fsync");
    assert_eq!(methods.len(), 16);
    let of = |target: &str, name: &str| {
        methods.iter().find(|one| one["target"] == target && one["workload"] == name).expect(name)
    };
    let fdatasync = of("host-file", "fdatasync");
    let ratio = fdatasync["against_reference"]["ratio"].as_f64().expect("compared");
    assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
    assert_eq!(fdatasync["flushes"]["fate"], "kept");
    // A commit is the write and its flush; a write that is durable by itself is one.
    let p50 = |name: &str| of("host-file", name)["p50_ns"].as_f64().expect("known");
    assert!((p50("fdatasync") / 5e6 - 1.0).abs() < 0.01, "{}", p50("fdatasync"));
    assert!(p50("open_datasync") < 1e6);
    let swallowed = &of("vm-raw", "open_sync")["flushes"];
    assert_eq!(swallowed["fate"], "swallowed");
    assert_eq!(swallowed["reason"], "count");
    for name in ["write", "sync_file_range"] {
        assert!(of("vm-raw", name)["flushes"].is_null(), "{name}");
    }
    let durable = run.plan.workloads.iter().filter(|workload| workload.sync != SyncMode::None).count();
    assert_eq!(durable, 3);
}
