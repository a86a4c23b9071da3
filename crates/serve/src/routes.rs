//! Every address of the server.

use std::any::Any;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Form, State};
use axum::http::header;
use axum::middleware;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use maud::html;
use serde::Deserialize;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;

use crate::app::Shared;
use crate::auth::COOKIE;
use crate::frame::Page;
use crate::guard::guard;
use crate::problem::Problem;
use crate::{api, assets, compare, fleets, live, machines, metrics, notes, plans, run, runs, trends};

/// Longest body of a request.
const LONGEST: usize = 256 << 10;

/// The whole service, in its guard.
pub(crate) fn service(app: &Shared) -> Router {
    let router = pages()
        .nest("/api/v1", api::router())
        .layer(DefaultBodyLimit::max(LONGEST))
        .layer(CompressionLayer::new())
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(app.clone());
    // Around the router and not within: the guard changes the address by which it finds its way.
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
        .route("/login", get(login).post(log_in))
        .route("/logout", post(log_out))
        .route("/metrics", get(metrics::get))
        .route("/healthz", get(async || "ok\n"))
        .route("/static/{name}", get(assets::get))
}

async fn home(State(app): State<Shared>) -> Redirect {
    Redirect::to(&app.link("/runs"))
}

async fn login(State(app): State<Shared>) -> Response {
    if app.secrets.are_open() {
        return Redirect::to(&app.link("/runs")).into_response();
    }
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Log in" }
            form.bar method="post" action=(app.link("/login")) {
                label { "The server's token" input type="password" name="token" autocomplete="current-password" required maxlength="500"; }
                button.main { "Log in" }
            }
        }
    };
    Page { title: "Log in".into(), body: body.into(), ..Page::default() }.answer(&app)
}

#[derive(Deserialize)]
struct LoginForm {
    token: String,
}

async fn log_in(State(app): State<Shared>, Form(form): Form<LoginForm>) -> Result<Response, Problem> {
    if !app.secrets.is_token(form.token.trim()) {
        return Err(Problem::forbidden("this is not the server's token"));
    }
    let cookie = cookie(&app, &app.secrets.session(), "");
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&app.link("/runs"))).into_response())
}

#[derive(Deserialize)]
struct LogoutForm {
    form_token: String,
}

async fn log_out(State(app): State<Shared>, Form(form): Form<LogoutForm>) -> Result<Response, Problem> {
    notes::check_form(&app, &form.form_token)?;
    let cookie = cookie(&app, "", "; Max-Age=0");
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&app.link("/login"))).into_response())
}

fn cookie(app: &Shared, value: &str, more: &str) -> String {
    let path = if app.config.base.is_empty() { "/" } else { &app.config.base };
    let secure = if app.config.tls.is_some() { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}{more}")
}
