//! `iotax run`: a plan file.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::args::{Conduct, Guest, Instead};
use super::output::Output;
use super::plan::{read, say_left_out};
use super::session::Session;
use super::{Failure, OrExit};

/// Flags of `iotax run`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The plan (TOML); iotax plan show tells what it would do
    plan: PathBuf,
    #[command(flatten)]
    instead: Instead,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    conduct: Conduct,
    #[command(flatten)]
    guest: Guest,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let reading = read(&args.plan, &args.instead)?;
    say_left_out(&reading.left_out);
    let mut plan = reading.plan;
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
