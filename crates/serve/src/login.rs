//! The pages to log in with the server's token, and to log out.

use axum::extract::{Form, State};
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use serde::Deserialize;

use crate::app::Shared;
use crate::auth::COOKIE;
use crate::frame::Page;
use crate::notes;
use crate::problem::Problem;
use crate::query::{LONGEST, Pairs, encoded};

/// Returns the path of the login page. For a GET of a page other than `/`, a parameter names the page to return to.
pub(crate) fn address(method: &Method, uri: &Uri) -> String {
    let asked = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    if method == Method::GET && asked != "/" && asked.len() <= LONGEST && is_of_this_site(asked) {
        format!("/login?to={}", encoded(asked))
    } else {
        "/login".into()
    }
}

/// Returns whether browsers treat this text as a path on this site. They do not for `//host`, `/\host`, and texts with characters that
/// browsers drop.
fn is_of_this_site(to: &str) -> bool {
    to.starts_with('/') && !to[1..].starts_with(['/', '\\']) && to.bytes().all(|byte| byte.is_ascii_graphic())
}

pub(crate) async fn page(State(app): State<Shared>, pairs: Pairs) -> Response {
    if app.secrets.are_open() {
        return Redirect::to(&app.link("/runs")).into_response();
    }
    let to = pairs.get("to").unwrap_or_default();
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { "Log in" }
            form.bar method="post" action=(app.link("/login")) {
                input type="hidden" name="to" value=(to);
                label { "The server's token" input type="password" name="token" autocomplete="current-password" required maxlength="500"; }
                button.main { "Log in" }
            }
        }
    };
    Page { title: "Log in".into(), body: body.into(), ..Page::default() }.answer(&app)
}

#[derive(Deserialize)]
pub(crate) struct LoginForm {
    token: String,
    /// The page to open after the login. It comes from the URL, so it must be checked.
    #[serde(default)]
    to: String,
}

pub(crate) async fn log_in(
    State(app): State<Shared>,
    Form(form): Form<LoginForm>,
) -> Result<Response, Problem> {
    if !app.secrets.is_token(form.token.trim()) {
        return Err(Problem::forbidden("this is not the server's token"));
    }
    let cookie = cookie(&app, &app.secrets.session(), "");
    let to = if is_of_this_site(&form.to) { &form.to } else { "/runs" };
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&app.link(to))).into_response())
}

#[derive(Deserialize)]
pub(crate) struct LogoutForm {
    form_token: String,
}

pub(crate) async fn log_out(
    State(app): State<Shared>,
    Form(form): Form<LogoutForm>,
) -> Result<Response, Problem> {
    notes::check_form(&app, &form.form_token)?;
    let cookie = cookie(&app, "", "; Max-Age=0");
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(&app.link("/login"))).into_response())
}

fn cookie(app: &Shared, value: &str, more: &str) -> String {
    let path = if app.config.base.is_empty() { "/" } else { &app.config.base };
    let secure = if app.config.tls.is_some() { "; Secure" } else { "" };
    format!("{COOKIE}={value}; Path={path}; HttpOnly; SameSite=Strict{secure}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_this_site_alone() {
        for to in ["/runs", "/runs/12?a=b&c=d#notes", "/compare?runs=1,2", "/a//b"] {
            assert!(is_of_this_site(to), "{to}");
        }
        for to in [
            "",
            "runs",
            "//evil.example",
            "/\\evil.example",
            "\\/evil",
            "/\t/evil",
            "/ /evil",
            "https://evil.example",
            "/\u{e4}",
        ] {
            assert!(!is_of_this_site(to), "{to:?}");
        }
    }

    #[test]
    fn what_was_asked_for_is_remembered_unless_it_was_sent() {
        let address = |method, uri: &str| address(&method, &uri.parse().expect("an address"));
        assert_eq!(address(Method::GET, "/runs?tag=a%20b"), "/login?to=%2Fruns%3Ftag%3Da%2520b");
        assert_eq!(address(Method::POST, "/runs/1/notes"), "/login");
        assert_eq!(address(Method::GET, "/"), "/login");
        assert_eq!(address(Method::GET, "//evil.example/"), "/login");
    }
}
