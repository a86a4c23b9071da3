//! The page of a run: its report, or its progress while it runs.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use iotax_model::RunState;
use iotax_report::{html as report, plan_toml};
use maud::html;

use crate::app::Shared;
use crate::fleets;
use crate::frame::Page;
use crate::live;
use crate::notes;
use crate::problem::Problem;
use crate::query::RunId;

pub(crate) async fn page(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    let handle = app.clone();
    let page = app.pool.read(move |store| {
        let app = &handle;
        let judged = app.cache.get(store, id)?;
        let (run, notes) = (&judged.run, store.notes(id)?);
        let is_running = run.state == RunState::Running;
        let body = html! {
            @if is_running {
                (live::main(app, store, &judged))
            } @else {
                (report::main(run, &judged.judgement))
            }
            aside aria-label="This run" {
                p.links {
                    @if let Some(member) = &run.fleet { span { "Member " (member.member) " of fleet " (fleets::link(app, &member.fleet)) } }
                    a href=(app.link(&format!("/compare?runs={id}"))) { "Compare with another run" }
                    a href=(app.link(&format!("/runs/{id}/plan.toml"))) { "Plan" }
                    a href=(app.link(&format!("/api/v1/runs/{id}"))) { "JSON" }
                    @if !is_running { a href=(app.link(&format!("/runs/{id}/report.html"))) { "Report as one file" } }
                }
                (notes::section(app, id, &notes))
            }
        };
        let title = format!("{} - run {id}", run.plan.name);
        let again = is_running.then_some(5);
        Ok(Page { title, nav_path: "/runs", body: body.into(), charts: !is_running, again })
    });
    Ok(page.await?.answer(&app))
}

/// Returns the run's plan as a file that `iotax run` accepts.
pub(crate) async fn plan(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    let handle = app.clone();
    let plan = app.pool.read(move |store| {
        let judged = handle.cache.get(store, id)?;
        plan_toml(&judged.run)
            .map_err(|error| Problem::conflict(format!("the plan cannot be written as TOML: {error}")))
    });
    let name = format!("attachment; filename=\"iotax-{id}.toml\"");
    let kind = "text/plain; charset=utf-8".to_owned();
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], plan.await?).into_response())
}

/// Returns the run's report as `iotax report --html` writes it.
pub(crate) async fn report(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    let handle = app.clone();
    let text = app.pool.read(move |store| {
        let judged = handle.cache.get(store, id)?;
        Ok(report::render(&judged.run, &judged.judgement))
    });
    let name = format!("attachment; filename=\"iotax-{id}.html\"");
    let kind = "text/html; charset=utf-8".to_owned();
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], text.await?).into_response())
}
