//! Verbs on what is not a job: blobs, queues, keys, leaders, workers.

use fencepost_core::event::EventType;
use fencepost_core::id::Epoch;
use fencepost_core::time::Timestamp;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::error::during;
use super::rows::{get, json};
use super::write::{self, EventColumns};
use crate::contract::{
    BlobKnown, CreateKey, Heartbeat, KeyCreated, KeyRevoked, Lead, Leadership, PauseQueue,
    RecordBlob, Resign, ResumeQueue, RevokeKey,
};
use crate::error::StoreError;

/// An event that belongs to no job.
async fn record(
    connection: &mut SqliteConnection,
    now: Timestamp,
    kind: EventType,
    actor: &str,
    detail: &str,
) -> Result<(), StoreError> {
    let event = EventColumns {
        job: None,
        epoch: Epoch::ZERO,
        kind,
        actor,
        code: None,
        detail: Some(detail),
    };
    write::events(connection, now, [event]).await
}

pub(super) async fn record_blob(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &RecordBlob,
) -> Result<BlobKnown, StoreError> {
    let recording = during("recording a blob");
    let hash = request.hash.0.as_slice();
    let known = sqlx::query("SELECT 1 FROM blob WHERE tenant = ?1 AND hash = ?2")
        .bind(request.tenant.as_str())
        .bind(hash)
        .fetch_optional(&mut *connection)
        .await
        .map_err(&recording)?;
    sqlx::query(
        "INSERT INTO blob (tenant, hash, size, last_put_at, object) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (tenant, hash) DO UPDATE SET last_put_at = excluded.last_put_at",
    )
    .bind(request.tenant.as_str())
    .bind(hash)
    .bind(i64::try_from(request.size).unwrap_or(i64::MAX))
    .bind(now.as_millis())
    .bind(&request.object)
    .execute(connection)
    .await
    .map_err(&recording)?;
    Ok(if known.is_some() {
        BlobKnown::Before
    } else {
        BlobKnown::New
    })
}

pub(super) async fn pause_queue(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &PauseQueue,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO queue (name, paused_at, paused_by) VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET
             paused_at = coalesce(paused_at, excluded.paused_at),
             paused_by = coalesce(paused_by, excluded.paused_by)",
    )
    .bind(request.queue.as_str())
    .bind(now.as_millis())
    .bind(&request.actor)
    .execute(&mut *connection)
    .await
    .map_err(during("pausing a queue"))?;
    record(
        connection,
        now,
        EventType::QueuePaused,
        &request.actor,
        request.queue.as_str(),
    )
    .await
}

pub(super) async fn resume_queue(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &ResumeQueue,
) -> Result<(), StoreError> {
    let resuming = during("resuming a queue");
    sqlx::query("UPDATE queue SET paused_at = NULL, paused_by = NULL WHERE name = ?1")
        .bind(request.queue.as_str())
        .execute(&mut *connection)
        .await
        .map_err(&resuming)?;
    // What was put back because of the pause is due again at once.
    sqlx::query(
        "UPDATE outbox SET stage = 'ready', available_at = ?2, put_backs = 0
         WHERE queue = ?1 AND stage = 'waiting' AND put_backs > 0
           AND (SELECT run_at <= ?2 FROM job WHERE job.id = outbox.job)",
    )
    .bind(request.queue.as_str())
    .bind(now.as_millis())
    .execute(&mut *connection)
    .await
    .map_err(&resuming)?;
    record(
        connection,
        now,
        EventType::QueueResumed,
        &request.actor,
        request.queue.as_str(),
    )
    .await
}

pub(super) async fn create_key(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &CreateKey,
) -> Result<KeyCreated, StoreError> {
    let key = &request.key;
    let roles: Vec<&str> = key.roles.iter().map(|role| role.as_str()).collect();
    let done = sqlx::query(
        "INSERT INTO api_key (id, secret_hash, tenant, owner, roles, created_at, expires_at)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7 WHERE NOT (?8 AND EXISTS (SELECT 1 FROM api_key))",
    )
    .bind(&key.id)
    .bind(key.secret_hash.as_slice())
    .bind(key.tenant.as_str())
    .bind(key.owner.as_str())
    .bind(roles.join(" "))
    .bind(now.as_millis())
    .bind(key.expires_at.map(Timestamp::as_millis))
    .bind(request.only_as_first)
    .execute(&mut *connection)
    .await
    .map_err(during("storing a key"))?;
    if done.rows_affected() == 0 {
        return Ok(KeyCreated::NotFirst);
    }
    record(
        connection,
        now,
        EventType::KeyCreated,
        &request.actor,
        &key.id,
    )
    .await?;
    Ok(KeyCreated::Created)
}

pub(super) async fn revoke_key(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &RevokeKey,
) -> Result<KeyRevoked, StoreError> {
    let done =
        sqlx::query("UPDATE api_key SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1")
            .bind(&request.id)
            .bind(now.as_millis())
            .execute(&mut *connection)
            .await
            .map_err(during("revoking a key"))?;
    if done.rows_affected() == 0 {
        return Ok(KeyRevoked::NotFound);
    }
    record(
        connection,
        now,
        EventType::KeyRevoked,
        &request.actor,
        &request.id,
    )
    .await?;
    Ok(KeyRevoked::Revoked)
}

/// A bid succeeds for the holder itself, for a free office, and for one whose
/// time has run out; the term rises when the holder changes.
const LEAD: &str = "
    INSERT INTO leader (name, holder, term, expires_at) VALUES (?1, ?2, 1, ?4)
    ON CONFLICT (name) DO UPDATE SET
        term = term + (holder <> excluded.holder), holder = excluded.holder,
        expires_at = excluded.expires_at
    WHERE holder = excluded.holder OR expires_at <= ?3
    RETURNING term";

pub(super) async fn lead(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &Lead,
) -> Result<Leadership, StoreError> {
    let leading = during("bidding for leadership");
    let won = sqlx::query(LEAD)
        .bind(&request.name)
        .bind(request.holder.as_str())
        .bind(now.as_millis())
        .bind(now.after(request.hold).as_millis())
        .fetch_optional(&mut *connection)
        .await
        .map_err(&leading)?;
    if let Some(row) = won {
        return Ok(Leadership::Leader {
            term: get(&row, "term")?,
        });
    }
    let until: i64 = sqlx::query("SELECT expires_at FROM leader WHERE name = ?1")
        .bind(&request.name)
        .fetch_one(connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(&leading)?;
    Ok(Leadership::Standby {
        until: Timestamp::from_millis(until),
    })
}

pub(super) async fn resign(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &Resign,
) -> Result<(), StoreError> {
    // The row stays, so that terms go on rising.
    sqlx::query("UPDATE leader SET expires_at = ?3 WHERE name = ?1 AND holder = ?2")
        .bind(&request.name)
        .bind(request.holder.as_str())
        .bind(now.as_millis())
        .execute(connection)
        .await
        .map_err(during("resigning leadership"))?;
    Ok(())
}

/// Workers not heard of for this long are forgotten, so that restarts do not
/// fill the table. Milliseconds: one day.
const FORGET_WORKER_AFTER_MS: i64 = 24 * 3_600 * 1_000;

pub(super) async fn heartbeat(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &Heartbeat,
) -> Result<(), StoreError> {
    let beating = during("recording a heartbeat");
    sqlx::query(
        "INSERT INTO worker (id, version, queues, slots, started_at, seen_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5)
         ON CONFLICT (id) DO UPDATE SET
             version = excluded.version, queues = excluded.queues, slots = excluded.slots,
             seen_at = excluded.seen_at",
    )
    .bind(request.worker.as_str())
    .bind(&request.version)
    .bind(json(&request.queues)?)
    .bind(i64::from(request.slots))
    .bind(now.as_millis())
    .execute(&mut *connection)
    .await
    .map_err(&beating)?;
    sqlx::query("DELETE FROM worker WHERE seen_at <= ?1")
        .bind(now.as_millis() - FORGET_WORKER_AFTER_MS)
        .execute(connection)
        .await
        .map_err(&beating)?;
    Ok(())
}
