//! The paths, one file per resource.

mod actions;
mod batch;
mod blobs;
mod health;
mod jobs;
mod queues;
mod unknown;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post, put};

use crate::frame::frame;
use crate::problem::{ApiError, Code};
use crate::state::Parts;

/// Every path, within its frame.
pub(crate) fn router(api: Arc<Parts>) -> Router {
    Router::new()
        .route("/jobs", post(jobs::submit).get(jobs::list))
        .route("/jobs/batch", post(batch::submit))
        .route("/jobs/{id}", get(jobs::show))
        .route("/jobs/{id}/events", get(jobs::events))
        .route("/jobs/{id}/cancel", post(actions::cancel))
        .route("/jobs/{id}/retry", post(actions::retry))
        .route("/jobs/{id}/resolve", post(unknown::resolve))
        .route("/unknown", get(unknown::list))
        .route("/queues", get(queues::list))
        .route("/queues/{name}/pause", post(queues::pause))
        .route("/queues/{name}/resume", post(queues::resume))
        .route("/blobs", put(blobs::put))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .fallback(async || ApiError::not_found())
        .method_not_allowed_fallback(async || {
            ApiError::new(
                Code::MethodNotAllowed,
                "the header `Allow` names the methods of this path",
            )
        })
        .layer(from_fn_with_state(Arc::clone(&api), frame))
        .with_state(api)
}
