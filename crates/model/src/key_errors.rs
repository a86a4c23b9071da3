//! Rewords parser errors about keys and values in the terms of plan files.

use crate::words::nearest;
use crate::workload::KEYS;

/// Key names from other tools, each with iotax's name for that key: hints where the spelling is too different for [`nearest`].
const ELSEWHERE: [(&str, &str); 5] = [
    ("block_size", "bs"),
    ("blocksize", "bs"),
    ("queue_depth", "iodepth"),
    ("duration", "runtime"),
    ("rounds", "repeat"),
];

/// Rewords an error of serde in the terms of plan files: names TOML values instead of Rust types, and suggests the nearest key or lists the
/// accepted ones. Returns errors of other forms unchanged.
pub(crate) fn in_our_words(message: &str) -> String {
    // unknown field `bz`, expected one of `bs`, `rw`
    if let Some((unknown, known)) =
        message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'))
    {
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == unknown).map(|(_, key)| *key);
        let near = elsewhere.filter(|key| known.contains(key));
        let is_of_workload = KEYS.iter().any(|key| key.name == unknown) && !known.contains(&"bs");
        if near.is_none() && is_of_workload {
            return format!("`{unknown}` is not a key here; it belongs to a [[workload]] or to [defaults]");
        }
        return match near.or_else(|| nearest(unknown, known.iter().copied())) {
            Some(near) => format!("`{unknown}` is not a key here; did you mean `{near}`?"),
            None => format!("`{unknown}` is not a key here; accepted: {}", known.join(", ")),
        };
    }
    if let Some(key) = message.strip_prefix("missing field ") {
        return format!("{key} is missing");
    }
    let Some((found, expected)) = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.rsplit_once(", expected "))
    else {
        return message.to_owned();
    };
    let accepted = match expected {
        "u8" | "u16" | "u32" | "u64" if found.starts_with("string") => "a whole number, without quotes",
        "u8" | "u16" | "u32" | "u64" => "a whole number",
        "a boolean" => "true or false",
        "a string" | "path string" => "text in quotes",
        other => other.strip_prefix("struct ").map_or(other, |_| "a table, { key = value }"),
    };
    format!("{found} does not belong here; accepted: {accepted}")
}
