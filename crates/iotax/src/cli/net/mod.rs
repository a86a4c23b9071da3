//! `iotax net`: the network's share.

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
    /// Measure round trips: how long a message takes to a host and back
    Ping(ping::Args),
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Ping(args) => ping::main(args),
    }
}
