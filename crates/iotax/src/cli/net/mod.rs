//! `iotax net`: what a network carries.

mod json;
mod ladder;
mod lines;
mod ping;
mod run;
mod serve;
mod server;

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
    /// Be the server of network measurements, also of iperf3's
    Serve(serve::Args),
    /// Measure what the path to a server carries, which may be an iperf3
    Run(Box<run::Args>),
    /// Measure round trips: how long a message takes to a host and back
    Ping(Box<ping::Args>),
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Ladder(args) => ladder::main(args),
        Command::Serve(args) => serve::main(args),
        Command::Run(args) => run::main(args),
        Command::Ping(args) => ping::main(args),
    }
}
