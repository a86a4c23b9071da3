//! Tests of runs exported as vdbench's output.

use iotax_interop::vdbench;
use iotax_model::record::{Tallies, Tally};

use iotax_testkit::runs::{SECONDS, bench};

#[test]
fn lines_have_vdbenchs_columns_and_the_average_leaves_the_first_out() {
    let mut run = bench();
    // The first interval is another one, so that an average with it would show.
    let first = run.measurements[0].samples[0].tallies.read.as_mut().expect("reads");
    (first.ios, first.bytes) = (1, 4096);
    let text = vdbench::text(&run).expect("has a form");
    assert!(text.starts_with("iotax in the form of vdbench 5.04.06\n"), "{text}");
    let head = "interval        i/o   MB/sec   bytes   read     resp     read    write     resp     resp queue  cpu%  cpu%";
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.ends_with(head)).expect("a head");
    let rows: Vec<Vec<&str>> = lines[at + 2..].iter().map(|line| line.split_whitespace().collect()).collect();
    let rows: Vec<&Vec<&str>> = rows.iter().filter(|row| !row.is_empty()).collect();
    assert_eq!(rows.len(), SECONDS as usize + 1);
    assert!(rows.iter().all(|row| row.len() == 14), "{text}");
    let figure = |row: usize, column: usize| rows[row][column].parse::<f64>().expect("a number");
    assert_eq!(rows[0][1..3], ["1", "1.00"]);
    let last = rows.len() - 1;
    assert_eq!(rows[last][1], format!("avg_2-{SECONDS}"));
    let mean = (1..last).map(|row| figure(row, 2)).sum::<f64>() / (last - 1) as f64;
    assert!((figure(last, 2) - mean).abs() < 0.02, "{text}");
    assert!((figure(last, 3) - mean * 4096.0 / f64::from(1 << 20)).abs() < 0.02, "MiB/s");
    assert_eq!(rows[last][4..6], ["4096", "100.00"]);
    // I/Os in flight: the rate times the latency.
    assert!((figure(last, 11) - mean * figure(last, 6) / 1000.0).abs() < 0.1, "{text}");
    assert_eq!(rows[last][8], "0.000", "no writes");
    assert!(figure(last, 12) >= figure(last, 13), "kernel time is part of both");
}

#[test]
fn what_vdbench_has_no_columns_for_is_refused() {
    let mut run = bench();
    run.measurements[0].host_samples.clear();
    let text = vdbench::text(&run).expect("has a form");
    assert!(text.lines().any(|line| line.contains("avg_2-") && line.ends_with("NaN   NaN")), "{text}");
    run.measurements[0].outcome.tallies = Tallies { trim: Some(Tally::default()), ..Tallies::default() };
    assert!(vdbench::text(&run).expect_err("trims").to_string().contains("reads and writes only"));
    run.measurements.clear();
    assert!(vdbench::text(&run).expect_err("empty").to_string().contains("no measurement yet"));
}
