//! The history of a plan: the choice of runs, and the data of each that a trend needs.

use std::collections::HashMap;

use iotax_analysis::Metric;
use iotax_analysis::trend::{PastRun, TrendQuestion, Trends, trends};
use iotax_model::RunState;
use iotax_report::json;
use iotax_store::{Filter, RunSummary, Store, StoreError};
use serde_json::Value;

use crate::app::App;
use crate::judged::Key;
use crate::problem::Problem;
use crate::query::Pairs;
use crate::runs::list;

/// Number of newest runs of the store among which the plan's runs are searched.
pub(crate) const LOOKED_AT: u32 = 10_000;
/// Default number of runs in a trend.
const FOLLOWED: usize = 100;
/// Maximum number of runs in a trend.
pub(crate) const MOST_FOLLOWED: usize = 1000;

/// The plan and filters in the query of a request.
#[derive(Debug, Clone)]
pub(crate) struct AskedHistory {
    pub(crate) plan: Option<String>,
    pub(crate) machine: Option<String>,
    tags: Vec<String>,
    pub(crate) last: usize,
    pub(crate) target: Option<String>,
    pub(crate) workload: Option<String>,
    control: Option<String>,
    since: Option<i64>,
    pub(crate) metrics: Vec<Metric>,
}

impl AskedHistory {
    pub(crate) fn read(pairs: &Pairs) -> Result<Self, Problem> {
        let text = |key| pairs.get(key).map(str::to_owned);
        let metrics = pairs.all("metric").flat_map(|list| list.split(',')).map(metric);
        let last = pairs.parsed("last", &format!("a number from 1 to {MOST_FOLLOWED}"))?.unwrap_or(FOLLOWED);
        if !(1..=MOST_FOLLOWED).contains(&last) {
            return Err(Problem::bad_request(format!(
                "last={last}; accepted: a number from 1 to {MOST_FOLLOWED}"
            )));
        }
        Ok(Self {
            plan: text("plan"),
            machine: text("machine"),
            tags: pairs.all("tag").map(|tag| tag.trim().to_owned()).collect(),
            last,
            target: text("target"),
            workload: text("workload"),
            control: text("control"),
            since: pairs.parsed("since", "the number of a run")?,
            metrics: metrics.collect::<Result<_, _>>()?,
        })
    }
}

fn metric(text: &str) -> Result<Metric, Problem> {
    let metric = text.trim().parse::<Metric>().ok().filter(|metric| metric.is_compared());
    metric.ok_or_else(|| {
        let words: Vec<&str> = Metric::compared().map(Metric::word).collect();
        Problem::bad_request(format!("metric={text:?}; accepted: {}", words.join(", ")))
    })
}

/// The runs of a trend, before their data is loaded.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// Name of each plan among the searched runs, with the number of its runs there; the most recently run plan comes first. Runs in
    /// progress and runs without measurements do not count.
    pub(crate) plans: Vec<(String, usize)>,
    /// Name of the plan to show; `None` if the store has no run to show.
    pub(crate) plan: Option<String>,
    /// The plan's runs on the chosen machine, oldest first.
    pub(crate) runs: Vec<RunSummary>,
    /// Number of the plan's older runs on that machine that are left out.
    pub(crate) older: usize,
    /// Number of the plan's runs on other machines.
    pub(crate) elsewhere: usize,
}

/// Chooses runs as `iotax trend` does: finished runs of a plan that have measurements, on the requested machine or else on that of the
/// plan's newest run. Without a given plan, takes the plan of the newest run that was repeated on the same machine, or else of the newest
/// run.
pub(crate) fn choose(store: &Store, asked: &AskedHistory) -> Result<Chosen, Problem> {
    let filter = Filter { tags: asked.tags.clone(), limit: Some(LOOKED_AT), ..Filter::default() };
    let mut runs = list(store, &filter)?;
    runs.retain(|run| run.state != RunState::Running && run.measured > 0);
    let mut plans: Vec<(String, usize)> = Vec::new();
    for run in &runs {
        match plans.iter_mut().find(|(name, _)| *name == run.name) {
            Some((_, count)) => *count += 1,
            None => plans.push((run.name.clone(), 1)),
        }
    }
    let is_asked = |run: &&RunSummary| {
        asked.plan.as_ref().is_none_or(|plan| run.name == *plan)
            && asked.machine.as_ref().is_none_or(|machine| run.machine.as_ref() == Some(machine))
    };
    let newest = match asked.plan {
        Some(_) => runs.iter().find(is_asked),
        None => first_repeated(runs.iter().filter(is_asked)).or_else(|| runs.iter().find(is_asked)),
    };
    let plan = asked.plan.clone().or_else(|| newest.map(|run| run.name.clone()));
    let machine = asked.machine.clone().or_else(|| newest.and_then(|run| run.machine.clone()));
    runs.retain(|run| Some(&run.name) == plan.as_ref());
    let all = runs.len();
    runs.retain(|run| run.machine == machine);
    let (here, elsewhere) = (runs.len(), all - runs.len());
    runs.truncate(asked.last);
    runs.reverse();
    Ok(Chosen { plans, plan, older: here - runs.len(), runs, elsewhere })
}

/// Returns the newest run whose plan has another run on the same machine; `None` if there is none. So plans that each member of a fleet ran
/// once are skipped.
fn first_repeated<'a>(mut runs: impl Iterator<Item = &'a RunSummary> + Clone) -> Option<&'a RunSummary> {
    let mut counts: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    for run in runs.clone() {
        *counts.entry((&run.name, run.machine.as_deref())).or_default() += 1;
    }
    runs.find(|run| counts.get(&(run.name.as_str(), run.machine.as_deref())).is_some_and(|count| *count > 1))
}

/// Loads the data of the runs for a trend. Damaged runs are left out; their numbers are returned as well.
pub(crate) fn read(
    app: &App,
    store: &Store,
    runs: &[RunSummary],
) -> Result<(Vec<PastRun>, Vec<i64>), Problem> {
    let (mut past, mut damaged) = (Vec::with_capacity(runs.len()), Vec::new());
    for run in runs {
        let key = Key::of(run);
        let kept = app.past.get(run.id, key).map_or_else(
            || {
                let (run, figures) = store.load_figures(run.id)?;
                Ok::<_, StoreError>(app.past.keep(
                    run.id,
                    key,
                    PastRun::with(&run, figures, vec![], String::new()),
                ))
            },
            Ok,
        );
        // A damaged run does not hide the others.
        let Ok(kept) = kept else {
            damaged.push(run.id);
            continue;
        };
        let mut one = PastRun::clone(&kept);
        one.tags.clone_from(&run.tags);
        one.note = store.notes(run.id)?.text;
        past.push(one);
    }
    Ok((past, damaged))
}

/// Computes the trends of `metrics`, for the requested target and workload or for all.
pub(crate) fn followed(asked: &AskedHistory, metrics: Vec<Metric>, past: &[PastRun]) -> Trends {
    let from = |id: i64| past.iter().position(|run| run.id >= id).unwrap_or(past.len());
    let question = TrendQuestion {
        target: asked.target.clone(),
        workload: asked.workload.clone(),
        metrics,
        control: asked.control.clone(),
        since: asked.since.map(from),
        gates: vec![],
    };
    trends(past, &question)
}

/// Returns the document that `iotax trend --json` prints for the same runs.
pub(crate) fn document(app: &App, store: &Store, asked: &AskedHistory) -> Result<Value, Problem> {
    let chosen = choose(store, asked)?;
    if chosen.runs.is_empty() {
        let plan = asked.plan.as_deref().map_or(String::new(), |plan| format!(" of a plan {plan:?}"));
        let machine =
            asked.machine.as_deref().map_or(String::new(), |name| format!(" on a machine {name:?}"));
        return Err(Problem::not_found(format!(
            "no finished run of the newest {LOOKED_AT} is{plan}{machine}{}",
            if plan.is_empty() && machine.is_empty() { " like that" } else { "" }
        )));
    }
    let (past, _) = read(app, store, &chosen.runs)?;
    named("target", asked.target.as_deref(), past.iter().flat_map(PastRun::targets))?;
    named("control", asked.control.as_deref(), past.iter().flat_map(PastRun::targets))?;
    named("workload", asked.workload.as_deref(), past.iter().flat_map(PastRun::workloads))?;
    let metrics = if asked.metrics.is_empty() {
        vec![Metric::LATENCY_MEAN, Metric::LATENCY_P99]
    } else {
        asked.metrics.clone()
    };
    Ok(json::trend::document(&past, &followed(asked, metrics, &past)))
}

/// Rejects the value of the parameter `key` if no run has it.
fn named<'a>(key: &str, asked: Option<&str>, known: impl Iterator<Item = &'a str>) -> Result<(), Problem> {
    let known: std::collections::BTreeSet<&str> = known.collect();
    match asked {
        Some(asked) if !known.contains(asked) => {
            let known: Vec<&str> = known.into_iter().collect();
            Err(Problem::bad_request(format!(
                "{key}={asked:?}: no run has it; accepted: {}",
                known.join(", ")
            )))
        }
        _ => Ok(()),
    }
}
