//! `iotax ask`: finds the highest I/O rate that keeps given conditions on latency and errors.

use clap::Args as ClapArgs;
use iotax_model::exit::Exit;
use iotax_model::plan::{AskSpec, Design, Plan, Slo};
use iotax_model::units::Nanos;
use iotax_model::workload::{RateProcess, WorkloadKeys};

use super::args::MarginArgs;
use super::flags::{OwnDefaults, WorkloadFlags};
use super::number;
use super::print_plan::print_plan;
use super::rate_gate::RateGate;
use super::session::{RunArgs, Session};
use super::target_args::TargetArgs;
use super::{Failure, OrExit, usage};

/// Flags of `iotax ask`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(flatten)]
    targets: TargetArgs,
    /// Condition that a rate must keep, once for each: "p99 <= 0.5ms", "p99.9 <= 2ms", "mean <= 1ms", "errors = 0"; a latency counts
    /// from the time at which an I/O was due
    #[arg(long, value_name = "CONDITION", required = true, value_parser = str::parse::<Slo>)]
    slo: Vec<Slo>,
    /// Measure for this long after the targets are built [default: 3m, longer for many targets and long windows]
    #[arg(long, value_name = "TIME")]
    time: Option<Nanos>,
    /// Then hold the rate that was found, the lower end of its interval, on each target for this long, and count the minutes in which a
    /// condition is missed
    #[arg(long, value_name = "TIME")]
    sustain: Option<Nanos>,
    /// Ask whether this many I/Os a second are possible: yes, no or undecided
    #[arg(long, value_name = "N", value_parser = number::positive::<u64>)]
    iops: Option<u64>,
    /// Exit with code 1 if a target's rate is lower, and with code 5 if that is undecided: "rate < 20000"
    #[arg(long, value_name = "GATE", conflicts_with = "print_plan", value_parser = str::parse::<RateGate>)]
    fail_if: Option<RateGate>,
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
/// Default window length as a multiple of the longest latency limit, within the bounds of `WINDOWS`. At 2% above the capacity, the queueing
/// delay reaches the limit within such a window.
const LIMITS: u64 = 50;
const WINDOWS: (Nanos, Nanos) = (Nanos::from_secs(1), Nanos::from_secs(5));
const RAMP: Nanos = Nanos::from_millis(200);

/// Returns the defaults that differ from those of `iotax bench`, for help.
pub(super) fn own_defaults() -> OwnDefaults {
    let (shortest, longest) = WINDOWS;
    vec![
        ("iodepth", DEPTH.to_string()),
        ("runtime", format!("{LIMITS} times the longest limit of --slo, from {shortest} to {longest}")),
        ("ramp_time", RAMP.to_string()),
        ("rate_process", RateProcess::Poisson.to_string()),
    ]
}

fn window(slo: &[Slo]) -> Nanos {
    let limits = slo.iter().filter_map(|slo| match slo {
        Slo::Percentile { most, .. } | Slo::Mean { most } => Some(most.0.saturating_mul(LIMITS)),
        Slo::NoErrors => None,
    });
    Nanos(limits.max().unwrap_or(0)).clamp(WINDOWS.0, WINDOWS.1)
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let given = &args.workload.0;
    if given.rate.is_some() || given.rate_iops.is_some() {
        return Err(usage(
            "--rate and --rate-iops: the rate is what is asked for; the latency at one rate: iotax bench --rate-iops N; whether it is possible: --iops N",
        ));
    }
    if given.rate_process.is_some() {
        return Err(usage("--rate-process: I/Os are due at random moments (Poisson) here; leave it out"));
    }
    let keys = WorkloadKeys {
        iodepth: given.iodepth.or(Some(DEPTH)),
        runtime: given.runtime.or(Some(window(&args.slo))),
        ramp_time: given.ramp_time.or(Some(RAMP)),
        ..given.clone()
    };
    let permission = args.run.session.overwrite.permission()?;
    let targets = args.targets.read(&permission)?;
    let ask = AskSpec { iops: args.iops, sustain: args.sustain, ..AskSpec::new(args.slo.clone()) };
    let mut plan = Plan {
        seed: args.run.session.seed,
        margin: args.margin.margin.unwrap_or_default(),
        design: Design::Ask(ask),
        ..Plan::new(
            format!("ask {}", args.targets.paths.join(" ")),
            targets,
            vec![keys.complete(&WorkloadKeys::default())],
        )
    };
    let enough = plan.least_search().0.saturating_mul(3) / 2;
    if let Design::Ask(ask) = &mut plan.design {
        ask.time = args.time.unwrap_or_else(|| ask.time.max(Nanos(enough)));
    }
    plan.check().or_exit(Exit::Usage)?;
    if args.print_plan {
        return print_plan(&plan, &[]);
    }
    Session { gate: args.fail_if, ..args.run.session(plan, permission) }.carry_out()
}
