//! Jobs and events as JSON. Results digit for digit; payloads never.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use fencepost_core::event::EventRecord;
use fencepost_core::id::{Epoch, JobId};
use fencepost_core::lifecycle::State;
use fencepost_core::time::Timestamp;
use fencepost_store::{ErrorView, JobView};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::problem::ApiError;

/// A job as it is answered.
#[derive(Debug, Serialize)]
pub(crate) struct Job<'a> {
    id: JobId,
    kind: &'a str,
    queue: &'a str,
    priority: u8,
    state: State,
    attempts: u32,
    max_attempts: u32,
    epoch: Epoch,
    created_at: Timestamp,
    run_at: Timestamp,
    deadline_at: Timestamp,
    finished_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancel_requested_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<JobError<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatch: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct JobError<'a> {
    code: &'a str,
    message: &'a str,
}

impl<'a> Job<'a> {
    /// A job with its result.
    pub(crate) fn whole(view: &'a JobView) -> Result<Self, ApiError> {
        let result = view.result.as_deref().map(serde_json::from_str);
        let result = result.transpose().map_err(|_| {
            tracing::error!(job = %view.id, "a stored result is not JSON");
            ApiError::internal("the stored result is damaged")
        })?;
        Ok(Self {
            result,
            ..Self::listed(view)
        })
    }

    /// A job of a list: its result is read from the job itself.
    pub(crate) fn listed(view: &'a JobView) -> Self {
        let error = view
            .error
            .as_ref()
            .map(|ErrorView { code, message }| JobError {
                code: code.as_str(),
                message,
            });
        Self {
            id: view.id,
            kind: view.kind.as_str(),
            queue: view.queue.as_str(),
            priority: view.priority,
            state: view.state,
            attempts: view.attempts,
            max_attempts: view.max_attempts,
            epoch: view.epoch,
            created_at: view.created_at,
            run_at: view.run_at,
            deadline_at: view.deadline_at,
            finished_at: view.finished_at,
            cancel_requested_at: view.cancel_requested_at,
            error,
            result: None,
            dispatch: view.parked.then_some("parked"),
        }
    }
}

/// An event of a job's history.
#[derive(Debug, Serialize)]
pub(crate) struct Event<'a> {
    at: Timestamp,
    #[serde(rename = "type")]
    kind: &'static str,
    epoch: Epoch,
    actor: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    count: u32,
    last_at: Timestamp,
}

impl<'a> From<&'a EventRecord> for Event<'a> {
    fn from(event: &'a EventRecord) -> Self {
        Self {
            at: event.at,
            kind: event.kind.as_str(),
            epoch: event.epoch,
            actor: &event.actor,
            code: event.code.as_deref(),
            detail: event.detail.as_deref(),
            count: event.count,
            last_at: event.last_at,
        }
    }
}

/// A page of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
}

/// Where a job is found.
pub(crate) fn location(job: JobId) -> String {
    format!("/jobs/{job}")
}

/// An answer with a JSON body.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Result<Response, ApiError> {
    let text = serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "an answer cannot be written as JSON");
        ApiError::internal("the answer could not be written")
    })?;
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    Ok(response)
}
