//! Writes plans as TOML files.

use std::fmt::Write;

use toml::{Table, Value};

use super::{Design, Margin, Plan};
use crate::workload::{KEYS, WorkloadKeys};

/// Keys of a workload that are always written, even with default values.
const ALWAYS: [&str; 4] = ["name", "rw", "bs", "iodepth"];

/// Keys that are written for a network workload; all other keys are left out.
const OF_NET: [&str; 5] = ["name", "net", "runtime", "ramp_time", "blackout"];

/// Key of a workload's table that holds its concurrent jobs.
const BESIDE: &str = "beside";

/// Formats the plan as a file that parses as the same plan. Keys that all workloads share go to `[defaults]`.
///
/// # Errors
/// A number is above 2^63 - 1, the largest integer that TOML can hold.
pub(super) fn write(plan: &Plan) -> Result<String, toml::ser::Error> {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    line(format_args!("name = {}", Value::from(plan.name.as_str())));
    if let Some(suite) = &plan.suite {
        line(format_args!("suite = {}", Value::from(suite.as_str())));
    }
    line(format_args!("repeat = {}", plan.repeat));
    if plan.margin != Margin::default() {
        line(format_args!("margin = {}", Value::try_from(plan.margin)?));
    }
    line(format_args!("baseline = {}", Value::from(plan.baseline.as_str())));
    if let Some(control) = &plan.control {
        line(format_args!("control = {}", Value::from(control.as_str())));
    }
    if let Some(seed) = plan.seed {
        line(format_args!("seed = {}", Value::try_from(seed)?));
    }
    let (head, table) = match &plan.design {
        Design::FixedRounds => ("", Table::new()),
        Design::UntilDecided(until) => {
            ("# Rounds are added until every comparison is decided\n[until_decided]", Table::try_from(until)?)
        }
        Design::UntilSteady(until) => {
            ("# Rounds are added until all is in a steady state\n[until_steady]", Table::try_from(until)?)
        }
        Design::Curve(curve) => ("# Latency against offered load\n[curve]", Table::try_from(curve)?),
        Design::Ask(ask) => ("# The highest rate that keeps the conditions\n[ask]", Table::try_from(ask)?),
        Design::Watch(watch) => ("# What happens during each measurement\n[watch]", Table::try_from(watch)?),
    };
    if !head.is_empty() {
        line(format_args!("\n{head}"));
    }
    for (key, value) in &table {
        line(format_args!("{key} = {value}"));
    }

    let noise = plan.neighbours.iter().map(|neighbour| &neighbour.workload);
    let workloads =
        plan.workloads.iter().chain(noise).map(Table::try_from).collect::<Result<Vec<Table>, _>>()?;
    let nothing = Table::try_from(WorkloadKeys::default().complete(&WorkloadKeys::default()))?;
    let jobs = workloads.iter().flat_map(|workload| [vec![workload.clone()], beside(workload)].concat());
    let common = common(&jobs.collect::<Vec<_>>(), &nothing);
    if !common.is_empty() {
        line(format_args!("\n[defaults]"));
        for (key, value) in &common {
            let help = KEYS.iter().find(|known| known.name == key).map_or("", |known| known.help.trim());
            line(format_args!("# {help}\n{key} = {value}"));
        }
    }
    for target in &plan.targets {
        line(format_args!("\n# {}\n[[target]]", one_line(&target.description())));
        for (key, value) in &Table::try_from(target)? {
            line(format_args!("{key} = {value}"));
        }
    }
    let mut workloads = workloads.iter().map(|workload| own_keys(workload, &common, &nothing));
    for workload in workloads.by_ref().take(plan.workloads.len()) {
        line(format_args!("\n[[workload]]"));
        let (jobs, keys): (Vec<_>, Vec<_>) = workload.iter().partition(|(key, _)| *key == BESIDE);
        for (key, value) in keys {
            line(format_args!("{key} = {value}"));
        }
        for job in jobs.iter().flat_map(|_| beside(&workload)) {
            line(format_args!("[[workload.beside]]"));
            for (key, value) in &job {
                line(format_args!("{key} = {value}"));
            }
        }
    }
    for (neighbour, workload) in plan.neighbours.iter().zip(workloads) {
        line(format_args!("\n# {}\n[[neighbour]]", one_line(&neighbour.target.description())));
        line(format_args!("target = {}", Value::try_from(&neighbour.target)?));
        line(format_args!("workload = {}", Value::Table(workload)));
    }
    for demand in &plan.require {
        line(format_args!("\n[[require]]"));
        for (key, value) in &Table::try_from(demand)? {
            line(format_args!("{key} = {value}"));
        }
    }
    Ok(text)
}

/// Returns the keys that have the same non-default value in all workloads. A key that any workload lacks is left out, because a workload
/// cannot unset a key of `[defaults]`.
fn common(workloads: &[Table], nothing: &Table) -> Table {
    let Some((first, others)) = workloads.split_first() else { return Table::new() };
    first
        .iter()
        .filter(|(key, _)| !ALWAYS.contains(&key.as_str()))
        .filter(|(key, value)| nothing.get(*key) != Some(value))
        .filter(|(key, _)| *key != BESIDE && *key != "net" && is_meant(first, key))
        .filter(|(key, value)| others.iter().all(|other| other.get(*key) == Some(value)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Returns whether a key is written for this workload: any key, or only those of [`OF_NET`] for a network workload.
fn is_meant(workload: &Table, key: &str) -> bool {
    !workload.contains_key("net") || OF_NET.contains(&key)
}

/// Returns the keys of a workload to write: those whose values are neither in `[defaults]` nor built-in defaults, and those of [`ALWAYS`].
fn own_keys(workload: &Table, common: &Table, nothing: &Table) -> Table {
    workload
        .iter()
        .filter(|(key, _)| !common.contains_key(*key) && is_meant(workload, key))
        .filter(|(key, value)| ALWAYS.contains(&key.as_str()) || nothing.get(*key) != Some(value))
        .map(|(key, value)| match key.as_str() {
            BESIDE => {
                let jobs =
                    beside(workload).iter().map(|job| Value::Table(own_keys(job, common, nothing))).collect();
                (key.clone(), Value::Array(jobs))
            }
            _ => (key.clone(), value.clone()),
        })
        .collect()
}

/// Copies the tables of a workload's concurrent jobs.
fn beside(workload: &Table) -> Vec<Table> {
    let jobs = workload.get(BESIDE).and_then(Value::as_array).into_iter().flatten();
    jobs.filter_map(Value::as_table).cloned().collect()
}

/// Replaces line breaks and other control characters with spaces, so that the text stays within a comment.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
