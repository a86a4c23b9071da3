//! What other tools state of their measurements.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Figures as their source states them, converted to our units and otherwise untouched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stated {
    /// Those that are a metric of ours, by its word: `iops`, `bytes_per_s`, `latency_mean` in nanoseconds ...
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// The others, in the source's order.
    #[serde(default)]
    pub others: Vec<Figure>,
}

/// A figure that no metric of ours is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// What its source calls it.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Its unit as a source writes it: `%`, `lps`, `ms`; empty if it has none.
    #[serde(default)]
    pub unit: String,
}

/// Where an imported run comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The tool that measured, by its own name: `fio`, `bonnie++`, `iperf3`.
    pub tool: String,
    /// Its version, where the source tells.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// The files that were read, by name.
    pub files: Vec<String>,
    /// The keys of each workload that its source tells, by the workload's name; every other key in the plan is a default and says
    /// nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub known: BTreeMap<String, Vec<String>>,
    /// What was not understood: `FILE:LINE: text`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_understood: Vec<String>,
}

impl Source {
    /// The tool with its version, where that is known: `fio 3.33`.
    #[must_use]
    pub fn tool(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.tool),
            None => self.tool.clone(),
        }
    }
}

/// `imported from fio 3.33 (randread.json)`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imported from {} ({})", self.tool(), self.files.join(", "))
    }
}
