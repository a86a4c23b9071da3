//! The page of a run in progress, and its updates.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use iotax_model::RunState;
use iotax_model::units::human;
use iotax_report::{document, html as report};
use iotax_store::Store;
use maud::{Markup, html};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::{App, Shared};
use crate::frame::shown;
use crate::judged::{Judged, summary};
use crate::notes::unknown;
use crate::problem::Problem;
use crate::query::RunId;
use crate::runs::state_mark;

/// Interval at which the state of a run is read for its followers.
const EVERY: Duration = Duration::from_secs(1);

/// Creates the `main` element for a run in progress.
pub(crate) fn main(app: &App, store: &Store, judged: &Judged) -> Markup {
    let run = &judged.run;
    html! {
        main id="main" tabindex="-1" {
            h1 { (run.plan.name) small { "run " (run.id) } }
            div data-events=(app.link(&format!("/runs/{}/events", run.id))) {
                (state(store.live(run.id).ok().flatten().as_ref(), judged))
            }
            noscript { p.note { "This page asks again every 5 seconds." } }
        }
    }
}

/// Creates the part of the page that is updated: the progress that the run's process last published, and the results so far.
fn state(live: Option<&Value>, judged: &Judged) -> Markup {
    let run = &judged.run;
    html! {
        p { (state_mark(run.state))
            @if let Some(phase) = text(live, "phase") { ", " (phase) } }
        @if let Some(live) = live { (progress(live)) }
        @if !run.measurements.is_empty() {
            h2 { "So far" small { (run.measurements.len()) " measurements" } }
            (report::set(&document::so_far(run, &judged.judgement)))
        }
    }
}

fn progress(live: &Value) -> Markup {
    let whole = |key: &str| live[key].as_u64();
    let number = |key: &str| live[key].as_f64();
    html! {
        @if let (Some(cell), Some(cells)) = (whole("cell"), whole("cells")) {
            progress aria-label="Cells" value=(cell.saturating_sub(1)) max=(cells) {}
        }
        div.now {
            @if let (Some(round), Some(rounds)) = (whole("round"), whole("rounds")) {
                div { b { (round) "/" (rounds) } span { "round" } }
            }
            @if let (Some(cell), Some(cells)) = (whole("cell"), whole("cells")) {
                div { b { (cell) "/" (cells) } span { "cell" } }
            }
            @if let Some(left) = number("eta_s") { div { b { (human::duration(left)) } span { "left" } } }
            @if let Some(open) = whole("open") { div { b { (open) } span { "comparisons open" } } }
            @if let Some(iops) = number("iops") { div { b { (human::count(iops)) } span { "IOPS now" } } }
            @if let Some(latency) = number("latency_mean_ns") { div { b { (human::time(latency)) } span { "mean latency now" } } }
            @if let (Some(target), Some(workload)) = (text(Some(live), "target"), text(Some(live), "workload")) {
                div { b { (target) } span { (workload) } }
            }
        }
    }
}

fn text<'a>(live: Option<&'a Value>, key: &str) -> Option<&'a str> {
    live?[key].as_str()
}

/// Returns the state of a run as a JSON document.
pub(crate) fn document(store: &Store, id: i64) -> Result<Value, Problem> {
    let summary = summary(store, id)?.ok_or_else(|| unknown(store, id))?;
    let mut document = json!({
        "run": id,
        "state": summary.state.word(),
        "measured": summary.measured,
        "planned": summary.planned,
    });
    if let Some(now) = store.live(id)? {
        document["now"] = now;
    }
    Ok(document)
}

/// A client that receives updates on one run.
struct Follower {
    app: Shared,
    id: i64,
    /// HTML of the last update; an identical one is not sent again.
    sent: String,
    is_first: bool,
    has_ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// Sends the state of a run as server-sent events: `state` when it changes, and `end` when the run is over.
pub(crate) async fn events(State(app): State<Shared>, RunId(id): RunId) -> Result<Response, Problem> {
    let permit = app.followers.clone().try_acquire_owned();
    let permit = permit
        .map_err(|_| Problem::busy("too many followers of runs; the page shows the state without them"))?;
    // Fails if the run does not exist.
    app.pool.read(move |store| summary(store, id)?.ok_or_else(|| unknown(store, id)).map(|_| ())).await?;
    let follower =
        Follower { app, id, sent: String::new(), is_first: true, has_ended: false, _permit: permit };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response())
}

impl Follower {
    /// Waits for the next event to send; `None` when the run is over or the server stops.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.has_ended || self.app.followers.is_closed() {
                return None;
            }
            if !std::mem::take(&mut self.is_first) {
                tokio::time::sleep(EVERY).await;
            }
            let (app, id) = (self.app.clone(), self.id);
            let loaded = self.app.pool.read(move |store| {
                let judged = app.cache.get(store, id)?;
                let live = store.live(id)?;
                Ok((judged.run.state, shown(&state(live.as_ref(), &judged)), live))
            });
            // A run that cannot be read now may be readable later.
            let Ok((run_state, html, live)) = loaded.await else { continue };
            if run_state != RunState::Running {
                self.has_ended = true;
                return Some(Event::default().event("end").data(run_state.word()));
            }
            if html != self.sent {
                let state = json!({ "state": run_state.word(), "now": live, "html": html });
                self.sent = html;
                return Some(Event::default().event("state").data(state.to_string()));
            }
        }
    }
}
