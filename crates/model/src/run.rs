//! A run: a plan, the machine that carried it out, and all measurements.

use std::fmt::{self, Write as _};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Design, STEADY_WINDOW};
use crate::record::{Environment, FleetMember, Measurement, RunPhase, RunSource, TargetRecord};
use crate::target::NbdExportSpec;
use crate::{Plan, Warning};

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// A process is carrying out the plan.
    Running,
    /// The plan was carried out to its end.
    Complete,
    /// Stopped by the user, or its process was killed; it can be resumed.
    Interrupted,
    /// Stopped by an error; it can be resumed.
    Failed,
}

impl RunState {
    /// Returns the state as a word for reports: `running`, `complete`, `interrupted`, `failed`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A stored run, finished or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The run's number in its store, from 1.
    pub id: i64,
    /// State of the run: running, complete, interrupted or failed.
    pub state: RunState,
    /// Seed that determined the order of measurements, the offsets and the payload.
    pub seed: u64,
    /// Start time in milliseconds since 1970-01-01 UTC.
    pub started_at_ms: u64,
    /// The plan that the run follows.
    pub plan: Plan,
    /// The machine that measured. All fields are absent until the machine has been inspected.
    pub environment: Environment,
    /// The targets that were built, in the plan's order.
    pub targets: Vec<TargetRecord>,
    /// The measurements in the order of execution.
    pub measurements: Vec<Measurement>,
    /// Warnings in the order in which they were raised during the run.
    pub warnings: Vec<Warning>,
    /// Wall time spent in each phase of the run.
    pub phases: Vec<RunPhase>,
    /// The origin of the figures: iotax itself, or another tool.
    pub source: RunSource,
    /// The fleet that the run is part of, and its member; `None` for a run outside of fleets.
    pub fleet: Option<FleetMember>,
    /// Path of the store that the run was read from, as the user gave it; `None` for the default store.
    pub store: Option<String>,
}

/// Formats an iotax command line that can be pasted into a shell: `iotax report 17 --detail --db FILE`. `word` is the subcommand, `subject`
/// a run's number or a path, `store` the argument of `--db`. Empty parts are left out.
#[must_use]
pub fn command(word: &str, subject: &str, options: &str, store: Option<&str>) -> String {
    let store = store.map(|store| format!("--db {}", quoted(store)));
    let words = ["iotax", word, subject, options, store.as_deref().unwrap_or_default()]
        .into_iter()
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect::<Vec<_>>();
    words.join(" ")
}

/// Quotes a word for the shell if it contains special characters or is empty.
#[must_use]
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl Run {
    /// Formats a command about this run that can be pasted into a shell. A `resume` command repeats the user's consent (`--overwrite`) for
    /// the local devices and, if a workload writes, for the NBD exports of the plan.
    #[must_use]
    pub fn command(&self, word: &str, options: &str) -> String {
        let mut options = options.to_owned();
        if word == "resume" {
            let local = self.plan.everything().filter(|target| target.remote().is_none());
            let mut devices: Vec<_> = local.filter_map(|target| target.device()).collect();
            devices.dedup();
            for device in devices {
                let _ = write!(options, " --overwrite {}", quoted(&device.to_string_lossy()));
            }
            let beside = self.plan.neighbours.iter().map(|neighbour| &neighbour.workload);
            let writes = self.plan.workloads.iter().chain(beside).any(crate::Workload::modifies);
            let exports = self.plan.everything().filter_map(|target| target.stack.find::<NbdExportSpec>());
            for export in exports.filter(|_| writes) {
                let _ = write!(options, " --overwrite {}", quoted(&export.to_string()));
            }
        }
        command(word, &self.id.to_string(), options.trim_start(), self.store.as_deref())
    }
}

impl Run {
    /// Returns the measurements that results are computed from: all, or those of the last five rounds if the plan waits for a steady state.
    pub fn measured(&self) -> impl Iterator<Item = &Measurement> {
        let first = self.first_measured_round();
        self.measurements.iter().filter(move |m| m.round >= first)
    }

    /// Returns the number of the first round that results are computed from.
    #[must_use]
    pub fn first_measured_round(&self) -> u32 {
        match &self.plan.design {
            Design::UntilSteady(_) => {
                let last = self.measurements.iter().map(|m| m.round).max().unwrap_or(0);
                last.saturating_sub(STEADY_WINDOW) + 1
            }
            Design::FixedRounds
            | Design::UntilDecided(_)
            | Design::Curve(_)
            | Design::Ask(_)
            | Design::Watch(_) => 1,
        }
    }

    /// Copies the run without its measurements.
    #[must_use]
    pub fn without_measurements(&self) -> Self {
        Self {
            id: self.id,
            state: self.state,
            seed: self.seed,
            started_at_ms: self.started_at_ms,
            plan: self.plan.clone(),
            environment: self.environment.clone(),
            targets: self.targets.clone(),
            measurements: Vec::new(),
            warnings: self.warnings.clone(),
            phases: self.phases.clone(),
            source: self.source.clone(),
            fleet: self.fleet.clone(),
            store: self.store.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_what_a_shell_takes() {
        for (store, line) in [
            (None, "iotax report 17 --detail"),
            (Some("/srv/x.db"), "iotax report 17 --detail --db /srv/x.db"),
            (Some("my runs.db"), "iotax report 17 --detail --db 'my runs.db'"),
            (Some("it's"), r"iotax report 17 --detail --db 'it'\''s'"),
        ] {
            assert_eq!(command("report", "17", "--detail", store), line);
        }
        assert_eq!(command("resume", "3", "", None), "iotax resume 3");
    }

    #[test]
    fn an_export_that_only_a_neighbour_writes_is_named_again() {
        let plan = |rw: &str| {
            crate::Plan::from_toml(&format!(
                r#"
                [[workload]]
                rw = "read"
                [[target]]
                name = "a"
                stack = "/srv > raw file"
                neighbour = "n"
                [[neighbour]]
                target = {{ name = "n", stack = "nbd://host/other > virtio" }}
                workload = {{ rw = "{rw}" }}
                "#
            ))
            .expect("valid")
        };
        let said = |rw: &str| {
            let run = Run {
                id: 3,
                state: RunState::Interrupted,
                seed: 1,
                started_at_ms: 0,
                plan: plan(rw),
                environment: Environment::default(),
                targets: Vec::new(),
                measurements: Vec::new(),
                warnings: Vec::new(),
                phases: Vec::new(),
                source: RunSource::Measured,
                fleet: None,
                store: None,
            };
            run.command("resume", "")
        };
        assert_eq!(said("read"), "iotax resume 3");
        assert!(said("write").contains("--overwrite nbd://host/other"), "{}", said("write"));
    }
}
