//! Finds the plan keys in which two targets differ.

use std::fmt;

use serde::Serialize;
use toml::{Table, Value};

use crate::target::TargetSpec;

/// A plan key in which a target differs from another target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TargetDifference {
    /// The dotted key, such as `guest.cache`.
    pub key: String,
    /// The key's value in the target; `None` if only the other target sets the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl fmt::Display for TargetDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => write!(f, "no {}", self.key),
            Some(Value::Table(_)) => write!(f, "with {}", self.key),
            Some(value) => write!(f, "{} = {value}", self.key),
        }
    }
}

/// Lists the keys in which `one` differs from `other`, ignoring names, and counts them. A table that only one of the targets has is listed once and
/// counts as many keys as it has.
pub(super) fn between(one: &TargetSpec, other: &TargetSpec) -> (Vec<TargetDifference>, usize) {
    let keys = |target| {
        let mut keys = Table::try_from(target).unwrap_or_default();
        keys.remove("name");
        keys
    };
    let mut found = Vec::new();
    let number = compare(&keys(one), &keys(other), "", &mut found);
    (found, number)
}

fn compare(one: &Table, other: &Table, path: &str, found: &mut Vec<TargetDifference>) -> usize {
    let mut number = 0;
    for (key, value) in one {
        match (value, other.get(key)) {
            (Value::Table(inner), Some(Value::Table(others))) => {
                number += compare(inner, others, &format!("{path}{key}."), found);
            }
            (_, Some(same)) if same == value => {}
            _ => {
                found.push(TargetDifference { key: format!("{path}{key}"), value: Some(value.clone()) });
                number += keys_in(value);
            }
        }
    }
    for (key, value) in other.iter().filter(|(key, _)| !one.contains_key(*key)) {
        found.push(TargetDifference { key: format!("{path}{key}"), value: None });
        number += keys_in(value);
    }
    number
}

fn keys_in(value: &Value) -> usize {
    value.as_table().map_or(1, Table::len)
}
