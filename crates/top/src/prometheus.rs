//! Frames in Prometheus' text format.

use std::fmt::Write as _;

use crate::figure::{self, Figure, FigureUnit};
use crate::rates::Frame;

/// Formats a frame for Prometheus, with one gauge per known figure of each row. Processes are left out.
#[must_use]
pub fn text(frame: &Frame) -> String {
    let mut out = String::new();
    group(&mut out, "layer", figure::LAYERS, &frame.layers, |layer| {
        vec![("device", layer.name.clone()), ("name", layer.title.clone())]
    });
    group(&mut out, "guest", figure::GUESTS, &frame.guests, |row| {
        vec![
            ("guest", row.guest.clone()),
            ("disk", row.disk.clone().unwrap_or_default()),
            ("device", row.device.clone().unwrap_or_default()),
        ]
    });
    group(&mut out, "cgroup", figure::CGROUPS, &frame.cgroups, |group| {
        vec![("cgroup", group.path.clone()), ("device", group.device.clone())]
    });
    group(&mut out, "interface", figure::INTERFACES, &frame.interfaces, |interface| {
        vec![("interface", interface.name.clone())]
    });
    let pressure: Vec<_> = frame.pressure.into_iter().collect();
    group(&mut out, "stalled", figure::PRESSURE, &pressure, |_| Vec::new());
    out
}

/// Appends the gauges of all rows of one kind, such as block devices.
fn group<R>(
    out: &mut String,
    kind: &str,
    figures: &[Figure<R>],
    rows: &[R],
    labels: fn(&R) -> Vec<(&'static str, String)>,
) {
    for figure in figures {
        let samples: Vec<String> = rows
            .iter()
            .filter_map(|row| {
                let value = (figure.get)(row).filter(|value| value.is_finite())?;
                let value = if figure.unit == FigureUnit::Nanos { value / 1e9 } else { value };
                let labels = labels(row);
                let pairs: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
                let labels =
                    if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
                Some(format!("{labels} {value}"))
            })
            .collect();
        if samples.is_empty() {
            continue;
        }
        let name = name(kind, figure.id, figure.unit);
        let _ = writeln!(out, "# HELP {name} {}.\n# TYPE {name} gauge", figure.help);
        for sample in samples {
            let _ = writeln!(out, "{name}{sample}");
        }
    }
}

/// Returns the name of a metric, with its base unit last, such as `iotax_top_layer_read_latency_seconds`.
fn name(kind: &str, id: &str, unit: FigureUnit) -> String {
    let base = id.trim_end_matches("_ns").trim_end_matches("_per_s").replace("_iops", "_operations");
    let suffix = match unit {
        FigureUnit::PerSecond | FigureUnit::BytesPerSecond => "_per_second",
        FigureUnit::Nanos => "_seconds",
        FigureUnit::Share => "_ratio",
        FigureUnit::Count => "",
    };
    format!("iotax_top_{kind}_{base}{suffix}")
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
