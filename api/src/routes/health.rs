//! `/healthz` and `/readyz`, for whoever watches the process. No credential is asked for.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use crate::problem::ApiError;
use crate::state::Parts;
use crate::view;

/// A database that takes longer to answer a single read is not ready.
const PING_LIMIT: Duration = Duration::from_secs(2);

/// The process answers.
pub(super) async fn alive() -> Result<Response, ApiError> {
    view::json(StatusCode::OK, &json!({"alive": true}))
}

/// The process can do its work: its parts say so, and the database answers.
pub(super) async fn ready(State(api): State<Arc<Parts>>) -> Result<Response, ApiError> {
    let answers = timeout(PING_LIMIT, api.store.ping()).await;
    if !matches!(answers, Ok(Ok(()))) {
        let told = json!({"ready": false, "parts": {"database": "does not answer"}});
        return view::json(StatusCode::SERVICE_UNAVAILABLE, &told);
    }
    let (ready, told) = (api.readiness)();
    let told = RawValue::from_string(told)
        .map_err(|_| ApiError::internal("the report on readiness is not JSON"))?;
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    view::json(status, &told)
}
