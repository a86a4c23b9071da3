//! The HTML report: whole, self-contained, and safe whatever the names are.

use iotax_model::Plan;
use iotax_results::report::{html, plan_toml};
use iotax_results::{Run, judge};

use crate::observed::{both_ladders, crowd};
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
        "qcow2 adds nothing measurable to the latency (within 2%) on every workload: vm-qcow2 over vm-raw",
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
fn layers_guests_and_time_have_their_place() {
    let has = |run: &Run, parts: &[&str]| {
        let page = page(run);
        parts.iter().for_each(|part| assert!(page.contains(part), "{part} is missing"));
        assert!(page.len() < 1 << 20, "{} bytes", page.len());
    };
    has(
        &both_ladders(),
        &[
            "layer by layer",
            "vm-lvm \u{2212} vm-device",
            "Mean latency, layer by layer",
            "<title>host-lvm: LVM +1.6",
            "Where the mean latency arises",
            "virtio + virtual interrupt",
            "Host CPU time per I/O by role",
            "QEMU p99",
            "steal",
            "18.7% outside the measured windows",
        ],
    );
    let several = [
        "guests at once",
        "guest 4",
        "0.893",
        "Latency against the number of guests",
        "4 at once, ",
        "<b>loud</b> made 10.0k IOPS, 41.0 MB/s",
    ];
    has(&crowd(), &several);
    // What nobody watched is not drawn.
    let plain = page(&ladder(false));
    for part in ["Where the mean latency arises", "by role", "guests at once", "measured windows"] {
        assert!(!plain.contains(part), "{part}");
    }
}

#[test]
fn response_times_stand_beneath_service_times() {
    assert!(!page(&ladder(false)).contains("response times"));
    for mut run in [bench(), ladder(false)] {
        for m in &mut run.measurements {
            let tallies = &mut m.outcome.tallies;
            for tally in tallies.read.iter_mut().chain(&mut tallies.write) {
                let mut late = iotax_model::Histogram::new();
                late.add_many(7_770_000, tally.ios);
                tally.response = Some(late);
            }
        }
        let page = page(&run);
        let cells = run.plan.targets.len() * run.plan.workloads.len();
        assert_eq!(page.matches("response times").count(), cells);
        assert!(page.matches("7.77 ms").count() >= 4 * cells);
    }
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
    let mut none = crowd();
    none.measurements.clear();
    for run in [empty, dead, none, bench(), ladder(true), both_ladders(), crowd()] {
        let page = page(&run);
        assert!(!page.contains("NaN") && !page.contains("inf\"") && !page.contains("-inf"));
        assert!(page.ends_with("</html>"));
    }
}

#[test]
fn the_plan_reads_back() {
    for run in [ladder(false), crowd()] {
        let text = plan_toml(&run).expect("TOML");
        assert_eq!(Plan::from_toml(&text).expect("a plan"), Plan { seed: Some(run.seed), ..run.plan });
    }
}

#[test]
#[ignore = "writes pages to look at: IOTAX_SHOW=DIR cargo test -p iotax-results -- --ignored pages_to_look_at"]
fn pages_to_look_at() {
    let dir = std::env::var("IOTAX_SHOW").expect("IOTAX_SHOW names a directory");
    for (name, run) in
        [("ladder", ladder(true)), ("bench", bench()), ("both", both_ladders()), ("crowd", crowd())]
    {
        std::fs::write(format!("{dir}/{name}.html"), page(&run)).expect("written");
    }
}
