//! Frames as JSON, one document per frame (docs/top.md). Its JSON Schema is `crates/top/schema/iotax-top-1.schema.json`.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::rates::{CgroupRates, Frame, GuestRates, InterfaceRates, LayerRates, PressureRates, ProcessRates};
use crate::raw::PercentileSource;
use crate::table::utc;

/// Version of the JSON format, which each document names.
pub const SCHEMA: u32 = 1;

/// The document of a frame; unknown figures have no key.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "One interval of iotax top")]
pub struct TopDocument<'a> {
    /// Version of the format.
    #[schemars(extend("const" = SCHEMA))]
    iotax_top: u32,
    /// End of the interval, UTC.
    at: Option<String>,
    /// End of the interval in milliseconds since 1970-01-01 UTC.
    at_ms: Option<u64>,
    /// Length of the interval in nanoseconds.
    interval_ns: Option<u64>,
    /// The source of latency percentiles.
    percentiles: PercentileEntry<'a>,
    /// Block devices in stack order.
    layers: &'a [LayerRates],
    /// Guests; the row of each guest is followed by the rows of its disks.
    guests: &'a [GuestRates],
    /// Processes with I/O in the interval, the busiest first.
    processes: &'a [ProcessRates],
    /// Control groups with I/O in the interval, the busiest first.
    cgroups: &'a [CgroupRates],
    /// Network interfaces.
    interfaces: &'a [InterfaceRates],
    /// Shares of time in which tasks were stalled.
    pressure: Option<PressureRates>,
    /// Sources that could not be read, each with the reason.
    remarks: &'a [String],
}

#[derive(Serialize, JsonSchema)]
struct PercentileEntry<'a> {
    /// `bpf`, or `unknown` if there are no percentiles.
    #[schemars(extend("enum" = ["bpf", "unknown"]))]
    source: &'static str,
    /// The reason why there are none.
    reason: Option<&'a str>,
}

/// Returns a frame's JSON document; unknown figures have no key.
#[must_use]
pub fn document(frame: &Frame) -> Value {
    let (source, reason) = match &frame.percentiles {
        PercentileSource::Bpf => ("bpf", None),
        PercentileSource::Unknown(reason) => ("unknown", Some(reason.as_str())),
        PercentileSource::NotReported => ("unknown", None),
    };
    let document = TopDocument {
        iotax_top: SCHEMA,
        at: frame.at_ms.map(utc),
        at_ms: frame.at_ms,
        interval_ns: frame.interval_ns,
        percentiles: PercentileEntry { source, reason },
        layers: &frame.layers,
        guests: &frame.guests,
        processes: &frame.processes,
        cgroups: &frame.cgroups,
        interfaces: &frame.interfaces,
        pressure: frame.pressure,
        remarks: &frame.remarks,
    };
    let mut document = serde_json::to_value(document).expect("numbers, texts and lists");
    remove_null(&mut document);
    document
}

/// Removes keys whose values are unknown, and figures that are not finite, which become null in JSON.
fn remove_null(document: &mut Value) {
    match document {
        Value::Object(keys) => {
            keys.retain(|_, value| !value.is_null());
            keys.values_mut().for_each(remove_null);
        }
        Value::Array(rows) => rows.iter_mut().for_each(remove_null),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use iotax_testkit::documents::is_published;

    #[test]
    fn the_published_schema_is_that_of_the_type() {
        let schema =
            iotax_model::json_schema::of_document::<super::TopDocument<'_>>("iotax-top-1.schema.json");
        is_published(concat!(env!("CARGO_MANIFEST_DIR"), "/schema/iotax-top-1.schema.json"), &schema);
    }
}
