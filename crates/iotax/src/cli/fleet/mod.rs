//! `iotax fleet`: runs one plan on many machines.

mod claims;
mod control;
mod ctrl_c;
mod hosts;
mod lead;
mod list;
mod live_line;
mod member;
mod operate;
mod planned_member;
mod plans;
mod report;
mod requests;
mod resume;
mod run;
mod start;

use clap::Subcommand;
use iotax_model::exit::Exit;

use super::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run one plan on many machines: each as a separate run, or all against one shared storage
    Run(Box<run::Args>),
    /// List the fleets in the store
    List(list::Args),
    /// Show the result of a fleet again
    Report(report::Args),
    /// Show what the members of a fleet do now
    Status(control::Args),
    /// Stop a fleet after the current measurement; it can be resumed
    Drain(control::Args),
    /// Have a fleet stop immediately
    Cancel(control::Args),
    /// Go on with a fleet that was stopped or lost its coordinator
    Resume(resume::Args),
    /// Serve a coordinator on stdin and stdout
    #[command(hide = true)]
    Member,
}

pub(super) fn main(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::main(args),
        Command::List(args) => list::main(args),
        Command::Report(args) => report::main(args),
        Command::Status(args) => control::status(args),
        Command::Drain(args) => control::tell(args, requests::DRAIN),
        Command::Cancel(args) => control::tell(args, requests::CANCEL),
        Command::Resume(args) => resume::main(args),
        Command::Member => member::main(),
    }
}
