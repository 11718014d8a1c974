//! Writes a transaction's decisions, each kind of write in one statement.
//!
//! Every update of a job names what must still be true of the row: its epoch,
//! its state, and for a claim's holder a live lease and deadline, for the
//! reaper an expired one. The decision was made under the same lock, so a row
//! that does not match is a broken invariant and undoes the transaction.

use fencepost_core::time::Timestamp;
use serde::Serialize;
use sqlx::sqlite::SqliteConnection;

use super::error::during;
use super::rows::{hex, json};
use crate::decide::{EffectChange, Fence, JobUpdate, Writes};
use crate::error::StoreError;

pub(super) const UPDATE_JOBS: &str = "
    UPDATE job SET
        state = new.value->>'state', epoch = new.value->>'epoch', attempts = new.value->>'attempts',
        snoozes = new.value->>'snoozes', run_at = new.value->>'run_at',
        deadline_at = new.value->>'deadline_at', lease_expires_at = new.value->>'lease_expires_at',
        leased_by = new.value->>'leased_by',
        cancel_requested_at = new.value->>'cancel_requested_at', result = new.value->>'result',
        error_code = new.value->>'error_code', error_message = new.value->>'error_message',
        updated_at = ?2, finished_at = new.value->>'finished_at'
    FROM json_each(?1) AS new
    WHERE job.id = unhex(new.value->>'id')
      AND job.epoch = new.value->>'was_epoch'
      AND job.state = new.value->>'was_state'
      AND CASE new.value->>'fence'
            WHEN 'live' THEN job.lease_expires_at > ?2 AND job.deadline_at > ?2
            WHEN 'expired' THEN job.lease_expires_at <= ?2 OR job.deadline_at <= ?2
            ELSE TRUE
          END";

pub(super) const DELETE_ENTRIES: &str =
    "DELETE FROM outbox WHERE job IN (SELECT unhex(value) FROM json_each(?1))";

const INSERT_ENTRIES: &str = "
    INSERT INTO outbox (job, queue, priority, stage, available_at)
    SELECT unhex(new.value->>'job'), new.value->>'queue', new.value->>'priority',
           CASE WHEN new.value->>'available_at' <= ?2 THEN 'ready' ELSE 'waiting' END,
           new.value->>'available_at'
    FROM json_each(?1) AS new";

pub(super) const PUT_BACK_ENTRIES: &str = "
    UPDATE outbox SET stage = 'waiting', available_at = back.value->>'available_at',
        dispatch_no = dispatch_no + 1, put_backs = put_backs + 1,
        taken_until = NULL, published_at = NULL, parked_at = NULL
    FROM json_each(?1) AS back
    WHERE outbox.job = unhex(back.value->>'job')";

/// Repeated put-backs of one entry update one row.
pub(super) const PUT_BACK_EVENTS: &str = "
    INSERT INTO event (job, entry, epoch, type, at, actor, code, last_at)
    SELECT outbox.job, outbox.seq, back.value->>'epoch', 'put_back', ?2, back.value->>'actor',
           back.value->>'reason', ?2
    FROM json_each(?1) AS back CROSS JOIN outbox ON outbox.job = unhex(back.value->>'job')
    WHERE TRUE
    ON CONFLICT (entry, type) WHERE entry IS NOT NULL DO UPDATE
    SET count = count + 1, last_at = excluded.last_at, actor = excluded.actor, code = excluded.code";

pub(super) const INSERT_EVENTS: &str = "
    INSERT INTO event (job, epoch, type, at, actor, code, detail, last_at)
    SELECT unhex(new.value->>'job'), new.value->>'epoch', new.value->>'type', ?2,
           new.value->>'actor', new.value->>'code', new.value->>'detail', ?2
    FROM json_each(?1) AS new";

const WRITE_EFFECTS: &str = "
    INSERT INTO effect (job, name, kind, epoch, opened_at, settled_at, outcome)
    SELECT unhex(new.value->>'job'), new.value->>'name', new.value->>'kind', new.value->>'epoch', ?2,
           CASE WHEN new.value->>'outcome' IS NOT NULL THEN ?2 END, new.value->>'outcome'
    FROM json_each(?1) AS new WHERE TRUE
    ON CONFLICT (job, name) DO UPDATE
    SET epoch = excluded.epoch, opened_at = excluded.opened_at, settled_at = NULL, declined_at = NULL,
        outcome = NULL, evidence = NULL";

pub(super) const SETTLE_EFFECTS: &str = "
    UPDATE effect SET settled_at = ?2, outcome = new.value->>'outcome'
    FROM json_each(?1) AS new
    WHERE effect.job = unhex(new.value->>'job') AND effect.name = new.value->>'name'
      AND effect.epoch = new.value->>'epoch' AND settled_at IS NULL AND declined_at IS NULL";

pub(super) const DECLINE_EFFECTS: &str = "
    UPDATE effect SET declined_at = ?2
    FROM json_each(?1) AS new
    WHERE effect.job = unhex(new.value->>'job') AND effect.name = new.value->>'name'
      AND effect.epoch = new.value->>'epoch' AND settled_at IS NULL AND declined_at IS NULL";

pub(super) const KEEP_EVIDENCE: &str = "
    UPDATE effect SET evidence = new.value->>'outcome'
    FROM json_each(?1) AS new
    WHERE effect.job = unhex(new.value->>'job') AND effect.name = new.value->>'name'
      AND effect.epoch = new.value->>'epoch' AND settled_at IS NULL AND declined_at IS NULL";

#[derive(Serialize)]
struct JobColumns<'a> {
    id: String,
    was_epoch: i64,
    was_state: &'static str,
    fence: &'static str,
    state: &'static str,
    epoch: i64,
    attempts: u32,
    snoozes: u32,
    run_at: i64,
    deadline_at: i64,
    lease_expires_at: Option<i64>,
    leased_by: Option<&'a str>,
    cancel_requested_at: Option<i64>,
    result: Option<&'a str>,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    finished_at: Option<i64>,
}

impl<'a> From<&'a JobUpdate> for JobColumns<'a> {
    fn from(update: &'a JobUpdate) -> Self {
        let after = &update.after;
        Self {
            id: hex(after.id),
            was_epoch: update.was_epoch.0,
            was_state: update.was_state.as_str(),
            fence: match update.fence {
                Fence::Unchanged => "unchanged",
                Fence::Live => "live",
                Fence::Expired => "expired",
            },
            state: after.state.as_str(),
            epoch: after.epoch.0,
            attempts: after.attempts,
            snoozes: after.snoozes,
            run_at: after.run_at.as_millis(),
            deadline_at: after.deadline_at.as_millis(),
            lease_expires_at: after.lease_expires_at.map(Timestamp::as_millis),
            leased_by: after.leased_by.as_deref(),
            cancel_requested_at: after.cancel_requested_at.map(Timestamp::as_millis),
            result: after.result.as_deref(),
            error_code: after.error.as_ref().map(|error| error.code.as_str()),
            error_message: after.error.as_ref().map(|error| error.message.as_str()),
            finished_at: after.finished_at.map(Timestamp::as_millis),
        }
    }
}

#[derive(Serialize)]
pub(super) struct EventColumns<'a> {
    pub(super) job: Option<String>,
    pub(super) epoch: i64,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) actor: &'a str,
    pub(super) code: Option<&'a str>,
    pub(super) detail: Option<&'a str>,
}

#[derive(Serialize)]
struct EntryColumns<'a> {
    job: String,
    queue: &'a str,
    priority: u8,
    available_at: i64,
}

#[derive(Serialize)]
struct PutBackColumns<'a> {
    job: String,
    available_at: i64,
    epoch: i64,
    actor: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct EffectColumns<'a> {
    job: String,
    name: &'a str,
    kind: &'static str,
    epoch: i64,
    outcome: Option<&'a str>,
}

pub(super) async fn write(
    connection: &mut SqliteConnection,
    now: Timestamp,
    writes: &Writes,
) -> Result<(), StoreError> {
    let jobs: Vec<JobColumns<'_>> = writes.updates.iter().map(Into::into).collect();
    let written = spread(connection, now, "writing jobs", UPDATE_JOBS, &jobs).await?;
    all_matched("jobs", written, jobs.len())?;

    let gone: Vec<String> = writes.entries_gone.iter().map(|job| hex(*job)).collect();
    let written = spread(
        connection,
        now,
        "deleting outbox entries",
        DELETE_ENTRIES,
        &gone,
    )
    .await?;
    all_matched("outbox entries", written, gone.len())?;

    let entries: Vec<EntryColumns<'_>> = writes
        .entries_new
        .iter()
        .map(|entry| EntryColumns {
            job: hex(entry.job),
            queue: &entry.queue,
            priority: entry.priority,
            available_at: entry.available_at.as_millis(),
        })
        .collect();
    spread(
        connection,
        now,
        "writing outbox entries",
        INSERT_ENTRIES,
        &entries,
    )
    .await?;

    let back: Vec<PutBackColumns<'_>> = writes
        .entries_put_back
        .iter()
        .map(|entry| PutBackColumns {
            job: hex(entry.job),
            available_at: entry.available_at.as_millis(),
            epoch: entry.epoch.0,
            actor: &entry.actor,
            reason: entry.reason,
        })
        .collect();
    let written = spread(
        connection,
        now,
        "putting entries back",
        PUT_BACK_ENTRIES,
        &back,
    )
    .await?;
    all_matched("outbox entries", written, back.len())?;
    spread(connection, now, "writing put-backs", PUT_BACK_EVENTS, &back).await?;

    let events: Vec<EventColumns<'_>> = writes
        .events
        .iter()
        .map(|event| EventColumns {
            job: Some(hex(event.job)),
            epoch: event.epoch.0,
            kind: event.kind.as_str(),
            actor: &event.actor,
            code: event.code.as_deref(),
            detail: event.detail.as_deref(),
        })
        .collect();
    spread(connection, now, "writing events", INSERT_EVENTS, &events).await?;
    effects(connection, now, writes).await
}

async fn effects(
    connection: &mut SqliteConnection,
    now: Timestamp,
    writes: &Writes,
) -> Result<(), StoreError> {
    let (mut open, mut settle, mut decline, mut evidence) = (vec![], vec![], vec![], vec![]);
    for effect in &writes.effects {
        let (rows, kind, outcome) = match &effect.change {
            EffectChange::Open => (&mut open, "effect", None),
            EffectChange::Step(outcome) => (&mut open, "step", Some(outcome)),
            EffectChange::Settle(outcome) => (&mut settle, "effect", Some(outcome)),
            EffectChange::Evidence(outcome) => (&mut evidence, "effect", Some(outcome)),
            EffectChange::Decline => (&mut decline, "effect", None),
        };
        rows.push(EffectColumns {
            job: hex(effect.job),
            name: effect.name.as_str(),
            kind,
            epoch: effect.epoch.0,
            outcome: outcome.map(String::as_str),
        });
    }
    spread(connection, now, "opening effects", WRITE_EFFECTS, &open).await?;
    let written = spread(connection, now, "settling effects", SETTLE_EFFECTS, &settle).await?;
    all_matched("effects", written, settle.len())?;
    let written = spread(
        connection,
        now,
        "declining effects",
        DECLINE_EFFECTS,
        &decline,
    )
    .await?;
    all_matched("effects", written, decline.len())?;
    spread(
        connection,
        now,
        "keeping evidence",
        KEEP_EVIDENCE,
        &evidence,
    )
    .await?;
    Ok(())
}

/// Runs one statement over many rows; none for no rows.
pub(super) async fn spread<T: Serialize>(
    connection: &mut SqliteConnection,
    now: Timestamp,
    doing: &'static str,
    statement: &'static str,
    rows: &[T],
) -> Result<u64, StoreError> {
    if rows.is_empty() {
        return Ok(0);
    }
    let done = sqlx::query(statement)
        .bind(json(rows)?)
        .bind(now.as_millis())
        .execute(connection)
        .await
        .map_err(during(doing))?;
    Ok(done.rows_affected())
}

fn all_matched(what: &str, written: u64, decided: usize) -> Result<(), StoreError> {
    if written == decided as u64 {
        return Ok(());
    }
    Err(StoreError::Corrupt {
        what: format!("{decided} {what} were decided on, {written} matched their fence"),
    })
}
