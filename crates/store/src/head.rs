//! The head of a run, which is everything except its measurements, and checksums of rows.

use iotax_model::record::{Environment, FleetMember, ImportSource, RunPhase, TargetRecord};
use iotax_model::{Plan, Run, RunState, Warning};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// A run without its measurements.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    /// The run's UUID, which is the same in all copies.
    pub(crate) uuid: String,
    /// Incremented by each change.
    pub(crate) revision: u64,
    pub(crate) plan: Plan,
    pub(crate) seed: u64,
    pub(crate) started_at_ms: u64,
    pub(crate) state: RunState,
    pub(crate) environment: Environment,
    pub(crate) targets: Vec<TargetRecord>,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) phases: Vec<RunPhase>,
    pub(crate) source: Option<ImportSource>,
    pub(crate) fleet: Option<FleetMember>,
    pub(crate) measured: Measured,
}

impl Head {
    /// Converts to a [`Run`] with this number, without measurements, in the stored state.
    pub(crate) fn run(self, id: i64) -> Run {
        Run {
            id,
            state: self.state,
            seed: self.seed,
            started_at_ms: self.started_at_ms,
            plan: self.plan,
            environment: self.environment,
            targets: self.targets,
            measurements: Vec::new(),
            warnings: self.warnings,
            phases: self.phases,
            source: self.source,
            fleet: self.fleet,
            store: None,
        }
    }
}

/// Number and checksum total of a run's measurements. The checksums do not depend on the run's number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measured {
    pub(crate) count: u64,
    /// Sum of the measurements' checksums.
    seals: u64,
}

impl Measured {
    /// Adds a measurement with this checksum.
    pub(crate) fn add(&mut self, seal: u64) {
        self.count += 1;
        self.seals = self.seals.wrapping_add(seal);
    }
}

/// Checksum of a row of a run. It depends on the run's number and on how the data is divided into parts.
pub(crate) fn seal(run: i64, parts: &[&[u8]]) -> i64 {
    let mut hash = Xxh3::with_seed(run.cast_unsigned());
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest().cast_signed()
}

/// Replaces NUL, which PostgreSQL's texts cannot contain, so that both databases store the same.
pub(crate) fn column(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
