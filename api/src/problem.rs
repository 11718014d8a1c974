//! Refusals: a stable code for programs, a sentence for people, one body shape.
//!
//! Owns the codes and their statuses. A refusal travels through axum as an
//! extension of its response, and [`render`] writes the body where the request
//! id is known. Details name the field and what to do; they never repeat
//! payloads, results or credentials.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fencepost_core::error_text::ErrorText;
use fencepost_core::id::JobId;
use fencepost_store::{ErrorClass, StoreError};
use serde::Serialize;

macro_rules! codes {
    ($($variant:ident = $status:literal $word:literal $title:literal,)*) => {
        /// What a program decides by.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $($variant,)*
        }

        impl Code {
            const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(crate) fn status(self) -> StatusCode {
                let number: u16 = match self { $(Self::$variant => $status,)* };
                StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }

            fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }
        }
    };
}

codes! {
    InvalidInput = 400 "invalid_input" "The request is not of the form that is asked for",
    Unauthenticated = 401 "unauthenticated" "A valid API key is needed",
    Forbidden = 403 "forbidden" "The API key does not allow this",
    NotFound = 404 "not_found" "There is nothing of this name for you",
    MethodNotAllowed = 405 "method_not_allowed" "This path does not know the method",
    BodyTimeout = 408 "body_timeout" "The request's body did not arrive in time",
    KeyConflict = 409 "key_conflict" "The operation key belongs to another submission",
    StateConflict = 409 "state_conflict" "The job is in a state that does not allow this",
    Gone = 410 "gone" "The job has ended and was removed after its retention",
    PayloadTooLarge = 413 "payload_too_large" "The request is larger than what is accepted",
    UnsupportedMediaType = 415 "unsupported_media_type" "The body is of a kind that is not read here",
    Internal = 500 "internal" "Something is broken on this side",
    Unavailable = 503 "unavailable" "The service cannot do this right now",
}

/// Every `code` a refusal may carry, with its status: for the reference and its test.
pub fn documented_codes() -> impl Iterator<Item = (&'static str, u16)> {
    Code::ALL
        .iter()
        .map(|code| (code.word(), code.status().as_u16()))
}

/// A refusal. Its text is public.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub(crate) struct ApiError {
    code: Code,
    detail: Cow<'static, str>,
    job: Option<JobId>,
    retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            job: None,
            retry_after: None,
        }
    }

    pub(crate) fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidInput, detail)
    }

    pub(crate) fn too_large(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::PayloadTooLarge, detail)
    }

    pub(crate) fn internal(detail: &'static str) -> Self {
        Self::new(Code::Internal, detail)
    }

    /// One answer for every fault of a credential, so that none says which it was.
    pub(crate) fn unauthenticated() -> Self {
        Self::new(
            Code::Unauthenticated,
            "send one header `Authorization: Bearer …` with a valid API key",
        )
    }

    /// One answer for what is not there and what is another's.
    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "no such job or path")
    }

    /// The key's job has been pruned.
    pub(crate) fn gone(job: JobId) -> Self {
        Self {
            job: Some(job),
            ..Self::new(
                Code::Gone,
                "the operation key was used for a job that has ended and been removed",
            )
        }
    }

    /// The service is away for now; `random` spreads those who come back.
    pub(crate) fn unavailable(detail: &'static str, random: u64) -> Self {
        Self {
            retry_after: Some(RETRY_AFTER_SECONDS_MIN + random % RETRY_AFTER_SECONDS_SPREAD),
            ..Self::new(Code::Unavailable, detail)
        }
    }

    /// What a failed store means for a client. The private half goes to the log,
    /// joined to the answer by the request id of the present span.
    pub(crate) fn of_store(error: &StoreError, random: u64) -> Self {
        let detail = match error {
            StoreError::Busy { .. } => {
                "the database was busy for too long; nothing was written, repeat the request"
            }
            StoreError::Overloaded => {
                "too many writes are waiting; nothing was written, repeat the request more slowly"
            }
            StoreError::OutcomeUnknown => OUTCOME_UNKNOWN,
            StoreError::Closed => "the service is ending; repeat the request",
            StoreError::Database { .. }
            | StoreError::Newer { .. }
            | StoreError::Foreign { .. }
            | StoreError::NetworkFilesystem { .. }
            | StoreError::File { .. }
            | StoreError::Corrupt { .. } => match error.class() {
                ErrorClass::Transient => "the database does not answer; repeat the request",
                ErrorClass::Conflict | ErrorClass::Permanent | ErrorClass::Corrupt => {
                    tracing::error!(%error, "the store failed");
                    return Self::internal(
                        "the database failed; the log has more under the request id",
                    );
                }
            },
        };
        tracing::warn!(%error, "the store is away");
        Self::unavailable(detail, random)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.code.status()
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.retry_after
    }

    /// The refusal as JSON, for one request.
    pub(crate) fn body<'a>(&'a self, request_id: &'a str) -> Problem<'a> {
        Problem {
            kind: format!("urn:fencepost:problem:{}", self.code.word()),
            title: self.code.title(),
            status: self.code.status().as_u16(),
            code: self.code.word(),
            detail: &self.detail,
            job: self.job,
            request_id,
        }
    }
}

/// The shortest time to stay away: less than it takes to notice that the database is back.
const RETRY_AFTER_SECONDS_MIN: u64 = 1;

/// How far those who come back are spread.
const RETRY_AFTER_SECONDS_SPREAD: u64 = 4;

/// What is said when a write was sent and not answered. Never that it did not happen.
pub(crate) const OUTCOME_UNKNOWN: &str = "the database did not answer in time; the request may or may not have been carried out: \
     repeat it, a submission with the same operation key, to find out";

/// RFC 9457, with a stable `code`.
#[derive(Debug, Serialize)]
pub(crate) struct Problem<'a> {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    code: &'static str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<JobId>,
    request_id: &'a str,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.code.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the body of a refusal, if the response is one.
pub(crate) fn render(response: &mut Response, request_id: &str) {
    let Some(error) = response.extensions_mut().remove::<ApiError>() else {
        return;
    };
    // Cannot fail: texts and numbers only.
    let body = serde_json::to_vec(&error.body(request_id)).unwrap_or_default();
    *response.body_mut() = Body::from(body);
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if let Some(seconds) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    match error.code {
        Code::Unauthenticated => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // What is left of the body may never come.
        Code::BodyTimeout | Code::PayloadTooLarge => {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        Code::InvalidInput
        | Code::Forbidden
        | Code::NotFound
        | Code::MethodNotAllowed
        | Code::KeyConflict
        | Code::StateConflict
        | Code::Gone
        | Code::UnsupportedMediaType
        | Code::Internal
        | Code::Unavailable => {}
    }
}

/// A name that a client sent, fit to be repeated in a detail: cut and without control characters.
pub(crate) fn shown(name: &str) -> String {
    const SHOWN_CHARS_MAX: usize = 60;
    let cut: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    let mark = if cut.len() < name.len() { "…" } else { "" };
    format!("{}{mark}", ErrorText::new(&cut))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_a_write_that_was_not_answered_is_never_denied() {
        let unknown = ApiError::of_store(&StoreError::OutcomeUnknown, 0);
        assert_eq!(unknown.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(unknown.detail.contains("same operation key"));
        assert!(!unknown.detail.contains("nothing was written"));
    }

    #[test]
    fn those_who_come_back_are_spread() {
        let seconds: std::collections::BTreeSet<_> = (0..100)
            .filter_map(|random| ApiError::unavailable("away", random).retry_after())
            .collect();
        assert_eq!(seconds.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn what_is_broken_is_not_called_busy() {
        let corrupt = StoreError::Corrupt {
            what: "column `x`".into(),
        };
        let error = ApiError::of_store(&corrupt, 0);
        assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!error.detail.contains("column"));
    }

    #[test]
    fn a_name_is_shown_cut_and_clean() {
        assert_eq!(shown("a\0b"), "a\u{fffd}b");
        assert!(shown(&"x".repeat(70_000)).len() < 100);
    }
}
