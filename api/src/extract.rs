//! The parts of a request, each with its limit, each refused in our own words.
//!
//! axum's own extractors answer refusals in bodies of theirs; these do not.
//! They run in the order of a handler's arguments: who asks, then what for,
//! and the body last, so that a stranger's body is never read.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts as Head;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use fencepost_core::id::{JobId, OperationKey, QueueName};
use fencepost_core::limits::{PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX};
use fencepost_store::Role;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::{Instant, timeout_at};

use crate::keys::Caller;
use crate::problem::{ApiError, Code};
use crate::state::Parts;
use crate::submission::operation_key;

/// A submission: the longest payload, and room for its options and for spaces.
pub(crate) const SUBMISSION_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 16 * 1024;

/// A verdict: the longest result, and room for its words.
const VERDICT_BYTES_MAX: usize = RESULT_BYTES_MAX + 16 * 1024;

/// The body of an action such as cancel: a flag or an instant.
const ACTION_BYTES_MAX: usize = 4 * 1024;

/// A traceparent of version 00 as W3C writes it.
const TRACEPARENT_BYTES: usize = 55;

macro_rules! callers {
    ($($(#[$doc:meta])* $name:ident($($role:ident),*);)*) => {
        $($(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name(pub(crate) Caller);

        impl FromRequestParts<Arc<Parts>> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(head: &mut Head, api: &Arc<Parts>) -> Result<Self, ApiError> {
                let caller = api.identify(&head.headers).await?;
                caller.must_be(&[$(Role::$role),*])?;
                Ok(Self(caller))
            }
        })*
    };
}

callers! {
    /// A caller that may submit jobs and put blobs.
    Submitter(Submit);
    /// A caller that may cancel and retry jobs.
    Actor(Submit, Operator);
    /// A caller that may decide about jobs of its tenant.
    Operator(Operator);
    /// A caller that may act on what belongs to no tenant.
    Admin(Admin);
    /// A caller that may read jobs.
    Reader(Read, Operator);
}

/// The job of the path. What is not a job's id is a job that does not exist.
#[derive(Debug)]
pub(crate) struct JobPath(pub(crate) JobId);

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = ApiError;

    async fn from_request_parts(head: &mut Head, state: &S) -> Result<Self, ApiError> {
        let id = Path::<String>::from_request_parts(head, state).await;
        let id = id.ok().and_then(|Path(id)| id.parse().ok());
        id.map(Self).ok_or_else(ApiError::not_found)
    }
}

/// The queue of the path. What is not a queue's name is a queue that does not exist.
#[derive(Debug)]
pub(crate) struct QueuePath(pub(crate) QueueName);

impl<S: Send + Sync> FromRequestParts<S> for QueuePath {
    type Rejection = ApiError;

    async fn from_request_parts(head: &mut Head, state: &S) -> Result<Self, ApiError> {
        let name = Path::<String>::from_request_parts(head, state).await;
        let name = name.ok().and_then(|Path(name)| QueueName::new(name).ok());
        name.map(Self).ok_or_else(ApiError::not_found)
    }
}

/// The operation key: one header `Idempotency-Key`.
#[derive(Debug)]
pub(crate) struct Key(pub(crate) OperationKey);

impl<S: Sync> FromRequestParts<S> for Key {
    type Rejection = ApiError;

    async fn from_request_parts(head: &mut Head, _state: &S) -> Result<Self, ApiError> {
        const PLACE: &str = "the header `Idempotency-Key`";
        let mut values = head.headers.get_all("idempotency-key").iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(ApiError::invalid(format!(
                "{PLACE} must be there exactly once"
            )));
        };
        // What is not ASCII fails as the empty text does: never cut, never folded.
        operation_key(PLACE, value.to_str().unwrap_or_default()).map(Self)
    }
}

/// The trace context, if the header is of the W3C form; any other is no trace.
#[derive(Debug)]
pub(crate) struct Trace(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for Trace {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(head: &mut Head, _state: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(traceparent(&head.headers)))
    }
}

fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let shape = |(place, byte): (usize, u8)| match place {
        2 | 35 | 52 => byte == b'-',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
    };
    let well_formed = text.len() == TRACEPARENT_BYTES && text.bytes().enumerate().all(shape);
    well_formed.then(|| text.to_owned())
}

/// The JSON text of a submission.
#[derive(Debug)]
pub(crate) struct SubmissionBody(pub(crate) String);

impl FromRequest<Arc<Parts>> for SubmissionBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Parts>) -> Result<Self, ApiError> {
        json_body(request, SUBMISSION_BYTES_MAX, api)
            .await
            .map(Self)
    }
}

/// The JSON text of an action; a request without a body asks for the defaults.
#[derive(Debug)]
pub(crate) struct ActionBody(pub(crate) String);

impl FromRequest<Arc<Parts>> for ActionBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Parts>) -> Result<Self, ApiError> {
        let typed = request.headers().contains_key(header::CONTENT_TYPE);
        let text = if typed {
            json_body(request, ACTION_BYTES_MAX, api).await?
        } else {
            let bytes = whole_body(request, ACTION_BYTES_MAX, api.timers.body).await?;
            if !bytes.is_empty() {
                return Err(not_json());
            }
            String::new()
        };
        let empty = text.trim_ascii().is_empty();
        Ok(Self(if empty { "{}".to_owned() } else { text }))
    }
}

/// The JSON text of a verdict.
#[derive(Debug)]
pub(crate) struct VerdictBody(pub(crate) String);

impl FromRequest<Arc<Parts>> for VerdictBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Arc<Parts>) -> Result<Self, ApiError> {
        json_body(request, VERDICT_BYTES_MAX, api).await.map(Self)
    }
}

/// Reads a JSON body to its end.
pub(crate) async fn json_body(
    request: Request,
    bytes_max: usize,
    api: &Parts,
) -> Result<String, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(not_json());
    }
    let bytes = whole_body(request, bytes_max, api.timers.body).await?;
    String::from_utf8(bytes.into()).map_err(|_| ApiError::invalid("the body is not UTF-8"))
}

fn not_json() -> ApiError {
    ApiError::new(
        Code::UnsupportedMediaType,
        "send the body with `Content-Type: application/json`",
    )
}

async fn whole_body(
    request: Request,
    bytes_max: usize,
    limit: Duration,
) -> Result<Bytes, ApiError> {
    let mut content = std::pin::pin!(timed_body(request, bytes_max, limit)?);
    let mut bytes = BytesMut::new();
    while let Some(chunk) = content.next().await {
        bytes.extend_from_slice(&chunk?);
        if bytes.len() > bytes_max {
            return Err(too_long(bytes_max));
        }
    }
    Ok(bytes.freeze())
}

/// A body as it arrives, refused at once when it says that it is too long, and
/// ended by a refusal when it takes longer than `limit` from the first look.
pub(crate) fn timed_body(
    request: Request,
    bytes_max: usize,
    limit: Duration,
) -> Result<impl Stream<Item = Result<Bytes, ApiError>> + Send, ApiError> {
    if request.headers().contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::new(
            Code::UnsupportedMediaType,
            "send the body as it is, without `Content-Encoding`",
        ));
    }
    let said = request.headers().get(header::CONTENT_LENGTH);
    let said: Option<usize> = said.and_then(|length| length.to_str().ok()?.parse().ok());
    if said.is_some_and(|length| length > bytes_max) {
        return Err(too_long(bytes_max));
    }
    let content = request.into_body().into_data_stream();
    Ok(stream::unfold(
        (content, None::<Instant>),
        move |(mut content, end)| async move {
            let end = end.unwrap_or_else(|| Instant::now() + limit);
            let chunk = match timeout_at(end, content.next()).await {
                Ok(chunk) => chunk?.map_err(|_| ApiError::invalid("the body broke off")),
                Err(_) => Err(ApiError::new(
                    Code::BodyTimeout,
                    "the body did not arrive in time: send it again, a submission with the same operation key",
                )),
            };
            Some((chunk, (content, Some(end))))
        },
    ))
}

pub(crate) fn too_long(bytes_max: usize) -> ApiError {
    ApiError::too_large(format!("the body has at most {bytes_max} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_traceparent_of_the_w3c_form_is_kept() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            traceparent(&headers)
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(read(good), Some(good.to_owned()));
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &good.replace('-', "_"),
            &format!("{good}0"),
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
