//! Tests an imported run in store, judgement, reports and comparison.

use iotax_analysis::compare::{Account, CompareError, Question, Side, Which, compare};
use iotax_analysis::judge;
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::{Grade, Metric};
use iotax_interop::import::{Imported, recognise, runs};
use iotax_model::RunState;
use iotax_model::record::{Dated, Measurement, RunSource};
use iotax_model::{CellKey, Run};
use iotax_report::{csv, json};
use iotax_report::{document, html, markdown};
use iotax_store::{NewRun, Store};

use super::data;

fn imported(files: &[(&str, String)]) -> Vec<Imported> {
    let files: Vec<_> = files.iter().map(|(name, text)| ((*name).to_owned(), recognise(text))).collect();
    runs(files, None)
}

/// Stores a run as `iotax import` does.
fn kept(store: &mut Store, run: &Imported) -> Run {
    let started_at_ms = run.started_at_ms.unwrap_or(1);
    let id =
        store.create_run(&NewRun { plan: &run.plan, seed: 0, started_at_ms, fleet: None }).expect("created");
    store.set_source(id, &run.source).expect("kept");
    store.put_measurements(id, run.measurements()).expect("kept");
    store.set_state(id, RunState::Complete).expect("kept");
    store.load(id).expect("loads")
}

fn store() -> (tempfile::TempDir, Store) {
    let temp = tempfile::tempdir().expect("directory");
    let store = Store::open(&temp.path().join("db")).expect("opens");
    (temp, store)
}

#[test]
fn repetitions_are_rounds_wherever_they_stand() {
    let fio = || data("fio-3.33.json");
    let twice = imported(&[("one.json", fio()), ("two.json", fio()), ("both.txt", data("bonnie-1.03.txt"))]);
    let [fio, bonnie] = twice.as_slice() else { panic!("{} runs", twice.len()) };
    assert_eq!((fio.plan.repeat, fio.plan.workloads.len(), fio.measurements().len()), (2, 2, 4));
    assert_eq!(fio.source.to_string(), "imported from fio 3.33 (one.json, two.json)");
    assert_eq!((fio.plan.targets[0].name.as_str(), fio.plan.baseline.as_str()), ("srv-area", "srv-area"));
    assert_eq!((bonnie.plan.repeat, bonnie.plan.targets[0].name.as_str()), (1, "gamma"));
    // The same name with other keys is another workload.
    let other = data("fio-3.33.json").replace("\"4k\"", "\"16k\"");
    let two = imported(&[("a", data("fio-3.33.json")), ("b", other)]);
    let names: Vec<&str> = two[0].plan.workloads.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["randread", "mix", "randread-2"]);
    assert_eq!(two[0].plan.workloads[2].bs.0, 16 << 10);
}

#[test]
fn it_is_marked_everywhere_and_nothing_is_checked() {
    let (_temp, mut store) = store();
    for name in
        ["fio-3.33.json", "fio-3.33-plus.json", "bonnie-2.00.txt", "iozone-3.506.txt", "vdbench-5.02.txt"]
    {
        let all = imported(&[(name, data(name))]);
        let run = kept(&mut store, &all[0]);
        assert_eq!(run.measurements, all[0].measurements().collect::<Vec<_>>(), "{name}");
        let judgement = judge(&run);
        assert_eq!((judgement.warnings.len(), judgement.effects.len()), (0, 0), "{name}");
        assert!(judgement.grades.iter().all(|grade| *grade == Grade::Unchecked), "{name}");
        let source = run.source.imported().expect("a source").to_string();
        let on_terminal = markdown::set(&document::run(&run, &judgement));
        assert!(on_terminal.starts_with("### Imported from "), "{on_terminal}");
        assert!(!on_terminal.contains("clean"), "{on_terminal}");
        let html = html::render(&run, &judgement);
        assert!(html.contains(&source) && !html.contains("How to reproduce"), "{name}");
        let document = json::document(&run, &judgement);
        let schema = include_str!("../../../report/schema/iotax-1.schema.json");
        let schema =
            jsonschema::validator_for(&serde_json::from_str(schema).expect("JSON")).expect("a schema");
        let errors: Vec<String> =
            schema.iter_errors(&document).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert_eq!(errors, Vec::<String>::new(), "{name}");
        assert_eq!(document["run"]["source"]["tool"], run.source.imported().expect("a source").tool);
        let again = json::read::account(&document.to_string(), "file").expect("reads back");
        assert_eq!(again.source, run.source);
        let tables = csv::tables(&[(run, judgement)]);
        assert!(
            tables[0].text.lines().nth(1).expect("a row").contains("imported from"),
            "{}",
            tables[0].text
        );
    }
}

#[test]
fn what_a_source_does_not_tell_is_unknown() {
    let (_temp, mut store) = store();
    let run = kept(&mut store, &imported(&[("terse", data("fio-3.33-terse.txt"))])[0]);
    let judgement = judge(&run);
    let document = json::document(&run, &judgement);
    let first = &document["measurements"][0];
    assert!(first.get("started_at").is_none(), "{first}");
    assert!(first["metrics"].get("engine_cpu_per_io").is_none(), "{first}");
    let bonnie = kept(&mut store, &imported(&[("b", data("bonnie-1.03.txt"))])[0]);
    let document = json::document(&bonnie, &judge(&bonnie));
    assert!(document["measurements"][0].get("duration_s").is_none());
    // A result without a count has no rate of 0.
    let stat = bonnie.measurements.iter().find(|m| m.workload == "seq_stat").expect("too fast to tell");
    assert_eq!(Metric::compared().filter_map(|metric| metric.of(stat)).count(), 0);
    let cell =
        judge(&bonnie).summary(CellKey { workload: "seq_stat", target: "gamma" }).expect("measured").clone();
    assert_eq!((cell.of(Metric::IOPS), cell.of(Metric::LATENCY_MEAN)), (None, None));
}

fn question() -> Question {
    Question { baseline: Which::A, metrics: Metric::compared().collect(), margin: 0.02, gates: vec![] }
}

#[test]
fn one_round_decides_nothing_and_several_do() {
    let (_temp, mut store) = store();
    let factor = |run: &Run, by: f64| {
        let scaled = |m: &Measurement| {
            let mut m = m.clone();
            let stated = m.stated.as_mut().expect("stated");
            stated.metrics.values_mut().for_each(|value| *value *= by * (1.0 + f64::from(m.round) * 1e-4));
            m
        };
        Run { id: run.id + 1, measurements: run.measurements.iter().map(scaled).collect(), ..run.clone() }
    };
    let fio = data("fio-3.33.json");
    let once = kept(&mut store, &imported(&[("a", fio.clone())])[0]);
    let account = |run: &Run| Account::of(run, &judge(run));
    let verdicts = |one: &Run, other: &Run| {
        let (one, other) = (account(one), account(other));
        let (a, b) = (Side { account: &one, target: None }, Side { account: &other, target: None });
        let compared = compare(&a, &b, &question()).expect("comparable");
        assert_eq!(compared.machines, [], "nothing is known of either");
        let mean = compared.cells.into_iter().filter(|cell| cell.metric == Metric::LATENCY_MEAN);
        mean.map(|cell| cell.ratio.verdict).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&once, &factor(&once, 2.0)), [Verdict::Undecided; 2]);
    let files = ["a", "b", "c", "d"].map(|name| (name, fio.clone()));
    let often = factor(&kept(&mut store, &imported(&files)[0]), 1.0);
    assert_eq!(verdicts(&often, &factor(&often, 2.0)), [Verdict::Slower; 2]);
}

#[test]
fn workloads_meet_by_what_is_known_of_both() {
    let (_temp, mut store) = store();
    let account = |run: &Run| Account::of(run, &judge(run));
    let json = kept(&mut store, &imported(&[("a", data("fio-3.33.json"))])[0]);
    // A run of iotax's own with the same work under another name, and one that is not the same.
    let own = |bs: &str| {
        let plan = format!(
            "[[target]]\nname = \"disk\"\npath = \"/x\"\n[[workload]]\nname = \"mine\"\nrw = \"randread\"\nbs = \"{bs}\"\n\
             direct = false\nsize = \"4m\"\nruntime = \"1s\"\n"
        );
        let plan = iotax_model::Plan::from_toml(&plan).expect("a plan");
        let mut run = Run { plan, source: RunSource::Measured, targets: vec![], ..json.clone() };
        run.measurements.retain(|m| m.workload == "randread");
        run.measurements.iter_mut().for_each(|m| (m.target, m.workload) = ("disk".into(), "mine".into()));
        run
    };
    let meet = |one: &Run, other: &Run| {
        let (one, other) = (account(one), account(other));
        let (a, b) = (Side { account: &one, target: None }, Side { account: &other, target: None });
        let question = question();
        compare(&a, &b, &question).map(|compared| {
            compared.workloads.iter().map(|pair| (pair.a.name.clone(), pair.b.clone())).collect::<Vec<_>>()
        })
    };
    assert_eq!(meet(&json, &own("4k")).expect("they meet"), [("randread".to_owned(), "mine".to_owned())]);
    assert!(matches!(meet(&json, &own("8k")), Err(CompareError::NoWorkload { .. })));
    // Work without known keys is matched only by name.
    let vdbench = |name: &str| imported(&[(name, data("vdbench-5.02.txt").replace("run1", name))]);
    let (one, other) = (kept(&mut store, &vdbench("x")[0]), kept(&mut store, &vdbench("y")[0]));
    assert!(matches!(meet(&one, &other), Err(CompareError::NoWorkload { .. })));
    assert!(matches!(meet(&one, &json), Err(CompareError::NoWorkload { .. })));
}

/// The page of an import and its HTML.
fn shown(store: &mut Store, files: &[(&str, String)]) -> (String, String) {
    let run = kept(store, &imported(files)[0]);
    let judgement = judge(&run);
    (markdown::set(&document::run(&run, &judgement)), html::render(&run, &judgement))
}

#[test]
fn a_figure_over_rounds_is_what_its_label_says() {
    let (_temp, mut store) = store();
    // hyperfine's mean is 11.36 ms, the median of its times 11.31 ms.
    let (page, _) = shown(&mut store, &[("h", data("hyperfine-1.15.json"))]);
    let row = page.lines().find(|line| line.contains("sleep 0.01") && line.contains(" ms")).expect("a row");
    assert!(row.contains("11.4 ms") && page.contains("Over 3 rounds: means of means"), "{page}");
    // Two blocks of ping: the extremes of both, and the sum of packets.
    let (page, _) = shown(&mut store, &[("p", data("ping-iputils-D.txt"))]);
    let figure = |name: &str| {
        let row = page
            .lines()
            .find(|line| line.contains(&format!("| {name} |")))
            .unwrap_or_else(|| panic!("{page}"));
        row.rsplit('|').nth(1).expect("a value").trim().to_owned()
    };
    assert_eq!(["max", "min", "sent", "loss"].map(figure), ["0.045 ms", "0.011 ms", "7", "0 %"]);
}

#[test]
fn small_rates_and_lengths_have_their_unit() {
    let (_temp, mut store) = store();
    let (page, html) = shown(&mut store, &[("i", data("iperf2-udp.txt"))]);
    assert!(page.contains("1.00 Mbit/s") && html.contains("1.00 Mbit/s"), "{page}");
    assert!(!page.contains("MB/s") && !html.contains("<th>MB/s</th>"), "{page}");
    let dd = data("dd-9.1.txt").replace(
        "4096000 bytes (4.1 MB, 3.9 MiB) copied, 1.22297 s, 3.3 MB/s",
        "2300000 bytes (2.3 MB, 2.2 MiB) copied, 41.2 s, 55.8 kB/s",
    );
    let (page, html) = shown(&mut store, &[("d", dd)]);
    assert!(page.contains("55.8 kB/s") && page.contains("write-2300"), "{page}");
    assert!(html.contains("bs = 2300 B"), "{html}");
}

#[test]
fn the_targets_of_an_import_have_no_tax() {
    let (_temp, mut store) = store();
    let (page, html) = shown(&mut store, &[("b", data("bonnie-2.00-runs.txt"))]);
    for rendered in [&page, &html] {
        assert!(rendered.contains("The targets are not compared"), "{rendered}");
        assert!(
            !rendered.contains("tax on mean latency") && !rendered.contains("What each layer costs"),
            "{rendered}"
        );
        assert!(
            rendered.contains("bonnie++ does not tell when: the run has the import's time."),
            "{rendered}"
        );
    }
    let (page, _) = shown(&mut store, &[("f", data("fio-3.33.json"))]);
    assert!(!page.contains("does not tell when") && !page.contains("has no zone"), "{page}");
    let (page, _) = shown(&mut store, &[("f", data("fio-3.33-client.txt"))]);
    assert!(page.contains("The clock of fio has no zone: its times are taken as UTC."), "{page}");
}

#[test]
fn a_run_has_the_time_of_its_first_result() {
    let all = imported(&[
        ("a", data("vdbench-5.04.07.txt")),
        ("b", data("vdbench-5.02.txt")),
        ("c", data("dd-9.1.txt")),
    ]);
    let [vdbench, dd] = all.as_slice() else { panic!("{} runs", all.len()) };
    let first = vdbench.measurements().map(|m| m.started_at_ms).min();
    assert_eq!((vdbench.started_at_ms, vdbench.source.dated), (first, Some(Dated::BySourceWithoutZone)));
    assert_eq!((dd.started_at_ms, dd.source.dated), (None, Some(Dated::ByImport)));
}

#[test]
fn the_only_target_is_named_unless_the_source_names_none() {
    let (_temp, mut store) = store();
    for (name, target) in [("fio-3.33.json", Some("srv-area")), ("iozone-3.506.txt", None)] {
        let run = kept(&mut store, &imported(&[(name, data(name))])[0]);
        assert_eq!(run.plan.targets.len(), 1, "{name}");
        let page = markdown::set(&document::answer(&run, &judge(&run)));
        let end = target.map_or_else(|| format!("({name})."), |target| format!("({name}): {target}."));
        assert!(page.contains(&end), "{name}: {page}");
    }
}
