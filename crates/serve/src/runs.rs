//! The page with the list of runs.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use iotax_analysis::time::utc;
use iotax_model::RunState;
use iotax_store::{Filter, RunSummary, Store};
use maud::{Markup, html};

use crate::app::{App, Shared};
use crate::frame::Page;
use crate::problem::Problem;
use crate::query::{Pairs, STATES, encoded};

/// Returns the runs that match a filter. If `before` is above the newest run's number, returns the newest runs.
pub(crate) fn list(store: &Store, filter: &Filter) -> Result<Vec<RunSummary>, Problem> {
    let beyond = store.latest()?.unwrap_or_default().saturating_add(1);
    let before = filter.before.map(|before| before.min(beyond));
    Ok(store.list(&Filter { before, ..filter.clone() })?)
}

pub(crate) async fn page(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let filter = pairs.filter()?;
    let asked = filter.clone();
    let read = move |store: &Store| {
        let runs = list(store, &asked)?;
        let outcomes = runs.iter().filter_map(|run| Some((run.id, outcome_of(store, run)?))).collect();
        Ok::<_, Problem>((runs, outcomes))
    };
    let (runs, outcomes): (Vec<RunSummary>, HashMap<i64, String>) = app.pool.read(read).await?;
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Runs" }
            (search(&app, &filter))
            @if runs.is_empty() {
                p { @if pairs.with("limit", None).is_empty() { "No run is stored yet. The first: " code { "iotax ladder DIR" } }
                    @else { "No run is like that." } }
            } @else {
                form data-compare action=(app.link("/compare")) {
                    (table(&app, &runs, &outcomes, true))
                    p { button.main { "Compare the chosen runs" } }
                }
                div.pages { (pages(&app, &filter, &runs, &pairs)) }
            }
        }
    };
    Ok(Page { title: "Runs".into(), nav_path: "/runs", body: body.into(), ..Page::default() }.answer(&app))
}

fn search(app: &App, filter: &Filter) -> Markup {
    html! {
        form.bar role="search" action=(app.link("/runs")) {
            label { "Name, target, workload, note" input type="search" name="text" value=(filter.text) maxlength="200"; }
            label { "State"
                select name="state" {
                    option value="" { "any" }
                    @for state in STATES {
                        option value=(state.word()) selected[filter.state == Some(state)] { (state.word()) }
                    }
                }
            }
            label { "Machine" input name="machine" value=[filter.machine.as_ref()] maxlength="200"; }
            label { "Tag" input name="tag" value=[filter.tags.first()] maxlength="200"; }
            button { "Search" }
        }
    }
}

/// Returns the main figures of a run as one line; `None` if it is in progress, cannot be read or has no such figures.
fn outcome_of(store: &Store, run: &RunSummary) -> Option<String> {
    if run.state == RunState::Running || run.damage.is_some() {
        return None;
    }
    let (head, figures) = store.load_figures(run.id).ok()?;
    iotax_report::outcome(&head, &figures)
}

/// Creates the table of runs, with their main figures unless `outcomes` is empty. With `can_choose`, it has checkboxes to select runs for a
/// comparison.
pub(crate) fn table(
    app: &App,
    runs: &[RunSummary],
    outcomes: &HashMap<i64, String>,
    can_choose: bool,
) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label="Runs" {
            table.runs {
                thead { tr {
                    th.figure scope="col" { "Run" }
                    @if can_choose { th scope="col" { "Compare" } }
                    th scope="col" { "Name" }
                    @if !outcomes.is_empty() { th scope="col" { "Result" } }
                    th scope="col" { "State" }
                    th.figure scope="col" { "Measured" }
                    th scope="col" { "Began" }
                    th scope="col" { "Machine" }
                    th scope="col" { "Targets" }
                    th scope="col" { "Tags" }
                } }
                tbody { @for run in runs { (row(app, run, outcomes, can_choose)) } }
            }
        }
    }
}

fn row(app: &App, run: &RunSummary, outcomes: &HashMap<i64, String>, can_choose: bool) -> Markup {
    html! {
        tr {
            td.figure { a href=(app.link(&format!("/runs/{}", run.id))) { (run.id) } }
            @if can_choose {
                td { input type="checkbox" name="run" value=(run.id) aria-label=(format!("Compare run {}", run.id)); }
            }
            td.name { a href=(app.link(&format!("/runs/{}", run.id))) { (run.name) } }
            @if !outcomes.is_empty() { td.name { (outcomes.get(&run.id).map_or("", String::as_str)) } }
            td { (state_mark(run.state)) }
            td.figure { (run.measured) "/" (run.planned) }
            td { (utc(run.started_at_ms)) }
            td { @if let Some(machine) = &run.machine { (machine_link(app, machine)) } }
            td.name { (targets(&run.targets)) }
            td.tags { (tags(app, &run.tags)) }
        }
    }
}

/// Creates a link to a machine's page, whose text is the machine's name.
pub(crate) fn machine_link(app: &App, machine: &str) -> Markup {
    html! { a href=(app.link(&format!("/machine?name={}", encoded(machine)))) { (machine) } }
}

/// Creates the coloured name of a run's state.
pub(crate) fn state_mark(state: RunState) -> Markup {
    html! { span class=(format!("state {state}")) { (state.word()) } }
}

/// Creates a run's tags, each as a link to the list of runs with that tag.
pub(crate) fn tags(app: &App, tags: &[String]) -> Markup {
    html! {
        @for tag in tags {
            a.tag href=(app.link(&format!("/runs?tag={}", encoded(tag)))) { (tag) } " "
        }
    }
}

/// Returns the names of the first four targets, and the number of further ones.
fn targets(all: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = all[..all.len().min(SHOWN)].join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Creates the links to older runs and to the newest runs.
fn pages(app: &App, filter: &Filter, runs: &[RunSummary], pairs: &Pairs) -> Markup {
    let is_full = filter.limit.is_some_and(|limit| runs.len() >= limit as usize);
    let oldest = runs.last().map(|run| run.id).filter(|id| is_full && *id > 1);
    html! {
        @if filter.before.is_some() {
            a href=(app.link(&format!("/runs?{}", pairs.with("before", None)))) { "Newest" }
        }
        @if let Some(oldest) = oldest {
            a rel="next" href=(app.link(&format!("/runs?{}", pairs.with("before", Some(&oldest.to_string()))))) { "Older" }
        }
    }
}
