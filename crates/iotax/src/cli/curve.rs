//! `iotax curve`: measures latency against offered load.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::{CurveSpec, Design, Plan};
use iotax_model::units::Nanos;
use iotax_model::workload::{RateProcess, Rw, Workload, WorkloadKeys};

use super::args::MarginArgs;
use super::flags::{OwnDefaults, WorkloadFlags};
use super::number;
use super::print_plan::print_plan;
use super::session::RunArgs;
use super::target_args::TargetArgs;
use super::{Failure, OrExit, usage};

/// Flags of `iotax curve`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Measure for this long after the targets are built [default: 3m]
    #[arg(long, value_name = "TIME")]
    time: Option<Nanos>,
    /// Number of rates for each target, from 5% to 110% of its capacity [default: 12, fewer with several targets, 6 with --grid]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(4..=40))]
    points: Option<u32>,
    /// Measure five shares of reads, from 100% to 0%, to find the rates of reads and writes at which the latency is
    /// equal
    #[arg(long)]
    grid: bool,
    #[command(flatten)]
    margin: MarginArgs,
    #[command(flatten)]
    workload: WorkloadFlags,
    /// Print the plan as a file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// Default queue depth: enough outstanding I/Os for every target to reach its capacity.
const DEPTH: u32 = 64;
/// Default length of a window: many short windows give more accurate curves than a few long ones.
const WINDOW: Nanos = Nanos::from_millis(250);
const RAMP: Nanos = Nanos::from_millis(50);
/// Percentages of reads that `--grid` measures, by default each at `POINTS` rates.
const SHARES: [u8; 5] = [100, 75, 50, 25, 0];
const POINTS: u32 = 6;
const GRID: Rw = Rw::RandRw;

/// Returns the defaults that differ from those of `iotax bench`, for help.
pub(super) fn own_defaults() -> OwnDefaults {
    vec![
        ("rw", format!("{}; {GRID} with --grid", Rw::RandRead)),
        ("iodepth", DEPTH.to_string()),
        ("runtime", WINDOW.to_string()),
        ("ramp_time", RAMP.to_string()),
        ("rate_process", RateProcess::Poisson.to_string()),
    ]
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let given = &args.workload.0;
    if given.rate.is_some() || given.rate_iops.is_some() {
        return Err(usage(
            "--rate and --rate-iops: a curve has many rates and places them itself; how many: --points",
        ));
    }
    if given.rate_process.is_some() {
        return Err(usage("--rate-process: I/Os are due at random moments (Poisson) here; leave it out"));
    }
    let keys = WorkloadKeys {
        iodepth: given.iodepth.or(Some(DEPTH)),
        runtime: given.runtime.or(Some(WINDOW)),
        ramp_time: given.ramp_time.or(Some(RAMP)),
        ..given.clone()
    };
    let permission = args.run.session.overwrite.permission()?;
    let targets = args.targets.read(&permission)?;
    let plan = Plan {
        seed: args.run.session.seed,
        margin: args.margin.margin.unwrap_or_default(),
        design: Design::Curve(CurveSpec {
            time: args.time,
            points: args.points.or(args.grid.then_some(POINTS)),
            ..CurveSpec::default()
        }),
        ..Plan::new(format!("curve {}", args.targets.paths.join(" ")), targets, works(args, &keys)?)
    };
    plan.check().or_exit(Exit::Usage)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    args.run.session(plan, permission).carry_out()
}

/// Returns the workloads whose curves are measured: one, or with `--grid` one for each percentage of reads.
fn works(args: &Args, keys: &WorkloadKeys) -> Result<Vec<Workload>, Failure> {
    if !args.grid {
        return Ok(vec![keys.complete(&WorkloadKeys::default())]);
    }
    if let Some(share) = keys.rwmixread {
        return Err(usage(format!(
            "--grid and --rwmixread {share}: a grid measures five shares; leave it out"
        )));
    }
    let rw = keys.rw.unwrap_or(GRID);
    if !(rw.reads() && rw.writes()) {
        return Err(usage(format!("--grid and --rw {rw}: accepted: randrw or readwrite")));
    }
    let work = |share: u8| {
        let keys = WorkloadKeys { rw: Some(rw), rwmixread: Some(share), ..keys.clone() };
        let work = keys.complete(&WorkloadKeys::default());
        Workload { name: format!("{}-read{share}", work.name), ..work }
    };
    Ok(SHARES.map(work).into())
}
