//! Frames as JSON, one document per frame (docs/top.md).

use serde_json::{Map, Value, json};

use crate::figure::{self, Figure};
use crate::rates::Frame;
use crate::raw::PercentileSource;
use crate::table::utc;

/// Version of the JSON format, which each document names.
pub const SCHEMA: u32 = 1;

/// Returns a frame's JSON document; unknown figures have no key.
#[must_use]
pub fn document(frame: &Frame) -> Value {
    let layers = frame.layers.iter().map(|layer| {
        let own = json!({
            "name": layer.name, "title": layer.title, "kind": layer.kind, "depth": layer.depth, "on": layer.on,
            "mounts": layer.mounts,
        });
        with_figures(own, figure::LAYERS, layer)
    });
    let processes = frame.processes.iter().map(|process| {
        let own = json!({ "pid": process.pid, "name": process.name, "cgroup": process.cgroup });
        with_figures(own, figure::PROCESSES, process)
    });
    let cgroups = frame.cgroups.iter().map(|group| {
        let own = json!({ "path": group.path, "device": group.device });
        with_figures(own, figure::CGROUPS, group)
    });
    let guests = frame.guests.iter().map(|row| {
        let own = json!({ "guest": row.guest, "pid": row.pid, "disk": row.disk, "device": row.device });
        with_figures(own, figure::GUESTS, row)
    });
    let interfaces = frame
        .interfaces
        .iter()
        .map(|interface| with_figures(json!({ "name": interface.name }), figure::INTERFACES, interface));
    let percentiles = match &frame.percentiles {
        PercentileSource::Bpf => json!({ "source": "bpf" }),
        PercentileSource::Unknown(reason) => json!({ "source": "unknown", "reason": reason }),
        PercentileSource::NotReported => json!({ "source": "unknown" }),
    };
    without_null(json!({
        "iotax_top": SCHEMA,
        "at": frame.at_ms.map(utc),
        "at_ms": frame.at_ms,
        "interval_ns": frame.interval_ns,
        "percentiles": percentiles,
        "layers": layers.collect::<Vec<_>>(),
        "guests": guests.collect::<Vec<_>>(),
        "processes": processes.collect::<Vec<_>>(),
        "cgroups": cgroups.collect::<Vec<_>>(),
        "interfaces": interfaces.collect::<Vec<_>>(),
        "pressure": frame.pressure.map(|pressure| with_figures(json!({}), figure::PRESSURE, &pressure)),
        "remarks": frame.remarks,
    }))
}

/// Adds the known figures of a row to `own`, the row's other keys.
fn with_figures<R>(own: Value, figures: &[Figure<R>], row: &R) -> Value {
    let mut document = own;
    for figure in figures {
        let value = (figure.get)(row).filter(|value| value.is_finite());
        document[figure.id] = value.map_or(Value::Null, Value::from);
    }
    without_null(document)
}

fn without_null(document: Value) -> Value {
    match document {
        Value::Object(keys) => {
            Value::Object(keys.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>())
        }
        other => other,
    }
}
