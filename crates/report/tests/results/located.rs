//! Tests of comparing the rates found by two runs.

use iotax_analysis::compare::rates::{KNEE, LocatedRate, highest};
use iotax_analysis::compare::{Account, Question, Which, compare};
use iotax_analysis::curve::Located;
use iotax_analysis::stats::paired::Interval;
use iotax_analysis::stats::verdict::Verdict;
use iotax_model::Run;
use iotax_report::json::comparison;
use iotax_report::{document, terminal};

use crate::compare::{WORKLOADS, account, earlier, later, question, schema, side};

#[test]
fn rates_that_both_located_are_held_against_one_another() {
    let located = |at: Option<f64>| LocatedRate {
        target: "vm-raw".into(),
        workload: WORKLOADS[0].into(),
        what: KNEE.into(),
        rate: at.map(|at| Located { at, interval: Some(Interval { low: at * 0.99, high: at * 1.01 }) }),
    };
    let with = |run: &Run, at| Account { rates: vec![located(at)], has_own_rates: true, ..account(run) };
    let (a, b) = (with(&earlier(), Some(10_000.0)), with(&later(1.0, 0.004, 5), Some(9000.0)));
    let (a, b) = (side(&a, None), side(&b, None));
    let compared = compare(&a, &b, &question()).expect("comparable");
    let [rate] = compared.rates.as_slice() else { panic!("{:?}", compared.rates) };
    assert_eq!((rate.target, rate.workload, rate.verdict), (1, 0, Verdict::Slower), "{rate:?}");
    let other = Question { baseline: Which::B, ..question() };
    let turned = compare(&a, &b, &other).expect("comparable");
    assert_eq!(turned.rates[0].verdict, Verdict::Faster);
    let page = document::compared(&a, &b, &compared, &document::SHOWN);
    let page = terminal::set(&page, 100, false).to_string();
    assert!(page.contains("knee, IOPS") && page.contains("9.00k") && page.contains("-10%"), "{page}");
    assert!(schema().is_valid(&comparison::document(&a, &b, &compared)));
}

#[test]
fn a_rate_that_one_side_did_not_locate_is_said() {
    let rate = |rate| LocatedRate {
        target: "vm-raw".into(),
        workload: WORKLOADS[0].into(),
        what: highest(&["p99 <= 1ms".into()]),
        rate,
    };
    let with = |run: &Run, found| Account { rates: vec![rate(found)], ..account(run) };
    let located = with(&earlier(), Some(Located { at: 10_000.0, interval: None }));
    let (a, b) = (side(&located, None), with(&later(1.0, 0.004, 5), None));
    let b = side(&b, None);
    let compared = compare(&a, &b, &question()).expect("comparable");
    assert_eq!(compared.rates, []);
    let page =
        terminal::set(&document::compared(&a, &b, &compared, &document::SHOWN), 200, false).to_string();
    let said = format!("highest with p99 <= 1ms of vm-raw on {} was not located in run", WORKLOADS[0]);
    assert!(page.contains(&said), "{page}");
}
