//! `iotax tune`: finds settings of the kernel or of a guest that improve a target's performance.

mod candidates;
mod lasting;
mod screening;

use clap::Args as ClapArgs;
use iotax_analysis::Metric;
use iotax_analysis::tune::{Candidate, Tried, Tuning, choose, confirm};
use iotax_model::Run;
use iotax_model::TargetSpec;
use iotax_model::exit::Exit;
use iotax_model::plan::{BETWEEN, Plan, PlanError};
use iotax_model::run::quoted;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::{STANDARD, Workload, WorkloadKeys};
use iotax_report::document::tuned;
use iotax_report::json::tune;
use iotax_testbed::device::Permission;

use super::args::{GuestArgs, MarginArgs, SessionArgs};
use super::flags::{OwnDefaults, WorkloadFlags};
use super::json_args::JsonArgs;
use super::known_words::{known_words, text_of};
use super::output::{OutputArgs, StoreArgs, load};
use super::print_plan::print_plan;
use super::say::note;
use super::session::Session;
use super::terminal::PageArgs;
use super::{Failure, OrExit, target_args, usage};

/// Flags of `iotax tune`; those that describe the work have fio's names.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// A file, directory or device as for iotax bench; RUNG:DIR for a rung of iotax ladder with its image in a directory, such as
    /// vm-raw:/srv/images; PLAN.toml with one target
    target: String,
    /// Settings to try, each with all offered values or only the given ones: scheduler, read_ahead_kb, nr_requests, wbt_lat_usec, nomerges,
    /// rq_affinity, max_sectors_kb, dirty_ratio and others of /proc/sys/vm; of guests cache, aio, bus, iothread, queues; such as
    /// scheduler,nr_requests=64:256 [default: those that suit the target and the work]
    #[arg(long = "try", value_name = "LIST", value_delimiter = ',')]
    wanted: Vec<String>,
    /// Choose by this metric [default: iops; latency_mean where the rate is given]
    #[arg(long = "for", value_name = "METRIC", value_parser = known_words(str::parse::<Metric>, Metric::compared().map(Metric::word)))]
    objective: Option<Metric>,
    /// Measure for at most this long, the screening and the confirmation together [default: 3m]
    #[arg(long, value_name = "TIME")]
    time: Option<Nanos>,
    /// Workloads of iotax ladder [default: the work that --rw and such flags describe, else randread-4k-qd32, seqread-1m and, where it may
    /// write, randwrite-4k-qd32]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = text_of(STANDARD.map(|(name, ..)| name)))]
    workloads: Vec<String>,
    #[command(flatten)]
    margin: MarginArgs,
    #[command(flatten)]
    workload: WorkloadFlags,
    /// Make the recommended kernel settings permanent: show the udev and sysctl files, ask (unless --yes), write the files and apply the
    /// settings now
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    json: JsonArgs,
    /// Print the screening's plan as a file, to edit and run with iotax run
    #[arg(long)]
    print_plan: bool,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    session: SessionArgs,
    #[command(flatten)]
    guest: GuestArgs,
}

/// Default total time. With several candidates, the screening takes `SCREENING` percent of it.
const TIME: Nanos = Nanos::from_secs(180);
const SCREENING: u64 = 60;
/// Number of rounds into which the time is divided, unless windows would get shorter than `SHORTEST`.
const ROUNDS: u64 = 24;
const SHORTEST: Nanos = Nanos::from_millis(250);
/// Default size of the area if the target is a new file.
const SIZE: Bytes = Bytes(1 << 30);
/// Name of the target with the present settings. `CHOSEN` is the name of the target with the chosen ones.
const PRESENT: &str = "present";
const CHOSEN: &str = "chosen";

/// Returns the defaults that differ from those of other commands, for help.
pub(super) fn own_defaults() -> OwnDefaults {
    let Workload { rw, bs, iodepth, .. } = WorkloadKeys::default().complete(&WorkloadKeys::default());
    let of_workloads =
        |value: String| format!("that of --workloads; {value} if another flag of the work is given");
    vec![
        ("rw", of_workloads(rw.to_string())),
        ("bs", of_workloads(bs.to_string())),
        ("iodepth", of_workloads(iodepth.to_string())),
        ("runtime", format!("short enough for {ROUNDS} rounds in --time, at least {SHORTEST}")),
        ("ramp_time", "a fifth of the measurement".into()),
    ]
}

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let json = args.json.open(tune::MARK)?;
    let permission = args.session.overwrite.permission()?;
    let base = base(args, &permission)?;
    let workloads = works(args, &base)?;
    let tryable = if args.wanted.is_empty() {
        candidates::suitable(&base, &workloads)?
    } else {
        candidates::asked(&base, &args.wanted)?
    };
    let tuner = Tuner { args, base: &base, workloads: &workloads, permission: &permission };
    let time = args.time.unwrap_or(TIME);
    // A single candidate needs no confirmation: its result was not picked as the best of several.
    let is_screened = tryable.len() > 1;
    let first = if is_screened { Nanos(time.0 / 100 * SCREENING) } else { time };
    let screening = tuner.screening(tryable, first)?;
    if args.print_plan {
        return print_plan(&screening.plan, &screening.notes);
    }
    screening.notes.iter().for_each(|note| note!("{note}"));
    let margin = screening.plan.margin.share();
    let (run, exit) = tuner.measured(screening.plan.clone(), true)?;
    let Some(run) = run.filter(|_| exit == Exit::Fine) else { return Ok(exit) };
    let tried = screening.judge(&run, args.objective);
    let emulated = run.targets.iter().any(|target| target.emulated);
    let mut tuning = Tuning { screening: None, tried, chosen: vec![0], confirmation: None, emulated };
    if is_screened {
        tuning.screening = Some(run.id);
        tuning.chosen = choose(&tuning.tried, margin);
        if !tuning.chosen.is_empty() {
            note!("Confirming in fresh rounds: {}", named(tuning.candidates()));
            let chosen = tuner.with_all(&tuning)?;
            let plan = tuner.plan(vec![chosen], Nanos(time.0 / 100 * (100 - SCREENING)))?;
            let (run, exit) = tuner.measured(plan, false)?;
            let Some(run) = run.filter(|_| exit == Exit::Fine) else { return Ok(exit) };
            tuning.confirmation = Some((run.id, confirm(&run, args.objective)));
        }
    } else {
        tuning.confirmation = Some((run.id, confirm(&run, args.objective)));
    }
    args.page.show(&tuned(&tuning), json.is_on_stdout());
    json.write(|| tune::document(&tuning))?;
    conclude(&tuner, &tuning)
}

/// Shows how to make a recommendation permanent, or makes it permanent with `--apply`. Returns the exit code.
fn conclude(tuner: &Tuner<'_>, tuning: &Tuning) -> Result<Exit, Failure> {
    if measured_nothing(&tuning.tried) {
        note!("No candidate could be measured; the reasons are above.");
        return Ok(Exit::Measurement);
    }
    if !tuning.pays() {
        return Ok(Exit::Fine);
    }
    let chosen = tuner.with_all(tuning)?;
    lasting::offer(&chosen, tuning, tuner.args.apply, tuner.args.session.yes)
}

fn measured_nothing(tried: &[Tried]) -> bool {
    tried.iter().all(|one| one.comparisons.is_empty())
}

fn named<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> String {
    candidates.map(|one| format!("{}={}", one.key, one.value)).collect::<Vec<_>>().join(" ")
}

/// Returns the target to tune, with its present settings.
fn base(args: &Args, permission: &Permission) -> Result<TargetSpec, Failure> {
    let mut targets = target_args::targets(std::slice::from_ref(&args.target), false, permission)?;
    match (targets.pop(), targets.len()) {
        (Some(target), 0) if target.remote().is_none() && target.network().is_none() => {
            Ok(TargetSpec { name: PRESENT.into(), ..target })
        }
        (Some(_), 0) => Err(usage(format!(
            "{}: settings are tuned on the machine that has them; run iotax tune there",
            args.target
        ))),
        (_, more) => Err(usage(format!("{}: {} targets; tune takes one", args.target, more + 1))),
    }
}

/// Returns the workloads to tune for: the requested ones, or usual ones that may run on this target.
fn works(args: &Args, base: &TargetSpec) -> Result<Vec<Workload>, Failure> {
    let keys = &args.workload.0;
    if let Some(trace) = &keys.read_iolog {
        let quoted = quoted(trace);
        return Err(usage(format!(
            "--read-iolog {quoted}: settings are searched by workloads that repeat; iotax trace {quoted} prints the nearest one"
        )));
    }
    let is_new = base.path().is_none_or(|path| !path.exists());
    let WorkloadKeys { size, runtime, ramp_time, .. } = keys;
    let lengths =
        WorkloadKeys { size: *size, runtime: *runtime, ramp_time: *ramp_time, ..WorkloadKeys::default() };
    let mut works = if *keys != lengths {
        if !args.workloads.is_empty() {
            return Err(usage("--workloads and flags of the work exclude each other; leave one out"));
        }
        vec![keys.complete(&WorkloadKeys::default())]
    } else if args.workloads.is_empty() {
        let may_write =
            is_new && (base.device().is_none() || base.guest().is_some() || permitted(args, base)?);
        let names = ["randread-4k-qd32", "seqread-1m", "randwrite-4k-qd32"];
        let names = if may_write { &names[..] } else { &names[..2] };
        names.iter().map(|name| name.parse()).collect::<Result<_, _>>().or_exit(Exit::Usage)?
    } else {
        args.workloads
            .iter()
            .map(|name| name.parse())
            .collect::<Result<Vec<Workload>, _>>()
            .or_exit(Exit::Usage)?
    };
    for work in &mut works {
        work.size = size.or(work.size).or(is_new.then_some(SIZE));
    }
    Ok(works)
}

fn permitted(args: &Args, base: &TargetSpec) -> Result<bool, Failure> {
    let permission = args.session.overwrite.permission()?;
    Ok(base.device().is_some_and(|device| permission.allows(device)))
}

/// State shared by the screening and the confirmation.
struct Tuner<'a> {
    args: &'a Args,
    base: &'a TargetSpec,
    workloads: &'a [Workload],
    permission: &'a Permission,
}

impl Tuner<'_> {
    /// Builds a plan that compares the present settings with `others`. Fails if `time` is too short for it.
    fn plan(&self, others: Vec<TargetSpec>, time: Nanos) -> Result<Plan, Failure> {
        let whole = self.args.time.unwrap_or(TIME);
        let fewer = |error: PlanError| {
            usage(format!(
                "--time {whole}: {time} of it are for this part. {error}, or try fewer settings (--try)"
            ))
        };
        let plan = self.bare_plan(others, time).within(time).map_err(fewer)?;
        plan.check().or_exit(Exit::Usage)?;
        Ok(plan)
    }

    /// Returns the plan with one round, whose windows are sized for the given time.
    fn bare_plan(&self, others: Vec<TargetSpec>, time: Nanos) -> Plan {
        let targets: Vec<TargetSpec> = [vec![self.base.clone()], others].concat();
        let cells = (targets.len() * self.workloads.len()).max(1) as u64;
        // A sixth of the time without the pause is warm-up.
        let of_time = (time.0 / (ROUNDS * cells)).saturating_sub(BETWEEN.0) * 5 / 6;
        let runtime =
            self.args.workload.0.runtime.unwrap_or(Nanos(of_time - of_time % 50_000_000).max(SHORTEST));
        let ramp_time = self.args.workload.0.ramp_time.unwrap_or(Nanos(runtime.0 / 5));
        let timed = |work: &Workload| Workload { runtime, ramp_time, ..work.clone() };
        Plan {
            seed: self.args.session.seed,
            margin: self.args.margin.margin.unwrap_or_default(),
            ..Plan::new(
                format!("tune {}", self.args.target),
                targets,
                self.workloads.iter().map(timed).collect(),
            )
        }
    }

    /// Returns the target with all chosen settings.
    fn with_all(&self, tuning: &Tuning) -> Result<TargetSpec, Failure> {
        Ok(TargetSpec { name: CHOSEN.into(), ..self.with(tuning.candidates())? })
    }

    /// Returns the target with the present settings, changed by `candidates`.
    fn with<'c>(&self, mut candidates: impl Iterator<Item = &'c Candidate>) -> Result<TargetSpec, Failure> {
        let one = |target: TargetSpec, candidate: &Candidate| {
            candidates::with(&target, &candidate.key, &candidate.value)
        };
        candidates.try_fold(self.base.clone(), one)
    }

    /// Measures a plan and loads its run. Returns the run and the exit code. The run is `None` if the user declined or it could not be
    /// started.
    fn measured(&self, plan: Plan, ask: bool) -> Result<(Option<Run>, Exit), Failure> {
        let output = OutputArgs { store: self.args.store.clone(), ..OutputArgs::default() };
        let session = Session::new(plan, &output).with(&self.args.session, self.permission.clone());
        let session = Session { guests: self.args.guest.options(), ask, ..session };
        let (run, exit) = session.measure()?;
        let run = run.map(|run| load(&self.args.store.open_existing()?, run)).transpose()?;
        Ok((run, exit))
    }
}
