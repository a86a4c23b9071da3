//! Tests that the HTML report is complete, self-contained, and safe with any names.

use iotax_analysis::judge;
use iotax_model::Plan;
use iotax_model::Run;
use iotax_report::{html, plan_toml};

use iotax_testkit::runs::observed::{both_ladders, crowd};
use iotax_testkit::runs::{bench, ladder, large};

/// Returns the page without its scripts, which are the same in every report.
fn page(run: &Run) -> String {
    let whole = html::render(run, &judge(run));
    let (page, programs) = whole.split_once("<script>").expect("programs");
    assert_eq!(programs.matches("<script>").count(), 2, "three of them, at the end");
    format!("{page}</html>")
}

/// Returns the charts of a page: id, message, specification.
fn figures(page: &str) -> Vec<(String, String, serde_json::Value)> {
    let between = |text: &str, from: &str, to: &str| {
        let rest = text.split_once(from).unwrap_or_else(|| panic!("{from}")).1;
        rest.split_once(to).unwrap_or_else(|| panic!("{to}")).0.to_owned()
    };
    page.split("<figure ")
        .skip(1)
        .map(|text| {
            let spec = between(text, "<script type=\"application/json\">", "</script>");
            let spec = serde_json::from_str(&spec).unwrap_or_else(|error| panic!("{error}: {spec}"));
            (between(text, "id=\"", "\""), between(text, "aria-label=\"", "\""), spec)
        })
        .collect()
}

#[test]
fn everything_a_reader_looks_for_is_there_in_order() {
    let page = page(&ladder(true));
    let mut from = 0;
    for part in [
        "which disk format for our VMs",
        "iotax run 17",
        "seed 71823",
        "EMULATED guests",
        "external snapshot over vm-qcow2: ",
        "Change against host-file",
        "What each layer costs",
        "Mean latency, layer by layer",
        "Host CPU time per I/O, layer by layer",
        "What it means",
        "qcow2 adds nothing measurable to the latency (within 2%) on every workload: vm-qcow2 over vm-raw",
        "The tax",
        "tax on mean latency",
        "4k random read, queue depth 1",
        "randwrite-4k-qd32",
        "4k random read, queue depth 1",
        "Latency by percentile",
        "I/Os that took no longer",
        "Latencies over time",
        "I/Os per second over time",
        "device busy",
        "cpus_busy",
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
            "host-lvm: LVM +1.6",
            "Where the mean latency arises",
            "virtio + virtual interrupt",
            "Host CPU time per I/O by role",
            "QEMU p99",
            "steal",
            "18.7% outside the measured windows",
            "What each layer passed on",
            "<td>vda in the guest</td><td class=\"left\">read</td>",
        ],
    );
    let several = [
        "guests at once",
        "guest 4",
        "0.893",
        "Latency against the number of guests",
        "4 at once, p50 ",
        "<b>loud</b> made 10.0k IOPS, 41.0 MB/s",
    ];
    has(&crowd(), &several);
    // Nothing is drawn that was not observed.
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
    let run = ladder(false);
    let page = page(&run);
    for sign in ["http://", "https://", "@import", "url(", "src=", "javascript:", "onclick", "onload"] {
        assert!(!page.contains(sign), "{sign}");
    }
    assert!(page.contains("default-src 'none'; script-src 'sha256-"), "{}", &page[..600]);
    assert!(!page.contains("unsafe-eval"));
    assert_eq!(page.matches("'unsafe-inline'").count(), 1, "for style alone");
}

#[test]
fn every_figure_has_a_message_a_place_and_a_table() {
    for run in [ladder(true), both_ladders(), crowd(), bench()] {
        let page = page(&run);
        let found = figures(&page);
        let (mut ids, count) = (std::collections::BTreeSet::new(), found.len());
        for (id, message, spec) in found {
            assert!(message.len() > 20 && !message.contains("NaN"), "{id}: {message}");
            assert!(["lines", "bars", "heat"].contains(&spec["kind"].as_str().expect("a kind")), "{spec}");
            assert!(!spec["colours"].as_array().expect("colours").is_empty(), "{id}");
            assert!(ids.insert(id.clone()), "{id} twice");
        }
        assert!(count >= 4, "{count}");
        assert_eq!(page.matches("<summary>Figures</summary>").count(), count);
    }
    // Nothing is compared, so no ladder is drawn; without data on threads, there is no breakdown.
    let alone: Vec<String> = figures(&page(&bench())).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(alone, ["w1-percentiles", "w1-distribution", "w1-heat", "w1-over-time"]);
}

#[test]
fn what_cannot_be_used_or_is_not_known_is_named() {
    let mut run = ladder(false);
    // The device served a tenth of what the program read: a cache answered.
    for m in run.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        for disk in m.host.iter_mut().flat_map(|host| host.disks.values_mut()) {
            disk.read_bytes /= 20;
        }
    }
    for m in &mut run.measurements {
        m.outcome.tallies.read.iter_mut().for_each(|tally| {
            let mut few = iotax_model::Histogram::new();
            few.add_many(100_000, 500);
            (tally.ios, tally.latency) = (500, few);
        });
    }
    let page = page(&run);
    for part in ["Not given: p99.9 of host-file (2,500 I/Os, 10,000 are needed)", "cannot be used"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn what_the_host_did_stands_beside_what_was_reached() {
    let mut run = bench();
    for h in &mut run.measurements[0].host_samples {
        h.pressure = Some(iotax_model::record::Pressure { io_some_ns: 250_000_000, ..Default::default() });
        let time = iotax_model::record::CpuTime { user_ns: 100_000_000, system_ns: 400_000_000 };
        h.guest_threads.insert("iothread".into(), time);
    }
    // An interval without monitoring data.
    run.measurements[0].host_samples.remove(5);
    let page = page(&run);
    let table = page.split("id=\"w1-over-time\"").nth(1).expect("the figure");
    let heads = "<tr><th scope=\"col\">target</th><th scope=\"col\">round</th><th scope=\"col\">from_s</th>\
                 <th scope=\"col\">to_s</th><th scope=\"col\">ios_per_s</th><th scope=\"col\">device_busy_percent</th>\
                 <th scope=\"col\">device_bytes_per_s</th><th scope=\"col\">io_stalled_some_percent</th>\
                 <th scope=\"col\">io_stalled_full_percent</th><th scope=\"col\">cpus_busy</th>\
                 <th scope=\"col\">cpus_of_iothread</th></tr>";
    assert!(table.contains(heads), "{}", &table[..3000]);
    let rows: Vec<&str> = table.split("<tbody>").nth(1).expect("rows").split("</tr>").collect();
    assert!(rows[0].starts_with("<tr><td>disk.img</td><td>1</td><td>0</td><td>1</td>"), "{}", rows[0]);
    assert!(rows[0].contains("<td>87</td>") && rows[0].contains("<td>25</td><td>0</td>"), "{}", rows[0]);
    assert!(rows[0].ends_with("<td>0.5</td>"), "{}", rows[0]);
    assert!(rows[5].ends_with(&"<td></td>".repeat(6)), "unknown is empty: {}", rows[5]);
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
    run.plan.targets[0].name = evil.into();
    run.plan.baseline = evil.into();
    run.targets[0].name = evil.into();
    run.measurements[0].target = evil.into();
    let page = page(&run);
    let found = figures(&page);
    assert_eq!(found.len(), 4);
    assert_eq!(page.matches("<script").count(), found.len(), "escaped");
    assert!(found.iter().all(|(_, _, spec)| spec["colours"][0][0] == evil));
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
        for (id, _, spec) in figures(&page) {
            let edges = spec["edges"].as_array();
            assert!(edges.is_none_or(|edges| edges.iter().all(serde_json::Value::is_number)), "{id}");
        }
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
    for (name, run) in [
        ("ladder", ladder(true)),
        ("bench", bench()),
        ("both", both_ladders()),
        ("crowd", crowd()),
        ("large", large()),
    ] {
        std::fs::write(format!("{dir}/{name}.html"), html::render(&run, &judge(&run))).expect("written");
    }
}
