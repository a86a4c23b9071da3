//! Error responses: an HTML page for browsers, `application/problem+json` (RFC 9457) for API clients.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use iotax_store::StoreError;

/// An error response. The guard adds the body: JSON for the API and `/metrics`, none for `/healthz`, HTML for other
/// paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// A sentence that describes the failure, quotes the input, and names the accepted form.
    pub(crate) detail: String,
    of_the_store: bool,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), of_the_store: false }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    pub(crate) fn internal(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// Returns true if the store failed, false if the request was invalid or the server itself
    /// failed.
    pub(crate) fn is_of_the_store(&self) -> bool {
        self.of_the_store
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let status = match &error {
            StoreError::UnknownRun { .. } => StatusCode::NOT_FOUND,
            StoreError::Value { .. } => StatusCode::BAD_REQUEST,
            StoreError::Claimed { .. } => StatusCode::CONFLICT,
            StoreError::Damaged { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self { status, detail: error.to_string(), of_the_store: status.is_server_error() }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
