//! Around every request: its id, its log line, the body of its refusal.

use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts as Head;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::problem::{self, ApiError};
use crate::state::Parts;

/// The header of the request id, both ways.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A client's own request id: a UUID with some room. What is longer or holds
/// anything but letters, digits, `.`, `_` and `-` is replaced.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// The id of a request: the client's, if it is fit for a log, or a new one.
#[derive(Debug, Clone)]
pub(crate) struct RequestId(pub(crate) Arc<str>);

impl RequestId {
    fn of(headers: &HeaderMap, api: &Parts) -> Self {
        let fit = |text: &&str| {
            let word = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (1..=REQUEST_ID_BYTES_MAX).contains(&text.len()) && text.bytes().all(word)
        };
        let sent = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
        match sent.filter(fit) {
            Some(id) => Self(id.into()),
            None => Self(api.ids.uuid().to_string().into()),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = ApiError;

    async fn from_request_parts(head: &mut Head, _state: &S) -> Result<Self, ApiError> {
        let id = head.extensions.get().cloned();
        id.ok_or_else(|| ApiError::internal("the request has no id"))
    }
}

/// Runs a request.
pub(crate) async fn frame(
    State(api): State<Arc<Parts>>,
    mut request: Request,
    next: Next,
) -> Response {
    let id = RequestId::of(request.headers(), &api);
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or("(none)", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", id = &*id.0, method = %request.method(), route);
    let line = Line {
        method: request.method().clone(),
        route,
        id: id.clone(),
        started: Instant::now(),
        answered: false,
    };
    request.extensions_mut().insert(id.clone());
    let mut response = next.run(request).instrument(span).await;
    problem::render(&mut response, &id.0);
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id.0) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    line.answered(response.status());
    response
}

/// The line that a request leaves in the log: one in any case.
struct Line {
    method: Method,
    route: String,
    id: RequestId,
    started: Instant,
    answered: bool,
}

impl Line {
    fn answered(mut self, status: StatusCode) {
        self.answered = true;
        let status = status.as_u16();
        let (id, method, route) = (&*self.id.0, &self.method, &self.route);
        let took = self.started.elapsed();
        // Probes come every few seconds for ever.
        if matches!(route.as_str(), "/healthz" | "/readyz") {
            tracing::debug!(request_id = id, %method, route, status, ?took, "answered");
        } else {
            tracing::info!(request_id = id, %method, route, status, ?took, "answered");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.answered {
            // The client hung up. What the store has in hand is committed all the same.
            tracing::warn!(
                request_id = &*self.id.0,
                method = %self.method,
                route = self.route,
                after = ?self.started.elapsed(),
                "dropped before its answer"
            );
        }
    }
}
