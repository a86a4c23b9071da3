//! The plan of a run: targets, workloads, how often.

mod axes;
mod difference;
mod file;
mod place;
mod schema;
mod until;
mod write;

use std::collections::HashSet;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::NetTest;
use crate::suite::Suite;
use crate::target::{Space, TargetError, TargetSpec};
use crate::units::{Bytes, Nanos};
use crate::workload::{Content, DEFAULT_SIZE, Workload, WorkloadError, WorkloadKeys};

pub use axes::{Axis, LeftOut, MOST};
pub use difference::Difference;
pub use file::Reading;
pub use schema::schema;
pub use until::{DEFAULT_MAX_ROUNDS, FIRST_LOOK, MOST_LOOKS, Margin, MarginError, UntilDecided};

/// What a run does. Read from TOML by [`Plan::from_toml`] or made of a command's flags; complete and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// A title for reports.
    pub name: String,
    /// The [suite](crate::suite) that its workloads are, if they are one: reports set them side by side as it has them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub suite: Option<String>,
    /// Number of rounds; with [`Self::until_decided`] those up to the first look.
    pub repeat: u32,
    /// Whether rounds are added until every comparison is decided.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until_decided: Option<UntilDecided>,
    /// What counts as the same.
    #[serde(default)]
    pub margin: Margin,
    /// Name of the target that the others are compared with.
    pub baseline: String,
    /// Order and payload follow from it. Absent: drawn when the run starts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seed: Option<u64>,
    /// At least one; names are unique.
    pub targets: Vec<TargetSpec>,
    /// At least one; names are unique.
    pub workloads: Vec<Workload>,
    /// What makes noise beside the targets that name it; not measured for itself.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub neighbours: Vec<Neighbour>,
}

/// A target with a workload that only makes noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Its name is the neighbour's, unique among the plan's targets too.
    pub target: TargetSpec,
    /// What it does for as long as another target is measured; its runtime and warm-up do not count.
    #[schemars(with = "Option<WorkloadKeys>")]
    pub workload: Workload,
}

/// The size of a target whose area nobody uses.
const UNUSED: u64 = 1 << 20;

/// How many rounds when a plan does not say.
pub const DEFAULT_REPEAT: u32 = 5;

/// How many measurements one plan may be: more are a slip of the keyboard, not a wish.
pub const MOST_MEASUREMENTS: usize = 10_000;

/// A plan that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Something wrong in a plan file; the text names line and column and shows the line.
    #[error("{0}")]
    File(String),
    /// A target that cannot be built.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A workload that cannot be run.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Two targets or workloads of one name.
    #[error("two {list}s are named {name:?}; results are told apart by name")]
    Twice {
        /// `target` or `workload`.
        list: &'static str,
        /// Their name.
        name: String,
    },
    /// Anything else; begins with the key that is wrong, if it is one.
    #[error("{0}")]
    Content(String),
}

impl PlanError {
    /// What is wrong, without the name of what it is wrong with.
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
    /// Refuses what cannot be built or done.
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
    /// Reads a plan file's text and checks it.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        Self::read(text).map(|reading| reading.plan)
    }

    /// As [`Self::from_toml`], with what the file says beyond the plan: which keys have several values, and which of their
    /// combinations cannot be built.
    pub fn read(text: &str) -> Result<Reading, PlanError> {
        file::read(text)
    }

    /// The text of a plan file that reads as this plan, with comments; what workloads have in common stands in `[defaults]`.
    ///
    /// # Errors
    /// A number that TOML does not hold: above 2^63 - 1.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        write::write(self)
    }

    /// The earlier target that a target, by its index, is most like, and what it has otherwise; absent for the first.
    #[must_use]
    pub fn most_like(&self, target: usize) -> Option<(&TargetSpec, Vec<Difference>)> {
        let (target, earlier) = (self.targets.get(target)?, &self.targets[..target]);
        let compared = earlier.iter().map(|other| (other, difference::between(target, other)));
        let (other, (differences, _)) = compared.min_by_key(|(_, (_, keys))| *keys)?;
        Some((other, differences))
    }

    /// Refuses a plan that cannot be carried out, whatever the machine.
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
        if let Some(until) = &self.until_decided {
            until.check(self.repeat, self.targets.len(), self.round_time())?;
        }
        let rounds = self.most_rounds();
        let measurements = self.cells() * rounds as usize;
        if measurements > MOST_MEASUREMENTS {
            let key = if self.until_decided.is_some() { "max_rounds" } else { "repeat" };
            return refuse(format!(
                "{key} = {rounds}: {} targets x {} workloads x {rounds} rounds are {measurements} measurements; accepted: \
                 up to {MOST_MEASUREMENTS}",
                self.targets.len(),
                self.workloads.len(),
            ));
        }
        if !names().any(|name| name == self.baseline) {
            let known: Vec<&str> = names().collect();
            return refuse(format!(
                "baseline = {:?} is not a target; accepted: {}",
                self.baseline,
                known.join(", ")
            ));
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
        self.check_places()?;
        self.check_journals()
    }

    /// What is done over a network needs one, and nothing else can be done there.
    fn check_networks(&self) -> Result<(), PlanError> {
        for target in self.everything() {
            let echoes = |workload: &&Workload| {
                workload.net.as_ref().is_some_and(|net| net.test == NetTest::IcmpRtt)
                    && target.network.as_ref().is_some_and(|network| network.via.is_in_user_mode())
            };
            if let Some(workload) = self.work_on(target).into_iter().find(echoes) {
                return Err(target
                    .refused(format!(
                        "workload {:?}: echo requests do not pass a network in user mode, which answers them itself; use udp-rtt",
                        workload.name
                    ))
                    .into());
            }
            let other = |workload: &&Workload| workload.net.is_some() != target.network.is_some();
            let Some(workload) = self.work_on(target).into_iter().find(other) else { continue };
            let remedy = if target.network.is_some() {
                "a network carries workloads with net = { test = \"tcp\" } or another test of net"
            } else {
                "it needs a target with network = { via = \"veth\" } or another way"
            };
            let (name, doing) = (&workload.name, workload.doing());
            return Err(target.refused(format!("workload {name:?} ({doing}): {remedy}")).into());
        }
        Ok(())
    }

    /// A test that makes files needs a filesystem where it is measured.
    fn check_places(&self) -> Result<(), PlanError> {
        for target in self.everything() {
            let Some(remedy) = target.wants_filesystem() else { continue };
            if let Some(workload) =
                self.work_on(target).into_iter().find(|workload| workload.needs_directory())
            {
                let (name, doing) = (&workload.name, workload.doing());
                return Err(target
                    .refused(format!("workload {name:?} ({doing}) makes files: {remedy}"))
                    .into());
            }
        }
        Ok(())
    }

    /// The numbers of rounds at which results are looked at: once, or until they are decided.
    #[must_use]
    pub fn looks(&self) -> Vec<u32> {
        self.until_decided.as_ref().map_or_else(|| vec![self.repeat], |until| until.looks(self.repeat))
    }

    /// The most rounds that are measured.
    #[must_use]
    pub fn most_rounds(&self) -> u32 {
        self.until_decided.as_ref().map_or(self.repeat, |until| until.max_rounds)
    }

    /// How many cells a whole round has.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.targets.len() * self.workloads.len()
    }

    /// Warm-ups and windows of a whole round; of work that ends by itself as long as it is expected to take.
    #[must_use]
    pub fn round_time(&self) -> Nanos {
        let workloads = self.workloads.iter().map(|w| w.expected_time().0);
        let once = workloads.fold(0, u64::saturating_add);
        Nanos(once.saturating_mul(self.targets.len() as u64))
    }

    /// A journal tells of one measurement, and in a guest there is nowhere to put it.
    fn check_journals(&self) -> Result<(), PlanError> {
        let Some((workload, path)) = self.workloads.iter().find_map(|w| Some((w, w.write_journal.as_ref()?)))
        else {
            return Ok(());
        };
        let reason = if self.targets.iter().any(|target| target.guest.is_some()) {
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

    /// What created targets are filled with: what the workloads write, so that a layer which compresses or recognizes data
    /// meets the same when it is read; where they differ, what no layer can shorten.
    #[must_use]
    pub fn content(&self) -> Content {
        let mut contents = self.workloads.iter().flat_map(Workload::jobs).map(Workload::content);
        let first = contents.next().unwrap_or_default();
        if contents.all(|content| content == first) { first } else { Content::default() }
    }

    /// The suite that its workloads are, if they are one that is known.
    #[must_use]
    pub fn known_suite(&self) -> Option<&'static Suite> {
        Suite::named(self.suite.as_ref()?).ok()
    }

    /// How large a created target must be: as far as the area of any workload reaches.
    #[must_use]
    pub fn size(&self) -> Bytes {
        if self.work().any(|workload| !workload.needs_directory()) {
            return self.reach().unwrap_or(DEFAULT_SIZE);
        }
        // There is a file to find the directory beside, and nobody reads it.
        Bytes(self.work().map(|workload| workload.max_bs().0).fold(UNUSED, u64::max))
    }

    /// As far as the area of any workload reaches; absent if none has a size.
    #[must_use]
    pub fn reach(&self) -> Option<Bytes> {
        self.work().filter(|workload| !workload.needs_directory()).filter_map(Workload::end).max()
    }

    /// What the work takes on a created target, and on the filesystem that it lies on.
    #[must_use]
    pub fn space(&self) -> Space {
        let files = self.work().map(Workload::room).max().unwrap_or_default();
        Space { area: self.size(), files }
    }

    /// What is done to any target.
    fn work(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().chain(self.neighbours.iter().map(|neighbour| &neighbour.workload))
    }

    /// What is done to a target: every workload, or a neighbour's own.
    #[must_use]
    pub fn work_on(&self, target: &TargetSpec) -> Vec<&Workload> {
        match self.neighbours.iter().find(|neighbour| neighbour.target.name == target.name) {
            Some(neighbour) => vec![&neighbour.workload],
            None => self.workloads.iter().collect(),
        }
    }

    /// Everything that is built: the targets, then the neighbours.
    pub fn everything(&self) -> impl Iterator<Item = &TargetSpec> {
        self.targets.iter().chain(self.neighbours.iter().map(|neighbour| &neighbour.target))
    }

    /// The directories that files are created in, each once.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        let mut dirs: Vec<PathBuf> = self.everything().filter_map(|t| t.file.as_ref()?.dir.clone()).collect();
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
