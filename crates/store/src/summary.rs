//! The columns of a run's row that lists show, and the query for the runs that match a filter.

use std::collections::{BTreeMap, BTreeSet};

use iotax_model::RunState;
use iotax_model::plan::Design;
use iotax_model::record::{FleetMember, FleetMode};

use crate::database::{Columns, Database, Value};
use crate::error::Fault;
use crate::head::{Head, column, seal};
use crate::{Filter, RunSummary};

/// The columns that lists show, which are derived from the head so that lists need not unpack it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    uuid: String,
    name: String,
    state: RunState,
    started_at_ms: i64,
    machine: Option<String>,
    fleet: Option<FleetMember>,
    measured: i64,
    planned: i64,
    targets: Vec<String>,
    words: String,
}

impl Summary {
    pub(crate) const COLUMNS: &str = "uuid, name, state, started_at_ms, machine, fleet, member, fleet_mode, fleet_link, measured, planned, \
                                      targets, words, summary_seal";

    pub(crate) fn new(head: &Head) -> Result<Self, Fault> {
        let number = |value: u64| i64::try_from(value).map_err(|error| Fault::value("run", &error));
        let plan = &head.plan;
        // A complete run that adds rounds has all its measurements, and so has an import.
        let is_complete = head.state == RunState::Complete;
        let all = u64::from(plan.most_rounds()) * plan.cells() as u64;
        let has_all = match &plan.design {
            // The number of measurements of a search is not known in advance.
            Design::Ask(_) => true,
            Design::UntilDecided(_) | Design::UntilSteady(_) => is_complete,
            Design::FixedRounds | Design::Curve(_) | Design::Watch(_) => head.source.is_some() && is_complete,
        };
        let workloads = plan.workloads.iter().map(|workload| workload.name.as_str());
        let targets = plan.targets.iter().map(|target| target.name.as_str());
        let words = [plan.name.as_str()].into_iter().chain(targets).chain(workloads);
        let fleet = head.fleet.iter().flat_map(|of| [of.fleet.as_str(), of.member.as_str()]);
        let words: Vec<&str> = words.chain(head.environment.hostname.as_deref()).chain(fleet).collect();
        Ok(Self {
            uuid: head.uuid.clone(),
            name: column(&plan.name),
            state: head.state,
            started_at_ms: number(head.started_at_ms)?,
            machine: head.environment.hostname.as_deref().map(column),
            fleet: head.fleet.as_ref().map(|fleet| FleetMember {
                fleet: column(&fleet.fleet),
                member: column(&fleet.member),
                mode: fleet.mode,
                link: column(&fleet.link),
            }),
            measured: number(head.measured.count)?,
            planned: number(if has_all { head.measured.count } else { all })?,
            targets: plan.targets.iter().map(|target| target.name.clone()).collect(),
            words: searchable(&words),
        })
    }

    /// Reads the columns [`Self::COLUMNS`] of run `run` from a result row.
    pub(crate) fn read(row: &mut Columns, run: i64) -> Result<Self, Fault> {
        let damaged = |reason: &str| Fault::Damaged("table run", reason.to_owned());
        let unknown = |_| damaged("a column has an unknown word");
        let read = Self {
            uuid: row.text()?,
            name: row.text()?,
            state: serde_json::from_value(row.text()?.into()).map_err(unknown)?,
            started_at_ms: row.int()?,
            machine: row.maybe_text()?,
            fleet: match [row.maybe_text()?, row.maybe_text()?, row.maybe_text()?, row.maybe_text()?] {
                [Some(fleet), Some(member), Some(mode), Some(link)] => {
                    let mode = serde_json::from_value(mode.into()).map_err(unknown)?;
                    Some(FleetMember { fleet, member, mode, link })
                }
                [None, None, None, None] => None,
                _ => return Err(damaged("a part of a fleet's columns is missing")),
            },
            measured: row.int()?,
            planned: row.int()?,
            targets: serde_json::from_str(&row.text()?).map_err(unknown)?,
            words: row.text()?,
        };
        if row.int()? == read.seal(run) { Ok(read) } else { Err(damaged("its checksum does not fit")) }
    }

    /// Returns the values of the columns [`Self::COLUMNS`].
    pub(crate) fn values(&self, run: i64) -> Vec<Value> {
        let fleet = self.fleet.as_ref();
        vec![
            self.uuid.as_str().into(),
            self.name.as_str().into(),
            self.state.word().into(),
            self.started_at_ms.into(),
            self.machine.as_deref().into(),
            fleet.map(|fleet| fleet.fleet.as_str()).into(),
            fleet.map(|fleet| fleet.member.as_str()).into(),
            fleet.map(|fleet| mode(fleet.mode)).into(),
            fleet.map(|fleet| fleet.link.as_str()).into(),
            self.measured.into(),
            self.planned.into(),
            self.targets_json().into(),
            self.words.as_str().into(),
            self.seal(run).into(),
        ]
    }

    fn targets_json(&self) -> String {
        serde_json::Value::from(self.targets.clone()).to_string()
    }

    fn seal(&self, run: i64) -> i64 {
        let fleet = self.fleet.as_ref();
        let maybe = |text: Option<&str>| text.map_or_else(|| "0".into(), |text| format!("1{text}"));
        let parts = [
            self.uuid.clone(),
            self.name.clone(),
            self.state.word().to_owned(),
            self.started_at_ms.to_string(),
            maybe(self.machine.as_deref()),
            maybe(fleet.map(|fleet| fleet.fleet.as_str())),
            maybe(fleet.map(|fleet| fleet.member.as_str())),
            maybe(fleet.map(|fleet| mode(fleet.mode))),
            maybe(fleet.map(|fleet| fleet.link.as_str())),
            self.measured.to_string(),
            self.planned.to_string(),
            self.targets_json(),
            self.words.clone(),
        ];
        seal(run, &parts.each_ref().map(String::as_bytes))
    }

    /// Converts to the list entry of run `id`, without tags.
    pub(crate) fn line(self, id: i64, is_claimed: bool) -> RunSummary {
        RunSummary {
            id,
            name: self.name,
            state: actual(self.state, is_claimed),
            started_at_ms: self.started_at_ms.cast_unsigned(),
            targets: self.targets,
            machine: self.machine,
            fleet: self.fleet,
            tags: Vec::new(),
            measured: self.measured.cast_unsigned(),
            planned: self.planned.cast_unsigned(),
            damage: None,
        }
    }
}

fn mode(mode: FleetMode) -> &'static str {
    match mode {
        FleetMode::Each => "each",
        FleetMode::Shared => "shared",
    }
}

/// Returns the state of a run to show. A run that is marked as running but not claimed was interrupted: a killed process cannot record that
/// it stopped.
pub(crate) fn actual(state: RunState, is_claimed: bool) -> RunState {
    if state == RunState::Running && !is_claimed { RunState::Interrupted } else { state }
}

/// Joins texts and converts them to lower case, the form in which a search compares them.
pub(crate) fn searchable(texts: &[&str]) -> String {
    column(&texts.join("\n").to_lowercase())
}

/// Returns the numbers of the runs that are marked as running and claimed by a process.
fn running(database: &mut dyn Database) -> Result<BTreeSet<i64>, Fault> {
    let rows = database.query("SELECT id FROM run WHERE state = 'running'", &[])?;
    let ids: Vec<i64> = rows.into_iter().map(|mut row| row.int()).collect::<Result<_, _>>()?;
    database.claimed(&ids)
}

/// Converts a filter to an SQL condition and its parameters; `running` are the runs in progress.
fn condition(filter: &Filter, running: &BTreeSet<i64>) -> (String, Vec<Value>) {
    let (mut terms, mut values) = (Vec::new(), Vec::new());
    let mut parameter = |value: Value| {
        values.push(value);
        format!("${}", values.len())
    };
    for word in filter.text.split_whitespace() {
        let like = parameter(format!("%{}%", escaped(&column(&word.to_lowercase()))).into());
        terms.push(format!(
            "(run.words LIKE {like} ESCAPE '!' OR EXISTS (SELECT 1 FROM note WHERE note.run = run.id \
             AND note.words LIKE {like} ESCAPE '!'))"
        ));
    }
    for tag in &filter.tags {
        let tag = parameter(column(tag).into());
        terms.push(format!("EXISTS (SELECT 1 FROM tag WHERE tag.run = run.id AND tag.tag = {tag})"));
    }
    if let Some(state) = filter.state {
        // These are run numbers of the store itself, so nothing needs escaping.
        let claimed: Vec<String> = running.iter().map(ToString::to_string).collect();
        let is_claimed =
            format!("id IN ({})", if claimed.is_empty() { "0".into() } else { claimed.join(", ") });
        terms.push(match state {
            RunState::Running => format!("(state = 'running' AND {is_claimed})"),
            RunState::Interrupted => {
                format!("(state = 'interrupted' OR (state = 'running' AND NOT {is_claimed}))")
            }
            other => format!("state = {}", parameter(other.word().into())),
        });
    }
    if let Some(machine) = &filter.machine {
        terms.push(format!("machine = {}", parameter(column(machine).into())));
    }
    if let Some(fleet) = &filter.fleet {
        terms.push(format!("fleet = {}", parameter(column(fleet).into())));
    }
    if let Some(before) = filter.before {
        terms.push(format!("id < {}", parameter(before.into())));
    }
    let mut sql = if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) };
    sql += " ORDER BY id DESC";
    if let Some(limit) = filter.limit {
        sql += " LIMIT ";
        sql += &parameter(i64::from(limit).into());
    }
    (sql, values)
}

/// Escapes the wildcards of LIKE in a text.
fn escaped(text: &str) -> String {
    text.replace('!', "!!").replace('%', "!%").replace('_', "!_")
}

/// A run's number, and its list entry or the error in its row.
pub(crate) type Line = (i64, Result<RunSummary, Fault>);

/// Returns the runs that match a filter, newest first.
pub(crate) fn list(database: &mut dyn Database, filter: &Filter) -> Result<Vec<Line>, Fault> {
    let running = running(database)?;
    let (condition, values) = condition(filter, &running);
    let sql = format!("SELECT id, {} FROM run{condition}", Summary::COLUMNS);
    let mut lines = Vec::new();
    for mut row in database.query(&sql, &values)? {
        let id = row.int()?;
        let read = Summary::read(&mut row, id).map(|summary| summary.line(id, running.contains(&id)));
        lines.push((id, read));
    }
    let (Some(newest), Some(oldest)) = (lines.first(), lines.last()) else { return Ok(lines) };
    let mut tags = tags(database, oldest.0, newest.0)?;
    for (id, line) in &mut lines {
        if let Ok(line) = line {
            line.tags = tags.remove(id).unwrap_or_default();
        }
    }
    Ok(lines)
}

/// Returns the tags of the runs from `from` to `to`, by run number.
fn tags(database: &mut dyn Database, from: i64, to: i64) -> Result<BTreeMap<i64, Vec<String>>, Fault> {
    let sql = "SELECT run, tag FROM tag WHERE run BETWEEN $1 AND $2";
    let mut tags = BTreeMap::<i64, Vec<String>>::new();
    for mut row in database.query(sql, &[from.into(), to.into()])? {
        tags.entry(row.int()?).or_default().push(row.text()?);
    }
    tags.values_mut().for_each(|tags| tags.sort());
    Ok(tags)
}
