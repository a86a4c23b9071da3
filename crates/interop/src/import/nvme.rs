//! Reads `nvme smart-log`, text and JSON: the health of a device, which is stored as context next to results.

use super::json_tree::{self, Value};
use super::lines::lines;
use super::parse_util::not_understood;
use super::{Entry, Found};

/// Note that marks an entry as device state.
pub(super) const CONTEXT: &str = "the state of a device, no result of a measurement";

/// Bytes per data unit: 1000 blocks of 512 bytes.
pub(super) const DATA_UNIT: f64 = 512_000.0;

/// 0 °C in kelvin, rounded as by nvme-cli.
const FREEZING: f64 = 273.0;

/// Fields: name in text (lower case, with `_`), name in JSON, name of the figure, unit, and factor to this unit.
const FIELDS: [(&str, &str, &str, &str, f64); 14] = [
    ("critical_warning", "critical_warning", "critical warning", "", 1.0),
    ("available_spare", "avail_spare", "available spare", "%", 1.0),
    ("available_spare_threshold", "spare_thresh", "available spare threshold", "%", 1.0),
    ("percentage_used", "percent_used", "percentage used", "%", 1.0),
    ("data_units_read", "data_units_read", "data read", "B", DATA_UNIT),
    ("data_units_written", "data_units_written", "data written", "B", DATA_UNIT),
    ("host_read_commands", "host_read_commands", "host read commands", "", 1.0),
    ("host_write_commands", "host_write_commands", "host write commands", "", 1.0),
    ("controller_busy_time", "controller_busy_time", "controller busy time", "min", 1.0),
    ("power_cycles", "power_cycles", "power cycles", "", 1.0),
    ("power_on_hours", "power_on_hours", "power on hours", "h", 1.0),
    ("unsafe_shutdowns", "unsafe_shutdowns", "unsafe shutdowns", "", 1.0),
    ("media_errors", "media_errors", "media errors", "", 1.0),
    ("num_err_log_entries", "num_err_log_entries", "error log entries", "", 1.0),
];

/// Finds device states of `nvme smart-log` in a text; `None` if the text has no output of `nvme smart-log`.
pub(super) fn read(text: &str) -> Option<Found> {
    let mut found = Found { tool: "nvme smart-log", ..Found::default() };
    if text.contains("Smart Log for NVM") {
        of_text(text, &mut found);
    }
    if text.contains("\"avail_spare\"") {
        of_json(text, &mut found);
    }
    (!found.entries.is_empty() || !found.not_understood.is_empty()).then_some(found)
}

fn of_text(text: &str, found: &mut Found) {
    let mut state: Option<Entry> = None;
    for (i, line) in lines(text).enumerate() {
        if found.is_cut {
            return;
        }
        let plain = line.trim();
        if let Some((_, device)) = plain.split_once("Smart Log for NVM") {
            keep(state.take(), found);
            let device = device
                .split_once("device:")
                .map(|(_, name)| name.split_whitespace().next().unwrap_or_default());
            state = Some(Entry { target: device.map(str::to_owned), line: i + 1, ..Entry::default() });
        } else if let (Some(entry), Some((key, value))) = (&mut state, plain.split_once(':')) {
            let key = key.trim().to_ascii_lowercase().replace(' ', "_");
            let value = value.trim();
            if key == "temperature" || key.starts_with("temperature_sensor_") {
                match celsius(value) {
                    Some(degrees) => entry.add(key.replace('_', " "), Some(degrees), "\u{b0}C"),
                    None => found.miss(not_understood(i + 1, line, "no temperature in C")),
                }
            } else if let Some((_, _, name, unit, factor)) = FIELDS.iter().find(|(known, ..)| *known == key) {
                let is_again = entry.stated.others.iter().any(|figure| figure.name == *name);
                match count(value).filter(|_| !is_again) {
                    Some(value) => entry.add(*name, Some(value * factor), unit),
                    None => found.miss(not_understood(i + 1, line, "no whole number, or a second one")),
                }
            }
        }
    }
    keep(state, found);
}

/// Parses a temperature in °C: `38 C`, `38°C (311 K)`, `38 °C (100 °F, 311 K)`.
fn celsius(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-')?;
    let (value, unit) = text.split_at(end);
    let unit = unit.trim_start().trim_start_matches(['\u{b0}', '\u{ba}']);
    let is_celsius = unit.starts_with('C') && !unit.starts_with("Ce") || unit.starts_with("Celsius");
    value.parse::<i32>().ok().filter(|_| is_celsius).map(f64::from)
}

/// Parses a number such as `1,234,567 (632.10 GB)`, `10%` or `0x4`; accepts any locale's thousands separator.
fn count(text: &str) -> Option<f64> {
    let text = text.split(" (").next()?.trim();
    if let Some(hex) = text.strip_prefix("0x") {
        return u32::from_str_radix(hex, 16).ok().map(f64::from);
    }
    let text = text.strip_suffix('%').unwrap_or(text).trim_end();
    let groups: Vec<&str> = text.split([',', '.', '\'', ' ']).collect();
    let is_digits = |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_grouped =
        groups[1..].iter().all(|group| group.len() == 3) && (groups.len() == 1 || groups[0].len() <= 3);
    let is_count = is_grouped && groups.iter().all(is_digits);
    is_count.then(|| groups.concat().parse().ok()).flatten()
}

fn of_json(text: &str, found: &mut Found) {
    json_tree::objects(text, &mut |line, object| {
        let marks = ["\"avail_spare\"", "\"percent_used\""];
        let Some(object) = object.or_torn(line, &marks, found) else { return };
        if object.get("avail_spare").is_null() || object.get("percent_used").is_null() {
            return;
        }
        let mut entry = Entry { line, ..Entry::default() };
        for (key, value) in object.entries() {
            let is_sensor = key.starts_with("temperature_sensor_");
            if is_sensor || key == "temperature" {
                // 0 marks a missing sensor.
                let kelvin = whole(value).filter(|kelvin| *kelvin > 0.0);
                entry.add(key.replace('_', " "), kelvin.map(|kelvin| kelvin - FREEZING), "\u{b0}C");
            }
        }
        for (_, key, name, unit, factor) in FIELDS {
            entry.add(name, whole(object.get(key)).map(|value| value * factor), unit);
        }
        keep(Some(entry), found);
    });
}

/// Parses a whole number in JSON, which nvme-cli quotes if it is large.
pub(super) fn whole(value: Value<'_>) -> Option<f64> {
    value.f64().or_else(|| value.text().and_then(|text| count(&text)))
}

/// Stores a device's state. A later state of the same device gets a number in its name, because it is not a repetition.
pub(super) fn keep(state: Option<Entry>, found: &mut Found) {
    let Some(mut entry) = state else { return };
    if entry.stated.others.is_empty() {
        return found.miss(not_understood(entry.line, "", "a log without any figure"));
    }
    let before =
        found.entries.iter().rev().take(MOST_STATES).filter(|known| known.target == entry.target).count();
    entry.workload = if before == 0 { "state".into() } else { format!("state {}", before + 1) };
    entry.notes.push(CONTEXT.into());
    let warning =
        entry.stated.others.iter().find(|figure| figure.name == "critical warning" && figure.value > 0.0);
    if let Some(warning) = warning {
        let note = format!("the device warns: critical_warning is {}", warning.value);
        entry.notes.push(note);
    }
    found.keep(entry);
}

/// Maximum number of preceding states that are searched for states of the same device.
const MOST_STATES: usize = 100;
