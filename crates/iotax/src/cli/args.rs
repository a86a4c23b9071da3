//! Flags common to several commands.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use iotax_model::exit::Exit;
use iotax_model::plan::{
    BETWEEN, DEFAULT_MAX_ROUNDS, Design, MOST_STEADY_ROUNDS, Margin, Plan, PlanError, PlanFile,
    STEADY_WINDOW, UntilDecided, UntilSteady,
};
use iotax_model::target::{Accel, NbdExportSpec};
use iotax_model::units::{Bytes, Nanos};
use iotax_model::workload::Workload;
use iotax_testbed::device::Permission;

use super::known_words::known_words;
use super::number;
use super::time::seconds;
use super::{Failure, OrExit, usage};
use crate::runner::GuestOptions;

/// Options for starting a new run.
#[derive(Debug, Clone, Args)]
pub(super) struct SessionArgs {
    /// Begin without asking
    #[arg(long, short)]
    pub(super) yes: bool,
    /// Seed for order, offsets and payload [default: the plan's or job file's, else random]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    pub(super) overwrite: OverwriteArgs,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
}

/// Options for other machines and containers.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct RemoteArgs {
    /// Leave the agent in ~/.cache/iotax of other machines (ssh://) and containers, so that it is not copied again next time
    #[arg(long)]
    pub(super) leave_agent: bool,
}

/// Permissions to overwrite devices.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct OverwriteArgs {
    /// Allow overwriting this block device, or export of an NBD server by its URI; it must be named here as well as in the target
    #[arg(long, value_name = "DEVICE")]
    overwrite: Vec<PathBuf>,
    /// Overwrite the device even if it is not empty: a filesystem, RAID, LVM or partition table, or other data in its first or last MiB
    #[arg(long, requires = "overwrite")]
    overwrite_signature: bool,
}

impl OverwriteArgs {
    /// Returns the devices of `--overwrite`, and true if they may be overwritten even if they are not empty.
    pub(super) fn named(&self) -> (Vec<PathBuf>, bool) {
        (self.overwrite.clone(), self.overwrite_signature)
    }

    pub(super) fn permission(&self) -> Result<Permission, Failure> {
        let named = |path: &PathBuf| match path.to_str().filter(|text| NbdExportSpec::is_meant(text)) {
            Some(uri) => uri.parse::<NbdExportSpec>().map(|export| export.to_string().into()).map_err(usage),
            None => std::path::absolute(path).or_exit(Exit::Environment),
        };
        let named = self.overwrite.iter().map(named).collect::<Result<Vec<_>, _>>()?;
        Ok(Permission::new(named, self.overwrite_signature))
    }
}

/// Options for the total time, the rounds and the windows of a ladder.
#[derive(Debug, Clone, Args)]
pub(super) struct LengthArgs {
    /// Measure for at most this long, in many short rounds; end earlier if every comparison is decided [default: 3m, unless --repeat or
    /// --until-steady is given]
    #[arg(long, value_name = "TIME", conflicts_with_all = ["repeat", "max_time", "until_steady"])]
    time: Option<Nanos>,
    /// Measure a fixed number of rounds instead
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Length of each measurement [default: short enough for many rounds in --time; 6s with --repeat]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(super) runtime: Option<Nanos>,
    /// Warm-up before each measurement, not counted [default: a fifth of the measurement]
    #[arg(long, alias = "ramp_time", value_name = "TIME", value_parser = seconds)]
    pub(super) ramp_time: Option<Nanos>,
}

/// Default total measuring time of a ladder.
const DEFAULT_TIME: Nanos = Nanos::from_secs(180);
/// Minimum total time of a ladder that uses 4 GiB disks, because a long run would overwrite smaller ones repeatedly.
const LONG: Nanos = Nanos::from_secs(3600);
/// Number of rounds into which `--time` is divided, unless measurements would get too short.
const ROUNDS: u64 = 24;

/// Window lengths derived from `--time` are rounded down to a multiple of this.
const STEP: Nanos = Nanos::from_millis(50);

impl LengthArgs {
    /// Returns true if `--time` is at least an hour; a ladder then uses larger disks.
    pub(super) fn is_long(&self) -> bool {
        self.time.is_some_and(|time| time >= LONG)
    }

    /// Returns the lengths of a measurement's window and of its warm-up. `cells` is the number of measurements per round. A window derived
    /// from the total time is at least `shortest`.
    pub(super) fn window(&self, cells: usize, shortest: Nanos) -> (Nanos, Nanos) {
        let cell = self.time().0 / (ROUNDS * cells.max(1) as u64);
        // A sixth of the time without the pause is warm-up.
        let of_time = cell.saturating_sub(BETWEEN.0) * 5 / 6;
        let of_time = Nanos(of_time - of_time % STEP.0).max(shortest);
        let fixed = self.repeat.map(|_| Nanos::from_secs(6));
        let runtime = self.runtime.or(fixed).unwrap_or(of_time);
        (runtime, self.ramp_time.unwrap_or(Nanos(runtime.0 / 5)))
    }

    /// Sets the plan's number of rounds: `--repeat`, the five rounds of the steady-state rule, or as many as fit into the total time. Then
    /// applies `design` and checks the plan.
    pub(super) fn apply(&self, plan: Plan, design: &DesignArgs) -> Result<Plan, PlanError> {
        let is_steady = design.steady.until_steady;
        if self.repeat.is_none() && !is_steady && (design.max_rounds.is_some() || design.max_time.is_some()) {
            let words = "--max-rounds and --max-time go with --repeat N --until-decided; without them --time says how long";
            return Err(PlanError::Content(words.into()));
        }
        let mut plan = match self.repeat {
            Some(repeat) => Plan { repeat, ..plan },
            None if is_steady => Plan { repeat: STEADY_WINDOW, ..plan },
            None => plan.within(self.time())?,
        };
        design.apply(&mut plan)?;
        plan.check()?;
        Ok(plan)
    }

    /// Returns the total measuring time: `--time`, or the default.
    pub(super) fn time(&self) -> Nanos {
        self.time.unwrap_or(DEFAULT_TIME)
    }
}

/// Option for the margin within which two results count as equal.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct MarginArgs {
    /// Ratios closer to 1 than this count as the same, such as 0.5% [default: 2%]
    #[arg(long, value_name = "PERCENT")]
    pub(super) margin: Option<Margin>,
}

/// Option to add rounds until each target is in a steady state.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct SteadyArgs {
    /// Add rounds until each target is in a steady state by SNIA's rule: over the last five rounds, values range over at most 20% of their
    /// mean and their trend over at most 10%; results use only these five rounds
    #[arg(long)]
    pub(super) until_steady: bool,
    /// With --until-steady: write no more than this to each physical disk, filling included, all targets on it together; needed for more
    /// than the length of a device that --overwrite names
    #[arg(long, value_name = "SIZE")]
    may_write: Option<Bytes>,
}

/// Options for the margin of equivalence, and for adding rounds until all comparisons are decided or all targets are in a steady state.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct DesignArgs {
    /// Add rounds until every comparison is decided; the first interim look comes after --repeat rounds
    #[arg(long, conflicts_with = "until_steady")]
    until_decided: bool,
    #[command(flatten)]
    steady: SteadyArgs,
    #[command(flatten)]
    margin: MarginArgs,
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(4..=1000), help = format!("With --until-decided or --until-steady: no more rounds than this [default: {DEFAULT_MAX_ROUNDS}, {MOST_STEADY_ROUNDS} until steady]"))]
    max_rounds: Option<u32>,
    /// With --until-decided: stop adding rounds if the next interim look would come later than this after measuring began [default: no
    /// limit]
    #[arg(long, value_name = "TIME")]
    max_time: Option<Nanos>,
}

impl SteadyArgs {
    /// Makes the plan add rounds until a steady state, if `--until-steady` is given. Fails if `--may-write` is given and the plan does not wait
    /// for one.
    pub(super) fn apply(self, plan: &mut Plan) -> Result<(), PlanError> {
        if self.until_steady {
            plan.design = Design::UntilSteady(UntilSteady::default());
            plan.repeat = plan.repeat.max(STEADY_WINDOW);
        }
        match (&mut plan.design, self.may_write) {
            (_, None) => Ok(()),
            (Design::UntilSteady(until), may_write) => {
                until.may_write = may_write;
                Ok(())
            }
            (_, Some(bytes)) => Err(PlanError::Content(format!(
                "--may-write {bytes}: bounds what --until-steady writes; add --until-steady, or leave it out"
            ))),
        }
    }
}

impl DesignArgs {
    /// Replaces the plan's margin and its rule for adding rounds with the given options. Fails if they do not fit the plan; otherwise the
    /// caller checks the plan.
    pub(super) fn apply(&self, plan: &mut Plan) -> Result<(), PlanError> {
        plan.margin = self.margin.margin.unwrap_or(plan.margin);
        let flags = [("--until-decided", self.until_decided), ("--until-steady", self.steady.until_steady)];
        if let Some((flag, _)) = flags.iter().find(|(_, given)| *given && !plan.goes_by_rounds()) {
            return Err(PlanError::Content(format!("{flag}: the plan does not go by rounds; leave it out")));
        }
        match &plan.design {
            Design::FixedRounds | Design::UntilSteady(_) if self.until_decided => {
                plan.design = Design::UntilDecided(UntilDecided::default());
            }
            _ => {}
        }
        self.steady.apply(plan)?;
        let bound = [("--max-rounds", self.max_rounds.is_some()), ("--max-time", self.max_time.is_some())];
        match &mut plan.design {
            Design::UntilDecided(until) => {
                until.max_rounds = self.max_rounds.unwrap_or(until.max_rounds);
                until.max_time = self.max_time.or(until.max_time);
            }
            Design::UntilSteady(until) if self.max_time.is_none() => {
                until.max_rounds = self.max_rounds.unwrap_or(until.max_rounds);
            }
            Design::UntilSteady(_) => {
                return Err(PlanError::Content(
                    "--max-time: a steady state takes as long as it takes; limit it by --max-rounds or --may-write".into(),
                ));
            }
            Design::FixedRounds | Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => {
                if let Some((flag, _)) = bound.iter().rev().find(|(_, given)| *given) {
                    return Err(PlanError::Content(format!(
                        "{flag} bounds what --until-decided adds; add --until-decided, or give the number of rounds with --repeat"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Overrides of a plan file, such as for a quick trial of a long plan.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct PlanOverrides {
    /// Number of rounds, instead of the plan's
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1..=1000))]
    repeat: Option<u32>,
    /// Size of every workload's area, instead of the plan's
    #[arg(long)]
    pub(super) size: Option<Bytes>,
    /// Length of each measurement, instead of the plan's
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    runtime: Option<Nanos>,
    /// Warm-up before each measurement, not counted, instead of the plan's
    #[arg(long, alias = "ramp_time", value_name = "TIME", value_parser = seconds)]
    ramp_time: Option<Nanos>,
    #[command(flatten)]
    design: DesignArgs,
}

impl PlanOverrides {
    pub(super) fn apply(&self, file: &mut PlanFile) -> Result<(), PlanError> {
        let plan = &mut file.plan;
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
        match (self.repeat, file.time) {
            (Some(repeat), time) => {
                plan.repeat = repeat;
                // A fixed number of rounds replaces a time limit.
                if time.is_some() {
                    plan.design = Design::FixedRounds;
                }
            }
            (None, Some(time)) => *plan = plan.clone().within(time)?,
            (None, None) => {}
        }
        self.design.apply(plan)?;
        plan.check()
    }

    fn time(&self, workload: &mut Workload) {
        workload.runtime = self.runtime.unwrap_or(workload.runtime);
        workload.ramp_time = self.ramp_time.unwrap_or(workload.ramp_time);
    }
}

/// Options for booting guests.
#[derive(Debug, Clone, Args)]
pub(super) struct GuestArgs {
    /// Accelerator for guests: auto, kvm or tcg
    #[arg(long, default_value = "auto", value_parser = known_words(str::parse::<Accel>, Accel::WORDS.iter().copied()))]
    accel: Accel,
    /// Kernel for guests [default: the running kernel, else the newest in /boot that has its modules]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Module directory of that kernel [default: /lib/modules/RELEASE]
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
}

impl GuestArgs {
    /// Returns true with `--kernel` or `--accel kvm`. The user then expects guests, so rungs with guests must not be left out silently.
    pub(super) fn is_specific(&self) -> bool {
        self.kernel.is_some() || self.accel == Accel::Kvm
    }

    pub(super) fn options(&self) -> GuestOptions {
        GuestOptions { accel: Some(self.accel), kernel: self.kernel.clone(), modules: self.modules.clone() }
    }
}

/// Turns a text into a valid target name of up to 40 characters; empty if the text has nothing but dots.
pub(super) fn target_name(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .skip_while(|c| *c == '.')
        .take(LONGEST_NAME)
        .collect()
}

/// Number of characters of a target's name at most.
const LONGEST_NAME: usize = 40;

/// Makes names unique, by adding a number to repeated ones, which are cut for it if they are as long as a name may be.
pub(super) fn tell_apart<'a>(names: impl IntoIterator<Item = &'a mut String>) {
    let mut known = HashSet::new();
    for name in names {
        let mut unique = name.clone();
        for number in 2.. {
            if known.insert(unique.clone()) {
                break;
            }
            let number = format!("-{number}");
            unique = name.chars().take(LONGEST_NAME - number.len()).chain(number.chars()).collect();
        }
        *name = unique;
    }
}

/// Returns iotax's XDG directories of this user. Fails if no home directory is known.
pub(super) fn directories() -> Result<directories::ProjectDirs, Failure> {
    directories::ProjectDirs::from("", "", "iotax").ok_or_else(|| {
        usage("no home directory is known: set HOME, or give --db FILE and set XDG_STATE_HOME")
    })
}

/// Returns the directory for undo logs, below the XDG state directory.
pub(super) fn undo_dir() -> Result<PathBuf, Failure> {
    let dirs = directories()?;
    Ok(dirs.state_dir().unwrap_or_else(|| dirs.data_dir()).join("undo"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike_are_told_apart_within_their_length() {
        let long = "n".repeat(LONGEST_NAME);
        let mut names = ["a", "a", &long, &long, "a"].map(str::to_owned);
        tell_apart(&mut names);
        let cut = format!("{}-2", "n".repeat(LONGEST_NAME - 2));
        assert_eq!(names, ["a", "a-2", &long, &cut, "a-3"]);
    }
}
