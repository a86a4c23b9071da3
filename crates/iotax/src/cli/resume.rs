//! `iotax resume`: goes on with a run that was stopped, or adds blocks to one.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::args::{Guest, Overwrite, Remote};
use super::output::{Output, load};
use super::say::say;
use super::session::{Earlier, Session};
use super::{Failure, OrExit, usage};

/// Flags of `iotax resume`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Number of the run, as iotax list shows it
    run: i64,
    /// Go on to this many blocks
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    #[command(flatten)]
    output: Output,
    /// Ask nothing
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    guest: Guest,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    remote: Remote,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.output.existing_store()?;
    let mut run = load(&store, args.run)?;
    if let Some(repeat) = args.repeat {
        if repeat < run.plan.repeat {
            return Err(usage(format!(
                "--repeat {repeat}: run {} has {} blocks already",
                run.id, run.plan.repeat
            )));
        }
        run.plan.repeat = repeat;
        run.plan.check().or_exit(Exit::Usage)?;
    }
    let planned = run.plan.targets.len() * run.plan.workloads.len() * run.plan.repeat as usize;
    if run.measurements.len() == planned {
        say!("run {} has all its measurements; more blocks: iotax resume {} --repeat N", run.id, run.id);
        return Ok(Exit::Fine);
    }
    let done = run.measurements.iter().map(|m| (m.target.clone(), m.workload.clone(), m.block)).collect();
    let report = run.plan.targets.len() > 1;
    Session {
        output: &args.output,
        yes: args.yes,
        guests: args.guest.options(),
        earlier: Some(Earlier {
            run: run.id,
            seed: run.seed,
            done,
            environment: run.environment,
            targets: run.targets,
        }),
        plan: run.plan,
        keep: false,
        permission: args.overwrite.permission().or_exit(Exit::Environment)?,
        leave_agent: args.remote.leave_agent,
        ask: true,
        report,
    }
    .carry_out()
}
