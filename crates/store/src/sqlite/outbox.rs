//! The relay's statements: take, settle, redispatch.
//!
//! Each settlement is conditioned on (seq, `dispatch_no`): a late confirm
//! matches nothing once the entry was taken again, put back, or replaced by
//! that of a later life of the job.

use fencepost_core::dispatch::JobRef;
use fencepost_core::outbox::DispatchRef;
use fencepost_core::time::Timestamp;
use serde::Serialize;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::error::during;
use super::rows::{count, get, job_id, json, word};
use super::write::spread;
use crate::contract::{Dispatch, DispatchResult, Redispatch, SettleDispatches, Take, Taken};
use crate::error::StoreError;

pub(super) const IN_WINDOW: &str = "
    SELECT (SELECT count(*) FROM outbox WHERE queue = ?1 AND stage = 'published')
         + (SELECT count(*) FROM outbox WHERE queue = ?1 AND stage = 'taken' AND taken_until > ?2)";

/// The three stages an entry can be taken from, each by its own index: ready
/// in priority order; waiting and due; taken by a relay that never settled it.
pub(super) const TAKE: &str = "
    UPDATE outbox SET stage = 'taken', dispatch_no = dispatch_no + 1, taken_until = ?4
    WHERE seq IN (
        SELECT seq FROM (
            SELECT * FROM (SELECT seq, priority FROM outbox
                WHERE queue = ?1 AND stage = 'ready' ORDER BY priority DESC, seq LIMIT ?3)
            UNION ALL
            SELECT * FROM (SELECT seq, priority FROM outbox
                WHERE queue = ?1 AND stage = 'waiting' AND available_at <= ?2
                ORDER BY available_at LIMIT ?3)
            UNION ALL
            SELECT * FROM (SELECT seq, priority FROM outbox
                WHERE queue = ?1 AND stage = 'taken' AND taken_until <= ?2
                ORDER BY taken_until LIMIT ?3)
        ) ORDER BY priority DESC, seq LIMIT ?3)
    RETURNING seq";

pub(super) const TAKEN: &str = "
    SELECT outbox.seq, outbox.dispatch_no, outbox.publish_attempts, job.id, job.kind, job.trace
    FROM json_each(?1) AS taken
    CROSS JOIN outbox ON outbox.seq = taken.value
    CROSS JOIN job ON job.id = outbox.job
    ORDER BY outbox.priority DESC, outbox.seq";

pub(super) async fn take(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &Take,
) -> Result<Taken, StoreError> {
    let taking = during("taking outbox entries");
    let in_window: i64 = sqlx::query(IN_WINDOW)
        .bind(request.queue.as_str())
        .bind(now.as_millis())
        .fetch_one(&mut *connection)
        .await
        .and_then(|row| row.try_get(0))
        .map_err(&taking)?;
    let in_window = u32::try_from(in_window).unwrap_or(u32::MAX);
    let room = request.window.saturating_sub(in_window).min(request.limit);
    if room == 0 {
        return Ok(Taken {
            dispatches: Vec::new(),
            in_window,
        });
    }
    let rows = sqlx::query(TAKE)
        .bind(request.queue.as_str())
        .bind(now.as_millis())
        .bind(i64::from(room))
        .bind(now.after(request.hold).as_millis())
        .fetch_all(&mut *connection)
        .await
        .map_err(&taking)?;
    if rows.is_empty() {
        return Ok(Taken {
            dispatches: Vec::new(),
            in_window,
        });
    }
    let taken: Vec<i64> = rows
        .iter()
        .map(|row| get(row, "seq"))
        .collect::<Result<_, _>>()?;
    let rows = sqlx::query(TAKEN)
        .bind(json(&taken)?)
        .fetch_all(connection)
        .await
        .map_err(&taking)?;
    let dispatches = rows
        .iter()
        .map(|row| {
            Ok(Dispatch {
                entry: DispatchRef {
                    seq: get(row, "seq")?,
                    dispatch_no: get(row, "dispatch_no")?,
                },
                job: JobRef {
                    id: job_id(row, "id")?,
                    kind: word(row, "kind", |text| text.parse().ok())?,
                    trace: get(row, "trace")?,
                },
                failures: count(row, "publish_attempts")?,
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    let in_window = in_window + u32::try_from(dispatches.len()).unwrap_or(u32::MAX);
    Ok(Taken {
        dispatches,
        in_window,
    })
}

/// Only a dispatch that is still on its way is settled.
pub(super) const SETTLE: &str = "
    UPDATE outbox SET
        stage = end.value->>'stage',
        taken_until = NULL,
        published_at = CASE WHEN end.value->>'stage' = 'published' THEN ?2 END,
        parked_at = CASE WHEN end.value->>'stage' = 'parked' THEN ?2 END,
        available_at = CASE WHEN end.value->>'stage' = 'waiting' THEN ?2 + (end.value->>'delay_ms')
                       ELSE available_at END,
        publish_attempts = publish_attempts + (end.value->>'alone'),
        last_error = end.value->>'error'
    FROM json_each(?1) AS end
    WHERE outbox.seq = end.value->>'seq' AND outbox.dispatch_no = end.value->>'dispatch_no'
      AND outbox.stage = 'taken'";

/// Publications of one entry share a row of the history, and so do its parkings.
pub(super) const SETTLE_EVENTS: &str = "
    INSERT INTO event (job, entry, epoch, type, at, actor, detail, last_at)
    SELECT outbox.job, outbox.seq, job.epoch, outbox.stage, ?2, end.value->>'actor', outbox.last_error, ?2
    FROM json_each(?1) AS end
    CROSS JOIN outbox ON outbox.seq = end.value->>'seq'
    CROSS JOIN job ON job.id = outbox.job
    WHERE outbox.dispatch_no = end.value->>'dispatch_no' AND outbox.stage = end.value->>'stage'
      AND coalesce(outbox.published_at, outbox.parked_at) = ?2
    ON CONFLICT (entry, type) WHERE entry IS NOT NULL DO UPDATE
    SET count = count + 1, last_at = excluded.last_at, detail = excluded.detail, actor = excluded.actor";

#[derive(Serialize)]
struct End<'a> {
    seq: i64,
    dispatch_no: i64,
    stage: &'static str,
    delay_ms: i64,
    /// Whether the publication failed alone: 1 or 0.
    alone: u8,
    error: Option<&'a str>,
    actor: &'a str,
}

pub(super) async fn settle(
    connection: &mut SqliteConnection,
    now: Timestamp,
    request: &SettleDispatches,
) -> Result<u64, StoreError> {
    let ends: Vec<End<'_>> = request
        .results
        .iter()
        .map(|(entry, result)| {
            let (stage, delay_ms, alone, error) = match result {
                DispatchResult::Published => ("published", 0, 0, None),
                DispatchResult::RouteFault(error) => ("ready", 0, 0, Some(error.as_str())),
                DispatchResult::Failed { error, delay } => (
                    "waiting",
                    fencepost_core::time::millis(*delay),
                    1,
                    Some(error.as_str()),
                ),
                DispatchResult::Parked(error) => ("parked", 0, 1, Some(error.as_str())),
            };
            let DispatchRef { seq, dispatch_no } = *entry;
            End {
                seq,
                dispatch_no,
                stage,
                delay_ms,
                alone,
                error,
                actor: &request.actor,
            }
        })
        .collect();
    let settled = spread(connection, now, "settling dispatches", SETTLE, &ends).await?;
    let recorded: Vec<End<'_>> = ends
        .into_iter()
        .filter(|end| matches!(end.stage, "published" | "parked"))
        .collect();
    spread(
        connection,
        now,
        "writing publications",
        SETTLE_EVENTS,
        &recorded,
    )
    .await?;
    Ok(settled)
}

pub(super) const REDISPATCH: &str = "
    UPDATE outbox SET stage = 'ready', dispatch_no = dispatch_no + 1, redispatches = redispatches + 1,
        published_at = NULL
    FROM json_each(?1) AS again
    WHERE outbox.seq = again.value->>0 AND outbox.dispatch_no = again.value->>1
      AND outbox.stage = 'published'";

pub(super) async fn redispatch(
    connection: &mut SqliteConnection,
    request: &Redispatch,
) -> Result<u64, StoreError> {
    let entries: Vec<(i64, i64)> = request
        .entries
        .iter()
        .map(|entry| (entry.seq, entry.dispatch_no))
        .collect();
    let done = sqlx::query(REDISPATCH)
        .bind(json(&entries)?)
        .execute(connection)
        .await
        .map_err(during("redispatching entries"))?;
    Ok(done.rows_affected())
}
