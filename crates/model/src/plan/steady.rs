//! SNIA's rule for when a device has reached a steady state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Plan, PlanError};
use crate::units::Bytes;

/// Number of consecutive rounds on which the steady state is judged.
pub const STEADY_WINDOW: u32 = 5;

/// Maximum range (highest minus lowest) of the values of five rounds, as a share of their mean.
pub const STEADY_RANGE: f64 = 0.20;

/// Maximum range of the linear fit through the values of five rounds, as a share of their mean.
pub const STEADY_SLOPE: f64 = 0.10;

/// Default maximum number of rounds, taken from SNIA's specification.
pub const MOST_STEADY_ROUNDS: u32 = 25;

/// Adds rounds until every target is in a steady state on every workload, or `max_rounds` is reached. The rule is that of SNIA's Solid
/// State Storage Performance Test Specification (version 2.0.2, section 2.1.24): over five rounds the values range over at most 20% of
/// their mean, and their linear fit over at most 10%. Only the last five rounds are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UntilSteady {
    /// Maximum number of rounds, steady or not
    #[serde(default = "default_max_rounds")]
    pub max_rounds: u32,
    /// Maximum number of bytes written to each physical disk by all targets on it, their filling included: no round begins that would write
    /// more. Required above the length of the smallest device that `--overwrite` names, which is the default with such devices; without them
    /// there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_write: Option<Bytes>,
}

fn default_max_rounds() -> u32 {
    MOST_STEADY_ROUNDS
}

impl Default for UntilSteady {
    fn default() -> Self {
        Self { max_rounds: MOST_STEADY_ROUNDS, may_write: None }
    }
}

impl UntilSteady {
    /// Rejects `repeat` below [`STEADY_WINDOW`], `max_rounds` below `repeat` or above 1000, and background loads that write, which
    /// `may_write` would not limit.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), PlanError> {
        let repeat = plan.repeat;
        if repeat < STEADY_WINDOW {
            return Err(PlanError::Content(format!(
                "repeat = {repeat}: a steady state is seen over {STEADY_WINDOW} rounds; accepted: {STEADY_WINDOW} or more"
            )));
        }
        if self.max_rounds < repeat || self.max_rounds > super::until::MOST_ROUNDS {
            return Err(PlanError::Content(format!(
                "max_rounds = {}: accepted: from repeat = {repeat} to {}",
                self.max_rounds,
                super::until::MOST_ROUNDS
            )));
        }
        match plan.neighbours.iter().find(|neighbour| neighbour.workload.modifies()) {
            Some(neighbour) => {
                let reason = "until_steady: a background load that writes would not count toward may_write; accepted: one that reads";
                Err(neighbour.target.refused(reason.into()).into())
            }
            None => Ok(()),
        }
    }
}
