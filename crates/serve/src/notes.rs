//! The notes on a run: tags and free text, and the form that changes them.

use std::sync::Arc;

use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use iotax_store::{Notes, Store};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::app::{App, Shared};
use crate::frame::{OwnErrorPage, Page, editable, form_token};
use crate::problem::Problem;
use crate::query::RunId;
use crate::runs::tags;

/// Maximum number of tags of a run.
const TAGS: usize = 32;
/// Maximum length of a tag in bytes.
const TAG_BYTES: usize = 100;
/// Maximum length of the text in bytes.
const TEXT_BYTES: usize = 64 << 10;

/// The notes on a run as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotesDocument {
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    #[serde(default)]
    pub(crate) text: String,
}

impl From<Notes> for NotesDocument {
    fn from(Notes { tags, text }: Notes) -> Self {
        Self { tags, text }
    }
}

impl NotesDocument {
    /// Checks the limits. Returns the notes as the store keeps them: tags sorted and without duplicates.
    fn checked(self) -> Result<Notes, Problem> {
        let mut tags: Vec<String> =
            self.tags.iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
        tags.sort();
        tags.dedup();
        if tags.len() > TAGS {
            return Err(Problem::bad_request(format!("{} tags; accepted: up to {TAGS}", tags.len())));
        }
        let is_unfit =
            |tag: &&String| tag.len() > TAG_BYTES || tag.contains(|c: char| c.is_control() || c == ',');
        if let Some(tag) = tags.iter().find(is_unfit) {
            return Err(Problem::bad_request(format!(
                "the tag {tag:?}; accepted: up to {TAG_BYTES} bytes without commas, line ends or control characters"
            )));
        }
        // Forms submit line ends as CRLF.
        let text = self.text.replace("\r\n", "\n").trim_end().to_owned();
        if text.len() > TEXT_BYTES {
            return Err(Problem::bad_request(format!(
                "a text of {} bytes; accepted: up to {TEXT_BYTES}",
                text.len()
            )));
        }
        if let Some(c) = text.chars().find(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
            return Err(Problem::bad_request(format!(
                "the text has the control character {c:?}; accepted: line ends and tabs"
            )));
        }
        Ok(Notes { tags, text })
    }
}

/// Replaces the notes on a run, even if they have changed in the meantime.
pub(crate) async fn keep(app: &Shared, id: i64, notes: NotesDocument) -> Result<Notes, Problem> {
    let notes = notes.checked()?;
    put(app, id, notes.clone(), None).await?;
    Ok(notes)
}

/// Stores notes and returns `None`. But if `seen` is given and is not the MAC of the stored notes, and the stored notes differ from
/// `notes`, stores nothing and returns the stored notes. Fails on a read-only server and for an unknown run.
async fn put(app: &Shared, id: i64, notes: Notes, seen: Option<String>) -> Result<Option<Notes>, Problem> {
    if app.config.read_only {
        return Err(Problem::forbidden(
            "this server is for reading only; notes are changed where it runs without --read-only",
        ));
    }
    // Checks that the run exists before the store is opened for writing.
    app.pool
        .read(move |store| crate::judged::summary(store, id)?.ok_or_else(|| unknown(store, id)).map(|_| ()))
        .await?;
    let at = Arc::clone(app);
    let put = move |store: &mut Store| {
        let mut others = None;
        store.change_notes(id, |old| {
            let is_unseen = seen.as_ref().is_some_and(|seen| mark(&at, old) != *seen && *old != notes);
            others = is_unseen.then(|| old.clone());
            if !is_unseen {
                old.clone_from(&notes);
            }
        })?;
        Ok(others)
    };
    app.pool.write(put).await
}

/// Computes the MAC of notes. A form returns it to show which notes its user has seen.
fn mark(app: &App, notes: &Notes) -> String {
    app.secrets.mark(&format!("{:?}{}", notes.tags, notes.text))
}

/// Returns the error for a run that is not in the store.
pub(crate) fn unknown(store: &iotax_store::Store, id: i64) -> Problem {
    store.load(id).err().map_or_else(|| Problem::not_found(format!("there is no run {id}")), Problem::from)
}

/// The fields of the form that changes notes.
#[derive(Debug, Deserialize)]
pub(crate) struct NotesForm {
    form_token: String,
    /// MAC of the notes that the form showed.
    seen: String,
    tags: String,
    text: String,
}

pub(crate) async fn save(
    State(app): State<Shared>,
    RunId(id): RunId,
    Form(form): Form<NotesForm>,
) -> Result<Response, Problem> {
    check_form(&app, &form.form_token)?;
    let tags = form.tags.split(',').map(str::to_owned).collect();
    let notes = NotesDocument { tags, text: form.text }.checked()?;
    let Some(others) = put(&app, id, notes.clone(), Some(form.seen)).await? else {
        return Ok(Redirect::to(&app.link(&format!("/runs/{id}#notes"))).into_response());
    };
    Ok(conflict(&app, id, &others, &notes))
}

/// Creates the page after a conflict: it shows the stored and the submitted notes side by side, for the user to merge.
fn conflict(app: &App, id: i64, others: &Notes, notes: &Notes) -> Response {
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "The notes of run " (id) " have changed meanwhile" }
            p { "Nothing has been saved. The current notes:" }
            (spoken(app, others))
            @if others == &Notes::default() { p.note { "None." } }
            h2 { "Yours" }
            (fields(app, id, others, notes))
        }
    };
    let page = Page { title: "Notes".into(), nav_path: "/runs", body: body.into(), ..Page::default() };
    let mut answer = page.answer(app);
    *answer.status_mut() = StatusCode::CONFLICT;
    answer.extensions_mut().insert(OwnErrorPage);
    answer
}

/// Rejects a form that does not have a form token of this server process.
pub(crate) fn check_form(app: &App, token: &str) -> Result<(), Problem> {
    if app.secrets.is_form_token(token) {
        return Ok(());
    }
    Err(Problem::forbidden("the form is from before the server's start; open its page again"))
}

/// Creates the section with a run's notes and the form that changes them.
pub(crate) fn section(app: &App, id: i64, notes: &Notes) -> Markup {
    html! {
        section id="notes" {
            h2 { "Notes" }
            (spoken(app, notes))
            @if app.config.read_only {
                @if notes.tags.is_empty() && notes.text.is_empty() { p.note { "None." } }
            } @else {
                details {
                    summary { "Change" }
                    (fields(app, id, notes, notes))
                }
            }
        }
    }
}

fn spoken(app: &App, notes: &Notes) -> Markup {
    html! {
        @if !notes.tags.is_empty() { p.tags { (tags(app, &notes.tags)) } }
        @if !notes.text.is_empty() { p.note-text { (notes.text) } }
    }
}

/// Creates the form's fields with the content `notes`. The form replaces the stored notes only if they are still `seen`.
fn fields(app: &App, id: i64, seen: &Notes, notes: &Notes) -> Markup {
    html! {
        form method="post" action=(app.link(&format!("/runs/{id}/notes"))) {
            (form_token(app))
            input type="hidden" name="seen" value=(mark(app, seen));
            p { label for="tags" { "Tags, with commas between them" } br;
                input id="tags" name="tags" value=(notes.tags.join(", ")) maxlength="3500"; }
            p { label for="text" { "Text" } br;
                textarea id="text" name="text" maxlength="60000" { (editable(&notes.text)) } }
            p { button.main { "Keep" } }
        }
    }
}
