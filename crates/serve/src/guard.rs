//! The outermost layer of the service: admits or rejects each request, and sets the headers and error pages of responses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::{App, Shared};
use crate::connections::Connection;
use crate::frame::{self, HasCharts, OwnErrorPage};
use crate::login;
use crate::problem::Problem;

/// Maximum time from a received request to the start of its response.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum time for receiving the body of a request.
const BODY: Duration = Duration::from_secs(10);
/// Maximum length of the body of a request, in bytes.
const LONGEST_BODY: usize = 256 << 10;
/// Maximum length in bytes of a request's path and query.
const LONGEST: usize = 8192;
/// Weight of a failed login in the rate limit: it counts as this many requests.
const FAILED_LOGIN: f64 = 20.0;

/// Headers of every response, in addition to the content security policy.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Mark of a request whose client has presented a certificate signed by the configured authority.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HasCertificate;

pub(crate) async fn guard(
    State(app): State<Shared>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let is_tls = app.config.tls.is_some();
    let admitted = admit(&app, peer, &mut request, start);
    let (uri, method) = (request.uri().clone(), request.method().clone());
    let admitted = match admitted {
        Ok(()) => whole(request).await,
        Err(problem) => Err(problem),
    };
    let answer = match admitted {
        Ok(request) => {
            let answer = answered(request, next).await;
            if uri.path() == "/login" && answer.status() == StatusCode::FORBIDDEN {
                app.limiter.charge(peer.ip(), FAILED_LOGIN, Instant::now());
            }
            answer
        }
        Err(problem) => problem.into_response(),
    };
    let mut answer = with_body(&app, &method, &uri, answer);
    secure(&mut answer, is_tls);
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    app.counters.count(answer.status().as_u16(), micros);
    answer
}

/// Receives the whole body of a request. Fails if that takes longer than [`BODY`], or if the body exceeds [`LONGEST_BODY`]. Meanwhile, the
/// connection may be closed to make room for another.
pub(crate) async fn whole(request: Request) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let read = tokio::time::timeout(BODY, axum::body::to_bytes(body, LONGEST_BODY)).await;
    let body = read.map_err(|_| {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body of the request took longer than {} s", BODY.as_secs()),
        )
    })?;
    let body = body.map_err(|_| {
        let accepted = format!("the body of the request: accepted: up to {} KiB", LONGEST_BODY >> 10);
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, accepted)
    })?;
    Ok(Request::from_parts(parts, body.into()))
}

/// Runs the handler of a completely received request. Returns an error response (503) if it takes longer than [`PATIENCE`].
pub(crate) async fn answered(request: Request, next: Next) -> Response {
    let busy = request.extensions().get::<Arc<Connection>>().map(Connection::busy);
    let answer = tokio::time::timeout(PATIENCE, next.run(request)).await;
    drop(busy);
    answer.unwrap_or_else(|_| Problem::busy("the answer took too long").into_response())
}

/// Checks whether a request is admitted, and removes the reverse proxy's prefix from its path.
fn admit(app: &App, peer: SocketAddr, request: &mut Request, now: Instant) -> Result<(), Problem> {
    let uri = request.uri();
    if uri.path_and_query().is_some_and(|all| all.as_str().len() > LONGEST) {
        return Err(Problem::new(
            StatusCode::URI_TOO_LONG,
            format!("the address has more than {LONGEST} bytes"),
        ));
    }
    let without = without_base(&app.config.base, uri);
    let Some(uri) = without else {
        return Err(Problem::not_found(format!("pages of this server are below {}/", app.config.base)));
    };
    *request.uri_mut() = uri;
    let (path, headers) = (request.uri().path(), request.headers());
    check_host(app.config.listen.ip(), &app.config.hosts, request.uri(), headers)?;
    let is_asset = path.starts_with("/static/");
    if !is_asset && !app.limiter.take(peer.ip(), now) {
        return Err(Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!("more than {} requests a second; try again in a few seconds", app.config.rate),
        ));
    }
    let is_free = is_asset || matches!(path, "/login" | "/healthz");
    let has_certificate = request.extensions().get::<Option<HasCertificate>>().is_some_and(Option::is_some);
    if !is_free && !has_certificate && !app.secrets.admit(headers) {
        return Err(Problem::new(StatusCode::UNAUTHORIZED, "the server's token is needed"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        check_origin(headers)?;
    }
    Ok(())
}

fn without_base(base: &str, uri: &Uri) -> Option<Uri> {
    let all = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let rest = all.strip_prefix(base)?;
    let rest = match rest.chars().next() {
        None => "/".to_owned(),
        Some('?') => format!("/{rest}"),
        Some('/') => rest.to_owned(),
        // `/iotaxes` is not below `/iotax`.
        Some(_) => return None,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(rest.parse().ok()?);
    // Only path and query change: the host check still needs the authority, if the client sent one.
    Uri::from_parts(parts).ok()
}

/// Rejects host names that are not this server's if the server listens on loopback. Protects against DNS rebinding, in which an attacker's
/// host name resolves to this server.
pub(crate) fn check_host(
    listen: IpAddr,
    hosts: &[String],
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    // On other interfaces, the site requires a token or a certificate, and the metrics of `LastMetrics` are open to everybody.
    if !listen.is_loopback() {
        return Ok(());
    }
    let named = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let named = uri.host().or(named.map(without_port));
    let is_ours = |name: &str| {
        let name = name.trim_matches(['[', ']']);
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
            || hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
    };
    match named {
        Some(name) if is_ours(name) => Ok(()),
        Some(name) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!("{name:?} is not a name of this server; iotax serve --host {name} makes it one"),
        )),
        None => Err(Problem::bad_request("the request names no host")),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

/// Rejects requests that come from a page of another site, as shown by the Sec-Fetch-Site or the Origin header.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let foreign = || Err(Problem::forbidden("the request comes from a page of another server"));
    if text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return foreign();
    }
    let host = text("host").unwrap_or_default();
    match text("origin") {
        None => Ok(()),
        Some(origin) if origin.split_once("://").is_some_and(|(_, name)| name.eq_ignore_ascii_case(host)) => {
            Ok(())
        }
        // Over HTTP/2 the name is not a header; browsers that speak it send `sec-fetch-site` too.
        Some(_) if host.is_empty() => Ok(()),
        Some(_) => foreign(),
    }
}

/// Adds the body to an error response, unless it has a page already: JSON for the API and `/metrics`, none for `/healthz`, an error page
/// for other paths. A page that needs a login becomes a redirect to the login page.
fn with_body(app: &App, method: &Method, uri: &Uri, mut answer: Response) -> Response {
    let path = uri.path();
    let status = answer.status();
    let has_failed = status.is_client_error() || status.is_server_error();
    if !has_failed || answer.extensions().get::<OwnErrorPage>().is_some() {
        return answer;
    }
    let reason = status.canonical_reason().unwrap_or("error");
    let problem = answer.extensions_mut().remove::<Problem>();
    let detail = problem.map_or_else(|| reason.to_lowercase(), |problem| problem.detail);
    if path == "/healthz" {
        return answer;
    }
    let is_api = path.starts_with("/api/") || path == "/metrics";
    let body = if is_api {
        let problem = json!({ "title": reason, "status": status.as_u16(), "detail": detail });
        Body::from(iotax_model::visible::json(&problem.to_string()).into_owned())
    } else if status == StatusCode::UNAUTHORIZED {
        let target = app.link(&login::address(method, uri));
        return (StatusCode::SEE_OTHER, [(header::LOCATION, target)]).into_response();
    } else {
        Body::from(frame::problem(app, status, &detail))
    };
    let kind = if is_api { "application/problem+json" } else { "text/html; charset=utf-8" };
    let (mut parts, _) = answer.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if is_api && status == StatusCode::UNAUTHORIZED {
        parts.headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"iotax\""));
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        parts.headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    Response::from_parts(parts, body)
}

fn secure(answer: &mut Response, is_tls: bool) {
    let styles = if answer.extensions().get::<HasCharts>().is_some() { " 'unsafe-inline'" } else { "" };
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'{styles}; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(policy) = policy.parse() {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if is_tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HeaderValue::from_static("max-age=31536000"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_is_taken_off_whole_words() {
        let rest = |base: &str, uri: &str| {
            without_base(base, &uri.parse().expect("an address")).map(|uri| uri.to_string())
        };
        assert_eq!(rest("", "/runs?a=b").as_deref(), Some("/runs?a=b"));
        assert_eq!(rest("/iotax", "/iotax/runs?a=b").as_deref(), Some("/runs?a=b"));
        assert_eq!(rest("/iotax", "/iotax").as_deref(), Some("/"));
        assert_eq!(rest("/iotax", "/iotax?a=b").as_deref(), Some("/?a=b"));
        assert_eq!(rest("/iotax", "/iotaxes"), None);
        assert_eq!(rest("/iotax", "/runs"), None);
    }

    #[test]
    fn ports_are_no_part_of_names() {
        for (host, name) in [
            ("localhost:8080", "localhost"),
            ("localhost", "localhost"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("a:b", "a:b"),
        ] {
            assert_eq!(without_port(host), name, "{host}");
        }
    }
}
