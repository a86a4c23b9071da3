//! The data of a run that a comparison needs, from the store or from a JSON document that iotax wrote.

use std::collections::{BTreeMap, HashMap};

use iotax_model::plan::Neighbour;
use iotax_model::record::{Environment, Measurement, RunSource, TargetRecord};
use iotax_model::{CellKey, MeasurementKey, TargetSpec, WarningKind, Workload};
use serde_json::Value;

use super::rates::{self, LocatedRate};
use crate::Grade;
use crate::Judgement;
use crate::cell_means::{RoundFigure, means};
use crate::fidelity::is_late;
use crate::figures::is_empty;
use crate::metric::{Metric, OverRounds};
use crate::time::utc;
use crate::timing::round_time;
use iotax_model::Run;
use iotax_model::units::Nanos;

/// A target's settings as dotted keys and values, as in a plan file. Targets with equal settings count as the same.
pub type Settings = BTreeMap<String, String>;

/// A target of a run: its name, its settings, and its record as built.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountedTarget {
    /// The target's name.
    pub name: String,
    /// The target's settings; with a noisy neighbour, they include its target and workload.
    pub settings: Settings,
    /// The record of the target as built; absent if the target was not built.
    pub record: Option<TargetRecord>,
}

impl AccountedTarget {
    /// Returns whether the guest's CPU was emulated.
    #[must_use]
    pub fn is_emulated(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.emulated)
    }
}

/// The figures of one measurement, with its target, workload and round.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasurementFigures {
    /// The target's name.
    pub target: String,
    /// The workload's name.
    pub workload: String,
    /// The round, from 1.
    pub round: u32,
    /// Known values of the metrics by which targets are compared, in the metrics' units. Empty if comparisons leave out the measurement: a
    /// tolerated late replay or window without I/O.
    pub metrics: Vec<(Metric, f64)>,
    /// The kinds of warnings that make the measurement unusable, as text; absent if it is usable or left out.
    pub unusable: Option<String>,
}

impl MeasurementFigures {
    /// Returns the measurement's value of a metric; `None` if unknown.
    #[must_use]
    pub fn of(&self, metric: Metric) -> Option<f64> {
        self.metrics.iter().find(|(known, _)| *known == metric).map(|(_, value)| *value)
    }
}

/// A run's settings and figures, as a comparison needs them.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    /// Name in sentences: `run 12`, `before.json`.
    pub label: String,
    /// Number of the run in its store.
    pub id: i64,
    /// The plan's title.
    pub name: String,
    /// Seed of the random order of measurements and of the written data.
    pub seed: u64,
    /// Start time, in the format of [`utc`].
    pub started_at: String,
    /// Number of rounds that the plan asks for.
    pub repeat: u32,
    /// The machine that measured.
    pub environment: Environment,
    /// The run's targets, in the plan's order.
    pub subjects: Vec<AccountedTarget>,
    /// The run's workloads, in the plan's order; for a search, only those whose rate it searched.
    pub workloads: Vec<Workload>,
    /// Figures of each measurement that comparisons may use.
    pub figures: Vec<MeasurementFigures>,
    /// Results of a search or a curve: rates that the run tried to locate.
    pub rates: Vec<LocatedRate>,
    /// True for a curve: its rates follow from the measured capacities, so another run uses other rates.
    pub has_own_rates: bool,
    /// The tool that measured; absent unless the run was imported.
    pub source: RunSource,
    /// The command that adds rounds to the run; absent for a document, an import, a member of a fleet, and for a curve, a rate search or a
    /// watch.
    pub more: Option<More>,
}

/// A command that adds rounds to a run.
#[derive(Debug, Clone, PartialEq)]
pub struct More {
    /// Name of the run in sentences.
    pub label: String,
    /// Number of rounds measured so far.
    pub rounds: u32,
    /// The command, without the option for the number of rounds or the time.
    pub command: String,
    /// True if the run itself adds rounds until its comparisons are decided or its values are steady; more rounds then need a new run.
    pub is_anew: bool,
    /// Expected duration of a round.
    pub round: Nanos,
}

impl More {
    /// Builds the command; `None` for an import, a member of a fleet, and for a curve, a rate search or a watch.
    fn of(run: &Run) -> Option<Self> {
        let plan = &run.plan;
        (plan.goes_by_rounds() && !run.source.is_imported() && run.fleet.is_none()).then(|| Self {
            label: format!("run {}", run.id),
            rounds: run.measurements.iter().map(|m| m.round).max().unwrap_or_default(),
            command: run.command("resume", ""),
            is_anew: plan.adds_rounds(),
            round: round_time(run),
        })
    }
}

impl Account {
    /// Extracts the data that a comparison needs from a stored run and its judgement.
    #[must_use]
    pub fn of(run: &Run, judgement: &Judgement) -> Self {
        let kinds = Kinds::of(judgement);
        // The rates that a search tries differ from run to run, so only the searched workloads count.
        let workloads: Vec<Workload> = if run.plan.searches() {
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
            let is_left_out =
                unusable.is_some() && (is_empty(m) || is_late(m)) && !judgement.is_unusable(run, m.cell());
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

    /// Returns whether two accounts describe the same run: same seed, number, start time, title and machine. The seed alone does not
    /// suffice, because a plan may fix it.
    #[must_use]
    pub fn is_same_run(&self, other: &Self) -> bool {
        let identity =
            |account: &Self| (account.seed, account.id, account.started_at.clone(), account.name.clone());
        identity(self) == identity(other) && self.environment == other.environment
    }

    /// Returns the keys of a workload that an import's source states; `None` for a run of iotax, in which all keys are known.
    pub(super) fn known(&self, workload: &Workload) -> Option<&[String]> {
        let source = self.source.imported()?;
        Some(source.known.get(&workload.name).map_or(&[], Vec::as_slice))
    }

    /// Returns the target with this name; `None` if the run has no such target.
    #[must_use]
    pub fn subject(&self, name: &str) -> Option<&AccountedTarget> {
        self.subjects.iter().find(|subject| subject.name == name)
    }

    /// Returns the mean on a workload for each target, over all rounds, as in tables. Empty for a metric that is not summarized by a
    /// geometric mean.
    pub(super) fn means(&self, workload: &str, metric: Metric) -> HashMap<&str, f64> {
        if metric.definition().over_rounds != OverRounds::GeometricMean {
            return HashMap::new();
        }
        let of_workload = self.figures.iter().filter(|f| f.workload == workload);
        let figures = of_workload.filter_map(|f| {
            let (value, is_usable) = (f.of(metric)?, f.unusable.is_none());
            Some(RoundFigure { target: &f.target, round: f.round, value, is_usable })
        });
        means(figures, !self.source.is_imported())
    }

    /// Iterates over the figures of each measurement of a workload on a target.
    pub(super) fn cell<'a>(&'a self, cell: CellKey<'a>) -> impl Iterator<Item = &'a MeasurementFigures> {
        self.figures.iter().filter(move |f| cell == CellKey { target: &f.target, workload: &f.workload })
    }
}

/// Returns the value of each comparison metric that a measurement has.
pub fn metrics(measurement: &Measurement) -> Vec<(Metric, f64)> {
    Metric::compared().filter_map(|metric| Some((metric, metric.of(measurement)?))).collect()
}

/// Kinds of the warnings about each measurement, as words.
pub struct Kinds<'a>(HashMap<MeasurementKey<'a>, Vec<&'static str>>);

impl<'a> Kinds<'a> {
    /// Collects a judgement's warnings about single measurements.
    pub fn of(judgement: &'a Judgement) -> Self {
        let mut kinds: HashMap<_, Vec<_>> = HashMap::new();
        for warning in &judgement.warnings {
            if let Some(key) = warning.measurement() {
                kinds.entry(key).or_default().push(warning.kind.word());
            }
        }
        Self(kinds)
    }

    /// Returns the kinds of the warnings about one measurement, in the judgement's order.
    pub fn about<'b>(&'b self, m: &'b Measurement) -> &'b [&'static str] {
        self.0.get(&m.key()).map_or(&[], Vec::as_slice)
    }
}

/// Returns the kinds of warnings that make a measurement unusable, as text; `None` if the measurement is usable.
pub fn unusable(grade: Grade, kinds: &[&str]) -> Option<String> {
    let spoils = |kind: &&&str| kind.parse().is_ok_and(WarningKind::can_spoil);
    let why: Vec<&str> = kinds.iter().filter(spoils).copied().collect();
    let why = if why.is_empty() { "unusable".into() } else { why.join(", ").replace('_', " ") };
    (grade == Grade::Unusable).then_some(why)
}

/// Builds the targets with their settings and records.
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

/// Flattens a JSON tree to dotted keys with text values; leaves out absent values.
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
