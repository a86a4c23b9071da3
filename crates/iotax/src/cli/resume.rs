//! `iotax resume`: resumes a stopped run, or adds rounds to one.

use clap::Args as ClapArgs;
use iotax_analysis::judge;
use iotax_analysis::{SteadyState, Stopped};
use iotax_model::Run;
use iotax_model::RunState;
use iotax_model::exit::Exit;
use iotax_model::plan::{AskSpec, Design, Plan};
use iotax_model::units::Nanos;

use super::args::{GuestArgs, OverwriteArgs, RemoteArgs};
use super::number;
use super::output::{OutputArgs, load};
use super::say::say;
use super::session::{Earlier, Session};
use super::{Failure, OrExit, confirm, usage};

/// Flags of `iotax resume`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Run number from iotax list
    #[arg(value_parser = number::run)]
    run: i64,
    /// Extend the run to this many rounds
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Measure the run's plan again, as a new run with rounds added, or rates searched, for at most this long
    #[arg(long, value_name = "TIME", conflicts_with_all = ["repeat", "max_time"])]
    time: Option<Nanos>,
    /// For a run with --until-decided: stop adding rounds if the next interim look would come later than this after resuming
    #[arg(long, value_name = "TIME")]
    max_time: Option<Nanos>,
    #[command(flatten)]
    output: OutputArgs,
    /// Begin without asking
    #[arg(long, short)]
    yes: bool,
    /// With --yes: let the commands of the stored plan run too. Whoever may write to the store may have written them
    #[arg(long, requires = "yes")]
    commands: bool,
    #[command(flatten)]
    guest: GuestArgs,
    #[command(flatten)]
    overwrite: OverwriteArgs,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Refuses `--repeat` for a search, and for a run with interim looks at its results (`--until-decided`). These looks were fixed before the
/// run began, and its false-positive rate depends on them. Refuses `--max-time` for a run without such looks.
fn refuse_other_design(args: &Args, run: &Run) -> Result<(), Failure> {
    if run.plan.searches()
        && let Some(repeat) = args.repeat
    {
        return Err(usage(format!(
            "--repeat {repeat}: run {} searches for its time, and not by rounds",
            run.id
        )));
    }
    match (run.plan.until_decided(), args.repeat, args.max_time) {
        (Some(until), Some(repeat), _) => Err(usage(format!(
            "--repeat {repeat}: the looks of run {} were fixed before it began, with {} rounds at most, because its error rate \
             depends on them; a new run of its plan, for longer: {}",
            run.id,
            until.max_rounds,
            run.command("resume", "--time 10m")
        ))),
        (None, _, Some(time)) => Err(usage(format!(
            "--max-time {time}: only a run with --until-decided stops by time, which run {} is not",
            run.id
        ))),
        _ => Ok(()),
    }
}

/// Refuses `--yes` without `--commands` for a stored plan that runs commands, because others may have written to the store.
fn refuse_unseen_commands(args: &Args, run: &Run) -> Result<(), Failure> {
    let commands = confirm::commands(&run.plan);
    if !args.yes || args.commands || commands.is_empty() {
        return Ok(());
    }
    Err(usage(format!(
        "--yes: the plan of run {} runs commands, and is taken from the store: {}. Leave --yes out to be asked, or add --commands",
        run.id,
        commands.join("; ")
    )))
}

/// Starts a new run of the same plan with a new seed, which measures for at most `time`.
fn anew(args: &Args, run: &Run, time: Nanos) -> Result<Exit, Failure> {
    let plan = Plan { seed: None, ..run.plan.clone() };
    let plan = match &plan.design {
        Design::Ask(ask) if run.fleet.is_none() => {
            Plan { design: Design::Ask(AskSpec { time, ..ask.clone() }), ..plan }
        }
        Design::FixedRounds | Design::UntilDecided(_) if run.fleet.is_none() => {
            Plan { design: Design::FixedRounds, ..plan }.within(time).or_exit(Exit::Usage)?
        }
        Design::FixedRounds
        | Design::UntilDecided(_)
        | Design::UntilSteady(_)
        | Design::Curve(_)
        | Design::Ask(_)
        | Design::Watch(_) => {
            return Err(usage(format!(
                "--time {time}: run {} does not end by time; only runs that compare targets round by round, and ask, do",
                run.id
            )));
        }
    };
    plan.check().or_exit(Exit::Usage)?;
    Session {
        yes: args.yes,
        guests: args.guest.options(),
        permission: args.overwrite.permission()?,
        leave_agent: args.remote.leave_agent,
        ..Session::new(plan, &args.output)
    }
    .carry_out()
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let store = args.output.store.open_existing()?;
    let mut run = load(&store, args.run)?;
    if let Some(source) = run.source.imported() {
        return Err(usage(format!("run {} is {source}; only what iotax measured can be resumed", run.id)));
    }
    refuse_unseen_commands(args, &run)?;
    if let Some(time) = args.time {
        return anew(args, &run, time);
    }
    refuse_other_design(args, &run)?;
    if let Design::UntilDecided(until) = &mut run.plan.design {
        until.max_time = args.max_time.or(until.max_time);
    }
    let rounds_before = run.plan.repeat;
    if let Some(repeat) = args.repeat {
        if repeat < run.plan.repeat {
            return Err(usage(format!(
                "--repeat {repeat}: run {} has {} rounds already",
                run.id, run.plan.repeat
            )));
        }
        run.plan.repeat = repeat;
        run.plan.check().or_exit(Exit::Usage)?;
    }
    if let Some(stopped) = judge(&run).sequential.and_then(|status| status.stopped)
        && stopped != Stopped::MaxTime
    {
        say!(
            "run {} has taken its last look ({}); its result: {}",
            run.id,
            stopped.word(),
            run.command("report", "")
        );
        return Ok(Exit::Fine);
    }
    let planned = run.plan.cells() * run.plan.repeat as usize;
    let is_complete = match &run.plan.design {
        Design::FixedRounds | Design::Curve(_) | Design::Watch(_) => run.measurements.len() == planned,
        Design::Ask(_) => run.state == RunState::Complete,
        // The last interim look has already reported that.
        Design::UntilDecided(_) => false,
        Design::UntilSteady(until) => SteadyState::of(&run)
            .is_some_and(|state| state.is_reached() || state.rounds() >= until.max_rounds),
    };
    if is_complete {
        if run.state != RunState::Complete {
            // It was killed after its last measurement, before its state was stored.
            args.output.store.open()?.set_state(run.id, RunState::Complete).or_exit(Exit::Environment)?;
        }
        let more = || {
            format!("; more rounds: {}", run.command("resume", &format!("--repeat {}", 2 * run.plan.repeat)))
        };
        let more = match &run.plan.design {
            Design::FixedRounds | Design::Curve(_) | Design::Watch(_) => more(),
            Design::UntilDecided(_) | Design::UntilSteady(_) | Design::Ask(_) => String::new(),
        };
        say!("run {} has all its measurements{more}", run.id);
        return Ok(Exit::Fine);
    }
    if run.plan.until_steady().is_some() && run.targets.iter().any(|target| target.purged.is_some()) {
        return Err(usage(format!(
            "run {}: its device was purged and filled before the first round, and would be once more: rounds of a used drive and of a new one make no \
             steady state; begin a new run",
            run.id
        )));
    }
    let done = run.measurements.iter().map(|m| (m.target.clone(), m.workload.clone(), m.round)).collect();
    Session {
        yes: args.yes,
        guests: args.guest.options(),
        earlier: Some(Earlier {
            run: run.id,
            seed: run.seed,
            done,
            environment: run.environment,
            targets: run.targets,
            rounds: rounds_before,
        }),
        permission: args.overwrite.permission()?,
        leave_agent: args.remote.leave_agent,
        ..Session::new(run.plan, &args.output)
    }
    .carry_out()
}
