//! `/jobs/{id}/cancel` and `/jobs/{id}/retry`.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use fencepost_core::lifecycle;
use fencepost_store::{Cancel, Cancelled, Retried, Retry};

use super::jobs::read;
use crate::extract::{ActionBody, Actor, JobPath};
use crate::fields::Fields;
use crate::problem::{ApiError, Code};
use crate::query::Query;
use crate::state::Parts;
use crate::submission::{deadline, deadline_unusable};
use crate::view::{Job, json};

/// Ends a job, or asks its worker to stop. What is cancelled already stays so: 200.
pub(super) async fn cancel(
    State(api): State<Arc<Parts>>,
    Actor(caller): Actor,
    JobPath(job): JobPath,
    query: Query,
    ActionBody(text): ActionBody,
) -> Result<Response, ApiError> {
    query.finish()?;
    let mut fields = Fields::read("the body", &text)?;
    let how = match fields.flag("force")? {
        Some(true) => lifecycle::Cancel::Force,
        Some(false) | None => lifecycle::Cancel::Ask,
    };
    fields.finish()?;
    let scope = caller.scope();
    let cancel = Cancel {
        scope: scope.clone(),
        job,
        how,
        actor: caller.actor(),
    };
    match api.ask(api.store.cancel(cancel)).await? {
        Cancelled::Done(job) => json(StatusCode::OK, &Job::whole(&job)?),
        Cancelled::Asked(job) => json(StatusCode::ACCEPTED, &Job::whole(&job)?),
        // Asking twice is asking once, also for whoever asked a moment later.
        Cancelled::Conflict(lifecycle::State::Cancelled) => json(
            StatusCode::OK,
            &Job::whole(&read(&api, &scope, job).await?)?,
        ),
        Cancelled::Conflict(state) => Err(conflict(state, "cancelled")),
        Cancelled::NotFound => Err(ApiError::not_found()),
    }
}

/// Queues an ended job anew.
pub(super) async fn retry(
    State(api): State<Arc<Parts>>,
    Actor(caller): Actor,
    JobPath(job): JobPath,
    query: Query,
    ActionBody(text): ActionBody,
) -> Result<Response, ApiError> {
    query.finish()?;
    let mut fields = Fields::read("the body", &text)?;
    let deadline = deadline(&mut fields, api.store.now())?;
    fields.finish()?;
    let retry = Retry {
        scope: caller.scope(),
        job,
        deadline,
        actor: caller.actor(),
    };
    match api.ask(api.store.retry(retry)).await? {
        Retried::Queued(job) => json(StatusCode::ACCEPTED, &Job::whole(&job)?),
        Retried::Conflict(state) => Err(conflict(state, "retried")),
        Retried::EffectOpen => Err(ApiError::new(
            Code::StateConflict,
            "one of the job's calls has no known outcome: that needs a verdict first",
        )),
        Retried::DeadlineUnusable => Err(deadline_unusable()),
        Retried::NotFound => Err(ApiError::not_found()),
    }
}

fn conflict(state: lifecycle::State, what: &str) -> ApiError {
    let state = state.as_str();
    ApiError::new(
        Code::StateConflict,
        format!("the job is {state} and cannot be {what}"),
    )
}
