//! `iotax bench`: measures one target with one workload, or with the jobs of a job file of fio or vdbench.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::Plan;
use iotax_model::target::{Format, ImageSpec, Machine, Remote, Stack, TargetSpec, VirtioSpec};
use iotax_model::units::Nanos;
use iotax_model::workload::{Verify, Workload, WorkloadKeys};
use iotax_testbed::target::{existing_image, image_file};

use super::args::{SessionArgs, SteadyArgs};
use super::flags::{OwnDefaults, WorkloadFlags};
use super::output::OutputArgs;
use super::print_plan::print_plan;
use super::say::{note, say};
use super::session::Session;
use super::{Failure, OrExit, input, jobs, replay, target_args, usage};

/// Flags of `iotax bench`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A file, directory or block device on this machine; ssh://user@host:port/path on another machine; podman://container/path in a
    /// container (also docker, lxc, incus, lxd and kubectl://namespace/pod/path); libvirt://domain:disk for a new disk attached to a
    /// running guest and set up like that disk (without :disk, like the first); the line of a stack ("DIR > qcow2 file > virtio"); or
    /// RUNG:DIR. An existing file or device is only read, an image also as QEMU reads it; a new file, or one in the directory, is created,
    /// filled, measured and removed; a device that --overwrite names too is filled and measured
    target: PathBuf,
    /// Run the agent under sudo on another machine
    #[arg(long)]
    sudo: bool,
    #[command(flatten)]
    workload: WorkloadFlags,
    /// Run a job file of fio or vdbench, instead of the workload flags
    #[arg(long, value_name = "FILE")]
    job: Option<PathBuf>,
    /// Run only this section of the job file (repeat for several)
    #[arg(long, value_name = "NAME", requires = "job")]
    section: Vec<String>,
    /// Number of rounds; compare needs several to tell a difference from noise
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    #[command(flatten)]
    steady: SteadyArgs,
    /// Print the plan as a file to edit instead of measuring
    #[arg(long, conflicts_with = "json")]
    print_plan: bool,
    /// Leave a created file in place
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// Default number of rounds if neither a runtime nor a job file is given; each has a window of `ROUND` after a warm-up of `RAMP`.
const ROUNDS: u32 = 5;
const ROUND: Nanos = Nanos::from_secs(2);
const RAMP: Nanos = Nanos::from_millis(500);

/// Returns the defaults that differ from those of other commands, for help.
pub(super) fn own_defaults() -> OwnDefaults {
    let Workload { ramp_time, .. } = WorkloadKeys::default().complete(&WorkloadKeys::default());
    vec![
        ("runtime", format!("{ROUND} in each of {ROUNDS} rounds")),
        ("ramp_time", format!("{RAMP}; {ramp_time} with --runtime")),
        ("repeat", format!("{ROUNDS} of {ROUND}; 1 with --runtime, a job file or a trace")),
    ]
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let permission = args.session.overwrite.permission()?;
    let target = target_args::target(&args.target, args.sudo, args.keep, &permission)?;
    if args.keep && matches!(target.remote(), Some(Remote { machine: Machine::Domain { .. }, .. })) {
        return Err(usage(format!(
            "{}: --keep leaves a file in place, and the scratch disk of a guest is always detached; leave --keep out",
            args.target.display()
        )));
    }
    let mut seed = args.session.seed;
    let says_how_long =
        args.job.is_some() || args.workload.0.runtime.is_some() || args.workload.0.read_iolog.is_some();
    let repeat = args.repeat.unwrap_or(if says_how_long { 1 } else { ROUNDS });
    let short = WorkloadKeys { runtime: Some(ROUND), ramp_time: Some(RAMP), ..WorkloadKeys::default() };
    let mut workloads = match &args.job {
        None if says_how_long => vec![args.workload.0.complete(&WorkloadKeys::default())],
        None => vec![args.workload.0.complete(&short)],
        Some(_) if args.workload.0 != WorkloadKeys::default() => {
            return Err(usage(
                "--job says what is done; leave the flags of the work out, or change the job file",
            ));
        }
        Some(path) => {
            let jobs = jobs::read(path, &input::text(path, input::PLAN)?, &args.section, None, None)?;
            seed = seed.or(jobs.seed);
            jobs.workloads
        }
    };
    workloads.iter_mut().try_for_each(replay::complete)?;
    let verifies = |workload: &Workload| workload.verify != Verify::None && !workload.modifies();
    if target.path().is_some_and(|path| target.remote().is_none() && !path.exists())
        && workloads.iter().any(verifies)
    {
        return Err(usage(format!(
            "{}: it is not there, and a workload that only reads verifies what an earlier one wrote and --keep left; accepted: such a \
             file, or a workload that writes",
            args.target.display()
        )));
    }
    if let Some(path) = target.path().filter(|path| target.remote().is_none() && !path.exists())
        && let Some(format) = image_file::named_as(path)
    {
        return Err(usage(format!(
            "{0}: it is not there, and a new file would be raw, not {format} as its name says; give the path of an image, another name, or a \
             stack that makes one: \"DIR > {format} file > virtio\"",
            args.target.display()
        )));
    }
    if let Some(writer) = workloads.iter().find(|workload| workload.modifies())
        && let Some(path) = target.path().filter(|_| target.remote().is_none())
        && let Ok(Some(_)) = existing_image::found(path)
    {
        return Err(usage(format!(
            "{0}: it is an image that exists, so it is only read, and {1:?} changes it ({2}); give a stack whose overlay takes the writes: \
             \"image {0} overlay=DIR > virtio\"",
            path.display(),
            writer.name,
            writer.doing()
        )));
    }
    let targets = with_image(target, &workloads);
    let mut plan =
        Plan { seed, repeat, ..Plan::new(format!("bench {}", args.target.display()), targets, workloads) };
    args.steady.apply(&mut plan).or_exit(Exit::Usage)?;
    plan.check().or_exit(Exit::Usage)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    let session = Session::new(plan, &args.output).with(&args.session, permission);
    Session { keep: args.keep, ask: false, ..session }.carry_out()
}

/// Maximum size in bytes of an image's descriptor file, which only names the files that hold the data.
const DESCRIPTION: u64 = 64 << 10;

/// Returns the targets to measure, usually only `target`. For a disk image that QEMU can read and no workload writes, adds its bytes read
/// through QEMU (the cost of QEMU's block layer and virtio), and its disk read through QEMU (the cost of the format). If the image's data
/// is in other files, only the disk is measured.
fn with_image(target: TargetSpec, workloads: &[Workload]) -> Vec<TargetSpec> {
    let Some(path) = target.path().filter(|_| !workloads.iter().any(Workload::modifies)) else {
        return vec![target];
    };
    let found = match existing_image::found(path) {
        Ok(Some(found)) => found,
        Ok(None) => return vec![target],
        Err(why) => {
            say!("{}: its bytes alone are measured, and not its format: {why}", path.display());
            return vec![target];
        }
    };
    let read_as = |format: Format| {
        let image = ImageSpec { path: path.to_path_buf(), format: Some(format), overlay: None };
        TargetSpec::new(format!("as-{format}"), Stack::from(image).with(VirtioSpec::default()))
    };
    let (format, image) = (found.format, read_as(found.format));
    // The file's own bytes are not the data that a guest sees.
    if !found.others.is_empty() || path.metadata().is_ok_and(|found| found.len() < DESCRIPTION) {
        note!(
            "{} is an image whose data are in other files: what QEMU reads of it is measured ({format}).",
            path.display()
        );
        return vec![image];
    }
    note!(
        "{} is an image: its bytes are measured, the same as QEMU reads them (as-raw), and the disk that they hold (as-{format}).",
        path.display()
    );
    let bytes = read_as(Format::Raw);
    vec![target, bytes, image]
}
