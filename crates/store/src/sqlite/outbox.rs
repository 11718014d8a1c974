//! The relay's statements: take, settle, redispatch.
//!
//! Each settlement is conditioned on (seq, `dispatch_no`): a late confirm
//! matches nothing once the entry was taken again, put back, or replaced by
//! that of a later life of the job.

use fencepost_core::dispatch::JobRef;
use fencepost_core::outbox::DispatchRef;
use fencepost_core::time::Timestamp;
use sqlx::Row as _;
use sqlx::sqlite::SqliteConnection;

use super::error::during;
use super::rows::{count, get, job_id, json, word};
use super::spread::{Cells, Spread};
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
pub(super) static SETTLE: Spread = Spread::new(
    7,
    "
    WITH done(seq, dispatch_no, stage, delay_ms, alone, error, now) AS (:rows)
    UPDATE outbox SET
        stage = done.stage,
        taken_until = NULL,
        published_at = CASE WHEN done.stage = 'published' THEN done.now END,
        parked_at = CASE WHEN done.stage = 'parked' THEN done.now END,
        available_at = CASE WHEN done.stage = 'waiting' THEN done.now + done.delay_ms
                       ELSE available_at END,
        publish_attempts = publish_attempts + done.alone,
        last_error = done.error
    FROM done
    WHERE outbox.seq = done.seq AND outbox.dispatch_no = done.dispatch_no
      AND outbox.stage = 'taken'",
);

/// Publications of one entry share a row of the history, and so do its parkings.
pub(super) static SETTLE_EVENTS: Spread = Spread::new(
    5,
    "
    WITH done(seq, dispatch_no, stage, actor, now) AS (:rows)
    INSERT INTO event (job, entry, epoch, type, at, actor, detail, last_at)
    SELECT outbox.job, outbox.seq, job.epoch, outbox.stage, done.now, done.actor, outbox.last_error, done.now
    FROM done
    CROSS JOIN outbox ON outbox.seq = done.seq
    CROSS JOIN job ON job.id = outbox.job
    WHERE outbox.dispatch_no = done.dispatch_no AND outbox.stage = done.stage
      AND coalesce(outbox.published_at, outbox.parked_at) = done.now
    ON CONFLICT (entry, type) WHERE entry IS NOT NULL DO UPDATE
    SET count = count + 1, last_at = excluded.last_at, detail = excluded.detail, actor = excluded.actor",
);

/// What became of a dispatch, as columns.
struct End<'a> {
    entry: DispatchRef,
    stage: &'static str,
    delay_ms: i64,
    /// Whether the publication failed alone: 1 or 0.
    alone: u8,
    error: Option<&'a str>,
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
            End {
                entry: *entry,
                stage,
                delay_ms,
                alone,
                error,
            }
        })
        .collect();
    let bind = |cells: &mut Cells, end: &End<'_>| {
        cells.add(end.entry.seq).add(end.entry.dispatch_no);
        cells.add(end.stage).add(end.delay_ms).add(end.alone);
        cells.add(end.error).add(now.as_millis());
    };
    let settled = SETTLE
        .execute(connection, "settling dispatches", &ends, bind)
        .await?;
    let recorded = ends
        .iter()
        .filter(|end| matches!(end.stage, "published" | "parked"));
    let bind = |cells: &mut Cells, end: &End<'_>| {
        cells.add(end.entry.seq).add(end.entry.dispatch_no);
        cells.add(end.stage).add(request.actor.as_str());
        cells.add(now.as_millis());
    };
    SETTLE_EVENTS
        .execute(connection, "writing publications", recorded, bind)
        .await?;
    Ok(settled)
}

pub(super) static REDISPATCH: Spread = Spread::new(
    2,
    "
    WITH again(seq, dispatch_no) AS (:rows)
    UPDATE outbox SET stage = 'ready', dispatch_no = outbox.dispatch_no + 1,
        redispatches = redispatches + 1, published_at = NULL
    FROM again
    WHERE outbox.seq = again.seq AND outbox.dispatch_no = again.dispatch_no
      AND outbox.stage = 'published'",
);

pub(super) async fn redispatch(
    connection: &mut SqliteConnection,
    request: &Redispatch,
) -> Result<u64, StoreError> {
    let bind = |cells: &mut Cells, entry: &DispatchRef| {
        cells.add(entry.seq).add(entry.dispatch_no);
    };
    REDISPATCH
        .execute(connection, "redispatching entries", &request.entries, bind)
        .await
}
