//! `iotax fleet run`: runs one plan on many machines.

use clap::Args as ClapArgs;
use iotax_fleet::message::Assignment;
use iotax_model::exit::Exit;
use iotax_model::record::FleetMode;

use super::super::args::SessionArgs;
use super::super::output::OutputArgs;
use super::super::plan::PlanInput;
use super::super::{Failure, OrExit, usage};
use super::lead::Lead;
use super::planned_member::PlannedMember;
use super::{hosts, plans};
use crate::runner;

/// Flags of `iotax fleet run`.
#[derive(Debug, ClapArgs)]
pub(in crate::cli) struct Args {
    #[command(flatten)]
    input: PlanInput,
    /// The members: ssh://USER@HOST:PORT (USER and PORT may be left out), local:N and netns:NAME, separated by commas; a file with one of
    /// these in each line; or nats://HOST:PORT alone
    #[arg(long, value_name = "LIST|FILE")]
    hosts: String,
    /// Storage that the members measure: each member its own (each), or all members the same (shared) [default: the plan's, else each]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<FleetMode>,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn mode(word: &str) -> Result<FleetMode, String> {
    match word {
        "each" => Ok(FleetMode::Each),
        "shared" => Ok(FleetMode::Shared),
        _ => Err("accepted: each, shared".into()),
    }
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let hosts = hosts::read(&args.hosts)?;
    let seed = args.session.seed;
    let drawn = runner::fresh_seed().or_exit(Exit::Environment)? % 1_000_000;
    let (mode, plans) = plans::of(&args.input, &hosts, args.mode, seed.unwrap_or(drawn))?;
    if args.session.remote.leave_agent {
        return Err(usage("--leave-agent is for single machines; a member leaves nothing behind"));
    }
    let fleet = runner::fresh_tag().or_exit(Exit::Environment)?;
    let (overwrite, overwrite_signature) = args.session.overwrite.named();
    let members = hosts.into_iter().zip(plans).map(|(host, plan)| {
        let seed = plan.seed.unwrap_or(drawn);
        let assignment = Assignment {
            fleet: fleet.clone(),
            mode,
            seed,
            plan,
            done: Vec::new(),
            overwrite: overwrite.clone(),
            overwrite_signature,
        };
        PlannedMember { host, assignment, run: None }
    });
    let members = members.collect();
    Lead { fleet, mode, members, output: &args.output, yes: args.session.yes }.carry_out()
}
