//! Tests of a history with known changes: as a page, as JSON, and as a chart.

use iotax_analysis::Metric;
use iotax_analysis::compare::Gate;
use iotax_analysis::trend::{PastRun, TrendQuestion, Trends, trends};
use iotax_model::Run;
use iotax_report::{document, html, json, sentences, terminal};

use iotax_testkit::runs::{HOST, Truth, run};

/// Number of runs in the history, and the first run in which vm-raw is slower.
const RUNS: i64 = 30;
const SLOWER: i64 = 21;
/// The slowdown of vm-raw, and that of the machine from run 11 on.
const BY: f64 = 1.06;
const MACHINE: f64 = 1.3;

/// Returns a pseudo-random number from -1 to 1.
fn stray(id: i64, salt: i64) -> f64 {
    let mixed = (id * 31 + salt * 17 + 7).wrapping_mul(2_654_435_761) % 1000;
    mixed as f64 / 500.0 - 1.0
}

pub(crate) fn history() -> Vec<Run> {
    let one = |id: i64| {
        let machine = if id >= 11 { MACHINE } else { 1.0 } * (0.02 * stray(id, 1)).exp();
        let slower = if id >= SLOWER { BY } else { 1.0 };
        let truth = |slowdown: f64, salt: i64| Truth {
            slowdown: slowdown * machine * (0.006 * stray(id, salt)).exp(),
            ..HOST
        };
        let truths =
            [("host-file", truth(1.0, 2)), ("vm-raw", truth(1.4 * slower, 3)), ("vm-qcow2", truth(1.5, 4))];
        let mut run = run(&truths, &["randread-4k-qd1"], 3, false);
        run.id = id;
        run.started_at_ms = 1_790_000_000_000 + id.unsigned_abs() * 86_400_000;
        run.plan.control = Some("host-file".into());
        run.environment.kernel = Some(if id >= SLOWER { "6.1.0-28" } else { "6.1.0-27" }.into());
        run.environment.user = Some("anna".into());
        run
    };
    (1..=RUNS).map(one).collect()
}

pub(crate) fn followed(runs: &[Run], question: &TrendQuestion) -> (Vec<PastRun>, Trends) {
    let tags = |run: &Run| vec![format!("commit={:03}", run.id / 10)];
    let past: Vec<PastRun> =
        runs.iter().map(|run| PastRun::of(run, &question.metrics, tags(run), String::new())).collect();
    let found = trends(&past, question);
    (past, found)
}

pub(crate) fn question() -> TrendQuestion {
    TrendQuestion { metrics: vec![Metric::LATENCY_MEAN], ..TrendQuestion::default() }
}

#[test]
fn a_change_is_named_with_what_came_with_it_and_the_machine_is_not_blamed_on_a_target() {
    let (past, found) = followed(&history(), &question());
    let of = |target: &str| found.trends.iter().find(|trend| trend.target == target).expect("followed");
    let [change] = of("vm-raw").changes.as_slice() else { panic!("{:?}", of("vm-raw").changes) };
    assert_eq!(past[of("vm-raw").points[change.at].run].id, SLOWER);
    assert!(change.is_worse && (change.interval.low..=change.interval.high).contains(&BY), "{change:?}");
    let kernel = change.causes.iter().find(|cause| cause.what == "kernel").expect("the kernel");
    assert_eq!((kernel.a.as_deref(), kernel.b.as_deref()), (Some("6.1.0-27"), Some("6.1.0-28")));
    assert!(change.control.is_some(), "{change:?}");
    assert_eq!(of("vm-qcow2").changes, []);
    let machine = of("host-file");
    assert!(machine.is_control && machine.changes.len() == 1, "{:?}", machine.changes);
    assert!((machine.changes[0].ratio / MACHINE - 1.0).abs() < 0.03);

    let text = terminal::set(&document::trend(&past, &found, false), 100, false);
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.starts_with("Slower since run 21: vm-raw on randread-4k-qd1, mean latency +6."), "{text}");
    for expected in [
        "%. 1 change in 3 series (30 runs, 2026-09-22 to 2026-10-21).",
        "Since run 21",
        "vm-raw on randread-4k-qd1: mean latency +6.",
        "kernel 6.1.0-28 instead of 6.1.0-27",
        "run by anna",
        "The machine itself",
        "host-file on randread-4k-qd1: mean latency +3",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in\n{text}");
    }
    let detail = terminal::set(&document::trend(&past, &found, true), 100, false);
    assert!(detail.lines().count() > text.lines().count() + 60, "every run of every series");
    let picture = html::trend(&past, of("vm-raw"), 1).into_string();
    assert!(picture.contains("run 21: +6") && picture.contains("percent_of_control"), "{picture}");
}

#[test]
fn the_document_holds_to_its_schema_and_says_what_is_pending() {
    let mut runs = history();
    // The change is two runs old.
    runs.truncate(usize::try_from(SLOWER).expect("small") + 1);
    let (past, found) = followed(&runs, &question());
    let raw = found.trends.iter().find(|trend| trend.target == "vm-raw").expect("followed");
    assert_eq!(raw.changes, []);
    let pending = raw.pending.expect("two runs stand out");
    // The run before them may stray the same way.
    assert!((2..=3).contains(&pending.points) && pending.needed.is_some_and(|more| more < 5), "{pending:?}");
    let text = terminal::set(&document::trend(&past, &found, false), 100, false);
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("more like them decide"), "{text}");

    for (past, found) in [(past, found), followed(&history(), &question())] {
        let document = json::trend::document(&past, &found);
        let schema = include_str!("../../schema/iotax-trend-1.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
        let validator = jsonschema::validator_for(&schema).expect("a schema");
        let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
    }
}

#[test]
fn a_gate_trips_on_new_changes_of_its_direction_alone() {
    let judged = |gate: &str, since: Option<usize>| {
        let gates = vec![gate.parse::<Gate>().expect("a gate")];
        let (past, found) = followed(&history(), &TrendQuestion { gates, since, ..question() });
        (found.tripped(), sentences::trend::gates(&past, &found).join("\n"))
    };
    let (tripped, said) = judged("slower > 3%", None);
    assert!(tripped && said.contains("tripped by vm-raw on randread-4k-qd1 since run 21"), "{said}");
    assert_eq!(judged("slower > 10%", None).1, "latency_mean slower > 10%: passed by 2 series.");
    assert!(!judged("faster > 1%", None).0);
    assert!(!judged("slower > 3%", Some(27)).0, "it came before");
    let unjudged = judged("latency_p99_9 slower > 3%", None).1;
    assert!(unjudged.contains("nothing to judge"), "{unjudged}");
}
