//! `iotax run`: runs a plan file, a job file of fio or vdbench, or a trace.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::Failure;
use super::confine::Directories;
use super::plan::{PlanInput, say_left_out};
use super::session::{RunArgs, make_absolute};

/// Flags of `iotax run`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    input: PlanInput,
    #[command(flatten)]
    run: RunArgs,
    /// Restrict a plan from someone else: it may create files below this directory and read what is there, and is refused if it has
    /// commands, other machines, volumes, settings or a kernel for guests; may be repeated
    #[arg(long, value_name = "DIR", conflicts_with = "overwrite")]
    confine: Vec<PathBuf>,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.run.session.overwrite.permission()?;
    let confined = Directories::of(&args.confine)?;
    let reading = args.input.parse(&args.input.text()?, &permission, confined.as_ref())?;
    say_left_out(&reading.left_out);
    let mut plan = reading.plan;
    if let Some(area) = confined {
        make_absolute(&mut plan)?;
        area.check(&plan)?;
    }
    plan.seed = args.run.session.seed.or(plan.seed);
    args.run.session(plan, permission).carry_out()
}
