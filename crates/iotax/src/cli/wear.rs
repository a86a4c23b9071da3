//! Consent to wear: the bytes that a run until a steady state writes to disks are limited, and shown before the run.

use iotax_model::plan::{Design, Plan};
use iotax_model::target::BottomLocation;
use iotax_model::units::{Bytes, human};
use iotax_model::{TargetSpec, Workload};
use iotax_testbed::target::disks::{TargetDisk, by_disk};
use iotax_testbed::target::preflight::{Needs, OverwrittenNeed};

use super::{Failure, usage};
use crate::runner;

/// Limits what a run until a steady state writes to each physical disk: to the plan's `may_write`, or to the length of the smallest device
/// that it overwrites. Returns a line for each device or directory that is purged or not, and for each disk. Fails if a disk may be written with no more
/// than what its targets are filled with.
pub(super) fn limit(plan: &mut Plan, needs: &Needs) -> Result<Vec<String>, Failure> {
    let writes = plan.workloads.iter().any(Workload::modifies);
    let Design::UntilSteady(until) = &mut plan.design else { return Ok(Vec::new()) };
    let smallest = needs.overwritten.iter().min_by_key(|device| device.length);
    let given = until.may_write;
    until.may_write = given.or(smallest.map(|device| device.length));
    let (most, max_rounds) = (until.may_write, until.max_rounds);
    let mut lines = purges(plan, &needs.overwritten);
    for disk in by_disk(plan) {
        let filled = filled(plan, &disk);
        if filled == 0 && !writes {
            continue;
        }
        let name = name(plan, &disk);
        let passes = match filled {
            0 => "not filled".to_owned(),
            bytes => format!("filled with {} in two passes", human::bytes(bytes)),
        };
        lines.push(match most {
            None if writes => {
                format!("{name}: {passes}, and written until a steady state without a limit; --may-write SIZE sets one.")
            }
            None => format!("{name}: {passes}."),
            Some(most) if most.0 <= filled => {
                let allowed = match (given, smallest) {
                    (None, Some(OverwrittenNeed { path, length })) => {
                        format!("--yes alone allows the length of {}, {}", path.display(), human::bytes(length.0))
                    }
                    _ => format!("may_write = {most}"),
                };
                let then = if writes {
                    format!(" and then written in up to {max_rounds} rounds of {}", plan.round_time())
                } else {
                    String::new()
                };
                return Err(usage(format!(
                    "{name}: until a steady state it is {passes}{then}; {allowed}; accepted: more, as much as you agree to: --may-write {}",
                    Bytes(filled.saturating_mul(2))
                )));
            }
            Some(_) if !writes => format!("{name}: {passes}."),
            Some(most) => format!(
                "{name}: {passes}, and written until a steady state, with {} in all at most.",
                human::bytes(most.0)
            ),
        });
    }
    Ok(lines)
}

/// Returns a line for each device that is purged, and for each group or directory that is not because it holds others' data.
fn purges(plan: &Plan, devices: &[OverwrittenNeed]) -> Vec<String> {
    let purged =
        |device: &OverwrittenNeed| format!("{}: discarded if it supports that.", device.path.display());
    let mut lines: Vec<String> = devices.iter().map(purged).collect();
    let others = |target: &TargetSpec| {
        let storage = match target.stack.location().filter(|_| target.remote().is_none())? {
            BottomLocation::Group(group) => format!("volume group {group}"),
            BottomLocation::Directory(dir) => dir.display().to_string(),
            BottomLocation::Path(_) | BottomLocation::Device(_) => return None,
        };
        Some(format!("{storage}: not discarded, because others' data is there."))
    };
    for line in plan.targets.iter().filter_map(others) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Returns the bytes that fill the targets on a disk.
fn filled(plan: &Plan, disk: &TargetDisk) -> u64 {
    let own = disk.targets.iter().filter(|index| plan.storage_of(**index) == **index);
    let bytes = |index: &usize| {
        let target = &plan.targets[*index];
        let count = target.guest().map_or(1, |guest| u64::from(guest.count));
        runner::fill_bytes(target, plan).saturating_mul(count)
    };
    own.map(bytes).fold(0, u64::saturating_add)
}

/// Names a disk with its targets: `vda (host-file, vm-raw)`; a target without a known disk by itself.
fn name(plan: &Plan, disk: &TargetDisk) -> String {
    let targets: Vec<&str> = disk.targets.iter().map(|index| plan.targets[*index].name.as_str()).collect();
    let targets = targets.join(", ");
    disk.disk.as_ref().map_or(targets.clone(), |disk| format!("{disk} ({targets})"))
}
