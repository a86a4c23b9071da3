//! The routes of the server.

use std::any::Any;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;

use crate::app::Shared;
use crate::guard::guard;
use crate::problem::Problem;
use crate::{api, assets, compare, fleets, live, login, machines, metrics, notes, plans, run, runs, trends};

/// Creates the whole service: all routes, protected by the guard.
pub(crate) fn service(app: &Shared) -> Router {
    let router = pages()
        .nest("/api/v1", api::router())
        // The guard has already read the body and limited its length.
        .layer(DefaultBodyLimit::disable())
        .layer(CompressionLayer::new())
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app.clone());
    // Around the router, because the guard changes the path by which the router selects a route.
    Router::new().fallback_service(router).layer(middleware::from_fn_with_state(app.clone(), guard))
}

fn panicked(_: Box<dyn Any + Send>) -> Response {
    Problem::internal("the request could not be carried out").into_response()
}

fn pages() -> Router<Shared> {
    Router::new()
        .route("/", get(home))
        .route("/runs", get(runs::page))
        .route("/runs/{id}", get(run::page))
        .route("/runs/{id}/plan.toml", get(run::plan))
        .route("/runs/{id}/report.html", get(run::report))
        .route("/runs/{id}/notes", post(notes::save))
        .route("/runs/{id}/events", get(live::events))
        .route("/compare", get(compare::page))
        .route("/trends", get(trends::page))
        .route("/fleets", get(fleets::page))
        .route("/fleets/{id}", get(fleets::one))
        .route("/machines", get(machines::page))
        .route("/machine", get(machines::one))
        .route("/plans", get(plans::page))
        .route("/plans/begin", post(plans::begin_run))
        .route("/plans/cancel", post(plans::cancel))
        .route("/login", get(login::page).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/metrics", get(metrics::get))
        .route("/healthz", get(async || "ok\n"))
        .route("/static/{name}", get(assets::get))
}

async fn home(State(app): State<Shared>) -> Redirect {
    Redirect::to(&app.link("/runs"))
}
