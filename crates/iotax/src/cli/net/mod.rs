//! `iotax net`: measures networks.

mod json;
mod ladder;
mod lines;
mod ping;
mod run;
mod serve;
mod server;

pub(super) use server::target_name;

use clap::Subcommand;
use iotax_model::exit::Exit;

use super::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Send the same traffic over several paths, and show what each costs
    Ladder(Box<ladder::Args>),
    /// Serve network measurements, also for iperf3 clients
    Serve(serve::Args),
    /// Measure the throughput to a server, which may be iperf3
    Run(Box<run::Args>),
    /// Measure round-trip times to a host
    Ping(Box<ping::Args>),
}

pub(super) fn main(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Ladder(args) => ladder::main(args),
        Command::Serve(args) => serve::main(args),
        Command::Run(args) => run::main(args),
        Command::Ping(args) => ping::main(args),
    }
}
