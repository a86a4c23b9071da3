//! `iotax run`: a plan file.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;

use super::args::{Conduct, Guest};
use super::output::Output;
use super::session::Session;
use super::{Failure, OrExit};

/// Flags of `iotax run`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The plan (TOML)
    plan: PathBuf,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    conduct: Conduct,
    #[command(flatten)]
    guest: Guest,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let place = args.plan.display();
    let text = std::fs::read_to_string(&args.plan)
        .with_context(|| format!("cannot read {place}"))
        .or_exit(Exit::Usage)?;
    let mut plan =
        Plan::from_toml(&text).with_context(|| format!("{place} is not a plan")).or_exit(Exit::Usage)?;
    plan.seed = args.conduct.seed.or(plan.seed);
    Session {
        plan,
        output: &args.output,
        yes: args.conduct.yes,
        guests: args.guest.options(),
        earlier: None,
        keep: false,
        permission: args.conduct.overwrite.permission().or_exit(Exit::Environment)?,
        leave_agent: args.conduct.remote.leave_agent,
        ask: true,
        report: false,
    }
    .carry_out()
}
