//! Exports measurements in Prometheus' text format (0.0.4), for the node exporter's textfile collector or a Pushgateway.
//!
//! Names follow Prometheus' conventions: base units, seconds and bytes. There are no time stamps, because a Pushgateway rejects them.

use std::fmt::Write;

use iotax_model::record::Measurement;

use iotax_analysis::ask::{self, HighestRate};
use iotax_analysis::compare::account::Kinds;
use iotax_analysis::curve::{self, Located};
use iotax_analysis::figures::lasted;
use iotax_analysis::{Judgement, Metric};
use iotax_model::Run;
use iotax_report::mark::{Mark, MarkPosition};
use iotax_report::tables::{emulated, figures};

/// First line of the file, a comment in this format.
const FIRST: &str = "# Written by iotax: the measurements of its runs";

/// Mark of files that contain only iotax's metrics; a file with metrics of other programs does not have it.
pub(super) const MARK: Mark = Mark {
    format: "prometheus",
    position: MarkPosition::EveryLine(&[FIRST, "# HELP iotax_", "# TYPE iotax_", "iotax_"]),
};

/// A metric family of the text format: its name, type, help and samples.
struct Family {
    name: String,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

/// A metric as Prometheus names it.
struct Series {
    family: String,
    /// Labels in addition to run, target, workload and round.
    labels: String,
    /// Factor to convert from the metric's unit to Prometheus' base unit.
    unit: f64,
}

impl Series {
    /// Converts a metric. Times become seconds. Percentiles become quantiles of one summary, the only type with a `quantile` label.
    fn of(metric: Metric) -> Self {
        let unit = if metric.is_time() { 1e-9 } else { 1.0 };
        let seconds = if metric.is_time() { "_seconds" } else { "" };
        if let Some(q) = metric.quantile() {
            return Self { family: LATENCY.0.to_owned(), labels: format!(",quantile=\"{q}\""), unit };
        }
        let name = metric.word().replace("_per_s", "_per_second");
        Self { family: format!("iotax_{name}{seconds}"), labels: String::new(), unit }
    }
}

/// Writes the metrics of `runs`: figures per measurement, capacities and knees, and results of rate searches. Unknown values are left out.
#[must_use]
pub fn measurements(runs: &[(Run, Judgement)]) -> String {
    let figures: Vec<(Metric, Series)> =
        figures(runs).iter().map(|metric| (*metric, Series::of(*metric))).collect();
    let mut families = families(&figures);
    for (run, judgement) in runs {
        let kinds = Kinds::of(judgement);
        for (i, m) in run.measurements.iter().enumerate() {
            let of_measurement = labels_of(run, m);
            let mut add = |family: &str, suffix: &str, labels: &str, value: f64| {
                let family = families.iter_mut().find(|known| known.name == family).expect("in the table");
                writeln!(family.samples, "{}{suffix}{{{of_measurement}{labels}}} {value}", family.name)
                    .expect("memory takes everything");
            };
            for (metric, series) in &figures {
                if let Some(value) = metric.value(m) {
                    add(&series.family, "", &series.labels, value * series.unit);
                }
            }
            let latency = m.outcome.tallies.latency();
            if latency.count() > 0 && figures.iter().any(|(_, series)| series.family == LATENCY.0) {
                add(LATENCY.0, "_sum", "", latency.sum() as f64 / 1e9);
                add(LATENCY.0, "_count", "", latency.count() as f64);
            }
            if let Some(ns) = lasted(m) {
                add(DURATION.0, "", "", ns as f64 / 1e9);
            }
            let grade = judgement.grades.get(i).map_or("", |grade| grade.word());
            let emulated = emulated(run, &m.target).map_or("", |yes| if yes { "true" } else { "false" });
            let source = run.source.imported().map(ToString::to_string).unwrap_or_default();
            let about = [
                ("grade", grade),
                ("warnings", &kinds.about(m).join(" ")),
                ("emulated", emulated),
                ("source", &source),
            ];
            let labels = about.map(|(name, value)| format!(",{name}=\"{}\"", escaped(value))).concat();
            add(INFO.0, "", &labels, 1.0);
        }
        for (family, labels, rate) in rates(run) {
            let family = families.iter_mut().find(|known| known.name == family).expect("in the table");
            writeln!(family.samples, "{}{{{labels}}} {rate}", family.name).expect("memory takes everything");
        }
    }
    let mut text = format!("{FIRST}\n");
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let Family { name, kind, help, samples } = family;
        write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")
            .expect("memory takes everything");
    }
    text
}

/// Names and help texts of the families that are not single metrics.
const LATENCY: (&str, &str) = ("iotax_latency_seconds", "Service times of a measurement's I/Os");
const DURATION: (&str, &str) = ("iotax_duration_seconds", "Length of the measured window");
const INFO: (&str, &str) = ("iotax_measurement_info", "What was found about a measurement; always 1");

/// Families of rates in I/Os per second, and of the ends of their intervals: name and help.
const RATES: [(&str, &str); 9] = [
    ("iotax_capacity_iops", "Most I/Os per second, in a closed loop or at any rate of a curve"),
    ("iotax_capacity_iops_low_95", "Lower end of the 95% interval of the capacity"),
    ("iotax_capacity_iops_high_95", "Upper end of the 95% interval of the capacity"),
    ("iotax_knee_iops", "Load of the greatest power, which is throughput by mean response time"),
    ("iotax_knee_iops_low_95", "Lower end of the 95% interval of the knee"),
    ("iotax_knee_iops_high_95", "Upper end of the 95% interval of the knee"),
    ("iotax_slo_iops", "Highest rate that keeps the conditions"),
    (
        "iotax_slo_iops_low_95",
        "Lower end of the 95% interval of that rate, or the highest one tried if all keep them",
    ),
    (
        "iotax_slo_iops_high_95",
        "Upper end of the 95% interval of that rate, or the lowest one tried if none keeps them",
    ),
];

/// Returns the rates that a run's curves and searches found: family, labels and value.
fn rates(run: &Run) -> Vec<(&'static str, String, f64)> {
    let mut lines = Vec::new();
    let mut add = |first: usize, labels: &str, [at, low, high]: [Option<f64>; 3]| {
        for (family, value) in (first..).zip([at, low, high]) {
            lines.extend(value.map(|value| (RATES[family].0, labels.to_owned(), value)));
        }
    };
    let bounds = |located: Option<&Located>| {
        let interval = located.and_then(|located| located.interval);
        [located.map(|located| located.at), interval.map(|one| one.low), interval.map(|one| one.high)]
    };
    for curves in curve::curves(run) {
        for curve in &curves.targets {
            let labels = cell(run, curve.target, &curves.work.name);
            add(0, &labels, bounds(curve.capacity.as_ref()));
            add(3, &labels, bounds(curve.knee.as_ref().and_then(|knee| knee.power.as_ref())));
        }
    }
    let slo = run.plan.ask().into_iter().flat_map(|ask| &ask.slo).map(ToString::to_string);
    let slo = escaped(&slo.collect::<Vec<_>>().join("; "));
    for answers in ask::answers(run) {
        for answer in &answers.targets {
            let labels = format!("{},slo=\"{slo}\"", cell(run, answer.target, &answers.work.name));
            let rate = match &answer.found {
                HighestRate::Rate(rate) => bounds(Some(rate)),
                HighestRate::AtLeast(rate) => [None, Some(*rate), None],
                HighestRate::Below(rate) => [None, None, Some(*rate)],
                HighestRate::Unknown => [None; 3],
            };
            add(6, &labels, rate);
        }
    }
    lines
}

/// Returns all families in the order of the text.
fn families(figures: &[(Metric, Series)]) -> Vec<Family> {
    let family =
        |name: &str, kind, help| Family { name: name.to_owned(), kind, help, samples: String::new() };
    let mut all: Vec<Family> = Vec::new();
    for (metric, series) in figures {
        if !all.iter().any(|known| known.name == series.family) {
            let is_quantile = metric.quantile().is_some();
            let (kind, help) =
                if is_quantile { ("summary", LATENCY.1) } else { ("gauge", metric.definition().help) };
            all.push(family(&series.family, kind, help));
        }
    }
    all.extend([DURATION, INFO].into_iter().chain(RATES).map(|(name, help)| family(name, "gauge", help)));
    all
}

/// Formats the labels of every line about a measurement.
fn labels_of(run: &Run, m: &Measurement) -> String {
    format!("{},round=\"{}\"", cell(run, &m.target, &m.workload), m.round)
}

/// Formats the labels of every line about a target and workload.
fn cell(run: &Run, target: &str, workload: &str) -> String {
    format!("run=\"{}\",target=\"{}\",workload=\"{}\"", run.id, escaped(target), escaped(workload))
}

/// Escapes backslashes, quotes and line breaks in the value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
