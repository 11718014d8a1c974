//! `/jobs`: submit, list, show, history.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use fencepost_core::id::{JobId, KindName, QueueName};
use fencepost_core::lifecycle;
use fencepost_store::{JobFilter, JobView, Scope, Submitted};
use tokio::time::Instant;

use crate::cursor;
use crate::extract::{JobPath, Key, Reader, SubmissionBody, Submitter, Trace};
use crate::problem::{ApiError, Code};
use crate::query::Query;
use crate::state::Parts;
use crate::submission::{Reading, deadline_unusable};
use crate::view::{Event, Job, Page, json, location};

/// Says that the answer is that of an earlier submission.
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Accepts a job. The 202 is sent after the commit.
pub(super) async fn submit(
    State(api): State<Arc<Parts>>,
    Submitter(caller): Submitter,
    query: Query,
    Key(key): Key,
    Trace(trace): Trace,
    SubmissionBody(text): SubmissionBody,
) -> Result<Response, ApiError> {
    query.finish()?;
    let reading = Reading {
        catalogue: &api.catalogue,
        tenant: &caller.tenant,
        owner: &caller.owner,
        now: api.store.now(),
        trace: trace.as_deref(),
    };
    let submit = reading.one(&text, key)?;
    let accepted = Accepted::of(api.ask(api.store.submit(submit)).await?)?;
    let mut response = json(StatusCode::ACCEPTED, &Job::whole(&accepted.job)?)?;
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::try_from(location(accepted.job.id)) {
        headers.insert(header::LOCATION, location);
    }
    if accepted.replayed {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

/// A submission that has a job, now or from before.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) job: Box<JobView>,
    pub(super) replayed: bool,
}

impl Accepted {
    /// What the store's answer means for the client.
    pub(super) fn of(submitted: Submitted) -> Result<Self, ApiError> {
        match submitted {
            Submitted::Created(job) => Ok(Self {
                job,
                replayed: false,
            }),
            Submitted::Replayed(job) => Ok(Self {
                job,
                replayed: true,
            }),
            Submitted::KeyConflict => Err(ApiError::new(
                Code::KeyConflict,
                "the operation key was used for a submission with other content: use a new key for new work",
            )),
            Submitted::Gone(job) => Err(ApiError::gone(job)),
            Submitted::BlobMissing(hash) => Err(ApiError::invalid(format!(
                "`payload`: the blob {hash} was never put or has been removed since: put it first"
            ))),
            Submitted::DeadlineUnusable => Err(deadline_unusable()),
        }
    }
}

/// Lists the caller's jobs, newest first, without their results.
pub(super) async fn list(
    State(api): State<Arc<Parts>>,
    Reader(caller): Reader,
    mut query: Query,
) -> Result<Response, ApiError> {
    let state = |text: String| {
        lifecycle::State::parse(&text).ok_or_else(|| {
            let known = lifecycle::State::ALL
                .map(lifecycle::State::as_str)
                .join(", ");
            ApiError::invalid(format!("`state` must be one of {known}"))
        })
    };
    let states = query.all("state").into_iter().map(state);
    let name = "1 to 100 letters, digits, `.`, `_` or `-`";
    let filter = JobFilter {
        states: states.collect::<Result<_, _>>()?,
        kind: query.parsed("kind", |text| KindName::new(text).ok(), name)?,
        queue: query.parsed("queue", |text| QueueName::new(text).ok(), name)?,
    };
    let limit = query.limit()?;
    let after = query.one("cursor")?;
    let after = after.as_deref().map(cursor::read_after_job).transpose()?;
    query.finish()?;
    let scope = caller.scope();
    let page = api
        .ask(api.store.jobs(&scope, &filter, after, limit))
        .await?;
    let items = page.jobs.iter().map(Job::listed).collect();
    let next = page.next.map(cursor::after_job);
    json(StatusCode::OK, &Page { items, next })
}

/// Shows a job; with `?wait=` once it has come to rest, or the time is up.
pub(super) async fn show(
    State(api): State<Arc<Parts>>,
    Reader(caller): Reader,
    JobPath(id): JobPath,
    mut query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let wait = query.parsed(
        "wait",
        |text| text.parse().ok(),
        "a whole number of seconds",
    )?;
    query.finish()?;
    let wait = Duration::from_secs(wait.unwrap_or(0)).min(api.timers.wait_max);
    let scope = caller.scope();
    let job = if wait.is_zero() {
        read(&api, &scope, id).await?
    } else {
        let job = wait_for(&api, &scope, id, wait).await?;
        // The key may have been revoked in the meantime.
        api.identify(&headers).await?;
        job
    };
    json(StatusCode::OK, &Job::whole(&job)?)
}

/// Reads a job of a scope.
pub(super) async fn read(api: &Parts, scope: &Scope, id: JobId) -> Result<JobView, ApiError> {
    let job = api.ask(api.store.job(scope, id)).await?;
    job.ok_or_else(ApiError::not_found)
}

async fn wait_for(
    api: &Parts,
    scope: &Scope,
    id: JobId,
    wait: Duration,
) -> Result<JobView, ApiError> {
    let end = Instant::now() + wait;
    let waiter = api.waiters.register(id).ok_or_else(|| {
        api.unavailable("too many requests are waiting for jobs: ask again without `wait`")
    })?;
    loop {
        let job = read(api, scope, id).await?;
        if job.state.is_at_rest() {
            return Ok(job);
        }
        tokio::select! {
            () = waiter.woken() => {}
            () = tokio::time::sleep_until(end) => return read(api, scope, id).await,
            () = api.ending() => return Ok(job),
        }
    }
}

/// A job's history, oldest first.
pub(super) async fn events(
    State(api): State<Arc<Parts>>,
    Reader(caller): Reader,
    JobPath(id): JobPath,
    mut query: Query,
) -> Result<Response, ApiError> {
    let limit = query.limit()?;
    let after = query.one("cursor")?;
    let after = after.as_deref().map(cursor::read_after_event).transpose()?;
    query.finish()?;
    let scope = caller.scope();
    let page = api.store.history(&scope, id, after.unwrap_or(0), limit);
    let page = api.ask(page).await?.ok_or_else(ApiError::not_found)?;
    let items = page.events.iter().map(Event::from).collect();
    let next = page.next.map(cursor::after_event);
    json(StatusCode::OK, &Page { items, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pruned_job_is_gone_and_named() {
        let job: JobId = "018f0d5e-7a31-7c3a-9a39-0242ac120002".parse().unwrap();
        let gone = Accepted::of(Submitted::Gone(job)).unwrap_err();
        assert_eq!(gone.status(), StatusCode::GONE);
        let body = serde_json::to_value(gone.body("id")).unwrap();
        assert_eq!(body["code"], "gone");
        assert_eq!(body["job"], job.to_string());
    }
}
