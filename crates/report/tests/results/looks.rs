//! Tests of runs that add rounds until everything is decided, judged from their records.

use std::collections::BTreeMap;

use iotax_analysis::compare::{Account, compare};
use iotax_analysis::judge;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::trend::RunFigures;
use iotax_analysis::{Comparison, Judgement, Metric, SequentialState, Stopped};
use iotax_model::Run;
use iotax_model::RunState;
use iotax_model::plan::{Design, UntilDecided};
use iotax_model::record::{ImportSource, Measurement, RunSource};
use iotax_model::{Cell, CellKey, Warning, WarningKind};
use iotax_report::document;
use iotax_report::sentences::compared::conclusions;
use iotax_report::terminal::set;

use crate::compare::{question, side};
use crate::conclusions::sentences;
use iotax_testkit::runs::{HOST, Truth, run};

const QD1: &str = "randread-4k-qd1";
const SEQ: &str = "seqread-1m";

/// A run with all possible rounds of a plan, from which `carried_out` takes measurements.
fn source(slowdown: f64, noise: f64, max_rounds: u32) -> Run {
    let guest = Truth { slowdown, noise, ..HOST };
    let other = Truth { slowdown: 3.0, ..HOST };
    let truths = [("host-file", Truth { noise, ..HOST }), ("vm-raw", guest), ("vm-device", other)];
    let mut source = run(&truths, &[QD1, SEQ], max_rounds, false);
    source.plan.repeat = 4;
    source.plan.design = Design::UntilDecided(UntilDecided { max_rounds, max_time: None });
    source
}

fn is(m: &Measurement, source: &Run, cell: Cell, round: u32) -> bool {
    m.round == round
        && m.target == source.plan.targets[cell.target].name
        && m.workload == source.plan.workloads[cell.workload].name
}

/// Runs a plan up to the given number of looks, as the runner does; measurements for which `fails` returns true are missing.
fn carried_out(source: &Run, looks: usize, fails: &dyn Fn(Cell, u32) -> bool) -> Run {
    let mut done = Run { measurements: vec![], state: RunState::Running, ..source.clone() };
    let mut state = SequentialState::new(&done).expect("it adds rounds");
    loop {
        let status = state.status();
        let Some(next) = status.next().filter(|_| status.taken < looks) else {
            done.state = if status.stopped.is_some() { RunState::Complete } else { RunState::Interrupted };
            return done;
        };
        for round in status.rounds() + 1..=next {
            for cell in &status.cells {
                if fails(*cell, round) {
                    state.fail(*cell, round);
                    done.warnings.push(failure(source, *cell, round));
                    continue;
                }
                let measured = source.measurements.iter().find(|m| is(m, source, *cell, round));
                let measured = measured.expect("all were made up");
                state.add(measured);
                done.measurements.push(measured.clone());
            }
        }
    }
}

fn failure(source: &Run, cell: Cell, round: u32) -> Warning {
    Warning {
        kind: WarningKind::Incomplete,
        target: Some(source.plan.targets[cell.target].name.clone()),
        workload: Some(source.plan.workloads[cell.workload].name.clone()),
        round: Some(round),
        evidence: "it failed".into(),
        remedy: "look".into(),
    }
}

fn never(_: Cell, _: u32) -> bool {
    false
}

fn latency<'a>(judgement: &'a Judgement, target: &str) -> &'a iotax_analysis::Comparison {
    judgement.comparison(CellKey { workload: QD1, target }, Metric::LATENCY_MEAN).expect("compared")
}

#[test]
fn what_is_clear_is_decided_early_and_no_longer_measured() {
    // 1.021 is beyond the margin of 2% by less than the noise: it takes more rounds than a factor of 3.
    let source = source(1.021, 0.01, 20);
    let done = carried_out(&source, usize::MAX, &never);
    let judgement = judge(&done);
    let status = judgement.sequential.as_ref().expect("it adds rounds");
    let clear = latency(&judgement, "vm-device");
    assert_eq!((clear.ratio.verdict, clear.decided_at.map(|at| at < 20)), (Verdict::Slower, Some(true)));
    assert!(
        clear.decided_at <= Some(clear.rounds),
        "it may be measured on, as the other side of what is open"
    );
    let open = latency(&judgement, "vm-raw");
    assert_eq!((open.ratio.verdict, open.decided_at, open.rounds), (Verdict::Undecided, None, 20));
    let count = |target: &str| done.measurements.iter().filter(|m| m.target == target).count();
    assert_eq!(count("host-file"), count("vm-raw"), "the baseline stays while anything is open");
    assert!(count("vm-device") < count("vm-raw"));
    assert_eq!((status.stopped, status.rounds()), (Some(Stopped::MaxRounds), 20));
    // Its rounds are others than the baseline's, and its mean is that over all of them wherever it is shown.
    let shown = judgement
        .summary(CellKey { workload: QD1, target: "vm-device" })
        .and_then(|cell| cell.of(Metric::IOPS))
        .expect("measured");
    let listed = RunFigures::all(&done).mean(&done, "vm-device", QD1, Metric::IOPS).expect("measured");
    let account = Account::of(&done, &judgement);
    let [host, device] = ["host-file", "vm-device"].map(|name| side(&account, Some(name)));
    let compared = compare(&host, &device, &question()).expect("two targets");
    let cell = compared.cell(0, 0, Metric::IOPS).expect("compared");
    let printed = conclusions(&compared).join("\n");
    assert!(printed.contains("The report of run 17 looks several times"), "{printed}");
    for elsewhere in [listed, cell.b] {
        assert!((elsewhere / shown - 1.0).abs() < 1e-9, "{elsewhere} and {shown}");
    }
    // Rounds left out on purpose are not missing.
    assert_eq!(judgement.warnings.iter().filter(|w| w.kind == WarningKind::Incomplete).count(), 0);
    let said = sentences(&done).join("\n");
    let advice = said.lines().find(|line| line.starts_with("Not decided")).expect("advice");
    assert!(
        advice.contains("a new run of ") && advice.contains(" would decide both: iotax resume 17 --time "),
        "{said}"
    );
    assert!(!said.contains("--repeat") && !said.contains("--max-rounds"), "{said}");
}

#[test]
fn when_all_is_decided_it_ends() {
    let source = source(1.3, 0.004, 20);
    let done = carried_out(&source, usize::MAX, &never);
    let judgement = judge(&done);
    let status = judgement.sequential.as_ref().expect("it adds rounds");
    assert_eq!((status.stopped, status.open), (Some(Stopped::Decided), 0));
    assert!(status.rounds() < 20 && status.next().is_none(), "{status:?}");
    assert_eq!(status.planned, done.measurements.len());
    assert_eq!(latency(&judgement, "vm-raw").ratio.verdict, Verdict::Slower);
    let said = sentences(&done).join("\n");
    let end = format!(
        "Every comparison that was waited for is decided, after {} of at most 20 rounds.",
        status.rounds()
    );
    assert!(said.contains(&end), "{said}");
}

#[test]
fn later_rounds_change_nothing_of_what_a_look_decided() {
    let source = source(1.021, 0.01, 20);
    let mut before: Option<Judgement> = None;
    for looks in 1..=source.plan.looks().len() {
        let judgement = judge(&carried_out(&source, looks, &never));
        for earlier in before.iter().flat_map(|before| &before.comparisons).filter(|c| c.decided_at.is_some())
        {
            let now = judgement
                .comparison(CellKey { workload: &earlier.workload, target: &earlier.target }, earlier.metric)
                .expect("still");
            let decision =
                |c: &Comparison| (c.decided_at, c.ratio.verdict, c.ratio.interval, c.ratio.confidence);
            assert_eq!(decision(now), decision(earlier));
        }
        before = Some(judgement);
    }
    assert!(before.is_some_and(|last| last.comparisons.iter().any(|c| c.decided_at.is_some())));
}

/// Parses a figure as shown in a table: `10.9k`, `2166`.
fn shown(text: &str) -> f64 {
    let thousands = text.strip_suffix('k');
    thousands.unwrap_or(text).parse::<f64>().expect("a figure") * if thousands.is_some() { 1e3 } else { 1.0 }
}

#[test]
fn a_change_is_that_of_the_figures_beside_it() {
    // The machine slows down; a target left out after a few rounds is not affected.
    let mut source = source(1.021, 0.01, 20);
    for m in source.measurements.iter_mut().filter(|m| m.round > 4) {
        m.outcome.duration_ns *= 2;
    }
    let done = carried_out(&source, usize::MAX, &never);
    let judgement = judge(&done);
    let rounds = |target: &str| done.measurements.iter().filter(|m| m.target == target).count();
    assert!(rounds("vm-device") < rounds("host-file"), "it is left out");
    let is_shown = |c: &&Comparison| !c.metric.is_percentile();
    for c in judgement.comparisons.iter().chain(&judgement.steps).filter(is_shown) {
        let of = |target| {
            judgement.summary(CellKey { workload: &c.workload, target }).and_then(|cell| cell.of(c.metric))
        };
        let (ours, theirs) = of(&c.target).zip(of(&c.baseline)).expect("figures");
        assert!((c.ratio.mean * theirs / ours - 1.0).abs() < 1e-9, "{c:?}: {ours} {theirs}");
        assert!(c.ratio.tax.is_none_or(|tax| (tax.ns - (ours - theirs)).abs() < 1e-6), "{c:?}");
    }
    let text = set(&document::answer(&done, &judgement), 80, false).to_string();
    let row = |target: &str| -> Vec<String> {
        let row = text.lines().find(|line| line.trim_start().starts_with(target)).expect("a row");
        row.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let base: Vec<f64> = row("host-file").iter().map(|figure| shown(figure)).collect();
    for target in ["vm-raw", "vm-device"] {
        for (cell, base) in row(target).chunks(2).zip(&base) {
            let [figure, change] = cell else { panic!("{text}") };
            let Some(percent) = change.trim_end_matches('?').strip_suffix('%') else { continue };
            let percent: f64 = percent.parse().expect("a number");
            let beside = 100.0 * (shown(figure) / base - 1.0);
            assert!(
                (percent - beside).abs() < 1.1,
                "{target}: {change}, by the figures {beside:.1}%: {text}"
            );
        }
    }
}

#[test]
fn the_screen_and_the_detail_name_the_same_command() {
    // By IOPS it is further from the margin than by mean latency.
    let mut source = source(1.021, 0.03, 20);
    for m in source.measurements.iter_mut().filter(|m| m.target == "vm-raw") {
        m.outcome.duration_ns += m.outcome.duration_ns / 80;
    }
    let done = carried_out(&source, usize::MAX, &never);
    let judgement = judge(&done);
    let screen = set(&document::answer(&done, &judgement), 80, false).to_string();
    let command = |text: &str| {
        let at = text.find("iotax resume 17 --time ").unwrap_or_else(|| panic!("no command: {text}"));
        text[at..].split(['\n', '.']).next().unwrap_or_default().to_owned()
    };
    assert_eq!(command(&screen), command(&sentences(&done).join("\n")), "{screen}");
}

#[test]
fn repetitions_of_an_import_are_not_taken_for_common_rounds() {
    let mut imported = source(1.3, 0.004, 6);
    imported.plan.design = Design::FixedRounds;
    // The machine of the first three repetitions was half as fast, and one target has only these.
    for m in imported.measurements.iter_mut().filter(|m| m.round <= 3) {
        m.outcome.duration_ns *= 2;
    }
    imported.measurements.retain(|m| m.target != "vm-raw" || m.round <= 3);
    imported.source = RunSource::Imported(ImportSource {
        tool: "fio".into(),
        version: None,
        files: vec![],
        dated: None,
        known: BTreeMap::new(),
        not_understood: vec![],
    });
    let shown = judge(&imported)
        .summary(CellKey { workload: QD1, target: "vm-raw" })
        .and_then(|cell| cell.of(Metric::IOPS))
        .expect("known");
    let of_it = |m: &&Measurement| m.target == "vm-raw" && m.workload == QD1;
    let logs: Vec<f64> = imported
        .measurements
        .iter()
        .filter(of_it)
        .map(|m| (m.outcome.tallies.ios() as f64 * 1e9 / m.outcome.duration_ns as f64).ln())
        .collect();
    let own = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    assert!(logs.len() == 3 && (shown / own - 1.0).abs() < 1e-9, "{shown}, its own {own}");
}

#[test]
fn between_looks_nothing_is_decided_and_what_is_to_come_is_said() {
    let source = source(1.3, 0.004, 20);
    let mut done = carried_out(&source, 0, &never);
    done.measurements = source.measurements.iter().filter(|m| m.round < 4).cloned().collect();
    let judgement = judge(&done);
    let status = judgement.sequential.as_ref().expect("it adds rounds");
    assert_eq!((status.taken, status.next(), status.stopped), (0, Some(4), None));
    assert!(
        judgement
            .comparisons
            .iter()
            .all(|c| c.ratio.verdict == Verdict::Undecided && c.ratio.interval.is_none())
    );
    let missing: Vec<&str> = judgement.warnings.iter().map(|w| w.evidence.as_str()).collect();
    assert_eq!(missing, ["18 of 24 measurements are there"]);
    let said = sentences(&done).join("\n");
    assert!(said.contains("the run is not at its end; go on with: iotax resume 17"), "{said}");
}

#[test]
fn a_run_that_its_time_stopped_says_so() {
    let source = source(1.04, 0.012, 20);
    let stopped = Run { state: RunState::Complete, ..carried_out(&source, 2, &never) };
    let judgement = judge(&stopped);
    let status = judgement.sequential.as_ref().expect("it adds rounds");
    assert_eq!((status.stopped, status.taken), (Some(Stopped::MaxTime), 2));
    assert_eq!(judgement.warnings, [], "what is not to be measured is not missing");
    let said = sentences(&stopped).join("\n");
    assert!(said.contains(" more would decide "), "{said}");
    assert!(said.contains(": iotax resume 17 --max-time "), "{said}");
}

#[test]
fn a_failed_measurement_delays_no_look_and_is_missing() {
    let source = source(1.3, 0.004, 20);
    let once = |cell: Cell, round| cell.target == 1 && round == 2;
    let done = carried_out(&source, usize::MAX, &once);
    let judgement = judge(&done);
    assert_eq!(judgement.sequential.as_ref().and_then(|s| s.stopped), Some(Stopped::Decided));
    let raw = latency(&judgement, "vm-raw");
    assert_eq!(raw.decided_at, Some(raw.rounds + 1));
    let all =
        judgement.warnings.iter().filter(|w| w.round.is_none()).map(|w| &w.evidence).collect::<Vec<_>>();
    assert_eq!(all.len(), 1, "{all:?}");
}

#[test]
fn what_cannot_be_measured_is_given_up() {
    let source = source(1.3, 0.004, 20);
    let lost = |cell: Cell, _| cell.target == 1;
    let done = carried_out(&source, usize::MAX, &lost);
    let judgement = judge(&done);
    let status = judgement.sequential.as_ref().expect("it adds rounds");
    assert_eq!(status.stopped, Some(Stopped::Failed));
    assert!(status.rounds() < 20 && status.open > 0, "{status:?}");
    assert_eq!(latency(&judgement, "vm-device").ratio.verdict, Verdict::Slower);
}

#[test]
fn what_cannot_be_used_is_not_waited_for() {
    let mut source = source(1.021, 0.01, 20);
    for m in source.measurements.iter_mut().filter(|m| m.target == "vm-raw" && m.round == 2) {
        m.host.as_mut().expect("observed").disks.get_mut("vda").expect("its disk").read_bytes = 0;
    }
    let done = carried_out(&source, usize::MAX, &never);
    let judgement = judge(&done);
    let status = judgement.sequential.as_ref().expect("it adds rounds");
    assert_eq!(status.stopped, Some(Stopped::Failed));
    assert!(status.rounds() < 20, "{status:?}");
    assert!(latency(&judgement, "vm-raw").ratio.withheld.is_some());
    assert_eq!(latency(&judgement, "vm-device").ratio.verdict, Verdict::Slower);
}

#[test]
fn a_margin_of_the_plan_is_the_one_that_is_judged_by() {
    let with = |margin: &str| {
        let mut run =
            run(&[("host-file", HOST), ("vm-raw", Truth { slowdown: 1.05, ..HOST })], &[QD1], 5, false);
        run.plan.margin = margin.parse().expect("a margin");
        run
    };
    let wide = with("10%");
    assert_eq!(
        (
            latency(&judge(&with("2%")), "vm-raw").ratio.verdict,
            latency(&judge(&wide), "vm-raw").ratio.verdict
        ),
        (Verdict::Slower, Verdict::Same)
    );
    let said = sentences(&wide).join("\n");
    assert!(said.contains("within 10%"), "{said}");
}
