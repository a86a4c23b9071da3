//! `iotax trend`: finds changes over a history of runs.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args as ClapArgs;
use iotax_analysis::Metric;
use iotax_analysis::compare::Gate;
use iotax_analysis::time::parsed;
use iotax_analysis::trend::{PastRun, TrendQuestion, Trends, trends};
use iotax_model::exit::Exit;
use iotax_model::{Plan, RunState};
use iotax_report::{document, json, sentences};
use iotax_store::{Filter, RunSummary, Store};

use super::json_args::JsonArgs;
use super::known_words::known_words;
use super::number;
use super::output::StoreArgs;
use super::say::{note, say};
use super::terminal::PageArgs;
use super::{Failure, OrExit, input, usage};

/// Flags of `iotax trend`.
#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Name of the runs, as iotax list shows it [default: that of the newest run, unless --plan is given]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Runs with the name of this plan file
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    plan: Option<PathBuf>,
    /// Only runs with this tag (repeat to require several tags)
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only runs of this machine, by its host name [default: that of the newest run with this name]
    #[arg(long, value_name = "HOST")]
    machine: Option<String>,
    /// Only this target
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Only this workload
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Metrics to follow: iops, bytes_per_s, latency_mean, latency_p50, latency_p90, latency_p99, latency_p99_9, cpu_per_io,
    /// cpu_per_gib [default: latency_mean, latency_p99]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = known_words(str::parse::<Metric>, Metric::compared().map(Metric::word)))]
    metric: Vec<Metric>,
    /// Target that changes only as the machine does; its changes are subtracted from the other targets' [default: the plan's control]
    #[arg(long, value_name = "NAME")]
    control: Option<String>,
    /// Only the newest N runs
    #[arg(long, value_name = "N", value_parser = number::positive::<u32>)]
    last: Option<u32>,
    /// Only changes that may have come with this run or later: its number, or a day or time in UTC such as 2026-11-20
    #[arg(long, value_name = "RUN|DAY")]
    since: Option<String>,
    /// Exit with code 1 if a change exceeds the limit, and with code 5 if no series is long enough: slower, faster or different > N%, by
    /// latency_mean or by another metric as in latency_p99 slower > N%; separate several by commas
    #[arg(long, value_name = "GATE", value_delimiter = ',', value_parser = str::parse::<Gate>)]
    fail_if: Vec<Gate>,
    /// Also show every run's figures, and changes that are too small to matter
    #[arg(long)]
    detail: bool,
    #[command(flatten)]
    json: JsonArgs,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    store: StoreArgs,
}

/// Metrics that are followed without `--metric`.
const FOLLOWED: [Metric; 2] = [Metric::LATENCY_MEAN, Metric::LATENCY_P99];

pub(super) fn main(args: &Args) -> Result<Exit, Failure> {
    let json = args.json.open(json::trend::MARK)?;
    let store = args.store.open_existing()?;
    let chosen = args.choose(&store)?;
    let metrics = if args.metric.is_empty() { FOLLOWED.to_vec() } else { args.metric.clone() };
    let mut runs = Vec::with_capacity(chosen.len());
    for summary in &chosen {
        // A damaged run does not hide the others.
        let ((run, figures), note) = match (store.load_figures(summary.id), store.notes(summary.id)) {
            (Ok(read), Ok(notes)) => (read, notes.text),
            (Err(error), _) | (_, Err(error)) => {
                say!("run {} is left out: {error}", summary.id);
                continue;
            }
        };
        runs.push(PastRun::with(&run, figures, summary.tags.clone(), note));
    }
    let question = TrendQuestion {
        target: args.target.clone(),
        workload: args.workload.clone(),
        metrics,
        control: args.control.clone(),
        since: args.since.as_deref().map(|since| since_of(since, &runs)).transpose()?,
        gates: args.fail_if.clone(),
    };
    args.check_names(&runs)?;
    let found = trends(&runs, &question);
    args.page.show(&document::trend(&runs, &found, args.detail), json.is_on_stdout());
    json.write(|| json::trend::document(&runs, &found))?;
    Ok(judged(&runs, &found))
}

impl Args {
    /// Returns the runs of the history, the oldest first.
    fn choose(&self, store: &Store) -> Result<Vec<RunSummary>, Failure> {
        let filter = Filter { tags: self.tag.clone(), ..Filter::default() };
        let mut runs = store.list(&filter).or_exit(Exit::Environment)?;
        runs.retain(|run| run.state != RunState::Running && run.measured > 0);
        let newest = runs.first().context("no finished run fits; see `iotax list`").or_exit(Exit::Usage)?;
        let name = match (&self.name, &self.plan) {
            (Some(name), _) => name.clone(),
            (None, Some(path)) => {
                let text = input::text(path, input::PLAN)?;
                let plan = Plan::from_toml(&text).with_context(|| path.display().to_string());
                plan.or_exit(Exit::Usage)?.name
            }
            (None, None) => newest.name.clone(),
        };
        let known = names(&runs);
        runs.retain(|run| run.name == name);
        let Some(newest) = runs.first() else {
            return Err(usage(format!("no run is named {name:?}; accepted: {known}")));
        };
        let machine = self.machine.clone().or_else(|| newest.machine.clone());
        let all = runs.len();
        runs.retain(|run| run.machine == machine);
        if runs.is_empty() {
            return Err(usage(format!(
                "no run named {name:?} was made on {:?}; see `iotax list`",
                machine.unwrap_or_default()
            )));
        }
        if runs.len() < all {
            note!(
                "{} runs of that name on other machines are left out; --machine HOST names one",
                all - runs.len()
            );
        }
        runs.truncate(self.last.map_or(usize::MAX, |last| last as usize));
        runs.reverse();
        Ok(runs)
    }

    /// Fails if no run has the target, control or workload that the options name.
    fn check_names(&self, runs: &[PastRun]) -> Result<(), Failure> {
        let targets = |run: &PastRun| run.targets().map(str::to_owned).collect::<Vec<_>>();
        let workloads = |run: &PastRun| run.workloads().map(str::to_owned).collect::<Vec<_>>();
        check("--target", self.target.as_ref(), runs.iter().flat_map(targets))?;
        check("--control", self.control.as_ref(), runs.iter().flat_map(targets))?;
        check("--workload", self.workload.as_ref(), runs.iter().flat_map(workloads))
    }
}

fn check(flag: &str, asked: Option<&String>, known: impl Iterator<Item = String>) -> Result<(), Failure> {
    let known: std::collections::BTreeSet<String> = known.collect();
    match asked {
        Some(asked) if !known.contains(asked) => {
            let known: Vec<String> = known.into_iter().collect();
            Err(usage(format!("{flag} {asked:?}: no run has it; accepted: {}", known.join(", "))))
        }
        _ => Ok(()),
    }
}

/// Formats the distinct names of runs, quoted and separated by commas.
fn names(runs: &[RunSummary]) -> String {
    let names: std::collections::BTreeSet<String> =
        runs.iter().map(|run| format!("{:?}", run.name)).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns the index of the first run at or after `text`, which is a run's number, or a day or time of a run's start. Returns the number of
/// runs if there is no such run. Fails for a number above the newest run's, and for any other text.
fn since_of(text: &str, runs: &[PastRun]) -> Result<usize, Failure> {
    let first_index = |counts: &dyn Fn(&PastRun) -> bool| runs.iter().position(counts).unwrap_or(runs.len());
    if let Ok(id) = text.parse::<i64>() {
        let newest = runs.last().map_or(0, |run| run.id);
        if id > newest {
            return Err(usage(format!("--since {id}: the newest run here is {newest}")));
        }
        return Ok(first_index(&|run| run.id >= id));
    }
    let from = parsed(text).ok_or_else(|| {
        usage(format!("--since {text:?}: accepted: a run's number, or a day or time in UTC such as 2026-11-20 or 2026-11-20T12:00:00Z"))
    })?;
    Ok(first_index(&|run| run.started_at_ms >= from))
}

/// Prints the outcome of each `--fail-if` condition and returns the exit code.
fn judged(runs: &[PastRun], found: &Trends) -> Exit {
    for line in sentences::trend::gates(runs, found) {
        say!("gate {line}");
    }
    if found.tripped() {
        Exit::Gate
    } else if found.gates.iter().any(|gate| gate.judged == 0) {
        Exit::Unjudged
    } else {
        Exit::Fine
    }
}
