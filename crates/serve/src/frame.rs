//! The header and navigation that surround every page.

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use iotax_model::visible;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::app::App;
use crate::assets;

/// The entries of the navigation bar, each with its path and name.
const PAGES: [(&str, &str); 6] = [
    ("/runs", "Runs"),
    ("/compare", "Compare"),
    ("/trends", "Trends"),
    ("/fleets", "Fleets"),
    ("/machines", "Machines"),
    ("/plans", "Plans"),
];

/// Mark of a response whose page has charts, so that inline styles are permitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HasCharts;

/// Mark of an error response that already has an HTML page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnErrorPage;

/// A page of the site.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) title: String,
    /// Path of the navigation entry to highlight; empty for none.
    pub(crate) nav_path: &'static str,
    /// The content: a `main` element with the id `main`, and possibly elements next to it.
    pub(crate) body: Content,
    /// True if the page contains charts, whose inline styles must be permitted.
    pub(crate) charts: bool,
    /// Seconds after which a browser without scripts reloads the page; `None` for never.
    pub(crate) again: Option<u32>,
}

/// Markup whose default is empty.
#[derive(Debug)]
pub(crate) struct Content(pub(crate) Markup);

impl Default for Content {
    fn default() -> Self {
        Self(html! {})
    }
}

impl From<Markup> for Content {
    fn from(markup: Markup) -> Self {
        Self(markup)
    }
}

impl Page {
    pub(crate) fn answer(self, app: &App) -> Response {
        let text = render(app, &self);
        let mut answer = Html(text).into_response();
        if self.charts {
            answer.extensions_mut().insert(HasCharts);
        }
        answer
    }
}

/// Creates the error page for a failed request.
pub(crate) fn problem(app: &App, status: StatusCode, detail: &str) -> String {
    let reason = status.canonical_reason().unwrap_or("Error");
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { (reason) }
            p { (detail) }
            p { a href=(app.link("/runs")) { "All runs" } }
        }
    };
    render(app, &Page { title: reason.to_owned(), body: body.into(), ..Page::default() })
}

fn render(app: &App, page: &Page) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                link rel="icon" href="data:,";
                title { (page.title) " - iotax" }
                link rel="stylesheet" href=(app.link(&assets::path("site.css")));
                @if let Some(seconds) = page.again {
                    noscript { meta http-equiv="refresh" content=(seconds); }
                }
            }
            body {
                a.skip href="#main" { "To the content" }
                header.site {
                    a.home href=(app.link("/runs")) { "iotax" }
                    nav aria-label="Site" {
                        @for (path, name) in PAGES {
                            a href=(app.link(path)) aria-current=[(path == page.nav_path).then_some("page")] { (name) }
                        }
                    }
                    @if !app.secrets.are_open() && !page.nav_path.is_empty() {
                        form method="post" action=(app.link("/logout")) {
                            (form_token(app))
                            button.plain { "Log out" }
                        }
                    }
                }
                (page.body.0)
                @if page.charts {
                    @for name in ["plotly.js", "draw.js", "report.js"] {
                        script src=(app.link(&assets::path(name))) {}
                    }
                }
                script src=(app.link(&assets::path("site.js"))) {}
            }
        }
    };
    shown(&page)
}

/// Renders markup, and makes invisible characters visible. These can only come from names and texts that users wrote.
pub(crate) fn shown(markup: &Markup) -> String {
    visible::text(&markup.0).into_owned()
}

/// Creates the hidden field with a form token, which every form needs.
pub(crate) fn form_token(app: &App) -> Markup {
    html! { input type="hidden" name="form_token" value=(app.secrets.form_token()); }
}

/// Creates the content of a `textarea`. Invisible characters become numeric references, so that editing does not lose them.
pub(crate) fn editable(text: &str) -> Markup {
    use std::fmt::Write as _;

    let mut out = String::from("\n");
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            c if visible::is_hidden(c) && c != '\n' => {
                let _ = write!(out, "&#x{:x};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    PreEscaped(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_text_keeps_its_hidden_characters() {
        let text = shown(&editable("</textarea>\u{2764}\u{fe0f}\n&"));
        assert_eq!(text, "\n&lt;/textarea>\u{2764}&#xfe0f;\n&amp;");
    }
}
