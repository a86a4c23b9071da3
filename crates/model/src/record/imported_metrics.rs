//! Metrics that other tools reported, as imported into a run.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// Metrics as their source reports them, converted to iotax's units.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportedMetrics {
    /// Metrics that iotax defines too, by id: `iops`, `bytes_per_s`, `latency_mean` in nanoseconds ...
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Metrics that iotax does not define, in the source's order.
    #[serde(default)]
    pub others: Vec<ImportedMetric>,
}

/// A metric that iotax does not define.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportedMetric {
    /// The metric's name in the source.
    pub name: String,
    /// The metric's value.
    pub value: f64,
    /// The unit as written in the source: `%`, `lps`, `ms`; empty without one.
    #[serde(default)]
    pub unit: String,
}

words! {
    /// The origin of the start time of an imported run.
    Dated, "origin of a time" {
        /// The source file, with its offset from UTC.
        BySource = "source",
        /// The source file, without a time zone: UTC is assumed.
        BySourceWithoutZone = "source-without-zone",
        /// The time of the import, because the source file has no time.
        ByImport = "import",
    }
}

/// The origin of a run's figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RunSource {
    /// iotax measured them.
    #[default]
    Measured,
    /// Another tool measured them.
    Imported(ImportSource),
}

impl RunSource {
    /// Returns the source of an imported run; `None` for a run that iotax measured.
    #[must_use]
    pub const fn imported(&self) -> Option<&ImportSource> {
        match self {
            Self::Measured => None,
            Self::Imported(source) => Some(source),
        }
    }

    /// Returns whether another tool measured the run.
    #[must_use]
    pub const fn is_imported(&self) -> bool {
        self.imported().is_some()
    }
}

impl From<Option<ImportSource>> for RunSource {
    fn from(source: Option<ImportSource>) -> Self {
        source.map_or(Self::Measured, Self::Imported)
    }
}

/// The tool and files of an imported run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportSource {
    /// The tool's name: `fio`, `bonnie++`, `iperf3`.
    pub tool: String,
    /// The tool's version; absent if the source does not state it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// The names of the imported files.
    pub files: Vec<String>,
    /// The origin of the run's start time; absent in runs imported by versions of iotax that did not record it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dated: Option<Dated>,
    /// The keys that the source states for each workload, by the workload's name. All other keys in the plan are defaults without meaning.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub known: BTreeMap<String, Vec<String>>,
    /// Lines that the import could not parse: `FILE:LINE: text`.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub not_understood: Vec<String>,
}

impl ImportSource {
    /// Returns a sentence on the uncertain start time of the run. `None` if the source states the time with its offset from UTC, or if the origin of
    /// the time was not recorded.
    #[must_use]
    pub fn about_time(&self) -> Option<String> {
        match self.dated? {
            Dated::BySource => None,
            Dated::BySourceWithoutZone => {
                Some(format!("The clock of {} has no zone: its times are taken as UTC.", self.tool))
            }
            Dated::ByImport => {
                Some(format!("{} does not tell when: the run has the import's time.", self.tool))
            }
        }
    }

    /// Returns the name of the tool, with its version if known: `fio 3.33`.
    #[must_use]
    pub fn tool(&self) -> String {
        match &self.version {
            Some(version) => format!("{} {version}", self.tool),
            None => self.tool.clone(),
        }
    }
}

/// Prints as `imported from fio 3.33 (randread.json)`.
impl fmt::Display for ImportSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "imported from {} ({})", self.tool(), self.files.join(", "))
    }
}
