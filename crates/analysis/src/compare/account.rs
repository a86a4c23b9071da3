//! The parts of a run that comparing needs, from the store or from a document that iotax wrote.

use std::collections::{BTreeMap, HashMap};

use iotax_model::plan::Neighbour;
use iotax_model::record::{Environment, ImportSource, Measurement, TargetRecord};
use iotax_model::{TargetSpec, WarningKind, Workload};
use serde_json::Value;

use super::rates::{self, LocatedRate};
use crate::Grade;
use crate::Judgement;
use crate::cell_means::means;
use crate::cells::Place;
use crate::cells::place;
use crate::cells::place_of;
use crate::fidelity::is_late;
use crate::figures::is_empty;
use crate::metric::{Metric, OverRounds};
use crate::time::utc;
use crate::timing::round_time;
use iotax_model::Run;
use iotax_model::units::Nanos;

/// A target's settings as a plan file writes them: dotted keys and values. Two targets are the same if these are equal.
pub type Settings = BTreeMap<String, String>;

/// A target of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountedTarget {
    /// Its name.
    pub name: String,
    /// Its settings; those of a neighbour include its whole workload.
    pub settings: Settings,
    /// Its record as built; absent if it was not built.
    pub record: Option<TargetRecord>,
}

impl AccountedTarget {
    /// Returns whether its CPU was emulated.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.emulated)
    }
}

/// The figures of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasurementFigures {
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// The round, from 1.
    pub round: u32,
    /// All known figures, in the units of [`Metric`].
    pub metrics: Vec<(Metric, f64)>,
    /// The finding that makes it unusable, if any.
    pub unusable: Option<String>,
}

impl MeasurementFigures {
    /// The figure of a metric, if it is known.
    #[must_use]
    pub fn of(&self, metric: Metric) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// A run with its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Name that the user gave: `run 12`, `before.json`.
    pub label: String,
    /// Its number in its store.
    pub id: i64,
    /// The plan's title.
    pub name: String,
    /// Seed of the order and the payload.
    pub seed: u64,
    /// Start time, as [`utc`] writes it.
    pub started_at: String,
    /// Rounds that its plan asks for.
    pub repeat: u32,
    /// The machine.
    pub environment: Environment,
    /// Its targets, in the plan's order.
    pub subjects: Vec<AccountedTarget>,
    /// Its workloads, in the plan's order.
    pub workloads: Vec<Workload>,
    /// Its measurements.
    pub figures: Vec<MeasurementFigures>,
    /// Rates that it looked for.
    pub rates: Vec<LocatedRate>,
    /// True if its rates depend on its targets' capacities, so that another run has different ones.
    pub has_own_rates: bool,
    /// Its source, if another tool measured it.
    pub source: Option<ImportSource>,
    /// The command that measures more of it; absent for a run that is in no store here, or whose time is fixed.
    pub more: Option<More>,
}

/// The way to measure more rounds of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct More {
    /// Name that the user gave.
    pub label: String,
    /// Rounds that it has.
    pub rounds: u32,
    /// The command, without its option for rounds or time.
    pub command: String,
    /// True if its looks were fixed, so that more rounds need a new run.
    pub is_anew: bool,
    /// The time of a round.
    pub round: Nanos,
}

impl More {
    /// Absent for an import, a member of a fleet, and a run that does not go by rounds.
    fn of(run: &Run) -> Option<Self> {
        let plan = &run.plan;
        (plan.goes_by_rounds() && run.source.is_none() && run.fleet.is_none()).then(|| Self {
            label: format!("run {}", run.id),
            rounds: run.measurements.iter().map(|m| m.round).max().unwrap_or_default(),
            command: run.command("resume", ""),
            is_anew: plan.adds_rounds(),
            round: round_time(run),
        })
    }
}

impl Account {
    /// Describes a run of the store by its judgement.
    #[must_use]
    pub fn of(run: &Run, judgement: &Judgement) -> Self {
        let kinds = Kinds::of(judgement);
        // The rates that a search tried are no cells that another run has.
        let workloads: Vec<Workload> = if run.plan.ask().is_some() {
            run.plan.asked().cloned().collect()
        } else {
            run.plan.workloads.clone()
        };
        let first = run.first_measured_round();
        let is_compared = |m: &Measurement| {
            m.round >= first && workloads.iter().any(|workload| workload.name == m.workload)
        };
        let measured = run.measurements.iter().zip(&judgement.grades).filter(|(m, _)| is_compared(m));
        let measured = measured.map(|(m, grade)| {
            let unusable = unusable(*grade, kinds.about(m));
            // A few empty windows and some late replays are left out, as within the run.
            let is_left_out = unusable.is_some()
                && (is_empty(m) || is_late(m))
                && !judgement.is_unusable(run, &m.workload, &m.target);
            MeasurementFigures {
                target: m.target.clone(),
                workload: m.workload.clone(),
                round: m.round,
                metrics: if is_left_out { Vec::new() } else { metrics(m) },
                unusable: unusable.filter(|_| !is_left_out),
            }
        });
        Self {
            label: format!("run {}", run.id),
            id: run.id,
            name: run.plan.name.clone(),
            seed: run.seed,
            started_at: utc(run.started_at_ms),
            repeat: run.plan.repeat,
            environment: run.environment.clone(),
            subjects: subjects(&run.plan.targets, &run.plan.neighbours, &run.targets),
            figures: measured.collect(),
            rates: rates::of_run(run),
            has_own_rates: run.plan.curve().is_some(),
            workloads,
            source: run.source.clone(),
            more: More::of(run),
        }
    }

    /// Returns whether two accounts describe the same run. The seed alone does not tell, because a plan may fix it, nor does the start
    /// time.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        let identity =
            |account: &Self| (account.seed, account.id, account.started_at.clone(), account.name.clone());
        identity(self) == identity(other) && self.environment == other.environment
    }

    /// The keys of a workload that an import's source states; `None` if all are known.
    pub(super) fn known(&self, workload: &Workload) -> Option<&[String]> {
        let source = self.source.as_ref()?;
        Some(source.known.get(&workload.name).map_or(&[], Vec::as_slice))
    }

    /// A target by its name.
    #[must_use]
    pub fn subject(&self, name: &str) -> Option<&AccountedTarget> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// The mean of each target over all rounds, as in tables. Empty for a metric without a mean over rounds.
    pub(super) fn means(&self, workload: &str, metric: Metric) -> HashMap<&str, f64> {
        if metric.definition().over_rounds != OverRounds::GeometricMean {
            return HashMap::new();
        }
        let of_workload = self.figures.iter().filter(|f| f.workload == workload);
        let figures = of_workload.filter_map(|f| Some((f.target.as_str(), f.round, f.of(metric)?)));
        means(figures, self.source.is_none())
    }

    /// A cell's measurements.
    pub(super) fn cell<'a>(
        &'a self,
        target: &'a str,
        workload: &'a str,
    ) -> impl Iterator<Item = &'a MeasurementFigures> {
        self.figures.iter().filter(move |f| f.target == target && f.workload == workload)
    }
}

/// All known figures of a measurement by which targets are compared.
pub fn metrics(measurement: &Measurement) -> Vec<(Metric, f64)> {
    Metric::compared().filter_map(|metric| Some((metric, metric.of(measurement)?))).collect()
}

/// The warning kinds found for single measurements.
pub struct Kinds<'a>(HashMap<Place<'a>, Vec<&'static str>>);

impl<'a> Kinds<'a> {
    /// Collects a judgement's warnings about single measurements.
    pub fn of(judgement: &'a Judgement) -> Self {
        let mut kinds: HashMap<_, Vec<_>> = HashMap::new();
        for warning in &judgement.warnings {
            if let Some(place) = place_of(warning) {
                kinds.entry(place).or_default().push(warning.kind.word());
            }
        }
        Self(kinds)
    }

    /// Kinds of the warnings about one measurement, in the order of the judgement.
    pub fn about<'b>(&'b self, m: &'b Measurement) -> &'b [&'static str] {
        self.0.get(&place(m)).map_or(&[], Vec::as_slice)
    }
}

/// Kinds of warnings that can make a measurement unusable.
const SPOILING: [WarningKind; 8] = [
    WarningKind::Incomplete,
    WarningKind::Corrupt,
    WarningKind::Clock,
    WarningKind::CacheLie,
    WarningKind::Bypassed,
    WarningKind::BufferedDirect,
    WarningKind::CannotSustain,
    WarningKind::UnfaithfulReplay,
];

/// The reason why a measurement cannot be used; `None` if it can.
pub fn unusable(grade: Grade, kinds: &[&str]) -> Option<String> {
    let spoils = |kind: &&&str| SPOILING.iter().any(|spoiling| spoiling.word() == **kind);
    let why: Vec<&str> = kinds.iter().filter(spoils).copied().collect();
    let why = if why.is_empty() { "unusable".into() } else { why.join(", ").replace('_', " ") };
    (grade == Grade::Unusable).then_some(why)
}

/// The targets with their settings and records, for comparison.
pub fn subjects(
    targets: &[TargetSpec],
    neighbours: &[Neighbour],
    records: &[TargetRecord],
) -> Vec<AccountedTarget> {
    let subject = |target: &TargetSpec| {
        let mut tree = serde_json::to_value(target).unwrap_or_default();
        let its_neighbour = neighbours.iter().find(|n| target.neighbour.as_ref() == Some(&n.target.name));
        if let Some(neighbour) = its_neighbour {
            tree["neighbour"] = serde_json::to_value(neighbour).unwrap_or_default();
        }
        let mut settings = flat(&tree);
        settings.remove("name");
        let record = records.iter().find(|record| record.name == target.name).cloned();
        AccountedTarget { name: target.name.clone(), settings, record }
    };
    targets.iter().map(subject).collect()
}

/// Dotted keys with their values as text; absent values are left out.
pub(crate) fn flat(tree: &Value) -> Settings {
    fn add(value: &Value, key: &str, found: &mut Settings) {
        match value {
            Value::Null => {}
            Value::Object(map) => {
                let at = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
                // An empty table still means that the layer is present.
                if map.is_empty() && !key.is_empty() {
                    found.insert(key.to_owned(), "yes".into());
                }
                map.iter().for_each(|(name, value)| add(value, &at(name), found));
            }
            Value::String(text) => {
                found.insert(key.to_owned(), text.clone());
            }
            other => {
                found.insert(key.to_owned(), other.to_string());
            }
        }
    }
    let mut found = Settings::new();
    add(tree, "", &mut found);
    found
}
