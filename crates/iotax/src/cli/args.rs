//! Flags that several commands share.

use std::path::PathBuf;

use clap::Args;
use iotax_model::plan::{DEFAULT_MAX_ROUNDS, Margin, Plan, PlanError, UntilDecided};
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
    /// 3 rounds of 1.8 s: about 3 minutes
    #[arg(long, group = "length")]
    pub(super) quick: bool,
    /// 5 rounds of 6 s: about 12 minutes (the default)
    #[arg(long, group = "length")]
    standard: bool,
    /// 10 rounds of 30 s: about 2 hours
    #[arg(long, group = "length")]
    pub(super) thorough: bool,
    /// Number of rounds
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// How long each measurement is
    #[arg(long, value_name = "TIME")]
    runtime: Option<Nanos>,
    /// Warm-up before each, not counted
    #[arg(long, alias = "ramp_time", value_name = "TIME")]
    ramp_time: Option<Nanos>,
}

impl Length {
    /// Rounds, window and warm-up.
    pub(super) fn all(&self) -> (u32, Nanos, Nanos) {
        let (repeat, runtime, ramp_time) = if self.quick {
            (3, Nanos::from_millis(1800), Nanos::from_millis(400))
        } else if self.thorough {
            (10, Nanos::from_secs(30), Nanos::from_secs(5))
        } else {
            (5, Nanos::from_secs(6), Nanos::from_secs(1))
        };
        let (runtime, ramp_time) = (self.runtime.unwrap_or(runtime), self.ramp_time.unwrap_or(ramp_time));
        (self.repeat.unwrap_or(repeat), runtime, ramp_time)
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
