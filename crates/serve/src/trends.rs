//! The page with the trend of a plan: the figures of each workload from run to run, with a line for each target.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use iotax_analysis::Metric;
use iotax_analysis::compare::{Account, Track, history};
use iotax_analysis::stats::verdict::Verdict;
use iotax_analysis::trend::PastRun;
use iotax_report::{document, html as report};
use iotax_store::Store;
use maud::{Markup, html};

use crate::app::{App, Shared};
use crate::compare::MOST;
use crate::frame::{Content, Page};
use crate::judged::Judged;
use crate::machines::left_out;
use crate::past::{self, AskedHistory, Chosen, LOOKED_AT, MOST_FOLLOWED};
use crate::problem::Problem;
use crate::query::Pairs;

pub(crate) async fn page(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let asked = AskedHistory::read(&pairs)?;
    let handle = app.clone();
    let body = app.pool.read(move |store| body(&handle, store, &asked, &pairs)).await?;
    let page = Page { title: "Trends".into(), nav_path: "/trends", body, charts: true, again: None };
    Ok(page.answer(&app))
}

fn body(app: &App, store: &Store, asked: &AskedHistory, pairs: &Pairs) -> Result<Content, Problem> {
    let metric = asked.metrics.first().copied().unwrap_or(Metric::LATENCY_MEAN);
    let chosen = past::choose(store, asked)?;
    let (mut past, mut damaged) = past::read(app, store, &chosen.runs)?;
    let mut judged = Vec::new();
    for run in &past[past.len().saturating_sub(MOST)..] {
        // One whose samples are damaged does not hide the others, although its figures can be read.
        match app.cache.get(store, run.id) {
            Ok(run) => judged.push(run),
            Err(_) => damaged.push(run.id),
        }
    }
    past.retain(|run| !damaged.contains(&run.id));
    Ok(html! {
        main id="main" tabindex="-1" {
            h1 { "Trends" @if let Some(plan) = &chosen.plan { small { (plan) } } }
            (choice(app, asked, &chosen, metric, judged.last()))
            (left_out(&damaged))
            @if past.len() < 2 {
                @if let Some(plan) = chosen.plan.as_ref().filter(|plan| chosen.plans.iter().all(|(name, _)| name != *plan)) {
                    p { "No finished run of the newest " (LOOKED_AT) " is of a plan " (format!("{plan:?}")) "." }
                }
                p { "Two finished runs of a plan are needed. The same plan again: " code { "iotax run PLAN" } }
            } @else {
                (extent(app, &chosen, pairs, past.len()))
                (changes(asked, metric, &past))
                @if past.len() > judged.len() {
                    p.note { "Side by side: the newest " (judged.len()) " of these runs. Others: choose them in the "
                        a href=(app.link("/runs")) { "list of runs" } "." }
                }
                (tracks(asked, metric, &judged))
            }
        }
    }
    .into())
}

/// Creates the note with the number of runs shown, and a link to show more.
fn extent(app: &App, chosen: &Chosen, pairs: &Pairs, followed: usize) -> Markup {
    let more = MOST_FOLLOWED.min(followed + chosen.older);
    html! {
        p.note {
            @if chosen.older > 0 {
                "The newest " (followed) " runs; " (chosen.older) " older ones are left out"
                @if more > followed {
                    ": "
                    a href=(app.link(&format!("/trends?{}", pairs.with("last", Some(&more.to_string()))))) {
                        "follow " (more)
                    }
                }
                "."
            } @else { (followed) " runs." }
            @if chosen.elsewhere > 0 { " Runs on other machines, which are no part of this: " (chosen.elsewhere) "." }
        }
    }
}

/// Creates the section with the changes over all shown runs, as `iotax trend` finds them.
fn changes(asked: &AskedHistory, metric: Metric, past: &[PastRun]) -> Markup {
    let found = past::followed(asked, vec![metric], past);
    html! {
        (report::set(&document::trend(past, &found, false)))
        @for (number, trend) in (1..).zip(found.trends.iter().filter(|trend| !trend.changes.is_empty())) {
            (report::trend(past, trend, number))
        }
    }
}

/// Creates the section with the newest runs side by side.
fn tracks(asked: &AskedHistory, metric: Metric, judged: &[Arc<Judged>]) -> Markup {
    let accounts: Vec<Account> = judged.iter().map(|judged| judged.account.clone()).collect();
    let margin = judged.iter().map(|judged| judged.run.plan.margin.share()).fold(0.0, f64::max);
    let mut history = history(&accounts, margin);
    let is_asked = |name: &str, wanted: &Option<String>| wanted.as_ref().is_none_or(|wanted| wanted == name);
    history
        .tracks
        .retain(|track| is_asked(&track.target, &asked.target) && is_asked(&track.workload, &asked.workload));
    let charts = report::history(&accounts, &history, metric);
    let all = cells(&history.tracks).len();
    let changed: Vec<Track> = history.tracks.iter().filter(|track| has_changed(track)).cloned().collect();
    let changed = cells(&changed);
    history.tracks.retain(|track| changed.contains(&cell(track)));
    html! {
        div.pair { (charts) }
        (report::set(&document::history(&accounts, &history)))
        @if all > changed.len() {
            p.note { "Tables of targets and workloads that did not change are left out: " (all - changed.len()) "." }
        }
    }
}

fn cell(track: &Track) -> (String, String) {
    (track.target.clone(), track.workload.clone())
}

fn cells(tracks: &[Track]) -> BTreeSet<(String, String)> {
    tracks.iter().map(cell).collect()
}

/// Returns whether any run is slower or faster than the first run or than the run before it.
fn has_changed(track: &Track) -> bool {
    let ratios = track.points.iter().flat_map(|point| [&point.since_first, &point.since_previous]);
    ratios.flatten().any(|ratio| matches!(ratio.verdict, Verdict::Slower | Verdict::Faster))
}

fn choice(
    app: &App,
    asked: &AskedHistory,
    chosen: &Chosen,
    asked_metric: Metric,
    newest: Option<&Arc<Judged>>,
) -> Markup {
    let newest = newest.map(|judged| &judged.run.plan);
    html! {
        form.bar action=(app.link("/trends")) {
            label { "Plan"
                select name="plan" {
                    @for (name, count) in &chosen.plans {
                        option value=(name) selected[chosen.plan.as_ref() == Some(name)] { (name) " (" (count) ")" }
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
                        option value=(metric.word()) selected[asked_metric == metric] { (metric.name()) }
                    }
                }
            }
            label { "Machine" input name="machine" value=[asked.machine.as_ref()] maxlength="200"; }
            label { "Newest runs" input type="number" name="last" value=(asked.last) min="2" max=(MOST_FOLLOWED); }
            button { "Show" }
        }
    }
}
