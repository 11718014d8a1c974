//! From stored columns to values, each checked: a value that exists is valid.

use std::time::Duration;

use fencepost_core::effect::EffectState;
use fencepost_core::event::{EventRecord, EventType};
use fencepost_core::id::{Epoch, ErrorCode, JobId};
use fencepost_core::lifecycle::State;
use fencepost_core::time::Timestamp;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use crate::contract::{ErrorView, JobView};
use crate::error::StoreError;

/// The columns of [`job_view`], of a table or alias `job` and an optional `outbox`.
pub(super) const JOB_VIEW: &str = "job.id, job.kind, job.queue, job.priority, job.state, \
    job.attempts, job.max_attempts, job.epoch, job.created_at, job.run_at, job.deadline_at, \
    job.finished_at, job.cancel_requested_at, job.error_code, job.error_message, job.result, \
    (SELECT stage = 'parked' FROM outbox WHERE outbox.job = job.id) AS parked";

/// The same without results: a page of them could hold a hundred megabytes.
pub(super) fn job_list() -> String {
    JOB_VIEW.replace("job.result", "NULL AS result")
}

/// The columns of [`event`].
pub(super) const EVENT: &str = "event.id, event.epoch, event.type, event.at, event.actor, event.code, event.detail, \
     event.count, event.last_at";

fn corrupt(column: &str) -> StoreError {
    StoreError::Corrupt {
        what: format!("column `{column}`"),
    }
}

/// Reads a column of a type the library knows.
pub(super) fn get<'r, T>(row: &'r SqliteRow, column: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(column).map_err(|_| corrupt(column))
}

/// Reads a text column into a checked name or word.
pub(super) fn word<T>(
    row: &SqliteRow,
    column: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, StoreError> {
    parse(get(row, column)?).ok_or_else(|| corrupt(column))
}

/// Reads a non-negative number.
pub(super) fn count<T: TryFrom<i64>>(row: &SqliteRow, column: &str) -> Result<T, StoreError> {
    T::try_from(get(row, column)?).map_err(|_| corrupt(column))
}

pub(super) fn job_id(row: &SqliteRow, column: &str) -> Result<JobId, StoreError> {
    let bytes: &[u8] = get(row, column)?;
    Uuid::from_slice(bytes)
        .map(JobId)
        .map_err(|_| corrupt(column))
}

pub(super) fn epoch(row: &SqliteRow) -> Result<Epoch, StoreError> {
    get(row, "epoch").map(Epoch)
}

pub(super) fn time(row: &SqliteRow, column: &str) -> Result<Timestamp, StoreError> {
    get(row, column).map(Timestamp::from_millis)
}

pub(super) fn time_maybe(row: &SqliteRow, column: &str) -> Result<Option<Timestamp>, StoreError> {
    let millis: Option<i64> = get(row, column)?;
    Ok(millis.map(Timestamp::from_millis))
}

pub(super) fn duration(row: &SqliteRow, column: &str) -> Result<Duration, StoreError> {
    count(row, column).map(Duration::from_millis)
}

pub(super) fn state(row: &SqliteRow) -> Result<State, StoreError> {
    word(row, "state", State::parse)
}

pub(super) fn error_view(row: &SqliteRow) -> Result<Option<ErrorView>, StoreError> {
    let code: Option<&str> = get(row, "error_code")?;
    let Some(code) = code else { return Ok(None) };
    let message: Option<String> = get(row, "error_message")?;
    Ok(Some(ErrorView {
        code: ErrorCode::new(code).map_err(|_| corrupt("error_code"))?,
        message: message.unwrap_or_default(),
    }))
}

pub(super) fn job_view(row: &SqliteRow) -> Result<JobView, StoreError> {
    let parked: Option<bool> = get(row, "parked")?;
    Ok(JobView {
        id: job_id(row, "id")?,
        kind: word(row, "kind", |text| text.parse().ok())?,
        queue: word(row, "queue", |text| text.parse().ok())?,
        priority: count(row, "priority")?,
        state: state(row)?,
        attempts: count(row, "attempts")?,
        max_attempts: count(row, "max_attempts")?,
        epoch: epoch(row)?,
        created_at: time(row, "created_at")?,
        run_at: time(row, "run_at")?,
        deadline_at: time(row, "deadline_at")?,
        finished_at: time_maybe(row, "finished_at")?,
        cancel_requested_at: time_maybe(row, "cancel_requested_at")?,
        error: error_view(row)?,
        result: get(row, "result")?,
        parked: parked.unwrap_or(false),
    })
}

pub(super) fn event(row: &SqliteRow) -> Result<EventRecord, StoreError> {
    Ok(EventRecord {
        id: get(row, "id")?,
        epoch: epoch(row)?,
        kind: word(row, "type", EventType::parse)?,
        at: time(row, "at")?,
        actor: get(row, "actor")?,
        code: get(row, "code")?,
        detail: get(row, "detail")?,
        count: count(row, "count")?,
        last_at: time(row, "last_at")?,
    })
}

/// Where an effect stands, by which of its times are set.
pub(super) fn effect_state(row: &SqliteRow) -> Result<EffectState, StoreError> {
    let settled: Option<i64> = get(row, "settled_at")?;
    let declined: Option<i64> = get(row, "declined_at")?;
    Ok(match (settled, declined) {
        (Some(_), _) => EffectState::Settled,
        (None, Some(_)) => EffectState::Declined,
        (None, None) => EffectState::Open,
    })
}

/// A job id as it travels in JSON: hexadecimal, for `unhex`.
pub(super) fn hex(id: JobId) -> String {
    id.0.as_simple().to_string()
}

/// A list as the JSON array that `json_each` takes apart.
pub(super) fn json<T: serde::Serialize>(rows: &[T]) -> Result<String, StoreError> {
    serde_json::to_string(rows).map_err(|_| StoreError::Corrupt {
        what: "a row that cannot be written as JSON".to_owned(),
    })
}
