//! `iotax bench`: one target, one workload, one measurement.

use std::path::PathBuf;

use clap::{ArgAction, Args as ClapArgs};
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{IoEngine, Rw, WorkloadKeys};

use super::args::Conduct;
use super::output::Output;
use super::session::Session;
use super::{Failure, OrExit, usage};
use crate::conduct::GuestOptions;

/// Flags of `iotax bench`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A file or block device. What exists is read as it is; what does not is created, filled, measured and removed
    target: PathBuf,
    /// read, write, randread, randwrite, rw or randrw
    #[arg(long, default_value = "randread")]
    rw: Rw,
    /// Bytes of one I/O
    #[arg(long, default_value = "4k")]
    bs: Bytes,
    /// I/Os kept in flight by each job
    #[arg(long, default_value_t = 1, value_name = "N")]
    iodepth: u32,
    /// Jobs side by side
    #[arg(long, default_value_t = 1, value_name = "N")]
    numjobs: u32,
    /// Length of the area [default: the whole of what exists, 1GiB of what is created]
    #[arg(long)]
    size: Option<Bytes>,
    /// How long is measured
    #[arg(long, default_value = "10s", value_name = "TIME")]
    runtime: Nanos,
    /// Warm-up before it, not counted
    #[arg(long, alias = "ramp_time", default_value = "1s", value_name = "TIME")]
    ramp_time: Nanos,
    /// Share of reads in a mix, in percent
    #[arg(long, default_value_t = 50, value_name = "PERCENT")]
    rwmixread: u8,
    /// Bypass the page cache (O_DIRECT); --direct=0 goes through it
    #[arg(long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = parse_switch)]
    direct: bool,
    /// Drop caches first; --invalidate=0 leaves them warm
    #[arg(long, value_name = "0|1", default_value = "1", default_missing_value = "1", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = parse_switch)]
    invalidate: bool,
    /// io_uring, psync or null
    #[arg(long, default_value = "io_uring")]
    ioengine: IoEngine,
    /// Leave a created file in place
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    conduct: Conduct,
}

/// fio's booleans, and the words.
fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err("accepted: 1 or 0".into()),
    }
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
    let keys = WorkloadKeys {
        name: None,
        rw: Some(args.rw),
        bs: Some(args.bs),
        iodepth: Some(args.iodepth),
        numjobs: Some(args.numjobs),
        size: args.size,
        runtime: Some(args.runtime),
        ramp_time: Some(args.ramp_time),
        rwmixread: Some(args.rwmixread),
        direct: Some(args.direct),
        invalidate: Some(args.invalidate),
        ioengine: Some(args.ioengine),
    };
    let plan = Plan {
        name: format!("bench {}", args.target.display()),
        repeat: 1,
        baseline: name.clone(),
        seed: args.conduct.seed,
        targets: vec![TargetSpec { name, path: Some(args.target.clone()), file: None, guest: None }],
        workloads: vec![keys.complete(&WorkloadKeys::default())],
    };
    plan.check().or_exit(Exit::Usage)?;
    Session {
        plan,
        output: &args.output,
        yes: args.conduct.yes,
        guests: GuestOptions::default(),
        earlier: None,
        keep: args.keep,
        ask: false,
        report: false,
    }
    .carry_out()
}
