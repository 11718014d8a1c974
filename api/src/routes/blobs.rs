//! `PUT /blobs`: content too large for a payload.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use fencepost_core::limits::BLOB_BYTES_MAX;
use fencepost_store::blobs::BlobError;
use serde::Serialize;
use tokio::time::timeout;

use crate::extract::{Submitter, timed_body, too_long};
use crate::problem::ApiError;
use crate::query::Query;
use crate::state::Parts;
use crate::view::json;

/// How many times a body's time a blob may take: it is some hundred times as long.
const BODY_TIMES: u32 = 4;

#[derive(Debug, Serialize)]
struct Put {
    blob: String,
    size: u64,
}

/// Stores content durably, then records it, then answers.
pub(super) async fn put(
    State(api): State<Arc<Parts>>,
    Submitter(caller): Submitter,
    query: Query,
    request: Request,
) -> Result<Response, ApiError> {
    query.finish()?;
    let limit = api.timers.body.saturating_mul(BODY_TIMES);
    let content = timed_body(request, BLOB_BYTES_MAX, limit)?;
    let unique = api.ids.uuid();
    let put = api.blobs.put(&api.store, unique, &caller.tenant, content);
    // The body's time, and the store's to take its turn and to flush.
    let whole = limit.saturating_add(api.answer_limit());
    let (hash, size) = match timeout(whole, put).await {
        Ok(put) => put.map_err(|error| refused(&api, error))?,
        Err(_) => return Err(api.unavailable("the blob could not be stored in time: put it again")),
    };
    let blob = hash.to_string();
    json(StatusCode::CREATED, &Put { blob, size })
}

fn refused(api: &Parts, error: BlobError) -> ApiError {
    match error {
        BlobError::TooLarge => too_long(BLOB_BYTES_MAX),
        BlobError::Upload(error) => match error.downcast::<ApiError>() {
            Ok(refused) => *refused,
            Err(_) => ApiError::invalid("the body broke off"),
        },
        BlobError::Store(error) => api.of_store(&error),
        BlobError::Missing(_)
        | BlobError::Damaged(_)
        | BlobError::Storage(_)
        | BlobError::Open(_) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, source, "a blob could not be stored");
            api.unavailable("the blob could not be stored: put it again")
        }
    }
}
