//! The pages that compare two runs, or show several runs side by side.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use iotax_analysis::Metric;
use iotax_analysis::compare::{Account, Compared, History, Question, Side, Which, compare, history};
use iotax_model::plan::Margin;
use iotax_report::{document, html as report, json};
use iotax_store::Store;
use maud::{Markup, html};
use serde_json::Value;

use crate::app::{App, Shared};
use crate::frame::{Content, Page};
use crate::judged::Judged;
use crate::problem::Problem;
use crate::query::{Pairs, encoded};

/// Maximum number of runs shown side by side. It is limited because every run is compared with every other.
pub(crate) const MOST: usize = 20;

/// A run to compare, or one target of a run: `RUN` or `RUN:TARGET` in the query.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    run: i64,
    target: Option<String>,
}

impl Named {
    fn read(text: &str) -> Result<Self, Problem> {
        let (run, target) = match text.trim().split_once(':') {
            Some((run, target)) => (run, Some(target.to_owned()).filter(|target| !target.is_empty())),
            None => (text.trim(), None),
        };
        let run = run.parse().map_err(|_| {
            Problem::bad_request(format!(
                "{text:?} is no run; accepted: RUN or RUN:TARGET, such as 12 or 12:vm-raw"
            ))
        })?;
        Ok(Self { run, target })
    }
}

/// The runs to compare, the baseline and the margin.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    sides: Vec<Named>,
    baseline: Which,
    margin: Option<f64>,
}

impl Asked {
    /// Parses the query: `runs=1,2` or `run=1&run=2`, and optionally `baseline` and `margin`.
    pub(crate) fn read(pairs: &Pairs) -> Result<Self, Problem> {
        let listed = pairs.all("runs").flat_map(|list| list.split(',')).filter(|one| !one.trim().is_empty());
        let sides = listed.chain(pairs.all("run")).map(Named::read).collect::<Result<Vec<_>, _>>()?;
        if sides.len() > MOST {
            return Err(Problem::bad_request(format!("{} runs; accepted: 2 to {MOST}", sides.len())));
        }
        let baseline = match pairs.get("baseline") {
            None | Some("A" | "a") => Which::A,
            Some("B" | "b") => Which::B,
            Some(other) => return Err(Problem::bad_request(format!("baseline={other:?}; accepted: A or B"))),
        };
        let margin = pairs.get("margin").map(str::parse::<Margin>).transpose();
        let margin = margin.map_err(|error| Problem::bad_request(error.to_string()))?.map(Margin::share);
        Ok(Self { sides, baseline, margin })
    }

    fn judged(&self, app: &App, store: &Store) -> Result<Vec<Arc<Judged>>, Problem> {
        self.sides.iter().map(|side| app.cache.get(store, side.run)).collect()
    }
}

/// Returns the document that `iotax compare --json` prints for the two requested runs.
pub(crate) fn comparison(app: &App, store: &Store, asked: &Asked) -> Result<Value, Problem> {
    if asked.sides.len() != 2 {
        return Err(Problem::bad_request(format!(
            "{} runs; accepted: two, runs=RUN[:TARGET],RUN[:TARGET]",
            asked.sides.len()
        )));
    }
    let judged = asked.judged(app, store)?;
    let (a, b, compared) = two(asked, &judged)?;
    Ok(json::comparison::document(&a, &b, &compared))
}

/// Returns the document that `iotax report --json` prints for the requested runs.
pub(crate) fn history_document(app: &App, store: &Store, asked: &Asked) -> Result<Value, Problem> {
    let (accounts, history) = several(asked, &asked.judged(app, store)?)?;
    Ok(json::history::document(&accounts, &history))
}

fn two<'a>(asked: &'a Asked, judged: &'a [Arc<Judged>]) -> Result<(Side<'a>, Side<'a>, Compared), Problem> {
    let side =
        |index: usize| Side { account: &judged[index].account, target: asked.sides[index].target.as_deref() };
    let question = Question {
        baseline: asked.baseline,
        metrics: Metric::compared().collect(),
        margin: asked.margin.unwrap_or_else(|| Margin::default().share()),
        gates: vec![],
    };
    let (a, b) = (side(0), side(1));
    let compared = compare(&a, &b, &question).map_err(|error| Problem::bad_request(error.to_string()))?;
    Ok((a, b, compared))
}

fn several(asked: &Asked, judged: &[Arc<Judged>]) -> Result<(Vec<Account>, History), Problem> {
    if asked.sides.len() < 2 {
        return Err(Problem::bad_request("a history has two runs at least: runs=RUN,RUN,..."));
    }
    if let Some(side) = asked.sides.iter().find(|side| side.target.is_some()) {
        return Err(Problem::bad_request(format!(
            "run {} is named with a target; a history has whole runs",
            side.run
        )));
    }
    let twice = asked.sides.iter().enumerate().find(|(index, side)| asked.sides[..*index].contains(side));
    if let Some((_, side)) = twice {
        return Err(Problem::bad_request(format!(
            "run {} is named twice; a history has each run once",
            side.run
        )));
    }
    let accounts: Vec<Account> = judged.iter().map(|judged| judged.account.clone()).collect();
    // Plans may have different margins; the widest is the most conservative.
    let widest = judged.iter().map(|judged| judged.run.plan.margin.share()).fold(0.0, f64::max);
    let history = history(&accounts, asked.margin.unwrap_or(widest));
    Ok((accounts, history))
}

pub(crate) async fn page(State(app): State<Shared>, pairs: Pairs) -> Result<Response, Problem> {
    let asked = Asked::read(&pairs)?;
    // Redirects to a short URL for bookmarks, which names all runs in one parameter.
    if pairs.get("run").is_some() {
        let runs: Vec<String> = asked
            .sides
            .iter()
            .map(|side| match &side.target {
                Some(target) => format!("{}:{}", side.run, encoded(target)),
                None => side.run.to_string(),
            })
            .collect();
        let given = |name| pairs.get(name).map(|value| format!("&{name}={}", encoded(value)));
        let rest: String = ["baseline", "margin"].into_iter().filter_map(given).collect();
        let short = format!("/compare?runs={}{rest}", runs.join(","));
        return Ok(Redirect::to(&app.link(&short)).into_response());
    }
    let handle = app.clone();
    let body = app.pool.read(move |store| body(&handle, store, &asked, &pairs)).await?;
    let page = Page { title: "Compare".into(), nav_path: "/compare", body, charts: true, again: None };
    Ok(page.answer(&app))
}

fn body(app: &App, store: &Store, asked: &Asked, pairs: &Pairs) -> Result<Content, Problem> {
    let content = if asked.sides.len() < 2 {
        html! { p { "Name two runs or more, such as " code { "12,15" } ", or two targets of one: "
        code { "12:vm-raw,12:vm-qcow2" } ". " a href=(app.link("/runs")) { "The list of runs" } " has boxes to choose them." } }
    } else {
        let judged = asked.judged(app, store)?;
        if asked.sides.len() == 2 { pair(asked, &judged)? } else { history_of(asked, &judged)? }
    };
    Ok(html! {
        main id="main" tabindex="-1" {
            h1 { "Compare" }
            form.bar action=(app.link("/compare")) {
                label { "Runs" input name="runs" value=[pairs.get("runs")] maxlength="500" placeholder="12,15"; }
                label { "Same within" input name="margin" value=[pairs.get("margin")] size="6" maxlength="10" placeholder="2%"; }
                label { "Baseline"
                    select name="baseline" {
                        option { "A" }
                        option selected[asked.baseline == Which::B] { "B" }
                    }
                }
                button { "Compare" }
            }
            (content)
        }
    }
    .into())
}

fn pair(asked: &Asked, judged: &[Arc<Judged>]) -> Result<Markup, Problem> {
    let (a, b, compared) = two(asked, judged)?;
    let is_one = judged[0].run.id == judged[1].run.id;
    let shown = if is_one { &judged[..1] } else { judged };
    Ok(html! {
        (report::set(&document::compared(&a, &b, &compared, &document::SHOWN)))
        @for judged in shown {
            @let layers = report::layers(&judged.run, &judged.judgement);
            @if !layers.0.is_empty() {
                details { summary { "Layers of run " (judged.run.id) } (layers) }
            }
        }
    })
}

fn history_of(asked: &Asked, judged: &[Arc<Judged>]) -> Result<Markup, Problem> {
    let (accounts, history) = several(asked, judged)?;
    Ok(html! {
        div.pair { (report::history(&accounts, &history, Metric::LATENCY_MEAN)) }
        (report::set(&document::history(&accounts, &history)))
    })
}
