//! Consent to wear: the bytes that a run until a steady state writes to devices are limited, and shown before the run.

use iotax_model::Workload;
use iotax_model::plan::{Design, Plan};
use iotax_model::units::{Bytes, human};
use iotax_testbed::target::preflight::OverwrittenNeed;

use super::{Failure, usage};

/// Limits what a run until a steady state writes: to the plan's `may_write`, or to the length of the smallest device that it overwrites. Returns
/// a line for each such device. Fails if a device may be written with no more than what it is filled with.
pub(super) fn limit(plan: &mut Plan, devices: &[OverwrittenNeed]) -> Result<Vec<String>, Failure> {
    let writes = plan.workloads.iter().any(Workload::modifies);
    let runtime = plan.round_time();
    let Design::UntilSteady(until) = &mut plan.design else { return Ok(Vec::new()) };
    let lengths = devices.iter().map(|device| device.length);
    let given = until.may_write;
    let may_write = given.or(lengths.min().filter(|_| writes));
    until.may_write = may_write;
    let line = |device: &OverwrittenNeed| {
        let OverwrittenNeed { path, length, filled } = device;
        let (path, filled) = (path.display(), human::bytes(filled.0));
        let Some(most) = may_write.filter(|_| writes) else {
            return Ok(format!("{path}: discarded if it supports that, and filled with {filled}."));
        };
        if most <= device.filled {
            let allowed = given.map_or_else(
                || format!("--yes alone allows its length, {}", human::bytes(length.0)),
                |given| format!("may_write = {given}"),
            );
            return Err(usage(format!(
                "{path}: until a steady state it is filled with {filled} and then written in up to {} rounds of {runtime}; {allowed}; accepted: \
                 more, as much as you agree to: --may-write {}",
                until.max_rounds,
                Bytes(4 * length.0)
            )));
        }
        Ok(format!(
            "{path}: discarded if it supports that, filled with {filled}, and written until a steady state, with {} in all at most.",
            human::bytes(most.0)
        ))
    };
    devices.iter().map(line).collect()
}
