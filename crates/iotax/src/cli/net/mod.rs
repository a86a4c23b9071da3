//! `iotax net`: what a network carries.

mod ladder;
mod ping;

use clap::{Args as ClapArgs, Subcommand};
use iotax_model::exit::Exit;

use super::Failure;

/// Flags of `iotax net`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the same packets on several ways, and say what each costs
    Ladder(Box<ladder::Args>),
    /// Measure round trips: how long a message takes to a host and back
    Ping(ping::Args),
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Ladder(args) => ladder::main(args),
        Command::Ping(args) => ping::main(args),
    }
}
