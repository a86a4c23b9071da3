//! Flags that several commands share.

use std::path::PathBuf;

use clap::Args;
use iotax_model::plan::{BETWEEN, DEFAULT_MAX_ROUNDS, Margin, Plan, PlanError, UntilDecided};
use iotax_model::target::Accel;
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::Workload;
use iotax_testbed::device::Permission;

use super::{Failure, usage};
use crate::runner::GuestOptions;

/// How a new run is begun.
#[derive(Debug, Clone, Args)]
pub(super) struct SessionArgs {
    /// Ask nothing
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Decides order, offsets and payload [default: random]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    pub(super) overwrite: Overwrite,
    #[command(flatten)]
    pub(super) remote: Remote,
}

/// What is done on machines that ssh reaches.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Remote {
    /// Leave the agent's program in ~/.cache/iotax of other machines (ssh://), so that it need not be copied again
    #[arg(long)]
    pub(super) leave_agent: bool,
}

/// What may be destroyed.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Overwrite {
    /// A block device that may be overwritten; it must be named here as well as in the target
    #[arg(long, value_name = "DEVICE")]
    overwrite: Vec<PathBuf>,
    /// Overwrite it even if it carries a filesystem, RAID, LVM or partition table signature
    #[arg(long, requires = "overwrite")]
    overwrite_signature: bool,
}

impl Overwrite {
    pub(super) fn permission(&self) -> std::io::Result<Permission> {
        let overwrite: Vec<PathBuf> =
            self.overwrite.iter().map(std::path::absolute).collect::<Result<_, _>>()?;
        Ok(Permission::new(overwrite, self.overwrite_signature))
    }
}

/// How much a ladder measures.
#[derive(Debug, Clone, Args)]
pub(super) struct Length {
    /// Measure for this long at most, in many short rounds; it ends earlier if every comparison is decided [default: 3m]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["repeat", "max_time"])]
    time: Option<Nanos>,
    /// A fixed number of rounds instead
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// How long each measurement is [default: what gives enough rounds in the time; 6s with --repeat]
    #[arg(long, value_name = "TIME")]
    runtime: Option<Nanos>,
    /// Warm-up before each, not counted [default: a fifth of the measurement]
    #[arg(long, alias = "ramp_time", value_name = "TIME")]
    ramp_time: Option<Nanos>,
}

/// The time of a ladder unless another is given.
const DEFAULT_TIME: Nanos = Nanos::from_secs(180);
/// From this time on a ladder's disks are larger, so that it does not write them over and over.
const LONG: Nanos = Nanos::from_secs(3600);
/// As many rounds as a time is divided into, where measurements are not shorter than the shortest by that.
const ROUNDS: u64 = 24;

/// Windows are whole steps long.
const STEP: Nanos = Nanos::from_millis(50);

impl Length {
    /// Whether so much is measured that it takes larger disks.
    pub(super) fn is_long(&self) -> bool {
        self.time.is_some_and(|time| time >= LONG)
    }

    /// Window and warm-up of each measurement, of so many cells a round; `shortest` is the least that tells something.
    pub(super) fn window(&self, cells: usize, shortest: Nanos) -> (Nanos, Nanos) {
        let cell = self.time().0 / (ROUNDS * cells.max(1) as u64);
        // A sixth of what is left beside the pause is warm-up.
        let of_time = cell.saturating_sub(BETWEEN.0) * 5 / 6;
        let of_time = Nanos(of_time - of_time % STEP.0).max(shortest);
        let fixed = self.repeat.map(|_| Nanos::from_secs(6));
        let runtime = self.runtime.or(fixed).unwrap_or(of_time);
        (runtime, self.ramp_time.unwrap_or(Nanos(runtime.0 / 5)))
    }

    /// The plan with the rounds that were asked for.
    pub(super) fn apply(&self, plan: Plan, design: &Design) -> Result<Plan, PlanError> {
        if self.repeat.is_none() && (design.max_rounds.is_some() || design.max_time.is_some()) {
            let words = "--max-rounds and --max-time go with --repeat N --until-decided; without them --time says how long";
            return Err(PlanError::Content(words.into()));
        }
        let mut plan = match self.repeat {
            Some(repeat) => Plan { repeat, ..plan },
            None => plan.within(self.time())?,
        };
        design.apply(&mut plan)?;
        plan.check()?;
        Ok(plan)
    }

    fn time(&self) -> Nanos {
        self.time.unwrap_or(DEFAULT_TIME)
    }
}

/// What counts as a difference, and whether rounds are added until that is known.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Design {
    /// Add rounds until every comparison is decided; the first look is after --repeat rounds
    #[arg(long)]
    until_decided: bool,
    /// Ratios closer to 1 than this count as the same [default: 2%]
    #[arg(long, value_name = "PERCENT")]
    margin: Option<Margin>,
    #[arg(long, value_name = "N", help = format!("With --until-decided: no more rounds than this [default: {DEFAULT_MAX_ROUNDS}]"))]
    max_rounds: Option<u32>,
    /// With --until-decided: no more rounds when those up to the next look would be measured later than this [default: no limit]
    #[arg(long, value_name = "TIME")]
    max_time: Option<Nanos>,
}

impl Design {
    /// What was given takes the place of what the plan says; the caller checks the plan.
    pub(super) fn apply(&self, plan: &mut Plan) -> Result<(), PlanError> {
        plan.margin = self.margin.unwrap_or(plan.margin);
        if self.until_decided && plan.until_decided.is_none() {
            plan.until_decided = Some(UntilDecided::default());
        }
        let Some(until) = &mut plan.until_decided else {
            let bound =
                [("--max-rounds", self.max_rounds.is_some()), ("--max-time", self.max_time.is_some())];
            return match bound.iter().find(|(_, given)| *given) {
                Some((flag, _)) => Err(PlanError::Content(format!(
                    "{flag} bounds what --until-decided adds; add --until-decided, or give the number of rounds with --repeat"
                ))),
                None => Ok(()),
            };
        };
        until.max_rounds = self.max_rounds.unwrap_or(until.max_rounds);
        until.max_time = self.max_time.or(until.max_time);
        Ok(())
    }
}

/// What holds instead of what a plan file says: for a first try of a long plan.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct Instead {
    /// Number of rounds, instead of the plan's
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Size of every workload's area, instead of the plan's
    #[arg(long)]
    size: Option<Bytes>,
    /// How long each measurement is, instead of the plan's
    #[arg(long, value_name = "TIME")]
    runtime: Option<Nanos>,
    /// Warm-up before each, not counted, instead of the plan's
    #[arg(long, alias = "ramp_time", value_name = "TIME")]
    ramp_time: Option<Nanos>,
    #[command(flatten)]
    design: Design,
}

impl Instead {
    pub(super) fn apply(&self, plan: &mut Plan) -> Result<(), PlanError> {
        plan.repeat = self.repeat.unwrap_or(plan.repeat);
        let laid_out = |work: &Workload| work.offset_increment.is_some() || !work.beside.is_empty();
        if let (Some(size), true) = (self.size, plan.workloads.iter().any(laid_out)) {
            return Err(PlanError::Content(format!(
                "--size {size}: the areas of jobs that run at the same time are laid out by their sizes; change those in the file"
            )));
        }
        let noise = plan.neighbours.iter_mut().map(|neighbour| &mut neighbour.workload);
        for workload in plan.workloads.iter_mut().chain(noise) {
            workload.size = self.size.or(workload.size);
            self.time(workload);
            workload.beside.iter_mut().for_each(|job| self.time(job));
        }
        self.design.apply(plan)?;
        plan.check()
    }

    fn time(&self, workload: &mut Workload) {
        workload.runtime = self.runtime.unwrap_or(workload.runtime);
        workload.ramp_time = self.ramp_time.unwrap_or(workload.ramp_time);
    }
}

/// What guests are booted with.
#[derive(Debug, Clone, Args)]
pub(super) struct Guest {
    /// What runs guests: auto, kvm or tcg
    #[arg(long, default_value = "auto")]
    accel: Accel,
    /// Kernel for guests [default: the running one's, else the newest in /boot that has its modules]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Module directory of that kernel [default: /lib/modules/RELEASE]
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
}

impl Guest {
    /// Whether the user said what guests are to be booted with, so that doing without them would be doing otherwise.
    pub(super) fn is_specific(&self) -> bool {
        self.kernel.is_some() || self.accel == Accel::Kvm
    }

    pub(super) fn options(&self) -> GuestOptions {
        GuestOptions { accel: Some(self.accel), kernel: self.kernel.clone(), modules: self.modules.clone() }
    }
}

/// The user's directories for iotax.
pub(super) fn directories() -> Result<directories::ProjectDirs, Failure> {
    directories::ProjectDirs::from("", "", "iotax").ok_or_else(|| {
        usage("no home directory is known: set HOME, or give --db FILE and set XDG_STATE_HOME")
    })
}

/// Where undo logs are kept.
pub(super) fn undo_dir() -> Result<PathBuf, Failure> {
    let dirs = directories()?;
    Ok(dirs.state_dir().unwrap_or_else(|| dirs.data_dir()).join("undo"))
}
