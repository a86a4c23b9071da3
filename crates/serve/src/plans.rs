//! The pages that show plans and, if permitted, start them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use axum::extract::{Form, State};
use axum::response::{IntoResponse, Redirect, Response};
use iotax_model::RunState;
use iotax_report::plan_toml;
use iotax_store::{Filter, RunSummary, Store};
use maud::{Markup, html};
use serde::Deserialize;

use crate::app::{App, Shared};
use crate::frame::{Page, form_token};
use crate::launcher::{Begun, Launcher};
use crate::notes::check_form;
use crate::problem::Problem;
use crate::runs::{list, table};

/// Number of newest runs whose plans are listed.
const LOOKED_AT: u32 = 500;
/// Maximum length of a plan in bytes.
const LONGEST: u64 = 1 << 20;

pub(crate) async fn page(State(app): State<Shared>) -> Result<Response, Problem> {
    let read = app.pool.read(|store| {
        let running = Filter { state: Some(RunState::Running), limit: Some(20), ..Filter::default() };
        Ok((newest(store)?, list(store, &running)?))
    });
    let (plans, running) = read.await?;
    let launcher = app.launcher.as_ref();
    let begun = launcher.and_then(Launcher::last);
    let is_free = begun.as_ref().is_none_or(|begun| begun.ended.is_some());
    let files = launcher.and_then(|launcher| launcher.launch.plans.as_deref()).map(files).unwrap_or_default();
    let can_begin = launcher.is_some() && is_free && !app.config.read_only;
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Plans" }
            @if let Some(begun) = &begun { (last(&app, begun)) }
            @if !running.is_empty() { h2 { "Measuring now" } (table(&app, &running, &HashMap::new(), false)) }
            h2 { "Of the store" small { "the newest run of each" } }
            @if plans.is_empty() { p { "No run is stored yet." } } @else { (of_runs(&app, &plans, can_begin)) }
            @if !files.is_empty() {
                h2 { "Of the server's directory" }
                ul { @for file in &files { li { (file) " " @if can_begin { (begin(&app, "file", file, file)) } } } }
            }
            @if launcher.is_none() {
                p.note { "Runs can be started here if the server runs with " code { "--allow-run" } "." }
            }
        }
    };
    let again = (!is_free).then_some(5);
    Ok(Page { title: "Plans".into(), nav_path: "/plans", body: body.into(), again, ..Page::default() }
        .answer(&app))
}

/// Returns the newest run of each plan among the store's newest 500 runs.
fn newest(store: &Store) -> Result<Vec<RunSummary>, Problem> {
    let mut runs = list(store, &Filter { limit: Some(LOOKED_AT), ..Filter::default() })?;
    let mut seen = HashSet::new();
    runs.retain(|run| seen.insert(run.name.clone()));
    Ok(runs)
}

fn of_runs(app: &App, plans: &[RunSummary], can_begin: bool) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label="Plans" {
            table.runs {
                thead { tr {
                    th scope="col" { "Plan" } th.figure scope="col" { "Run" } th scope="col" { "Targets" } th scope="col" { "As a file" }
                    @if can_begin { th scope="col" { "Begin" } }
                } }
                tbody {
                    @for run in plans {
                        tr {
                            td.name { (run.name) }
                            td.figure { a href=(app.link(&format!("/runs/{}", run.id))) { (run.id) } }
                            td.name { (run.targets.join(", ")) }
                            td { a href=(app.link(&format!("/runs/{}/plan.toml", run.id)))
                                aria-label=(format!("Plan of run {} as TOML", run.id)) { "TOML" } }
                            @if can_begin { td { (begin(app, "run", &run.id.to_string(), &format!("the plan of run {}", run.id))) } }
                        }
                    }
                }
            }
        }
    }
}

fn begin(app: &App, field: &str, value: &str, what: &str) -> Markup {
    html! {
        form method="post" action=(app.link("/plans/begin")) {
            (form_token(app))
            input type="hidden" name=(field) value=(value);
            button aria-label=(format!("Begin {what}")) { "Begin" }
        }
    }
}

fn last(app: &App, begun: &Begun) -> Markup {
    html! {
        section.means {
            h2 { (begun.name) }
            @match &begun.ended {
                Some(ended) => p { "Ended: " (ended) "." },
                None => {
                    p { "Started here, still running." }
                    form method="post" action=(app.link("/plans/cancel")) { (form_token(app)) button { "Stop it" } }
                },
            }
            @if !begun.said.is_empty() { pre tabindex="0" { (begun.said) } }
        }
    }
}

/// Returns the names of the plan files in a directory, without symbolic links.
fn files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let plans = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let names = plans.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> =
        names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "toml")).collect();
    names.sort();
    names
}

/// The fields of the form that starts a run.
#[derive(Debug, Deserialize)]
pub(crate) struct BeginForm {
    form_token: String,
    run: Option<i64>,
    file: Option<String>,
}

/// The fields of the form that stops a run.
#[derive(Debug, Deserialize)]
pub(crate) struct CancelForm {
    form_token: String,
}

pub(crate) async fn begin_run(
    State(app): State<Shared>,
    Form(form): Form<BeginForm>,
) -> Result<Response, Problem> {
    let launcher = allowed(&app)?;
    check_form(&app, &form.form_token)?;
    let (name, plan) = match (form.run, form.file) {
        (Some(id), None) => {
            let handle = app.clone();
            let read = app.pool.read(move |store| {
                let judged = handle.cache.get(store, id)?;
                let plan = plan_toml(&judged.run);
                let plan = plan.map_err(|error| {
                    Problem::conflict(format!("the plan cannot be written as TOML: {error}"))
                })?;
                Ok((judged.run.plan.name.clone(), without_seed(&plan)))
            });
            read.await?
        }
        (None, Some(name)) => {
            let dir = launcher.launch.plans.as_deref();
            let found = dir.filter(|dir| files(dir).contains(&name)).map(|dir| dir.join(&name));
            let path = found
                .ok_or_else(|| Problem::not_found(format!("the server's directory has no plan {name:?}")))?;
            let unfit = |reason: &dyn std::fmt::Display| Problem::conflict(format!("{name}: {reason}"));
            let length = std::fs::metadata(&path).map_err(|error| unfit(&error))?.len();
            if length > LONGEST {
                return Err(unfit(&format_args!("{length} bytes; accepted: up to {LONGEST}")));
            }
            let plan = std::fs::read_to_string(&path).map_err(|error| unfit(&error))?;
            (name, plan)
        }
        _ => return Err(Problem::bad_request("name a plan: run=RUN or file=NAME")),
    };
    launcher.begin(&name, plan)?;
    Ok(Redirect::to(&app.link("/plans")).into_response())
}

pub(crate) async fn cancel(
    State(app): State<Shared>,
    Form(form): Form<CancelForm>,
) -> Result<Response, Problem> {
    let launcher = allowed(&app)?;
    check_form(&app, &form.form_token)?;
    launcher.cancel()?;
    Ok(Redirect::to(&app.link("/plans")).into_response())
}

fn allowed(app: &App) -> Result<&Launcher, Problem> {
    if app.config.read_only {
        return Err(Problem::forbidden(
            "this server is for reading only; runs can be started if it runs without --read-only",
        ));
    }
    app.launcher
        .as_ref()
        .ok_or_else(|| Problem::forbidden("runs can be started if the server runs with --allow-run"))
}

/// Removes the seed from a plan. A new run then draws another seed instead of repeating the same order.
fn without_seed(plan: &str) -> String {
    plan.lines()
        .filter(|line| !line.starts_with("seed = "))
        .fold(String::new(), |text, line| text + line + "\n")
}
