//! The pages of fleets: their list, and the result of each from its members' runs.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use axum::response::Response;
use iotax_analysis::fleet::{FleetAnswer, fleet};
use iotax_analysis::time::utc;
use iotax_model::RunState;
use iotax_model::record::FleetMode;
use iotax_report::{document, html as report, json};
use iotax_store::{Filter, RunSummary, Store};
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::app::{App, Shared};
use crate::frame::{Content, Page};
use crate::machines::left_out;
use crate::problem::Problem;
use crate::query::{MOST, STATES, encoded};
use crate::runs::{list, machine_link, state_mark};

/// Maximum number of members of a fleet that is shown, because the runs of all members are loaded completely.
const MEMBERS: usize = 500;

/// A fleet's entry in the list, collected from its members' runs.
struct Listed {
    id: String,
    name: String,
    mode: FleetMode,
    started_at_ms: u64,
    /// Number of members in each state; states without members are left out.
    states: Vec<(RunState, u64)>,
}

impl Listed {
    fn members(&self) -> u64 {
        self.states.iter().map(|(_, count)| count).sum()
    }
}

/// Returns the fleets that occur among the newest runs, newest first.
fn fleets(store: &Store) -> Result<Vec<Listed>, Problem> {
    let mut fleets: BTreeMap<String, (i64, Vec<RunSummary>)> = BTreeMap::new();
    for run in list(store, &Filter { limit: Some(MOST), ..Filter::default() })? {
        let Some(of) = &run.fleet else { continue };
        fleets.entry(of.fleet.clone()).or_insert((run.id, Vec::new())).1.push(run);
    }
    let mut fleets: Vec<(String, (i64, Vec<RunSummary>))> = fleets.into_iter().collect();
    fleets.sort_by_key(|(_, (newest, _))| std::cmp::Reverse(*newest));
    Ok(fleets.into_iter().filter_map(|(id, (_, runs))| Listed::of(id, &runs)).collect())
}

impl Listed {
    fn of(id: String, runs: &[RunSummary]) -> Option<Self> {
        let first = runs.last()?;
        let counted = |state| (state, runs.iter().filter(|run| run.state == state).count() as u64);
        Some(Self {
            id,
            name: first.name.clone(),
            mode: first.fleet.as_ref()?.mode,
            started_at_ms: runs.iter().map(|run| run.started_at_ms).min()?,
            states: STATES.into_iter().map(counted).filter(|(_, count)| *count > 0).collect(),
        })
    }
}

fn word(mode: FleetMode) -> &'static str {
    match mode {
        FleetMode::Each => "each",
        FleetMode::Shared => "shared",
    }
}

/// Returns the list of fleets as a JSON document.
pub(crate) fn listing(store: &Store) -> Result<Value, Problem> {
    let entries = fleets(store)?.into_iter().map(|fleet| {
        let states: BTreeMap<&str, u64> =
            fleet.states.iter().map(|(state, count)| (state.word(), *count)).collect();
        json!({
            "fleet": fleet.id,
            "name": fleet.name,
            "mode": word(fleet.mode),
            "started_at": utc(fleet.started_at_ms),
            "members": fleet.members(),
            "states": states,
        })
    });
    Ok(json!({ "fleets": entries.collect::<Vec<_>>() }))
}

/// Returns the document that `iotax fleet report --json` prints for this fleet. Leaves out runs that cannot be read.
pub(crate) fn result_document(store: &Store, id: &str) -> Result<Value, Problem> {
    Ok(json::fleet::document(&result(store, id)?.0))
}

/// Returns a fleet's result, and the numbers of its runs that cannot be read.
fn result(store: &Store, id: &str) -> Result<(FleetAnswer, Vec<i64>), Problem> {
    // The store replaces NUL characters in the id that it looks for, so the exact id is compared again.
    let filter = Filter { fleet: Some(id.to_owned()), limit: Some(MOST), ..Filter::default() };
    let mut runs = list(store, &filter)?;
    runs.retain(|run| run.fleet.as_ref().is_some_and(|member| member.fleet == id));
    if runs.len() > MEMBERS {
        return Err(Problem::conflict(format!(
            "the fleet {id:?} has more than {MEMBERS} members; for larger ones: iotax fleet report {id}"
        )));
    }
    runs.reverse();
    let (mut loaded, mut damaged) = (Vec::with_capacity(runs.len()), Vec::new());
    for run in &runs {
        match store.load(run.id) {
            Ok(run) => loaded.push(run),
            // A damaged run does not hide the others.
            Err(_) => damaged.push(run.id),
        }
    }
    let fleet = fleet(&loaded).ok_or_else(|| {
        Problem::not_found(format!("there is no fleet {id:?}; the list of fleets has those that are known"))
    })?;
    Ok((fleet, damaged))
}

pub(crate) async fn page(State(app): State<Shared>) -> Result<Response, Problem> {
    let fleets = app.pool.read(fleets).await?;
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Fleets" }
            @if fleets.is_empty() {
                p { "No fleet is stored yet. One plan on several machines: "
                    code { "iotax fleet run PLAN --hosts FILE" } }
            } @else {
                (table(&app, &fleets))
                p.note { "Of the newest " (MOST) " runs." }
            }
        }
    };
    Ok(Page { title: "Fleets".into(), nav_path: "/fleets", body: body.into(), ..Page::default() }
        .answer(&app))
}

fn table(app: &App, fleets: &[Listed]) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label="Fleets" {
            table.runs {
                thead { tr {
                    th scope="col" { "Fleet" } th scope="col" { "Name" } th scope="col" { "Storage" }
                    th.figure scope="col" { "Members" } th scope="col" { "State" } th scope="col" { "Began" }
                } }
                tbody {
                    @for fleet in fleets {
                        tr {
                            td { (link(app, &fleet.id)) }
                            td.name { (fleet.name) }
                            td { (word(fleet.mode)) }
                            td.figure { (fleet.members()) }
                            td { @for (state, count) in &fleet.states { (state_mark(*state)) " " (count) " " } }
                            td { (utc(fleet.started_at_ms)) }
                        }
                    }
                }
            }
        }
    }
}

/// Creates a link to a fleet's page, whose text is the fleet's id.
pub(crate) fn link(app: &App, id: &str) -> Markup {
    html! { a href=(app.link(&format!("/fleets/{}", encoded(id)))) { (id) } }
}

pub(crate) async fn one(State(app): State<Shared>, Path(id): Path<String>) -> Result<Response, Problem> {
    let (handle, asked) = (app.clone(), id.clone());
    let (body, again) = app
        .pool
        .read(move |store| {
            let (fleet, damaged) = result(store, &asked)?;
            let is_running = fleet.members.iter().any(|member| member.state == RunState::Running);
            Ok((body(&handle, &fleet, &damaged), is_running.then_some(5)))
        })
        .await?;
    let title = format!("Fleet {id}");
    Ok(Page { title, nav_path: "/fleets", body, again, ..Page::default() }.answer(&app))
}

fn body(app: &App, fleet: &FleetAnswer, damaged: &[i64]) -> Content {
    html! {
        main id="main" tabindex="-1" {
            h1 { (fleet.name) small { "fleet " (fleet.id) } }
            (left_out(damaged))
            (report::set(&document::fleet(fleet)))
            h2 id="members" { "Members" }
            (members(app, fleet))
        }
        aside aria-label="This fleet" {
            p.links {
                a href=(app.link(&format!("/runs?fleet={}", encoded(&fleet.id)))) { "In the list of runs" }
                a href=(app.link(&format!("/api/v1/fleets/{}", encoded(&fleet.id)))) { "JSON" }
            }
        }
    }
    .into()
}

fn members(app: &App, fleet: &FleetAnswer) -> Markup {
    html! {
        div.wide tabindex="0" role="group" aria-label="Members" {
            table.runs {
                thead { tr {
                    th scope="col" { "Member" } th.figure scope="col" { "Run" } th scope="col" { "State" }
                    th.figure scope="col" { "Measured" } th scope="col" { "Machine" }
                } }
                tbody {
                    @for member in &fleet.members {
                        tr {
                            td.name { (member.name) }
                            td.figure { a href=(app.link(&format!("/runs/{}", member.run))) { (member.run) } }
                            td { (state_mark(member.state)) }
                            td.figure { (member.measured) }
                            td { @if let Some(machine) = &member.machine { (machine_link(app, machine)) } }
                        }
                    }
                }
            }
        }
    }
}
