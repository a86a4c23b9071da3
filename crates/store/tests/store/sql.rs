//! Tests that the SQL in docs/store.md gives the same results as iotax.

use std::collections::BTreeMap;

use iotax_analysis::Metric;
use iotax_model::{Histogram, Run};
use iotax_testkit::require;

use crate::both::fill;
use crate::test_store::TestStore;
use iotax_testkit::runs;

const DOCS: &str = include_str!("../../../../docs/store.md");

/// Returns the block of SQL with this comment.
fn documented(comment: &str) -> String {
    let blocks = DOCS.split("```sql\n").skip(1).map(|rest| rest.split("```").next().expect("an end"));
    blocks.into_iter().find(|block| block.contains(comment)).expect("documented").to_owned()
}

/// Name of a target and p99 of all its reads over all rounds.
fn pooled(run: &Run) -> BTreeMap<String, f64> {
    let mut pooled = BTreeMap::<String, Histogram>::new();
    for m in run.measurements.iter().filter(|m| m.workload == "randread-4k-qd1") {
        let read = m.outcome.tallies.read.as_ref().expect("reads");
        pooled.entry(m.target.clone()).or_default().merge(&read.latency);
    }
    pooled.into_iter().map(|(target, histogram)| (target, histogram.quantile(0.99).expect("some"))).collect()
}

fn same(rows: &[(String, f64)], run: &Run) {
    let truth = pooled(run);
    assert_eq!(rows.len(), truth.len());
    for (target, p99) in rows {
        assert!((p99 - truth[target]).abs() < 0.6, "{target}: {p99} for {}", truth[target]);
    }
}

fn tagged(at: &TestStore) -> Run {
    let run = runs::ladder(false);
    let mut store = at.open();
    let id = fill(&mut store, &run);
    store.change_notes(id, |notes| notes.tags.push("nightly".into())).expect("kept");
    run
}

#[test]
fn percentiles_merge_in_a_file() {
    let at = TestStore::file();
    let run = tagged(&at);
    let connection = rusqlite::Connection::open(at.location.file().expect("a file")).expect("opens");
    let mut query = connection.prepare(&documented("-- pooled p99")).expect("SQL");
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("asked");
    same(&rows.collect::<Result<Vec<(String, f64)>, _>>().expect("rows"), &run);
    let mut query = connection.prepare(&documented("-- figures")).expect("SQL");
    let rows = query.query_map([], |row| row.get::<_, f64>(2)).expect("asked");
    assert_eq!(rows.collect::<Result<Vec<f64>, _>>().expect("rows").len(), 60);
}

#[test]
fn percentiles_merge_on_a_server() {
    require!(file iotax_testkit::postgres::PROGRAM);
    let at = TestStore::postgres();
    let run = tagged(&at);
    let server = at.server.as_ref().expect("started");
    let url = at.location.to_string();
    let name = url.rsplit('/').next().expect("a name");
    let rows = |comment: &str| {
        let columns = server.sql(name, &format!("SET search_path = iotax; {}", documented(comment)));
        columns.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect::<Vec<Vec<String>>>()
    };
    let number = |text: &String| text.parse::<f64>().expect("a number");
    let p99: Vec<_> = rows("-- pooled p99").iter().map(|row| (row[0].clone(), number(&row[1]))).collect();
    same(&p99, &run);
    let iops = rows("-- figures");
    let stored: f64 = iops.iter().map(|row| number(&row[2])).sum();
    let metric = Metric::ALL.iter().find(|metric| metric.id_with_unit() == "iops").expect("a metric");
    let truth: f64 = run.measurements.iter().filter_map(|m| metric.value(m)).sum();
    assert!(iops.len() == 60 && (stored / truth - 1.0).abs() < 1e-9, "{stored} for {truth}");
}
