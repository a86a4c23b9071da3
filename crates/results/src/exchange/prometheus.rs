//! Measurements in Prometheus' text format (0.0.4), for a node exporter's textfile directory or a push gateway.
//!
//! Names and units are Prometheus' own: base units, seconds and bytes. There are no time stamps in it: a gateway refuses them.

use std::fmt::Write;

use iotax_model::record::Measurement;

use super::rows::emulated;
use crate::analysis::figures::lasted;
use crate::analysis::network::Packets;
use crate::analysis::{Judgement, Metric};
use crate::compare::account::{Kinds, metrics};
use crate::mark::{Mark, Place};
use crate::store::Run;

/// The first line, a comment to every reader.
const FIRST: &str = "# Written by iotax: the measurements of its runs";

/// Every line: what is about others' metrics too is not ours alone.
pub(super) const MARK: Mark = Mark {
    format: "prometheus",
    place: Place::EveryLine(&[FIRST, "# HELP iotax_", "# TYPE iotax_", "iotax_"]),
};

/// One family of gauges.
struct Family {
    name: &'static str,
    help: &'static str,
    samples: String,
}

/// Every figure of every measurement of these runs. What is not known has no line.
#[must_use]
pub fn measurements(runs: &[(Run, Judgement)]) -> String {
    let mut families: Vec<Family> =
        FAMILIES.iter().map(|(name, help)| Family { name, help, samples: String::new() }).collect();
    for (run, judgement) in runs {
        let kinds = Kinds::of(judgement);
        for (i, m) in run.measurements.iter().enumerate() {
            let place = place(run, m);
            let mut add = |name: &str, labels: &str, value: f64| {
                let family = families.iter_mut().find(|family| family.name == name).expect("in the table");
                writeln!(family.samples, "{name}{{{place}{labels}}} {value}")
                    .expect("memory takes everything");
            };
            for (metric, value) in metrics(m) {
                let (name, labels, unit) = gauge(metric);
                add(name, labels, value * unit);
            }
            let packets = Packets::of(m);
            let told = [(LOST, packets.lost), (RETRANSMITS, packets.retransmits)];
            for (name, count) in told {
                count.into_iter().for_each(|count| add(name, "", count as f64));
            }
            packets.jitter_ns.into_iter().for_each(|ns| add(JITTER, "", ns * 1e-9));
            if let Some(ns) = lasted(m) {
                add(DURATION, "", ns as f64 / 1e9);
            }
            if m.stated.is_none() {
                add(ERRORS, "", m.outcome.errors.iter().map(|error| error.count).sum::<u64>() as f64);
            }
            let grade = judgement.grades.get(i).map_or("", |grade| grade.word());
            let emulated = emulated(run, &m.target).map_or("", |yes| if yes { "true" } else { "false" });
            let source = run.source.as_ref().map(ToString::to_string).unwrap_or_default();
            let about = [
                ("grade", grade),
                ("warnings", &kinds.about(m).join(" ")),
                ("emulated", emulated),
                ("source", &source),
            ];
            add(INFO, &about.map(|(name, value)| format!(",{name}=\"{}\"", escaped(value))).concat(), 1.0);
        }
    }
    let mut text = format!("{FIRST}\n");
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let Family { name, help, samples } = family;
        write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{samples}")
            .expect("memory takes everything");
    }
    text
}

const DURATION: &str = "iotax_duration_seconds";
const ERRORS: &str = "iotax_errors";
const LOST: &str = "iotax_lost";
const RETRANSMITS: &str = "iotax_retransmits";
const JITTER: &str = "iotax_jitter_seconds";
const INFO: &str = "iotax_measurement_info";

/// The families in the order of the text, each with its help: one line without a backslash.
const FAMILIES: &[(&str, &str)] = &[
    ("iotax_iops", "I/Os completed per second."),
    ("iotax_bytes_per_second", "Bytes moved per second."),
    ("iotax_latency_mean_seconds", "Mean service time of an I/O."),
    ("iotax_latency_seconds", "Quantiles of the service time of an I/O."),
    (
        "iotax_host_cpu_seconds_per_io",
        "CPU time that the whole host was busy for, per I/O, packet or round trip.",
    ),
    (
        "iotax_host_cpu_seconds_per_gibibyte",
        "CPU time that the whole host was busy for, per GiB of a network's streams.",
    ),
    (LOST, "Datagrams, or messages of round trips, that were lost."),
    (RETRANSMITS, "Segments that TCP sent again."),
    (JITTER, "Datagrams' jitter by RFC 3550, mean of the streams."),
    (DURATION, "Length of the measured window."),
    (ERRORS, "I/Os that failed."),
    (INFO, "What was found about a measurement; always 1."),
];

/// A metric's family, its labels beyond the place, and its unit in Prometheus'.
const fn gauge(metric: Metric) -> (&'static str, &'static str, f64) {
    const LATENCY: &str = "iotax_latency_seconds";
    match metric {
        Metric::Iops => ("iotax_iops", "", 1.0),
        Metric::BytesPerS => ("iotax_bytes_per_second", "", 1.0),
        Metric::LatencyMean => ("iotax_latency_mean_seconds", "", 1e-9),
        Metric::LatencyP50 => (LATENCY, ",quantile=\"0.5\"", 1e-9),
        Metric::LatencyP90 => (LATENCY, ",quantile=\"0.9\"", 1e-9),
        Metric::LatencyP99 => (LATENCY, ",quantile=\"0.99\"", 1e-9),
        Metric::LatencyP999 => (LATENCY, ",quantile=\"0.999\"", 1e-9),
        Metric::CpuPerIo => ("iotax_host_cpu_seconds_per_io", "", 1e-9),
        Metric::CpuPerGib => ("iotax_host_cpu_seconds_per_gibibyte", "", 1e-9),
    }
}

/// The labels that every line has.
fn place(run: &Run, m: &Measurement) -> String {
    let (target, workload) = (escaped(&m.target), escaped(&m.workload));
    format!("run=\"{}\",target=\"{target}\",workload=\"{workload}\",round=\"{}\"", run.id, m.round)
}

/// A label's value: backslash, quote and line break have a backslash before them.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
