//! `iotax bench`: one target, one workload, one measurement.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::workload::WorkloadKeys;

use super::args::Conduct;
use super::flags::WorkloadFlags;
use super::output::Output;
use super::session::Session;
use super::{Failure, OrExit, usage};
use crate::conduct::GuestOptions;

/// Flags of `iotax bench`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A file or block device, here or as ssh://[user@]host[:port]/path on another machine. What exists is read as it is; what
    /// does not is created, filled, measured and removed
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
    let name = args.target.file_name().map(|name| name.to_string_lossy().into_owned());
    let name: String = name
        .ok_or_else(|| usage(format!("{}: name a file or a device", args.target.display())))?
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .take(40)
        .collect();
    let name = name.trim_start_matches('.').to_owned();
    let plan = Plan {
        name: format!("bench {}", args.target.display()),
        repeat: 1,
        baseline: name.clone(),
        seed: args.conduct.seed,
        targets: vec![TargetSpec {
            name,
            path: Some(args.target.clone()),
            sudo: args.sudo,
            ..TargetSpec::default()
        }],
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
        permission: args.conduct.overwrite.permission().or_exit(Exit::Environment)?,
        leave_agent: args.conduct.remote.leave_agent,
        ask: false,
        report: false,
    }
    .carry_out()
}
