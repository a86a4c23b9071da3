//! Tests of comparing two runs with a known difference.

use iotax_analysis::Metric;
use iotax_analysis::compare::{
    Account, Compared, Difference, Gate, GateDirection, Matched, Question, Side, Which, compare, history,
};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Judgement, judge};
use iotax_model::Run;
use iotax_model::units::Bytes;
use iotax_model::{CellKey, Nanos};
use iotax_report::csv;
use iotax_report::json::comparison;
use iotax_report::json::{document, read};
use iotax_report::sentences::compared::conclusions;
use iotax_report::{document, markdown, terminal};
use serde_json::Value;

use iotax_testkit::runs::{HOST, Truth, ladder, run};

pub(crate) const WORKLOADS: [&str; 2] = ["randread-4k-qd1", "seqwrite-1m"];

/// A later run of the same plan in which everything is slower by a factor.
pub(crate) fn later(slowdown: f64, noise: f64, rounds: u32) -> Run {
    let host = Truth { slowdown, noise, ..HOST };
    let mut later =
        run(&[("host-file", host), ("vm-raw", vm(1.4 * slowdown, noise))], &WORKLOADS, rounds, false);
    later.id = 18;
    later.seed = 5;
    later.started_at_ms += 86_400_000;
    later
}

pub(crate) fn earlier() -> Run {
    run(&[("host-file", HOST), ("vm-raw", vm(1.4, 0.004))], &WORKLOADS, 5, false)
}

fn vm(slowdown: f64, noise: f64) -> Truth {
    Truth { slowdown, noise, cpu_ns: 9_800.0 }
}

pub(crate) fn account(run: &Run) -> Account {
    Account::of(run, &judge(run))
}

pub(crate) fn question() -> Question {
    Question { baseline: Which::A, metrics: Metric::compared().collect(), margin: 0.02, gates: vec![] }
}

pub(crate) fn side<'a>(account: &'a Account, target: Option<&'a str>) -> Side<'a> {
    Side { account, target }
}

pub(crate) fn two(a: &Run, b: &Run) -> Compared {
    asked(a, b, &question())
}

fn asked(a: &Run, b: &Run, question: &Question) -> Compared {
    let (a, b) = (account(a), account(b));
    compare(&side(&a, None), &side(&b, None), question).expect("comparable")
}

fn verdicts(compared: &Compared, metric: Metric) -> Vec<Verdict> {
    compared.cells.iter().filter(|cell| cell.metric == metric).map(|cell| cell.ratio.verdict).collect()
}

#[test]
fn a_slower_second_run_is_found_by_every_metric() {
    let compared = two(&earlier(), &later(1.1, 0.004, 5));
    assert!(!compared.paired);
    assert_eq!(compared.targets.iter().map(|t| t.matched).collect::<Vec<_>>(), [Matched::Name; 2]);
    for metric in
        [Metric::IOPS, Metric::BYTES_PER_S, Metric::LATENCY_MEAN, Metric::LATENCY_P50, Metric::LATENCY_P99]
    {
        assert_eq!(verdicts(&compared, metric), [Verdict::Slower; 4], "{metric:?}");
    }
    assert_eq!(verdicts(&compared, Metric::CPU_PER_IO), [Verdict::Same; 4]);
    let cell = compared.cell(1, 0, Metric::LATENCY_MEAN).expect("compared");
    let interval = cell.ratio.interval.expect("five rounds");
    assert!(interval.low < 1.1 && 1.1 < interval.high, "{interval:?}");
    assert!((cell.b / cell.a - cell.ratio.mean).abs() < 1e-9);
    let tax = cell.ratio.tax.expect("a time");
    assert!((tax.ns - (cell.b - cell.a)).abs() < 1e-6 * cell.a && tax.interval.is_some());
    assert_eq!((cell.rounds, compared.missing.len()), ((5, 5), 0));
    assert!(compared.machines.is_empty() && compared.targets.iter().all(|t| t.differences.is_empty()));
}

#[test]
fn the_baseline_decides_which_way_a_ratio_points() {
    let question = Question { baseline: Which::B, ..question() };
    let compared = asked(&earlier(), &later(1.1, 0.004, 5), &question);
    assert_eq!(verdicts(&compared, Metric::LATENCY_MEAN), [Verdict::Faster; 4]);
    let cell = compared.cell(0, 0, Metric::LATENCY_MEAN).expect("compared");
    assert!((cell.a / cell.b - cell.ratio.mean).abs() < 1e-9 && cell.ratio.mean < 1.0);
}

#[test]
fn the_same_twice_is_the_same_and_noise_decides_nothing() {
    let same = two(&earlier(), &later(1.001, 0.004, 5));
    assert_eq!(verdicts(&same, Metric::LATENCY_MEAN), [Verdict::Same; 4]);
    let noisy = two(&earlier(), &later(1.05, 0.08, 4));
    let cell = noisy.cell(0, 0, Metric::LATENCY_MEAN).expect("compared");
    assert_eq!((cell.ratio.verdict, cell.rounds), (Verdict::Undecided, (5, 4)));
    assert!(cell.ratio.needed_rounds.is_some_and(|needed| needed > 4));
    let once = two(&earlier(), &later(1.5, 0.004, 1));
    let cell = once.cell(0, 0, Metric::LATENCY_MEAN).expect("compared");
    assert_eq!(
        (cell.ratio.verdict, cell.ratio.interval, cell.ratio.needed_rounds),
        (Verdict::Undecided, None, None)
    );
    assert!(conclusions(&once)[0].contains("one round alone has no interval"), "{:?}", conclusions(&once));
}

#[test]
fn two_targets_of_one_run_are_compared_within_rounds_as_the_report_does() {
    let run = ladder(false);
    let account = account(&run);
    let compared = compare(&side(&account, Some("host-file")), &side(&account, Some("vm-raw")), &question())
        .expect("two");
    assert!(compared.paired && compared.machines.is_empty());
    assert_eq!(compared.targets[0].matched, Matched::Asked);
    assert!(compared.targets[0].differences.iter().any(|d| d.what == "guest" && d.a.is_none()));
    let judgement: Judgement = judge(&run);
    for (w, workload) in run.plan.workloads.iter().enumerate() {
        let theirs = judgement
            .comparison(CellKey { workload: &workload.name, target: "vm-raw" }, Metric::LATENCY_MEAN)
            .expect("judged");
        let ours = compared.cell(0, w, Metric::LATENCY_MEAN).expect("compared");
        assert!((ours.ratio.mean - theirs.ratio.mean).abs() < 1e-12);
        assert_eq!(ours.ratio.interval_95, theirs.ratio.interval_95);
        assert_eq!(ours.ratio.verdict, theirs.ratio.verdict);
    }
    assert!(
        conclusions(&compared)[0].starts_with("vm-raw against host-file: slower on"),
        "{:?}",
        conclusions(&compared)
    );
}

#[test]
fn within_a_run_only_common_rounds_count() {
    let mut run = ladder(false);
    run.measurements.retain(|m| m.target != "vm-raw" || m.round >= 3);
    let account = account(&run);
    let compared = compare(&side(&account, Some("host-file")), &side(&account, Some("vm-raw")), &question())
        .expect("two");
    assert!(compared.cells.iter().all(|cell| cell.rounds == (3, 3)));
}

#[test]
fn what_differs_is_named() {
    let mut b = later(1.0, 0.004, 5);
    b.environment.kernel = Some("6.19.1".into());
    let guest = b.plan.targets[1].stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest");
    guest.vcpus = 2;
    b.targets[1].layers[0].detail = "64 GiB, scheduler mq-deadline".into();
    b.targets[1].emulated = true;
    b.plan.workloads[0].runtime = Nanos::from_secs(60);
    let compared = two(&earlier(), &b);
    let difference =
        |what: &str, a: &str, b: &str| Difference { what: what.into(), a: Some(a.into()), b: Some(b.into()) };
    assert_eq!(compared.machines, [difference("kernel", "6.18.5", "6.19.1")]);
    assert_eq!(
        compared.targets[1].differences,
        [
            difference("guest.vcpus", "1", "2"),
            difference("CPU emulated", "no", "yes"),
            difference("layer device", "vda (64 GiB, scheduler none)", "vda (64 GiB, scheduler mq-deadline)"),
        ]
    );
    assert_eq!(compared.workloads[0].differences, [difference("runtime", "6s", "1m")]);
    assert!(compared.targets[0].differences.is_empty() && compared.workloads[1].differences.is_empty());
}

#[test]
fn cells_are_matched_by_what_they_are_and_never_by_their_place() {
    let a = earlier();
    let mut b = later(1.1, 0.004, 5);
    // Another order, and another name for the same guest.
    b.plan.targets.reverse();
    b.plan.workloads.reverse();
    for name in [&mut b.plan.targets[0].name, &mut b.targets[1].name] {
        *name = "guest".into();
    }
    b.measurements.iter_mut().filter(|m| m.target == "vm-raw").for_each(|m| m.target = "guest".into());
    for m in b.measurements.iter_mut().filter(|m| m.workload == WORKLOADS[1]) {
        m.workload = "stream".into();
    }
    b.plan.workloads[0].name = "stream".into();
    let compared = two(&a, &b);
    let pairs: Vec<_> = compared.targets.iter().map(|t| (t.name(), t.matched)).collect();
    assert_eq!(pairs, [("host-file".into(), Matched::Name), ("vm-raw / guest".into(), Matched::Settings)]);
    assert_eq!(compared.workloads[1].name(), "seqwrite-1m / stream");
    assert_eq!(verdicts(&compared, Metric::LATENCY_MEAN), [Verdict::Slower; 4]);
    assert!(compared.missing.is_empty(), "{:?}", compared.missing);
}

#[test]
fn missing_partners_are_named_both_ways() {
    let mut a = earlier();
    let mut b = later(1.0, 0.004, 5);
    // A has a target more, B another workload under a name of A's and a cell less.
    a.plan.targets.push(iotax_testkit::runs::target("vm-qcow2"));
    b.plan.workloads[1].iodepth = 4;
    b.measurements.retain(|m| m.target != "vm-raw" || m.workload != WORKLOADS[0]);
    let compared = two(&a, &b);
    let reasons: Vec<(Which, &str)> = compared.missing.iter().map(|m| (m.side, m.reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            (Which::B, "target vm-qcow2 of run 17 has no partner in run 18"),
            (
                Which::B,
                "workload seqwrite-1m of run 17 has no partner in run 18: the one of that name there has iodepth = 4 \
                 instead of 8"
            ),
            (
                Which::A,
                "workload seqwrite-1m of run 18 has no partner in run 17: the one of that name there has iodepth = 8 \
                 instead of 4"
            ),
            (Which::B, "vm-raw on randread-4k-qd1 was not measured in run 18"),
        ]
    );
    assert_eq!(verdicts(&compared, Metric::LATENCY_MEAN), [Verdict::Same]);
    b.plan.workloads[0].bs = Bytes(8192);
    let error =
        compare(&side(&account(&a), None), &side(&account(&b), None), &question()).expect_err("nothing fits");
    assert!(error.to_string().contains("no workload of the one has a partner"), "{error}");
}

#[test]
fn what_cannot_be_compared_is_refused_with_what_is_accepted() {
    let (a, b) = (account(&earlier()), account(&later(1.0, 0.004, 5)));
    let refused =
        |one: Side<'_>, other: Side<'_>| compare(&one, &other, &question()).expect_err("refused").to_string();
    let unknown = refused(side(&a, Some("vm-row")), side(&b, None));
    assert_eq!(unknown, "run 17 has no target \"vm-row\"; accepted: host-file, vm-raw");
    let same = refused(side(&a, None), side(&a, None));
    assert!(same.contains("both are run 17") || same.contains("17:TARGET with 17:OTHER"), "{same}");
    assert!(refused(side(&a, Some("vm-raw")), side(&a, Some("vm-raw"))).contains("TARGET"));
    let strangers = account(&run(&[("x", HOST), ("vm-qcow2", HOST), ("z", HOST)], &WORKLOADS, 3, false));
    let strangers = Account { seed: 1, ..strangers };
    let nothing = refused(side(&a, Some("vm-raw")), side(&strangers, None));
    assert!(
        nothing.contains("no target of the one has a partner") && nothing.contains("vm-qcow2"),
        "{nothing}"
    );
}

#[test]
fn a_target_named_on_one_side_leaves_the_others_out() {
    let (a, b) = (account(&earlier()), account(&later(1.1, 0.004, 5)));
    let compared = compare(&side(&a, Some("vm-raw")), &side(&b, None), &question()).expect("comparable");
    assert_eq!(compared.targets.len(), 1);
    assert_eq!((compared.targets[0].a.as_str(), compared.targets[0].matched), ("vm-raw", Matched::Name));
    assert!(compared.missing.is_empty(), "{:?}", compared.missing);
}

#[test]
fn an_unusable_measurement_withholds_its_verdict_and_leaves_the_family() {
    let (mut a, b) = (account(&earlier()), account(&later(1.1, 0.004, 5)));
    let spoilt = a.figures.iter_mut().find(|f| f.target == "vm-raw" && f.round == 2).expect("measured");
    spoilt.unusable = Some("cache lie".into());
    let workload = spoilt.workload.clone();
    let compared = compare(&side(&a, None), &side(&b, None), &question()).expect("comparable");
    let cell = compared.cell(1, 0, Metric::LATENCY_MEAN).expect("compared");
    assert_eq!((cell.ratio.verdict, cell.ratio.interval), (Verdict::Undecided, None));
    let why = format!("A: round 2 of vm-raw on {workload} cannot be used (cache lie)");
    assert_eq!(cell.ratio.withheld.as_deref(), Some(why.as_str()));
    assert!(conclusions(&compared).iter().any(|s| s.starts_with("No verdict: ") && s.contains(&why)));
    let other = compared.cell(0, 0, Metric::LATENCY_MEAN).expect("compared");
    assert_eq!(other.ratio.verdict, Verdict::Slower);
    // Three are left; the last one decided is tested at the full alpha.
    let widest =
        compared.cells.iter().filter(|c| c.metric == Metric::LATENCY_MEAN).filter_map(|c| c.ratio.confidence);
    assert!((widest.fold(0.0, f64::max) - (1.0 - 0.05 / 3.0)).abs() < 1e-12);
}

fn gates(text: &str) -> Vec<Gate> {
    Gate::list(text).expect(text)
}

#[test]
fn a_gate_trips_when_the_interval_shows_it_and_not_before() {
    let slow = later(1.1, 0.004, 5);
    let gated = |b: &Run, text: &str| {
        let mut compared = asked(&earlier(), b, &Question { gates: gates(text), ..question() });
        let result = compared.gates.remove(0);
        (result.tripped.len(), result.open.len(), result.cells)
    };
    assert_eq!(gated(&slow, "slower > 5%"), (4, 0, 4));
    assert_eq!(gated(&slow, "iops slower > 5%"), (4, 0, 4));
    assert_eq!(gated(&slow, "different > 5%"), (4, 0, 4));
    assert_eq!(gated(&slow, "slower > 20%"), (0, 0, 4));
    assert_eq!(gated(&slow, "faster > 5%"), (0, 0, 4));
    // The truth is the limit: nothing is shown.
    assert_eq!(gated(&slow, "slower > 10%"), (0, 4, 4));
    assert_eq!(gated(&later(1.0, 0.004, 5), "slower > 5%"), (0, 0, 4));
    // Not decided never trips.
    assert_eq!(gated(&later(1.1, 0.2, 3), "slower > 5%"), (0, 4, 4));
    assert_eq!(gated(&later(2.0, 0.004, 1), "slower > 5%"), (0, 4, 4));
    assert_eq!(gated(&later(0.8, 0.004, 5), "faster > 5%"), (4, 0, 4));
    assert_eq!(gates("slower > 5%")[0].direction, GateDirection::Slower);
}

#[test]
fn a_gate_names_what_one_side_lacks() {
    let mut lacking = later(1.0, 0.004, 5);
    lacking.measurements.retain(|m| m.target != "vm-raw");
    let mut compared = asked(&earlier(), &lacking, &Question { gates: gates("slower > 5%"), ..question() });
    let result = compared.gates.remove(0);
    assert_eq!((result.tripped.len(), result.open.len(), result.cells), (0, 0, 2));
    assert_eq!(result.missing.len(), 2, "{:?}", result.missing);
    assert!(result.missing[0].contains("vm-raw") && result.missing[0].contains("not measured"));
}

/// Tests percentiles that are known only in fast rounds, because slow ones have too few I/Os.
#[test]
fn a_percentile_of_the_fast_rounds_alone_is_not_compared() {
    let mut b = later(1.0, 0.004, 5);
    for m in b.measurements.iter_mut().filter(|m| m.target == "vm-raw" && m.round == 3) {
        for tally in m.outcome.tallies.read.iter_mut().chain(&mut m.outcome.tallies.write) {
            let mean = tally.latency.mean().expect("I/O");
            tally.latency = iotax_model::Histogram::new();
            tally.latency.add_many(iotax_testkit::runs::whole(mean), 500);
        }
    }
    let question = Question { metrics: vec![Metric::LATENCY_P99], ..question() };
    let compared = asked(&earlier(), &b, &question);
    assert!(
        compared
            .cells
            .iter()
            .all(|c| compared.targets[c.target].b != "vm-raw" || c.metric != Metric::LATENCY_P99)
    );
    let reasons: Vec<&str> = compared.missing.iter().map(|m| m.reason.as_str()).collect();
    assert!(reasons.iter().all(|reason| reason.contains("not known in every round")), "{reasons:?}");
    assert_eq!(reasons.len(), 2);
}

/// Tests A against A with 5% noise: any failed gate at 0% is a false alarm.
#[test]
fn a_gate_trips_without_cause_no_more_often_than_stated() {
    let mut trips = 0;
    let rounds = 300;
    let (mut a, mut b) = (account(&earlier()), account(&later(1.0, 0.004, 5)));
    let mut state = 9_u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let question = Question { gates: gates("different > 0%"), ..question() };
    for _ in 0..rounds {
        for figures in a.figures.iter_mut().chain(&mut b.figures) {
            let normal: f64 = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
            figures.metrics = vec![(Metric::LATENCY_MEAN, 1e5 * (0.05 * normal).exp())];
        }
        trips +=
            u32::from(compare(&side(&a, None), &side(&b, None), &question).expect("comparable").tripped());
    }
    // Five standard errors above a share of 5%.
    let most = f64::from(rounds) * (0.05 + 5.0 * (0.05_f64 * 0.95 / f64::from(rounds)).sqrt());
    assert!(f64::from(trips) <= most && trips > 0, "{trips} of {rounds}");
}

fn from_json(run: &Run, label: &str) -> Account {
    let text = document(run, &judge(run)).to_string();
    let account = read::account(&text, label).expect("reads back");
    // A document is in no store here that could measure more of it.
    Account { label: format!("run {}", run.id), more: self::account(run).more, ..account }
}

#[test]
fn a_store_and_its_document_give_the_same_comparison() {
    for (a, b) in [
        (earlier(), later(1.1, 0.02, 4)),
        (ladder(true), Run { seed: 3, ..ladder(false) }),
        (
            iotax_testkit::runs::observed::both_ladders(),
            Run { seed: 3, ..iotax_testkit::runs::observed::crowd() },
        ),
    ] {
        assert_eq!(from_json(&a, "x"), account(&a));
        let (one, other) = (account(&a), account(&b));
        let stored = compare(&side(&one, None), &side(&other, None), &question());
        let (one, other) = (from_json(&a, "a.json"), from_json(&b, "b.json"));
        let read = compare(&side(&one, None), &side(&other, None), &question());
        assert_eq!(stored, read);
    }
}

#[test]
fn a_document_that_cannot_be_read_says_what_to_do() {
    let good = document(&ladder(false), &judge(&ladder(false)));
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        read::account(&document.to_string(), "x.json").expect_err("refused").to_string()
    };
    assert!(read::account("{", "x").expect_err("cut off").to_string().contains("not JSON"));
    assert!(refused(&|d| d["schema"] = "fio/3".into()).contains("schema is \"fio/3\", not \"iotax/1\""));
    assert!(refused(&|d| *d = Value::Array(vec![])).contains("schema is not given"));
    let older = refused(&|d| {
        d["measurements"][3].as_object_mut().expect("one").remove("metrics");
    });
    assert!(older.contains("iotax report 17 --json FILE"), "{older}");
    let older = refused(&|d| {
        d.as_object_mut().expect("one").remove("plan");
    });
    assert!(older.contains("iotax report 17 --json FILE"), "{older}");
    assert!(
        refused(&|d| d["measurements"][0]["grade"] = "fine".into()).contains("grade \"fine\" is not known")
    );
    assert!(
        refused(&|d| d["measurements"][0]["metrics"]["iops"] = (-1).into())
            .contains("iops = -1 is not a number of at least 0")
    );
    assert!(refused(&|d| d["run"]["seed"] = "x".into()).starts_with("run: "));
    let newer = |d: &mut Value| d["measurements"][0]["metrics"]["watts"] = 3.into();
    let mut document = good.clone();
    newer(&mut document);
    assert!(read::account(&document.to_string(), "x").is_ok(), "a metric that is not known here");
}

pub(crate) fn schema() -> jsonschema::Validator {
    let schema: Value =
        serde_json::from_str(include_str!("../../schema/iotax-compare-1.schema.json")).expect("JSON");
    jsonschema::validator_for(&schema).expect("a JSON Schema")
}

#[test]
fn the_document_holds_to_its_schema() {
    let schema = schema();
    let mut b = later(1.1, 0.004, 5);
    b.environment.kernel = None;
    b.plan.workloads[1].iodepth = 4;
    let (mut one, other) = (account(&earlier()), account(&b));
    one.figures[0].unusable = Some("unusable".into());
    for question in [
        question(),
        Question {
            metrics: vec![Metric::IOPS],
            gates: gates("slower > 5%, iops slower > 90%"),
            ..question()
        },
    ] {
        let (a, b) = (side(&one, None), side(&other, None));
        let compared = compare(&a, &b, &question).expect("comparable");
        let document = comparison::document(&a, &b, &compared);
        let errors: Vec<String> =
            schema.iter_errors(&document).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert_eq!(errors, Vec::<String>::new(), "{document:#}");
        let mut broken = document.clone();
        broken["cells"][0]["verdict"] = "maybe".into();
        assert!(!schema.is_valid(&broken));
        assert!(document["cells"].as_array().is_some_and(|cells| {
            cells.iter().all(|c| question.metrics.iter().any(|m| c["metric"] == m.word()))
        }));
    }
}

fn text_of(a: &Run, b: &Run, question: &Question) -> String {
    let (a, b) = (account(a), account(b));
    let (a, b) = (side(&a, None), side(&b, None));
    let compared = compare(&a, &b, question).expect("comparable");
    let text = terminal::set(&document::compared(&a, &b, &compared, &document::SHOWN), 80, false);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    text.to_string()
}

#[test]
fn two_runs_as_people_read_them() {
    let mut b = later(1.1, 0.004, 5);
    b.environment.kernel = Some("6.19.1".into());
    b.plan.targets[1].stack.find_mut::<iotax_model::target::GuestSpec>().expect("a guest").vcpus = 2;
    b.measurements.retain(|m| m.target != "vm-raw" || m.workload != WORKLOADS[1]);
    let question = Question { gates: gates("slower > 5%, iops different > 10%"), ..question() };
    insta::assert_snapshot!(text_of(&earlier(), &b, &question));
}

#[test]
fn noise_as_people_read_it() {
    insta::assert_snapshot!(text_of(&earlier(), &later(1.05, 0.08, 4), &question()));
}

#[test]
fn two_targets_as_people_read_them() {
    let account = account(&ladder(true));
    let (a, b) = (side(&account, Some("host-file")), side(&account, Some("vm-raw")));
    let compared = compare(&a, &b, &question()).expect("two");
    let page = document::compared(&a, &b, &compared, &document::SHOWN);
    insta::assert_snapshot!(terminal::set(&page, 80, false));
}

#[test]
fn a_ticket_of_two_runs() {
    let (a, b) = (account(&earlier()), account(&later(1.1, 0.004, 5)));
    let (a, b) = (side(&a, None), side(&b, None));
    let compared = compare(&a, &b, &question()).expect("comparable");
    insta::assert_snapshot!(markdown::set(&document::compared(&a, &b, &compared, &document::SHOWN)));
}

fn three() -> Vec<Account> {
    let mut third = later(1.3, 0.004, 3);
    third.id = 19;
    third.seed = 6;
    third.environment.qemu = Some("11.0.0".into());
    // A new name for targets that the first two runs also have.
    third.plan.targets[1].name = "guest".into();
    third.targets[1].name = "guest".into();
    third.measurements.iter_mut().filter(|m| m.target == "vm-raw").for_each(|m| m.target = "guest".into());
    [earlier(), later(1.1, 0.004, 5), third].iter().map(account).collect()
}

#[test]
fn a_cell_is_followed_through_runs() {
    let accounts = three();
    let history = history(&accounts, 0.02);
    let track = history.tracks.iter().find(|t| t.target == "vm-raw" && t.metric == Metric::LATENCY_MEAN);
    let track = track.expect("followed");
    assert_eq!(track.points.iter().map(|p| (p.run, p.rounds)).collect::<Vec<_>>(), [(0, 5), (1, 5), (2, 3)]);
    let [first, second, third] = track.points.as_slice() else { panic!("{track:?}") };
    assert!(first.since_first.is_none() && first.since_previous.is_none());
    assert!(first.band.is_some_and(|band| band.low < first.mean && first.mean < band.high));
    assert_eq!(second.since_first, second.since_previous);
    let (since_first, since_previous) = (third.since_first.as_ref(), third.since_previous.as_ref());
    let (since_first, since_previous) = (since_first.expect("compared"), since_previous.expect("compared"));
    assert!((since_first.mean - 1.3).abs() < 0.02 && since_first.verdict == Verdict::Slower);
    assert!((since_previous.mean - 1.3 / 1.1).abs() < 0.02 && since_previous.verdict == Verdict::Slower);
    assert_eq!(history.tracks.len(), 4 * 8, "no cell is followed twice");
    insta::assert_snapshot!(terminal::set(&document::history(&accounts, &history), 80, false));

    let schema: Value =
        serde_json::from_str(include_str!("../../schema/iotax-history-1.schema.json")).expect("JSON");
    let schema = jsonschema::validator_for(&schema).expect("a JSON Schema");
    let document = iotax_report::json::history::document(&accounts, &history);
    let errors: Vec<String> = schema.iter_errors(&document).map(|e| e.to_string()).collect();
    assert_eq!(errors, Vec::<String>::new());

    let table = csv::history(&accounts, &history);
    assert_eq!(table.text.lines().count(), 1 + 3 * 4 * 8);
    assert!(table.text.contains("\nvm-raw,randread-4k-qd1,latency_mean,19,"), "{}", table.text);
}

#[test]
fn runs_with_nothing_in_common_have_a_history_each() {
    let strangers = run(&[("x", HOST), ("z", HOST)], &["randwrite-4k-qd32"], 3, false);
    let accounts = [account(&earlier()), Account { seed: 1, ..account(&strangers) }];
    let history = history(&accounts, 0.02);
    assert_eq!(history.neighbours, [None]);
    assert!(history.tracks.iter().all(|track| track.points.len() == 1));
    let text = terminal::set(&document::history(&accounts, &history), 80, false);
    assert!(text.contains("has no cell in common with"), "{text}");
}

#[test]
fn sheets_have_one_header_and_nothing_where_nothing_is_known() {
    let mut bare = earlier();
    bare.measurements[0].host = None;
    bare.measurements[0].outcome.tallies.read = None;
    let judgement = judge(&bare);
    let measured = bare.measurements.len();
    let tables = csv::tables(&[(bare, judgement)]);
    for table in &tables {
        let mut lines = table.text.lines();
        assert_eq!(lines.next(), Some(table.header.as_str()), "{}", table.name);
        let fields = table.header.split(',').count();
        // No disk is a network, and one rate is no curve.
        let is_of_others = ["nics.csv", "streams.csv", "curves.csv", "answers.csv"].contains(&table.name);
        assert_eq!(lines.clone().count() == 0, is_of_others, "{}", table.name);
        // No name here holds a comma.
        if table.name != "comparisons.csv" {
            assert!(lines.all(|line| line.split(',').count() == fields), "{}", table.name);
        }
        assert!(!table.text.contains("NaN") && !table.text.contains("inf"), "{}", table.name);
    }
    let measurements = &tables[0];
    assert_eq!((measurements.name, measurements.text.lines().count()), ("measurements.csv", 1 + measured));
    let row: Vec<&str> = measurements.text.lines().nth(1).expect("a row").split(',').collect();
    let column = |name: &str| measurements.header.split(',').position(|known| known == name).expect(name);
    for unknown in ["latency_mean_ns", "cpu_per_io_ns", "read_ios", "ioengine"] {
        assert_eq!(row[column(unknown)], "", "{unknown}");
    }
    assert_eq!((row[column("target")], row[column("duration_s")]), ("host-file", "6"));
}
