//! `iotax show`: a run's results again.

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::output::Output;
use super::{Failure, OrExit};

/// Flags of `iotax show`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Number of the run, as iotax list shows it [default: the newest]
    run: Option<i64>,
    /// Show where the run's wall time went as well
    #[arg(long)]
    timing: bool,
    #[command(flatten)]
    output: Output,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.output.existing_store()?;
    args.output.check()?;
    let run = match args.run {
        Some(run) => run,
        None => store
            .latest()
            .or_exit(Exit::Environment)?
            .context("the store has no run yet")
            .or_exit(Exit::Usage)?,
    };
    let judgement = args.output.report(&store, run, args.output.html.as_deref())?;
    if args.timing {
        args.output.print_timing(judgement.timing.as_ref());
    }
    Ok(Exit::Fine)
}
