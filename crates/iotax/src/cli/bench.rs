//! `iotax bench`: one target, one workload, one measurement.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::{Margin, Plan};
use iotax_model::workload::WorkloadKeys;

use super::args::Conduct;
use super::flags::WorkloadFlags;
use super::output::Output;
use super::place;
use super::session::Session;
use super::{Failure, OrExit};
use crate::conduct::GuestOptions;

/// Flags of `iotax bench`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A file, directory or block device, here or as ssh://user@host:port/path on another machine. A file or device that
    /// exists is read as it is; a file that does not, or one in the directory, is created, filled, measured and removed; a
    /// device that --overwrite names too is filled and measured
    target: PathBuf,
    /// On another machine, run the agent under sudo
    #[arg(long)]
    sudo: bool,
    #[command(flatten)]
    workload: WorkloadFlags,
    /// Leave a created file in place
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    conduct: Conduct,
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.conduct.overwrite.permission().or_exit(Exit::Environment)?;
    let target = place::target(&args.target, args.sudo, args.keep, &permission)?;
    let plan = Plan {
        name: format!("bench {}", args.target.display()),
        suite: None,
        repeat: 1,
        until_decided: None,
        margin: Margin::default(),
        baseline: target.name.clone(),
        seed: args.conduct.seed,
        targets: vec![target],
        workloads: vec![args.workload.0.complete(&WorkloadKeys::default())],
        neighbours: Vec::new(),
    };
    plan.check().or_exit(Exit::Usage)?;
    Session {
        plan,
        output: &args.output,
        yes: args.conduct.yes,
        guests: GuestOptions::default(),
        earlier: None,
        keep: args.keep,
        permission,
        leave_agent: args.conduct.remote.leave_agent,
        ask: false,
        report: false,
    }
    .carry_out()
}
