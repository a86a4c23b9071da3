//! The plan of a run: targets, workloads, and the number of rounds or the rule for adding rounds.

mod ask;
mod axes;
mod curve;
mod curve_rates;
mod demand;
mod design;
mod difference;
mod event;
mod file;
mod fleet;
mod positions;
mod rates;
mod replays;
mod schema;
mod steady;
mod target_checks;
mod until;
mod watch;
mod write;

use std::collections::HashSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::NetTest;
use crate::suite::Suite;
use crate::target::{RequiredSpace, TargetError, TargetSpec};
use crate::units::human;
use crate::units::{Bytes, Nanos};
use crate::workload::{Content, DEFAULT_SIZE, IoEngine, Workload, WorkloadError, WorkloadKeys};

pub use ask::{AskSpec, Slo, SloError};
pub use axes::{LeftOut, MOST, PlanAxis};
pub use curve::CurveSpec;
pub use curve_rates::Scouted;
pub use design::Design;
pub use difference::TargetDifference;
pub use file::PlanFile;
pub use fleet::{FleetRates, FleetSpec};
pub use rates::rounded;
pub use schema::schema;
pub use steady::{MOST_STEADY_ROUNDS, STEADY_RANGE, STEADY_SLOPE, STEADY_WINDOW, UntilSteady};
pub use until::{
    DEFAULT_MAX_ROUNDS, FIRST_LOOK, FIRST_LOOK_AFTER, MOST_LOOKS, Margin, MarginError, UntilDecided,
};

pub use demand::{Demand, DemandError, DemandOn, Keep, RateUnit};
pub use event::{Action, Operation, PlannedEvent};
pub use watch::{Limit, Requirement, RequirementError, WatchFigure, WatchSpec};

/// A complete plan. [`Plan::from_toml`] checks the plans that it parses; [`Plan::check`] checks plans built in other ways, as from flags.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Title of the run in reports.
    pub name: String,
    /// Name of the [suite](crate::suite) that the workloads belong to, which decides how reports group them. `None` for other workloads.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suite: Option<String>,
    /// Number of rounds; if rounds are added, the number before the first evaluation of results.
    pub repeat: u32,
    /// Rule for choosing what is measured and when the run stops, with its settings.
    #[serde(default)]
    pub design: Design,
    /// Margin of equivalence: results whose ratio differs from 1 by less than this count as equal.
    #[serde(default)]
    pub margin: Margin,
    /// Name of the target that the other targets are compared with.
    pub baseline: String,
    /// Name of the control target, whose changes `iotax trend` removes from the other targets' results; `None` without a control.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub control: Option<String>,
    /// Seed that determines the order of measurements, the offsets and the payload. If absent, the run draws one at its start.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seed: Option<u64>,
    /// The targets to measure; at least one, with unique names.
    pub targets: Vec<TargetSpec>,
    /// The workloads to run on each target; at least one, with unique names.
    pub workloads: Vec<Workload>,
    /// Background loads that run while the targets that name them are measured; not measured themselves.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub neighbours: Vec<Neighbour>,
    /// Limits that every target's results are checked against.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub require: Vec<Demand>,
}

/// A target and a workload that produce background load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// The target of the load; its name, unique among targets and neighbours, is the neighbour's name.
    pub target: TargetSpec,
    /// The workload, which runs while targets that name this neighbour are measured; its runtime and warm-up are ignored.
    #[schemars(with = "Option<WorkloadKeys>")]
    pub workload: Workload,
}

/// Size in bytes of a created target whose area no workload accesses.
const UNUSED: u64 = 1 << 20;

/// Default number of rounds of a plan.
pub const DEFAULT_REPEAT: u32 = 5;

/// Estimated time between two measurements, for dropping caches, pausing and resuming guests, and storing results.
pub const BETWEEN: Nanos = Nanos::from_millis(100);

/// Maximum number of measurements in a plan; a higher number is probably a typing error.
pub const MOST_MEASUREMENTS: usize = 10_000;

/// The reason why a plan is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An error in a plan file. If the place is known, the text gives the line and column, and quotes the line.
    #[error("{0}")]
    File(String),
    /// An invalid target.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// An invalid workload.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Two targets or background loads, or two workloads, with the same name.
    #[error("two {list}s are named {name:?}; results are told apart by name")]
    Twice {
        /// `target` or `workload`.
        list: &'static str,
        /// The name that occurs twice.
        name: String,
    },
    /// Any other error. The text starts with the key at fault, if a single key is at fault.
    #[error("{0}")]
    Content(String),
}

impl PlanError {
    /// Returns the reason of the error, without the name of the target or workload.
    fn reason(&self) -> String {
        match self {
            Self::Target(error) => error.reason.clone(),
            Self::Workload(error) => error.reason(),
            Self::Twice { .. } => format!("name: {self}"),
            Self::File(text) | Self::Content(text) => text.clone(),
        }
    }
}

impl Neighbour {
    /// Rejects a neighbour whose target cannot be built, whose workload cannot run, or whose target names a neighbour.
    fn check(&self) -> Result<(), PlanError> {
        self.target.check()?;
        self.workload.check()?;
        match &self.target.neighbour {
            Some(name) => Err(self.target.refused(format!("neighbour = {name:?}: it is one itself")).into()),
            None => Ok(()),
        }
    }
}

impl Plan {
    /// Creates a plan of one round in which the first target is the baseline.
    #[must_use]
    pub fn new(name: String, targets: Vec<TargetSpec>, workloads: Vec<Workload>) -> Self {
        Self {
            name,
            suite: None,
            repeat: 1,
            design: Design::default(),
            margin: Margin::default(),
            baseline: targets.first().map(|target| target.name.clone()).unwrap_or_default(),
            control: None,
            seed: None,
            targets,
            workloads,
            neighbours: Vec::new(),
            require: Vec::new(),
        }
    }

    /// Parses and checks the text of a plan file. An error names the line and column at fault, if they can be found.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::read(text).map(|reading| reading.plan)
    }

    /// Parses a plan file like [`Self::from_toml`]. Also returns the file's time limit, its axes, the combinations that were left out, and
    /// the settings for a fleet.
    pub fn read(text: &str) -> Result<PlanFile, PlanError> {
        file::read(text, Vec::new())
    }

    /// Parses a plan file without targets like [`Self::from_toml`], and uses `targets`.
    ///
    /// # Errors
    /// The file defines targets, or is not a valid plan with these targets.
    pub fn of_profile(text: &str, targets: Vec<TargetSpec>) -> Result<Self, PlanError> {
        file::read(text, targets).map(|reading| reading.plan)
    }

    /// Formats the plan as a commented file that parses as the same plan. Keys that all workloads share go to `[defaults]`.
    ///
    /// # Errors
    /// A number is above 2^63 - 1, the largest integer that TOML can hold.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        write::write(self)
    }

    /// Finds the earlier target that differs in the fewest keys from the one at index `target`, with the differences; `None` for the first.
    #[must_use]
    pub fn most_like(&self, target: usize) -> Option<(&TargetSpec, Vec<TargetDifference>)> {
        let (target, earlier) = (self.targets.get(target)?, &self.targets[..target]);
        let compared = earlier.iter().map(|other| (other, difference::between(target, other)));
        let (other, (differences, _)) = compared.min_by_key(|(_, (_, keys))| *keys)?;
        Some((other, differences))
    }

    /// Rejects a plan that could not run on any machine: no targets, repeated names, keys that exclude each other.
    pub fn check(&self) -> Result<(), PlanError> {
        let refuse = |text: String| Err(PlanError::Content(text));
        if self.targets.is_empty() {
            return refuse("no target: add a [[target]] table".into());
        }
        if self.workloads.is_empty() {
            return refuse("no workload: add a [[workload]] table".into());
        }
        if let Some(name) = &self.suite {
            Suite::named(name).map_err(|error| PlanError::Content(format!("suite = {name:?}: {error}")))?;
        }
        demand::check(self)?;
        if self.repeat == 0 || self.repeat > 1000 {
            return refuse(format!("repeat = {}: accepted: 1 to 1000", self.repeat));
        }
        let names = || self.targets.iter().map(|t| t.name.as_str());
        let noisy = || self.neighbours.iter().map(|neighbour| neighbour.target.name.as_str());
        let twice = |list, name: &str| Err(PlanError::Twice { list, name: name.to_owned() });
        if let Some(name) = first_repeated(names().chain(noisy())) {
            return twice("target", name);
        }
        if let Some(name) = first_repeated(self.workloads.iter().map(|w| w.name.as_str())) {
            return twice("workload", name);
        }
        match &self.design {
            Design::FixedRounds => {}
            Design::UntilDecided(until) => until.check(self.repeat, self.targets.len(), self.round_time())?,
            Design::UntilSteady(until) => until.check(self)?,
            Design::Curve(curve) => curve.check(self)?,
            Design::Ask(ask) => ask.check(self)?,
            Design::Watch(watch) => watch.check(self)?,
        }
        let rounds = self.most_rounds();
        let measurements = self.cells() * rounds as usize;
        if measurements > MOST_MEASUREMENTS {
            let key = if rounds > self.repeat { "max_rounds" } else { "repeat" };
            return refuse(format!(
                "{key} = {rounds}: {} targets x {} workloads x {rounds} rounds are {measurements} measurements; accepted: \
                 up to {MOST_MEASUREMENTS}",
                self.targets.len(),
                self.workloads.len(),
            ));
        }
        for (key, name) in [("baseline", Some(&self.baseline)), ("control", self.control.as_ref())] {
            let Some(name) = name.filter(|name| !names().any(|known| known == *name)) else { continue };
            let known: Vec<&str> = names().collect();
            return refuse(format!("{key} = {name:?} is not a target; accepted: {}", known.join(", ")));
        }
        for target in &self.targets {
            target.check()?;
            if let Some(name) = &target.neighbour
                && !noisy().any(|known| known == name)
            {
                let accepted = if self.neighbours.is_empty() {
                    "add a [[neighbour]] table".into()
                } else {
                    format!("accepted: {}", noisy().collect::<Vec<_>>().join(", "))
                };
                return Err(target.refused(format!("neighbour = {name:?} is not there; {accepted}")).into());
            }
        }
        for workload in &self.workloads {
            workload.check()?;
        }
        for neighbour in &self.neighbours {
            neighbour.check()?;
        }
        self.check_networks()?;
        self.check_targets()?;
        self.check_settings()?;
        self.check_replays()?;
        self.check_journals()
    }

    /// Rejects network workloads on storage, storage workloads on networks, and ICMP round trips through a user-mode network stack.
    fn check_networks(&self) -> Result<(), PlanError> {
        for target in self.everything() {
            let echoes = |workload: &&Workload| {
                workload.kind.traffic().is_some_and(|net| net.test == NetTest::IcmpRtt)
                    && target.network().is_some_and(|network| network.via.is_in_user_mode())
            };
            if let Some(workload) = self.work_on(target).into_iter().find(echoes) {
                return Err(target
                    .refused(format!(
                        "workload {:?}: echo requests do not pass a network in user mode, which answers them itself; use udp-rtt",
                        workload.name
                    ))
                    .into());
            }
            let other = |workload: &&Workload| workload.kind.is_network() != target.network().is_some();
            let Some(workload) = self.work_on(target).into_iter().find(other) else { continue };
            let remedy = if target.network().is_some() {
                "a network carries workloads with net = { test = \"tcp\" } or another test of net"
            } else {
                "it needs a target with network = { via = \"veth\" } or another way"
            };
            let (name, doing) = (&workload.name, workload.doing());
            return Err(target.refused(format!("workload {name:?} ({doing}): {remedy}")).into());
        }
        Ok(())
    }

    /// Returns the numbers of rounds after which a run with [`Design::UntilDecided`] evaluates comparisons; for other designs only
    /// `repeat`.
    #[must_use]
    pub fn looks(&self) -> Vec<u32> {
        self.until_decided().map_or_else(|| vec![self.repeat], |until| until.looks(self.repeat))
    }

    /// Returns the maximum number of rounds of the run.
    #[must_use]
    pub fn most_rounds(&self) -> u32 {
        match &self.design {
            Design::UntilDecided(until) => until.max_rounds,
            Design::UntilSteady(until) => until.max_rounds,
            Design::FixedRounds | Design::Curve(_) | Design::Ask(_) | Design::Watch(_) => self.repeat,
        }
    }

    /// Returns the largest number of rounds that stays within the limits on rounds and on measurements of a plan.
    #[must_use]
    pub fn most_of_a_run(&self) -> u32 {
        let most = MOST_MEASUREMENTS / self.cells().max(1);
        u32::try_from(most).unwrap_or(u32::MAX).min(until::MOST_ROUNDS)
    }

    /// Sets a time limit: rounds are added until every comparison is decided or the time is up, with the first evaluation after half a minute. A
    /// single target, which has no comparisons, gets the rounds that fit into half a minute, at least four.
    ///
    /// # Errors
    /// The time, or the maximum number of measurements in a plan, is too small for four rounds.
    pub fn within(self, time: Nanos) -> Result<Self, PlanError> {
        let between = BETWEEN.0.saturating_mul(self.cells() as u64);
        let round = self.round_time().0.saturating_add(between).max(1);
        let fitting = |time: Nanos| u32::try_from(time.0 / round).unwrap_or(u32::MAX);
        let max_rounds = fitting(time).min(self.most_of_a_run());
        if max_rounds <= FIRST_LOOK {
            let least = Nanos(round.saturating_mul(u64::from(FIRST_LOOK) + 1));
            return Err(PlanError::Content(format!(
                "time = {time}: too short; it needs {} rounds of {} measurements, a look at the last and one before, which take about {}; \
                 give more time (--time), shorter measurements (--runtime), fewer targets and workloads, or a fixed number of rounds (--repeat)",
                FIRST_LOOK + 1,
                self.cells(),
                human::duration(least.as_secs_f64())
            )));
        }
        let first = fitting(FIRST_LOOK_AFTER).clamp(FIRST_LOOK + 1, max_rounds.max(FIRST_LOOK + 2) - 1);
        if self.targets.len() < 2 {
            return Ok(Self { repeat: first.min(max_rounds), design: Design::FixedRounds, ..self });
        }
        let design = Design::UntilDecided(UntilDecided { max_rounds, max_time: Some(time) });
        Ok(Self { repeat: first.min(max_rounds - 1), design, ..self })
    }

    /// Returns the number of measurements in one round: the pairs of target and workload that are measured.
    #[must_use]
    pub fn cells(&self) -> usize {
        let all = (0..self.targets.len()).flat_map(|t| (0..self.workloads.len()).map(move |w| (t, w)));
        all.filter(|(target, workload)| self.measures(*target, *workload)).count()
    }

    /// Returns the total warm-up and runtime of one round. Workloads that end by themselves count with their expected time.
    #[must_use]
    pub fn round_time(&self) -> Nanos {
        let windows = |workload: &Workload, place: usize| {
            let is_alone =
                || !self.workloads[..place].iter().any(|other| self.share_a_window(other, workload));
            if self.is_together() {
                u64::from(is_alone())
            } else {
                (0..self.targets.len()).filter(|target| self.measures(*target, place)).count() as u64
            }
        };
        let times = self
            .workloads
            .iter()
            .enumerate()
            .map(|(place, workload)| workload.expected_time().0.saturating_mul(windows(workload, place)));
        Nanos(times.fold(0, u64::saturating_add))
    }

    /// Returns whether two workloads run in one measured window: in a watch of all targets together, unless exactly one is the watch's
    /// control workload.
    #[must_use]
    pub fn share_a_window(&self, one: &Workload, other: &Workload) -> bool {
        self.watch().is_some_and(|watch| {
            watch.together && watch.is_control(&one.name) == watch.is_control(&other.name)
        })
    }

    /// Rejects kernel settings on background loads, and on targets that a watch measures together.
    fn check_settings(&self) -> Result<(), PlanError> {
        let has_settings = |target: &&TargetSpec| !target.setting_values().is_empty();
        if let Some(neighbour) = self.neighbours.iter().map(|it| &it.target).find(has_settings) {
            let reason = "settings hold while a target is measured; give them to the target that the neighbour is beside";
            return Err(neighbour.refused(reason.into()).into());
        }
        match self.targets.iter().find(has_settings).filter(|_| self.is_together()) {
            Some(target) => {
                let reason = "settings hold while one target is measured, and these are watched together";
                Err(target.refused(reason.into()).into())
            }
            None => Ok(()),
        }
    }

    /// Returns the index of the first target with the same storage as this target, or its own. Shared storage is built and filled once.
    #[must_use]
    pub fn storage_of(&self, target: usize) -> usize {
        let spec = &self.targets[target];
        self.targets[..target].iter().position(|earlier| spec.is_same_storage(earlier)).unwrap_or(target)
    }

    /// Returns whether no other target uses this target's path, device or volume group. Targets that differ only in kernel settings do not count.
    #[must_use]
    pub fn has_own_storage(&self, target: &TargetSpec) -> bool {
        let shares = |other: &TargetSpec| {
            let group = |spec: &TargetSpec| spec.bottom_volume().and_then(|volume| volume.vg.clone());
            let same = |one: Option<String>, two: Option<String>| one.is_some() && one == two;
            let is_one_disk = other.device().is_some() && other.device() == target.device();
            is_one_disk
                || (other.path().is_some() && other.path() == target.path())
                || same(group(other), group(target))
        };
        let is_other = |other: &&TargetSpec| {
            other.name != target.name && !other.is_same_storage(target) && !target.is_same_storage(other)
        };
        !self.everything().filter(is_other).any(shares)
    }

    /// Rejects a write journal in plans with more than one measurement, and on guests and other machines.
    fn check_journals(&self) -> Result<(), PlanError> {
        let Some((workload, path)) = self.workloads.iter().find_map(|w| Some((w, w.write_journal.as_ref()?)))
        else {
            return Ok(());
        };
        let reason = if self.targets.iter().any(TargetSpec::is_in_guest) {
            "a guest has no storage but its target"
        } else if self.targets.iter().any(|target| target.remote().is_some()) {
            "it would be written on the other machine and stay there"
        } else if self.cells() * self.most_rounds() as usize > 1 {
            "a journal is one measurement's: plan one target, one workload and repeat = 1"
        } else {
            return Ok(());
        };
        Err(workload.refusal("write_journal", path, reason).into())
    }

    /// Returns the content of filled targets: the content that all workloads write, or incompressible data if their contents differ.
    #[must_use]
    pub fn content(&self) -> Content {
        let mut contents = self.workloads.iter().flat_map(Workload::jobs).map(Workload::content);
        let first = contents.next().unwrap_or_default();
        if contents.all(|content| content == first) { first } else { Content::default() }
    }

    /// Returns the suite that the workloads belong to; `None` without a suite, or if iotax does not know its name.
    #[must_use]
    pub fn known_suite(&self) -> Option<&'static Suite> {
        Suite::named(self.suite.as_ref()?).ok()
    }

    /// Returns the size of a created target: the highest end of any workload's area, else the default size. If all workloads only create
    /// files next to the target, 1 MiB or the largest block size, whichever is larger.
    #[must_use]
    pub fn size(&self) -> Bytes {
        if self.work().any(|workload| !workload.needs_directory()) {
            return self.reach().unwrap_or(DEFAULT_SIZE);
        }
        // File workloads create files next to the target and never read it.
        Bytes(self.work().map(|workload| workload.max_bs().0).fold(UNUSED, u64::max))
    }

    /// Returns the highest end of any workload's area, from the start of the target; `None` if no workload has a size.
    #[must_use]
    pub fn reach(&self) -> Option<Bytes> {
        self.work().filter(|workload| !workload.needs_directory()).filter_map(Workload::end).max()
    }

    /// Returns the bytes from the start of a created target that are filled before measuring; 0 if no workload needs filled space.
    #[must_use]
    pub fn filled(&self) -> Bytes {
        self.part(Workload::needs_filling)
    }

    /// Returns how often targets are filled before the first round: twice if the run waits for a steady state, as SNIA's specification
    /// preconditions a drive whatever the workload (version 2.0.2, WIPC).
    #[must_use]
    pub fn fill_passes(&self) -> u64 {
        if self.preconditions() { 2 } else { 1 }
    }

    /// Returns the bytes from the start of a created target that workloads may allocate. The null engine does not access the target.
    #[must_use]
    pub fn touched(&self) -> Bytes {
        self.part(|job| job.ioengine != IoEngine::Null)
    }

    fn part(&self, is_meant: impl Fn(&Workload) -> bool) -> Bytes {
        let size = self.size();
        self.work().map(|workload| workload.end_of(size, &is_meant)).max().unwrap_or_default()
    }

    /// Returns the space that the workloads need: in a created target, and for files next to it on its filesystem.
    #[must_use]
    pub fn space(&self) -> RequiredSpace {
        let files = self.work().map(Workload::room).max().unwrap_or_default();
        RequiredSpace { area: self.size(), files }
    }

    /// Returns the largest number of workers that any workload runs concurrently.
    #[must_use]
    pub fn workers(&self) -> u32 {
        let of = |workload: &Workload| workload.jobs().map(|job| job.numjobs).fold(0, u32::saturating_add);
        self.work().map(of).max().unwrap_or_default()
    }

    /// Returns all workloads of the plan, including those of background loads.
    fn work(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().chain(self.neighbours.iter().map(|neighbour| &neighbour.workload))
    }

    /// Returns the workloads that run on a target: the plan's own, or, on the target of a background load, only that load.
    #[must_use]
    pub fn work_on(&self, target: &TargetSpec) -> Vec<&Workload> {
        match self.neighbours.iter().find(|neighbour| neighbour.target.name == target.name) {
            Some(neighbour) => vec![&neighbour.workload],
            None => self.workloads.iter().filter(|workload| self.fits(target, workload)).collect(),
        }
    }

    /// Returns whether a workload runs on a target. In a watch of all targets together, storage and networks get only workloads of their own kind.
    pub(crate) fn fits(&self, target: &TargetSpec, workload: &Workload) -> bool {
        !self.is_together() || workload.kind.is_network() == target.network().is_some()
    }

    /// Returns whether a watch measures all targets in one window.
    #[must_use]
    pub fn is_together(&self) -> bool {
        self.watch().is_some_and(|watch| watch.together)
    }

    /// Returns all targets that must be built: those to measure, then those of background loads.
    pub fn everything(&self) -> impl Iterator<Item = &TargetSpec> {
        self.targets.iter().chain(self.neighbours.iter().map(|neighbour| &neighbour.target))
    }

    /// Returns the directories that the `file` layers of all targets name, sorted and without duplicates.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = self.everything().filter_map(|t| t.file()?.dir.clone()).collect();
        dirs.sort();
        dirs.dedup();
        dirs
    }
}

fn first_repeated<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

#[cfg(test)]
mod tests;
