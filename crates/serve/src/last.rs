//! Serves a text that changes, such as metrics, to Prometheus. Connections, request bodies and response times
//! are limited as for the site's pages; there is no login and no limit on the request rate.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::guard::{answered, check_host, whole};
use crate::listen;
use crate::problem::Problem;

/// Content type of Prometheus's text format.
const KIND: &str = "text/plain; version=0.0.4";

/// Server that answers each GET of / and of /metrics with the latest text, until the process ends.
#[derive(Debug)]
pub struct LastMetrics {
    address: SocketAddr,
    last: Arc<Mutex<String>>,
}

impl LastMetrics {
    /// Starts to listen on an address; port 0 picks a free port.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn serve(address: SocketAddr) -> io::Result<Self> {
        let last = Arc::<Mutex<String>>::default();
        let router = Router::new()
            .route("/", get(show))
            .route("/metrics", get(show))
            .fallback((StatusCode::NOT_FOUND, "GET /metrics\n"))
            .with_state(Arc::clone(&last))
            .layer(middleware::from_fn_with_state(address.ip(), guard));
        Ok(Self { address: listen::in_a_thread(address, router)?, last })
    }

    /// Returns the address that the server listens on; the port is the actual one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the text that is served.
    pub fn show(&self, text: String) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

async fn show(State(last): State<Arc<Mutex<String>>>) -> Response {
    let text = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ([(header::CONTENT_TYPE, KIND)], text).into_response()
}

async fn guard(State(listen): State<IpAddr>, request: Request, next: Next) -> Response {
    let admitted = check_host(listen, &[], request.uri(), request.headers());
    let request = match admitted {
        Ok(()) => whole(request).await,
        Err(problem) => Err(problem),
    };
    match request {
        Ok(request) => answered(request, next).await,
        Err(Problem { status, detail, .. }) => (status, detail + "\n").into_response(),
    }
}
