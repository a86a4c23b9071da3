//! `iotax resume`: goes on with a run that was stopped, or adds blocks to one.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::args::{Conduct, Guest, Output};
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
    #[command(flatten)]
    conduct: Conduct,
    #[command(flatten)]
    guest: Guest,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let mut store = args.output.store()?;
    let mut run = store.load(args.run).or_exit(Exit::Usage)?;
    if let Some(repeat) = args.repeat {
        if repeat < run.plan.repeat {
            return Err(usage(format!(
                "--repeat {repeat}: run {} has {} blocks already",
                run.id, run.plan.repeat
            )));
        }
        run.plan.repeat = repeat;
        run.plan.check().or_exit(Exit::Usage)?;
        store.set_repeat(run.id, repeat).or_exit(Exit::Environment)?;
    }
    let done = run.measurements.iter().map(|m| (m.target.clone(), m.workload.clone(), m.block)).collect();
    Session {
        plan: &run.plan,
        output: &args.output,
        conduct: &args.conduct,
        guests: args.guest.options(),
        earlier: Some(Earlier { run: run.id, seed: run.seed, done }),
        keep: false,
        ask: true,
        report: run.plan.targets.len() > 1,
    }
    .carry_out()
}
