//! The HTML report: whole, self-contained, and safe whatever the names are.

use iotax_model::Plan;
use iotax_results::report::{html, plan_toml};
use iotax_results::{Run, judge};

use crate::synthetic::{bench, ladder};

fn page(run: &Run) -> String {
    html::render(run, &judge(run))
}

#[test]
fn everything_a_reader_looks_for_is_there_in_order() {
    let page = page(&ladder(true));
    let mut from = 0;
    for part in [
        "which disk format for our VMs",
        "iotax run 17",
        "seed 71823",
        "What it means",
        "qcow2 costs nothing measurable (within 2%) on every workload: vm-qcow2 over vm-raw",
        "4k random read, queue depth 1",
        "tax on mean latency",
        "Latency by percentile",
        "I/Os per second",
        "Device busy",
        "Host CPUs busy",
        "randwrite-4k-qd32",
        "Remarks",
        "its tax is that of emulation",
        "Targets",
        "virtio-blk",
        "qemu-system-x86_64 -accel tcg",
        "Environment",
        "AMD EPYC",
        "How to reproduce",
        "[[workload]]",
    ] {
        let at = page[from..].find(part).unwrap_or_else(|| panic!("{part} is missing or out of order"));
        from += at;
    }
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

#[test]
fn nothing_is_loaded() {
    let page = page(&ladder(false));
    for sign in ["http://", "https://", "<script", "@import", "url(", "src="] {
        assert!(!page.contains(sign), "{sign}");
    }
}

#[test]
fn names_are_text_not_markup() {
    let mut run = bench();
    let evil = "<script>alert(1)</script>\"'&";
    run.plan.name = evil.into();
    run.targets[0].layers[0].detail = evil.into();
    run.targets[0].command_line = Some(evil.into());
    run.environment.cpu_model = Some(evil.into());
    run.measurements[0].outcome.notes.push(evil.into());
    run.plan.workloads[0].name = evil.into();
    run.measurements[0].workload = evil.into();
    run.measurements[0].target = "disk.img".into();
    let page = page(&run);
    assert!(!page.contains("<script"), "escaped");
    assert!(page.matches("&lt;script&gt;").count() >= 6);
}

#[test]
fn no_figure_is_not_a_number() {
    let mut empty = ladder(false);
    empty.measurements.clear();
    let mut dead = bench();
    dead.measurements[0].outcome.tallies.read = Some(iotax_model::record::Tally::default());
    dead.measurements[0].outcome.duration_ns = 0;
    for sample in &mut dead.measurements[0].samples {
        sample.duration_ns = 0;
        sample.tallies.read = None;
    }
    for activity in &mut dead.measurements[0].host_samples {
        activity.duration_ns = 0;
    }
    for run in [empty, dead, bench(), ladder(true)] {
        let page = page(&run);
        assert!(!page.contains("NaN") && !page.contains("inf\"") && !page.contains("-inf"));
        assert!(page.ends_with("</html>"));
    }
}

#[test]
fn the_plan_reads_back() {
    let run = ladder(false);
    let text = plan_toml(&run).expect("TOML");
    assert_eq!(Plan::from_toml(&text).expect("a plan"), Plan { seed: Some(run.seed), ..run.plan });
}

#[test]
#[ignore = "writes pages to look at: IOTAX_SHOW=DIR cargo test -p iotax-results -- --ignored pages_to_look_at"]
fn pages_to_look_at() {
    let dir = std::env::var("IOTAX_SHOW").expect("IOTAX_SHOW names a directory");
    for (name, run) in [("ladder", ladder(true)), ("bench", bench())] {
        std::fs::write(format!("{dir}/{name}.html"), page(&run)).expect("written");
    }
}
