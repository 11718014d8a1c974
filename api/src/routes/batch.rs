//! `POST /jobs/batch`: many submissions, each with a key and an answer of its own.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::jobs::Accepted;
use crate::extract::{Submitter, Trace, json_body};
use crate::fields::Fields;
use crate::frame::RequestId;
use crate::problem::{ApiError, Problem};
use crate::query::Query;
use crate::state::Parts;
use crate::submission::Reading;
use crate::view::{Job, json, location};

/// Submissions of one batch: some transactions' worth.
const BATCH_JOBS_MAX: usize = 1_000;

/// A batch in bytes: its whole text is held while it is answered.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Submissions read between two pauses: so that others get their turn on this thread.
const READ_AT_ONCE: usize = 32;

/// The answer to one submission.
#[derive(Debug, Serialize)]
struct Item<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    location: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replayed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<Job<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem<'a>>,
}

#[derive(Debug, Serialize)]
struct Items<'a> {
    items: Vec<Item<'a>>,
}

/// Accepts what can be accepted; each submission stands alone.
pub(super) async fn submit(
    State(api): State<Arc<Parts>>,
    Submitter(caller): Submitter,
    query: Query,
    id: RequestId,
    Trace(trace): Trace,
    request: Request,
) -> Result<Response, ApiError> {
    query.finish()?;
    let Ok(Ok(_room)) = timeout(api.answer_limit(), api.batches.acquire()).await else {
        return Err(api.unavailable("too many batches are in hand; nothing was written"));
    };
    let text = json_body(request, BATCH_BYTES_MAX, &api).await?;
    let reading = Reading {
        catalogue: &api.catalogue,
        tenant: &caller.tenant,
        owner: &caller.owner,
        now: api.store.now(),
        trace: trace.as_deref(),
    };
    let mut submits = Vec::new();
    for (place, item) in items(&text)?.into_iter().enumerate() {
        if place % READ_AT_ONCE == READ_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        submits.push(reading.item(item.get()));
    }
    // All at once, so that they share transactions.
    let answers = join_all(submits.into_iter().map(async |submit| {
        let submitted = api.ask(api.store.submit(submit?)).await?;
        Accepted::of(submitted)
    }))
    .await;
    let retry_after = answers
        .iter()
        .filter_map(|answer| answer.as_ref().err()?.retry_after())
        .max();
    let items = answers.iter().map(|answer| item(answer, &id)).collect();
    let mut response = json(StatusCode::MULTI_STATUS, &Items { items })?;
    if let Some(seconds) = retry_after {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Ok(response)
}

/// The submissions of a batch, not read yet.
fn items(text: &str) -> Result<Vec<&RawValue>, ApiError> {
    let mut fields = Fields::read("the body", text)?;
    let jobs = fields
        .raw("jobs")
        .ok_or_else(|| ApiError::invalid("`jobs` is missing"))?;
    fields.finish()?;
    let items: Vec<&RawValue> =
        serde_json::from_str(jobs.get()).map_err(|_| ApiError::invalid("`jobs` must be a list"))?;
    if items.len() > BATCH_JOBS_MAX {
        return Err(ApiError::too_large(format!(
            "`jobs`: a batch has at most {BATCH_JOBS_MAX} submissions"
        )));
    }
    Ok(items)
}

fn item<'a>(answer: &'a Result<Accepted, ApiError>, id: &'a RequestId) -> Item<'a> {
    let refused = |error: &'a ApiError| Item {
        status: error.status().as_u16(),
        location: None,
        replayed: None,
        job: None,
        problem: Some(error.body(&id.0)),
    };
    match answer {
        // The result of a replayed job is left out, as in lists: a batch of them has no bound.
        Ok(accepted) => Item {
            status: StatusCode::ACCEPTED.as_u16(),
            location: Some(location(accepted.job.id)),
            replayed: Some(accepted.replayed),
            job: Some(Job::listed(&accepted.job)),
            problem: None,
        },
        Err(error) => refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_list_of_bounded_length() {
        let batch = |count: usize| format!(r#"{{"jobs":[{}]}}"#, vec!["1"; count].join(","));
        assert_eq!(items(&batch(1_000)).unwrap().len(), 1_000);
        assert_eq!(items(&batch(1_001)).unwrap_err().status(), 413);
        assert!(items(&batch(0)).unwrap().is_empty());
        for bad in [
            "[]",
            "{}",
            r#"{"jobs":{}}"#,
            r#"{"jobs":[],"x":1}"#,
            r#"{"jobs":[],"jobs":[]}"#,
        ] {
            assert_eq!(items(bad).unwrap_err().status(), 400, "{bad}");
        }
    }
}
