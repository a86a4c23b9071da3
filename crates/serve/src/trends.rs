//! Runs of one plan over time: each workload's figures, a line for each target.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use iotax_analysis::Metric;
use iotax_analysis::compare::{Account, history};
use iotax_analysis::trend::{PastRun, TrendQuestion, trends};
use iotax_model::RunState;
use iotax_report::{document, html as report};
use iotax_store::{Filter, RunSummary, Store};
use maud::{Markup, html};

use crate::app::{App, Shared};
use crate::compare::MOST;
use crate::frame::{Content, Page};
use crate::judged::Judged;
use crate::machines::left_out;
use crate::problem::Problem;
use crate::query::Pairs;
use crate::runs::list;

/// Runs whose plans are offered.
const LOOKED_AT: u32 = 500;
/// Runs that changes are looked for in: each is loaded whole.
const FOLLOWED: usize = 100;

/// What the page shows.
#[derive(Debug)]
struct Asked {
    plan: Option<String>,
    target: Option<String>,
    workload: Option<String>,
    machine: Option<String>,
    metric: Metric,
}

pub(crate) async fn page(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let text = |key| pairs.get(key).map(str::to_owned);
    let metric = pairs.get("metric").map(str::parse::<Metric>).transpose();
    let metric = metric.map_err(|error| Problem::bad_request(error.to_string()))?;
    let asked = Asked {
        plan: text("plan"),
        target: text("target"),
        workload: text("workload"),
        machine: text("machine"),
        metric: metric.filter(|metric| metric.is_compared()).unwrap_or(Metric::LATENCY_MEAN),
    };
    let handle = app.clone();
    let body = app.pool.read(move |store| body(&handle, store, &asked)).await?;
    let page = Page { title: "Trends".into(), place: "/trends", body, charts: true, again: None };
    Ok(page.answer(&app))
}

fn body(app: &App, store: &Store, asked: &Asked) -> Result<Content, Problem> {
    let filter = Filter {
        state: Some(RunState::Complete),
        machine: asked.machine.clone(),
        limit: Some(LOOKED_AT),
        ..Filter::default()
    };
    let runs = list(store, &filter)?;
    let mut plans: Vec<(&str, usize)> = Vec::new();
    for run in &runs {
        match plans.iter_mut().find(|(name, _)| *name == run.name) {
            Some((_, count)) => *count += 1,
            None => plans.push((&run.name, 1)),
        }
    }
    // Of the newest plan that was run more than once there is something to see.
    let first = plans.iter().find(|(_, count)| *count > 1).map(|(name, _)| (*name).to_owned());
    let plan = asked.plan.clone().or(first);
    // Machines are not one series.
    let machine = runs.iter().find(|run| Some(&run.name) == plan.as_ref()).map(|run| &run.machine);
    let mut of_plan: Vec<&RunSummary> = runs
        .iter()
        .filter(|run| Some(&run.name) == plan.as_ref() && Some(&run.machine) == machine)
        .take(FOLLOWED)
        .collect();
    of_plan.reverse();
    let mut damaged = Vec::new();
    let mut followed = Vec::new();
    of_plan.retain(|run| {
        let past = past(app, store, asked, run).ok();
        let is_sound = past.is_some();
        if !is_sound {
            damaged.push(run.id);
        }
        followed.extend(past);
        is_sound
    });
    let newest = &of_plan[of_plan.len().saturating_sub(MOST)..];
    let judged = newest.iter().map(|run| app.cache.get(store, run.id)).collect::<Result<Vec<_>, _>>()?;
    Ok(html! {
        main id="main" tabindex="-1" {
            h1 { "Trends" @if let Some(plan) = &plan { small { (plan) } } }
            (choice(app, asked, &plans, plan.as_deref(), &judged))
            @if judged.len() < 2 {
                @if let Some(plan) = plan.filter(|plan| runs.iter().all(|run| run.name != *plan)) {
                    p { "No complete run of the newest " (LOOKED_AT) " is of a plan " (format!("{plan:?}")) "." }
                }
                p { "Two complete runs of a plan are needed. The same plan again: " code { "iotax run PLAN" } }
            } @else {
                (left_out(&damaged))
                (changes(asked, &followed))
                (tracks(asked, &judged))
            }
        }
    }
    .into())
}

fn past(app: &App, store: &Store, asked: &Asked, run: &RunSummary) -> Result<PastRun, Problem> {
    let judged = app.cache.get(store, run.id)?;
    let note = store.notes(run.id)?.text;
    Ok(PastRun::of(&judged.run, &[asked.metric], run.tags.clone(), note))
}

/// The changes over all runs, as `iotax trend` finds them.
fn changes(asked: &Asked, past: &[PastRun]) -> Markup {
    let question = TrendQuestion {
        target: asked.target.clone(),
        workload: asked.workload.clone(),
        metrics: vec![asked.metric],
        control: None,
        since: None,
        gates: vec![],
    };
    let found = trends(past, &question);
    html! {
        (report::set(&document::trend(past, &found, false)))
        @for (number, trend) in (1..).zip(found.trends.iter().filter(|trend| !trend.changes.is_empty())) {
            (report::trend(past, trend, number))
        }
    }
}

/// The newest runs side by side.
fn tracks(asked: &Asked, judged: &[Arc<Judged>]) -> Markup {
    let accounts: Vec<Account> = judged.iter().map(|judged| judged.account.clone()).collect();
    let margin = judged.iter().map(|judged| judged.run.plan.margin.share()).fold(0.0, f64::max);
    let mut history = history(&accounts, margin);
    let is_asked = |name: &str, wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == name);
    history
        .tracks
        .retain(|track| is_asked(&track.target, &asked.target) && is_asked(&track.workload, &asked.workload));
    html! {
        div.pair { (report::history(&accounts, &history, asked.metric)) }
        (report::set(&document::history(&accounts, &history)))
    }
}

fn choice(
    app: &App,
    asked: &Asked,
    plans: &[(&str, usize)],
    plan: Option<&str>,
    judged: &[Arc<Judged>],
) -> Markup {
    let newest = judged.last().map(|judged| &judged.run.plan);
    html! {
        form.bar action=(app.link("/trends")) {
            label { "Plan"
                select name="plan" {
                    @for (name, count) in plans {
                        option value=(name) selected[plan == Some(name)] { (name) " (" (count) ")" }
                    }
                }
            }
            label { "Target"
                select name="target" {
                    option value="" { "all" }
                    @for target in newest.iter().flat_map(|plan| &plan.targets) {
                        option selected[asked.target.as_ref() == Some(&target.name)] { (target.name) }
                    }
                }
            }
            label { "Workload"
                select name="workload" {
                    option value="" { "all" }
                    @for workload in newest.iter().flat_map(|plan| &plan.workloads) {
                        option selected[asked.workload.as_ref() == Some(&workload.name)] { (workload.name) }
                    }
                }
            }
            label { "Figure"
                select name="metric" {
                    @for metric in Metric::compared() {
                        option value=(metric.word()) selected[asked.metric == metric] { (metric.name()) }
                    }
                }
            }
            label { "Machine" input name="machine" value=[asked.machine.as_ref()] maxlength="200"; }
            button { "Show" }
        }
    }
}
