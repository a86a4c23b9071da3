//! Derives each member's plan from the fleet's plan.

use std::path::{Path, PathBuf};

use iotax_model::Plan;
use iotax_model::exit::Exit;
use iotax_model::plan::{Design, FleetRates};
use iotax_model::record::FleetMode;
use iotax_model::target::Remote;
use iotax_testbed::device::Permission;

use super::super::plan::{PlanInput, say_left_out};
use super::super::{Failure, OrExit, usage};
use super::hosts::Host;

/// Returns the fleet's mode, and the plans of all members in the order of the hosts. With shared storage, rates that are meant for the
/// whole fleet are divided among the members.
pub(super) fn of(
    input: &PlanInput,
    hosts: &[Host],
    mode: Option<FleetMode>,
    seed: u64,
) -> Result<(FleetMode, Vec<Plan>), Failure> {
    let text = input.text()?;
    let mut plans = Vec::with_capacity(hosts.len());
    let mut together = FleetMode::default();
    for (index, host) in hosts.iter().enumerate() {
        let own = host.fill_in(&text, index + 1).map_err(usage)?;
        let reading = input.parse(&own, &Permission::default(), None)?;
        if index == 0 {
            say_left_out(&reading.left_out);
        }
        together = mode.unwrap_or(reading.fleet.mode);
        let mut plan = reading.plan;
        plan.seed = Some(plan.seed.unwrap_or(seed));
        if together == FleetMode::Shared && reading.fleet.rates == FleetRates::Whole {
            plan.divide_rates(index as u64, hosts.len() as u64).or_exit(Exit::Usage)?;
        }
        plans.push(plan);
    }
    plans.iter().try_for_each(|plan| check(plan, together))?;
    if together == FleetMode::Shared {
        check_alike(hosts, &plans)?;
    }
    refuse_shared_writes(hosts, &plans, together)?;
    Ok((together, plans))
}

/// Returns the paths, devices and directories that a plan's targets name.
fn paths(plan: &Plan) -> impl Iterator<Item = &Path> {
    plan.everything().flat_map(|target| {
        let dir = target.file().and_then(|file| file.dir.as_deref());
        target.path().into_iter().chain(target.device()).chain(dir)
    })
}

fn check(plan: &Plan, mode: FleetMode) -> Result<(), Failure> {
    if let Some(far) = paths(plan).find(|path| Remote::is_meant(path)) {
        return Err(usage(format!(
            "{}: a member measures its own machine; name the machine in --hosts and its path in the plan",
            far.display()
        )));
    }
    if let Some(relative) = paths(plan).find(|path| !path.is_absolute()) {
        return Err(usage(format!(
            "{}: members have no directory in common; accepted: absolute paths",
            relative.display()
        )));
    }
    let follows = match &plan.design {
        Design::FixedRounds => None,
        Design::UntilDecided(_) => Some("until_decided or time"),
        Design::UntilSteady(_) => Some("until_steady"),
        Design::Curve(_) => Some("[curve]"),
        Design::Ask(_) => Some("[ask]"),
        Design::Watch(_) => Some("[watch]"),
    };
    match follows {
        Some(key) if mode == FleetMode::Shared => Err(usage(format!(
            "{key}: members that share one storage measure the same steps, and these follow from what each measures; accepted: repeat"
        ))),
        _ => Ok(()),
    }
}

/// Refuses plans that differ in the names of targets or workloads, in rounds or in the seed: members with shared storage must measure the
/// same workload on the same target at the same time.
fn check_alike(hosts: &[Host], plans: &[Plan]) -> Result<(), Failure> {
    let names = |plan: &Plan| {
        let targets: Vec<String> = plan.targets.iter().map(|target| target.name.clone()).collect();
        let workloads: Vec<String> = plan.workloads.iter().map(|work| work.name.clone()).collect();
        (targets, workloads, plan.repeat, plan.seed)
    };
    let first = plans.first().map(names);
    match plans.iter().position(|plan| Some(names(plan)) != first) {
        None => Ok(()),
        Some(other) => Err(usage(format!(
            "{} and {} have other targets or workloads in their plans; members that share one storage measure the same ones, so give \
             them names: name = \"...\"",
            hosts[0].name, hosts[other].name
        ))),
    }
}

/// For members that share one storage or run on this machine, refuses plans in which two write to the same file or device: each would
/// overwrite data that the other reads back or journals.
fn refuse_shared_writes(hosts: &[Host], plans: &[Plan], mode: FleetMode) -> Result<(), Failure> {
    let written = |plan: &Plan| -> Vec<PathBuf> {
        let targets = plan.everything().filter(|spec| plan.work_on(spec).iter().any(|work| work.modifies()));
        targets.flat_map(|spec| spec.path().into_iter().chain(spec.device())).map(Path::to_owned).collect()
    };
    let written: Vec<Vec<PathBuf>> = plans.iter().map(written).collect();
    for (index, paths) in written.iter().enumerate() {
        let others = hosts.iter().zip(&written).take(index);
        let meet = others.filter(|(other, _)| {
            mode == FleetMode::Shared || (other.link.is_here() && hosts[index].link.is_here())
        });
        for (other, theirs) in meet {
            if let Some(path) = paths.iter().find(|path| theirs.contains(path)) {
                let (path, one, other): (&Path, _, _) = (path, &hosts[index].name, &other.name);
                return Err(usage(format!(
                    "{}: {other} and {one} would both write to it; give each its own file, such as file = {{ dir = {:?} }} or a path with \
                     ${{member}} in it, or only read",
                    path.display(),
                    path.parent().unwrap_or(path).display().to_string()
                )));
            }
        }
    }
    Ok(())
}
