//! `iotax run`: runs a plan file, or a job file of fio.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::Failure;
use super::plan::{PlanInput, say_left_out};
use super::session::RunArgs;

/// Flags of `iotax run`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    input: PlanInput,
    #[command(flatten)]
    run: RunArgs,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.run.session.overwrite.permission()?;
    let reading = args.input.read(&permission)?;
    say_left_out(&reading.left_out);
    let mut plan = reading.plan;
    plan.seed = args.run.session.seed.or(plan.seed);
    args.run.session(plan, permission).carry_out()
}
