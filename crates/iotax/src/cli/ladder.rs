//! `iotax ladder`: the same storage in several ways, the same work on each.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::target::{FileSpec, Format, GuestSpec, Preallocation, Snapshot};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{STANDARD, WordError, Workload};

use super::args::{Conduct, Guest};
use super::output::Output;
use super::say::say;
use super::session::Session;
use super::{Failure, OrExit, usage};
use crate::conduct;

/// Flags of `iotax ladder`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A directory on the storage in question
    dir: PathBuf,
    /// Size of each rung's disk [default: 1GiB, 4GiB with --thorough]
    #[arg(long)]
    size: Option<Bytes>,
    /// 3 blocks of 1.8 s: under 3 minutes
    #[arg(long, group = "length")]
    quick: bool,
    /// 5 blocks of 6 s: about 12 minutes (the default)
    #[arg(long, group = "length")]
    standard: bool,
    /// 10 blocks of 30 s: about 2 hours
    #[arg(long, group = "length")]
    thorough: bool,
    /// Number of blocks
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Some of host-file, vm-raw, vm-qcow2, vm-qcow2-snapshot; the first is the baseline [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    rungs: Vec<String>,
    /// Some of randread-4k-qd1, randread-4k-qd32, randwrite-4k-qd32, seqread-1m, seqwrite-1m [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    workloads: Vec<Workload>,
    /// How long each measurement is
    #[arg(long, value_name = "TIME")]
    runtime: Option<Nanos>,
    /// Warm-up before each, not counted
    #[arg(long, alias = "ramp_time", value_name = "TIME")]
    ramp_time: Option<Nanos>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    conduct: Conduct,
    #[command(flatten)]
    guest: Guest,
}

/// The rungs from the lowest up: name, image format, whether a snapshot is taken, whether a guest is booted.
const RUNGS: [(&str, Format, Option<Snapshot>, bool); 4] = [
    ("host-file", Format::Raw, None, false),
    ("vm-raw", Format::Raw, None, true),
    ("vm-qcow2", Format::Qcow2, None, true),
    ("vm-qcow2-snapshot", Format::Qcow2, Some(Snapshot::External), true),
];

/// How much of everything.
struct Length {
    repeat: u32,
    runtime: Nanos,
    ramp_time: Nanos,
    size: Bytes,
}

impl Args {
    fn length(&self) -> Length {
        let (repeat, runtime, ramp_time, size) = if self.quick {
            (3, Nanos::from_millis(1800), Nanos::from_millis(400), Bytes(1 << 30))
        } else if self.thorough {
            (10, Nanos::from_secs(30), Nanos::from_secs(5), Bytes(4 << 30))
        } else {
            (5, Nanos::from_secs(6), Nanos::from_secs(1), Bytes(1 << 30))
        };
        Length {
            repeat: self.repeat.unwrap_or(repeat),
            runtime: self.runtime.unwrap_or(runtime),
            ramp_time: self.ramp_time.unwrap_or(ramp_time),
            size: self.size.unwrap_or(size),
        }
    }
}

fn rung(name: &str, dir: &Path) -> Result<TargetSpec, WordError> {
    let (_, format, snapshot, guest) = *RUNGS
        .iter()
        .find(|(known, ..)| *known == name)
        .ok_or_else(|| WordError::new("rung", name, &RUNGS.map(|(known, ..)| known)))?;
    let preallocation = match format {
        Format::Raw => Preallocation::Off,
        Format::Qcow2 => Preallocation::Metadata,
    };
    Ok(TargetSpec {
        name: name.to_owned(),
        file: Some(FileSpec {
            dir: Some(dir.to_owned()),
            format,
            preallocation,
            snapshot,
            ..FileSpec::default()
        }),
        guest: guest.then(GuestSpec::default),
        ..TargetSpec::default()
    })
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let mut names: Vec<String> = args.rungs.clone();
    if names.is_empty() {
        names = RUNGS.iter().map(|(name, ..)| (*name).to_owned()).collect();
    }
    let mut targets =
        names.iter().map(|name| rung(name, &args.dir)).collect::<Result<Vec<_>, _>>().or_exit(Exit::Usage)?;
    if let Err(missing) = conduct::guests_possible(&args.guest.options()) {
        // Asked for, they are not left out.
        let asked = !args.rungs.is_empty() || args.guest.is_specific();
        if asked && targets.iter().any(|target| target.guest.is_some()) {
            return Err(Failure { exit: Exit::Environment, error: missing });
        }
        targets.retain(|target| target.guest.is_none());
        say!("Host rungs only: {missing:#}");
    }
    let length = args.length();
    let mut workloads = args.workloads.clone();
    if workloads.is_empty() {
        workloads =
            STANDARD.iter().map(|(name, ..)| name.parse()).collect::<Result<_, _>>().or_exit(Exit::Usage)?;
    }
    for workload in &mut workloads {
        workload.runtime = length.runtime;
        workload.ramp_time = length.ramp_time;
        workload.size = Some(length.size);
    }
    let Some(baseline) = targets.first().map(|target| target.name.clone()) else {
        return Err(usage("no rung is left; give --rungs host-file"));
    };
    let plan = Plan {
        name: format!("ladder {}", args.dir.display()),
        repeat: length.repeat,
        baseline,
        seed: args.conduct.seed,
        targets,
        workloads,
        neighbours: Vec::new(),
    };
    plan.check().or_exit(Exit::Usage)?;
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
        report: true,
    }
    .carry_out()
}
