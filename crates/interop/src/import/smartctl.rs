//! Reads `smartctl --json`: the health of a device, which is stored as context next to results.

use super::json_tree::{self, Value};
use super::nvme::{DATA_UNIT, keep, whole};
use super::{Entry, Found, Stamp};

/// Figures: path in the JSON, name, unit, and factor to this unit. If a name occurs twice, the first path that exists is used.
const FIGURES: [(&[&str], &str, &str, f64); 21] = [
    (&["temperature", "current"], "temperature", "\u{b0}C", 1.0),
    (&["power_on_time", "hours"], "power on hours", "h", 1.0),
    (&["power_cycle_count"], "power cycles", "", 1.0),
    (&[NVME, "critical_warning"], "critical warning", "", 1.0),
    (&[NVME, "temperature"], "temperature", "\u{b0}C", 1.0),
    (&[NVME, "available_spare"], "available spare", "%", 1.0),
    (&[NVME, "available_spare_threshold"], "available spare threshold", "%", 1.0),
    (&[NVME, "percentage_used"], "percentage used", "%", 1.0),
    (&[NVME, "data_units_read"], "data read", "B", DATA_UNIT),
    (&[NVME, "data_units_written"], "data written", "B", DATA_UNIT),
    (&[NVME, "host_reads"], "host read commands", "", 1.0),
    (&[NVME, "host_writes"], "host write commands", "", 1.0),
    (&[NVME, "controller_busy_time"], "controller busy time", "min", 1.0),
    (&[NVME, "power_cycles"], "power cycles", "", 1.0),
    (&[NVME, "power_on_hours"], "power on hours", "h", 1.0),
    (&[NVME, "unsafe_shutdowns"], "unsafe shutdowns", "", 1.0),
    (&[NVME, "media_errors"], "media errors", "", 1.0),
    (&[NVME, "num_err_log_entries"], "error log entries", "", 1.0),
    (&["endurance_used", "current_percent"], "percentage used", "%", 1.0),
    (&["scsi_grown_defect_list"], "grown defects", "", 1.0),
    (&["rotation_rate"], "rotation rate", "rpm", 1.0),
];

const NVME: &str = "nvme_smart_health_information_log";

/// Finds device states that smartctl printed in a text; `None` if the text has no output of smartctl.
pub(super) fn read(text: &str) -> Option<Found> {
    if !text.contains("\"smartctl\"") {
        return None;
    }
    let mut found = Found { tool: "smartctl", ..Found::default() };
    json_tree::objects(text, &mut |line, object| {
        let marks = ["\"json_format_version\"", "\"smartctl\""];
        let Some(object) = object.or_torn(line, &marks, &mut found) else { return };
        if object.get("smartctl").is_map() && !found.is_cut {
            state(object, line, &mut found);
        }
    });
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

fn state(object: Value<'_>, line: usize, found: &mut Found) {
    let parts = object.at(&["smartctl", "version"]).items().filter_map(Value::u64);
    let version = parts.map(|part| part.to_string()).collect::<Vec<_>>().join(".");
    found.version = Some(version).filter(|version| !version.is_empty()).or(found.version.take());
    let mut entry = Entry { line, ..Entry::default() };
    entry.target = object.at(&["device", "name"]).string();
    entry.time = object
        .at(&["local_time", "time_t"])
        .u64()
        .and_then(|seconds| Stamp::since_1970(seconds.checked_mul(1000)?));
    for (path, name, unit, factor) in FIGURES {
        let is_known = entry.stated.others.iter().any(|figure| figure.name == name);
        let value = whole(object.at(path)).filter(|_| !is_known);
        entry.add(name, value.map(|value| value * factor), unit);
    }
    for attribute in object.at(&["ata_smart_attributes", "table"]).items() {
        if let Some(name) = attribute.get("name").string() {
            // The meaning of a raw value depends on the vendor.
            entry.add(format!("{name} raw"), attribute.at(&["raw", "value"]).f64(), "");
            entry.add(format!("{name} normalized"), attribute.get("value").f64(), "");
        }
    }
    let names = [("model_name", "model"), ("firmware_version", "firmware")];
    let about = names.iter().filter_map(|(key, name)| Some(format!("{name} {}", object.get(key).string()?)));
    let about: Vec<String> = about.collect();
    if !about.is_empty() {
        entry.notes.push(about.join(", "));
    }
    match object.at(&["smart_status", "passed"]).to_string().as_str() {
        "true" => entry.notes.push("the device calls its health passed".into()),
        "false" => entry.notes.push("the device calls its health FAILED".into()),
        _ => {}
    }
    keep(Some(entry), found);
}
