//! Settings for running a plan on several machines, and the division of its rates among them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Plan, PlanError};
use crate::record::FleetMode;
use crate::units::Bytes;

/// The table `[fleet]` of a plan file, for `iotax fleet run`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FleetSpec {
    /// Storage that the members measure: each member its own, or all members the same shared storage [default: each]
    pub mode: FleetMode,
    /// Scope of the plan's rates if the members share one storage: all members together, or each member [default: whole]
    pub rates: FleetRates,
}

/// Scope of a plan's rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FleetRates {
    /// All members together; each gets its share.
    #[default]
    Whole,
    /// Each member by itself; every member gets the full rates.
    Each,
}

impl Plan {
    /// Divides the rates of all workloads among `members` machines, and keeps the share of the machine with index `index`, from 0. All
    /// shares add up to the plan's rates.
    ///
    /// # Errors
    /// A machine would get less than one I/O or byte per second.
    pub fn divide_rates(&mut self, index: u64, members: u64) -> Result<(), PlanError> {
        let share = |key: &str, whole: u64| match whole / members.max(1)
            + u64::from(index < whole % members.max(1))
        {
            0 => Err(PlanError::Content(format!(
                "{key} = {whole}: it is for all {members} members together and gives some of them none; raise it, or set rates = \"each\" \
                 in [fleet]"
            ))),
            share => Ok(share),
        };
        for workload in &mut self.workloads {
            let (first, beside) = (&mut workload.rate_iops, &mut workload.rate);
            divide(first, beside, &share)?;
            for job in &mut workload.beside {
                divide(&mut job.rate_iops, &mut job.rate, &share)?;
            }
        }
        Ok(())
    }
}

fn divide(
    iops: &mut Option<u64>,
    bytes: &mut Option<Bytes>,
    share: &impl Fn(&str, u64) -> Result<u64, PlanError>,
) -> Result<(), PlanError> {
    *iops = iops.map(|whole| share("rate_iops", whole)).transpose()?;
    *bytes = bytes.map(|whole| share("rate", whole.0)).transpose()?.map(Bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: u64) -> Plan {
        Plan::from_toml(&format!(
            "[[target]]\nname = \"a\"\npath = \"/a\"\n[[workload]]\nrw = \"read\"\nrate_iops = {rate}\n"
        ))
        .expect("a plan")
    }

    #[test]
    fn the_shares_add_up_to_the_whole() {
        let shares: Vec<u64> = (0..7)
            .map(|index| {
                let mut plan = plan(100);
                plan.divide_rates(index, 7).expect("enough");
                plan.workloads[0].rate_iops.expect("a rate")
            })
            .collect();
        assert_eq!(shares, [15, 15, 14, 14, 14, 14, 14]);
        let refused = plan(3).divide_rates(3, 7).expect_err("none is left").to_string();
        assert!(refused.contains("rate_iops = 3") && refused.contains("7 members"), "{refused}");
    }
}
