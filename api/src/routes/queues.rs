//! `/queues`: what stands in each, and pausing them. They belong to no tenant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use fencepost_core::id::QueueName;
use fencepost_core::time::{Timestamp, millis};
use fencepost_store::{PauseQueue, ResumeQueue};
use serde::Serialize;

use crate::extract::{ActionBody, Admin, QueuePath};
use crate::fields::Fields;
use crate::problem::ApiError;
use crate::query::Query;
use crate::state::Parts;
use crate::view::{Page, json};

/// A worker that was not heard of for this long is not counted: three heartbeats
/// of the default.
const WORKER_TIMEOUT: Duration = Duration::from_secs(15);

/// A queue as it is answered.
#[derive(Debug, Clone, Default, Serialize)]
struct Queue {
    name: String,
    /// Jobs that wait: due, scheduled, between attempts or held back.
    queued: u64,
    /// Those whose dispatch failed alone and is held back.
    parked: u64,
    running: u64,
    /// The acceptance of the job that is due for the longest time.
    oldest_queued_at: Option<Timestamp>,
    /// Jobs that the live workers of it run at once.
    slots: u64,
    paused_at: Option<Timestamp>,
}

/// Lists the queues that kinds are configured for, and any other that holds jobs.
pub(super) async fn list(
    State(api): State<Arc<Parts>>,
    Admin(_caller): Admin,
    query: Query,
) -> Result<Response, ApiError> {
    query.finish()?;
    let queues = all(&api).await?;
    let items = queues.into_values().collect();
    json(StatusCode::OK, &Page { items, next: None })
}

/// Starts no more jobs of a queue.
pub(super) async fn pause(
    State(api): State<Arc<Parts>>,
    Admin(caller): Admin,
    QueuePath(queue): QueuePath,
    query: Query,
    ActionBody(text): ActionBody,
) -> Result<Response, ApiError> {
    query.finish()?;
    must_exist(&api, &queue, &text).await?;
    let request = PauseQueue {
        queue: queue.clone(),
        actor: caller.actor(),
    };
    api.ask(api.store.pause_queue(request)).await?;
    show(&api, &queue).await
}

/// Starts jobs of a queue again.
pub(super) async fn resume(
    State(api): State<Arc<Parts>>,
    Admin(caller): Admin,
    QueuePath(queue): QueuePath,
    query: Query,
    ActionBody(text): ActionBody,
) -> Result<Response, ApiError> {
    query.finish()?;
    must_exist(&api, &queue, &text).await?;
    let request = ResumeQueue {
        queue: queue.clone(),
        actor: caller.actor(),
    };
    api.ask(api.store.resume_queue(request)).await?;
    show(&api, &queue).await
}

/// A misspelt name would pause nothing.
async fn must_exist(api: &Parts, queue: &QueueName, body: &str) -> Result<(), ApiError> {
    Fields::read("the body", body)?.finish()?;
    if all(api).await?.contains_key(queue) {
        Ok(())
    } else {
        Err(ApiError::not_found())
    }
}

async fn show(api: &Parts, queue: &QueueName) -> Result<Response, ApiError> {
    let found = all(api).await?.remove(queue);
    json(StatusCode::OK, &found.ok_or_else(ApiError::not_found)?)
}

async fn all(api: &Parts) -> Result<BTreeMap<QueueName, Queue>, ApiError> {
    let now = api.store.now();
    let since = Timestamp::from_millis(now.as_millis() - millis(WORKER_TIMEOUT));
    let (depths, workers) = tokio::join!(api.store.queues(), api.store.workers(since));
    let depths = depths.map_err(|error| api.of_store(&error))?;
    let workers = workers.map_err(|error| api.of_store(&error))?;
    let configured: BTreeSet<QueueName> = api.catalogue.queues();
    let mut queues: BTreeMap<QueueName, Queue> = configured
        .into_iter()
        .map(|name| (name, Queue::default()))
        .collect();
    for depth in depths {
        let queue = queues.entry(depth.queue).or_default();
        queue.queued = depth.queued;
        queue.parked = depth.parked;
        queue.running = depth.running;
        queue.oldest_queued_at = depth.oldest_queued_at;
        queue.paused_at = depth.paused_at;
    }
    for worker in workers {
        for name in worker.said.queues {
            queues.entry(name).or_default().slots += u64::from(worker.said.slots);
        }
    }
    for (name, queue) in &mut queues {
        name.as_str().clone_into(&mut queue.name);
    }
    Ok(queues)
}
