//! The head of a run: all its data except the measurements. Also the checksums of rows.

use iotax_model::record::{Environment, FleetMember, ImportSource, RunPhase, TargetRecord};
use iotax_model::{Plan, Run, RunState, Warning};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// A run's data without its measurements.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    /// The run's UUID, which is the same in all copies of the run.
    pub(crate) uuid: String,
    /// Number of the state of the run: 1 at its creation, incremented by each change.
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
    /// Converts to a [`Run`] with the number `id` and without measurements.
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
            source: self.source.into(),
            fleet: self.fleet,
            store: None,
        }
    }
}

/// The number of a run's measurements, and the sum of their checksums. These checksums do not depend on the run's number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measured {
    pub(crate) count: u64,
    /// Sum of the measurements' checksums, modulo 2^64.
    seals: u64,
}

impl Measured {
    /// Counts a measurement with this checksum.
    pub(crate) fn add(&mut self, seal: u64) {
        self.count += 1;
        self.seals = self.seals.wrapping_add(seal);
    }
}

/// Computes the checksum of a row of a run. Depends on the run's number and on the boundaries between the parts.
pub(crate) fn seal(run: i64, parts: &[&[u8]]) -> i64 {
    let mut hash = Xxh3::with_seed(run.cast_unsigned());
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest().cast_signed()
}

/// Replaces NUL characters by U+FFFD, so that both databases store the same text: PostgreSQL cannot store NUL in texts.
pub(crate) fn column(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
