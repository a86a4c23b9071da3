//! Parses and checks plan files.

use std::borrow::Cow;
use std::ops::Range;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::axes::{LeftOut, MOST, PlanAxis, Product, Wrong};
use super::positions::{Text, find_key, words};
use super::{
    AskSpec, CurveSpec, DEFAULT_REPEAT, Demand, Design, FleetSpec, Margin, Neighbour, Plan, PlanError,
    STEADY_WINDOW, UntilDecided, UntilSteady, WatchSpec,
};
use crate::target::TargetSpec;
use crate::units::Nanos;
use crate::workload::{Kind, Workload, WorkloadKeys};

/// A parsed plan file: the plan, and the expansion of keys with several values.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanFile {
    /// The plan, in which every key has one value.
    pub plan: Plan,
    /// The file's key `time`, a time limit that determines the number of rounds; `None` without the key.
    pub time: Option<Nanos>,
    /// Keys with several values, in the order of the file.
    pub axes: Vec<PlanAxis>,
    /// Combinations of values that were left out because they cannot be built.
    pub left_out: Vec<LeftOut>,
    /// Settings for `iotax fleet run`, which runs the plan on several machines.
    pub fleet: FleetSpec,
}

/// The top level of a plan file. Its tables are parsed one by one later.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanHead {
    /// A title for reports.
    name: Option<String>,
    /// The suite that the workloads belong to; reports group them accordingly
    suite: Option<String>,
    /// Number of rounds; each round measures everything once, in a new order [default: 5; 1 with `ask` or `watch`]
    repeat: Option<u32>,
    /// Time limit of the measurement: adds rounds until every comparison is decided or the time is up; a single target is measured for
    /// about half a minute. In place of `repeat` and `until_decided`.
    time: Option<Nanos>,
    /// Adds rounds until every comparison is decided or a limit is reached. Comparisons are evaluated for the first time after `repeat`
    /// rounds.
    until_decided: Option<UntilDecided>,
    /// Adds rounds until every target is in a steady state on every workload by SNIA's rule, or `max_rounds` is reached. The last five
    /// rounds are compared.
    until_steady: Option<UntilSteady>,
    /// Measures every workload at many rates: latency against offered load. Not together with `time`, `until_decided`, `until_steady`,
    /// `ask` or `watch`; `repeat` has an effect only with `shares` and without a time limit.
    curve: Option<CurveSpec>,
    /// Searches for the highest rate that meets conditions on latency. Not together with `time`, `until_decided`, `until_steady`, `curve`
    /// or `watch`; `repeat` has no effect.
    ask: Option<AskSpec>,
    /// Runs a known load while events are triggered, and measures their effect.
    watch: Option<WatchSpec>,
    /// Settings for `iotax fleet run`, which runs the plan on several machines.
    fleet: Option<FleetSpec>,
    /// Limits that every target must meet: the answer is yes, no or undecided.
    #[serde(default)]
    require: Vec<Demand>,
    /// Ratios closer to 1 than this count as equal [default: 2%]
    margin: Option<Margin>,
    /// Name of the target that the others are compared with [default: the first]
    baseline: Option<String>,
    /// Name of the control target: trends follow the ratio to it, which cancels changes of the machine itself [default: none]
    control: Option<String>,
    /// Seed for the order of measurements, the offsets and the payload [default: random]
    seed: Option<u64>,
    /// Defaults for the keys of all workloads, of their concurrent jobs (`beside`) and of background loads.
    #[serde(rename = "defaults")]
    #[schemars(with = "Option<WorkloadKeys>")]
    _defaults: Option<IgnoredAny>,
    /// A storage stack, built from the bottom up, or a network to measure.
    #[serde(rename = "target")]
    #[schemars(with = "Vec<TargetSpec>")]
    _target: Option<IgnoredAny>,
    /// The load: I/O or network traffic. Keys that fio also has have fio's names.
    #[serde(rename = "workload")]
    #[schemars(with = "Vec<WorkloadKeys>")]
    _workload: Option<IgnoredAny>,
    /// Background load that runs while the targets that name it are measured.
    #[serde(rename = "neighbour")]
    #[schemars(with = "Option<Vec<Neighbour>>")]
    _neighbour: Option<IgnoredAny>,
}

/// Maximum number of tokens in a plan file, a limit on memory: a parsed token takes many times its size in the file.
const MOST_WORDS: usize = 1 << 19;

/// An entry of a list in a plan file, such as a target or a workload; one table may expand into several.
trait Row: DeserializeOwned + Clone + PartialEq {
    /// The list's key in a plan file: `target`, `workload`.
    const TABLE: &'static str;
    /// Keys whose values the default name already contains.
    const KEYS_IN_NAME: &'static [&'static str];
    fn name(&mut self) -> &mut String;
    fn check(&self) -> Result<(), PlanError>;
}

impl Row for TargetSpec {
    const TABLE: &'static str = "target";
    const KEYS_IN_NAME: &'static [&'static str] = &[];

    fn name(&mut self) -> &mut String {
        &mut self.name
    }

    fn check(&self) -> Result<(), PlanError> {
        Ok(Self::check(self)?)
    }
}

impl Row for Workload {
    const TABLE: &'static str = "workload";
    const KEYS_IN_NAME: &'static [&'static str] = &["rw", "bs", "bsrange", "bssplit", "iodepth"];

    fn name(&mut self) -> &mut String {
        &mut self.name
    }

    fn check(&self) -> Result<(), PlanError> {
        Ok(Self::check(self)?)
    }
}

/// A table of the plan file and its location.
struct Source<'i> {
    table: DeTable<'i>,
    span: Range<usize>,
}

/// A plan file that is being parsed, with the results so far.
struct Reader<'i> {
    text: Text<'i>,
    axes: Vec<PlanAxis>,
    left_out: Vec<LeftOut>,
    /// The expanded entries, for locating errors: the key of the list, the entry's name, and the table that the entry comes from.
    named: Vec<(&'static str, String, Source<'i>)>,
}

/// Parses and checks a plan file. The targets come from the file or, if it has none, from `targets`. Fails if both define targets.
pub(super) fn read(text: &str, targets: Vec<TargetSpec>) -> Result<PlanFile, PlanError> {
    let words = text.as_bytes().chunk_by(|a, b| a.is_ascii_alphanumeric() && b.is_ascii_alphanumeric());
    if words.take(MOST_WORDS + 1).count() > MOST_WORDS {
        return Err(PlanError::Content(format!(
            "it has more than {MOST_WORDS} words and signs, which no plan of {MOST} targets and {MOST} workloads needs; split it"
        )));
    }
    let text = Text(text);
    let document = DeTable::parse(text.0).map_err(|error| text.parser(&error))?;
    let (span, document) = (document.span(), document.into_inner());
    let mut reader = Reader { text, axes: Vec::new(), left_out: Vec::new(), named: Vec::new() };
    let head: PlanHead = reader.value(document.clone(), span)?;
    let defaults = reader.defaults(&document)?;
    let targets = match reader.rows(&document, &DeTable::new())? {
        own if targets.is_empty() => own,
        own if own.is_empty() => targets,
        _ => {
            return Err(PlanError::Content(
                "target: the targets are named beside it; leave [[target]] out".into(),
            ));
        }
    };
    let workloads = reader.rows(&document, &defaults)?;
    let neighbours = reader.neighbours(&document, &defaults)?;
    let first = targets.first().map(|target: &TargetSpec| target.name.clone());
    let design = Design::of_tables(head.until_decided, head.until_steady, head.curve, head.ask, head.watch)
        .map_err(|error| reader.locate(error, &document))?;
    let rounds = match &design {
        Design::Ask(_) | Design::Watch(_) => 1,
        Design::UntilSteady(_) => STEADY_WINDOW,
        Design::FixedRounds | Design::UntilDecided(_) | Design::Curve(_) => DEFAULT_REPEAT,
    };
    let plan = Plan {
        name: head.name.unwrap_or_else(|| "unnamed plan".into()),
        suite: head.suite,
        repeat: head.repeat.unwrap_or(rounds),
        design,
        margin: head.margin.unwrap_or_default(),
        baseline: head.baseline.or(first).unwrap_or_default(),
        control: head.control,
        seed: head.seed,
        targets,
        workloads,
        neighbours,
        require: head.require,
    };
    let plan = match head.time {
        None => plan,
        Some(time) => {
            let why = match &plan.design {
                Design::Curve(_) => Some("[curve] has a time of its own; write it there"),
                Design::Ask(_) => Some("[ask] has a time of its own; write it there"),
                Design::Watch(_) => Some("a watch lasts as long as runtime says; leave out time"),
                Design::UntilDecided(_) => {
                    Some("it takes the place of repeat and until_decided: give one or the other")
                }
                Design::UntilSteady(_) => {
                    Some("a steady state takes as long as it takes; limit it by max_rounds there")
                }
                Design::FixedRounds if head.repeat.is_some() => {
                    Some("it takes the place of repeat and until_decided: give one or the other")
                }
                Design::FixedRounds => None,
            };
            let plan = match why {
                Some(why) => Err(PlanError::Content(format!("time: {why}"))),
                None => plan.within(time),
            };
            plan.map_err(|error| reader.locate(error, &document))?
        }
    };
    if let Some(workload) = plan.workloads.iter().find(|workload| workload.kind == Kind::Foreign) {
        let error = PlanError::Content(format!(
            "workload {:?}: foreign: it marks another tool's work in imported results, which cannot be repeated; leave it out",
            workload.name
        ));
        return Err(reader.locate(error, &document));
    }
    plan.check().map_err(|error| reader.locate(error, &document))?;
    Ok(PlanFile {
        plan,
        time: head.time,
        axes: reader.axes,
        left_out: reader.left_out,
        fleet: head.fleet.unwrap_or_default(),
    })
}

impl<'i> Reader<'i> {
    fn value<T: DeserializeOwned>(&self, table: DeTable<'i>, span: Range<usize>) -> Result<T, PlanError> {
        let value = Spanned::new(span, DeValue::Table(table));
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| self.text.parser(&error))
    }

    fn wrong(&self, wrong: Wrong) -> PlanError {
        self.text.at(wrong.span, &wrong.message)
    }

    /// Returns the table `[defaults]`, whose keys apply to all workloads; empty if there is none.
    fn defaults(&self, document: &DeTable<'i>) -> Result<DeTable<'i>, PlanError> {
        let Some(value) = document.get("defaults") else { return Ok(DeTable::new()) };
        let DeValue::Table(defaults) = value.get_ref() else {
            return Err(self
                .text
                .at(value.span(), "defaults is a table of a workload's keys; write [defaults]"));
        };
        if let Some(span) = find_key(defaults, ["name"]) {
            return Err(self.text.at(span, "name belongs to a [[workload]]"));
        }
        for combination in Product::new(defaults).map_err(|error| self.wrong(error))?.combinations() {
            self.value::<WorkloadKeys>(combination.table, value.span())?;
        }
        Ok(defaults.clone())
    }

    /// Returns the tables of the list with key `list`; empty if the file has none.
    fn tables(&self, document: &DeTable<'i>, list: &str) -> Result<Vec<Source<'i>>, PlanError> {
        let Some((key, value)) = document.get_key_value(list) else { return Ok(Vec::new()) };
        let tables = match value.get_ref() {
            DeValue::Array(items) => items
                .iter()
                .map(|item| Some(Source { table: item.get_ref().as_table()?.clone(), span: item.span() }))
                .collect(),
            _ => None,
        };
        tables.ok_or_else(|| {
            let message = format!("{list} is a list of tables; write [[{list}]] above the keys of each");
            self.text.at(key.span(), &message)
        })
    }

    /// Applies `defaults` to all tables of a list, and expands the tables into entries.
    fn rows<T: Row>(&mut self, document: &DeTable<'i>, defaults: &DeTable<'i>) -> Result<Vec<T>, PlanError> {
        let mut rows = Vec::new();
        for mut source in self.tables(document, T::TABLE)? {
            if let Some(DeValue::Array(jobs)) = source.table.get_mut("beside").map(Spanned::get_mut) {
                if jobs.len() > MOST {
                    let message = format!("{} jobs beside a workload; accepted: up to {MOST}", jobs.len());
                    return Err(self.text.at(source.span, &message));
                }
                for job in jobs.iter_mut() {
                    if let DeValue::Table(job) = job.get_mut() {
                        inherit(job, defaults);
                    }
                }
            }
            inherit(&mut source.table, defaults);
            for mut row in self.multiplied::<T>(&source)? {
                let Source { table, span } = &source;
                self.named.push((
                    T::TABLE,
                    row.name().clone(),
                    Source { table: table.clone(), span: span.clone() },
                ));
                rows.push(row);
            }
            if rows.len() > MOST {
                let message =
                    format!("with this there are {} {}s; accepted: up to {MOST}", rows.len(), T::TABLE);
                return Err(self.text.at(source.span, &message));
            }
        }
        Ok(rows)
    }

    /// Expands one table into an entry for each combination of its axes' values that can be built. Fails if there is a value of which no
    /// combination can be built.
    fn multiplied<T: Row>(&mut self, source: &Source<'i>) -> Result<Vec<T>, PlanError> {
        let product = Product::new(&source.table).map_err(|error| self.wrong(error))?;
        let has_name = source.table.contains_key("name");
        let mut good: Vec<(Vec<usize>, T)> = Vec::new();
        let mut bad: Vec<(Vec<usize>, LeftOut)> = Vec::new();
        for combination in product.combinations() {
            let mut row: T = self.value(combination.table, source.span.clone())?;
            let unnamed = row.name().clone();
            let unnamed = (!has_name).then_some((unnamed.as_str(), T::KEYS_IN_NAME));
            *row.name() = product.name(&combination.choice, unnamed).map_err(|error| self.wrong(error))?;
            match row.check() {
                Ok(()) => good.push((combination.choice, row)),
                Err(error) if product.has_axes() => {
                    let left_out = LeftOut { name: row.name().clone(), reason: error.reason() };
                    bad.push((combination.choice, left_out));
                }
                Err(error) => return Err(self.locate_in(source, &error)),
            }
        }
        // A value that is invalid in every combination is reported as an error, not left out.
        for (number, axis) in product.axes().iter().enumerate() {
            for (index, value) in axis.values.iter().enumerate() {
                if good.iter().any(|(choice, _)| choice[number] == index) {
                    continue;
                }
                let reason = bad.iter().find(|(choice, _)| choice[number] == index);
                let reason = reason.map_or("", |(_, left_out)| &left_out.reason);
                let message = format!("no combination with {} = {value} can be built: {reason}", axis.key);
                return Err(self.text.at(product.value_span(number, index), &message));
            }
        }
        let mut rows: Vec<T> = good.into_iter().map(|(_, row)| row).collect();
        if let Some((one, other)) = first_alike(&mut rows) {
            let message =
                format!("{one:?} and {other:?} are the same {}: two values mean the same", T::TABLE);
            return Err(self.text.at(source.span.clone(), &message));
        }
        self.axes.extend(product.axes());
        self.left_out.extend(bad.into_iter().map(|(_, left_out)| left_out));
        Ok(rows)
    }

    fn neighbours(
        &mut self,
        document: &DeTable<'i>,
        defaults: &DeTable<'i>,
    ) -> Result<Vec<Neighbour>, PlanError> {
        let mut neighbours = Vec::new();
        for mut source in self.tables(document, "neighbour")? {
            let key = Spanned::new(source.span.clone(), Cow::Borrowed("workload"));
            let none = || Spanned::new(source.span.clone(), DeValue::Table(DeTable::new()));
            if let DeValue::Table(workload) = source.table.entry(key).or_insert_with(none).get_mut() {
                inherit(workload, defaults);
            }
            let product = Product::new(&source.table).map_err(|error| self.wrong(error))?;
            if product.has_axes() {
                let message =
                    "a neighbour has one value for each key; lists are for [[target]] and [[workload]]";
                return Err(self.text.at(product.value_span(0, 0), message));
            }
            let neighbour: Neighbour = self.value(source.table.clone(), source.span.clone())?;
            neighbour.check().map_err(|error| self.locate_in(&source, &error))?;
            self.named.push((TargetSpec::TABLE, neighbour.target.name.clone(), source));
            neighbours.push(neighbour);
        }
        Ok(neighbours)
    }

    /// Adds a location to an error about a table: that of the key named in the reason, else that of the table.
    fn locate_in(&self, source: &Source<'i>, error: &PlanError) -> PlanError {
        let span = find_key(&source.table, words(&error.reason()));
        self.text.at(span.unwrap_or_else(|| source.span.clone()), &error.to_string())
    }

    /// Adds a location to an error about the whole plan, if the table or key at fault can be found.
    fn locate(&self, error: PlanError, document: &DeTable<'i>) -> PlanError {
        let (list, name) = match &error {
            PlanError::Target(target) => (TargetSpec::TABLE, &target.name),
            PlanError::Workload(workload) => (Workload::TABLE, &workload.name),
            PlanError::Twice { list, name } => (*list, name),
            PlanError::Content(reason) => {
                let span = find_key(document, words(reason).take(1));
                return span.map_or_else(|| error.clone(), |span| self.text.at(span, reason));
            }
            PlanError::File(_) => return error,
        };
        // If two entries have the same name, the later one is at fault.
        match self.named.iter().rfind(|(its_list, its_name, _)| *its_list == list && its_name == name) {
            Some((.., source)) => self.locate_in(source, &error),
            None => error,
        }
    }
}

/// Copies keys from `defaults` into a table that does not set them.
fn inherit<'i>(table: &mut DeTable<'i>, defaults: &DeTable<'i>) {
    for (key, value) in defaults {
        if !table.contains_key(key) {
            table.insert(key.clone(), value.clone());
        }
    }
}

/// Returns the names of the first two entries that are equal except for their names; `None` if all entries differ.
fn first_alike<T: Row>(rows: &mut [T]) -> Option<(String, String)> {
    let names: Vec<String> = rows.iter_mut().map(|row| std::mem::take(row.name())).collect();
    let alike = (1..rows.len())
        .find_map(|later| Some((rows[..later].iter().position(|earlier| *earlier == rows[later])?, later)));
    for (row, name) in rows.iter_mut().zip(&names) {
        row.name().clone_from(name);
    }
    alike.map(|(one, other)| (names[one].clone(), names[other].clone()))
}
