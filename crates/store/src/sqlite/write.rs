//! Writes a transaction's decisions, each kind of write in one statement.
//!
//! Every update of a job names what must still be true of the row: its epoch,
//! its state, and for a claim's holder a live lease and deadline, for the
//! reaper an expired one. The decision was made under the same lock, so a row
//! that does not match is a broken invariant and undoes the transaction.

use fencepost_core::event::EventType;
use fencepost_core::id::{Epoch, JobId};
use fencepost_core::time::Timestamp;
use sqlx::sqlite::SqliteConnection;

use super::spread::{Cells, Spread};
use crate::decide::{EffectChange, EffectWrite, Fence, JobUpdate, PutBackWrite, Writes};
use crate::error::StoreError;

pub(super) static UPDATE_JOBS: Spread = Spread::new(
    18,
    "
    WITH new(id, was_epoch, was_state, fence, state, epoch, attempts, snoozes, run_at, deadline_at,
             lease_expires_at, leased_by, cancel_requested_at, result, error_code, error_message,
             finished_at, now) AS (:rows)
    UPDATE job SET
        state = new.state, epoch = new.epoch, attempts = new.attempts, snoozes = new.snoozes,
        run_at = new.run_at, deadline_at = new.deadline_at,
        lease_expires_at = new.lease_expires_at, leased_by = new.leased_by,
        cancel_requested_at = new.cancel_requested_at, result = new.result,
        error_code = new.error_code, error_message = new.error_message,
        updated_at = new.now, finished_at = new.finished_at
    FROM new
    WHERE job.id = new.id AND job.epoch = new.was_epoch AND job.state = new.was_state
      AND CASE new.fence
            WHEN 'live' THEN job.lease_expires_at > new.now AND job.deadline_at > new.now
            WHEN 'expired' THEN job.lease_expires_at <= new.now OR job.deadline_at <= new.now
            ELSE TRUE
          END",
);

pub(super) static DELETE_ENTRIES: Spread =
    Spread::new(1, "DELETE FROM outbox WHERE job IN (:rows)");

static INSERT_ENTRIES: Spread = Spread::new(
    5,
    "
    WITH new(job, queue, priority, stage, available_at) AS (:rows)
    INSERT INTO outbox (job, queue, priority, stage, available_at)
    SELECT job, queue, priority, stage, available_at FROM new WHERE job IS NOT NULL",
);

pub(super) static PUT_BACK_ENTRIES: Spread = Spread::new(
    2,
    "
    WITH back(job, available_at) AS (:rows)
    UPDATE outbox SET stage = 'waiting', available_at = back.available_at,
        dispatch_no = dispatch_no + 1, put_backs = put_backs + 1,
        taken_until = NULL, published_at = NULL, parked_at = NULL
    FROM back WHERE outbox.job = back.job",
);

/// Repeated put-backs of one entry update one row.
pub(super) static PUT_BACK_EVENTS: Spread = Spread::new(
    5,
    "
    WITH back(job, epoch, actor, reason, now) AS (:rows)
    INSERT INTO event (job, entry, epoch, type, at, actor, code, last_at)
    SELECT outbox.job, outbox.seq, back.epoch, 'put_back', back.now, back.actor, back.reason, back.now
    FROM back CROSS JOIN outbox ON outbox.job = back.job
    WHERE TRUE
    ON CONFLICT (entry, type) WHERE entry IS NOT NULL DO UPDATE
    SET count = count + 1, last_at = excluded.last_at, actor = excluded.actor, code = excluded.code",
);

static INSERT_EVENTS: Spread = Spread::new(
    7,
    "
    WITH new(job, epoch, type, now, actor, code, detail) AS (:rows)
    INSERT INTO event (job, epoch, type, at, actor, code, detail, last_at)
    SELECT job, epoch, type, now, actor, code, detail, now FROM new WHERE type IS NOT NULL",
);

static WRITE_EFFECTS: Spread = Spread::new(
    7,
    "
    WITH new(job, name, kind, epoch, now, settled_at, outcome) AS (:rows)
    INSERT INTO effect (job, name, kind, epoch, opened_at, settled_at, outcome)
    SELECT job, name, kind, epoch, now, settled_at, outcome FROM new WHERE job IS NOT NULL
    ON CONFLICT (job, name) DO UPDATE
    SET epoch = excluded.epoch, opened_at = excluded.opened_at, settled_at = NULL, declined_at = NULL,
        outcome = NULL, evidence = NULL",
);

pub(super) static SETTLE_EFFECTS: Spread = Spread::new(
    5,
    "
    WITH new(job, name, epoch, now, outcome) AS (:rows)
    UPDATE effect SET settled_at = new.now, outcome = new.outcome
    FROM new
    WHERE effect.job = new.job AND effect.name = new.name AND effect.epoch = new.epoch
      AND effect.settled_at IS NULL AND effect.declined_at IS NULL",
);

pub(super) static DECLINE_EFFECTS: Spread = Spread::new(
    4,
    "
    WITH new(job, name, epoch, now) AS (:rows)
    UPDATE effect SET declined_at = new.now
    FROM new
    WHERE effect.job = new.job AND effect.name = new.name AND effect.epoch = new.epoch
      AND effect.settled_at IS NULL AND effect.declined_at IS NULL",
);

pub(super) static KEEP_EVIDENCE: Spread = Spread::new(
    4,
    "
    WITH new(job, name, epoch, outcome) AS (:rows)
    UPDATE effect SET evidence = new.outcome
    FROM new
    WHERE effect.job = new.job AND effect.name = new.name AND effect.epoch = new.epoch
      AND effect.settled_at IS NULL AND effect.declined_at IS NULL",
);

/// An event to write.
pub(super) struct EventColumns<'a> {
    pub(super) job: Option<JobId>,
    pub(super) epoch: Epoch,
    pub(super) kind: EventType,
    pub(super) actor: &'a str,
    pub(super) code: Option<&'a str>,
    pub(super) detail: Option<&'a str>,
}

pub(super) async fn events<'a>(
    connection: &mut SqliteConnection,
    now: Timestamp,
    events: impl IntoIterator<Item = EventColumns<'a>>,
) -> Result<(), StoreError> {
    let bind = |cells: &mut Cells, event: EventColumns<'_>| {
        let job = event.job.as_ref().map(|job| job.0.as_bytes().as_slice());
        cells.add(job).add(event.epoch.0).add(event.kind.as_str());
        cells.add(now.as_millis()).add(event.actor);
        cells.add(event.code).add(event.detail);
    };
    INSERT_EVENTS
        .execute(connection, "writing events", events, bind)
        .await?;
    Ok(())
}

pub(super) async fn write(
    connection: &mut SqliteConnection,
    now: Timestamp,
    writes: &Writes,
) -> Result<(), StoreError> {
    let bind = |cells: &mut Cells, update: &JobUpdate| bind_job(cells, update, now);
    let written = UPDATE_JOBS
        .execute(connection, "writing jobs", &writes.updates, bind)
        .await?;
    all_matched("jobs", written, writes.updates.len())?;
    entries(connection, now, writes).await?;
    let new = writes.events.iter().map(|event| EventColumns {
        job: Some(event.job),
        epoch: event.epoch,
        kind: event.kind,
        actor: &event.actor,
        code: event.code.as_deref(),
        detail: event.detail.as_deref(),
    });
    events(connection, now, new).await?;
    effects(connection, now, writes).await
}

fn bind_job(cells: &mut Cells, update: &JobUpdate, now: Timestamp) {
    let after = &update.after;
    let fence = match update.fence {
        Fence::Unchanged => "unchanged",
        Fence::Live => "live",
        Fence::Expired => "expired",
    };
    let error = after.error.as_ref();
    cells.job(after.id).add(update.was_epoch.0);
    cells.add(update.was_state.as_str()).add(fence);
    cells.add(after.state.as_str()).add(after.epoch.0);
    cells.add(after.attempts).add(after.snoozes);
    cells.add(after.run_at.as_millis());
    cells.add(after.deadline_at.as_millis());
    cells.add(after.lease_expires_at.map(Timestamp::as_millis));
    cells.add(after.leased_by.as_deref());
    cells.add(after.cancel_requested_at.map(Timestamp::as_millis));
    cells.add(after.result.as_deref());
    cells.add(error.map(|error| error.code.as_str()));
    cells.add(error.map(|error| error.message.as_str()));
    cells.add(after.finished_at.map(Timestamp::as_millis));
    cells.add(now.as_millis());
}

async fn entries(
    connection: &mut SqliteConnection,
    now: Timestamp,
    writes: &Writes,
) -> Result<(), StoreError> {
    let gone = &writes.entries_gone;
    let bind = |cells: &mut Cells, job: &JobId| {
        cells.job(*job);
    };
    let written = DELETE_ENTRIES
        .execute(connection, "deleting outbox entries", gone, bind)
        .await?;
    all_matched("outbox entries", written, gone.len())?;

    let new = writes.entries_new.iter().map(|entry| NewEntry {
        job: entry.job,
        queue: &entry.queue,
        priority: entry.priority,
        available_at: entry.available_at,
    });
    insert_entries(connection, now, new).await?;

    let back = &writes.entries_put_back;
    let bind = |cells: &mut Cells, entry: &PutBackWrite| {
        cells.job(entry.job).add(entry.available_at.as_millis());
    };
    let written = PUT_BACK_ENTRIES
        .execute(connection, "putting entries back", back, bind)
        .await?;
    all_matched("outbox entries", written, back.len())?;
    let bind = |cells: &mut Cells, entry: &PutBackWrite| {
        cells.job(entry.job).add(entry.epoch.0);
        cells.add(entry.actor.as_str()).add(entry.reason);
        cells.add(now.as_millis());
    };
    PUT_BACK_EVENTS
        .execute(connection, "writing put-backs", back, bind)
        .await?;
    Ok(())
}

/// The outbox entry of a job that is queued.
pub(super) struct NewEntry<'a> {
    pub(super) job: JobId,
    pub(super) queue: &'a str,
    pub(super) priority: u8,
    pub(super) available_at: Timestamp,
}

pub(super) async fn insert_entries<'a>(
    connection: &mut SqliteConnection,
    now: Timestamp,
    entries: impl IntoIterator<Item = NewEntry<'a>>,
) -> Result<(), StoreError> {
    let bind = |cells: &mut Cells, entry: NewEntry<'_>| {
        let stage = if entry.available_at <= now {
            "ready"
        } else {
            "waiting"
        };
        cells.job(entry.job).add(entry.queue).add(entry.priority);
        cells.add(stage).add(entry.available_at.as_millis());
    };
    INSERT_ENTRIES
        .execute(connection, "writing outbox entries", entries, bind)
        .await?;
    Ok(())
}

async fn effects(
    connection: &mut SqliteConnection,
    now: Timestamp,
    writes: &Writes,
) -> Result<(), StoreError> {
    let (mut open, mut settle, mut decline, mut evidence) = (vec![], vec![], vec![], vec![]);
    for effect in &writes.effects {
        match &effect.change {
            EffectChange::Open => open.push((effect, "effect", None)),
            EffectChange::Step(outcome) => open.push((effect, "step", Some(outcome.as_str()))),
            EffectChange::Settle(outcome) => settle.push((effect, outcome.as_str())),
            EffectChange::Evidence(outcome) => evidence.push((effect, outcome.as_str())),
            EffectChange::Decline => decline.push(effect),
        }
    }
    let named = |cells: &mut Cells, effect: &EffectWrite| {
        cells
            .job(effect.job)
            .add(effect.name.as_str())
            .add(effect.epoch.0);
    };
    let bind = |cells: &mut Cells, (effect, kind, outcome): (&EffectWrite, &str, Option<&str>)| {
        cells.job(effect.job).add(effect.name.as_str());
        cells.add(kind).add(effect.epoch.0).add(now.as_millis());
        cells.add(outcome.map(|_| now.as_millis())).add(outcome);
    };
    WRITE_EFFECTS
        .execute(connection, "opening effects", open, bind)
        .await?;
    let wanted = settle.len();
    let bind = |cells: &mut Cells, (effect, outcome): (&EffectWrite, &str)| {
        named(cells, effect);
        cells.add(now.as_millis()).add(outcome);
    };
    let written = SETTLE_EFFECTS
        .execute(connection, "settling effects", settle, bind)
        .await?;
    all_matched("effects", written, wanted)?;
    let wanted = decline.len();
    let bind = |cells: &mut Cells, effect: &EffectWrite| {
        named(cells, effect);
        cells.add(now.as_millis());
    };
    let written = DECLINE_EFFECTS
        .execute(connection, "declining effects", decline, bind)
        .await?;
    all_matched("effects", written, wanted)?;
    let bind = |cells: &mut Cells, (effect, outcome): (&EffectWrite, &str)| {
        named(cells, effect);
        cells.add(outcome);
    };
    KEEP_EVIDENCE
        .execute(connection, "keeping evidence", evidence, bind)
        .await?;
    Ok(())
}

fn all_matched(what: &str, written: u64, decided: usize) -> Result<(), StoreError> {
    if written == decided as u64 {
        return Ok(());
    }
    Err(StoreError::Corrupt {
        what: format!("{decided} {what} were decided on, {written} matched their fence"),
    })
}
