//! `iotax run`: a plan file, or a job file of fio.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;

use super::args::{Guest, Instead, SessionArgs};
use super::jobs::JobFlags;
use super::output::Output;
use super::plan::{read, say_left_out};
use super::session::Session;
use super::{Failure, OrExit};

/// Flags of `iotax run`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The plan (TOML), or a job file of fio; iotax plan show tells what it would do
    plan: PathBuf,
    #[command(flatten)]
    jobs: JobFlags,
    #[command(flatten)]
    instead: Instead,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    guest: Guest,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.session.overwrite.permission().or_exit(Exit::Environment)?;
    let reading = read(&args.plan, &args.jobs, &args.instead, &permission)?;
    say_left_out(&reading.left_out);
    let mut plan = reading.plan;
    plan.seed = args.session.seed.or(plan.seed);
    let session = Session::new(plan, &args.output, &args.session, permission);
    Session { guests: args.guest.options(), ..session }.carry_out()
}
