//! `iotax fleet resume`: continues a fleet that was stopped or that lost its coordinator.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args as ClapArgs;
use iotax_fleet::message::{Assignment, StepNumber};
use iotax_model::Run;
use iotax_model::exit::Exit;
use iotax_model::plan::Design;
use iotax_model::record::FleetMode;

use super::super::args::OverwriteArgs;
use super::super::output::OutputArgs;
use super::super::say::say;
use super::super::{Failure, OrExit, usage};
use super::hosts::{self, Host};
use super::lead::Lead;
use super::planned_member::PlannedMember;
use super::report;

/// Flags of `iotax fleet resume`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    /// The fleet's id, as iotax fleet run shows it
    fleet: String,
    /// Begin without asking
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    overwrite: OverwriteArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.output.store.open_existing()?;
    let runs = report::runs(&store, &args.fleet)?;
    drop(store);
    let mode = runs.iter().find_map(|run| run.fleet.as_ref()).map(|member| member.mode).unwrap_or_default();
    let measured =
        |run: &Run| -> BTreeSet<StepNumber> { run.measurements.iter().map(|m| u64::from(m.order)).collect() };
    // A step that any member has measured can no longer be measured by all at the same time.
    let by_any: BTreeSet<StepNumber> = runs.iter().flat_map(measured).collect();
    let (overwrite, overwrite_signature) = args.overwrite.named();
    let mut members = Vec::new();
    for run in &runs {
        let plan = &run.plan;
        let is_open = match &plan.design {
            Design::UntilDecided(_) | Design::UntilSteady(_) | Design::Ask(_) | Design::Curve(_) => true,
            Design::FixedRounds | Design::Watch(_) => false,
        };
        if is_open {
            return Err(usage(format!(
                "run {} of the fleet adds what it measures by what it measured, and its member has that no more; begin a new one: iotax \
                 fleet run",
                run.id
            )));
        }
        let done = match mode {
            FleetMode::Each => measured(run),
            FleetMode::Shared => by_any.clone(),
        };
        let all = plan.cells() * plan.repeat as usize;
        if mode == FleetMode::Each && done.len() >= all {
            continue;
        }
        let assignment = Assignment {
            fleet: args.fleet.clone(),
            mode,
            plan: plan.clone(),
            seed: run.seed,
            done: done.into_iter().collect(),
            overwrite: overwrite.clone(),
            overwrite_signature,
        };
        members.push(PlannedMember { host: host(run)?, assignment, run: Some(run.id) });
    }
    let missing = members.iter().any(|member| {
        let Assignment { plan, done, .. } = &member.assignment;
        done.len() < plan.cells() * plan.repeat as usize
    });
    if !missing {
        say!(
            "nothing of fleet {} is left that can be measured; what it has: iotax fleet report {}",
            args.fleet,
            args.fleet
        );
        return Ok(Exit::Fine);
    }
    Lead { fleet: args.fleet.clone(), mode, members, output: &args.output, yes: args.yes }.carry_out()
}

/// Returns the member's host, from the address and the name that are stored with its run.
fn host(run: &Run) -> Result<Host, Failure> {
    let Some(member) = &run.fleet else {
        return Err(anyhow::anyhow!("run {} is no fleet's", run.id)).or_exit(Exit::Environment);
    };
    let link = hosts::link(&member.link)?;
    let Some(link) = link else {
        return Err(anyhow::anyhow!("run {} does not say how its member is reached", run.id))
            .or_exit(Exit::Environment);
    };
    Ok(Host { name: member.member.clone(), link, values: BTreeMap::new() })
}
