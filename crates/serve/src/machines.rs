//! The pages of machines: their runs, and their environment with its changes from run to run.

use std::collections::{BTreeMap, HashMap};

use axum::extract::State;
use axum::response::Response;
use iotax_analysis::compare::differences::{self, Difference};
use iotax_analysis::time::utc;
use iotax_store::{Filter, Store};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::frame::{Content, Page};
use crate::problem::Problem;
use crate::query::{MOST, Pairs};
use crate::runs::{list, machine_link, table};

/// Maximum number of a machine's runs whose environments are compared.
const COMPARED: u32 = 30;

/// The number of a machine's runs, and its latest run.
struct Machine {
    runs: u64,
    last: i64,
    last_ms: u64,
}

/// Returns the machines of the newest runs by name.
fn machines(store: &Store) -> Result<BTreeMap<String, Machine>, Problem> {
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    for run in list(store, &Filter { limit: Some(MOST), ..Filter::default() })? {
        let Some(name) = run.machine else { continue };
        let new = Machine { runs: 0, last: run.id, last_ms: run.started_at_ms };
        machines.entry(name).or_insert(new).runs += 1;
    }
    Ok(machines)
}

/// Returns the list of machines as a JSON document.
pub(crate) fn document(store: &Store) -> Result<Value, Problem> {
    let machines = machines(store)?;
    let entries = machines.iter().map(|(name, machine)| {
        json!({ "name": name, "runs": machine.runs, "last_run": machine.last, "last_started_at": utc(machine.last_ms) })
    });
    Ok(json!({ "machines": entries.collect::<Vec<_>>() }))
}

pub(crate) async fn page(State(app): State<Shared>) -> Result<Response, Problem> {
    let machines = app.pool.read(machines).await?;
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Machines" }
            @if machines.is_empty() { p { "No run says which machine it was made on." } } @else {
                div.wide tabindex="0" role="group" aria-label="Machines" {
                    table.narrow {
                        thead { tr {
                            th scope="col" { "Machine" } th scope="col" { "Runs" } th scope="col" { "Newest" }
                            th scope="col" { "Began" }
                        } }
                        tbody {
                            @for (name, machine) in &machines {
                                tr {
                                    td { (machine_link(&app, name)) }
                                    td { (machine.runs) }
                                    td { a href=(app.link(&format!("/runs/{}", machine.last))) { (machine.last) } }
                                    td { (utc(machine.last_ms)) }
                                }
                            }
                        }
                    }
                }
                p.note { "Of the newest " (MOST) " runs." }
            }
        }
    };
    Ok(Page { title: "Machines".into(), nav_path: "/machines", body: body.into(), ..Page::default() }
        .answer(&app))
}

pub(crate) async fn one(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let name = pairs.get("name").ok_or_else(|| Problem::bad_request("name=MACHINE is missing"))?.to_owned();
    let (handle, title) = (app.clone(), name.clone());
    let body = app.pool.read(move |store| body(&handle, store, &name)).await?;
    Ok(Page { title, nav_path: "/machines", body, ..Page::default() }.answer(&app))
}

fn body(app: &App, store: &Store, name: &str) -> Result<Content, Problem> {
    let filter = Filter { machine: Some(name.to_owned()), limit: Some(COMPARED), ..Filter::default() };
    let mut runs = list(store, &filter)?;
    runs.retain(|run| run.machine.as_deref() == Some(name));
    let Some(newest) = runs.first() else {
        return Err(Problem::not_found(format!(
            "no run was made on {name:?}; the list of machines has those that are known"
        )));
    };
    let newest = app.cache.get(store, newest.id)?;
    let (mut changes, mut damaged) = (Vec::new(), Vec::new());
    let mut after = newest.clone();
    for run in &runs[1..] {
        // A damaged run does not hide the others.
        let Ok(before) = app.cache.get(store, run.id) else {
            damaged.push(run.id);
            continue;
        };
        let found = differences::machines(&before.run.environment, &after.run.environment);
        if !found.is_empty() {
            changes.push((before.run.id, after.run.id, after.run.started_at_ms, found));
        }
        after = before;
    }
    Ok(html! {
        main id="main" tabindex="-1" {
            h1 { (name) }
            (left_out(&damaged))
            section {
                h2 { "What changed" small { "over the newest " (runs.len()) " runs" } }
                @if changes.is_empty() { p { "Nothing that is on record." } }
                @for (before, after, at, found) in &changes {
                    h3 { "Between run " (run_link(app, *before)) " and run " (run_link(app, *after)) small { (utc(*at)) } }
                    (changed(found))
                }
            }
            (iotax_report::html::environment(&newest.run))
            h2 { "Runs" }
            (table(app, &runs, &HashMap::new(), false))
        }
    }
    .into())
}

fn run_link(app: &App, id: i64) -> Markup {
    html! { a href=(app.link(&format!("/runs/{id}"))) { (id) } }
}

fn changed(found: &[Difference]) -> Markup {
    let side = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    html! {
        ul { @for difference in found { li { (difference.what) ": " (side(&difference.a)) " \u{2192} " b { (side(&difference.b)) } } } }
    }
}

/// Creates a note that names the runs that are left out because they cannot be read.
pub(crate) fn left_out(damaged: &[i64]) -> Markup {
    let runs: Vec<String> = damaged.iter().map(i64::to_string).collect();
    html! { @if !runs.is_empty() { p.note { "Left out, because they cannot be read: " (runs.join(", ")) "." } } }
}
