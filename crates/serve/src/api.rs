//! The JSON API. Runs, comparisons, histories, trends and fleet results are the documents that the commands print with
//! `--json`.

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Json, Path, Request, State};
use axum::http::header;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use iotax_analysis::time::utc;
use iotax_model::visible;
use iotax_report::json;
use iotax_store::RunSummary;
use serde_json::{Map, Value, json};

use crate::app::Shared;
use crate::compare::{Asked, comparison, history_document};
use crate::judged::summary;
use crate::notes::{self, NotesDocument};
use crate::openapi::{self, ApiPath, PATHS};
use crate::past::{self, AskedHistory};
use crate::problem::Problem;
use crate::query::{Pairs, RunId};
use crate::runs::list;
use crate::{fleets, live, machines};

/// Creates a response with a JSON document.
fn answer(document: &Value) -> Response {
    let text = visible::json(&document.to_string()).into_owned();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Creates the routes of the API: exactly the paths in its OpenAPI description.
pub(crate) fn router() -> Router<Shared> {
    let route = |path: &'static ApiPath| {
        let known = async |pairs: Pairs, request: Request, next: Next| match pairs.beyond(path.parameters()) {
            Some(problem) => Err(problem),
            None => Ok(next.run(request).await),
        };
        handler(path.path).route_layer(middleware::from_fn(known))
    };
    PATHS.iter().fold(Router::new(), |router, path| router.route(path.path, route(path)))
}

fn handler(path: &str) -> MethodRouter<Shared> {
    match path {
        "/openapi.json" => get(async || answer(&openapi::document())),
        "/runs" => get(runs),
        "/runs/{id}" => get(run),
        "/runs/{id}/summary" => get(run_summary),
        "/runs/{id}/notes" => get(notes).put(put_notes),
        "/runs/{id}/live" => get(live),
        "/compare" => get(compare),
        "/history" => get(history),
        "/trends" => get(trends),
        "/fleets" => get(fleets),
        "/fleets/{fleet}" => get(fleet),
        "/machines" => get(machines),
        other => unreachable!("{other} is described and has no handler"),
    }
}

async fn runs(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let filter = pairs.filter()?;
    let runs = app.pool.read(move |store| list(store, &filter)).await?;
    Ok(answer(&json!({ "runs": runs.iter().map(line).collect::<Vec<_>>() })))
}

/// Converts a run's list entry to JSON, with the fields of `iotax list --json` except for the outcome, the user and the
/// error of a damaged run.
fn line(run: &RunSummary) -> Value {
    let mut line = json!({
        "id": run.id,
        "name": run.name,
        "state": run.state.word(),
        "started_at": utc(run.started_at_ms),
        "targets": run.targets,
        "measured": run.measured,
        "planned": run.planned,
        "tags": run.tags,
    });
    if let Some(machine) = &run.machine {
        line["machine"] = machine.as_str().into();
    }
    if let Some(member) = &run.fleet {
        line["fleet"] = member.fleet.as_str().into();
        line["member"] = member.member.as_str().into();
    }
    line
}

async fn run(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    let handle = app.clone();
    let document = app.pool.read(move |store| {
        let judged = handle.cache.get(store, id)?;
        Ok(json::document(&judged.run, &judged.judgement))
    });
    Ok(answer(&document.await?))
}

async fn run_summary(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    let found = app.pool.read(move |store| summary(store, id)?.ok_or_else(|| notes::unknown(store, id)));
    Ok(answer(&line(&found.await?)))
}

async fn notes(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    let found = app.pool.read(move |store| {
        summary(store, id)?.ok_or_else(|| notes::unknown(store, id))?;
        Ok(NotesDocument::from(store.notes(id)?))
    });
    Ok(answer(&json!(found.await?)))
}

async fn put_notes(
    State(app): State<Shared>,
    RunId(id): RunId,
    sent: Result<Json<Map<String, Value>>, JsonRejection>,
) -> Result<Response, Problem> {
    // Deserialized directly, a list would count as the fields in their order, and an empty list would delete all notes.
    let Json(sent) = sent.map_err(|error| Problem::new(error.status(), error.body_text()))?;
    let sent = serde_json::from_value(Value::Object(sent)).map_err(|error| {
        Problem::bad_request(format!("{error}; accepted: {{\"tags\": [\"...\"], \"text\": \"...\"}}"))
    })?;
    Ok(answer(&json!(NotesDocument::from(notes::keep(&app, id, sent).await?))))
}

async fn live(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    Ok(answer(&app.pool.read(move |store| live::document(store, id)).await?))
}

async fn compare(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let (asked, handle) = (Asked::read(&pairs)?, app.clone());
    Ok(answer(&app.pool.read(move |store| comparison(&handle, store, &asked)).await?))
}

async fn history(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let (asked, handle) = (Asked::read(&pairs)?, app.clone());
    Ok(answer(&app.pool.read(move |store| history_document(&handle, store, &asked)).await?))
}

async fn trends(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let (asked, handle) = (AskedHistory::read(&pairs)?, app.clone());
    Ok(answer(&app.pool.read(move |store| past::document(&handle, store, &asked)).await?))
}

async fn fleets(State(app): State<Shared>) -> Result<Response, Problem> {
    Ok(answer(&app.pool.read(fleets::listing).await?))
}

async fn fleet(State(app): State<Shared>, Path(id): Path<String>) -> Result<Response, Problem> {
    Ok(answer(&app.pool.read(move |store| fleets::result_document(store, &id)).await?))
}

async fn machines(State(app): State<Shared>) -> Result<Response, Problem> {
    Ok(answer(&app.pool.read(machines::document).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_is_described_once_and_has_a_handler() {
        let document = openapi::document();
        assert_eq!(document["paths"].as_object().map(serde_json::Map::len), Some(PATHS.len()));
        // A path without a handler panics.
        let _ = router();
    }
}
