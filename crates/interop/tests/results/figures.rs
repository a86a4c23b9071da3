//! Tests that a figure defined once appears in every output.

use iotax_analysis::metric::{Better, Definition, Names, OverRounds, Unit};
use iotax_analysis::{Judgement, Metric, judge, judge_by};
use iotax_interop::export::{Document, FORMATS};
use iotax_model::{CellKey, Run};
use iotax_report::{csv, document, html, json, markdown, terminal};

use iotax_testkit::runs::{HOST, Truth, run};

/// The mean length of an I/O, a figure that iotax does not have.
static MEAN_LENGTH: Definition = Definition {
    id: "mean_length_per_s",
    unit: Unit::BytesPerSecond,
    better: Better::More,
    name: Names::all("mean length of an I/O"),
    column: Names::all("length"),
    help: "bytes of the mean I/O",
    of: |m| Some(m.outcome.tallies.bytes() as f64 / m.outcome.tallies.ios() as f64),
    over_rounds: OverRounds::Median,
    compares: Some(|_| true),
};

fn two_targets() -> Run {
    let truths = [("host-file", HOST), ("vm-raw", Truth { slowdown: 1.3, ..HOST })];
    run(&truths, &["randread-4k-qd1"], 3, false)
}

fn read(run: &Run, judgement: Judgement) -> Vec<(String, String)> {
    let figures = document::figures(run, &judgement);
    let mut texts = vec![
        ("terminal".to_owned(), terminal::set(&figures, 100, false).to_string()),
        ("markdown".into(), markdown::set(&figures)),
        ("html".into(), html::render(run, &judgement)),
        ("json".into(), json::document(run, &judgement).to_string()),
    ];
    let judged = (run.clone(), judgement);
    for table in csv::tables(std::slice::from_ref(&judged)) {
        texts.push((table.name.to_owned(), table.text));
    }
    for format in FORMATS.iter().filter(|format| ["prometheus", "parquet"].contains(&format.name)) {
        texts.push((
            format.name.to_owned(),
            match (format.write)(&judged).expect("has this form") {
                Document::Text(text) => text,
                Document::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                Document::Tables(_) => unreachable!("neither is a table of tables"),
            },
        ));
    }
    texts
}

#[test]
fn a_new_figure_is_one_definition_and_in_every_output() {
    let run = two_targets();
    let figures: Vec<Metric> = Metric::ALL.iter().copied().chain([Metric::new(&MEAN_LENGTH)]).collect();
    let with = read(&run, judge_by(&run, &figures));
    let without = read(&run, judge(&run));
    let names = [MEAN_LENGTH.id, MEAN_LENGTH.name.io, "iotax_mean_length_per_second"];
    let has_it = |text: &str| names.iter().any(|name| text.contains(name));
    // The tables of samples, curves and answers have no figures of whole measurements.
    let tables = ["samples.csv", "disks.csv", "nics.csv", "streams.csv", "curves.csv", "answers.csv"];
    for ((table_name, with), (_, without)) in with.iter().zip(&without) {
        assert_eq!(has_it(with), !tables.contains(&table_name.as_str()), "{table_name}: {with}");
        assert!(!has_it(without), "{table_name}");
    }
    assert_eq!(with.len(), 4 + 9 + 2, "every output was looked at");
    let compared = judge_by(&run, &figures);
    let comparison = compared
        .comparison(CellKey { workload: "randread-4k-qd1", target: "vm-raw" }, Metric::new(&MEAN_LENGTH));
    assert_eq!(comparison.map(|c| c.ratio.mean), Some(1.0), "it is compared too");
}

#[test]
fn figures_have_names_of_their_own() {
    let mut ids: Vec<&str> = Metric::ALL.iter().map(|metric| metric.word()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), Metric::ALL.len());
    for metric in Metric::compared() {
        assert_eq!(metric.word().parse::<Metric>().ok(), Some(metric));
    }
    assert!("errors".parse::<Metric>().is_err(), "nothing is compared by it");
}
