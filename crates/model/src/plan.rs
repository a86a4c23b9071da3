//! The plan of a run: targets, workloads, how often.

use std::collections::HashSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::target::{TargetError, TargetSpec};
use crate::units::Bytes;
use crate::workload::{Content, DEFAULT_SIZE, Workload, WorkloadError, WorkloadKeys, nearest};

/// What a run does. Read from TOML by [`Plan::from_toml`] or made of a command's flags; complete and checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// A title for reports.
    pub name: String,
    /// Number of blocks.
    pub repeat: u32,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Its name is the neighbour's, unique among the plan's targets too.
    pub target: TargetSpec,
    /// What it does for as long as another target is measured; its runtime and warm-up do not count.
    pub workload: Workload,
}

/// The form of a neighbour in a plan file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NeighbourFile {
    target: TargetSpec,
    #[serde(default)]
    workload: WorkloadKeys,
}

/// The form of a plan file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    name: Option<String>,
    repeat: Option<u32>,
    baseline: Option<String>,
    seed: Option<u64>,
    #[serde(default)]
    defaults: WorkloadKeys,
    #[serde(default)]
    target: Vec<TargetSpec>,
    #[serde(default)]
    workload: Vec<WorkloadKeys>,
    #[serde(default)]
    neighbour: Vec<NeighbourFile>,
}

/// How many blocks when a plan does not say.
pub const DEFAULT_REPEAT: u32 = 5;

/// A plan that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not TOML, or a key or value that is not known; the text names line and column.
    #[error("{0}")]
    Syntax(String),
    /// A target that cannot be built.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A workload that cannot be run.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Anything else.
    #[error("{0}")]
    Content(String),
}

impl Plan {
    /// Reads a plan file's text and checks it.
    pub fn from_toml(text: &str) -> Result<Self, PlanError> {
        let file: PlanFile = toml::from_str(text).map_err(|error| PlanError::Syntax(with_hint(&error)))?;
        if file.defaults.name.is_some() {
            return Err(PlanError::Content("[defaults]: name belongs to a [[workload]]".into()));
        }
        let first = file.target.first().map(|t| t.name.clone()).unwrap_or_default();
        let plan = Self {
            name: file.name.unwrap_or_else(|| "unnamed plan".into()),
            repeat: file.repeat.unwrap_or(DEFAULT_REPEAT),
            baseline: file.baseline.unwrap_or(first),
            seed: file.seed,
            targets: file.target,
            workloads: file.workload.iter().map(|keys| keys.complete(&file.defaults)).collect(),
            neighbours: file
                .neighbour
                .into_iter()
                .map(|neighbour| Neighbour {
                    target: neighbour.target,
                    workload: neighbour.workload.complete(&file.defaults),
                })
                .collect(),
        };
        plan.check()?;
        Ok(plan)
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
        if self.repeat == 0 || self.repeat > 1000 {
            return refuse(format!("repeat = {}: accepted: 1 to 1000", self.repeat));
        }
        let names = || self.targets.iter().map(|t| t.name.as_str());
        let noisy = || self.neighbours.iter().map(|neighbour| neighbour.target.name.as_str());
        if let Some(twice) = first_repeated(names().chain(noisy())) {
            return refuse(format!("two targets are named {twice:?}; results are told apart by name"));
        }
        if let Some(twice) = first_repeated(self.workloads.iter().map(|w| w.name.as_str())) {
            return refuse(format!("two workloads are named {twice:?}; give each a name"));
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
                return refuse(format!(
                    "target {:?}: neighbour = {name:?} is not there; accepted: {}",
                    target.name,
                    if self.neighbours.is_empty() {
                        "add a [[neighbour]] table".into()
                    } else {
                        noisy().collect::<Vec<_>>().join(", ")
                    }
                ));
            }
        }
        for workload in &self.workloads {
            workload.check()?;
        }
        for neighbour in &self.neighbours {
            neighbour.target.check()?;
            neighbour.workload.check()?;
            if neighbour.target.neighbour.is_some() {
                return refuse(format!("neighbour {:?} has a neighbour of its own", neighbour.target.name));
            }
        }
        self.check_journals()
    }

    /// A journal tells of one measurement, and in a guest there is nowhere to put it.
    fn check_journals(&self) -> Result<(), PlanError> {
        let Some((workload, path)) =
            self.workloads.iter().find_map(|w| Some((&w.name, w.write_journal.as_ref()?)))
        else {
            return Ok(());
        };
        let reason = if self.targets.iter().any(|target| target.guest.is_some()) {
            "a guest has no storage but its target"
        } else if self.workloads.len() * self.targets.len() * self.repeat as usize > 1 {
            "a journal is one measurement's: plan one target, one workload and repeat = 1"
        } else {
            return Ok(());
        };
        Err(PlanError::Content(format!("workload {workload:?}: write_journal = {path}: {reason}")))
    }

    /// What created targets are filled with: what the workloads write, so that a layer which compresses or recognizes data
    /// meets the same when it is read; where they differ, what no layer can shorten.
    #[must_use]
    pub fn content(&self) -> Content {
        let mut contents = self.workloads.iter().map(Workload::content);
        let first = contents.next().unwrap_or_default();
        if contents.all(|content| content == first) { first } else { Content::default() }
    }

    /// How large a created target must be: as far as the area of any workload reaches.
    #[must_use]
    pub fn size(&self) -> Bytes {
        let noise = self.neighbours.iter().map(|neighbour| &neighbour.workload);
        self.workloads.iter().chain(noise).filter_map(Workload::end).max().unwrap_or(DEFAULT_SIZE)
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

/// The parser's message (line, column, excerpt), with the nearest known key where one was misspelt.
fn with_hint(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let text = text.trim_end();
    // serde's wording: unknown field `bz`, expected one of `bs`, `rw`
    let hint = error.message().strip_prefix("unknown field `").and_then(|rest| {
        let (unknown, known) = rest.split_once('`')?;
        nearest(unknown, known.split('`').skip(1).step_by(2)).map(|near| format!("\ndid you mean `{near}`?"))
    });
    format!("{text}{}", hint.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{CacheMode, Format};
    use crate::units::Nanos;
    use proptest::prelude::*;

    const GOOD: &str = r#"
name = "which disk format for our VMs"
repeat = 3
baseline = "host"

[defaults]
size = "8GiB"
runtime = "30s"
ramp_time = "5s"
direct = true

[[target]]
name = "host"
file = { dir = "/srv/images" }

[[target]]
name = "vm-qcow2"
file = { dir = "/srv/images", format = "qcow2", preallocation = "metadata" }
guest = { bus = "virtio-blk", cache = "none", aio = "io_uring", vcpus = 2, memory = "1GiB", iothread = true }

[[workload]]
name = "randread-4k-qd16"
rw = "randread"
bs = "4k"
iodepth = 16
"#;

    #[test]
    fn the_documented_plan_reads() {
        let plan = Plan::from_toml(GOOD).expect("valid");
        assert_eq!((plan.repeat, plan.size(), plan.directories().len()), (3, Bytes(8 << 30), 1));
        assert_eq!(plan.workloads[0].runtime, Nanos::from_secs(30));
        assert_eq!(plan.targets[1].file.as_ref().map(|f| f.format), Some(Format::Qcow2));
        assert_eq!(plan.targets[1].guest.as_ref().map(|g| g.cache), Some(CacheMode::None));
        let json = serde_json::to_string(&plan).expect("serializes");
        assert_eq!(serde_json::from_str::<Plan>(&json).expect("reads back"), plan);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// As the fuzz target of that name: any text in place of any part of a good plan.
        #[test]
        fn plan(from in 0..GOOD.len(), length in 0_usize..12, text in "[0-9a-z\"=\\[\\]{}.\n-]{0,12}|.{0,8}") {
            let to = (from + length).min(GOOD.len());
            if let Ok(plan) = Plan::from_toml(&format!("{}{text}{}", &GOOD[..from], &GOOD[to..])) {
                let json = serde_json::to_string(&plan).expect("a plan has a text form");
                prop_assert_eq!(serde_json::from_str::<Plan>(&json).expect(&json), plan);
            }
        }
    }

    #[test]
    fn errors_quote_the_input_and_name_the_accepted_form() {
        for (from, to, words) in [
            ("iodepth = 16", "iodpth = 16", &["iodpth", "did you mean `iodepth`"][..]),
            ("rw = \"randread\"", "rw = \"randraed\"", &["randraed", "randread", "line 23"]),
            ("runtime = \"30s\"", "runtime = \"30\"", &["\"30\"", "500ms"]),
            ("baseline = \"host\"", "baseline = \"hst\"", &["hst", "host, vm-qcow2"]),
            ("repeat = 3", "repeat = 0", &["repeat = 0"]),
            ("name = \"vm-qcow2\"", "name = \"host\"", &["two targets", "host"]),
            ("iodepth = 16", "iodepth = 0", &["iodepth = 0", "1 to 4096"]),
            ("cache = \"none\"", "cache = \"nonne\"", &["nonne", "writeback", "did you mean"]),
            ("[defaults]", "[default]", &["default", "did you mean `defaults`"]),
        ] {
            assert!(GOOD.contains(from));
            let error = Plan::from_toml(&GOOD.replace(from, to)).expect_err(to).to_string();
            for word in words {
                assert!(error.contains(word), "{to}: {word} not in {error}");
            }
        }
    }

    #[test]
    fn created_targets_are_filled_with_what_is_written_to_them() {
        let plan = |first: &str, second: &str| {
            let text = format!(
                "repeat = 1\n[[target]]\nname = \"a\"\nfile = {{ dir = \"/srv\" }}\n\
                 [[workload]]\nname = \"one\"\n{first}\n[[workload]]\nname = \"two\"\n{second}"
            );
            Plan::from_toml(&text).expect("valid").content()
        };
        let compressible = "buffer_compress_percentage = 40";
        assert_eq!(plan(compressible, compressible).filler_percentage, 40);
        assert_eq!(plan(compressible, ""), Content::default());
    }

    #[test]
    fn a_journal_is_one_measurements() {
        let journal = "iodepth = 16\nverify = \"xxh3\"\nwrite_journal = \"/mnt/j\"";
        let text = GOOD.replace("rw = \"randread\"", "rw = \"write\"").replace("iodepth = 16", journal);
        let refused = |text: &str| Plan::from_toml(text).expect_err("refused").to_string();
        assert!(
            refused(&text).contains("write_journal = /mnt/j: a guest has no storage"),
            "{}",
            refused(&text)
        );
        let host = "[[target]]\nname = \"a\"\nfile = { dir = \"/srv\" }\n[[workload]]\nrw = \"write\"\n";
        let text = format!("repeat = 2\n{host}{journal}");
        assert!(refused(&text).contains("repeat = 1"), "{}", refused(&text));
        assert!(Plan::from_toml(&format!("repeat = 1\n{host}{journal}")).is_ok());
    }

    #[test]
    fn a_plan_without_cells_is_refused() {
        assert!(Plan::from_toml("").expect_err("empty").to_string().contains("[[target]]"));
        assert!(
            Plan::from_toml("[[target]]\nname='a'\npath='/a'")
                .expect_err("no work")
                .to_string()
                .contains("[[workload]]")
        );
    }
}
